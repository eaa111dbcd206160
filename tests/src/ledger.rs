//! The ledger to the byte: the real engine on the simulated disk, one transaction at a time, each
//! class compared with a number that is derived beside it.
//!
//! What the numbers are made of (`docs/format.md` has every byte):
//! - A batch of the log is a header of 96 bytes, then 4 bytes and the record for each transaction,
//!   then zeros up to a multiple of 4096. One transaction at a time: 100 bytes of headers.
//! - A record is a version byte, three counts of a byte each, its operations, 7 bytes for each run of
//!   blocks written direct (place 1, blocks 1, checksum 5: a large number), 2 for each run of
//!   deferred blocks (place 1, blocks 1), then the deferred blocks. So 4 + operations + references.
//! - A put is 2 bytes (kind, family) and key and value with a byte of length each; a delete is 2 bytes
//!   and the key with its length; a range delete has two keys.
//! - The key of an onode is 26 bytes and the name (here one), its value 4 bytes (version, number,
//!   omap number, number of attributes), 3 of hint, the size (1 byte up to 250, 3 above) and for each
//!   attribute its name and value with a byte of length each.
//! - The key of a chunk is 12 bytes, its value a version byte and for each run of blocks 3 bytes and 4
//!   for each block. Places are below 128 throughout: one byte.
//! - The key of a region of reference counts is 8 bytes, its value a version byte and 3 for each run
//!   of equal counts.
//! - The key of an omap entry is 9 bytes and the user's key, its value a byte and the user's value.
//! - The key of a collection is 13 bytes, its value 2.

use std::sync::Arc;

use lodestore::{AllocHint, ByOp, CollectionId, Engine, Layout, Ledger, OpBytes, OpKind, Policy, Transaction};
use lodestore_aio::SimDisk;
use lodestore_kv::{Kv, KvStats, MemKv};

use crate::drive::Drive;
use crate::simstore::{Options, UUID};
use crate::subject::{C, oid, pattern, txn};

/// Room for data: 128 blocks, all pre-written, so that nothing is written ahead of need.
const DATA: u64 = 128 * 4096;
/// A segment of the log; five of them are far more than any test here fills.
const SEGMENT: u64 = 256 << 10;
const BLOCK: u64 = 4096;
/// Headers of a batch with one record.
const HEADERS: u64 = 100;

/// A store and its ledger at the last look.
struct Counted {
    options: Options,
    disk: SimDisk,
    kv: Arc<MemKv>,
    drive: Drive,
    ledger: Ledger,
    kv_stats: KvStats,
    disk_bytes: u64,
}

/// What one transaction is expected to write.
#[derive(Default)]
struct Want {
    user: u64,
    direct: u64,
    payload: u64,
    metadata: u64,
}

impl Counted {
    fn new(policy: Policy) -> Self {
        let layout = Layout { data: vec![DATA], log: 8192 + 5 * SEGMENT, segment: SEGMENT, prewrite: DATA };
        let options = Options::new(layout, policy, 7);
        let (disk, kv) = options.mkfs();
        Counted::mount(options, disk, Arc::new(kv))
    }

    fn mount(options: Options, disk: SimDisk, kv: Arc<MemKv>) -> Self {
        let disk_bytes = disk.counters().write_bytes;
        let engine = Engine::mount(Box::new(disk.reopened()), kv.clone(), options.config.clone()).expect("it mounts");
        let (ledger, kv_stats) = (Ledger::default(), kv.stats());
        Counted { options, disk, kv, drive: Drive::new(engine, 1), ledger, kv_stats, disk_bytes }
    }

    /// What was counted since the last look. However it was done: by type and by class the sums are
    /// the same, and the disk was given as many bytes.
    fn look(&mut self) -> Ledger {
        let now = self.drive.engine.ledger();
        let new = now.since(&self.ledger);
        self.ledger = now;
        assert_eq!(sums(&new.by_op), by_class(&new));
        let disk_bytes = self.disk.counters().write_bytes;
        assert_eq!(new.data() + new.log() + new.prewrite, disk_bytes - self.disk_bytes);
        self.disk_bytes = disk_bytes;
        new
    }

    /// One transaction, alone in its batch: compares every class.
    #[track_caller]
    fn step(&mut self, kind: OpKind, want: Want, build: impl FnOnce(&mut Transaction) -> &mut Transaction) -> Ledger {
        self.drive.submit(txn(build));
        self.drive.idle();
        let got = self.look();
        let Want { user, direct, payload, metadata } = want;
        let ops = OpBytes {
            ops: 1,
            user,
            data_direct: direct,
            data_deferred: 0,
            log_payload: payload,
            log_metadata: metadata,
        };
        assert_eq!(got.by_op.iter().collect::<Vec<_>>(), [(kind, &ops)]);
        assert_eq!(got.user(), user);
        assert_eq!((got.data_direct, got.data_deferred), (direct, 0));
        assert_eq!((got.log_payload, got.log_metadata), (payload, metadata));
        assert_eq!((got.log_header, got.log_padding), (HEADERS, BLOCK - HEADERS - metadata));
        got
    }

    /// Everything that waits is written: tables, contents in place, and a batch that says that the log
    /// is trimmed (two, where tables are there before contents are), a header of 96 bytes in a block.
    /// Bytes of tables by family.
    #[track_caller]
    fn flush(&mut self, deferred: u64) -> [u64; 5] {
        let mut events = Vec::new();
        let batches = self.drive.engine.counters().batches;
        self.drive.engine.settle(&mut events).expect("the disk works");
        assert!(events.is_empty(), "nothing was under way");
        let got = self.look();
        assert_eq!((got.data_direct, got.data_deferred), (0, deferred));
        let n = self.drive.engine.counters().batches - batches;
        assert!(n == 1 || (n == 2 && deferred > 0), "{n} batches");
        assert_eq!((got.log_payload, got.log_metadata, got.log_header, got.log_padding), (0, 0, n * 96, n * 4000));
        let now = self.kv.stats();
        let flushed = std::array::from_fn(|i| now.by_cf[i].flush_bytes - self.kv_stats.by_cf[i].flush_bytes);
        assert_eq!(now.log_in_tables(), 0);
        self.kv_stats = now;
        flushed
    }
}

fn sums(by_op: &ByOp) -> [u64; 5] {
    let t = by_op.total();
    [t.user, t.data_direct, t.data_deferred, t.log_payload, t.log_metadata]
}

fn by_class(l: &Ledger) -> [u64; 5] {
    [l.user(), l.data_direct, l.data_deferred, l.log_payload, l.log_metadata]
}

/// Data: aligned, unaligned, appended, deferred and direct on one block, cloned.
pub fn data_operations_write_what_is_derived() {
    let mut s = Counted::new(Policy::Auto);
    // The log's header, in both slots.
    let mount = s.look();
    assert_eq!((mount.log(), mount.log_header), (8192, 8192));
    let o = || oid("o");

    // 4 + put of a collection 2 + 14 + 3.
    s.step(OpKind::MakeCollection, Want { metadata: 23, ..Want::default() }, |t| t.make_collection(C, 0));
    // Blocks 0 to 3 of a new object go to places 0 to 3. 4 + 7 for the blocks + onode 2 + 28 + 11 +
    // chunk 2 + 13 + 21 (value 1 + 3 + 4 * 4) + the counter of object numbers 2 + 2 + 10.
    let want = Want { user: 16384, direct: 16384, metadata: 102, ..Want::default() };
    s.step(OpKind::Write, want, |t| t.write(C, o(), 0, pattern(1, 16384)));
    // Aligned overwrite: block 1 goes to place 4. 4 + 7 + chunk of three runs 2 + 13 + 27 (1 + 7 + 7 + 11).
    let want = Want { user: 4096, direct: 4096, metadata: 53, ..Want::default() };
    s.step(OpKind::Write, want, |t| t.write(C, o(), 4096, pattern(2, 4096)));
    // Unaligned overwrite inside block 2: deferred, the whole block in the log. 4 + 2 + the same chunk.
    let want = Want { user: 100, payload: 4096, metadata: 48, ..Want::default() };
    s.step(OpKind::WritePartial, want, |t| t.write(C, o(), 8192 + 50, pattern(3, 100)));
    // Appended: blocks 4 (whole) and 5 (904 bytes of it) are new, so both are direct, at places 5 and 6.
    // 4 + 7 for one run + onode 41 + chunk of four runs 2 + 13 + 38 (26 + 3 + 8).
    let want = Want { user: 5000, direct: 8192, metadata: 105, ..Want::default() };
    s.step(OpKind::WritePartial, want, |t| t.write(C, o(), 16384, pattern(4, 5000)));
    // Direct over deferred: block 2 goes to place 7; what waits for its old place is not written any
    // more. 4 + 7 + chunk of five runs 2 + 13 + 41 (1 + 4 * 7 + 11).
    let want = Want { user: 4096, direct: 4096, metadata: 67, ..Want::default() };
    s.step(OpKind::Write, want, |t| t.write(C, o(), 8192, pattern(5, 4096)));
    // Deferred over direct, twice on one block: twice in the log, once in place. 4 + 2 + 56.
    for n in 0..2 {
        let want = Want { user: 10, payload: 4096, metadata: 62, ..Want::default() };
        s.step(OpKind::WritePartial, want, |t| t.write(C, o(), 8192 + 8 * n, pattern(6 + n, 10)));
    }
    // A clone writes no data: 4 + two chunks of 56, the source's because its blocks are shared now, +
    // onode 41 + region of places 0 and 3 to 7: 2 + 9 + 8.
    s.step(OpKind::Clone, Want { metadata: 176, ..Want::default() }, |t| t.clone_object(C, o(), oid("p")));
    // Overwrite after the clone: to place 8. 4 + 7 + chunk 56 + region of places 3 to 7: 2 + 9 + 5.
    let want = Want { user: 4096, direct: 4096, metadata: 83, ..Want::default() };
    s.step(OpKind::Write, want, |t| t.write(C, o(), 0, pattern(8, 4096)));
    // Part of a shared block cannot be overwritten in place: copied. The same with places 4 to 7.
    let want = Want { user: 10, direct: 4096, metadata: 83, ..Want::default() };
    s.step(OpKind::WritePartial, want, |t| t.write(C, o(), 12288, pattern(9, 10)));

    // Keys and values, by family: default 15 + 10, onode 3 * 37, extent 32 + 2 * 38 + 49 + 7 * 52,
    // no omap, shared 15 + 2 * 12. In place: block 2, once.
    assert_eq!(s.flush(4096), [25, 111, 521, 0, 39]);

    // Block 0 becomes a hole: 4 + chunk of four runs 2 + 13 + 34.
    s.step(OpKind::Zero, Want { metadata: 53, ..Want::default() }, |t| t.zero(C, o(), 0, 4096));
    // Cut inside block 2, which is shared: its first 100 bytes are copied to a new block. 4 + 7 + onode
    // 41 + chunk of two runs 2 + 13 + 16 + region of place 4 alone 2 + 9 + 5.
    let want = Want { direct: 4096, metadata: 99, ..Want::default() };
    s.step(OpKind::Truncate, want, |t| t.truncate(C, o(), 8192 + 100));
    // 4 + deletes of onode 2 + 28, chunk 2 + 13 and region 2 + 9.
    s.step(OpKind::Remove, Want { metadata: 60, ..Want::default() }, |t| t.remove(C, oid("p")));
    // A hole, a block to share (place 4), 100 bytes to copy. 4 + 7 + onode 41 + chunk 31 + region 16.
    let want = Want { direct: 4096, metadata: 99, ..Want::default() };
    s.step(OpKind::CloneRange, want, |t| t.clone_range(C, o(), oid("r"), 0, 9000, 0));
    // onode 37 + 27 + 37, extent 45 + 27 + 12 + 27, shared 12 + 8 + 12.
    assert_eq!(s.flush(0), [0, 101, 111, 0, 32]);

    let counters = s.drive.engine.counters();
    assert_eq!((counters.deferred_applied, counters.deferred_coalesced, counters.deferred_dropped), (1, 1, 1));
    let all = s.drive.engine.ledger();
    assert_eq!((all.data_direct, all.data_deferred, all.log_payload), (49152, 4096, 12288));
    // 15 batches with a record; without one, those of the two flushes; the header at mount.
    let empty = counters.batches - 15;
    assert!((2..=3).contains(&empty), "{empty} batches without a record");
    assert_eq!((all.log_metadata, all.log_header), (1175, 15 * 100 + empty * 96 + 8192));
}

/// Attributes, omap, names, collections: metadata only.
pub fn metadata_operations_write_what_is_derived() {
    let mut s = Counted::new(Policy::Auto);
    s.look();
    let o = || oid("o");
    let metadata = |metadata: u64| Want { metadata, ..Want::default() };
    s.step(OpKind::MakeCollection, metadata(23), |t| t.make_collection(C, 0));
    // 4 + onode of no bytes 2 + 28 + 9, and once the counter of object numbers 14.
    s.step(OpKind::Touch, metadata(57), |t| t.touch(C, o()));
    s.step(OpKind::Create, metadata(43), |t| t.create(C, oid("p")));
    // A touched object that is there: nothing but the record.
    s.step(OpKind::Touch, metadata(4), |t| t.touch(C, o()));
    s.step(OpKind::Hint, metadata(43), |t| t.hint(C, o(), AllocHint { object_size: 1, write_size: 2, flags: 3 }));
    // 39 + 1 + 1 + 1 + 3 for the attribute.
    let want = Want { user: 4, metadata: 49, ..Want::default() };
    let got = s.step(OpKind::SetAttr, want, |t| t.set_attr(C, o(), "a", "xyz"));
    assert_eq!((got.user_data, got.user_attrs, got.user_omap), (0, 4, 0));
    s.step(OpKind::RmAttr, metadata(43), |t| t.rm_attr(C, o(), "a"));
    let want = Want { user: 4, metadata: 49, ..Want::default() };
    s.step(OpKind::SetAttr, want, |t| t.set_attr(C, o(), "a", "xyz"));
    s.step(OpKind::RmAttrs, metadata(43), |t| t.rm_attrs(C, o()));

    // 4 + onode 39, because it gets an omap number, + puts 2 + 12 + 12 and 2 + 12 + 22.
    let entries = vec![(b"k1".to_vec(), vec![1; 10]), (b"k2".to_vec(), vec![2; 20])];
    let want = Want { user: 34, metadata: 105, ..Want::default() };
    let got = s.step(OpKind::OmapSet, want, |t| t.omap_set(C, o(), entries));
    assert_eq!((got.user_data, got.user_attrs, got.user_omap), (0, 0, 34));
    // 4 + delete 2 + 12.
    s.step(OpKind::OmapRmKeys, metadata(18), |t| t.omap_rm_keys(C, o(), vec![b"k1".to_vec()]));
    // 4 + put 2 + 10 + 4.
    let want = Want { user: 2, metadata: 20, ..Want::default() };
    s.step(OpKind::OmapSetHeader, want, |t| t.omap_set_header(C, o(), "hd"));
    // 4 + range 2 + 11 + 11.
    s.step(OpKind::OmapRmRange, metadata(28), |t| t.omap_rm_range(C, o(), "a", "z"));
    // 4 + range of header and keys 2 + 10 + 10 + onode 39.
    s.step(OpKind::OmapClear, metadata(65), |t| t.omap_clear(C, o()));
    // default 15 + 10, onode 35 + 35 + 35 + 41 + 35 + 41 + 35 + 35 + 35, omap 22 + 32 + 11 + 12 + 20 + 18.
    assert_eq!(s.flush(0), [25, 327, 0, 115, 0]);

    // 4 + delete 30 + put 39.
    s.step(OpKind::Rename, metadata(73), |t| t.rename(C, o(), C, oid("q")));
    s.step(OpKind::Remove, metadata(34), |t| t.remove(C, oid("p")));
    let (d, half) = (CollectionId::new(9, 0), CollectionId::new(9, 1));
    s.step(OpKind::MakeCollection, metadata(23), |t| t.make_collection(d, 0));
    // 4 + two puts of 19; 4 + delete 2 + 14 + put 19; 4 + delete 16.
    s.step(OpKind::Split, metadata(42), |t| t.split(d, 1, half));
    s.step(OpKind::Merge, metadata(39), |t| t.merge(half, 0, d));
    s.step(OpKind::RemoveCollection, metadata(20), |t| t.remove_collection(d));
    s.step(OpKind::Empty, metadata(4), |t| t);
    // default 15 + 30 + 13 + 15 + 13, onode 27 + 35 + 27.
    assert_eq!(s.flush(0), [86, 89, 0, 0, 0]);
}

/// Whole blocks deferred by policy, and a transaction that shares its batch with others.
pub fn deferred_overwrites_and_shared_batches_write_what_is_derived() {
    let mut s = Counted::new(Policy::Deferred);
    s.look();
    let o = || oid("o");
    s.step(OpKind::MakeCollection, Want { metadata: 23, ..Want::default() }, |t| t.make_collection(C, 0));
    // New blocks are direct whatever the policy: 4 + 7 + onode 41 + chunk 2 + 13 + 13 + counter 14.
    let want = Want { user: 8192, direct: 8192, metadata: 94, ..Want::default() };
    s.step(OpKind::Write, want, |t| t.write(C, o(), 0, pattern(1, 8192)));
    // 4 + 2 for one run + chunk 28.
    for n in 0..3 {
        let want = Want { user: 8192, payload: 8192, metadata: 34, ..Want::default() };
        s.step(OpKind::Write, want, |t| t.write(C, o(), 0, pattern(n, 8192)));
    }
    // Three times in the log, once in place.
    s.flush(8192);

    for n in 0..3u8 {
        s.drive.submit(txn(|t| t.touch(C, oid([b'a' + n]))));
    }
    s.drive.idle();
    // Three records of 4 + 39 in one batch: headers 96 + 3 * 4.
    let got = s.look();
    assert_eq!((got.log_metadata, got.log_header, got.log_padding), (129, 108, 4096 - 129 - 108));
    assert_eq!(got.by_op[OpKind::Touch].ops, 3);
}

/// Operations of several types in one transaction: what belongs to whom.
pub fn bytes_of_a_mixed_transaction_go_to_the_operations_that_wrote_them() {
    let mut s = Counted::new(Policy::Auto);
    let o = || oid("o");
    s.drive.submit(txn(|t| t.make_collection(C, 0)));
    s.drive.submit(txn(|t| t.write(C, o(), 0, pattern(1, 8192))));
    s.drive.idle();
    s.look();
    s.drive.submit(txn(|t| {
        t.write(C, o(), 0, pattern(2, 4096));
        t.omap_set(C, o(), vec![(b"k".to_vec(), b"value".to_vec())]);
        t.set_attr(C, o(), "n", "vv");
        t.write(C, o(), 5000, pattern(3, 7))
    }));
    s.drive.idle();
    let got = s.look();
    // The write has its block, and the omap entry (10 + 6) is the second operation's. The onode
    // (27 + 15) is changed by the second, which numbers its omap, and by the third, whose it is. The
    // chunk (12 + 15, two runs) is changed by the first and by the last, whose it is, with its block
    // in the log. The rest is the first one's: 4, the references 7 and 2, and beside each of the three
    // keys and values 4.
    let want = [
        (OpKind::Write, [4096, 4096, 0, 25]),
        (OpKind::WritePartial, [7, 0, 4096, 27]),
        (OpKind::SetAttr, [3, 0, 0, 42]),
        (OpKind::OmapSet, [6, 0, 0, 16]),
    ];
    let bytes = |b: &OpBytes| [b.user, b.data_direct, b.log_payload, b.log_metadata];
    assert_eq!(got.by_op.iter().map(|(k, b)| (k, bytes(b))).collect::<Vec<_>>(), want);
    assert_eq!(got.log_metadata, 25 + 27 + 42 + 16);

    // Written twice in one transaction: one block on the medium, the second one's.
    s.drive.submit(txn(|t| {
        t.touch(C, o());
        t.write(C, o(), 0, pattern(4, 4096));
        t.write(C, o(), 100, pattern(5, 100))
    }));
    s.drive.idle();
    let got = s.look();
    // 4 + 7 + 4 beside the chunk are the first one's.
    let want =
        [(OpKind::Write, [4096, 0, 0, 0]), (OpKind::WritePartial, [100, 4096, 0, 27]), (OpKind::Touch, [0, 0, 0, 15])];
    assert_eq!(got.by_op.iter().map(|(k, b)| (k, bytes(b))).collect::<Vec<_>>(), want);
}

/// What a mount replays, and what mkfs writes.
pub fn replay_and_mkfs_write_what_is_derived() {
    let mut s = Counted::new(Policy::Auto);
    s.drive.submit(txn(|t| t.make_collection(C, 0)));
    s.drive.submit(txn(|t| t.write(C, oid("o"), 0, pattern(1, 8192))));
    // A block that is still being written is not overwritten in place.
    s.drive.idle();
    s.drive.submit(txn(|t| t.write(C, oid("o"), 100, pattern(2, 100))));
    s.drive.idle();
    let Counted { options, disk, kv, drive, .. } = s;
    drop(drive);
    let mut s = Counted::mount(options, disk, kv);
    let got = s.look();
    assert_eq!((got.data_deferred, got.by_op[OpKind::Replay].data_deferred), (4096, 4096));
    assert_eq!((got.log(), got.user()), (8192, 0));

    let (mut disk, kv) = (SimDisk::new(1), MemKv::new());
    let got = Engine::mkfs(&mut disk, &kv, &s.options.layout, UUID, &mut |_, _, _| ()).expect("there is room");
    // Its data space; the log's two header blocks and five segments as zeros, then the header in both
    // slots; the fragment file's label; the superblock; in the key-value store the account of
    // pre-written space 1 + 9, the identity 1 + 17 and the snapshot of an empty store 5 + 6.
    assert_eq!((got.prewrite, got.mkfs), (DATA, 8192 + 5 * SEGMENT + 8192 + 4096 + 4096 + 39));
    assert_eq!(disk.counters().write_bytes, got.prewrite + got.mkfs - 39);
}
