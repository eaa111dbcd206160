//! The write-ahead log: a ring of preallocated, zero-written, recycled segments in one file or
//! block device.
//!
//! The log knows bytes, not objects. A *record* is an opaque body with a log sequence number
//! ([`Lsn`]); a *batch* is a header, the records that were ready together, and zeros up to 4 KiB;
//! batches fill *segments*, and a segment is used again once every record in it is trimmed. Every
//! byte is laid out in [`mod@format`].
//!
//! # Life of a log
//! ```text
//! format()                       zeros, both header slots
//!   Reader::open()               find the log's ends, check every batch between them
//!   Reader::next() ...           the records, in order; the caller applies them *durably* elsewhere
//!   Reader::restart()            a new epoch: nothing older is ever believed again
//!     Writer::append() ...       records into the open batch
//!     Writer::seal()             the batch; the caller writes and syncs it
//!     Writer::durable()          the caller says so; then the next batch may be sealed
//!     Writer::trim()             old records are needed no more
//!   Writer::close()              marks the end, so that damage to the last batch is seen as well
//! ```
//!
//! # Why a torn tail and damage can be told apart
//! Exactly one batch is in flight at a time, and every batch carries an ordinal. Whatever is behind
//! an invalid batch can only have been written after that batch was durable: a valid header there
//! proves damage, and the mount is refused. An invalid batch with nothing behind it was never
//! acknowledged: it is cut, by beginning a new epoch.
#![forbid(unsafe_code)]

mod create;
mod error;
pub mod format;
mod pool;
mod reader;
mod segment;
mod slots;
mod writer;

pub use create::{LogGeometry, SEGMENT_LEN_DEFAULT, format};
pub use error::{AppendError, WalError};
pub use format::{SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SEGMENTS_MIN, record_len_max};
pub use reader::{Reader, Record, RecoveryCounters, Tail};
pub use slots::HEADER_CHANGE_BYTES;
pub use writer::{BATCH_LEN_MAX, Batch, Writer, WriterCounters};

/// Position of a record in the log: consecutive within an epoch, never used twice, never 0.
pub type Lsn = u64;
