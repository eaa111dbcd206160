//! What can go wrong, grouped by what the caller must do about it.

use std::sync::Arc;

use lodestore_aio::IoError;
use lodestore_kv::KvError;
use lodestore_wal::WalError;

use crate::types::{CollectionId, ObjectId};

/// A refused transaction or a failed read. Cheap to clone: a poisoned store hands the same reason
/// to everybody.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// ENOENT: no such collection.
    #[error("no collection {0}")]
    NoCollection(CollectionId),
    /// EEXIST: the collection is there, or overlaps one that is.
    #[error("collection {0} exists or overlaps one that exists")]
    CollectionExists(CollectionId),
    /// ENOTEMPTY.
    #[error("collection {0} is not empty")]
    NotEmpty(CollectionId),
    /// ENOENT: no such object.
    #[error("no object {1} in collection {0}")]
    NoObject(CollectionId, ObjectId),
    /// EEXIST.
    #[error("object {1} exists in collection {0}")]
    ObjectExists(CollectionId, ObjectId),
    /// ENODATA: the object is there, the attribute is not.
    #[error("object {0} has no attribute {name}", name = .1.escape_ascii())]
    NoAttr(ObjectId, Vec<u8>),
    /// EINVAL: the request can never succeed.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// E2BIG: the metadata and deferred contents of one transaction do not fit into one segment of
    /// the log. Cloning an object carries its whole omap.
    #[error(
        "the transaction needs a log record of {got} bytes, at most {max} fit into a segment of this store's log; \
         nothing was changed. Split the transaction (a clone carries the object's whole omap and cannot be split), \
         or use a store made with a larger log: mkfs --log-size, of which a segment is an eighth, up to 64 MiB"
    )]
    RecordTooLarge {
        /// Bytes of the record.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// E2BIG: a limit of the store.
    #[error("{what} is {got}, at most {max} is possible")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// ENOSPC: nothing was changed; remove something and try again.
    #[error("no space: {needed} bytes needed, {available} available")]
    NoSpace {
        /// Bytes of new blocks the transaction needs.
        needed: u64,
        /// Bytes that could be allocated.
        available: u64,
    },
    /// EIO: stored bytes do not match their checksum. Other objects stay readable.
    #[error(
        "object {oid} is damaged: block at byte {offset} (stored at {place}) has checksum {got:08x}, expected {expected:08x}; run fsck --deep"
    )]
    Damaged {
        /// The object.
        oid: Box<ObjectId>,
        /// Offset of the block in the object.
        offset: u64,
        /// File and offset of the block.
        place: String,
        /// Checksum of what was read.
        got: u32,
        /// Checksum when it was written.
        expected: u32,
    },
    /// EIO: the medium refused a read.
    #[error("object {oid}: {error}")]
    ReadFailed {
        /// The object.
        oid: Box<ObjectId>,
        /// The medium's words.
        error: IoError,
    },
    /// EAGAIN: too much is submitted and not answered; wait for some of it.
    #[error("{bytes} bytes are submitted and not answered, at most {max} are possible: wait for some of them")]
    Busy {
        /// Bytes under way, this request included.
        bytes: u64,
        /// The bound.
        max: u64,
    },
    /// EROFS: an earlier failure made the store read-only; remount after the cause is gone.
    #[error("store is read-only since: {0}")]
    Poisoned(Arc<str>),
    /// The store was unmounted.
    #[error("store is not mounted")]
    Unmounted,
    /// EIO: metadata that cannot be decoded.
    #[error("metadata is damaged: {0}; run fsck")]
    Metadata(String),
    /// Storage failed outside a read of data.
    #[error("{0}")]
    Io(#[from] IoError),
    /// The key-value store failed.
    #[error("{0}")]
    Kv(#[from] KvError),
    /// The log failed or is damaged.
    #[error("{0}")]
    Wal(#[from] Arc<WalError>),
    /// Not a store, one of a newer format, one in use, or one with a part that is missing or
    /// another store's. Nothing was changed.
    #[error("{0}")]
    Mount(String),
    /// EIO: a store whose parts are not what was written: a superblock that does not sum up, a
    /// file that was shortened, parts of different moments. Nothing was changed.
    #[error("{0}")]
    MountDamaged(String),
}

impl Error {
    /// Whether stored bytes are not what was written there, rather than absent, in use or refused
    /// by the system: then only a copy helps, and the program ends with its exit code for damage.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Metadata(_) | Error::Damaged { .. } | Error::MountDamaged(_) => true,
            Error::Wal(w) => matches!(**w, WalError::Damaged { .. }),
            Error::Kv(k) => matches!(k, KvError::Damaged { .. }),
            _ => false,
        }
    }

    /// The errno a POSIX caller would be given.
    pub fn errno(&self) -> i32 {
        match self {
            Error::NoCollection(_) | Error::NoObject(..) => libc::ENOENT,
            Error::CollectionExists(_) | Error::ObjectExists(..) => libc::EEXIST,
            Error::NotEmpty(_) => libc::ENOTEMPTY,
            Error::NoAttr(..) => libc::ENODATA,
            Error::Invalid(_) => libc::EINVAL,
            Error::TooLarge { .. } | Error::RecordTooLarge { .. } => libc::E2BIG,
            Error::NoSpace { .. } => libc::ENOSPC,
            Error::Busy { .. } => libc::EAGAIN,
            Error::Poisoned(_) => libc::EROFS,
            Error::Unmounted => libc::ESHUTDOWN,
            Error::Damaged { .. }
            | Error::ReadFailed { .. }
            | Error::Metadata(_)
            | Error::Kv(_)
            | Error::Wal(_)
            | Error::MountDamaged(_) => libc::EIO,
            Error::Io(e) => e.errno,
            Error::Mount(_) => libc::EINVAL,
        }
    }
}

impl From<WalError> for Error {
    fn from(e: WalError) -> Self {
        Error::Wal(Arc::new(e))
    }
}
