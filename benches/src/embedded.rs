//! The driver without a store's loop thread: the engine is moved on by the client itself, so an
//! operation passes no thread on its way in, nor on its way out.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, ThreadId};
use std::time::Instant;

use lodestore::{Engine, Event, Job, JobDone, LOOKUP_THREADS, MountGuard, MountOptions, Stats, mount_engine};
use threadpool::ThreadPool;

use crate::client::{Client, Outcome, Request, Shared, Tally, Transport, answered, written};
use crate::error::BenchError;
use crate::live::Live;
use crate::measure::series::Sampler;

/// A store mounted into the calling thread.
pub struct Embedded {
    engine: Engine,
    /// The thread that moves the engine on: a submission by any other is a hand-off.
    home: ThreadId,
    handoffs: u64,
    jobs: Jobs,
    /// Behind the engine: fields are dropped in order, and the directory is freed last.
    _guard: MountGuard,
}

/// Threads that flush the key-value store and look up what is not in memory, off every operation's
/// way.
struct Jobs {
    pool: ThreadPool,
    finished: Sender<JobDone>,
    done: Receiver<JobDone>,
    under_way: usize,
}

impl Jobs {
    fn new() -> Self {
        let (finished, done) = mpsc::channel();
        let pool = ThreadPool::with_name("lodestore-kv".into(), 1 + LOOKUP_THREADS);
        Jobs { pool, finished, done, under_way: 0 }
    }

    fn start(&mut self, job: Job) {
        self.under_way += 1;
        let finished = self.finished.clone();
        self.pool.execute(move || {
            // Nobody listens any more if the client has failed.
            let _ = finished.send(job.run());
        });
    }
}

impl Embedded {
    /// Mounts the store in `dir`.
    pub fn mount(dir: &Path, o: &MountOptions) -> Result<Embedded, BenchError> {
        let (engine, guard) = mount_engine(dir, o)?;
        Ok(Embedded { engine, home: thread::current().id(), handoffs: 0, jobs: Jobs::new(), _guard: guard })
    }

    /// Counters since the mount.
    pub fn stats(&self) -> Stats {
        let e = &self.engine;
        Stats {
            counters: e.counters(),
            ledger: e.ledger(),
            kv: e.kv().stats(),
            space: e.statfs(),
            handoffs: self.handoffs + e.io_handoffs(),
            poisoned: e.poisoned(),
        }
    }

    /// Writes everything that waits to be written.
    pub fn flush(&mut self) -> Result<(), BenchError> {
        while self.jobs.under_way > 0 {
            self.job_finished();
        }
        let mut events = Vec::new();
        self.engine.settle(&mut events)?;
        assert!(events.is_empty(), "nothing was under way");
        Ok(())
    }

    /// Closes the store.
    pub fn umount(mut self) -> Result<(), BenchError> {
        self.flush()?;
        let (_, result) = self.engine.umount();
        Ok(result?)
    }

    /// Runs the workload; returns when it began and what the client did.
    pub(crate) fn run(
        &mut self,
        shared: &Shared<'_>,
        sampler: Option<&mut Sampler>,
    ) -> Result<(Instant, Tally), BenchError> {
        let client = Client::new(shared, 0);
        let begin = Instant::now();
        let tally = match sampler {
            None => client.run(self)?,
            Some(sampler) => client.run(&mut Sampled { engine: self, sampler, live: shared.live })?,
        };
        Ok((begin, tally))
    }

    fn job_finished(&mut self) {
        let done = self.jobs.done.recv().expect("the thread for jobs outlives them");
        self.jobs.under_way -= 1;
        self.engine.job_done(done);
    }
}

impl Transport for Embedded {
    fn submit(&mut self, slot: usize, r: Request) {
        self.handoffs += u64::from(thread::current().id() != self.home);
        match r {
            Request::Write(t) => {
                self.engine.submit(slot as u64, t);
                self.engine.start();
            }
            Request::Read(r) => self.engine.read(slot as u64, r),
        }
    }

    fn wait(&mut self, done: &mut Vec<(usize, Outcome)>) {
        loop {
            self.engine.poll(true);
            done.extend(self.engine.events().map(|e| match e {
                Event::Committed { token, result } => (token as usize, written(result)),
                Event::Answered { token, result } => (token as usize, answered(result)),
            }));
            while let Some(job) = self.engine.take_job() {
                self.jobs.start(job);
            }
            while let Ok(finished) = self.jobs.done.try_recv() {
                self.jobs.under_way -= 1;
                self.engine.job_done(finished);
            }
            if !done.is_empty() {
                return;
            }
            // Nothing is on its way to the medium: only the flush can move things on.
            if self.engine.io_in_flight() == 0 && !self.engine.has_work() && self.jobs.under_way > 0 {
                self.job_finished();
            }
        }
    }
}

/// An engine that is looked at between operations: no other thread can ask it.
struct Sampled<'a> {
    engine: &'a mut Embedded,
    sampler: &'a mut Sampler,
    live: &'a Live,
}

impl Transport for Sampled<'_> {
    fn submit(&mut self, slot: usize, r: Request) {
        self.engine.submit(slot, r);
    }

    fn wait(&mut self, done: &mut Vec<(usize, Outcome)>) {
        self.engine.wait(done);
        if self.sampler.due_in().is_zero() {
            self.sampler.sample(&self.engine.stats(), self.live);
        }
    }
}
