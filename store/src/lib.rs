//! lodestore: a transactional object store in user space.
//!
//! Objects have data, attributes and an omap. Metadata lives in a key-value store, every change
//! goes through a write-ahead log, data lives in fragment files written by direct I/O. See
//! `ARCHITECTURE.md` for how the parts fit, and [`Store`] for how to use it.
#![forbid(unsafe_code)]

pub mod alloc;
pub mod bugs;
mod config;
mod datacache;
mod deferred;
mod engine;
mod error;
pub mod format;
mod ledger;
mod meta;
mod plan;
mod read;
mod store;
mod trace;
mod txn;
mod types;

pub use config::{EngineConfig, Layout, Policy};
pub use engine::{Engine, Event, FsckError, FsckReport, Job, JobDone, LOG_FILE, LOOKUP_THREADS, data_file};
pub use error::Error;
pub use ledger::{ByOp, Counters, LEDGER, Ledger, OP_KINDS, OpBytes, OpKind};
pub use read::{Answer, OmapRange, Read};
pub use store::{Commit, MkfsOptions, MkfsReport, MountGuard, MountOptions, Reply, Stats, Store, mount_engine};
pub use trace::{WriteKind, WriteSink, WriteTrace, Written};
pub use txn::{Op, Transaction};
pub use types::*;
