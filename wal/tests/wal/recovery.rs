//! Epochs, LSNs, crashes between the steps of recovery.

use lodestore_wal::format::LogHeader;
use lodestore_wal::{Tail, WalError};

use crate::mem::{FILE, MemRing};
use crate::{UUID, assert_bodies, body_of, commit, filled, formatted, fresh, read, reopen};

#[test]
fn records_come_back_in_order_with_what_is_known_to_be_acked() {
    let (mut ring, mut writer, _) = filled(8, 100, 9);
    let (reader, records) = read(&mut ring).unwrap();
    assert_bodies(&records, 1..=100);
    // The last batch told of the one before it: 99 records.
    assert!(records.iter().all(|r| r.acked == (r.lsn <= 99)));
    assert_eq!(
        (reader.tail(), reader.acked(), reader.lsn_max(), reader.counters().records),
        (Tail::Clean, 99, 100, 100)
    );
    writer.trim(60);
    commit(&mut ring, &mut writer, &[&body_of(101)]);
    assert_bodies(&read(&mut ring).unwrap().1, 61..=101);
    assert_eq!((writer.trim_durable(), writer.last_durable()), (60, 101));
}

#[test]
fn a_closed_log_ends_exactly_where_it_was_closed_and_all_of_it_is_acked() {
    let (mut ring, writer, _) = filled(8, 100, 9);
    writer.close(&mut ring).unwrap();
    let (reader, records) = read(&mut ring).unwrap();
    assert_bodies(&records, 1..=100);
    assert!(reader.was_closed() && records.iter().all(|r| r.acked));
    let old = LogHeader::decode(&ring.data).unwrap();
    let (mut writer, _) = reopen(&mut ring).unwrap();
    assert!(!read(&mut ring).unwrap().0.was_closed());
    let new = LogHeader::decode(&ring.data).unwrap();
    assert_eq!((new.epoch, new.start_seq), (old.epoch + 1, old.end.unwrap().seq + 1), "old segments are kept longest");
    commit(&mut ring, &mut writer, &[&body_of(101)]);
    assert_bodies(&read(&mut ring).unwrap().1, 101..=101);
}

#[test]
fn a_log_closed_without_records_opens() {
    let mut ring = formatted(4);
    for _ in 0..10 {
        let (reader, _) = read(&mut ring).unwrap();
        assert!(reader.was_closed());
        let writer = reader.restart(&mut ring, 1).unwrap();
        assert_eq!(writer.next_lsn(), 1);
        writer.close(&mut ring).unwrap();
    }
}

#[test]
fn an_lsn_is_never_used_twice() {
    let (mut ring, mut writer, _) = filled(8, 50, 10);
    (0..20).for_each(|_| assert!(writer.append(&[b"never durable"]).is_ok()));
    let batch = writer.seal(50).unwrap();
    // Only the header's sector arrived.
    ring.data[batch.offset as usize..][..512].copy_from_slice(&batch.data[..512]);
    ring.data[batch.offset as usize + 200] ^= 1;
    let (reader, records) = read(&mut ring).unwrap();
    assert_eq!((records.len(), reader.lsn_max()), (50, 70));
    let writer = reader.restart(&mut ring, 51).unwrap();
    assert_eq!(writer.next_lsn(), 71, "the torn batch had 51..=70");
    let (reader, _) = read(&mut ring).unwrap();
    let writer = reader.restart(&mut ring, 1).unwrap();
    assert_eq!(writer.next_lsn(), 71, "nor after another restart");
    let (reader, _) = read(&mut ring).unwrap();
    assert_eq!(reader.restart(&mut ring, 1000).unwrap().next_lsn(), 1000);
}

/// Every state that a crash between (or in) the writes to the header slots can leave.
fn crash_states(before: &[u8], history: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut states = vec![before.to_vec()];
    let mut present = before.to_vec();
    for after in history {
        // Torn in the middle of the header, which no disk should do: its checksum sees it.
        let at = present.iter().zip(after).position(|(a, b)| a != b).unwrap_or(0) / 4096 * 4096;
        let mut torn = present.clone();
        torn[at..at + 60].copy_from_slice(&after[at..at + 60]);
        states.push(torn);
        states.push(after.clone());
        present = after.clone();
    }
    states
}

#[test]
fn a_crash_between_any_two_steps_of_restart_loses_nothing_and_revives_nothing() {
    let (mut ring, _, _) = filled(8, 100, 9);
    let before = ring.data.clone();
    ring.history = Some(Vec::new());
    let (_, _) = reopen(&mut ring).unwrap();
    let history = ring.history.take().unwrap();
    assert_eq!(history.len(), 2);
    let (mut old, mut new) = (0, 0);
    for state in crash_states(&before, &history) {
        let mut ring = MemRing::of(state);
        let (reader, records) = read(&mut ring).unwrap();
        // Either the old epoch, whole, or the new one, empty. The caller made all durable before.
        if records.is_empty() {
            new += 1
        } else {
            old += 1
        }
        if !records.is_empty() {
            assert_bodies(&records, 1..=100);
        }
        let mut writer = reader.restart(&mut ring, 101).unwrap();
        assert_eq!(writer.next_lsn(), 101);
        commit(&mut ring, &mut writer, &[&body_of(101)]);
        assert_bodies(&read(&mut ring).unwrap().1, 101..=101);
        for slot in 0..2 {
            let mut one = ring.clone();
            one.data[slot * 4096..][..512].fill(0xff);
            assert_bodies(&read(&mut one).unwrap().1, 101..=101);
        }
    }
    assert!(old >= 2 && new >= 2);
}

#[test]
fn a_crash_between_any_two_steps_of_close_loses_nothing() {
    let (mut ring, writer, _) = filled(8, 100, 9);
    let before = ring.data.clone();
    ring.history = Some(Vec::new());
    writer.close(&mut ring).unwrap();
    for state in crash_states(&before, &ring.history.take().unwrap()) {
        let mut ring = MemRing::of(state);
        let (mut writer, records) = reopen(&mut ring).unwrap();
        assert_bodies(&records, 1..=100);
        commit(&mut ring, &mut writer, &[&body_of(101)]);
        assert_bodies(&read(&mut ring).unwrap().1, 101..=101);
    }
}

#[test]
fn a_failed_header_write_fails_restart_and_the_log_is_as_before() {
    for writes in 0..2 {
        let (mut ring, _, _) = filled(8, 100, 9);
        ring.writes_left = Some(writes);
        assert!(matches!(reopen(&mut ring), Err(WalError::Io(_))));
        ring.writes_left = None;
        let (reader, records) = read(&mut ring).unwrap();
        assert_eq!(records.len(), if writes == 0 { 100 } else { 0 });
        assert_eq!(reader.lsn_max(), 100);
    }
    let mut ring = MemRing::new(1 << 20);
    ring.writes_left = Some(0);
    let len = ring.data.len() as u64;
    let made = lodestore_wal::format(
        &mut ring,
        FILE,
        len,
        lodestore_wal::LogGeometry { segment_len: 32 << 10 },
        UUID,
        &mut |_, _| {},
    );
    assert!(matches!(made, Err(WalError::Io(_))));
}

#[test]
fn batch_buffers_are_reused() {
    let (mut ring, mut writer) = fresh(4);
    let mut addresses = std::collections::BTreeSet::new();
    for _ in 0..12 {
        let batch = commit(&mut ring, &mut writer, &[b"x"]);
        addresses.insert(batch.data.as_ptr() as usize);
    }
    assert!(addresses.len() <= 3, "{} buffers", addresses.len());
}
