//! Every byte of the log, little-endian.
//!
//! ```text
//! offset            what
//! 0                 header slot 0: a log header, zeros up to 4096
//! 4096              header slot 1: the same
//! 8192 + i * L      segment slot i of N, L = segment_len bytes; holds segment `seq` where
//!                   seq % N == i. A segment is batches, one behind the other from its first byte;
//!                   what follows its last batch is older and means nothing.
//! ```
//!
//! Log header (108 bytes):
//! ```text
//!  0  [u8; 8]   magic "LODELOG\0"
//!  8  u16       version
//! 10  u16       flags; bit 0: closed cleanly, the three end fields hold
//! 12  u32       segment_count
//! 16  [u8; 16]  uuid of the store
//! 32  u64       segment_len in bytes
//! 40  u64       generation: one more with every change of the header
//! 48  u64       epoch: one more with every restart
//! 56  u64       start_lsn: LSN of the first record of the epoch
//! 64  u64       start_seq: first segment of the epoch
//! 72  u64       salt of the epoch's batches
//! 80  u64       end: number of batches of the epoch   (only if closed cleanly)
//! 88  u64       end: the last LSN of the epoch        (only if closed cleanly)
//! 96  u64       end: segment of the last batch        (only if closed cleanly)
//! 104 u32       crc32c of bytes 0..104
//! ```
//!
//! Batch header (96 bytes), then the payload, then zeros up to a multiple of 4096:
//! ```text
//!  0  [u8; 8]   magic "LODEBAT\0"
//!  8  u16       version
//! 10  u16       zero
//! 12  u32       offset of the batch in its segment
//! 16  u64       epoch
//! 24  u64       salt
//! 32  u64       seq: the segment's number
//! 40  u64       ordinal: 1 for the first batch of an epoch, then consecutive
//! 48  u64       first_lsn: of the first record, or the next one to be given if there is none
//! 56  u64       acked: every record up to here was acknowledged
//! 64  u64       trim: records up to here are never needed again
//! 72  u64       start_seq: oldest segment still needed
//! 80  u32       number of records
//! 84  u32       length of the payload
//! 88  u32       crc32c of the payload
//! 92  u32       crc32c of bytes 0..92
//! ```
//!
//! Payload: for each record a u32 length and the body; LSNs are consecutive.
//!
//! Why a batch says where it lies: recycled segments are full of older batches, and user data may
//! contain copies of batches. Only a batch of this epoch and salt, at the very place it names, is
//! believed. Why both checksums: the header's is enough to know that a batch was begun here, which
//! is what tells damage from a torn tail; the payload's says whether it may be believed.

use lodestore_aio::BLOCK;

use crate::Lsn;

/// Version of the format, in every header. Any change of a byte above raises it.
pub const VERSION: u16 = 1;
/// Bytes of a log header. Length, magic, version and checksum keep their places in every version, so
/// that an old program can tell a newer header from a damaged one.
pub const HEADER_LEN: usize = 108;
/// Bytes of a batch header.
pub const BATCH_HEADER_LEN: usize = 96;
/// Bytes before each record's body.
pub const RECORD_PREFIX_LEN: usize = 4;
/// Where segment slot 0 begins.
pub const SEGMENTS_OFFSET: u64 = 2 * BLOCK as u64;
/// Smallest segment.
pub const SEGMENT_LEN_MIN: u64 = 4 * BLOCK as u64;
/// Largest segment; recovery holds one in memory.
pub const SEGMENT_LEN_MAX: u64 = 1 << 30;
/// Fewest segments: one in use, one that a record may begin, one kept for a batch that trims.
pub const SEGMENTS_MIN: u32 = 3;

const HEADER_MAGIC: [u8; 8] = *b"LODELOG\0";
const BATCH_MAGIC: [u8; 8] = *b"LODEBAT\0";
const FLAG_CLEAN: u16 = 1;
/// No count of the log comes near it; what claims to is refused, so that sums cannot overflow.
const COUNT_MAX: u64 = 1 << 62;

const _: () =
    assert!(HEADER_LEN <= 512 && BATCH_HEADER_LEN <= 512, "a header fits one sector, which is whole or absent");
const _: () = assert!(SEGMENT_LEN_MIN.is_multiple_of(BLOCK as u64) && SEGMENT_LEN_MAX <= u32::MAX as u64);

/// The longest record body that a log with segments of `segment_len` bytes can hold.
pub const fn record_len_max(segment_len: u64) -> u64 {
    segment_len - (BATCH_HEADER_LEN + RECORD_PREFIX_LEN) as u64
}

/// What a header slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// The store that the log belongs to.
    pub uuid: [u8; 16],
    /// Bytes of a segment.
    pub segment_len: u64,
    /// Number of segment slots.
    pub segment_count: u32,
    /// Grows with every change of the header; the slot with the greater one wins.
    pub generation: u64,
    /// Grows with every restart.
    pub epoch: u64,
    /// LSN of the epoch's first record.
    pub start_lsn: Lsn,
    /// The epoch's first segment.
    pub start_seq: u64,
    /// In every batch of the epoch; see [`salt`].
    pub salt: u64,
    /// Where the log ends, if it was closed cleanly.
    pub end: Option<CleanEnd>,
}

/// Where a cleanly closed log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanEnd {
    /// Number of batches of the epoch.
    pub batches: u64,
    /// LSN of the last record, `start_lsn - 1` if there is none.
    pub lsn: Lsn,
    /// Segment of the last batch, `start_seq` if there is none.
    pub seq: u64,
}

/// What is wrong with a header slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// Not the mark of a log header.
    NoMagic,
    /// The checksum differs.
    Checksum {
        /// Computed from the bytes.
        got: u32,
        /// Recorded in them.
        expected: u32,
    },
    /// Written by a newer program.
    Newer(u16),
    /// Checksummed, but impossible.
    Impossible,
}

impl LogHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        let end = self.end.unwrap_or(CleanEnd { batches: 0, lsn: 0, seq: 0 });
        put(&mut b, 0, HEADER_MAGIC);
        put(&mut b, 8, VERSION.to_le_bytes());
        put(&mut b, 10, if self.end.is_some() { FLAG_CLEAN } else { 0 }.to_le_bytes());
        put(&mut b, 12, self.segment_count.to_le_bytes());
        put(&mut b, 16, self.uuid);
        put(&mut b, 32, self.segment_len.to_le_bytes());
        put(&mut b, 40, self.generation.to_le_bytes());
        put(&mut b, 48, self.epoch.to_le_bytes());
        put(&mut b, 56, self.start_lsn.to_le_bytes());
        put(&mut b, 64, self.start_seq.to_le_bytes());
        put(&mut b, 72, self.salt.to_le_bytes());
        put(&mut b, 80, end.batches.to_le_bytes());
        put(&mut b, 88, end.lsn.to_le_bytes());
        put(&mut b, 96, end.seq.to_le_bytes());
        let crc = crc32c::crc32c(&b[..104]);
        put(&mut b, 104, crc.to_le_bytes());
        b
    }

    /// Reads a header from the first bytes of `b` (at least [`HEADER_LEN`]).
    pub fn decode(b: &[u8]) -> Result<LogHeader, HeaderFault> {
        if get::<8>(b, 0) != HEADER_MAGIC {
            return Err(HeaderFault::NoMagic);
        }
        let (got, expected) = (crc32c::crc32c(&b[..104]), get_u32(b, 104));
        if got != expected {
            return Err(HeaderFault::Checksum { got, expected });
        }
        let version = get_u16(b, 8);
        if version > VERSION {
            return Err(HeaderFault::Newer(version));
        }
        let flags = get_u16(b, 10);
        let h = LogHeader {
            segment_count: get_u32(b, 12),
            uuid: get(b, 16),
            segment_len: get_u64(b, 32),
            generation: get_u64(b, 40),
            epoch: get_u64(b, 48),
            start_lsn: get_u64(b, 56),
            start_seq: get_u64(b, 64),
            salt: get_u64(b, 72),
            end: (flags & FLAG_CLEAN != 0).then(|| CleanEnd {
                batches: get_u64(b, 80),
                lsn: get_u64(b, 88),
                seq: get_u64(b, 96),
            }),
        };
        let possible = version == VERSION
            && flags & !FLAG_CLEAN == 0
            && shape_fault(h.segment_len, h.segment_count.into()).is_none()
            && h.start_lsn > 0
            && [h.generation, h.epoch, h.start_lsn, h.start_seq].iter().all(|n| *n < COUNT_MAX);
        if possible { Ok(h) } else { Err(HeaderFault::Impossible) }
    }

    /// Byte offset in the file of `offset` in segment `seq`.
    pub fn file_offset(&self, seq: u64, offset: u64) -> u64 {
        SEGMENTS_OFFSET + seq % u64::from(self.segment_count) * self.segment_len + offset
    }
}

/// Says which rule of a log's shape is broken, if any.
pub(crate) fn shape_fault(segment_len: u64, segment_count: u64) -> Option<String> {
    if !(SEGMENT_LEN_MIN..=SEGMENT_LEN_MAX).contains(&segment_len) || !segment_len.is_multiple_of(BLOCK as u64) {
        return Some(format!(
            "segments of {segment_len} bytes (a multiple of {BLOCK} from {SEGMENT_LEN_MIN} to {SEGMENT_LEN_MAX} is needed)"
        ));
    }
    if !(u64::from(SEGMENTS_MIN)..=u64::from(u32::MAX)).contains(&segment_count) {
        return Some(format!("{segment_count} segments of {segment_len} bytes (at least {SEGMENTS_MIN} are needed)"));
    }
    None
}

/// The salt of an epoch: so that batches of another store or another epoch, or bytes that someone
/// made up, do not pass for this epoch's.
pub fn salt(uuid: &[u8; 16], epoch: u64) -> u64 {
    let mut x = get_u64(uuid, 0);
    for word in [get_u64(uuid, 8), epoch] {
        // The finalizer of splitmix64: every bit of the input reaches every bit of the output.
        x = x.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
    }
    x
}

/// What a batch says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the batch in its segment.
    pub offset: u32,
    /// The log's epoch.
    pub epoch: u64,
    /// The epoch's salt.
    pub salt: u64,
    /// The segment's number.
    pub seq: u64,
    /// Consecutive within the epoch, from 1.
    pub ordinal: u64,
    /// LSN of the first record, or the next to be given.
    pub first_lsn: Lsn,
    /// Every record up to here was acknowledged.
    pub acked: Lsn,
    /// Records up to here are never needed again.
    pub trim: Lsn,
    /// The oldest segment still needed.
    pub start_seq: u64,
    /// Number of records.
    pub records: u32,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// Its checksum.
    pub payload_crc: u32,
}

/// What is wrong with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchFault {
    /// Not the mark of a batch.
    NoMagic,
    /// The header's checksum differs: computed, recorded.
    Header(u32, u32),
    /// A whole header, but of another version, epoch, store or place.
    Elsewhere,
    /// The header is right, the payload's checksum differs: computed, recorded.
    Payload(u32, u32),
    /// Both checksums are right, but the records do not add up.
    Records,
    /// Right in itself, but not the one that follows the batch before it: ordinal found, expected.
    Order(u64, u64),
}

impl std::fmt::Display for BatchFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BatchFault::NoMagic => f.write_str("no batch begins here"),
            BatchFault::Header(got, exp) => {
                write!(f, "checksum of the batch header is {got:#010x}, expected {exp:#010x}")
            }
            BatchFault::Elsewhere => f.write_str("the batch here belongs to another place or time"),
            BatchFault::Payload(got, exp) => write!(f, "checksum of the batch is {got:#010x}, expected {exp:#010x}"),
            BatchFault::Records => f.write_str("the records of the batch do not add up to its length"),
            BatchFault::Order(got, exp) => write!(f, "batch {exp} is missing, batch {got} follows"),
        }
    }
}

impl BatchHeader {
    /// Writes the header to the first bytes of `b`.
    pub fn encode(&self, b: &mut [u8]) {
        let b = &mut b[..BATCH_HEADER_LEN];
        put(b, 0, BATCH_MAGIC);
        put(b, 8, VERSION.to_le_bytes());
        put(b, 10, 0u16.to_le_bytes());
        put(b, 12, self.offset.to_le_bytes());
        put(b, 16, self.epoch.to_le_bytes());
        put(b, 24, self.salt.to_le_bytes());
        put(b, 32, self.seq.to_le_bytes());
        put(b, 40, self.ordinal.to_le_bytes());
        put(b, 48, self.first_lsn.to_le_bytes());
        put(b, 56, self.acked.to_le_bytes());
        put(b, 64, self.trim.to_le_bytes());
        put(b, 72, self.start_seq.to_le_bytes());
        put(b, 80, self.records.to_le_bytes());
        put(b, 84, self.payload_len.to_le_bytes());
        put(b, 88, self.payload_crc.to_le_bytes());
        let crc = crc32c::crc32c(&b[..92]);
        put(b, 92, crc.to_le_bytes());
    }

    /// Reads a header from the first bytes of `b` (at least [`BATCH_HEADER_LEN`]). Whether it
    /// belongs where it was found is for the caller to compare.
    pub fn decode(b: &[u8]) -> Result<BatchHeader, BatchFault> {
        if get::<8>(b, 0) != BATCH_MAGIC {
            return Err(BatchFault::NoMagic);
        }
        let (got, expected) = (crc32c::crc32c(&b[..92]), get_u32(b, 92));
        if got != expected {
            return Err(BatchFault::Header(got, expected));
        }
        if get_u16(b, 8) != VERSION || get_u16(b, 10) != 0 {
            return Err(BatchFault::Elsewhere);
        }
        let h = BatchHeader {
            offset: get_u32(b, 12),
            epoch: get_u64(b, 16),
            salt: get_u64(b, 24),
            seq: get_u64(b, 32),
            ordinal: get_u64(b, 40),
            first_lsn: get_u64(b, 48),
            acked: get_u64(b, 56),
            trim: get_u64(b, 64),
            start_seq: get_u64(b, 72),
            records: get_u32(b, 80),
            payload_len: get_u32(b, 84),
            payload_crc: get_u32(b, 88),
        };
        let possible = h.first_lsn > 0 && [h.seq, h.epoch, h.ordinal, h.first_lsn].iter().all(|n| *n < COUNT_MAX);
        if possible { Ok(h) } else { Err(BatchFault::Elsewhere) }
    }

    /// Bytes of the whole batch on disk, padding included.
    pub fn disk_len(&self) -> u64 {
        (BATCH_HEADER_LEN as u64 + u64::from(self.payload_len)).next_multiple_of(BLOCK as u64)
    }

    /// LSN of the record that follows the batch.
    pub fn next_lsn(&self) -> Lsn {
        self.first_lsn + Lsn::from(self.records)
    }
}

/// The length that precedes a record's body.
pub fn record_prefix(body_len: u32) -> [u8; RECORD_PREFIX_LEN] {
    body_len.to_le_bytes()
}

/// Splits the first record off a payload: its body, and what follows. `None` if it overruns.
pub fn split_record(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (prefix, rest) = payload.split_first_chunk::<RECORD_PREFIX_LEN>()?;
    rest.split_at_checked(u32::from_le_bytes(*prefix) as usize)
}

fn put<const N: usize>(b: &mut [u8], at: usize, value: [u8; N]) {
    b[at..at + N].copy_from_slice(&value);
}

fn get<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&b[at..at + N]);
    value
}

fn get_u16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(b, at))
}

fn get_u32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(b, at))
}

fn get_u64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(b, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(b: &[u8]) -> String {
        b.iter().map(|x| format!("{x:02x}")).collect()
    }

    #[test]
    fn a_change_of_the_log_header_must_bump_the_version() {
        let h = LogHeader {
            uuid: *b"0123456789abcdef",
            segment_len: 16 << 20,
            segment_count: 64,
            generation: 7,
            epoch: 5,
            start_lsn: 1001,
            start_seq: 77,
            salt: salt(b"0123456789abcdef", 5),
            end: Some(CleanEnd { batches: 9, lsn: 1033, seq: 79 }),
        };
        let bytes = h.encode();
        assert_eq!(hex(&bytes), GOLDEN_HEADER);
        assert_eq!(LogHeader::decode(&bytes), Ok(h));
    }

    #[test]
    fn a_change_of_the_batch_header_must_bump_the_version() {
        let h = BatchHeader {
            offset: 8192,
            epoch: 5,
            salt: salt(b"0123456789abcdef", 5),
            seq: 78,
            ordinal: 3,
            first_lsn: 1010,
            acked: 1009,
            trim: 1004,
            start_seq: 77,
            records: 2,
            payload_len: 11,
            payload_crc: crc32c::crc32c(b"\x03\0\0\0abc\0\0\0\0"),
        };
        let mut bytes = [0; BATCH_HEADER_LEN];
        h.encode(&mut bytes);
        assert_eq!(hex(&bytes), GOLDEN_BATCH);
        assert_eq!(BatchHeader::decode(&bytes), Ok(h));
    }

    #[test]
    fn a_flipped_bit_anywhere_in_a_header_is_seen() {
        let mut b = [0; BATCH_HEADER_LEN];
        let h = BatchHeader {
            offset: 0,
            epoch: 1,
            salt: 2,
            seq: 3,
            ordinal: 4,
            first_lsn: 5,
            acked: 4,
            trim: 0,
            start_seq: 3,
            records: 0,
            payload_len: 0,
            payload_crc: 0,
        };
        h.encode(&mut b);
        for bit in 0..BATCH_HEADER_LEN * 8 {
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(BatchHeader::decode(&b).is_err(), "bit {bit}");
            b[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_record_that_overruns_its_payload_is_no_record() {
        assert_eq!(split_record(b"\x02\0\0\0ab\x01"), Some((&b"ab"[..], &b"\x01"[..])));
        assert_eq!(split_record(b"\x03\0\0\0ab"), None);
        assert_eq!(split_record(b"\xff\xff\xff\xffab"), None);
        assert_eq!(split_record(b"\0\0\0"), None);
    }

    const GOLDEN_HEADER: &str = concat!(
        "4c4f44454c4f47000100010040000000303132333435363738396162636465660000000100000000",
        "07000000000000000500000000000000e9030000000000004d00000000000000ed49fb80781836b6",
        "090000000000000009040000000000004f00000000000000eb0c129b",
    );
    const GOLDEN_BATCH: &str = concat!(
        "4c4f44454241540001000000002000000500000000000000ed49fb80781836b64e00000000000000",
        "0300000000000000f203000000000000f103000000000000ec030000000000004d00000000000000",
        "020000000b000000edf2f60d4f6d1584",
    );
}
