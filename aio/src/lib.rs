//! The storage seam of lodestore and its four implementations.
//!
//! [`FileDisk`] is real files with one of three rings: libaio ([`Engine::Libaio`]), a pool of
//! threads ([`Engine::Threads`]) and plain blocking calls ([`Engine::Sync`]). [`sim::SimDisk`] is a
//! simulated disk for tests: volatile cache, reordering, tearing, faults, and the enumeration of
//! everything a power failure may leave. All four pass the same contract tests.

pub mod buf;
pub mod engine;
pub mod event;
mod fiemap;
pub mod file_disk;
mod files;
mod flusher;
mod legal;
mod libaio;
mod open_file;
mod posix;
mod ranges;
pub mod seam;
pub mod sim;
mod sync_ring;
mod threads;
pub mod trace;
mod transfer;
mod zero;

pub use buf::{AlignedBuf, aligned, is_aligned};
pub use engine::{Engine, ParseError, SyncMode, THREADS_MAX};
pub use event::EventFd;
pub use file_disk::{FileDisk, FileDiskOptions};
pub use seam::{BLOCK, DEPTH_MAX, Disk, Done, FILES_MAX, FileId, Io, IoError, IoOp, OPEN_DIRECT, Ring, Wait, run};
pub use sim::SimDisk;
pub use trace::{TraceDisk, WriteSink, Written};
pub use zero::zero;
