//! The loop thread: takes requests from callers, drives the engine, hands completions back.
//!
//! A caller's request reaches the engine by one switch of threads; from there to the decision that
//! it is durable there is none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use lodestore_aio::EventFd;
use threadpool::ThreadPool;
use tokio::sync::oneshot;

use super::dir::Mounted;
use super::handle::Stats;
use crate::engine::{Event, JobDone};
use crate::error::Error;
use crate::read::{Answer, Read};
use crate::txn::Transaction;
use crate::types::Lsn;

/// What a caller sends.
pub(super) enum Request {
    Submit(Transaction, Waiter<Lsn>),
    Read(Read, Waiter<Answer>),
    Stats(Sender<Stats>),
    /// Answered when everything applied so far is in durable tables and written in place.
    Flush(Sender<Result<(), Error>>),
    Job(JobDone),
    Umount(Sender<Result<(), Error>>),
}

/// Somebody who waits for a result, and the bytes their request counts for until then.
pub(super) struct Waiter<T> {
    pub reply: oneshot::Sender<Result<T, Error>>,
    pub bytes: u64,
    pub doorbell: Arc<Doorbell>,
}

impl<T> Waiter<T> {
    /// Hands over the result; one that does not listen any more is not an error.
    fn answer(self, result: Result<T, Error>) {
        self.doorbell.submitted_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        let _ = self.reply.send(result);
    }
}

/// How callers reach the loop.
#[derive(Debug)]
pub(super) struct Doorbell {
    /// Set while the loop sleeps or is about to: only then does a caller pay for a wake-up.
    pub asleep: AtomicBool,
    pub wake: EventFd,
    /// Bytes of requests submitted and not answered.
    pub submitted_bytes: AtomicU64,
    pub submitted_bytes_max: u64,
}

impl Doorbell {
    /// To be called after something was put into the channel.
    pub fn ring(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.wake.signal();
        }
    }
}

/// Who waits for which token.
#[derive(Default)]
pub(super) struct Waiting {
    commits: HashMap<u64, Waiter<Lsn>>,
    answers: HashMap<u64, Waiter<Answer>>,
}

impl Waiting {
    /// Hands a completion to its caller.
    fn answer(&mut self, e: Event) {
        match e {
            Event::Committed { token, result } => {
                self.commits.remove(&token).expect("a transaction is answered once").answer(result);
            }
            Event::Answered { token, result } => {
                self.answers.remove(&token).expect("a read is answered once").answer(result);
            }
        }
    }
}

/// Threads that finish their work before what they work on is closed, even if the loop panics: until
/// then the key-value store is open, and nobody else could mount.
pub(super) struct Pool(pub ThreadPool);

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.join();
    }
}

pub(super) struct Loop {
    /// Before what its jobs work on: fields are dropped in order.
    pub pool: Pool,
    pub mounted: Mounted,
    pub requests: Receiver<Request>,
    pub itself: Sender<Request>,
    pub doorbell: Arc<Doorbell>,
    pub next_token: u64,
    pub waiting: Waiting,
    pub flushes: Vec<(Lsn, Sender<Result<(), Error>>)>,
    pub handoffs: u64,
    /// Callers answered who have not come back yet.
    pub owed: u64,
}

/// How long the loop looks for requests of callers it has just answered before it sleeps: about what
/// one wake-up costs.
const SPIN: Duration = Duration::from_micros(50);

impl Loop {
    /// Runs until told to unmount, or until every handle is gone.
    #[expect(clippy::disallowed_methods, reason = "how long to look before sleeping is no decision of the engine")]
    pub fn run(mut self) {
        let mut umount = None;
        let spins = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        let mut idle_since: Option<Instant> = None;
        while umount.is_none() {
            let mut idle = true;
            loop {
                match self.requests.try_recv() {
                    Ok(Request::Umount(reply)) => {
                        umount = Some(reply);
                        break;
                    }
                    Ok(r) => {
                        self.take(r);
                        idle = false;
                    }
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.mounted.engine.expect_more(self.owed > 0);
            self.mounted.engine.poll(false);
            idle &= !self.deliver();
            self.start_jobs();
            self.answer_flushes();
            if !idle || self.mounted.engine.has_work() {
                idle_since = None;
            } else if umount.is_none() {
                if self.owed > 0 {
                    let since = *idle_since.get_or_insert_with(Instant::now);
                    if !spins || since.elapsed() >= SPIN {
                        self.owed = 0;
                    }
                    std::hint::spin_loop();
                    continue;
                }
                match self.mounted.engine.waits_for_one_batch() {
                    true => self.mounted.engine.poll(true),
                    false => self.sleep(),
                }
            }
        }
        self.umount(umount.expect("the loop ends with it"));
    }

    fn take(&mut self, r: Request) {
        let token = self.next_token;
        self.next_token += 1;
        match r {
            Request::Submit(txn, reply) => {
                self.handoffs += 1;
                self.owed = self.owed.saturating_sub(1);
                self.waiting.commits.insert(token, reply);
                self.mounted.engine.submit(token, txn);
                self.mounted.engine.start();
            }
            Request::Read(read, reply) => {
                self.handoffs += 1;
                self.owed = self.owed.saturating_sub(1);
                self.waiting.answers.insert(token, reply);
                self.mounted.engine.read(token, read);
            }
            Request::Stats(reply) => drop(reply.send(self.stats())),
            Request::Flush(reply) => {
                let engine = &mut self.mounted.engine;
                engine.request_trim();
                self.flushes.push((engine.acked_lsn(), reply));
            }
            Request::Job(done) => self.mounted.engine.job_done(done),
            Request::Umount(_) => unreachable!("handled by the loop"),
        }
    }

    /// Hands completions to callers.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        for e in self.mounted.engine.events() {
            any = true;
            self.owed += 1;
            self.waiting.answer(e);
        }
        any
    }

    fn start_jobs(&mut self) {
        while let Some(job) = self.mounted.engine.take_job() {
            let (back, doorbell) = (self.itself.clone(), self.doorbell.clone());
            self.pool.0.execute(move || {
                let done = job.run();
                // The loop outlives its jobs: it waits for them when it unmounts.
                let _ = back.send(Request::Job(done));
                doorbell.ring();
            });
        }
    }

    fn answer_flushes(&mut self) {
        let engine = &self.mounted.engine;
        let (flushed, poison) = (engine.flushed_lsn(), engine.poisoned());
        for (lsn, reply) in std::mem::take(&mut self.flushes) {
            match &poison {
                Some(reason) => drop(reply.send(Err(Error::Poisoned(reason.clone())))),
                None if flushed >= lsn && !engine.is_trimming() => drop(reply.send(Ok(()))),
                None => self.flushes.push((lsn, reply)),
            }
        }
    }

    fn stats(&self) -> Stats {
        let e = &self.mounted.engine;
        Stats {
            counters: e.counters(),
            ledger: e.ledger(),
            kv: lodestore_kv::Kv::stats(&*self.mounted.kv),
            space: e.statfs(),
            handoffs: self.handoffs + e.io_handoffs(),
            poisoned: e.poisoned(),
        }
    }

    /// Sleeps until a completion or a request.
    fn sleep(&mut self) {
        let d = &self.doorbell;
        d.asleep.store(true, Ordering::SeqCst);
        // A request put into the channel before the flag was set rang no bell.
        match self.requests.try_recv() {
            Ok(Request::Umount(reply)) => {
                d.asleep.store(false, Ordering::SeqCst);
                let _ = self.itself.send(Request::Umount(reply));
            }
            Ok(r) => {
                d.asleep.store(false, Ordering::SeqCst);
                self.take(r);
            }
            Err(_) => {
                d.wake.wait(None);
                // Drained before anything is reaped, so that no later signal is lost.
                d.wake.drain();
                d.asleep.store(false, Ordering::SeqCst);
            }
        }
    }

    fn umount(mut self, reply: Sender<Result<(), Error>>) {
        self.pool.0.join();
        while let Ok(r) = self.requests.try_recv() {
            match r {
                Request::Umount(other) => drop(other.send(Err(Error::Unmounted))),
                r => self.take(r),
            }
        }
        self.answer_flushes();
        let (events, result) = self.mounted.engine.umount();
        events.into_iter().for_each(|e| self.waiting.answer(e));
        // The key-value store and the lock go before the caller hears that the store is free.
        drop((self.mounted.kv, self.mounted.lock));
        let _ = reply.send(result);
    }
}
