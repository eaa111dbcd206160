//! The simulated disk: errors, rot and delay on request.

use lodestore_aio::sim::OpKind;
use lodestore_aio::{BLOCK, Disk, FileId, IoOp, Ring, SimDisk, Wait, run};

use super::subject::{B, finish, pattern, push, read, read_op, write_op};

fn disk() -> (SimDisk, FileId, Box<dyn Ring>) {
    let mut disk = SimDisk::new(7);
    let f = disk.create("data.0", 64 * B).unwrap();
    let ring = disk.ring(16).unwrap();
    (disk, f, ring)
}

#[test]
fn the_nth_operation_of_a_kind_on_matching_files_fails_once() {
    let (disk, f, mut ring) = disk();
    disk.fail_nth(OpKind::Write, |n| n == "data.0", 3, libc::EIO);
    disk.fail_nth(OpKind::Write, |n| n == "log", 1, libc::EIO);
    disk.fail_nth(OpKind::Read, |_| true, 1, libc::ETIMEDOUT);
    let failed: Vec<bool> = (0..5).map(|i| run(&mut *ring, write_op(f, i, pattern(i, 1))).is_err()).collect();
    assert_eq!(failed, [false, false, true, false, false]);
    let e = run(&mut *ring, read_op(f, 1, 1)).unwrap_err();
    assert_eq!((e.what, e.file.as_str(), e.offset, e.errno), ("read", "data.0", B, libc::ETIMEDOUT));
    assert_eq!(disk.counters().faults, 2);
}

#[test]
fn from_the_nth_on_everything_fails_until_called_off() {
    let (disk, f, mut ring) = disk();
    disk.fail_from(OpKind::Sync, |_| true, 2, libc::EIO);
    let mut sync = || run(&mut *ring, IoOp::Sync { files: f.mask() }).is_ok();
    assert_eq!([sync(), sync(), sync()], [true, false, false]);
    disk.clear_faults();
    assert!(sync());
}

#[test]
fn what_a_failed_sync_covered_is_never_made_durable_by_a_later_one() {
    let (disk, f, mut ring) = disk();
    run(&mut *ring, write_op(f, 0, pattern(1, 1))).unwrap();
    disk.fail_nth(OpKind::Sync, |_| true, 1, libc::EIO);
    assert!(run(&mut *ring, IoOp::Sync { files: f.mask() }).is_err());
    run(&mut *ring, write_op(f, 1, pattern(2, 1))).unwrap();
    run(&mut *ring, IoOp::Sync { files: f.mask() }).unwrap();
    assert_eq!(disk.peek_durable("data.0", 0, BLOCK), vec![0; BLOCK]);
    assert_eq!(disk.peek_durable("data.0", B, BLOCK), pattern(2, 1));
    // Written again and synced, it is.
    run(&mut *ring, write_op(f, 0, pattern(3, 1))).unwrap();
    run(&mut *ring, IoOp::Sync { files: f.mask() }).unwrap();
    assert_eq!(disk.volatile(), (0, 0));
    assert_eq!(disk.peek_durable("data.0", 0, BLOCK), pattern(3, 1));
}

#[test]
fn a_failed_write_leaves_each_sector_old_or_new() {
    let (disk, f, mut ring) = disk();
    run(&mut *ring, write_op(f, 0, [1; 8 * BLOCK])).unwrap();
    disk.fail_nth(OpKind::Write, |_| true, 1, libc::EIO);
    assert!(run(&mut *ring, write_op(f, 0, [2; 8 * BLOCK])).is_err());
    let now = disk.peek("data.0", 0, 8 * BLOCK);
    let sectors: Vec<u8> = now.chunks(512).map(|s| s[0]).collect();
    assert!(now.chunks(512).zip(&sectors).all(|(s, b)| s.iter().all(|x| x == b)));
    assert!(sectors.contains(&1) && sectors.contains(&2));
}

#[test]
fn the_capacity_bounds_what_can_be_created_and_create_and_open_can_fail() {
    let (mut disk, _, _) = disk();
    disk.set_capacity(65 * B);
    let e = disk.create("big", 2 * B).unwrap_err();
    assert!(e.is_full(), "{e}");
    disk.fail_nth(OpKind::Create, |_| true, 1, libc::EROFS);
    assert_eq!(disk.create("small", B).unwrap_err().errno, libc::EROFS);
    disk.create("small", B).unwrap();
    disk.fail_nth(OpKind::Open, |n| n == "small", 1, libc::EIO);
    assert_eq!(disk.open("small").unwrap_err().errno, libc::EIO);
}

#[test]
fn bit_rot_swapped_blocks_and_lost_writes_are_on_the_medium_and_as_read() {
    let (disk, f, mut ring) = disk();
    run(&mut *ring, write_op(f, 0, pattern(1, 1))).unwrap();
    run(&mut *ring, write_op(f, 1, pattern(2, 1))).unwrap();
    run(&mut *ring, IoOp::Sync { files: f.mask() }).unwrap();
    run(&mut *ring, write_op(f, 0, pattern(3, 1))).unwrap();

    disk.swap_blocks("data.0", 0, B);
    assert_eq!((read(&mut *ring, f, 0, 1), read(&mut *ring, f, 1, 1)), (pattern(2, 1), pattern(3, 1)));
    assert_eq!(disk.peek_durable("data.0", B, BLOCK), pattern(3, 1));
    disk.swap_blocks("data.0", 0, B);

    assert!(disk.revert_block("data.0", 0));
    assert_eq!(read(&mut *ring, f, 0, 1), pattern(1, 1));
    assert!(!disk.revert_block("data.0", 0), "there is only one before");

    disk.flip("data.0", 5, 7);
    let mut rotten = pattern(1, 1);
    rotten[5] ^= 0x80;
    assert_eq!((read(&mut *ring, f, 0, 1), disk.crash(0).peek("data.0", 0, BLOCK)), (rotten.clone(), rotten));

    disk.poke("data.0", B - 2, &[1, 2, 3, 4]);
    assert_eq!(disk.peek("data.0", B - 2, 4), [1, 2, 3, 4]);
    assert_eq!(disk.files(), [("data.0".to_owned(), 64 * B)]);
}

#[test]
fn delayed_completions_stay_away_for_so_many_looks() {
    let (disk, f, mut ring) = disk();
    disk.delay(5);
    push(&mut *ring, 1, write_op(f, 0, pattern(1, 1)));
    ring.submit().unwrap();
    disk.delay(0);
    let mut done = Vec::new();
    for _ in 0..5 {
        ring.reap(Wait::No, &mut done).unwrap();
        assert!(done.is_empty());
    }
    while done.is_empty() {
        ring.reap(Wait::No, &mut done).unwrap();
    }
    disk.delay(1000);
    push(&mut *ring, 2, write_op(f, 0, pattern(1, 1)));
    assert_eq!(finish(&mut *ring).len(), 1, "waiting makes time pass");
}
