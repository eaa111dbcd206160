//! Flipped bytes, foreign bytes, look-alikes.

use lodestore_wal::format::{BATCH_HEADER_LEN, BatchHeader, LogHeader, VERSION, salt};
use lodestore_wal::{Batch, LogGeometry, Reader, Tail, WalError};

use crate::mem::{FILE, MemRing};
use crate::{OVERHEAD, SEGMENT, UUID, assert_bodies, body_of, commit, filled, formatted, fresh, read, reopen, write};

fn flip(ring: &mut MemRing, sector: usize) {
    ring.data[sector * 512..][..512].iter_mut().for_each(|b| *b ^= 0xff);
}

/// Flips every sector in turn; each must be refused where it is, or change nothing.
/// `last_is_protected`: whether the last batch counts as well.
fn flip_every_sector(mut ring: MemRing, batches: &[Batch], last_is_protected: bool) {
    let last = batches.last().unwrap();
    let (mut refused, mut harmless, mut torn) = (0, 0, 0);
    for sector in 0..ring.data.len() / 512 {
        flip(&mut ring, sector);
        let at = sector as u64 * 512;
        let used = |b: &Batch| b.header_bytes + b.payload_bytes;
        let hit = batches.iter().find(|b| (b.offset..b.offset + used(b)).contains(&at));
        match read(&mut ring) {
            Err(WalError::Damaged { file, offset, what }) => {
                let hit = hit.unwrap_or_else(|| panic!("sector {sector} is unused, but refused: {what}"));
                assert_eq!((file.as_str(), offset), ("log", hit.offset), "sector {sector}: {what}");
                refused += 1;
            }
            Err(e) => panic!("sector {sector}: {e}"),
            Ok((reader, records)) => {
                let cut = hit.is_some();
                assert!(!cut || (!last_is_protected && at >= last.offset), "sector {sector} is damaged, unnoticed");
                assert_bodies(&records, 1..=if cut { last.first - 1 } else { last.last });
                assert_eq!(reader.counters().header_slots_bad, u64::from(sector == 0 || sector == 8));
                if cut { torn += 1 } else { harmless += 1 }
            }
        }
        flip(&mut ring, sector);
    }
    println!("{refused} refused, {harmless} harmless, {torn} of the last batch cut");
    assert!(refused > 100 && harmless > 10 && (torn > 0) != last_is_protected);
}

#[test]
fn a_flipped_sector_before_the_last_batch_is_refused_with_file_and_offset() {
    let (ring, _, batches) = filled(24, 1000, 7);
    assert!(batches.last().unwrap().offset > 8192 + 10 * SEGMENT);
    flip_every_sector(ring, &batches, false);
}

#[test]
fn after_a_clean_shutdown_a_flipped_sector_of_the_last_batch_is_refused_as_well() {
    let (mut ring, writer, batches) = filled(24, 1000, 7);
    writer.close(&mut ring).unwrap();
    flip_every_sector(ring, &batches, true);
}

#[test]
fn damage_is_named_where_the_last_batch_of_a_segment_or_the_first_of_the_next_was() {
    for clean in [false, true] {
        // Batches of 3 blocks: two in a segment of eight, then two blocks left over.
        let (mut ring, mut writer) = fresh(6);
        let batches: Vec<_> = (0..6).map(|_| commit(&mut ring, &mut writer, &[&[1; 10_000]])).collect();
        if clean {
            writer.close(&mut ring).unwrap();
        }
        for b in &batches[..if clean { 6 } else { 5 }] {
            let mut ring = ring.clone();
            ring.data[b.offset as usize..][..b.data.len()].fill(0);
            match read(&mut ring) {
                Err(WalError::Damaged { offset, .. }) => assert_eq!(offset, b.offset),
                other => panic!("{:?}", other.map(|o| o.1.len())),
            }
        }
    }
}

#[test]
fn damage_right_before_a_torn_batch_is_refused_too() {
    // Two batches of 3 blocks in each segment: the torn one is behind the damaged one in the same
    // segment, or in the next.
    for whole in [5, 6] {
        let (mut ring, mut writer) = fresh(6);
        let batches: Vec<_> = (0..whole).map(|_| commit(&mut ring, &mut writer, &[&[1; 10_000]])).collect();
        writer.append(&[&[2; 10_000]]).unwrap();
        let torn = writer.seal(0).unwrap();
        ring.data[torn.offset as usize..][..512].copy_from_slice(&torn.data[..512]);
        assert_eq!(read(&mut ring).unwrap().1.len(), whole);
        let last = batches.last().unwrap().offset;
        ring.data[last as usize..][..512].fill(0);
        match read(&mut ring) {
            Err(WalError::Damaged { offset, .. }) => assert_eq!(offset, last),
            other => panic!("{:?}", other.map(|o| o.1.len())),
        }
    }
}

#[test]
fn damage_to_a_segment_of_one_batch_is_refused() {
    let (mut ring, mut writer) = fresh(8);
    let body = vec![3; SEGMENT as usize - OVERHEAD];
    let mut batches: Vec<_> = (0..4).map(|_| commit(&mut ring, &mut writer, &[&body])).collect();
    writer.trim(2);
    batches.extend((0..3).map(|_| commit(&mut ring, &mut writer, &[&body])));
    assert_eq!(read(&mut ring).unwrap().1.len(), 5);
    for (i, b) in batches.iter().enumerate() {
        for sector in [0, 40] {
            let mut ring = ring.clone();
            ring.data[b.offset as usize + sector * 512..][..512].fill(0);
            match (i, read(&mut ring)) {
                (0..2, Ok((_, records))) => assert_eq!(records.len(), 5, "trimmed: not needed"),
                (2..6, Err(WalError::Damaged { offset, .. })) => assert_eq!(offset, b.offset),
                (6, Ok((_, records))) => assert_eq!(records.len(), 4, "the tail"),
                (i, other) => panic!("{i} {sector} {:?}", other.map(|o| o.1.len())),
            }
        }
    }
}

#[test]
fn the_message_of_damage_says_what_to_do() {
    let (mut ring, _, batches) = filled(24, 100, 7);
    flip(&mut ring, batches[3].offset as usize / 512);
    let before = ring.data.clone();
    let message = read(&mut ring).err().unwrap().to_string();
    assert!(message.starts_with(&format!("log is damaged at offset {}: ", batches[3].offset)), "{message}");
    assert!(message.contains("Restore this store from a replica or a backup"), "{message}");
    assert_eq!(ring.data, before, "evidence is kept");
}

#[test]
fn stale_batches_of_earlier_laps_and_epochs_are_never_believed() {
    let (mut ring, mut writer) = fresh(4);
    let mut lsn = 0;
    for lap in 0..5 {
        // Many laps in one epoch, with the same sizes, so that batches lie exactly over older ones.
        for _ in 0..40 + lap {
            let body = body_of(lsn + 1);
            commit(&mut ring, &mut writer, &[&body]);
            lsn += 1;
            writer.trim(lsn.saturating_sub(5));
            let (_, records) = read(&mut ring.clone()).unwrap();
            assert_eq!(records.last().unwrap().lsn, lsn);
            assert!(records.len() <= 7);
            records.iter().for_each(|r| assert_eq!(r.body, body_of(r.lsn)));
        }
        let (next, _) = reopen(&mut ring).unwrap();
        writer = next;
        assert_eq!(read(&mut ring).unwrap().1, [], "a new epoch is empty");
        assert_eq!(writer.next_lsn(), lsn + 1);
    }
}

#[test]
fn user_data_that_looks_like_a_batch_is_never_believed() {
    let (mut ring, mut writer) = fresh(6);
    let epoch = 2;
    // Copies of the log's own batches, and forged ones for exactly the place they will lie at, with
    // the right salt, at block boundaries of the file.
    let stolen = commit(&mut ring, &mut writer, &[b"stolen"]).data;
    let forged = |offset: u64, seq: u64, ordinal: u64| {
        let mut block = vec![0; 4096];
        let h = BatchHeader {
            offset: offset as u32,
            epoch,
            salt: salt(&UUID, epoch),
            seq,
            ordinal,
            first_lsn: 3,
            acked: 1000,
            trim: 1000,
            start_seq: seq,
            records: 0,
            payload_len: 0,
            payload_crc: 0,
        };
        h.encode(&mut block);
        block
    };
    let body: Vec<u8> =
        [vec![0; 4096 - OVERHEAD], stolen.to_vec(), forged(3 * 4096, 0, 3), forged(4 * 4096, 0, 9), stolen.to_vec()]
            .concat();
    let mimic = {
        writer.append(&[&body]).unwrap();
        writer.seal(1).unwrap()
    };
    // Torn behind the header: the payload's blocks are there, and are not looked into.
    write(&mut ring, &mimic);
    let mut torn = ring.clone();
    torn.data[mimic.offset as usize + BATCH_HEADER_LEN + 20] ^= 1;
    let (reader, records) = read(&mut torn).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(reader.tail(), Tail::Torn { offset: mimic.offset, bytes: mimic.data.len() as u64 });
    // Only copies, without the header's sector: nobody can guess a place and a salt that are yet to come.
    let mut headless = ring.clone();
    let at = mimic.offset as usize;
    headless.data[at..at + 512].fill(0);
    headless.data[at + 2 * 4096..at + 4 * 4096].fill(0);
    assert_eq!(read(&mut headless).unwrap().1.len(), 1);
    // Whole: returned as it is.
    writer.durable();
    commit(&mut ring, &mut writer, &[b"after"]);
    let (_, records) = read(&mut ring).unwrap();
    assert_eq!(records.iter().map(|r| r.body.clone()).collect::<Vec<_>>(), [&b"stolen"[..], &body, b"after"]);
}

#[test]
fn a_bad_header_slot_is_replaced_by_the_other_and_two_are_refused() {
    for clean in [false, true] {
        let (mut ring, writer, _) = filled(24, 100, 7);
        if clean {
            writer.close(&mut ring).unwrap();
        }
        for slot in 0..2 {
            let mut one = ring.clone();
            flip(&mut one, slot * 8);
            let (reader, records) = read(&mut one).unwrap();
            assert_eq!((reader.counters().header_slots_bad, reader.was_closed()), (1, clean));
            assert_bodies(&records, 1..=100);
            let next = reader.restart(&mut one, 101).unwrap();
            assert_eq!(next.next_lsn(), 101);
            assert_eq!(read(&mut one).unwrap().0.counters().header_slots_bad, 0, "restart heals the slot");
        }
        let mut both = ring.clone();
        both.data[20] ^= 1;
        both.data[4096 + 40] ^= 1;
        match read(&mut both) {
            Err(WalError::Damaged { file, offset: 0, what }) => assert!(file == "log" && what.contains("checksum")),
            other => panic!("{:?}", other.map(|o| o.1)),
        }
    }
}

#[test]
fn a_header_older_than_the_batches_is_refused() {
    let mut ring = formatted(4);
    let old = ring.data[..8192].to_vec();
    let (mut writer, _) = reopen(&mut ring).unwrap();
    let batch = commit(&mut ring, &mut writer, &[b"new"]);
    ring.data[..8192].copy_from_slice(&old);
    match read(&mut ring) {
        Err(WalError::Damaged { offset, what, .. }) => {
            assert_eq!(offset, batch.offset);
            assert!(what.contains("newer than the log's header"), "{what}");
        }
        other => panic!("{:?}", other.map(|o| o.1)),
    }
}

#[test]
fn foreign_newer_blank_and_shortened_logs_have_their_own_errors() {
    let mut ring = formatted(4);
    let other = Reader::open(&mut ring, FILE, [7; 16]).err().unwrap();
    assert!(matches!(other, WalError::Foreign { expected, .. } if expected == u128::from_be_bytes([7; 16])), "{other}");

    let mut blank = MemRing::new(1 << 20);
    assert!(matches!(read(&mut blank), Err(WalError::NotALog { .. })));

    let mut newer = ring.clone();
    newer.data[8..10].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let crc = crc32c::crc32c(&newer.data[..104]).to_le_bytes();
    newer.data[104..108].copy_from_slice(&crc);
    assert!(matches!(read(&mut newer), Err(WalError::NewerFormat { found: 2, supported: 1, .. })));

    let mut short = ring.clone();
    short.data.truncate(ring.data.len() - 4096);
    assert!(matches!(read(&mut short), Err(WalError::Io(e)) if e.what == "read"));

    let header = LogHeader::decode(&ring.data).unwrap();
    assert_eq!((header.segment_count, header.segment_len, header.start_lsn), (4, SEGMENT, 1));
}

#[test]
fn nonsense_sizes_are_refused_before_anything_is_written() {
    let mut ring = MemRing::new(1 << 20);
    for (len, segment_len) in
        [(1 << 20, 0), (1 << 20, 5000), (1 << 20, 4096), (1 << 20, 1 << 19), (0, SEGMENT), (1 << 20, 1 << 40)]
    {
        let e = lodestore_wal::format(&mut ring, FILE, len, LogGeometry { segment_len }, UUID, &mut |_, _| {});
        assert!(matches!(e, Err(WalError::Geometry { .. })), "{len} {segment_len}");
    }
    assert!(ring.data.iter().all(|b| *b == 0xee));
}
