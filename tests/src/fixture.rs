//! Stores as released formats wrote them, kept in `tests/fixtures/`: each must be mounted, or its
//! refusal must say why, by every later version.
//!
//! What they hold is written here and nowhere else, apart from the generators of the other tests:
//! a fixture outlives those. **Nothing in [`transactions`] may be changed**; a new format adds a
//! fixture with `tests/fixtures/make`, and, if it can hold more, a function beside this one.

use std::path::{Path, PathBuf};
use std::process::Command;

use lodestore::{AllocHint, CollectionId, MkfsOptions, ObjectId, Store, Transaction};

use crate::model::Model;
use crate::realstore;

/// Room for data of a store in a fixture: the least there is.
const SIZE: u64 = 16 << 20;
/// Its log: eight of the smallest segments.
const LOG: u64 = 8192 + 8 * (64 << 10);

/// Every fixture: `tests/fixtures/NAME.tar.gz`, a directory of this name.
///
/// - `v1-closed`: format 1, unmounted cleanly, so that its allocator snapshot is believed.
/// - `v1-crashed`: format 1, copied while mounted: the second half of the transactions is in the
///   log only, deferred contents among them.
/// - `v2-closed`, `v2-crashed`: the same of format 2, whose fragment files have labels.
pub const FIXTURES: &[&str] = &["v1-closed", "v1-crashed", "v2-closed", "v2-crashed"];

/// The collection of most objects.
pub const C: CollectionId = CollectionId { pool: 1, seed: 0 };

fn bytes(seed: u32, len: u32) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(seed.wrapping_mul(2) + 1) >> 3) as u8 ^ seed as u8).collect()
}

/// Name and hash of an object of a fixture.
pub fn oid(name: &str) -> ObjectId {
    ObjectId::new(name).with_hash(name.len() as u32 * 2)
}

/// Everything done to the store of a fixture, in order.
pub fn transactions() -> Vec<Transaction> {
    let (odd, other) = (CollectionId::new(1, 1), CollectionId::new(7, 0));
    let mut all = Vec::new();
    let mut next = |build: &dyn Fn(&mut Transaction)| {
        let mut t = Transaction::new();
        build(&mut t);
        all.push(t);
    };
    next(&|t| _ = t.make_collection(C, 1).make_collection(odd, 1).make_collection(other, 0));
    next(&|t| _ = t.write(C, oid("whole"), 0, bytes(1, 300 << 10)).write(C, oid("odd end"), 77, bytes(2, 70_001)));
    let holes = |t: &mut Transaction| (0..40).for_each(|i| _ = t.write(C, oid("holes"), i * 20_000, bytes(3, 3)));
    next(&holes);
    next(&|t| {
        t.touch(C, oid("attributes")).set_attr(C, oid("attributes"), "", "of no name");
        t.set_attr(C, oid("attributes"), b"\0\xff".to_vec(), bytes(4, 2000)).set_attr(C, oid("attributes"), "gone", "");
    });
    next(&|t| {
        let entries = (0..500u32).map(|i| (i.to_be_bytes().to_vec(), bytes(i, i % 60))).collect();
        t.touch(C, oid("omap")).omap_set(C, oid("omap"), entries).omap_set_header(C, oid("omap"), bytes(5, 100));
    });
    next(&|t| {
        let mut named = ObjectId::new(bytes(6, 300)).with_hash(u32::MAX);
        (named.nspace, named.key, named.snap) = (b"name\0space".to_vec(), b"locator".to_vec(), 12);
        t.write(odd, named, 4096, bytes(7, 4096));
        t.write(other, ObjectId::new("elsewhere"), 0, bytes(8, 9000));
    });
    next(&|t| _ = t.clone_object(C, oid("whole"), oid("clone")).clone_object(C, oid("omap"), oid("omap, cloned")));
    next(&|t| _ = t.touch(C, oid("part")).clone_range(C, oid("whole"), oid("part"), 8192, 65_536, 4096));
    // From here on only in the log of a fixture that crashed.
    next(&|t| _ = t.write(C, oid("clone"), 100, bytes(9, 50)).write(C, oid("clone"), 131_000, bytes(10, 300)));
    next(&|t| _ = t.write(C, oid("odd end"), 5000, bytes(11, 100)).write(C, oid("odd end"), 8192, bytes(12, 4096)));
    next(&|t| _ = t.zero(C, oid("whole"), 10_000, 30_000).truncate(C, oid("holes"), 700_001));
    next(&|t| _ = t.rm_attr(C, oid("attributes"), "gone").rename(C, oid("attributes"), C, oid("renamed")));
    next(&|t| {
        t.omap_rm_range(C, oid("omap"), 100u32.to_be_bytes().to_vec(), 200u32.to_be_bytes().to_vec());
        t.omap_rm_keys(C, oid("omap"), vec![7u32.to_be_bytes().to_vec()]);
        t.omap_clear(C, oid("omap, cloned")).omap_set(C, oid("omap, cloned"), vec![(b"k".to_vec(), b"v".to_vec())]);
    });
    next(&|t| _ = t.hint(C, oid("part"), AllocHint { object_size: 1 << 22, write_size: 1 << 17, flags: 3 }));
    next(&|t| _ = t.write(C, oid("gone"), 0, bytes(13, 20_000)));
    next(&|t| _ = t.remove(C, oid("gone")).split(C, 2, CollectionId::new(1, 2)));
    all
}

/// What a fixture holds.
pub fn model() -> Model {
    let mut model = Model::new();
    for t in transactions() {
        model.apply(&t).expect("the transactions of a fixture apply");
    }
    model
}

/// Makes what goes into the fixtures of the present format: `dir` gets a directory for each.
pub fn make(dir: &Path) {
    let [closed, crashed] = ["closed", "crashed"].map(|how| dir.join(format!("v{}-{how}", version())));
    let working = dir.join("working");
    let o = MkfsOptions {
        size: SIZE,
        log_size: Some(LOG),
        prewrite: Some(SIZE / 2),
        engine: realstore::io_engine(),
        ..MkfsOptions::default()
    };
    Store::mkfs(&working, &o, &mut |_, _, _| ()).expect("a store can be made");
    let store = realstore::mount(&working).expect("a fresh store mounts");
    let all = transactions();
    let half = 8;
    for (i, t) in all.into_iter().enumerate() {
        if i == half {
            store.flush().expect("a store can be flushed");
        }
        store.apply(t).expect("the transactions of a fixture apply");
    }
    copy(&working, &crashed);
    store.umount().expect("a store unmounts");
    copy(&working, &closed);
    std::fs::remove_dir_all(&working).expect("the store can be removed");
}

/// Version of the store's format as this program writes it.
pub fn version() -> u32 {
    lodestore::format::superblock::VERSION
}

/// Copies a store without what belongs to its machine: RocksDB's log of itself.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-r", "--sparse=always"]).arg(from).arg(to).status();
    assert!(copied.is_ok_and(|s| s.success()), "cp of {} failed", from.display());
    for e in std::fs::read_dir(to.join("kv")).expect("it was copied") {
        let e = e.expect("it can be read");
        if e.file_name().to_string_lossy().starts_with("LOG") {
            std::fs::remove_file(e.path()).expect("it can be removed");
        }
    }
}

/// Unpacks a fixture into `dir`; the store's directory.
pub fn unpack(name: &str, dir: &Path) -> PathBuf {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.tar.gz"));
    let unpacked = Command::new("tar").arg("-xzSf").arg(&archive).arg("-C").arg(dir).status();
    assert!(unpacked.is_ok_and(|s| s.success()), "tar could not unpack {}", archive.display());
    dir.join(name)
}
