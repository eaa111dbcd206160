//! Stores to test and short names for operations.

use lodestore_kv::{CFS, Cf, Kv, KvOp, MemKv, RocksConfig, RocksKv};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

/// Sorts after every key the tests use.
pub const END: &[u8] = &[0xff; 9000];

pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Small caches; buffered I/O where the temporary folder's file system refuses O_DIRECT.
pub fn config(dir: &Path) -> RocksConfig {
    let direct = takes_direct_io(dir);
    RocksConfig { block_cache_bytes: 8 << 20, direct_reads: direct, direct_flush: direct, ..RocksConfig::default() }
}

pub fn takes_direct_io(dir: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    const O_DIRECT: i32 = 0o40000;
    let probe = dir.join("direct-io-probe");
    let taken =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).custom_flags(O_DIRECT).open(&probe).is_ok();
    let _absent_if_refused = std::fs::remove_file(&probe);
    taken
}

/// Runs `test` on each kind of store, freshly made.
pub fn on_both(test: impl Fn(&dyn Kv)) {
    test(&MemKv::new());
    let dir = tempfile::tempdir().unwrap();
    test(&RocksKv::create(&dir.path().join("kv"), &config(dir.path())).unwrap());
}

pub fn put(cf: Cf, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> KvOp {
    KvOp::Put { cf, key: key.into(), value: value.into() }
}

pub fn delete(cf: Cf, key: impl Into<Vec<u8>>) -> KvOp {
    KvOp::Delete { cf, key: key.into() }
}

pub fn delete_range(cf: Cf, from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) -> KvOp {
    KvOp::DeleteRange { cf, from: from.into(), to: to.into() }
}

pub fn range(kv: &dyn Kv, cf: Cf, lower: &[u8], upper: &[u8]) -> Entries {
    kv.iter(cf, lower, upper).collect::<Result<_, _>>().unwrap()
}

pub fn keys(kv: &dyn Kv, cf: Cf) -> Vec<String> {
    let entries = range(kv, cf, b"", END);
    entries.into_iter().map(|(k, _)| String::from_utf8(k).unwrap()).collect()
}

pub fn everything(kv: &dyn Kv) -> [Entries; 5] {
    CFS.map(|cf| range(kv, cf, b"", END))
}

pub fn markers(kv: &dyn Kv) -> [u64; 5] {
    CFS.map(|cf| kv.marker(cf).unwrap())
}

/// What a crash would leave, if nothing writes to `from` meanwhile.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The seed of a random test: LODESTORE_SEED if set; printed, and shown when the test fails.
pub fn seed() -> u64 {
    let fresh = || RandomState::new().hash_one("seed");
    let seed =
        std::env::var("LODESTORE_SEED").map_or_else(|_| fresh(), |s| s.parse().expect("LODESTORE_SEED is a number"));
    println!("LODESTORE_SEED={seed}");
    seed
}
