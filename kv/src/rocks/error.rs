//! RocksDB's errors, sorted by what the caller must do.

use crate::traits::KvError;
use rocksdb::ErrorKind;

/// An error of a running store.
pub(super) fn failed(what: &'static str, e: rocksdb::Error) -> KvError {
    let kind = e.kind();
    let reason = e.into_string();
    match kind {
        ErrorKind::Corruption => KvError::Damaged { reason },
        _ => KvError::Failed { what, reason },
    }
}

/// An error of opening or creating. RocksDB has codes for few of these; its words tell the rest.
pub(super) fn not_opened(what: &'static str, direct: bool, e: rocksdb::Error) -> KvError {
    let kind = e.kind();
    let reason = e.into_string();
    let says = |words: &str| reason.contains(words);
    if kind == ErrorKind::IOError && (says("lock hold by current process") || says("While lock file")) {
        return KvError::InUse { reason };
    }
    if direct && (says("Direct I/O is not supported") || says("direct IO") || says("O_DIRECT")) {
        return KvError::Failed {
            what,
            reason: format!(
                "the file system refuses O_DIRECT ({reason}); choose another file system for the \
                 key-value store, or set direct_reads and direct_flush to false"
            ),
        };
    }
    if says("error_if_exists is true") {
        return KvError::Missing { reason: format!("a store is already there ({reason})") };
    }
    // The folder was seen to hold a store before it was opened, so whatever is absent or cannot be
    // read or named is damage. Out of space, too many open files and the like stay `Failed`.
    let absent = kind == ErrorKind::IOError && says("No such file or directory");
    if absent || matches!(kind, ErrorKind::Corruption | ErrorKind::InvalidArgument | ErrorKind::NotFound) {
        return KvError::Damaged { reason };
    }
    KvError::Failed { what, reason }
}
