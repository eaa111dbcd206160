//! Appending: records into the open batch, batches into segments, segments around the ring.
//!
//! The writer does no I/O. It hands out a sealed [`Batch`]; the caller writes and syncs it and says
//! so with [`Writer::durable`].
//!
//! # Space
//! A batch says which segment is the oldest still needed. Older ones are written over only after
//! *a batch that says so is durable*: until then a crash would bring back the batch before it, which
//! still needs them. One free segment is always kept back from records, for a batch that releases
//! segments: the log can be trimmed however full it is. When such a batch is durable, at least one
//! segment is free again, so the reserve is whole again.

use std::collections::VecDeque;

use bytes::Bytes;
use lodestore_aio::{AlignedBuf, BLOCK, FileId, Ring};

use crate::Lsn;
use crate::error::{AppendError, WalError};
use crate::format::{
    BATCH_HEADER_LEN, BatchHeader, CleanEnd, LogHeader, RECORD_PREFIX_LEN, record_len_max, record_prefix,
};
use crate::pool::Pool;
use crate::slots;

/// A batch takes no further record beyond this many bytes; a single larger record is a batch alone.
pub const BATCH_LEN_MAX: u64 = 4 << 20;

/// A sealed batch, to be written whole and synced before [`Writer::durable`].
#[derive(Clone, Debug)]
pub struct Batch {
    /// The log's file.
    pub file: FileId,
    /// Byte offset in it, a multiple of 4096.
    pub offset: u64,
    /// The bytes; address and length are multiples of 4096.
    pub data: Bytes,
    /// LSN of the first record (in an empty batch: the next LSN to be given).
    pub first: Lsn,
    /// LSN of the last record (in an empty batch: `first - 1`).
    pub last: Lsn,
    /// Number of records.
    pub records: u32,
    /// Bytes of record bodies.
    pub payload_bytes: u64,
    /// Bytes of the batch header and of the records' prefixes.
    pub header_bytes: u64,
    /// Zeros up to the end of the block.
    pub padding_bytes: u64,
}

/// What a writer has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterCounters {
    /// Batches sealed, empty ones included.
    pub batches: u64,
    /// Batches without records.
    pub empty_batches: u64,
    /// Records sealed.
    pub records: u64,
    /// Batches of more than one record.
    pub group_commits: u64,
    /// Segments begun after the first.
    pub segment_switches: u64,
    /// Times the log came back to its first slot.
    pub wraps: u64,
}

/// A segment that holds records still needed, or the newest batches.
#[derive(Debug)]
struct Live {
    seq: u64,
    /// The last LSN in it, or before it while it holds no record.
    last: Lsn,
}

/// What batches tell besides their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    acked: Lsn,
    trim: Lsn,
    start_seq: u64,
}

/// The appending end of a log; made by [`Reader::restart`](crate::Reader::restart).
#[derive(Debug)]
pub struct Writer {
    file: FileId,
    header: LogHeader,
    slot: usize,
    /// Where the open batch will be written. `offset` may be the segment's end.
    seq: u64,
    offset: u64,
    open: AlignedBuf,
    open_records: u32,
    open_body_bytes: u64,
    /// From the oldest segment that the last sealed batch needs to the one being filled.
    live: VecDeque<Live>,
    next_lsn: Lsn,
    next_ordinal: u64,
    trim: Lsn,
    /// In the newest sealed batch.
    told: Told,
    /// In the newest durable batch.
    durable: Told,
    last_durable: Lsn,
    /// The last LSN of the batch in flight.
    in_flight: Option<Lsn>,
    pool: Pool,
    counters: WriterCounters,
}

impl Writer {
    /// A writer at the start of the epoch that `header` has durably begun.
    pub(crate) fn begin(file: FileId, header: LogHeader, slot: usize) -> Writer {
        let before = header.start_lsn - 1;
        let told = Told { acked: before, trim: before, start_seq: header.start_seq };
        let pool = Pool::default();
        Writer {
            file,
            slot,
            seq: header.start_seq,
            offset: 0,
            open: open_buf(&pool),
            open_records: 0,
            open_body_bytes: 0,
            live: VecDeque::from([Live { seq: header.start_seq, last: before }]),
            next_lsn: header.start_lsn,
            next_ordinal: 1,
            trim: before,
            told,
            durable: told,
            last_durable: before,
            in_flight: None,
            pool,
            counters: WriterCounters::default(),
            header,
        }
    }

    /// Adds a record, the concatenation of `parts`, to the open batch and returns its LSN. It is in
    /// the log once the batch that [`seal`](Writer::seal) gives is durable.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Lsn, AppendError> {
        let body_len: u64 = parts.iter().map(|p| p.len() as u64).sum();
        let max = self.record_len_max();
        if body_len > max {
            return Err(AppendError::TooLarge { len: body_len, max });
        }
        let batch_len = self.open.len() as u64 + RECORD_PREFIX_LEN as u64 + body_len;
        if self.open_records == 0 {
            if batch_len > self.header.segment_len - self.offset {
                if self.free_segments() < 2 {
                    return Err(AppendError::Full);
                }
                self.next_segment();
            }
        } else if batch_len > BATCH_LEN_MAX.min(self.header.segment_len - self.offset) {
            return Err(AppendError::BatchFull);
        }
        self.open.extend(&record_prefix(body_len as u32));
        for part in parts {
            self.open.extend(part);
        }
        let lsn = self.next_lsn;
        self.next_lsn += 1;
        self.open_records += 1;
        self.open_body_bytes += body_len;
        Ok(lsn)
    }

    /// Whether [`append`](Writer::append) would now take a record of `body_len` bytes.
    pub fn has_room(&self, body_len: u64) -> bool {
        let batch_len = self.open.len() as u64 + RECORD_PREFIX_LEN as u64 + body_len;
        let segment_left = self.header.segment_len - self.offset;
        body_len <= self.record_len_max()
            && match self.open_records {
                0 => batch_len <= segment_left || self.free_segments() >= 2,
                _ => batch_len <= BATCH_LEN_MAX.min(segment_left),
            }
    }

    /// Closes the open batch for writing; `None` if it has no records. `acked` is the highest LSN up
    /// to which every record was acknowledged.
    ///
    /// # Panics
    /// If a batch is in flight, or `acked` is not durable: both would break recovery.
    pub fn seal(&mut self, acked: Lsn) -> Option<Batch> {
        self.assert_may_seal(acked);
        (self.open_records > 0).then(|| self.finish(acked))
    }

    /// Like [`seal`](Writer::seal), but makes a batch without records if there are none, which only
    /// carries `acked` and the trim: for idle times, and for a log that is full.
    ///
    /// `None` if there is nothing new to say, or if the log is so full that only a batch that
    /// releases a segment may still be written, and this one would not. Once
    /// [`trim`](Writer::trim) has reached [`release_lsn`](Writer::release_lsn) there always is one.
    pub fn seal_empty(&mut self, acked: Lsn) -> Option<Batch> {
        self.assert_may_seal(acked);
        if self.open_records > 0 {
            return Some(self.finish(acked));
        }
        let must_switch = self.offset == self.header.segment_len;
        let start_seq = self.start_seq(self.seq + u64::from(must_switch));
        let acked = acked.max(self.told.acked);
        if !must_switch && (Told { acked, trim: self.trim, start_seq }) == self.told {
            return None;
        }
        if must_switch {
            let says = acked > self.told.acked || self.trim > self.told.trim;
            let releases = start_seq > self.durable.start_seq;
            let may = releases || (says && self.free_segments() >= 2);
            if !may {
                return None;
            }
            assert!(self.free_segments() >= 1, "the reserve is whole whenever no batch is in flight");
            self.next_segment();
        }
        Some(self.finish(acked))
    }

    /// The batch in flight is durable. Returns the highest durable LSN.
    ///
    /// # Panics
    /// If none is in flight.
    pub fn durable(&mut self) -> Lsn {
        let Some(last) = self.in_flight.take() else { panic!("no batch is in flight") };
        self.last_durable = last;
        self.durable = self.told;
        last
    }

    /// Records up to `lsn` are never needed again. Takes effect on disk, and frees segments, when the
    /// next batch is durable.
    ///
    /// # Panics
    /// If `lsn` is not durable.
    pub fn trim(&mut self, lsn: Lsn) {
        assert!(lsn <= self.last_durable, "trim to {lsn}, durable is {}", self.last_durable);
        self.trim = self.trim.max(lsn);
    }

    /// Marks the log as complete, so that the next [`open`](crate::Reader::open) knows exactly where
    /// it must end. The caller promises that every record is acknowledged. The ring must be idle.
    ///
    /// # Panics
    /// If records are not durable yet.
    pub fn close(mut self, ring: &mut dyn Ring) -> Result<(), WalError> {
        assert!(self.in_flight.is_none() && self.open_records == 0, "close with records under way");
        self.header.generation += 1;
        self.header.end = Some(CleanEnd { batches: self.next_ordinal - 1, lsn: self.last_durable, seq: self.seq });
        slots::write(ring, self.file, &self.header, self.slot)?;
        Ok(())
    }

    /// Whether a batch is sealed and not yet durable.
    pub fn in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Number of records in the open batch.
    pub fn open_records(&self) -> u32 {
        self.open_records
    }

    /// The LSN that the next record gets.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// The highest durable LSN.
    pub fn last_durable(&self) -> Lsn {
        self.last_durable
    }

    /// The trim LSN in the newest durable batch.
    pub fn trim_durable(&self) -> Lsn {
        self.durable.trim
    }

    /// The LSN that [`trim`](Writer::trim) must reach to release the oldest segment; `None` while
    /// everything is in the segment being filled.
    pub fn release_lsn(&self) -> Option<Lsn> {
        let oldest = self.live.front().filter(|s| s.seq < self.seq || self.offset == self.header.segment_len);
        oldest.map(|s| s.last)
    }

    /// Bytes that cannot be written over yet: the segments still needed, and the filled part of the
    /// newest.
    pub fn used_bytes(&self) -> u64 {
        (self.seq - self.durable.start_seq) * self.header.segment_len + self.offset
    }

    /// Bytes of all segments. Records can use all but one of them, which is kept for trimming.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.header.segment_count) * self.header.segment_len
    }

    /// Bytes of a segment.
    pub fn segment_len(&self) -> u64 {
        self.header.segment_len
    }

    /// The longest record that can be appended.
    pub fn record_len_max(&self) -> u64 {
        record_len_max(self.header.segment_len)
    }

    /// What was done so far.
    pub fn counters(&self) -> WriterCounters {
        self.counters
    }

    fn assert_may_seal(&self, acked: Lsn) {
        assert!(self.in_flight.is_none(), "a batch is in flight: only one may be");
        assert!(acked <= self.last_durable, "acked {acked} is not durable ({})", self.last_durable);
    }

    /// Segments that hold nothing a crash could bring back.
    fn free_segments(&self) -> u64 {
        u64::from(self.header.segment_count) - (self.seq - self.durable.start_seq + 1)
    }

    fn next_segment(&mut self) {
        self.seq += 1;
        self.offset = 0;
        self.live.push_back(Live { seq: self.seq, last: self.next_lsn - 1 });
        self.counters.segment_switches += 1;
        self.counters.wraps += u64::from(self.seq.is_multiple_of(self.header.segment_count.into()));
    }

    /// The oldest segment needed by a batch that lies in segment `seq` and carries the present trim.
    fn start_seq(&self, seq: u64) -> u64 {
        let needed = self.live.iter().find(|s| s.last > self.trim);
        needed.map_or(seq, |s| s.seq.min(seq))
    }

    fn finish(&mut self, acked: Lsn) -> Batch {
        let records = std::mem::take(&mut self.open_records);
        let body_bytes = std::mem::take(&mut self.open_body_bytes);
        let first = self.next_lsn - Lsn::from(records);
        let last = self.next_lsn - 1;
        if let Some(newest) = self.live.back_mut() {
            newest.last = last;
        }
        let start_seq = self.start_seq(self.seq);
        while self.live.front().is_some_and(|s| s.seq < start_seq) {
            self.live.pop_front();
        }
        self.told = Told { acked: acked.max(self.told.acked), trim: self.trim, start_seq };

        let mut buf = std::mem::replace(&mut self.open, open_buf(&self.pool));
        let used = buf.len();
        let payload = &buf[BATCH_HEADER_LEN..];
        let header = BatchHeader {
            offset: self.offset as u32,
            epoch: self.header.epoch,
            salt: self.header.salt,
            seq: self.seq,
            ordinal: self.next_ordinal,
            first_lsn: first,
            acked: self.told.acked,
            trim: self.told.trim,
            start_seq,
            records,
            payload_len: payload.len() as u32,
            payload_crc: crc32c::crc32c(payload),
        };
        header.encode(&mut buf);
        buf.resize(used.next_multiple_of(BLOCK));
        let len = buf.len() as u64;
        debug_assert!(self.offset + len <= self.header.segment_len && len == header.disk_len());
        let batch = Batch {
            file: self.file,
            offset: self.header.file_offset(self.seq, self.offset),
            data: self.pool.freeze(buf),
            first,
            last,
            records,
            payload_bytes: body_bytes,
            header_bytes: used as u64 - body_bytes,
            padding_bytes: len - used as u64,
        };
        self.offset += len;
        self.next_ordinal += 1;
        self.in_flight = Some(last);
        self.counters.batches += 1;
        self.counters.empty_batches += u64::from(records == 0);
        self.counters.records += u64::from(records);
        self.counters.group_commits += u64::from(records > 1);
        batch
    }
}

/// A buffer with the batch header's place left free.
fn open_buf(pool: &Pool) -> AlignedBuf {
    let mut buf = pool.take();
    buf.resize(BATCH_HEADER_LEN);
    buf
}
