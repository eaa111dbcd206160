//! Telling somebody of every write of data and log as it completes.

use std::fmt;
use std::sync::Arc;

pub use lodestore_aio::{WriteSink, Written};

use crate::engine::kind;

/// A [`WriteSink`] as a part of [`crate::MountOptions`]. Without one nothing is recorded, and the
/// write path has no branch for it.
#[derive(Clone)]
pub struct WriteTrace(pub Arc<dyn WriteSink>);

impl fmt::Debug for WriteTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteTrace")
    }
}

/// What a traced write was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// A batch of log records.
    Log,
    /// Object data, to newly allocated blocks.
    Direct,
    /// Object data, deferred and now in place.
    Deferred,
    /// Zeros, ahead of need.
    Prewrite,
}

impl WriteKind {
    /// By the token of the write; `None` for writes of recovery, which replays into data files and
    /// restarts the log.
    pub fn of(token: u64) -> Option<WriteKind> {
        match token >> kind::SHIFT {
            kind::LOG => Some(WriteKind::Log),
            kind::DATA => Some(WriteKind::Direct),
            kind::APPLY => Some(WriteKind::Deferred),
            kind::PREWRITE => Some(WriteKind::Prewrite),
            _ => None,
        }
    }
}
