//! Recovery: where the log begins and ends, whether everything between is whole, and the records.
//!
//! [`Reader::open`] finds the newest segment by the first block of every slot (each segment begins
//! with a batch), the newest valid batch in it, and by that the oldest segment still needed. Then it
//! checks every batch from there on. Only one segment is in memory at a time.
//!
//! # Crashes during recovery
//! Opening and reading change nothing. [`Reader::restart`] writes the header of a new epoch to one
//! slot, syncs, writes the other slot and syncs. A crash before the first of them is durable leaves
//! the old epoch, which is recovered again, to the same end; a crash after it finds an empty log.
//! Nothing is appended before both are durable, so no record can be lost by falling back.

mod check;

use bytes::Bytes;
use lodestore_aio::{AlignedBuf, FileId, IoOp, Ring, run};

use crate::Lsn;
use crate::error::WalError;
use crate::format::{BATCH_HEADER_LEN, LogHeader, RECORD_PREFIX_LEN, salt, split_record};
use crate::slots;
use crate::writer::Writer;

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub lsn: Lsn,
    /// Its bytes, a copy of its own.
    pub body: Bytes,
    /// Whether it is known to have been acknowledged. One that is not may have been, too (if it was
    /// the last); it is whole, but what was to be durable beside it need not be.
    pub acked: bool,
}

/// What was found behind the last valid batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// No sign of another batch. (One whose first sector was never written leaves none.)
    Clean,
    /// A batch that was begun and is not whole; it is cut by [`Reader::restart`].
    Torn {
        /// Byte offset of the batch in the file.
        offset: u64,
        /// Its length on disk.
        bytes: u64,
    },
}

/// What recovery met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounters {
    /// Valid batches between the log's ends.
    pub batches: u64,
    /// Records returned by [`Reader::next`].
    pub records: u64,
    /// 1 if the tail is torn.
    pub torn_tails: u64,
    /// Header slots that were unreadable or invalid (at most 1, else the log cannot be opened).
    pub header_slots_bad: u64,
}

/// A place in the log and what must be there.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    seq: u64,
    offset: u64,
    /// Ordinal and first LSN of the next batch; `None` before the first is known.
    expected: Option<(u64, Lsn)>,
}

/// The batch whose records are being returned.
#[derive(Debug)]
struct Open {
    seq: u64,
    /// Of the next record's prefix, in the segment.
    at: usize,
    /// One past the payload.
    end: usize,
    lsn: Lsn,
}

/// The reading end of a log.
#[derive(Debug)]
pub struct Reader {
    file: FileId,
    name: String,
    header: LogHeader,
    slot: usize,
    /// The one segment in memory, and which it is.
    segment: Option<AlignedBuf>,
    segment_seq: Option<u64>,
    /// The highest segment with a batch of the epoch.
    newest_seq: Option<u64>,
    lsn_max: Lsn,
    trim: Lsn,
    acked: Lsn,
    cursor: Cursor,
    /// The first batch of the oldest segment needed.
    start: Cursor,
    /// Behind the last valid batch.
    end: Cursor,
    open: Option<Open>,
    tail: Tail,
    counters: RecoveryCounters,
}

impl Reader {
    /// Opens the log of store `expected_uuid` and checks it from end to end; nothing is written. The
    /// ring must be idle.
    pub fn open(ring: &mut dyn Ring, file: FileId, expected_uuid: [u8; 16]) -> Result<Reader, WalError> {
        let name = ring.file_name(file);
        let found = slots::read(ring, file)?;
        let header = found.header;
        if header.uuid != expected_uuid {
            let (found, expected) = (u128::from_be_bytes(header.uuid), u128::from_be_bytes(expected_uuid));
            return Err(WalError::Foreign { file: name, found, expected });
        }
        let start = Cursor { seq: header.start_seq, offset: 0, expected: Some((1, header.start_lsn)) };
        let before = header.start_lsn - 1;
        let mut reader = Reader {
            file,
            name,
            slot: found.slot,
            segment: None,
            segment_seq: None,
            newest_seq: None,
            lsn_max: before,
            trim: before,
            acked: before,
            cursor: start,
            start,
            end: start,
            open: None,
            tail: Tail::Clean,
            counters: RecoveryCounters { header_slots_bad: found.bad.into(), ..Default::default() },
            header,
        };
        reader.newest_seq = reader.probe(ring)?;
        if let Some(newest) = reader.newest_batch(ring)? {
            reader.check_all(ring, &newest)?;
        }
        reader.cursor = reader.start;
        reader.check_end(ring)?;
        Ok(reader)
    }

    /// The next record that is still needed, in order of LSN; `None` at the end.
    pub fn next(&mut self, ring: &mut dyn Ring) -> Result<Option<Record>, WalError> {
        loop {
            while let Some(open) = &mut self.open {
                if open.at == open.end {
                    self.open = None;
                    break;
                }
                let segment = load(&mut self.segment, &mut self.segment_seq, ring, self.file, &self.header, open.seq)?;
                // batch_at has split this very payload, so the record is there.
                let Some((body, _)) = split_record(&segment[open.at..open.end]) else { unreachable!("checked before") };
                let lsn = open.lsn;
                open.at += RECORD_PREFIX_LEN + body.len();
                open.lsn += 1;
                if lsn > self.trim {
                    self.counters.records += 1;
                    return Ok(Some(Record { lsn, body: Bytes::copy_from_slice(body), acked: lsn <= self.acked }));
                }
            }
            if (self.cursor.seq, self.cursor.offset) == (self.end.seq, self.end.offset) {
                return Ok(None);
            }
            let Some((batch, seq)) = self.advance(ring, self.end.seq)? else {
                let what = "a batch that was valid when the log was opened is not any more".to_string();
                return Err(self.damaged(self.cursor.seq, self.cursor.offset, what));
            };
            let at = batch.offset as usize + BATCH_HEADER_LEN;
            self.open = Some(Open { seq, at, end: at + batch.payload_len as usize, lsn: batch.first_lsn });
        }
    }

    /// Durably begins a new epoch and returns its writer: everything in the log, the torn tail
    /// included, is cut, and can never be believed again. The caller must have made everything it
    /// read durable elsewhere. The ring must be idle.
    ///
    /// The first LSN is `next_lsn`, or one more than the highest LSN in any batch header found,
    /// whichever is greater: an LSN is never used twice.
    pub fn restart(self, ring: &mut dyn Ring, next_lsn: Lsn) -> Result<Writer, WalError> {
        let epoch = self.header.epoch + 1;
        let header = LogHeader {
            generation: self.header.generation + 1,
            epoch,
            start_lsn: next_lsn.max(self.lsn_max + 1),
            start_seq: self.newest_seq.map_or(self.header.start_seq, |s| s + 1),
            salt: salt(&self.header.uuid, epoch),
            end: None,
            ..self.header
        };
        let slot = slots::write(ring, self.file, &header, self.slot)?;
        Ok(Writer::begin(self.file, header, slot))
    }

    /// What is behind the last valid batch.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Records up to here are not returned: they are not needed any more.
    pub fn trim(&self) -> Lsn {
        self.trim
    }

    /// The highest LSN known to have been acknowledged.
    pub fn acked(&self) -> Lsn {
        self.acked
    }

    /// The highest LSN in any batch header found, a torn one included.
    pub fn lsn_max(&self) -> Lsn {
        self.lsn_max
    }

    /// Whether the log was closed cleanly.
    pub fn was_closed(&self) -> bool {
        self.header.end.is_some()
    }

    /// What recovery met so far.
    pub fn counters(&self) -> RecoveryCounters {
        self.counters
    }
}

/// The bytes of segment `seq`'s slot, read unless they are in memory already.
fn load<'a>(
    segment: &'a mut Option<AlignedBuf>,
    present: &mut Option<u64>,
    ring: &mut dyn Ring,
    file: FileId,
    header: &LogHeader,
    seq: u64,
) -> Result<&'a [u8], WalError> {
    if *present != Some(seq) {
        *present = None;
        let buf = segment.take().unwrap_or_else(|| AlignedBuf::zeroed(header.segment_len as usize));
        *segment = run(ring, IoOp::Read { file, offset: header.file_offset(seq, 0), buf })?;
        *present = Some(seq);
    }
    let Some(buf) = segment else { unreachable!("a read returns its buffer") };
    Ok(buf)
}
