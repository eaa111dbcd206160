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
