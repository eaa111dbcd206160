//! The log on a disk in memory.

mod damage;
mod mem;
mod random;
mod recovery;
mod space;
mod torn;

use lodestore_wal::{Batch, LogGeometry, Lsn, Reader, Record, WalError, Writer};
use mem::{FILE, MemRing};

/// The store of every log here.
pub const UUID: [u8; 16] = *b"a store's uuid..";
/// Bytes of a segment.
pub const SEGMENT: u64 = 32 << 10;
/// Bytes that a batch of one record adds to the record.
pub const OVERHEAD: usize = 100;

/// A log of `segments` segments, just formatted.
pub fn formatted(segments: usize) -> MemRing {
    let mut ring = MemRing::new(8192 + segments * SEGMENT as usize);
    let len = ring.data.len() as u64;
    lodestore_wal::format(&mut ring, FILE, len, LogGeometry { segment_len: SEGMENT }, UUID, &mut |_, _| {}).unwrap();
    ring
}

/// A fresh log and its writer.
pub fn fresh(segments: usize) -> (MemRing, Writer) {
    let mut ring = formatted(segments);
    let (writer, records) = reopen(&mut ring).unwrap();
    assert_eq!(records, []);
    (ring, writer)
}

/// Everything that recovery finds, without a change to the log.
pub fn read(ring: &mut MemRing) -> Result<(Reader, Vec<Record>), WalError> {
    let mut reader = Reader::open(ring, FILE, UUID)?;
    let mut records = Vec::new();
    while let Some(r) = reader.next(ring)? {
        records.push(r);
    }
    Ok((reader, records))
}

/// Recovers and begins a new epoch.
pub fn reopen(ring: &mut MemRing) -> Result<(Writer, Vec<Record>), WalError> {
    let (reader, records) = read(ring)?;
    let next = records.last().map_or(1, |r| r.lsn + 1);
    Ok((reader.restart(ring, next)?, records))
}

/// Writes a batch as it is.
pub fn write(ring: &mut MemRing, batch: &Batch) {
    assert_eq!(batch.file, FILE);
    assert_eq!(batch.payload_bytes + batch.header_bytes + batch.padding_bytes, batch.data.len() as u64);
    assert!(lodestore_aio::is_aligned(&batch.data));
    ring.data[batch.offset as usize..][..batch.data.len()].copy_from_slice(&batch.data);
}

/// Appends one batch of records and makes it durable.
pub fn commit(ring: &mut MemRing, writer: &mut Writer, bodies: &[&[u8]]) -> Batch {
    for body in bodies {
        writer.append(&[body]).unwrap();
    }
    let batch = writer.seal(writer.last_durable()).unwrap();
    write(ring, &batch);
    assert_eq!(writer.durable(), batch.last);
    batch
}

/// The bytes that record `lsn` of tests has: 0..=400 of them, depending on `lsn` alone.
pub fn body_of(lsn: Lsn) -> Vec<u8> {
    let len = (lsn * 7919 % 401) as usize;
    (0..len).map(|i| (lsn as usize * 31 + i * 7) as u8 | 1).collect()
}

/// A log of `records` records in batches of `per_batch`, and where the batches are.
pub fn filled(segments: usize, records: u64, per_batch: u64) -> (MemRing, Writer, Vec<Batch>) {
    let (mut ring, mut writer) = fresh(segments);
    let mut batches = Vec::new();
    while writer.next_lsn() <= records {
        let first = writer.next_lsn();
        let bodies: Vec<_> = (first..(first + per_batch).min(records + 1)).map(body_of).collect();
        batches.push(commit(&mut ring, &mut writer, &bodies.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    }
    (ring, writer, batches)
}

/// The records are exactly these, each with the body that its LSN says.
pub fn assert_bodies(records: &[Record], lsns: std::ops::RangeInclusive<Lsn>) {
    assert!(
        records.iter().map(|r| r.lsn).eq(lsns.clone()),
        "{lsns:?}, got {:?}",
        records.iter().map(|r| r.lsn).collect::<Vec<_>>()
    );
    for r in records {
        assert_eq!(r.body, body_of(r.lsn), "lsn {}", r.lsn);
    }
}
