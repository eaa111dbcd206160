//! The last batch, partly written.

use lodestore_wal::{AppendError, Batch, Tail, Writer};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::mem::MemRing;
use crate::{SEGMENT, assert_bodies, body_of, commit, filled, read, reopen, write};

/// What is on the disk when only some sectors of `batch` arrived.
fn cut(before: &MemRing, batch: &Batch, arrived: impl Fn(usize) -> bool) -> MemRing {
    let mut ring = before.clone();
    for (i, sector) in batch.data.chunks(512).enumerate() {
        if arrived(i) {
            ring.data[batch.offset as usize + i * 512..][..512].copy_from_slice(sector);
        }
    }
    ring
}

/// Mounts a torn log, appends, mounts again: the tail is gone for good.
fn survives(mut ring: MemRing, batch: &Batch, whole: bool, header_arrived: bool) {
    let before = batch.first - 1;
    let (reader, records) = read(&mut ring).unwrap();
    let (tail, end) = match (whole, header_arrived) {
        (true, _) => (Tail::Clean, batch.last),
        (false, true) => (Tail::Torn { offset: batch.offset, bytes: batch.data.len() as u64 }, before),
        (false, false) => (Tail::Clean, before),
    };
    assert_bodies(&records, 1..=end);
    assert_eq!((reader.tail(), reader.counters().torn_tails), (tail, u64::from(tail != Tail::Clean)));
    let mut writer = reader.restart(&mut ring, end + 1).unwrap();
    assert!(writer.next_lsn() > end && (!header_arrived || writer.next_lsn() > batch.last));
    let next = writer.next_lsn();
    for lap in 0..3 {
        let body = body_of(next + lap);
        commit(&mut ring, &mut writer, &[&body]);
        let (reader, records) = read(&mut ring).unwrap();
        assert_eq!(reader.tail(), Tail::Clean);
        assert_bodies(&records, next..=next + lap);
    }
}

/// A batch of up to `records` records, as many as fit.
fn with_tail(ring: &MemRing, writer: &mut Writer, records: u64) -> (MemRing, Batch) {
    for _ in 0..records {
        let body = body_of(writer.next_lsn());
        match writer.append(&[&body]) {
            Ok(_) => {}
            Err(AppendError::BatchFull) => break,
            Err(e) => panic!("{e}"),
        }
    }
    (ring.clone(), writer.seal(writer.last_durable() - 1).unwrap())
}

#[test]
fn every_subset_of_the_last_batchs_blocks_is_cut_and_never_reappears() {
    // As the first batch of a segment, and behind others.
    let mut places = 0;
    for used in 0..4 {
        let (ring, mut writer, batches) = filled(20, 80 + used * 10, 10);
        assert_eq!(batches.len() as u64, 8 + used, "of one block each: the first segment is full");
        let (before, batch) = with_tail(&ring, &mut writer, 90);
        let blocks = batch.data.len() / 4096;
        assert!((4..=6).contains(&blocks));
        places |= if batch.offset == 8192 + SEGMENT { 1 } else { 2 };
        for subset in 0..1 << blocks {
            let ring = cut(&before, &batch, |sector| subset >> (sector / 8) & 1 == 1);
            survives(ring, &batch, subset + 1 == 1 << blocks, subset & 1 == 1);
        }
    }
    assert_eq!(places, 3, "both kinds of places were met");
}

#[test]
fn sampled_subsets_of_the_last_batchs_sectors_are_cut_and_never_reappear() {
    let seed = std::env::var("LODESTORE_SEED").map_or_else(|_| rand::random(), |s| s.parse().unwrap());
    println!("LODESTORE_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..500 {
        let (ring, mut writer, _) = filled(20, rng.random_range(1..20) * 10, 10);
        let records = rng.random_range(1..60);
        let (before, batch) = with_tail(&ring, &mut writer, records);
        let used = (batch.header_bytes + batch.payload_bytes).div_ceil(512) as usize;
        let arrived: Vec<bool> = (0..batch.data.len() / 512).map(|_| rng.random_bool(0.8)).collect();
        let ring = cut(&before, &batch, |i| arrived[i]);
        // Sectors of padding do not matter.
        survives(ring, &batch, arrived[..used].iter().all(|a| *a), arrived[0]);
    }
}

#[test]
fn a_torn_tail_over_stale_batches_of_an_earlier_lap_is_cut() {
    let (mut ring, mut writer, _) = filled(4, 20, 1);
    for lsn in 21..200 {
        let body = body_of(lsn);
        writer.append(&[&body]).unwrap();
        let batch = writer.seal(lsn - 1).unwrap();
        for subset in [0u8, 0b1111_1110] {
            let mut torn = cut(&ring, &batch, |i| subset >> i & 1 == 1);
            let (_, records) = read(&mut torn).unwrap();
            assert_eq!(records.last().unwrap().lsn, lsn - 1);
        }
        write(&mut ring, &batch);
        writer.durable();
        writer.trim(lsn - 10);
    }
    assert!(writer.counters().wraps > 3);
}

#[test]
fn a_cut_tail_does_not_come_back_when_the_next_mount_crashes_too() {
    let (ring, mut writer, _) = filled(20, 40, 10);
    let (before, batch) = with_tail(&ring, &mut writer, 90);
    let mut ring = cut(&before, &batch, |sector| sector != 9);
    for _ in 0..3 {
        let (_, records) = read(&mut ring).unwrap();
        assert_bodies(&records, 1..=40);
    }
    let (_, _) = reopen(&mut ring).unwrap();
    // The missing sector arrives after all.
    ring.data[batch.offset as usize + 9 * 512..][..512].copy_from_slice(&batch.data[9 * 512..][..512]);
    assert_eq!(read(&mut ring).unwrap().1, []);
}
