//! Sizes, limits, recycling.

use lodestore_wal::{AppendError, BATCH_LEN_MAX, LogGeometry, record_len_max};

use crate::mem::{FILE, MemRing};
use crate::{OVERHEAD, SEGMENT, UUID, commit, formatted, fresh, read, reopen, write};

#[test]
fn a_record_that_fits_exactly_stays_and_one_byte_more_begins_the_next_segment() {
    for blocks_before in 0..8 {
        for (more, switches) in [(-1, 0), (0, 0), (1, 1)] {
            let (mut ring, mut writer) = fresh(4);
            for _ in 0..blocks_before {
                commit(&mut ring, &mut writer, &[b"one block"]);
            }
            let left = SEGMENT as usize - blocks_before * 4096;
            let body = vec![0xab; (left - OVERHEAD).strict_add_signed(more)];
            if body.len() > writer.record_len_max() as usize {
                let max = writer.record_len_max();
                let len = max + 1;
                assert_eq!(writer.append(&[&body]), Err(AppendError::TooLarge { len, max }));
                continue;
            }
            let batch = commit(&mut ring, &mut writer, &[&body]);
            assert_eq!(writer.counters().segment_switches, switches, "{blocks_before} blocks, {more}");
            assert_eq!(
                batch.padding_bytes,
                if more == 0 {
                    0
                } else if more < 0 {
                    1
                } else {
                    4095
                }
            );
            let after = commit(&mut ring, &mut writer, &[b"after"]);
            let (_, records) = read(&mut ring).unwrap();
            assert_eq!(records.len(), blocks_before + 2);
            assert_eq!(records[blocks_before].body, body);
            assert_eq!(records[blocks_before + 1].body, &b"after"[..]);
            assert!(after.offset > batch.offset);
        }
    }
}

#[test]
fn the_longest_record_is_a_segment_and_a_longer_one_is_refused_for_good() {
    let (mut ring, mut writer) = fresh(4);
    let max = record_len_max(SEGMENT) as usize;
    commit(&mut ring, &mut writer, &[b"first"]);
    let batch = commit(&mut ring, &mut writer, &[&vec![7; max]]);
    assert_eq!((batch.data.len() as u64, batch.padding_bytes), (SEGMENT, 0));
    let lsn = writer.next_lsn();
    assert_eq!(
        writer.append(&[&vec![7; max], b"8"]),
        Err(AppendError::TooLarge { len: max as u64 + 1, max: max as u64 })
    );
    assert_eq!((writer.next_lsn(), writer.open_records()), (lsn, 0));
    let (_, records) = read(&mut ring).unwrap();
    assert_eq!(records[1].body, vec![7; max]);
}

#[test]
fn a_batch_ends_where_its_segment_or_its_bound_ends() {
    let (mut ring, mut writer) = fresh(4);
    let mut n = 0;
    while writer.append(&[&[1; 996]]) != Err(AppendError::BatchFull) {
        n += 1;
    }
    assert_eq!(n, (SEGMENT - 96) / 1000);
    // A smaller one still fits.
    writer.append(&[&[2; 500], &[2; 100], b""]).unwrap();
    let batch = writer.seal(0).unwrap();
    assert_eq!((batch.records, batch.first, batch.last), (n as u32 + 1, 1, n + 1));
    write(&mut ring, &batch);
    writer.durable();
    commit(&mut ring, &mut writer, &[&[1; 996]]);
    let (_, records) = read(&mut ring).unwrap();
    assert_eq!(records.len() as u64, n + 2);
    assert_eq!(records[n as usize].body, [2; 600][..]);
    assert!(records.iter().all(|r| r.acked == (r.lsn <= n + 1)));

    let len = 8192 + 3 * (16 << 20);
    let mut ring = MemRing::new(len);
    lodestore_wal::format(&mut ring, FILE, len as u64, LogGeometry::default(), UUID, &mut |_, _| {}).unwrap();
    let (mut writer, _) = reopen(&mut ring).unwrap();
    while writer.append(&[&[1; 100_000]]).is_ok() {}
    let batch = commit(&mut ring, &mut writer, &[]);
    assert!((BATCH_LEN_MAX - 110_000..=BATCH_LEN_MAX).contains(&(batch.data.len() as u64)));
    let alone = commit(&mut ring, &mut writer, &[&vec![3; 5 << 20]]);
    assert!(alone.data.len() as u64 > BATCH_LEN_MAX);
    assert_eq!(read(&mut ring).unwrap().1.len(), batch.records as usize + 1);
}

#[test]
fn a_full_log_refuses_records_but_always_takes_a_batch_that_trims() {
    for body in [1, 3000, 9000, SEGMENT as usize - OVERHEAD] {
        for segments in 3..6 {
            let (mut ring, mut writer) = fresh(segments);
            let mut laps = 0;
            for _ in 0..2000 {
                match writer.append(&[&vec![5; body]]) {
                    Ok(_) => {
                        let batch = writer.seal(writer.last_durable()).unwrap();
                        write(&mut ring, &batch);
                        writer.durable();
                    }
                    Err(AppendError::Full) => {
                        // Idle batches eat what is left, but never the reserve.
                        while let Some(batch) = writer.seal_empty(writer.last_durable()) {
                            write(&mut ring, &batch);
                            writer.durable();
                        }
                        let release = writer.release_lsn().unwrap();
                        writer.trim(release);
                        let used = writer.used_bytes();
                        let batch = writer.seal_empty(0).expect("a batch that releases always fits");
                        // A crash before it is durable: the records are all still there.
                        let kept = read(&mut ring).unwrap().1;
                        assert_eq!(kept.last().unwrap().lsn, writer.last_durable());
                        write(&mut ring, &batch);
                        assert!(writer.used_bytes() > used, "the trim counts only when it is durable");
                        writer.durable();
                        assert!(writer.used_bytes() < used);
                        assert_eq!(writer.trim_durable(), release);
                        let (reader, kept) = read(&mut ring).unwrap();
                        assert_eq!(reader.trim(), release);
                        assert!(kept.iter().all(|r| r.lsn > release));
                        laps += 1;
                    }
                    Err(e) => panic!("{e}"),
                }
                assert!(writer.used_bytes() <= writer.capacity_bytes());
            }
            assert!(laps > 3, "{body} bytes, {segments} segments: full only {laps} times");
        }
    }
}

#[test]
fn a_segment_is_written_over_only_after_a_durable_batch_released_it() {
    let (mut ring, mut writer) = fresh(3);
    // Two segments full; the third is the reserve.
    for _ in 0..16 {
        commit(&mut ring, &mut writer, &[b"record"]);
    }
    assert_eq!(writer.append(&[b"no room"]), Err(AppendError::Full));
    writer.trim(8);
    assert_eq!(writer.append(&[b"no room"]), Err(AppendError::Full), "a trim that is only in memory frees nothing");
    let batch = writer.seal_empty(16).unwrap();
    assert_eq!(writer.append(&[b"no room"]), Ok(17), "the reserve has room behind the trim");
    // Power fails here: the trim is lost, its segment is not needed by what remains.
    let (reader, records) = read(&mut ring).unwrap();
    assert_eq!((reader.trim(), records.len()), (0, 16));
    write(&mut ring, &batch);
    writer.durable();
    let batch = writer.seal(16).unwrap();
    write(&mut ring, &batch);
    writer.durable();
    let (reader, records) = read(&mut ring).unwrap();
    assert_eq!((reader.trim(), records.first().unwrap().lsn, records.last().unwrap().lsn), (8, 9, 17));
    // Now the first slot is used again, and power may fail there.
    for _ in 0..6 {
        commit(&mut ring, &mut writer, &[b"record"]);
    }
    assert_eq!(writer.append(&[b"no room"]), Err(AppendError::Full));
    writer.trim(16);
    let batch = writer.seal_empty(16).unwrap();
    assert_eq!(batch.offset, 8192, "the first slot");
    let mut torn = ring.clone();
    torn.data[8192..8192 + 512].fill(0);
    assert_eq!(read(&mut torn).unwrap().1.first().unwrap().lsn, 9);
}

#[test]
fn a_million_tiny_records_with_trims_never_exceed_the_capacity() {
    let (mut ring, mut writer) = fresh(8);
    let len = ring.data.len();
    let mut used_max = 0;
    while writer.next_lsn() <= 1_000_000 {
        match writer.append(&[&writer.next_lsn().to_le_bytes()]) {
            Ok(lsn) if lsn % 50 != 0 => continue,
            Ok(_) | Err(AppendError::BatchFull) => {}
            Err(AppendError::Full) => {
                // What a store does: flush its memtables, then say that the records are not needed.
                writer.trim(writer.last_durable());
                assert!(!writer.in_flight() && writer.open_records() == 0);
            }
            Err(e) => panic!("{e}"),
        }
        let batch = writer.seal_empty(writer.last_durable()).unwrap();
        assert!(batch.offset as usize + batch.data.len() <= len);
        write(&mut ring, &batch);
        writer.durable();
        used_max = used_max.max(writer.used_bytes());
    }
    let c = writer.counters();
    assert!(used_max <= writer.capacity_bytes());
    assert!(c.wraps > 100 && c.group_commits > 10_000 && c.empty_batches > 100 && c.records == 1_000_000, "{c:?}");
    let (_, records) = read(&mut ring).unwrap();
    assert!(records.iter().all(|r| r.body == r.lsn.to_le_bytes()[..]));
    assert_eq!(records.last().unwrap().lsn, 1_000_000);
}

#[test]
fn an_idle_log_is_trimmed_by_an_empty_batch_and_then_rests() {
    let (mut ring, mut writer) = fresh(4);
    assert!(writer.seal(0).is_none() && writer.seal_empty(0).is_none(), "nothing to say");
    commit(&mut ring, &mut writer, &[b"a", b"b"]);
    writer.trim(2);
    let batch = writer.seal_empty(2).unwrap();
    assert_eq!((batch.records, batch.payload_bytes, batch.first, batch.last), (0, 0, 3, 2));
    write(&mut ring, &batch);
    writer.durable();
    assert!(writer.seal_empty(2).is_none(), "said once");
    let (reader, records) = read(&mut ring).unwrap();
    assert_eq!((reader.trim(), reader.acked(), records.len()), (2, 2, 0));
}

#[test]
fn format_zeroes_everything_and_tells_its_progress() {
    let mut ring = MemRing::new((5 << 20) + 8192 + 5000);
    let len = ring.data.len() as u64;
    let mut told = Vec::new();
    lodestore_wal::format(&mut ring, FILE, len, LogGeometry { segment_len: SEGMENT }, UUID, &mut |d, t| {
        told.push((d, t))
    })
    .unwrap();
    let total = 8192 + (5 << 20);
    assert_eq!((told[0], *told.last().unwrap()), ((0, total), (total, total)));
    assert!(told.is_sorted() && ring.in_flight_max == 5);
    assert!(ring.data[8192..total as usize].iter().all(|b| *b == 0));
    assert_eq!(ring.data[..4096], ring.data[4096..8192], "both header slots");
    assert!(formatted(4).data.len() < ring.data.len());
}

#[test]
#[should_panic(expected = "only one may be")]
fn two_batches_in_flight_are_refused() {
    let (_, mut writer) = fresh(4);
    writer.append(&[b"a"]).unwrap();
    let _first = writer.seal(0);
    writer.append(&[b"b"]).unwrap();
    let _second = writer.seal(0);
}
