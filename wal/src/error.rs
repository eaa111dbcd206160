//! What can go wrong, grouped by what the caller must do.

use lodestore_aio::IoError;

/// Why a log could not be formatted, opened, read or restarted. Nothing on disk was changed by
/// opening or reading.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The disk failed. After a failed [`restart`](crate::Reader::restart) or
    /// [`close`](crate::Writer::close) the log must be opened anew.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Neither header slot was ever written by a log.
    #[error(
        "{file} is not a log: neither of the two header slots at offset 0 has its mark; nothing was changed, check where \
         it leads"
    )]
    NotALog {
        /// The file.
        file: String,
    },
    /// A newer program wrote this log.
    #[error(
        "{file} has log format {found}, this program knows formats up to {supported}; nothing was changed, use a newer program"
    )]
    NewerFormat {
        /// The file.
        file: String,
        /// The version found in the header.
        found: u16,
        /// The newest version this program reads.
        supported: u16,
    },
    /// The log belongs to another store.
    #[error("{file} is the log of store {found}, not of {expected}; nothing was changed, check where it leads",
        found = hyphenated(*found),
        expected = hyphenated(*expected))]
    Foreign {
        /// The file.
        file: String,
        /// The store's uuid in the log's header, big-endian.
        found: u128,
        /// The uuid asked for, big-endian.
        expected: u128,
    },
    /// The log is damaged where a crash cannot have damaged it. It is left untouched.
    #[error(
        "{file} is damaged at offset {offset}: {what}. The log is left untouched as evidence. \
         Restore this store from a replica or a backup"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Byte offset in the file of the batch or header that does not hold.
        offset: u64,
        /// What was found there.
        what: String,
    },
    /// Sizes that make no log; nothing was written.
    #[error("a log cannot have this shape: {what}")]
    Geometry {
        /// The rule that is broken.
        what: String,
    },
}

/// A uuid as it is usually written.
fn hyphenated(uuid: u128) -> String {
    let hex = format!("{uuid:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Why a record was not taken. The open batch is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No log of this geometry can ever hold the record.
    #[error("a record of {len} bytes is larger than the log's limit of {max}")]
    TooLarge {
        /// Bytes asked for.
        len: u64,
        /// [`record_len_max`](crate::record_len_max) of the log.
        max: u64,
    },
    /// No segment is free: trim, and make the trim durable with a batch (an empty one always fits).
    #[error("the log is full: records must be trimmed first")]
    Full,
    /// The open batch has reached its bound: seal it, then append again.
    #[error("the open batch is full: it must be sealed first")]
    BatchFull,
}
