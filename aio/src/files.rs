//! The files a ring serves.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::legal::assert_legal;
use crate::open_file::{Flush, OpenFile};
use crate::seam::{FileId, Io, IoError, IoOp};

/// The open files of one disk, kept open for as long as a ring needs them.
#[derive(Clone)]
pub(crate) struct FileSet {
    files: Arc<[Arc<OpenFile>]>,
    syncs: Arc<AtomicU64>,
}

/// The files in a mask, lowest first.
pub(crate) fn in_mask(mask: u64) -> impl Iterator<Item = FileId> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let bit = (rest != 0).then(|| rest.trailing_zeros() as u8)?;
        rest &= rest - 1;
        Some(FileId(bit))
    })
}

impl FileSet {
    pub(crate) fn new(files: Arc<[Arc<OpenFile>]>, syncs: Arc<AtomicU64>) -> Self {
        FileSet { files, syncs }
    }

    pub(crate) fn get(&self, file: FileId) -> &OpenFile {
        &self.files[usize::from(file.0)]
    }

    pub(crate) fn name(&self, file: FileId) -> String {
        self.get(file).name().to_owned()
    }

    /// [`Ring::push`](crate::Ring::push) of a ring that keeps requests in a queue until they are
    /// submitted, with room for `free` more.
    pub(crate) fn enqueue(&self, io: Io, queue: &mut VecDeque<Io>, free: usize) -> Result<(), Io> {
        self.assert_legal(&io.op);
        if free == 0 {
            return Err(io);
        }
        queue.push_back(io);
        Ok(())
    }

    pub(crate) fn assert_legal(&self, op: &IoOp) {
        assert_legal(op, self.files.len());
    }

    /// Which files of `mask` a sync has to call fdatasync for: each whose flush covers nothing but
    /// itself or whose metadata wait for it, and one of each device that would be left out. Why
    /// that is enough stands at [`Flush`].
    pub(crate) fn sync_targets(&self, mask: u64) -> u64 {
        let device = |f: FileId| self.get(f).flush();
        let mut targets = 0;
        for f in in_mask(mask) {
            if device(f) == Flush::Own || self.get(f).needs_own_sync() {
                targets |= f.mask();
            }
        }
        for f in in_mask(mask) {
            if !in_mask(targets).any(|t| device(t) == device(f)) {
                targets |= f.mask();
            }
        }
        targets
    }

    /// Counts an fdatasync (or an aio one) that is about to be made.
    pub(crate) fn count_sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// Syncs one file by `call`.
    pub(crate) fn sync(&self, file: FileId, call: &SyncCall) -> Result<(), IoError> {
        let f = self.get(file);
        let mark = f.sync_mark();
        self.count_sync();
        call(f.fd()).map_err(|errno| self.sync_error(file, errno))?;
        f.sync_done(mark);
        Ok(())
    }

    pub(crate) fn sync_error(&self, file: FileId, errno: i32) -> IoError {
        IoError { what: "sync", file: self.name(file), offset: 0, len: 0, errno }
    }

    pub(crate) fn transfer_error(
        &self,
        what: &'static str,
        file: FileId,
        offset: u64,
        len: usize,
        errno: i32,
    ) -> IoError {
        IoError { what, file: self.name(file), offset, len: len as u64, errno }
    }
}

/// The system's fdatasync or a test's.
pub(crate) type SyncCall = Arc<dyn Fn(RawFd) -> Result<(), i32> + Send + Sync>;

/// fdatasync(2). Interrupted calls are repeated a few times, no other error is: after a failed
/// sync the kernel may believe that the lost bytes are clean.
pub(crate) fn fdatasync(fd: RawFd) -> Result<(), i32> {
    const TRIES_MAX: usize = 16;
    let mut errno = libc::EINTR;
    for _ in 0..TRIES_MAX {
        // SAFETY: takes no pointer; a stale descriptor is an error.
        if unsafe { libc::fdatasync(fd) } == 0 {
            return Ok(());
        }
        errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        if errno != libc::EINTR {
            break;
        }
    }
    Err(errno)
}
