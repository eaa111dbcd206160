//! Batches in the bytes of one segment: which are whole, which were begun.

use lodestore_aio::BLOCK;

use crate::format::{BATCH_HEADER_LEN, BatchFault, BatchHeader, LogHeader, split_record};

/// The batch header at `offset` of segment `seq`, if it is of this log's epoch and was written for
/// this very place. `block` begins with the header's bytes.
pub(crate) fn header_at(log: &LogHeader, block: &[u8], seq: u64, offset: u64) -> Result<BatchHeader, BatchFault> {
    let h = BatchHeader::decode(block)?;
    let here = h.epoch == log.epoch
        && h.salt == log.salt
        && h.seq == seq
        && u64::from(h.offset) == offset
        && offset + h.disk_len() <= log.segment_len;
    if here { Ok(h) } else { Err(BatchFault::Elsewhere) }
}

/// The batch at `offset` of the segment `seq` whose bytes are `segment`, header and payload checked.
pub(crate) fn batch_at(log: &LogHeader, segment: &[u8], seq: u64, offset: u64) -> Result<BatchHeader, BatchFault> {
    let at = &segment[offset as usize..];
    let h = header_at(log, at, seq, offset)?;
    let payload = &at[BATCH_HEADER_LEN..][..h.payload_len as usize];
    let crc = crc32c::crc32c(payload);
    if crc != h.payload_crc {
        return Err(BatchFault::Payload(crc, h.payload_crc));
    }
    let mut rest = payload;
    for _ in 0..h.records {
        rest = split_record(rest).ok_or(BatchFault::Records)?.1;
    }
    if rest.is_empty() { Ok(h) } else { Err(BatchFault::Records) }
}

/// The first header of this epoch at or behind `offset`, if any. Every block is looked at, because
/// nothing says how long the batch was that should have been at `offset`.
pub(crate) fn first_header_from(log: &LogHeader, segment: &[u8], seq: u64, offset: u64) -> Option<BatchHeader> {
    (offset..log.segment_len).step_by(BLOCK).find_map(|at| header_at(log, &segment[at as usize..], seq, at).ok())
}
