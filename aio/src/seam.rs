//! The storage seam: what the engine asks of a disk, and nothing more.
//!
//! A [`Disk`] makes and opens files and hands out a [`Ring`]; a ring moves bytes. The engine sees
//! only these two traits, so the same engine runs on libaio, on a pool of threads, on plain
//! synchronous calls and on the simulated disk that crash tests enumerate.

use std::fmt;
use std::os::fd::RawFd;

use bytes::Bytes;

use crate::buf::AlignedBuf;
use crate::event::EventFd;

/// Bytes in a block: the unit of allocation, of checksums and of direct I/O, on every medium.
pub const BLOCK: usize = 4096;

/// Most files one ring can serve; a set of files is a 64-bit mask.
pub const FILES_MAX: usize = 64;

/// Most requests one ring can be asked to hold.
pub const DEPTH_MAX: usize = 16384;

/// [`IoError::what`] of an open that failed because the file system has no O_DIRECT.
pub const OPEN_DIRECT: &str = "opening with O_DIRECT";

/// A file of one [`Disk`], small and dense so that sets of files are bit masks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u8);

impl FileId {
    /// The set that holds only this file.
    pub fn mask(self) -> u64 {
        1 << self.0
    }
}

/// One request to a ring.
#[derive(Debug)]
pub struct Io {
    /// Returned with the completion; the ring gives it no meaning.
    pub token: u64,
    /// What to do.
    pub op: IoOp,
}

/// What a ring can be asked to do.
///
/// The ring owns every buffer from `push` until its [`Done`]; offsets, lengths and the addresses
/// of buffers are multiples of [`BLOCK`].
#[derive(Debug)]
pub enum IoOp {
    /// Fill `buf` (its whole length) from `offset`.
    Read {
        /// The file to read.
        file: FileId,
        /// Byte offset in the file.
        offset: u64,
        /// Where the bytes go; comes back in [`Done::buf`].
        buf: AlignedBuf,
    },
    /// Write `data` at `offset`. Durable only after a later `Sync`, unless `dsync` is set.
    Write {
        /// The file to write.
        file: FileId,
        /// Byte offset in the file.
        offset: u64,
        /// What to write.
        data: Bytes,
        /// Complete only when this write itself is durable.
        dsync: bool,
    },
    /// Make every write to `files` that *completed before this was pushed* durable.
    Sync {
        /// A mask of [`FileId::mask`].
        files: u64,
    },
}

/// One completion. A transfer is complete or an error: short results are resumed inside the ring.
#[derive(Debug)]
pub struct Done {
    /// The token of the request.
    pub token: u64,
    /// The buffer of a read, whether it failed or not.
    pub buf: Option<AlignedBuf>,
    /// What became of it.
    pub result: Result<(), IoError>,
}

/// A failed request: the operation, where it was aimed, and the system's reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoError {
    /// `"read"`, `"write"`, `"sync"`, `"submit"`, …
    pub what: &'static str,
    /// The file's name as the disk knows it; of real files the path.
    pub file: String,
    /// Byte offset, 0 for a sync.
    pub offset: u64,
    /// Length in bytes, 0 for a sync.
    pub len: u64,
    /// The errno (`libc::EIO`, …).
    pub errno: i32,
}

impl IoError {
    /// Whether the medium is full (ENOSPC or EDQUOT).
    pub fn is_full(&self) -> bool {
        self.errno == libc::ENOSPC || self.errno == libc::EDQUOT
    }

    /// Whether a file could not be opened because its file system has no O_DIRECT (EINVAL at
    /// open); with `direct: false` and the thread engine it can.
    pub fn is_direct_refused(&self) -> bool {
        self.what == OPEN_DIRECT && self.errno == libc::EINVAL
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = std::io::Error::from_raw_os_error(self.errno);
        write!(f, "{} of {}", self.what, self.file)?;
        if self.len > 0 {
            write!(f, " ({} bytes at offset {})", self.len, self.offset)?;
        }
        write!(f, ": {reason}")
    }
}

impl std::error::Error for IoError {}

/// How long [`Ring::reap`] may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Return at once with whatever is complete.
    No,
    /// Wait until at least this many requests are complete (or none is in flight any more).
    /// What is queued but not submitted is submitted, if it takes that to reach the number.
    For(usize),
}

/// A queue of requests to the files of one disk. Used by one thread at a time.
pub trait Ring: Send {
    /// Most requests that may be pushed and not yet reaped.
    fn capacity(&self) -> usize;

    /// Requests pushed and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Queues a request; hands it back if the ring is full. Nothing is promised to start before
    /// [`Ring::submit`].
    fn push(&mut self, io: Io) -> Result<(), Io>;

    /// Starts everything queued. Errors of single requests come back as their completions; an
    /// error here means that the ring itself is unusable.
    fn submit(&mut self) -> Result<(), IoError>;

    /// Moves completions to `done`.
    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError>;

    /// A descriptor that becomes readable when completions can be reaped, and that others may
    /// signal (an eventfd) to wake its waiter. `None` where completions never need waiting for.
    fn event_fd(&self) -> Option<RawFd> {
        self.waker().map(|w| w.raw())
    }

    /// [`Ring::event_fd`] as a handle that stays valid after the ring is gone and can be
    /// signalled, waited for and drained. `None` where that is `None`. Reaping does not drain it:
    /// whoever waits does, *before* reaping.
    fn waker(&self) -> Option<EventFd> {
        None
    }

    /// Times a request was handed to another thread, or back from one. Most rings hand over nothing.
    fn handoffs(&self) -> u64 {
        0
    }

    /// Name of a file, for messages.
    fn file_name(&self, file: FileId) -> String;
}

/// A place that holds files.
pub trait Disk: Send {
    /// Makes `name` with `len` bytes of space reserved (not yet written), durably in its directory.
    fn create(&mut self, name: &str, len: u64) -> Result<FileId, IoError>;

    /// Opens an existing file or block device; one that is open already keeps its id.
    fn open(&mut self, name: &str) -> Result<FileId, IoError>;

    /// Length in bytes of an open file or block device.
    fn len(&self, file: FileId) -> u64;

    /// A ring over every file open now; at most `depth` requests in flight.
    fn ring(&self, depth: usize) -> Result<Box<dyn Ring>, IoError>;
}

/// Pushes one request, waits for it alone and returns its buffer. For mkfs, recovery and fsck,
/// where nothing else is in flight.
pub fn run(ring: &mut dyn Ring, op: IoOp) -> Result<Option<AlignedBuf>, IoError> {
    assert_eq!(ring.in_flight(), 0, "run() needs an idle ring");
    let mut done = Vec::with_capacity(1);
    assert!(ring.push(Io { token: 0, op }).is_ok(), "an idle ring takes a request");
    ring.submit()?;
    while done.is_empty() {
        ring.reap(Wait::For(1), &mut done)?;
    }
    let d = done.remove(0);
    d.result.map(|()| d.buf)
}
