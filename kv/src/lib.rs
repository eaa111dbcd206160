//! The key-value seam of lodestore: a small trait, RocksDB and an in-memory store behind it.
//!
//! - [`Kv`]: five ordered column families, atomic batches that carry an LSN, an explicit flush.
//! - [`RocksKv`]: RocksDB with its own log off; each family keeps the LSN it has reached.
//! - [`MemKv`]: the same contract in memory, with a model of what RocksDB may lose in a crash.
#![forbid(unsafe_code)]

mod format;
mod mem;
mod rocks;
pub mod traits;

pub use mem::{HISTORY_MAX, KvImage, MemKv, Snapshot};
pub use rocks::{
    Compaction, Compression, FileEvent, FileSink, FileTrace, RANGE_DELETE_SINGLES_MAX, RANGE_DELETE_SKIPS_MAX,
    RocksConfig, RocksKv,
};
pub use traits::*;
