//! The allocator's state as a clean unmount leaves it, so that mounting need not walk every extent
//! map. Believed only if the log says that it was closed at the very LSN the snapshot names.

use bincode::{BorrowDecode, Encode};

use super::{codec, damaged};
use crate::error::Error;

const VERSION: u8 = 1;
/// Runs in one part: keeps every value of a snapshot below a few hundred KiB.
pub const PART_RUNS: usize = 16_384;

/// The head of a snapshot, part 0; parts 1.. hold the runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, BorrowDecode)]
pub struct Head {
    /// The last LSN applied before it was taken.
    pub lsn: u64,
    /// Parts that follow.
    pub parts: u32,
    /// Objects in the store.
    pub objects: u64,
    /// Blocks mapped by objects, shared ones counted for each.
    pub stored: u64,
    /// Blocks in use.
    pub used: u64,
}

impl Head {
    /// Version byte, then the fields.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        codec::encode(self, &mut out);
        out
    }

    /// Reverses [`Head::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        codec::decode("allocator snapshot", body(bytes)?)
    }
}

/// Runs of used blocks as `(gap since the last run, length)`.
pub fn encode_runs(runs: &[(u64, u64)]) -> Vec<u8> {
    let mut out = vec![VERSION];
    codec::encode(&runs, &mut out);
    out
}

/// Reverses [`encode_runs`].
pub fn decode_runs(bytes: &[u8]) -> Result<Vec<(u64, u64)>, Error> {
    codec::decode("allocator snapshot", body(bytes)?)
}

fn body(bytes: &[u8]) -> Result<&[u8], Error> {
    match bytes {
        [VERSION, rest @ ..] => Ok(rest),
        _ => Err(damaged("allocator snapshot", "version is not known here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_snapshot() {
        let head = Head { lsn: 300, parts: 1, objects: 2, stored: 3, used: 4 };
        assert_eq!(head.encode(), [1, 0xfb, 0x2c, 0x01, 1, 2, 3, 4]);
        assert_eq!(Head::decode(&head.encode()).unwrap(), head);
        let runs = vec![(0, 5), (300, 1)];
        assert_eq!(encode_runs(&runs), [1, 2, 0, 5, 0xfb, 0x2c, 0x01, 1]);
        assert_eq!(decode_runs(&encode_runs(&runs)).unwrap(), runs);
        assert!(Head::decode(&[2, 0, 0, 0, 0, 0]).is_err() && decode_runs(&[]).is_err());
    }
}
