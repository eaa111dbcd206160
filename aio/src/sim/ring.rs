//! The ring of the simulated disk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use rand::Rng;

use super::disk::{State, lock};
use super::fault::OpKind;
use crate::buf::AlignedBuf;
use crate::files::in_mask;
use crate::legal::assert_legal;
use crate::seam::{Done, FileId, Io, IoError, IoOp, Ring, Wait};

/// Completes requests in an order and at a pace that the seed decides.
pub(crate) struct SimRing {
    state: Arc<Mutex<State>>,
    /// Places in the state's list of files.
    files: Vec<usize>,
    depth: usize,
    queue: VecDeque<Queued>,
    started: Vec<Started>,
}

struct Queued {
    io: Io,
    /// Completions there had been when it was pushed: what a sync covers.
    completions: u64,
}

struct Started {
    token: u64,
    op: Op,
    /// The errno it will fail with.
    failure: Option<i32>,
    /// Looks without waiting that will not find it complete.
    hold: u64,
}

enum Op {
    Read { file: usize, offset: u64, buf: AlignedBuf },
    Write { id: u64, file: usize, offset: u64, len: u64, dsync: bool },
    Sync { files: Vec<usize>, completions: u64 },
}

impl SimRing {
    pub(crate) fn new(state: Arc<Mutex<State>>, files: Vec<usize>, depth: usize) -> Self {
        SimRing { state, files, depth, queue: VecDeque::with_capacity(depth), started: Vec::with_capacity(depth) }
    }

    fn place(&self, file: FileId) -> usize {
        self.files[usize::from(file.0)]
    }

    fn start(&mut self, state: &mut State, q: Queued) {
        let token = q.io.token;
        let (op, kind) = match q.io.op {
            IoOp::Read { file, offset, buf } => (Op::Read { file: self.place(file), offset, buf }, OpKind::Read),
            IoOp::Write { file, offset, data, dsync } => {
                let (file, len) = (self.place(file), data.len() as u64);
                let id = state.write_submitted(file, offset, data);
                (Op::Write { id, file, offset, len, dsync }, OpKind::Write)
            }
            IoOp::Sync { files } => {
                let files = in_mask(files).map(|f| self.place(f)).collect();
                (Op::Sync { files, completions: q.completions }, OpKind::Sync)
            }
        };
        let failure = match &op {
            Op::Read { file, .. } | Op::Write { file, .. } => state.fault(kind, &[*file]),
            Op::Sync { files, .. } => state.fault(kind, files),
        };
        let hold = state.delay;
        self.started.push(Started { token, op, failure, hold });
    }

    /// Completes the `i`-th started request.
    fn complete(&mut self, state: &mut State, i: usize) -> Done {
        let Started { token, op, failure, .. } = self.started.swap_remove(i);
        let (buf, result) = match op {
            Op::Read { file, offset, mut buf } => {
                let result = state.read(file, offset, &mut buf, failure);
                (Some(buf), result)
            }
            Op::Write { id, file, offset, len, dsync } => {
                (None, state.write_completed(id, file, offset, len, dsync, failure))
            }
            Op::Sync { mut files, completions } => (None, state.sync_completed(&mut files, completions, failure)),
        };
        Done { token, buf, result }
    }
}

impl Ring for SimRing {
    fn capacity(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.queue.len() + self.started.len()
    }

    fn push(&mut self, io: Io) -> Result<(), Io> {
        assert_legal(&io.op, self.files.len());
        if self.in_flight() == self.depth {
            return Err(io);
        }
        let completions = lock(&self.state).completions;
        self.queue.push_back(Queued { io, completions });
        Ok(())
    }

    fn submit(&mut self) -> Result<(), IoError> {
        let shared = Arc::clone(&self.state);
        let mut state = lock(&shared);
        while let Some(q) = self.queue.pop_front() {
            self.start(&mut state, q);
        }
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        if let Wait::For(n) = wait
            && n > self.started.len()
        {
            self.submit()?;
        }
        let shared = Arc::clone(&self.state);
        let mut state = lock(&shared);
        let n = match wait {
            Wait::For(n) => state.rng.random_range(n.min(self.started.len())..=self.started.len()),
            Wait::No => {
                let free = self.started.iter().filter(|s| s.hold == 0).count();
                if free < self.started.len() {
                    // What is held back goes behind the rest, out of reach of the choice below.
                    self.started.sort_by_key(|s| s.hold > 0);
                    self.started.iter_mut().for_each(|s| s.hold = s.hold.saturating_sub(1));
                }
                let n = state.rng.random_range(0..=free);
                for left in (free - n + 1..=free).rev() {
                    let i = state.rng.random_range(0..left);
                    self.started.swap(i, left - 1);
                    let d = self.complete(&mut state, left - 1);
                    done.push(d);
                }
                return Ok(());
            }
        };
        for _ in 0..n {
            let i = state.rng.random_range(0..self.started.len());
            let d = self.complete(&mut state, i);
            done.push(d);
        }
        Ok(())
    }

    fn file_name(&self, file: FileId) -> String {
        lock(&self.state).medium.files[self.place(file)].name.to_string()
    }
}

impl Drop for SimRing {
    fn drop(&mut self) {
        // Like a ring over real files, which waits for what is in flight.
        let shared = Arc::clone(&self.state);
        let mut state = lock(&shared);
        while !self.started.is_empty() {
            self.complete(&mut state, 0);
        }
    }
}
