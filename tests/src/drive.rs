//! Drives an [`Engine`] to where a test wants it: submits, polls, runs its blocking jobs at seeded
//! moments, and keeps the completions. Nothing here knows what the disk is.

use std::collections::{BTreeMap, VecDeque};

use lodestore::{Answer, Engine, Error, Event, Job, Read, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Polls without any progress after which the engine is taken to be stuck.
const STUCK_POLLS: u32 = 10_000;

/// Token of reads, apart from those of transactions.
const READ_TOKENS: u64 = 1 << 40;

/// An engine and what it said.
pub struct Drive {
    /// The engine.
    pub engine: Engine,
    jobs: VecDeque<Job>,
    rng: SmallRng,
    next: u64,
    next_read: u64,
    /// Results of transactions by their number, from 0.
    pub committed: BTreeMap<u64, Result<(), Error>>,
    /// Transactions answered so far without a gap from the first.
    pub acked: u64,
    answers: BTreeMap<u64, Result<Answer, Error>>,
}

impl Drive {
    /// Drives `engine`; the moments at which its jobs run follow from `seed`.
    pub fn new(engine: Engine, seed: u64) -> Self {
        Drive {
            engine,
            jobs: VecDeque::new(),
            rng: SmallRng::seed_from_u64(seed),
            next: 0,
            next_read: 0,
            committed: BTreeMap::new(),
            acked: 0,
            answers: BTreeMap::new(),
        }
    }

    /// Transactions submitted so far.
    pub fn submitted(&self) -> u64 {
        self.next
    }

    /// Submits a transaction; its number.
    pub fn submit(&mut self, t: Transaction) -> u64 {
        let token = self.next;
        self.next += 1;
        self.engine.submit(token, t);
        token
    }

    /// Takes one step: polls, perhaps runs a job, gathers completions. Whether anything happened.
    pub fn step(&mut self, wait: bool) -> bool {
        // A job may lie about for a while, as it would on a busy thread.
        let lazy = self.rng.random_range(0..4) != 0;
        let before = self.engine.io_in_flight();
        self.engine.poll(wait && (self.jobs.is_empty() || lazy));
        let mut moved = self.collect() || self.engine.io_in_flight() != before;
        while let Some(job) = self.engine.take_job() {
            self.jobs.push_back(job);
            moved = true;
        }
        if (!moved || !lazy)
            && let Some(job) = self.jobs.pop_front()
        {
            let done = job.run();
            self.engine.job_done(done);
            moved = true;
        }
        moved
    }

    fn collect(&mut self) -> bool {
        let mut any = false;
        for event in self.engine.events() {
            any = true;
            match event {
                Event::Committed { token, result } => {
                    let twice = self.committed.insert(token, result.map(drop));
                    assert!(twice.is_none(), "transaction {token} was answered twice");
                }
                Event::Answered { token, result } => {
                    let twice = self.answers.insert(token, result);
                    assert!(twice.is_none(), "read {token} was answered twice");
                }
            }
        }
        while self.committed.contains_key(&self.acked) {
            self.acked += 1;
        }
        any
    }

    /// Steps until `done` says so.
    pub fn until(&mut self, done: impl Fn(&Drive) -> bool) {
        let mut idle = 0;
        while !done(self) {
            idle = if self.step(true) { 0 } else { idle + 1 };
            assert!(idle < STUCK_POLLS, "the engine is stuck: nothing moves and somebody waits");
        }
    }

    /// Steps until every transaction submitted is answered.
    pub fn settle(&mut self) {
        self.until(|d| d.acked == d.next);
    }

    /// Steps until nothing is left to do, jobs included.
    pub fn idle(&mut self) {
        self.until(|d| d.acked == d.next && d.jobs.is_empty() && d.engine.is_idle());
    }

    /// Starts a read; its number for [`Drive::answer`].
    pub fn start_read(&mut self, read: Read) -> u64 {
        let token = READ_TOKENS + self.next_read;
        self.next_read += 1;
        self.engine.read(token, read);
        token
    }

    /// Waits for the answer of a read.
    pub fn answer(&mut self, token: u64) -> Result<Answer, Error> {
        self.until(|d| d.answers.contains_key(&token));
        self.answers.remove(&token).expect("waited for it")
    }

    /// Asks and waits.
    pub fn query(&mut self, read: Read) -> Result<Answer, Error> {
        let token = self.start_read(read);
        self.answer(token)
    }

    /// Result of a transaction that was answered.
    pub fn result(&self, number: u64) -> Option<&Result<(), Error>> {
        self.committed.get(&number)
    }

    /// Runs what is left and unmounts cleanly.
    pub fn umount(mut self) -> Result<(), Error> {
        while let Some(job) = self.jobs.pop_front() {
            let done = job.run();
            self.engine.job_done(done);
        }
        self.engine.umount().1
    }
}
