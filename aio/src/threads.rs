//! The ring over a pool of threads with blocking calls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};
use threadpool::ThreadPool;

use crate::event::EventFd;
use crate::files::{FileSet, SyncCall, fdatasync, in_mask};
use crate::posix;
use crate::seam::{Done, FileId, Io, IoError, IoOp, Ring, Wait};

/// Hands each request to a thread of the pool. Requests run and complete in any order; a sync
/// covers the writes whose completion was there when it was pushed, because those were finished.
pub(crate) struct ThreadRing {
    files: FileSet,
    pool: ThreadPool,
    sync_call: SyncCall,
    event: EventFd,
    depth: usize,
    queue: VecDeque<Io>,
    started: usize,
    handoffs: u64,
    results: Sender<Done>,
    answers: Receiver<Done>,
}

/// A sync that several threads carry out together; the last one completes it.
struct Parts {
    token: u64,
    left: AtomicUsize,
    error: Mutex<Option<IoError>>,
}

impl ThreadRing {
    pub(crate) fn new(files: FileSet, depth: usize, threads: usize) -> std::io::Result<Self> {
        let (results, answers) = bounded(depth);
        Ok(ThreadRing {
            files,
            pool: ThreadPool::with_name("lodestore-io".into(), threads),
            sync_call: Arc::new(fdatasync),
            event: EventFd::new()?,
            depth,
            queue: VecDeque::with_capacity(depth),
            started: 0,
            handoffs: 0,
            results,
            answers,
        })
    }

    fn start(&mut self, io: Io) {
        self.started += 1;
        // To a thread of the pool and back.
        self.handoffs += 2;
        let (files, reply) = (self.files.clone(), self.reply());
        let token = io.token;
        match io.op {
            IoOp::Read { file, offset, mut buf } => self.pool.execute(move || {
                let result = posix::read(&files, file, offset, &mut buf);
                reply(Done { token, buf: Some(buf), result });
            }),
            IoOp::Write { file, offset, data, dsync } => self.pool.execute(move || {
                let result = posix::write(&files, file, offset, &data, dsync);
                drop(data);
                reply(Done { token, buf: None, result });
            }),
            IoOp::Sync { files } => self.start_sync(token, files),
        }
    }

    fn start_sync(&self, token: u64, mask: u64) {
        let targets = self.files.sync_targets(mask);
        if targets == 0 {
            return self.reply()(Done { token, buf: None, result: Ok(()) });
        }
        let left = AtomicUsize::new(targets.count_ones() as usize);
        let parts = Arc::new(Parts { token, left, error: Mutex::new(None) });
        for file in in_mask(targets) {
            let (files, call, parts, reply) =
                (self.files.clone(), Arc::clone(&self.sync_call), Arc::clone(&parts), self.reply());
            self.pool.execute(move || {
                let result = files.sync(file, &call);
                let mut error = parts.error.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(e) = result {
                    error.get_or_insert(e);
                }
                if parts.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    let result = error.take().map_or(Ok(()), Err);
                    reply(Done { token: parts.token, buf: None, result });
                }
            });
        }
    }

    fn reply(&self) -> impl Fn(Done) + Send + 'static {
        let (results, event) = (self.results.clone(), self.event.clone());
        move |done| {
            // The ring outlives its jobs: it waits for them when dropped. Room for `depth` answers
            // means that this never blocks.
            results.send(done).expect("the ring is there");
            event.signal();
        }
    }
}

impl Ring for ThreadRing {
    fn capacity(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.queue.len() + self.started
    }

    fn handoffs(&self) -> u64 {
        self.handoffs
    }

    fn push(&mut self, io: Io) -> Result<(), Io> {
        let free = self.depth - self.in_flight();
        self.files.enqueue(io, &mut self.queue, free)
    }

    fn submit(&mut self) -> Result<(), IoError> {
        while let Some(io) = self.queue.pop_front() {
            self.start(io);
        }
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        let mut least = 0;
        if let Wait::For(n) = wait {
            least = n.min(self.in_flight());
            if least > self.started {
                self.submit()?;
            }
        }
        let before = done.len();
        while done.len() - before < least {
            done.push(self.answers.recv().expect("the ring holds a sender itself"));
        }
        done.extend(self.answers.try_iter());
        self.started -= done.len() - before;
        Ok(())
    }

    fn waker(&self) -> Option<EventFd> {
        Some(self.event.clone())
    }

    fn file_name(&self, file: FileId) -> String {
        self.files.name(file)
    }
}

impl Drop for ThreadRing {
    fn drop(&mut self) {
        // Nothing of this ring may reach a file after it is gone.
        self.pool.join();
    }
}
