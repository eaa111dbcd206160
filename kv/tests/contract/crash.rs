//! What is left after closing, and after a crash: a copy of the folder of a store that is open and
//! at rest is what a killed process leaves.

use super::support::*;
use lodestore_kv::{CFS, Cached, Cf, Kv, KvOp, MemKv, RocksConfig, RocksKv};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::time::Duration;

#[test]
fn what_was_flushed_is_there_after_a_crash_and_the_rest_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let cfg = config(dir.path());
    let (live, left) = (dir.path().join("live"), dir.path().join("left"));
    let kv = RocksKv::create(&live, &cfg).unwrap();
    kv.write(&[put(Cf::Onode, "a", "1"), put(Cf::Omap, "a", "1")], 1).unwrap();
    kv.flush().unwrap();
    let flushed = everything(&kv);
    kv.write(&[put(Cf::Onode, "a", "2"), put(Cf::Extent, "b", "2")], 2).unwrap();
    copy_folder(&live, &left);
    let after = RocksKv::open(&left, &cfg).unwrap();
    assert_eq!(markers(&after), [0, 1, 0, 1, 0]);
    assert_eq!(everything(&after), flushed);
}

#[test]
fn closing_and_opening_keeps_everything_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let (cfg, path) = (config(dir.path()), dir.path().join("kv"));
    let model = MemKv::new();
    for round in 1..=4u64 {
        let kv = if round == 1 { RocksKv::create(&path, &cfg) } else { RocksKv::open(&path, &cfg) }.unwrap();
        assert_eq!(everything(&kv), everything(&model));
        assert_eq!(markers(&kv), markers(&model));
        let ops: Vec<KvOp> = CFS.iter().map(|cf| put(*cf, format!("{round}"), "v")).collect();
        kv.write(&ops, round).unwrap();
        model.write(&ops, round).unwrap();
        kv.flush().unwrap();
    }
}

#[test]
fn dropping_without_a_flush_leaves_each_family_at_its_marker() {
    let dir = tempfile::tempdir().unwrap();
    let (cfg, path) = (config(dir.path()), dir.path().join("kv"));
    let kv = RocksKv::create(&path, &cfg).unwrap();
    for lsn in 1..=20u64 {
        kv.write(&[put(CFS[lsn as usize % 5], format!("{lsn:03}"), "v")], lsn).unwrap();
    }
    drop(kv);
    let kv = RocksKv::open(&path, &cfg).unwrap();
    for cf in CFS {
        let marker = kv.marker(cf).unwrap();
        let want: Vec<String> =
            (1..=marker).filter(|lsn| CFS[*lsn as usize % 5] == cf).map(|lsn| format!("{lsn:03}")).collect();
        assert_eq!(keys(&kv, cf), want);
    }
}

/// Memtables of 64 KiB: RocksDB flushes them on its own, each family at another time.
fn small_memtables(base: RocksConfig) -> RocksConfig {
    RocksConfig { write_buffer_bytes: [64 << 10; 5], min_write_buffer_number_to_merge: [1, 2, 1, 2, 1], ..base }
}

#[test]
fn after_a_crash_each_family_is_a_whole_prefix_up_to_its_marker() {
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let cfg = small_memtables(config(dir.path()));
    let (live, left) = (dir.path().join("live"), dir.path().join("left"));
    let kv = RocksKv::create(&live, &cfg).unwrap();
    let model = MemKv::new();
    for lsn in 1..=2000u64 {
        let ops: Vec<KvOp> = (0..rng.random_range(1..6))
            .map(|_| {
                let cf = CFS[rng.random_range(0..5usize).min(rng.random_range(0..5))];
                let key = format!("{:03}", rng.random_range(0..400));
                match rng.random_range(0..10) {
                    0 => delete(cf, key),
                    1 => delete_range(cf, key.clone(), format!("{key}~")),
                    _ => put(cf, key, vec![lsn as u8; rng.random_range(0..400)]),
                }
            })
            .collect();
        kv.write(&ops, lsn).unwrap();
        model.write(&ops, lsn).unwrap();
    }
    wait_until_at_rest(&kv);
    copy_folder(&live, &left);
    let after = RocksKv::open(&left, &cfg).unwrap();
    let image = model.image();
    let mut different = Vec::new();
    for cf in CFS {
        let marker = after.marker(cf).unwrap();
        let at = image.by_cf[cf as usize].iter().find(|s| s.marker() == marker).unwrap();
        let want: Entries = at.entries().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert!(range(&after, cf, b"", END) == want, "family {} at {marker}", cf.name());
        different.push(marker);
    }
    // Otherwise the test has not seen what it is for.
    different.dedup();
    assert!(different.len() > 1 && different.iter().max() > Some(&0), "{different:?}");
    assert_eq!(everything(&kv), everything(&image.current()));
}

fn wait_until_at_rest(kv: &RocksKv) {
    let mut before = kv.stats();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = kv.stats();
        if now == before {
            return;
        }
        before = now;
    }
}

#[test]
fn with_its_own_log_on_nothing_written_is_lost_in_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    for log_dir in [None, Some(dir.path().join("log"))] {
        let name = if log_dir.is_some() { "apart" } else { "beside" };
        let (live, left) = (dir.path().join(name), dir.path().join(format!("{name}-left")));
        let cfg = RocksConfig { log: true, log_dir: log_dir.clone(), ..config(dir.path()) };
        let kv = RocksKv::create(&live, &cfg).unwrap();
        kv.write(&[put(Cf::Onode, "a", "1"), put(Cf::Omap, "a", "1")], 1).unwrap();
        kv.write(&[put(Cf::Onode, "b", "2")], 2).unwrap();
        assert!(kv.stats().log_bytes > 0);
        copy_folder(&live, &left);
        let left_cfg = match log_dir {
            None => cfg,
            Some(log) => {
                copy_folder(&log, &dir.path().join("log-left"));
                RocksConfig { log_dir: Some(dir.path().join("log-left")), ..cfg }
            }
        };
        let after = RocksKv::open(&left, &left_cfg).unwrap();
        assert_eq!(markers(&after), [0, 2, 0, 1, 0]);
        assert_eq!(keys(&after, Cf::Onode), ["a", "b"]);
    }
}

#[test]
fn a_lookup_in_memory_of_a_store_just_opened_blocks_until_it_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let (cfg, path) = (config(dir.path()), dir.path().join("kv"));
    let kv = RocksKv::create(&path, &cfg).unwrap();
    let ops: Vec<KvOp> = (0..2000).map(|n| put(Cf::Onode, format!("{n:05}"), vec![1; 100])).collect();
    kv.write(&ops, 1).unwrap();
    kv.flush().unwrap();
    drop(kv);
    let kv = RocksKv::open(&path, &cfg).unwrap();
    assert_eq!(kv.get_cached(Cf::Onode, b"01000").unwrap(), Cached::WouldBlock);
    let value = kv.get(Cf::Onode, b"01000").unwrap();
    assert_eq!(value.as_deref(), Some(&[1; 100][..]));
    assert_eq!(kv.get_cached(Cf::Onode, b"01000").unwrap(), Cached::Known(value));
    // A scan keeps out of the cache.
    assert_eq!(kv.scan(Cf::Onode, b"", END).count(), 2000);
    assert_eq!(kv.get_cached(Cf::Onode, b"01900").unwrap(), Cached::WouldBlock);
    assert_eq!(kv.iter(Cf::Onode, b"", END).count(), 2000);
    assert!(matches!(kv.get_cached(Cf::Onode, b"01900").unwrap(), Cached::Known(Some(_))));
}
