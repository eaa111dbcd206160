//! The simulated disk: determinism, order, volatility.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lodestore_aio::{BLOCK, Disk, IoOp, SimDisk, Wait, run};

use super::subject::{B, finish, frozen, pattern, push, read, read_op, write_op};

/// Some work, and the order in which it completed.
fn work(seed: u64) -> (u64, Vec<u64>) {
    let mut disk = SimDisk::new(seed);
    let (a, b) = (disk.create("a", 64 * B).unwrap(), disk.create("b", 64 * B).unwrap());
    let mut ring = disk.ring(16).unwrap();
    let mut done = Vec::new();
    for i in 0..64u64 {
        push(&mut *ring, i, write_op(if i % 3 == 0 { a } else { b }, i, pattern(i, 1)));
        if i % 8 == 7 {
            push(&mut *ring, 1000 + i, IoOp::Sync { files: 3 });
            ring.submit().unwrap();
            ring.reap(Wait::No, &mut done).unwrap();
            ring.reap(Wait::For(9), &mut done).unwrap();
        }
    }
    (disk.hash(), done.iter().map(|d| d.token).collect())
}

#[test]
fn the_same_seed_gives_the_same_order_and_the_same_bytes_and_another_seed_does_not() {
    let orders: HashSet<(u64, Vec<u64>)> = (0..20).map(work).collect();
    assert!(orders.len() >= 19, "only {} different runs", orders.len());
    for seed in 0..20 {
        assert_eq!(work(seed), work(seed));
    }
}

#[test]
fn completions_are_reordered_and_a_look_brings_some_none_or_all_of_them() {
    let mut counts = HashSet::new();
    let mut firsts = HashSet::new();
    for seed in 0..200 {
        let mut disk = SimDisk::new(seed);
        let f = disk.create("a", 64 * B).unwrap();
        let mut ring = disk.ring(4).unwrap();
        for i in 0..4 {
            push(&mut *ring, i, write_op(f, i, pattern(i, 1)));
        }
        ring.submit().unwrap();
        let mut done = Vec::new();
        ring.reap(Wait::No, &mut done).unwrap();
        counts.insert(done.len());
        firsts.extend(done.first().map(|d| d.token));
    }
    assert_eq!((counts.len(), firsts.len()), (5, 4));
}

#[test]
fn a_completed_write_is_readable_but_volatile_until_its_file_is_synced() {
    let mut disk = SimDisk::new(1);
    let (a, b) = (disk.create("a", 8 * B).unwrap(), disk.create("b", 8 * B).unwrap());
    let mut ring = disk.ring(4).unwrap();
    run(&mut *ring, write_op(a, 0, pattern(1, 1))).unwrap();
    run(&mut *ring, write_op(b, 0, pattern(2, 1))).unwrap();
    assert_eq!(read(&mut *ring, a, 0, 1), pattern(1, 1));
    assert_eq!((disk.volatile(), disk.crash(0).peek("a", 0, BLOCK)), ((2, 0), vec![0; BLOCK]));
    run(&mut *ring, IoOp::Sync { files: a.mask() }).unwrap();
    let crashed = disk.crash(0);
    assert_eq!((crashed.peek("a", 0, BLOCK), crashed.peek("b", 0, BLOCK)), (pattern(1, 1), vec![0; BLOCK]));
    assert_eq!(disk.fork(0).peek("b", 0, BLOCK), pattern(2, 1));
}

#[test]
fn a_durable_write_is_durable_alone() {
    let mut disk = SimDisk::new(1);
    let a = disk.create("a", 8 * B).unwrap();
    let mut ring = disk.ring(4).unwrap();
    run(&mut *ring, write_op(a, 0, pattern(1, 2))).unwrap();
    run(&mut *ring, IoOp::Write { file: a, offset: B, data: frozen(pattern(9, 1)), dsync: true }).unwrap();
    let crashed = disk.crash(0);
    assert_eq!((crashed.peek("a", 0, BLOCK), crashed.peek("a", B, BLOCK)), (vec![0; BLOCK], pattern(9, 1)));
    // The older write of that block can never come back, the one of the other may.
    let states: HashSet<Vec<u8>> = disk.crash_states(&Default::default()).map(|s| s.peek("a", B, BLOCK)).collect();
    assert_eq!(states, [pattern(9, 1)].into());
}

#[test]
fn a_sync_covers_only_what_completed_before_it_was_pushed() {
    for seed in 0..50 {
        let mut disk = SimDisk::new(seed);
        let a = disk.create("a", 8 * B).unwrap();
        let mut ring = disk.ring(4).unwrap();
        run(&mut *ring, write_op(a, 0, pattern(1, 1))).unwrap();
        push(&mut *ring, 1, write_op(a, 1, pattern(2, 1)));
        push(&mut *ring, 2, IoOp::Sync { files: a.mask() });
        finish(&mut *ring);
        assert_eq!(disk.peek_durable("a", 0, BLOCK), pattern(1, 1));
        assert_eq!(disk.peek_durable("a", B, BLOCK), vec![0; BLOCK], "it was in flight beside the sync");
    }
}

#[test]
fn writes_that_overlap_in_flight_panic_and_one_after_the_other_is_fine() {
    let mut disk = SimDisk::new(1);
    let a = disk.create("a", 8 * B).unwrap();
    let mut ring = disk.ring(4).unwrap();
    run(&mut *ring, write_op(a, 0, pattern(1, 2))).unwrap();
    push(&mut *ring, 1, write_op(a, 0, pattern(2, 2)));
    ring.submit().unwrap();
    push(&mut *ring, 2, write_op(a, 1, pattern(3, 2)));
    assert!(catch_unwind(AssertUnwindSafe(|| ring.submit())).is_err());
}

#[test]
fn a_read_beside_a_write_in_flight_sees_each_sector_old_or_new() {
    let mut seen = HashSet::new();
    for seed in 0..50 {
        let mut disk = SimDisk::new(seed);
        let a = disk.create("a", 8 * B).unwrap();
        let mut ring = disk.ring(2).unwrap();
        push(&mut *ring, 1, write_op(a, 0, [7; BLOCK]));
        push(&mut *ring, 2, read_op(a, 0, 1));
        let done = finish(&mut *ring);
        let buf = done[1].buf.as_ref().unwrap();
        for sector in buf.chunks(512) {
            assert!(sector.iter().all(|&b| b == sector[0]), "sectors are whole");
            seen.insert(sector[0]);
        }
    }
    assert_eq!(seen, [0, 7].into());
}

#[test]
fn handles_share_the_disk_but_not_their_open_files() {
    let mut disk = SimDisk::new(1);
    disk.create("a", B).unwrap();
    let b = disk.create("b", B).unwrap();
    run(&mut *disk.ring(1).unwrap(), write_op(b, 0, pattern(1, 1))).unwrap();
    let mut other = disk.reopened();
    let b = other.open("b").unwrap();
    assert_eq!(b.0, 0);
    assert_eq!(read(&mut *other.ring(1).unwrap(), b, 0, 1), pattern(1, 1));
    assert_eq!(disk.files(), [("a".to_owned(), B), ("b".to_owned(), B)]);
}
