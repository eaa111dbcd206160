//! Random operations on both stores against a plain map.

use super::support::*;
use lodestore_kv::{CFS, Cf, Kv, KvOp, MemKv, RocksConfig, RocksKv};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::BTreeMap;

#[derive(Default)]
struct Model {
    by_cf: [BTreeMap<Vec<u8>, Vec<u8>>; 5],
    markers: [u64; 5],
}

impl Model {
    fn write(&mut self, ops: &[KvOp], lsn: u64) {
        for op in ops {
            let n = op.cf() as usize;
            self.markers[n] = lsn;
            let map = &mut self.by_cf[n];
            match op {
                KvOp::Put { key, value, .. } => drop(map.insert(key.clone(), value.clone())),
                KvOp::Delete { key, .. } => drop(map.remove(key)),
                KvOp::DeleteRange { from, to, .. } => map.retain(|k, _| !(k >= from && k < to)),
            }
        }
    }

    fn range(&self, cf: Cf, lower: &[u8], upper: &[u8]) -> Entries {
        let inside = |k: &Vec<u8>| k[..] >= *lower && k[..] < *upper;
        self.by_cf[cf as usize].iter().filter(|(k, _)| inside(k)).map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

/// Few keys of few lengths, so that operations meet.
fn key(rng: &mut StdRng) -> Vec<u8> {
    let len = [1, 1, 2, 2, 3][rng.random_range(0..5)];
    (0..len).map(|_| [0, 1, b'a', b'b', b'c', 0xfe, 0xff][rng.random_range(0..7)]).collect()
}

fn op(rng: &mut StdRng) -> KvOp {
    let cf = CFS[rng.random_range(0..5)];
    match rng.random_range(0..10) {
        0..6 => {
            let len = [0, 1, 10, 100, 1000][rng.random_range(0..5)];
            put(cf, key(rng), vec![rng.random(); len])
        }
        6..8 => delete(cf, key(rng)),
        _ => {
            let from = if rng.random_bool(0.1) { Vec::new() } else { key(rng) };
            delete_range(cf, from, key(rng))
        }
    }
}

fn check(kv: &dyn Kv, model: &Model, rng: &mut StdRng) {
    for _ in 0..5 {
        let (cf, k) = (CFS[rng.random_range(0..5)], key(rng));
        assert_eq!(kv.get(cf, &k).unwrap(), model.by_cf[cf as usize].get(&k).cloned());
        let upper = key(rng);
        assert_eq!(range(kv, cf, &k, &upper), model.range(cf, &k, &upper));
    }
    assert_eq!(markers(kv), model.markers);
}

fn check_all(kv: &dyn Kv, model: &Model) {
    for cf in CFS {
        assert_eq!(range(kv, cf, b"", END), model.range(cf, b"", END));
    }
    assert_eq!(markers(kv), model.markers);
}

#[test]
fn random_operations_on_rocksdb_match_a_plain_map_across_reopenings() {
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv");
    let cfg = RocksConfig {
        write_buffer_bytes: [64 << 10; 5],
        min_write_buffer_number_to_merge: [1, 2, 1, 2, 1],
        ..config(dir.path())
    };
    let mut kv = RocksKv::create(&path, &cfg).unwrap();
    let mut model = Model::default();
    for lsn in 1..=3000 {
        let ops: Vec<KvOp> = (0..rng.random_range(1..30)).map(|_| op(&mut rng)).collect();
        kv.write(&ops, lsn).unwrap();
        model.write(&ops, lsn);
        check(&kv, &model, &mut rng);
        match rng.random_range(0..300) {
            0..3 => kv.flush().unwrap(),
            3 => kv.compact().unwrap(),
            4 => {
                kv.flush().unwrap();
                drop(kv);
                kv = RocksKv::open(&path, &cfg).unwrap();
                check_all(&kv, &model);
            }
            _ => {}
        }
    }
    check_all(&kv, &model);
}

#[test]
fn random_operations_in_memory_match_a_plain_map_across_crashes() {
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..100 {
        let mut kv = MemKv::new();
        let mut model = Model::default();
        let mut crashes = 0;
        for lsn in 1..=150 {
            let ops: Vec<KvOp> = (0..rng.random_range(1..10)).map(|_| op(&mut rng)).collect();
            kv.write(&ops, lsn).unwrap();
            model.write(&ops, lsn);
            check(&kv, &model, &mut rng);
            match rng.random_range(0..20) {
                0 => kv.flush().unwrap(),
                1 => {
                    // Everything was flushed: nothing can be lost.
                    kv.flush().unwrap();
                    kv = kv.image().durable();
                    check_all(&kv, &model);
                    crashes += 1;
                }
                2 => kv = kv.image().current(),
                _ => {}
            }
        }
        check_all(&kv, &model);
        assert!(crashes <= 150);
    }
}
