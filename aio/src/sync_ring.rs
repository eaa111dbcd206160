//! The ring for small systems: `submit` does everything itself.

use std::collections::VecDeque;

use crate::files::FileSet;
use crate::flusher::Flusher;
use crate::posix;
use crate::seam::{Done, FileId, Io, IoError, IoOp, Ring, Wait};

/// Carries out requests in the order they were pushed, by the thread that submits. Its completions
/// never need waiting for, so it has no eventfd.
pub(crate) struct SyncRing {
    files: FileSet,
    flusher: Flusher,
    depth: usize,
    queue: VecDeque<Io>,
    ready: Vec<Done>,
}

impl SyncRing {
    pub(crate) fn new(files: FileSet, depth: usize) -> Self {
        let flusher = Flusher::new(files.clone());
        SyncRing { files, flusher, depth, queue: VecDeque::with_capacity(depth), ready: Vec::with_capacity(depth) }
    }
}

impl Ring for SyncRing {
    fn capacity(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.queue.len() + self.ready.len()
    }

    fn push(&mut self, io: Io) -> Result<(), Io> {
        let free = self.depth - self.in_flight();
        self.files.enqueue(io, &mut self.queue, free)
    }

    fn submit(&mut self) -> Result<(), IoError> {
        while let Some(Io { token, op }) = self.queue.pop_front() {
            let (buf, result) = match op {
                IoOp::Read { file, offset, mut buf } => {
                    let result = posix::read(&self.files, file, offset, &mut buf);
                    (Some(buf), result)
                }
                IoOp::Write { file, offset, data, dsync } => {
                    (None, posix::write(&self.files, file, offset, &data, dsync))
                }
                IoOp::Sync { files } => (None, self.flusher.flush(files)),
            };
            self.ready.push(Done { token, buf, result });
        }
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        if let Wait::For(n) = wait
            && n > self.ready.len()
        {
            self.submit()?;
        }
        done.append(&mut self.ready);
        Ok(())
    }

    fn file_name(&self, file: FileId) -> String {
        self.files.name(file)
    }
}
