//! A store under load, from filling to the last comparison.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lodestore::{MountOptions, Stats, Store};

use crate::client::{Shared, Tally};
use crate::embedded::Embedded;
use crate::error::BenchError;
use crate::fill::{self, Contents, Filled, Found};
use crate::flash::{Flash, FlashOptions};
use crate::live::{Live, Stage};
use crate::measure::device::Devices;
use crate::measure::report::{Config, Memory, Report};
use crate::measure::series::Sampler;
use crate::measure::{Snapshot, process};
use crate::room;
use crate::run;
use crate::verify::{Book, Verified};
use crate::workload::Workload;

/// Two looks at the key-value store's counters this far apart must agree before it is idle.
const IDLE_LOOK: Duration = Duration::from_millis(100);
/// Looks after which a run begins all the same.
const IDLE_LOOKS_MAX: usize = 100;

/// Who moves the engine on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Driver {
    /// The store's loop thread; clients hand operations over.
    #[default]
    Thread,
    /// The client itself; there is one.
    Embedded,
}

impl FromStr for Driver {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "thread" => Ok(Driver::Thread),
            "embedded" => Ok(Driver::Embedded),
            _ => Err(format!("'{s}' is no driver; choose thread or embedded")),
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Driver::Thread => "thread",
            Driver::Embedded => "embedded",
        })
    }
}

/// How the store is mounted.
#[derive(Clone, Debug, Default)]
pub struct JobOptions {
    /// As for any other use.
    pub mount: MountOptions,
    /// Who moves the engine on.
    pub driver: Driver,
    /// What is asked about the flash.
    pub flash: FlashOptions,
}

/// A mounted store with filled objects.
pub struct Job {
    dir: PathBuf,
    options: JobOptions,
    devices: Devices,
    flash: Option<Flash>,
    target: Option<Target>,
    book: Option<Book>,
}

enum Target {
    Store(Store),
    Embedded(Box<Embedded>),
}

impl Target {
    fn stats(&self) -> Result<Stats, BenchError> {
        Ok(match self {
            Target::Store(s) => s.stats()?,
            Target::Embedded(e) => e.stats(),
        })
    }

    fn flush(&mut self) -> Result<(), BenchError> {
        match self {
            Target::Store(s) => Ok(s.flush()?),
            Target::Embedded(e) => e.flush(),
        }
    }

    fn umount(self) -> Result<(), BenchError> {
        match self {
            Target::Store(s) => Ok(s.umount()?),
            Target::Embedded(e) => e.umount(),
        }
    }
}

impl Job {
    /// Mounts the store in `dir` and sees to it that the objects of all of `runs` (which differ in
    /// nothing that concerns the objects) are there: those of an earlier job with the same number,
    /// size and seed are kept, any others replaced.
    pub fn prepare(
        dir: &Path,
        mut options: JobOptions,
        runs: &[Workload],
        live: &Live,
    ) -> Result<(Job, Filled), BenchError> {
        let Some(w) = runs.first() else { return Err(BenchError::Usage("there is nothing to run".into())) };
        for r in runs {
            r.check()?;
            if options.driver == Driver::Embedded && r.threads > 1 {
                return Err(BenchError::Usage(format!(
                    "{} threads with the embedded driver: the engine is moved by one",
                    r.threads
                )));
            }
        }
        let flash = Flash::start(&options.flash, dir, &mut options.mount)?;
        let store = Store::mount(dir, &options.mount)?;
        let result = prepare_objects(&store, w, runs, live);
        let mut target = Target::Store(store);
        let (book, filled) = match result.and_then(|r| target.flush().map(|()| r)) {
            Ok(r) => r,
            Err(e) => {
                // What went wrong first is what counts.
                let _ = target.umount();
                return Err(e);
            }
        };
        if options.driver == Driver::Embedded {
            target.umount()?;
            target = Target::Embedded(Box::new(Embedded::mount(dir, &options.mount)?));
        }
        let devices = Devices::of_store(dir);
        Ok((Job { dir: dir.to_owned(), options, devices, flash, target: Some(target), book }, filled))
    }

    /// Measures one workload.
    pub fn run(&mut self, w: &Workload, live: &Live) -> Result<Report, BenchError> {
        let target = self.target.as_mut().expect("mounted until it is finished");
        wait_until_idle(target)?;
        if let Some(f) = &mut self.flash {
            f.begin()?;
        }
        let before = Snapshot::take(&self.dir, target.stats()?, &self.devices);
        let total = match w.until {
            crate::Until::Ops(n) => n,
            crate::Until::Time(_) => 0,
        };
        live.enter(Stage::Running, total);
        let shared = Shared { workload: w, book: self.book.as_ref(), live, failed: AtomicBool::new(false) };
        let mut sampler = Sampler::begin(target.stats()?, &self.devices);
        let (begin, tally) = run_and_settle(target, &shared, &mut sampler)?;
        let after = Snapshot::take(&self.dir, target.stats()?, &self.devices);
        live.enter(Stage::Idle, 0);
        let ran = tally.end.saturating_duration_since(begin);
        let elapsed = match w.until {
            // A pause at the end is part of the time that was asked for.
            crate::Until::Time(t) if !live.stopped() => ran.max(t),
            _ => ran,
        };
        let cost = before.until(&after, &self.devices);
        let user = cost.user;
        let mut report = Report::new(self.config(w), &tally, elapsed, cost);
        report.series = sampler.finish(after.stats(), report.ops);
        report.memory = process::memory().map(|(rss, rss_max)| Memory { rss, rss_max, caches_max: self.caches_max() });
        if let Some(f) = &mut self.flash {
            report.flash = f.end(user, elapsed)?;
        }
        Ok(report)
    }

    /// Mounts the store anew, so that no cache answers, and compares every byte of every object
    /// with what was written last. Only after runs with [`Workload::verify`].
    pub fn verify(&mut self, w: &Workload, live: &Live) -> Result<Verified, BenchError> {
        let Some(book) = &self.book else {
            return Err(BenchError::Usage("contents are only known with verification".into()));
        };
        self.target.take().expect("mounted until it is finished").umount()?;
        let store = Store::mount(&self.dir, &self.options.mount)?;
        let result = book.verify(&store, w, live);
        self.target = Some(Target::Store(store));
        result
    }

    /// Counters of the store since it was mounted last.
    pub fn stats(&self) -> Result<Stats, BenchError> {
        self.target.as_ref().expect("mounted until it is finished").stats()
    }

    /// Unmounts the store and ends the trace.
    pub fn finish(mut self) -> Result<(), BenchError> {
        self.target.take().map_or(Ok(()), Target::umount)?;
        self.flash.take().map_or(Ok(()), Flash::finish)
    }

    fn caches_max(&self) -> u64 {
        let m = &self.options.mount;
        m.config.meta_cache_bytes + m.config.data_cache_bytes + m.kv.block_cache_bytes + m.kv.memtables_bytes_max()
    }

    fn config(&self, w: &Workload) -> Config {
        let m = &self.options.mount;
        Config {
            engine: m.engine.to_string(),
            driver: self.options.driver.to_string(),
            overwrite: m.config.policy.to_string(),
            data_cache: m.config.data_cache_bytes,
            meta_cache: m.config.meta_cache_bytes,
            device: self.devices.name(),
            ..Config::of_workload(w)
        }
    }
}

/// Runs the workload, then writes what it left, with a sample of the store's counters every second.
fn run_and_settle(
    target: &mut Target,
    shared: &Shared<'_>,
    sampler: &mut Sampler,
) -> Result<(Instant, Tally), BenchError> {
    let store = match target {
        Target::Store(s) => s.clone(),
        Target::Embedded(_) => return unsampled(target, shared, Some(sampler)),
    };
    let (stop, stopped) = mpsc::channel::<()>();
    thread::scope(|s| {
        let sampling = s.spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(sampler.due_in()) {
                // A store that cannot answer any more says why to whoever writes to it.
                let Ok(stats) = store.stats() else { break };
                sampler.sample(&stats, shared.live);
            }
        });
        let result = unsampled(target, shared, None);
        drop(stop);
        sampling.join().expect("taking samples does not panic");
        result
    })
}

/// The same; only an embedded engine, which no other thread can ask, takes the samples itself.
fn unsampled(
    target: &mut Target,
    shared: &Shared<'_>,
    sampler: Option<&mut Sampler>,
) -> Result<(Instant, Tally), BenchError> {
    let (begin, tally) = match target {
        Target::Store(s) => run::run(s, shared)?,
        Target::Embedded(e) => e.run(shared, sampler)?,
    };
    if tally.reads.is_empty() && tally.writes.is_empty() {
        return Err(BenchError::Stopped);
    }
    shared.live.enter(Stage::Settling, 0);
    if shared.workload.op.writes() {
        target.flush()?;
        wait_until_idle(target)?;
    }
    Ok((begin, tally))
}

fn prepare_objects(
    store: &Store,
    w: &Workload,
    runs: &[Workload],
    live: &Live,
) -> Result<(Option<Book>, Filled), BenchError> {
    let kept = |book| {
        room::check(store, runs, true)?;
        Ok((book, Filled { bytes: 0, found: Found::Same, elapsed: Duration::ZERO }))
    };
    let fill = |book: Option<&Book>, contents, found| {
        room::check(store, runs, false)?;
        fill::fill(store, w, book, contents, found, live)
    };
    let is_random = fill::is_filled(store, w, Contents::Random)?;
    if !w.verify {
        if is_random {
            return kept(None);
        }
        if known_unit(store, w, u64::MAX)?.is_some() {
            let kept = kept(None)?;
            if runs.iter().any(|r| r.op.writes()) {
                // From here on nobody knows what they hold.
                fill::mark(store, w, Contents::Random)?;
            }
            return Ok(kept);
        }
        return Ok((None, fill(None, Contents::Random, Found::Other)?));
    }
    let mut unit = u64::MAX;
    for r in runs {
        unit = unit.min(r.unit()?);
    }
    if let Some(known) = known_unit(store, w, unit)? {
        let book = Book::new(w, known);
        book.learn(store, w, live)?;
        return kept(Some(book));
    }
    let book = Book::new(w, unit);
    let found = if is_random { Found::Unverifiable } else { Found::Other };
    let filled = fill(Some(&book), Contents::Units(unit), found)?;
    Ok((Some(book), filled))
}

/// The unit of the verifiable contents that the objects hold, if they do and if operations that are
/// multiples of `unit` leave them verifiable: units are powers of two, so that of a smaller one does.
fn known_unit(store: &Store, w: &Workload, unit: u64) -> Result<Option<u64>, BenchError> {
    for known in [512, 1024, 2048, 4096] {
        if known <= unit && fill::is_filled(store, w, Contents::Units(known))? {
            return Ok(Some(known));
        }
    }
    Ok(None)
}

/// Waits until the key-value store compacts no more, so that what an earlier step left to do is
/// not counted to the next.
fn wait_until_idle(target: &Target) -> Result<(), BenchError> {
    let written =
        |s: &Stats| s.kv.by_cf.iter().map(|c| (c.flushes, c.compactions, c.compaction_bytes)).collect::<Vec<_>>();
    let mut last = written(&target.stats()?);
    for _ in 0..IDLE_LOOKS_MAX {
        let begin = Instant::now();
        thread::sleep(IDLE_LOOK.saturating_sub(begin.elapsed()));
        let now = written(&target.stats()?);
        if now == last {
            break;
        }
        last = now;
    }
    Ok(())
}
