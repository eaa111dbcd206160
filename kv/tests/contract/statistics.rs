//! Counters against the files they count.

use super::support::*;
use lodestore_kv::{CFS, Cf, CfStats, Kv, KvOp, RocksConfig, RocksKv};
use std::fs;
use std::path::Path;

fn bytes_of(path: &Path, suffix: &str) -> u64 {
    fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.file_name().to_str().unwrap().ends_with(suffix))
        .map(|e| e.metadata().unwrap().len())
        .sum()
}

fn fill(cf: Cf, from: u64, count: u64, bytes: usize) -> Vec<KvOp> {
    (from..from + count).map(|n| put(cf, format!("{n:08}"), vec![n as u8; bytes])).collect()
}

#[test]
fn counters_of_any_store_grow_with_flushes() {
    on_both(|kv| {
        kv.write(&fill(Cf::Extent, 0, 1000, 150), 1).unwrap();
        let before = kv.stats().by_cf[Cf::Extent as usize];
        assert_eq!((before.flushes, before.flush_bytes), (0, 0));
        assert!(before.memtable_bytes >= 150_000);
        kv.flush().unwrap();
        let after = kv.stats().by_cf[Cf::Extent as usize];
        assert_eq!(after.flushes, 1);
        assert!((150_000..300_000).contains(&after.flush_bytes), "{after:?}");
        assert!(after.table_bytes >= 150_000 && after.memtable_bytes < before.memtable_bytes);
        // Nothing new: nothing written.
        kv.flush().unwrap();
        assert_eq!(kv.stats().by_cf[Cf::Extent as usize].flushes, 1);
        assert_eq!(kv.stats().by_cf[Cf::Onode as usize].flush_bytes, 0);
    });
}

#[test]
fn flush_bytes_are_the_bytes_of_the_table_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv");
    let kv = RocksKv::create(&path, &config(dir.path())).unwrap();
    for (lsn, cf) in CFS.into_iter().enumerate() {
        kv.write(&fill(cf, 0, 500 * (lsn as u64 + 1), 100), lsn as u64 + 1).unwrap();
    }
    kv.flush().unwrap();
    let stats = kv.stats();
    let flushed: u64 = stats.by_cf.iter().map(|s| s.flush_bytes).sum();
    assert_eq!(flushed, bytes_of(&path, ".sst"));
    assert_eq!(flushed, stats.by_cf.iter().map(|s| s.table_bytes).sum::<u64>());
    assert!(stats.by_cf.iter().all(|s| s.flushes == 1 && s.compactions == 0));
    assert!(stats.by_cf[4].flush_bytes > 4 * stats.by_cf[0].flush_bytes);
    assert!(stats.other_bytes > 0);
    assert_eq!(stats.log_bytes, 0);
}

#[test]
fn compaction_bytes_are_counted_by_family_and_agree_with_the_totals() {
    let dir = tempfile::tempdir().unwrap();
    let kv = RocksKv::create(&dir.path().join("kv"), &config(dir.path())).unwrap();
    for round in 1..=6u64 {
        // Each round overwrites half of the one before, so that no table can just be moved.
        kv.write(&fill(Cf::Extent, round * 1000, 2000, 150), round).unwrap();
        kv.write(&fill(Cf::Omap, round * 10, 20, 4000), round).unwrap();
        kv.flush().unwrap();
    }
    kv.compact().unwrap();
    let stats = kv.stats();
    for cf in [Cf::Extent, Cf::Omap] {
        let s = stats.by_cf[cf as usize];
        assert_eq!(s.flushes, 6);
        assert!(s.compactions >= 1 && s.compaction_bytes >= s.table_bytes, "{s:?}");
    }
    assert_eq!(stats.by_cf[Cf::Onode as usize].compactions, 0);
    let (flushed, compacted) = kv.written_bytes_total();
    // RocksDB's totals take in what the same threads append to the manifest.
    let sum = |bytes: fn(&CfStats) -> u64| stats.by_cf.iter().map(bytes).sum::<u64>();
    for (counted, total) in [(sum(|s| s.flush_bytes), flushed), (sum(|s| s.compaction_bytes), compacted)] {
        assert!(counted <= total && total - counted < 16 << 10, "{counted} of {total}");
    }
}

#[test]
fn blob_files_and_compression_and_universal_compaction_work() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv");
    let cfg = RocksConfig {
        omap_blob_bytes_min: Some(1000),
        compaction: lodestore_kv::Compaction::Universal,
        compression: [lodestore_kv::Compression::Lz4; 5],
        ..config(dir.path())
    };
    let kv = RocksKv::create(&path, &cfg).unwrap();
    kv.write(&fill(Cf::Omap, 0, 100, 4000), 1).unwrap();
    kv.write(&fill(Cf::Extent, 0, 10_000, 150), 1).unwrap();
    kv.flush().unwrap();
    kv.write(&fill(Cf::Omap, 50, 100, 4000), 2).unwrap();
    kv.flush().unwrap();
    let stats = kv.stats();
    let flushed: u64 = stats.by_cf.iter().map(|s| s.flush_bytes).sum();
    assert_eq!(flushed, bytes_of(&path, ".sst") + bytes_of(&path, ".blob"));
    assert!(bytes_of(&path, ".blob") > 0);
    // Constant values: LZ4 makes little of them.
    assert!(stats.by_cf[Cf::Extent as usize].flush_bytes < 600_000);
    kv.compact().unwrap();
    drop(kv);
    let kv = RocksKv::open(&path, &cfg).unwrap();
    assert_eq!(range(&kv, Cf::Omap, b"", END).len(), 150);
    assert_eq!(kv.get(Cf::Omap, b"00000149").unwrap(), Some(vec![149; 4000]));
}

#[test]
fn log_bytes_grow_only_when_the_log_is_on() {
    let dir = tempfile::tempdir().unwrap();
    for log in [false, true] {
        let path = dir.path().join(format!("{log}"));
        let kv = RocksKv::create(&path, &RocksConfig { log, ..config(dir.path()) }).unwrap();
        kv.write(&fill(Cf::Extent, 0, 100, 150), 1).unwrap();
        let got = kv.stats().log_bytes;
        assert_eq!(got >= 15_000, log, "{got}");
        assert_eq!(bytes_of(&path, ".log") >= 15_000, log);
    }
}
