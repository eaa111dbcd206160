//! What the trace of RocksDB's files says, against the files.

use super::support::*;
use lodestore_kv::{Cf, FileEvent, FileSink, FileTrace, Kv, KvOp, RocksConfig, RocksKv};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Kept(Mutex<Vec<FileEvent>>);

impl FileSink for Kept {
    fn file_event(&self, event: FileEvent) {
        self.0.lock().unwrap().push(event);
    }
}

/// Files that the events leave, by number.
fn left(events: &[FileEvent]) -> BTreeMap<u64, u64> {
    let mut files = BTreeMap::new();
    for event in events {
        match *event {
            FileEvent::Found { number, bytes } | FileEvent::Made { number, bytes, .. } => {
                files.insert(number, bytes);
            }
            FileEvent::Removed { number } => assert!(files.remove(&number).is_some(), "{number} was there"),
            FileEvent::LogAppended { .. } => {}
        }
    }
    files
}

/// Table and blob files in a folder, by number.
fn files(path: &Path) -> BTreeMap<u64, u64> {
    let entries = std::fs::read_dir(path).unwrap().map(|e| e.unwrap());
    entries
        .filter_map(|e| {
            let name = e.file_name().into_string().unwrap();
            let (stem, kind) = name.split_once('.')?;
            matches!(kind, "sst" | "blob").then(|| (stem.parse().unwrap(), e.metadata().unwrap().len()))
        })
        .collect()
}

fn round(kv: &RocksKv, n: u64) {
    let key = |k: u64| format!("{k:08}");
    let extents = (n * 1000..n * 1000 + 2000).map(|k| put(Cf::Extent, key(k), vec![n as u8; 150]));
    let omap = (0..20).map(|k| put(Cf::Omap, key(k), vec![n as u8; 5000]));
    kv.write(&extents.chain(omap).collect::<Vec<KvOp>>(), n).unwrap();
    kv.flush().unwrap();
}

#[test]
fn files_made_and_not_removed_are_the_files_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv");
    let untraced = RocksConfig { omap_blob_bytes_min: Some(4096), ..config(dir.path()) };
    let kv = RocksKv::create(&path, &untraced).unwrap();
    (1..=2).for_each(|n| round(&kv, n));
    drop(kv);

    let kept = Arc::new(Kept::default());
    let kv = RocksKv::open(&path, &RocksConfig { file_trace: Some(FileTrace(kept.clone())), ..untraced }).unwrap();
    (3..=6).for_each(|n| round(&kv, n));
    kv.compact().unwrap();
    let stats = kv.stats();
    drop(kv);
    let events = kept.0.lock().unwrap();
    assert_eq!(left(&events), files(&path));
    assert!(events.iter().any(|e| matches!(e, FileEvent::Found { .. })));
    assert!(events.iter().any(|e| matches!(e, FileEvent::Removed { .. })));
    assert!(!events.iter().any(|e| matches!(e, FileEvent::LogAppended { .. })), "its log is off");
    let made = |by_compaction| {
        let bytes = |e: &FileEvent| match *e {
            FileEvent::Made { bytes, compaction, .. } if compaction == by_compaction => bytes,
            _ => 0,
        };
        events.iter().map(bytes).sum::<u64>()
    };
    let counted = stats.by_cf.iter().fold((0, 0), |s, c| (s.0 + c.flush_bytes, s.1 + c.compaction_bytes));
    assert_eq!((made(false), made(true)), counted);
    assert!(made(false) > 0 && made(true) > 0);
}

#[test]
fn appends_to_its_own_log_are_told_where_it_is_on() {
    let dir = tempfile::tempdir().unwrap();
    let kept = Arc::new(Kept::default());
    let cfg = RocksConfig { log: true, file_trace: Some(FileTrace(kept.clone())), ..config(dir.path()) };
    let kv = RocksKv::create(&dir.path().join("kv"), &cfg).unwrap();
    for n in 1..=50u64 {
        kv.write(&[put(Cf::Extent, format!("{n}"), vec![n as u8; 3000])], n).unwrap();
    }
    kv.write(&[put(Cf::Omap, "large", vec![1; 200_000])], 51).unwrap();
    let events = kept.0.lock().unwrap();
    let appended: Vec<u64> = events
        .iter()
        .filter_map(|e| match e {
            FileEvent::LogAppended { bytes } => Some(*bytes),
            _ => None,
        })
        .collect();
    assert_eq!(appended.len(), 51);
    // A fragment more where a record begins in the middle of a block, and its end is padded.
    let (told, counted) = (appended.iter().sum::<u64>(), kv.stats().log_bytes);
    assert!(told.abs_diff(counted) <= 51 * 18, "{told} told, {counted} counted");
}
