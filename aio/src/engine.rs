//! Which ring moves the bytes, and how it flushes.

use std::fmt;
use std::str::FromStr;

/// Most threads of [`Engine::Threads`].
pub const THREADS_MAX: usize = 1024;

/// The kinds of ring over real files. Written `libaio`, `threads:8` and `sync`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Engine {
    /// The kernel's asynchronous I/O; for files opened with O_DIRECT.
    #[default]
    Libaio,
    /// A pool of this many threads (1 to [`THREADS_MAX`]) with blocking calls.
    Threads(usize),
    /// Blocking calls by the thread that submits; for small systems.
    Sync,
}

/// How [`Engine::Libaio`] carries out a sync. Written `blocking`, `aio` and `thread`.
///
/// On a busy machine asynchronous flushes complete through kernel workers that are scheduled a
/// tick later, which costs far more than the flush; hence the default.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SyncMode {
    /// `fdatasync` by the submitting thread, inside `submit`, where the sync stands in the queue.
    #[default]
    Blocking,
    /// `IOCB_CMD_FDSYNC`; for devices whose flush takes milliseconds.
    Aio,
    /// `fdatasync` by one helper thread.
    Thread,
}

/// A word that is not an [`Engine`] or [`SyncMode`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{word:?} is not one of {expected}")]
pub struct ParseError {
    /// What was given.
    pub word: String,
    /// What would have been right.
    pub expected: &'static str,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Engine::Libaio => f.write_str("libaio"),
            Engine::Threads(n) => write!(f, "threads:{n}"),
            Engine::Sync => f.write_str("sync"),
        }
    }
}

impl FromStr for Engine {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let threads = |n: &str| n.parse().ok().filter(|n| (1..=THREADS_MAX).contains(n)).map(Engine::Threads);
        let parsed = match s {
            "libaio" => Some(Engine::Libaio),
            "sync" => Some(Engine::Sync),
            _ => s.strip_prefix("threads:").and_then(threads),
        };
        parsed.ok_or_else(|| ParseError { word: s.into(), expected: "libaio, sync, threads:N with N from 1 to 1024" })
    }
}

impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncMode::Blocking => "blocking",
            SyncMode::Aio => "aio",
            SyncMode::Thread => "thread",
        })
    }
}

impl FromStr for SyncMode {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        match s {
            "blocking" => Ok(SyncMode::Blocking),
            "aio" => Ok(SyncMode::Aio),
            "thread" => Ok(SyncMode::Thread),
            _ => Err(ParseError { word: s.into(), expected: "blocking, aio, thread" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_and_sync_modes_read_back_what_they_print() {
        for e in [Engine::Libaio, Engine::Threads(1), Engine::Threads(8), Engine::Sync] {
            assert_eq!(e.to_string().parse(), Ok(e));
        }
        for m in [SyncMode::Blocking, SyncMode::Aio, SyncMode::Thread] {
            assert_eq!(m.to_string().parse(), Ok(m));
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        for s in ["", "uring", "threads", "threads:", "threads:0", "threads:1025", "threads:x"] {
            assert!(s.parse::<Engine>().unwrap_err().to_string().contains("threads:N"), "{s}");
        }
        assert!("never".parse::<SyncMode>().is_err());
    }
}
