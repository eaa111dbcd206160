//! What nobody waits for, until somebody does: deferred writes, flushing the key-value store and
//! trimming the log, pre-writing.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use lodestore_aio::{AlignedBuf, IoOp};
use lodestore_kv::{Cf, Kv, KvError, KvOp};
use lodestore_wal::AppendError;

use super::{Engine, kind, token};
use crate::bugs::{self, Bug};
use crate::format::{BLOCK_LEN, key, small};
use crate::meta::Place;
use crate::types::Lsn;

/// Writes in place in flight at a time: they must not crowd out what somebody waits for.
const APPLIES_MAX: usize = 16;
/// Bytes of one pre-writing I/O.
const PREWRITE_IO: u64 = 1 << 20;
/// Pre-writing I/Os in flight at a time.
const PREWRITES_MAX: usize = 4;

/// Work that blocks and so must run elsewhere.
///
/// At most one at a time flushes, which may take seconds; others look something up, and somebody
/// waits for that: a driver has them run beside a flush, [`LOOKUP_THREADS`] at a time or so.
#[derive(Debug)]
pub struct Job {
    kv: Arc<dyn Kv>,
    what: What,
}

/// Lookups worth running at a time.
pub const LOOKUP_THREADS: usize = 8;

#[derive(Debug)]
enum What {
    /// Make everything written so far durable, which is everything up to this LSN.
    Flush(Lsn),
    /// Bring the answer into the key-value store's cache, for a transaction or read with this number.
    LookUp(Place, u64),
}

/// A [`Job`] that was run.
#[derive(Debug)]
pub struct JobDone(Outcome);

#[derive(Debug)]
enum Outcome {
    Flushed(Lsn, Result<(), KvError>),
    LookedUp(u64),
}

impl Job {
    /// Does it; on any thread. A panic is a failure like any other: whoever waits for the job would
    /// wait for ever, and what it had made durable then nobody knows.
    pub fn run(self) -> JobDone {
        JobDone(match self.what {
            What::Flush(upto) => {
                let flush = || {
                    fail::fail_point!("engine::before_kv_flush");
                    let result = self.kv.flush();
                    fail::fail_point!("engine::after_kv_flush");
                    result
                };
                let result = panic::catch_unwind(AssertUnwindSafe(flush))
                    .unwrap_or_else(|_| Err(KvError::Failed { what: "flush", reason: "it panicked".into() }));
                Outcome::Flushed(upto, result)
            }
            What::LookUp((cf, key), seq) => {
                // Whoever waits for it asks again, and then hears of a failure.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| self.kv.get(cf, &key)));
                Outcome::LookedUp(seq)
            }
        })
    }
}

/// Data space being pre-written.
#[derive(Debug)]
pub(super) struct Prewrite {
    /// Blocks whose writing has been started.
    next: u64,
    /// Where it will end.
    end: u64,
    in_flight: usize,
    state: PrewriteState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PrewriteState {
    Writing,
    Syncing,
    /// Durable; its record waits for room in the log.
    Recording,
}

impl Engine {
    /// The next blocking job, to be run on any thread and given back to [`Engine::job_done`].
    pub fn take_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Takes a job's outcome.
    pub fn job_done(&mut self, done: JobDone) {
        match done.0 {
            Outcome::Flushed(upto, result) => {
                self.flushing = false;
                match result {
                    Err(e) => self.poison(e.to_string()),
                    Ok(()) => {
                        self.flushed = self.flushed.max(upto);
                        self.trim();
                    }
                }
            }
            Outcome::LookedUp(seq) => match self.reads.contains_key(&seq) {
                true => self.looked_up_for_read(seq),
                false => self.looked_up_for_transaction(seq),
            },
        }
    }

    /// Has somebody look up `place` for the transaction or read numbered `seq`.
    pub(super) fn look_up(&mut self, place: Place, seq: u64) {
        self.counters.lookups_elsewhere += 1;
        self.jobs.push_back(Job { kv: self.kv.clone(), what: What::LookUp(place, seq) });
    }

    /// Asks that everything acknowledged so far be flushed to tables and written in place, and the log
    /// trimmed past it.
    pub fn request_trim(&mut self) {
        self.trim_goal = self.trim_goal.max(self.acked);
    }

    /// Whether a trim is wanted and not durable yet.
    pub fn is_trimming(&self) -> bool {
        self.trim_goal > self.wal.trim_durable()
    }

    /// Highest LSN whose metadata the key-value store has made durable.
    pub fn flushed_lsn(&self) -> Lsn {
        self.flushed
    }

    /// Highest LSN acknowledged.
    pub fn acked_lsn(&self) -> Lsn {
        self.acked
    }

    pub(super) fn background(&mut self) {
        // A trim is due when the log fills or when freed space piles up (or when somebody waits
        // for either, who asked for it already).
        let log_half = self.wal.used_bytes() > self.wal.capacity_bytes() / 2;
        if (log_half || self.limbo.blocks() > self.limbo_max()) && !self.is_trimming() {
            self.request_trim();
        }
        self.start_deferred();
        if self.is_trimming() {
            self.help_trim();
        }
        self.start_prewrite();
    }

    /// Starts whatever the wanted trim still lacks.
    fn help_trim(&mut self) {
        if self.flushed < self.trim_goal && self.flushed < self.applied && !self.flushing {
            self.flushing = true;
            self.counters.kv_flushes += 1;
            self.jobs.push_back(Job { kv: self.kv.clone(), what: What::Flush(self.applied) });
        }
        self.trim();
        if !self.groups.iter().all(|g| g.is_empty()) {
            // The next batch carries the trim, and its sync covers the writes in place.
            return;
        }
        if self.deferred.wants_sync() && !self.lone_sync {
            self.lone_sync = true;
            self.deferred.sync_issued();
            self.counters.syncs += 1;
            self.io(token(kind::LONE_SYNC, 0), IoOp::Sync { files: self.data_files() });
        }
        if self.trimmed > self.wal.trim_durable() {
            self.seal_empty();
        }
    }

    /// Freed blocks that may wait before the log is trimmed for them: enough to make trims rare,
    /// little enough that the space is there when it is needed.
    fn limbo_max(&self) -> u64 {
        const AT_MOST: u64 = (4 << 30) / BLOCK_LEN;
        let spare = self.alloc.free_blocks() + self.limbo.blocks();
        (spare / 2).clamp(1, AT_MOST)
    }

    /// Trims the log up to what is both in durable tables and written in place.
    fn trim(&mut self) {
        let unwritten = match self.deferred.oldest() {
            Some(lsn) if !bugs::enabled(Bug::TrimTooFar) => lsn - 1,
            _ => Lsn::MAX,
        };
        let to = self.flushed.min(unwritten);
        if to > self.trimmed {
            fail::fail_point!("engine::before_trim");
            self.wal.trim(to);
            self.trimmed = to;
            self.counters.trims += 1;
        }
    }

    fn start_deferred(&mut self) {
        let enough = self.deferred.ready_bytes() >= self.config.deferred_batch;
        let log_needs = self.is_trimming() && self.deferred.oldest().is_some_and(|lsn| lsn <= self.trim_goal);
        if !enough && !log_needs {
            return;
        }
        let room = APPLIES_MAX.saturating_sub(self.applies.len());
        for a in self.deferred.take(room) {
            let blocks = a.data.len() as u64 / BLOCK_LEN;
            self.ledger.count(|l| {
                l.data_deferred += a.data.len() as u64;
                a.by.iter().for_each(|by| l.by_op[*by].data_deferred += BLOCK_LEN);
            });
            self.counters.deferred_applied += blocks;
            let id = self.next_apply;
            self.next_apply += 1;
            let started = self.write_blocks(token(kind::APPLY, id), a.place, &a.data);
            self.applies.insert(id, (a.place, blocks, started));
        }
    }

    pub(super) fn deferred_written(&mut self, id: u64) {
        fail::fail_point!("engine::deferred_written");
        let entry = self.applies.get_mut(&id).expect("a write in place is answered once");
        entry.2 -= 1;
        if entry.2 == 0 {
            let (place, blocks, _) = self.applies.remove(&id).expect("looked up above");
            self.deferred.wrote(place, blocks);
        }
    }

    pub(super) fn lone_synced(&mut self) {
        self.lone_sync = false;
        self.deferred.synced();
        self.trim();
    }

    /// Keeps pre-written space ahead of need.
    fn start_prewrite(&mut self) {
        let step = (self.config.prewrite_step / BLOCK_LEN).max(1);
        if self.prewriting.is_none() {
            let (usable, total) = (self.alloc.usable(), self.alloc.total());
            // The less space there is to write to, the more often the log must be trimmed to get it
            // back, and each trim is a flush of the key-value store.
            const SPARE_MAX: u64 = (2 << 30) / BLOCK_LEN;
            let enough = (total / 8).min(SPARE_MAX).max(2 * step);
            let spare = self.alloc.free_blocks() + self.limbo.blocks();
            if usable == total || (spare > enough && !self.space_wanted) {
                return;
            }
            let end = (usable + step).min(total);
            self.prewriting = Some(Prewrite { next: usable, end, in_flight: 0, state: PrewriteState::Writing });
        }
        let Some(mut p) = self.prewriting.take() else { return };
        match p.state {
            PrewriteState::Writing => {
                while p.next < p.end && p.in_flight < PREWRITES_MAX {
                    let (file, offset, room) = self.locate(p.next);
                    let blocks = room.min(p.end - p.next).min(PREWRITE_IO / BLOCK_LEN);
                    let data = AlignedBuf::zeroed((blocks * BLOCK_LEN) as usize).freeze();
                    self.ledger.count(|l| l.prewrite += data.len() as u64);
                    self.io(token(kind::PREWRITE, 0), IoOp::Write { file, offset, data, dsync: false });
                    p.next += blocks;
                    p.in_flight += 1;
                }
                if p.next == p.end && p.in_flight == 0 {
                    p.state = PrewriteState::Syncing;
                    self.counters.syncs += 1;
                    self.io(token(kind::PREWRITE_SYNC, 0), IoOp::Sync { files: self.data_files() });
                }
            }
            PrewriteState::Syncing => {}
            PrewriteState::Recording => {
                // The record comes before that of any transaction which uses the space.
                let value = small::encode_u64(p.end);
                let op = KvOp::Put { cf: Cf::Meta, key: key::PREWRITTEN.to_vec(), value };
                match self.append_internal(vec![op]) {
                    Ok(_) => {
                        self.alloc.extend(p.end);
                        self.plan_queue();
                        return;
                    }
                    Err(AppendError::BatchFull) => {}
                    Err(AppendError::Full) => self.request_trim(),
                    Err(AppendError::TooLarge { .. }) => unreachable!("a record of a few bytes"),
                }
            }
        }
        self.prewriting = Some(p);
    }

    pub(super) fn prewritten(&mut self) {
        let p = self.prewriting.as_mut().expect("pre-writing goes on until its record is written");
        p.in_flight -= 1;
    }

    pub(super) fn prewrite_synced(&mut self) {
        let p = self.prewriting.as_mut().expect("pre-writing goes on until its record is written");
        p.state = PrewriteState::Recording;
    }
}
