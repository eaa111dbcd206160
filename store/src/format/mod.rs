//! Bytes on the medium. Nothing outside this module packs or unpacks them; `docs/format.md` shows
//! every one.

pub mod chunk;
pub mod codec;
pub mod key;
pub mod label;
pub mod onode;
pub mod record;
pub mod shared;
pub mod small;
pub mod snapshot;
pub mod superblock;

use crate::error::Error;

/// Bytes in a block, as the store's formats count them.
pub const BLOCK_LEN: u64 = lodestore_aio::BLOCK as u64;

/// Metadata that does not decode: says which kind of value, and why.
pub(crate) fn damaged(what: &str, why: impl std::fmt::Display) -> Error {
    Error::Metadata(format!("{what}: {why}"))
}
