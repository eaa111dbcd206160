//! From a store under load to the figures.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use lodestore::{MkfsOptions, MountOptions, Stats, Store};

use super::{FlashMode, FlashOptions, FlashReport, TraceFormat, TraceTo};
use crate::{BenchError, Driver, IoEngine, Job, JobOptions, Live, Until, Workload};

/// A store in a directory beside the test binary, all of its space pre-written.
fn store() -> tempfile::TempDir {
    let binary = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(binary.parent().unwrap()).unwrap();
    let size = 32 << 20;
    let o = MkfsOptions { size, prewrite: Some(size), engine: IoEngine::Threads(2), ..Default::default() };
    Store::mkfs(&dir.path().join("store"), &o, &mut |_, _, _| {}).unwrap();
    dir
}

fn options(driver: Driver, flash: FlashOptions) -> JobOptions {
    JobOptions { mount: MountOptions { engine: IoEngine::Threads(2), ..Default::default() }, driver, flash }
}

/// Overwrites of half a block in part of the blocks, so that both direct and deferred data are
/// written.
fn workload(ops: u64) -> Workload {
    Workload {
        objects: 8,
        object_size: 1 << 20,
        io_size: 6 << 10,
        depth: 4,
        until: Until::Ops(ops),
        ..Default::default()
    }
}

fn model() -> FlashOptions {
    FlashOptions { mode: FlashMode::Model, ..Default::default() }
}

/// Two runs, the second with the store's counters before and after it.
fn run_twice(dir: &Path, options: JobOptions) -> ([FlashReport; 2], Stats, Stats) {
    let live = Live::default();
    let w = workload(3000);
    let (mut job, _) = Job::prepare(dir, options, std::slice::from_ref(&w), &live).unwrap();
    let first = job.run(&w, &live).unwrap().flash.unwrap();
    let before = job.stats().unwrap();
    let second = job.run(&w, &live).unwrap().flash.unwrap();
    let after = job.stats().unwrap();
    job.finish().unwrap();
    ([first, second], before, after)
}

/// Host bytes of the model against the store's and RocksDB's own counts: what is not in the trace
/// would be missing here.
#[test]
fn the_model_drive_gets_every_byte_of_the_ledger() {
    for driver in [Driver::Thread, Driver::Embedded] {
        let dir = store();
        let ([first, f], before, after) = run_twice(&dir.path().join("store"), options(driver, model()));
        let host = |class: &str| f.by_class.iter().find(|(c, _)| *c == class).map_or(0, |(_, b)| b.host);
        let ledger = after.ledger.since(&before.ledger);
        assert!(ledger.data_direct > 0 && ledger.data_deferred > 0);
        assert_eq!(host("data"), ledger.data_direct + ledger.data_deferred);
        assert_eq!(host("log"), ledger.log());
        assert_eq!(host("prewrite"), ledger.prewrite);
        let flushed = |s: &Stats| s.kv.by_cf.iter().fold((0, 0), |n, c| (n.0 + c.flush_bytes, n.1 + c.flushes));
        let (bytes, flushes) = (flushed(&after).0 - flushed(&before).0, flushed(&after).1 - flushed(&before).1);
        // Each file ends in a block of its own.
        assert!(bytes > 0 && (bytes..bytes + flushes * 4096).contains(&host("kv_flush")));
        assert_eq!(host("kv_log"), 0);
        let sum = f.by_class.iter().fold((0, 0), |s, (_, b)| (s.0 + b.host, s.1 + b.media));
        assert_eq!((f.host_bytes, f.media_bytes), (sum.0, Some(sum.1)));
        assert!(first.host_bytes > 0 && sum.1 >= sum.0);
        let m = f.model.unwrap();
        // 32 MiB for data, the log's 16 MiB, and what the key-value store has used.
        assert!(m.drive_bytes > 47 << 20 && m.flash_bytes > m.drive_bytes + m.drive_bytes / 20);
    }
}

#[test]
fn a_store_of_another_time_is_modelled_with_the_files_it_has() {
    let dir = store();
    let path = dir.path().join("store");
    run_twice(&path, options(Driver::Thread, model()));
    let ([first, _], ..) = run_twice(&path, options(Driver::Thread, model()));
    assert!(first.by_class.iter().any(|(class, _)| *class == "kv_flush"));
}

/// Bytes of a trace by file.
fn traced(path: &Path) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        if let [_us, file, "write", _at, len] = line.split(' ').collect::<Vec<_>>()[..] {
            *sum.entry(file.to_owned()).or_default() += len.parse::<u64>().unwrap();
        }
    }
    sum
}

#[test]
fn a_trace_has_the_runs_and_fio_replays_it() {
    let dir = store();
    let path = dir.path().join("trace");
    let trace = TraceTo { path: path.clone(), format: TraceFormat::Fio };
    let flash = FlashOptions { trace: Some(trace), ..model() };
    let (reports, ..) = run_twice(&dir.path().join("store"), options(Driver::Thread, flash));
    let mut expected = BTreeMap::new();
    for (class, b) in reports.iter().flat_map(|r| &r.by_class) {
        *expected.entry((*class).to_owned()).or_default() += b.host;
    }
    assert_eq!(traced(&path), expected);

    let fio = Command::new("fio")
        .args(["--name=replay", "--ioengine=psync", "--replay_no_stall=1", "--output-format=json"])
        .arg(format!("--read_iolog={}", path.display()))
        .arg(format!("--replay_redirect={}", dir.path().join("drive").display()))
        .output();
    match fio {
        Err(e) => println!("not shown here: fio cannot be run: {e}"),
        Ok(o) => {
            let text = String::from_utf8(o.stdout).unwrap();
            let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
            let written = &json["jobs"][0]["write"]["io_bytes"];
            assert_eq!(written.as_u64(), Some(expected.values().sum()), "{text}");
        }
    }
}

#[test]
fn a_trace_without_a_model_leaves_no_figure() {
    let dir = store();
    let path = dir.path().join("trace");
    let trace = TraceTo { path: path.clone(), format: TraceFormat::Blkparse };
    let flash = FlashOptions { trace: Some(trace), ..Default::default() };
    let (live, w) = (Live::default(), workload(100));
    let options = options(Driver::Thread, flash);
    let (mut job, _) = Job::prepare(&dir.path().join("store"), options, std::slice::from_ref(&w), &live).unwrap();
    assert_eq!(job.run(&w, &live).unwrap().flash, None);
    job.finish().unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().lines().count() >= 100);
}

#[test]
fn a_drive_that_cannot_be_is_refused_before_anything_runs() {
    let dir = store();
    let refused = |flash| {
        let (live, w) = (Live::default(), workload(100));
        let (mut job, _) =
            Job::prepare(&dir.path().join("store"), options(Driver::Thread, flash), std::slice::from_ref(&w), &live)
                .unwrap();
        job.run(&w, &live)
    };
    let large = FlashOptions { erase_block_bytes: Some(64 << 20), ..model() };
    assert!(matches!(refused(large.clone()), Err(BenchError::Usage(s)) if s.contains("erase block")));
    // Where nobody asked for a model, the run goes on without its figure and says why.
    let auto = refused(FlashOptions { mode: FlashMode::Auto, ..large }).unwrap().flash.unwrap();
    assert_eq!((auto.wa, auto.host_bytes), (None, 0));
    assert!(auto.note.unwrap().contains("erase block"));
}
