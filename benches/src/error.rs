//! What can end a benchmark early.

use lodestore::Error;

use crate::verify::Mismatch;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Options that contradict each other; nothing was done.
    #[error("{0}")]
    Usage(String),
    /// The store is too small; nothing was changed. Bytes.
    #[error("no space: {needed} bytes are needed, {spare} of them for overwrites in flight; the store has {available}")]
    NoRoom {
        /// For objects and overwrites in flight.
        needed: u64,
        /// What there is, objects that would be replaced included.
        available: u64,
        /// Of `needed`, for overwrites in flight.
        spare: u64,
        /// Objects of this size that fit.
        objects_max: u64,
    },
    /// The store refused or failed.
    #[error("{0}")]
    Store(#[from] Error),
    /// What was read is not what was written.
    #[error("{0}")]
    Verify(#[from] Mismatch),
    /// The system refused something outside the store.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The system's reason.
        error: std::io::Error,
    },
    /// Somebody asked to stop ([`Live::stop`](crate::Live::stop)) before there was a result.
    #[error("stopped before there was a result")]
    Stopped,
}

impl BenchError {
    /// A failed read counts as a mismatch where the store itself says that the bytes are wrong.
    pub(crate) fn of_read(e: Error) -> BenchError {
        match e {
            Error::Damaged { .. } => BenchError::Verify(Mismatch::Damaged(e)),
            e => BenchError::Store(e),
        }
    }
}
