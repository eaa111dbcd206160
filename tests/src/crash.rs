//! Crash states: records what the real engine does to the disk and the key-value store, builds
//! what a power failure at any point may leave, mounts the real engine on it and compares.

use std::sync::Arc;

use lodestore::{Counters, Engine, EngineConfig, Layout, Policy, Transaction};
use lodestore_aio::SimDisk;
use lodestore_aio::sim::{Event, Limits, Recording};
use lodestore_kv::{KvImage, MemKv};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::alphabet::{self, C};
use crate::check::{self, Dump};
use crate::drive::Drive;
use crate::generate::{Gen, Shape};
use crate::model::{ErrKind, Model};
use crate::simstore::{Options, add_counters, choose};
use crate::subject::pattern;
use crate::tracekv::TraceKv;

/// A store at rest: what is durable.
pub struct Base {
    options: Options,
    disk: SimDisk,
    kv: KvImage,
    model: Model,
}

/// How a workload is run.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Transactions in flight, at most.
    pub in_flight: usize,
    /// Whether the store is unmounted at the end, inside the recording.
    pub umount: bool,
    /// Decides what else is left to chance.
    pub seed: u64,
}

/// What a workload did, and the states it went through.
pub struct Trace {
    config: EngineConfig,
    record: Record,
    /// Transactions acknowledged and submitted: at every change, in order of their marks.
    progress: Vec<(usize, usize)>,
    /// The model after each transaction, the first before any.
    states: Vec<(Model, Dump)>,
    /// Counters of the run.
    pub counters: Counters,
}

/// What happened to disk and key-value store.
pub(crate) struct Record {
    /// What happened to the disk.
    pub(crate) disk: Recording,
    diary: Vec<KvImage>,
    /// The crash points at which the notes of the diary, and of progress, come into force.
    kv_from: Vec<usize>,
    progress_from: Vec<usize>,
}

/// Bit of the marks that stand for progress; the others are notes of the key-value store.
const PROGRESS: u64 = 1 << 32;

impl Record {
    pub(crate) fn new(disk: &SimDisk, kv: &TraceKv) -> Record {
        let recording = disk.stop_recording();
        let (mut kv_from, mut progress_from) = (Vec::new(), Vec::new());
        for (i, e) in recording.events().iter().enumerate() {
            match e {
                Event::Mark(m) if m & PROGRESS != 0 => progress_from.push(i + 1),
                Event::Mark(_) => kv_from.push(i + 1),
                _ => {}
            }
        }
        Record { disk: recording, diary: kv.diary(), kv_from, progress_from }
    }

    /// What the key-value store could be after a crash at `point`.
    pub(crate) fn kv(&self, point: usize) -> &KvImage {
        let past = self.kv_from.partition_point(|p| *p <= point);
        // The first note was made when the recording began.
        &self.diary[past.max(1) - 1]
    }

    /// Points that differ from the next one for a crash.
    pub(crate) fn points(&self) -> impl Iterator<Item = usize> {
        let skip = |p: usize| {
            matches!(self.disk.events().get(p), Some(Event::WriteCompleted { .. } | Event::WriteFailed { .. }))
        };
        (0..self.disk.points()).filter(move |p| !skip(*p))
    }
}

/// How many states of each crash point are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// States of the disk.
    pub disk: Limits,
    /// Choices of the key-value store's families for each.
    pub kv: usize,
}

/// What was checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// States mounted and compared.
    pub states: u64,
    /// Of them, after a crash during recovery.
    pub during_recovery: u64,
    /// The engine's counters over all mounts.
    pub counters: Counters,
}

impl Checked {
    /// Adds another part's.
    pub fn add(&mut self, other: &Checked) {
        self.states += other.states;
        self.during_recovery += other.during_recovery;
        add_counters(&mut self.counters, &other.counters);
    }
}

impl Base {
    /// Makes a store, applies `setup`, and unmounts it.
    pub fn new(options: Options, setup: &[Transaction]) -> Base {
        let (disk, kv) = options.mkfs();
        let kv = Arc::new(kv);
        let mut model = Model::new();
        let engine =
            Engine::mount(Box::new(disk.reopened()), kv.clone(), options.config.clone()).expect("a fresh store mounts");
        let mut drive = Drive::new(engine, options.seed);
        for t in setup {
            model.apply(t).expect("the setup applies");
            drive.submit(t.clone());
        }
        drive.settle();
        assert!(drive.committed.values().all(Result::is_ok), "the setup applies");
        drive.umount().expect("a store unmounts");
        Base { options, disk, kv: kv.image(), model }
    }

    /// The model of what it holds.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What it is made of.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// A copy of it to be damaged.
    pub fn copy(&self, seed: u64) -> (SimDisk, MemKv) {
        (self.disk.fork(seed), self.kv.durable())
    }

    /// Runs a workload on a copy and records everything.
    pub fn run(&self, workload: &[Transaction], manner: Manner) -> Trace {
        let disk = self.disk.fork(manner.seed);
        let kv = record(&disk, self.kv.durable());
        let mut model = self.model.clone();
        let mut states = vec![(model.clone(), Dump::of(&model))];
        let engine = Engine::mount(Box::new(disk.reopened()), kv.clone(), self.options.config.clone())
            .expect("a store at rest mounts");
        let mut drive = Drive::new(engine, manner.seed);
        let mut progress: Vec<(usize, usize)> = Vec::new();
        let mut note = |d: &Drive| {
            let now = (d.acked as usize, d.submitted() as usize);
            if progress.last() != Some(&now) {
                disk.mark(PROGRESS | progress.len() as u64);
                progress.push(now);
            }
        };
        for t in workload {
            model.apply(t).expect("a workload applies");
            states.push((model.clone(), Dump::of(&model)));
            while drive.submitted() - drive.acked >= manner.in_flight as u64 {
                drive.step(true);
                note(&drive);
            }
            // Submitting does no I/O: the mark comes before all that follows from it.
            drive.submit(t.clone());
            note(&drive);
            drive.step(false);
            note(&drive);
        }
        while drive.acked < drive.submitted() {
            drive.step(true);
            note(&drive);
        }
        for (n, r) in &drive.committed {
            assert!(r.is_ok(), "transaction {n} of a workload that applies: {r:?}");
        }
        drive.idle();
        let counters = drive.engine.counters();
        if manner.umount {
            drive.umount().expect("a store unmounts");
        }
        Trace { config: self.options.config.clone(), record: Record::new(&disk, &kv), progress, states, counters }
    }
}

/// Begins a recording of a disk and a key-value store together.
pub(crate) fn record(disk: &SimDisk, kv: MemKv) -> Arc<TraceKv> {
    disk.start_recording();
    let marker = disk.clone();
    Arc::new(TraceKv::new(kv, Box::new(move |n| marker.mark(n))))
}

impl Trace {
    /// Crash points that differ from each other.
    pub fn points(&self) -> Vec<usize> {
        self.record.points().collect()
    }

    /// The states that a crash at `point` may leave, and a text that says where this is.
    fn allowed(&self, point: usize) -> (&[(Model, Dump)], String) {
        let past = self.record.progress_from.partition_point(|p| *p <= point);
        let (acked, submitted) = past.checked_sub(1).map_or((0, 0), |i| self.progress[i]);
        let text =
            format!("crash point {point} of {}, acked {acked}, submitted {submitted}", self.record.disk.points());
        (&self.states[acked..=submitted], text)
    }

    /// Checks states after a crash at `point`.
    pub fn check(&self, point: usize, effort: Effort, rng: &mut SmallRng) -> Result<Checked, String> {
        let (states, context) = self.allowed(point);
        let mut checked = Checked::default();
        for disk in self.record.disk.states(point, &effort.disk) {
            for _ in 0..effort.kv {
                let kv = choose(self.record.kv(point), rng);
                let counters =
                    verify(&disk.fork(1), Arc::new(kv), &self.config, states).map_err(|e| format!("{context}: {e}"))?;
                checked.add(&Checked { states: 1, during_recovery: 0, counters });
            }
        }
        Ok(checked)
    }

    /// Crashes at `point`, then at each point of the recovery, `depth` times over.
    pub fn check_recovery(
        &self,
        point: usize,
        depth: usize,
        effort: Effort,
        rng: &mut SmallRng,
    ) -> Result<Checked, String> {
        let (states, context) = self.allowed(point);
        let mut checked = Checked::default();
        for disk in self.record.disk.states(point, &effort.disk) {
            let kv = choose(self.record.kv(point), rng);
            checked
                .add(&self.crash_again(disk, kv, states, depth, effort, rng).map_err(|e| format!("{context}: {e}"))?);
        }
        Ok(checked)
    }

    fn crash_again(
        &self,
        disk: SimDisk,
        kv: MemKv,
        states: &[(Model, Dump)],
        depth: usize,
        effort: Effort,
        rng: &mut SmallRng,
    ) -> Result<Checked, String> {
        let mut checked = Checked::default();
        let kv = record(&disk, kv);
        let engine = Engine::mount(Box::new(disk.reopened()), kv.clone(), self.config.clone())
            .map_err(|e| format!("does not mount: {e}"))?;
        drop(engine);
        let record = Record::new(&disk, &kv);
        for point in record.points() {
            let context = |e: String| format!("then point {point} of {} of the recovery: {e}", record.disk.points());
            for again in record.disk.states(point, &effort.disk) {
                let kv = choose(record.kv(point), rng);
                if depth > 1 {
                    checked.add(&self.crash_again(again, kv, states, depth - 1, effort, rng).map_err(context)?);
                } else {
                    let counters = verify(&again, Arc::new(kv), &self.config, states).map_err(context)?;
                    checked.add(&Checked { states: 1, during_recovery: 1, counters });
                }
            }
        }
        Ok(checked)
    }
}

/// Mounts, compares with the states that are allowed, checks the disk deeply, writes once more and
/// mounts again.
pub fn verify(
    disk: &SimDisk,
    kv: Arc<MemKv>,
    config: &EngineConfig,
    states: &[(Model, Dump)],
) -> Result<Counters, String> {
    let engine = Engine::mount(Box::new(disk.reopened()), kv.clone(), config.clone())
        .map_err(|e| format!("does not mount: {e}"))?;
    let mut drive = Drive::new(engine, 1);
    let mut model = compare(&mut drive, states)?;
    fsck(&mut drive)?;
    // It goes on working.
    let mut t = Transaction::new();
    t.write(C, lodestore::ObjectId::new("after"), 100, pattern(9, 5000)).touch(C, lodestore::ObjectId::new("a"));
    let (want, number) = (model.apply(&t), drive.submit(t));
    drive.settle();
    let got = drive.result(number).expect("settled").as_ref().map(|_| ()).map_err(ErrKind::from);
    if got != want && got != Err(ErrKind::NoSpace) {
        return Err(format!("a write after recovery answered {got:?}, expected {want:?}"));
    }
    if got == Err(ErrKind::NoSpace) {
        model = compare(&mut drive, states)?;
    }
    let mut counters = drive.engine.counters();
    drive.umount().map_err(|e| format!("does not unmount: {e}"))?;
    let engine = Engine::mount(Box::new(disk.reopened()), kv, config.clone())
        .map_err(|e| format!("does not mount after a clean unmount: {e}"))?;
    let mut drive = Drive::new(engine, 2);
    let dump = Dump::of(&model);
    compare(&mut drive, &[(model, dump)]).map_err(|e| format!("after a clean unmount: {e}"))?;
    add_counters(&mut counters, &drive.engine.counters());
    Ok(counters)
}

/// The model of the state that the store is in.
fn compare(drive: &mut Drive, states: &[(Model, Dump)]) -> Result<Model, String> {
    let mut query = |r| drive.query(r).map_err(|e| ErrKind::from(&e));
    let got = Dump::take(&mut query).map_err(|e| e.to_string())?;
    let fits: Vec<&Model> = states.iter().filter(|(_, d)| *d == got).map(|(m, _)| m).collect();
    if fits.is_empty() {
        let all: Vec<String> = states
            .iter()
            .enumerate()
            .map(|(i, (_, d))| format!("[+{i}: {}]", got.difference(d).unwrap_or_default()))
            .collect();
        return Err(format!("none of the {} allowed states: {}", states.len(), all.join(" ")));
    }
    // States that differ in sharing only are told apart by the account of space.
    let spaces: Vec<Result<(), String>> = fits.iter().map(|m| check::space(&mut query, m)).collect();
    match spaces.iter().rposition(Result::is_ok) {
        Some(i) => Ok(fits[i].clone()),
        None => Err(format!("the contents fit, their space does not: {:?}", spaces.last())),
    }
}

fn fsck(drive: &mut Drive) -> Result<(), String> {
    let report = drive.engine.fsck(true, false).map_err(|e| format!("fsck: {e}"))?;
    match report.errors.is_empty() {
        true => Ok(()),
        false => {
            Err(format!("fsck found: {}", report.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))
        }
    }
}

/// Sizes of the stores that crash: so small that the log goes round and space is used again.
pub fn tiny(policy: Policy, data: u64, seed: u64) -> Options {
    let segment = 32 << 10;
    let mut o =
        Options::new(Layout { data: vec![data], log: 8192 + 4 * segment, segment, prewrite: data }, policy, seed);
    o.config.deferred_batch = 8 << 10;
    o.config.deferred_max = 12 << 10;
    o.config.meta_cache_bytes = 64 << 10;
    o
}

const POLICIES: [Policy; 3] = [Policy::Auto, Policy::Deferred, Policy::Direct];

/// Checks every workload of one to three letters, at every crash point. `share` below 1 leaves out
/// that much of the longest ones. Panics at the first wrong state.
pub fn all_workloads(share: f64) -> Checked {
    let bases: Vec<Base> = POLICIES.iter().map(|p| Base::new(tiny(*p, 1 << 20, 1), &[alphabet::setup()])).collect();
    let shorter = alphabet::WORKLOADS - alphabet::LETTERS.pow(3);
    let count = shorter + ((alphabet::WORKLOADS - shorter) as f64 * share) as usize;
    let mut all = Checked::default();
    let work = |n: u64| {
        let letters = alphabet::workload(n as usize);
        let workload: Vec<Transaction> = letters.iter().enumerate().map(|(i, l)| alphabet::letter(*l, i)).collect();
        let mut rng = SmallRng::seed_from_u64(n);
        let mut checked = Checked::default();
        // One letter: everything, in every manner. Longer ones: a policy and a manner each.
        let manners: Vec<(usize, usize, bool)> = match letters.len() {
            1 => (0..3).flat_map(|p| [(p, 1, false), (p, 1, true)]).collect(),
            2 => (0..3).map(|p| (p, 1 + (n as usize + p) % 2, n % 8 == 0)).collect(),
            _ => vec![(n as usize % 3, 1 + (n as usize / 3) % 3, n % 16 == 0)],
        };
        for (policy, in_flight, umount) in manners {
            let manner = Manner { in_flight, umount, seed: n };
            let trace = bases[policy].run(&workload, manner);
            let disk = match letters.len() {
                1 => Limits { exhaustive_bits: 5, subset_samples: 24, torn_samples: 6, seed: n },
                2 => Limits { exhaustive_bits: 2, subset_samples: 2, torn_samples: 1, seed: n },
                _ => Limits { exhaustive_bits: 0, subset_samples: 0, torn_samples: 1, seed: n },
            };
            for point in trace.points() {
                let what = trace.check(point, Effort { disk, kv: 1 }, &mut rng);
                checked.add(&what.unwrap_or_else(|e| {
                    panic!("workload {n} {letters:?}, policy {}, {manner:?}: {e}", POLICIES[policy])
                }));
            }
        }
        checked
    };
    crate::parallel::run(count as u64, work, |_, c| all.add(&c));
    all
}

/// A random workload of 8 to 30 transactions on a small disk: letters, and what the generator of
/// the random sequences would do.
pub fn long_workload(options: &Options, start: &Model, rng: &mut SmallRng) -> Vec<Transaction> {
    let shape = Shape { write_max: 20 << 10, object_max: 40 << 10, refused_percent: 0, operations_max: 6 };
    let mut generator = Gen::new(rng.random(), shape);
    let mut model = start.clone();
    let total = options.layout.data.iter().sum::<u64>();
    let n = rng.random_range(8..=30);
    let mut workload = Vec::new();
    while workload.len() < n {
        let t = match rng.random_range(0..3) {
            0 => alphabet::letter(rng.random_range(0..alphabet::LETTERS), workload.len()),
            _ => generator.transaction(&model),
        };
        // Only what certainly has room, now and together with what replaces it.
        if model.allocated() + model.needed_at_most(&t) + (64 << 10) > total {
            let Some((c, oid, _)) = model.objects().next() else { continue };
            let mut t = Transaction::new();
            t.remove(c, oid.clone());
            model.apply(&t).expect("the object is there");
            workload.push(t);
            continue;
        }
        if model.apply(&t).is_ok() {
            workload.push(t);
        }
    }
    workload
}

/// Checks samples of long workloads: `n` of them, each with its own seed.
pub fn sampled_workloads(first_seed: u64, n: u64) -> Checked {
    let mut all = Checked::default();
    let work = |i: u64| {
        let seed = first_seed + i;
        let mut rng = SmallRng::seed_from_u64(seed);
        let policy = POLICIES[rng.random_range(0..3)];
        let data = rng.random_range(50..100) << 12;
        let mut options = tiny(policy, data, seed);
        options.config.depth = [1, 4, 32][rng.random_range(0..3)];
        let base = Base::new(options, &[alphabet::setup()]);
        let workload = long_workload(&base.options, base.model(), &mut rng);
        let manner = Manner { in_flight: rng.random_range(1..8), umount: rng.random_bool(0.2), seed };
        let trace = base.run(&workload, manner);
        let mut checked = Checked { counters: trace.counters, ..Checked::default() };
        let disk = Limits { exhaustive_bits: 1, subset_samples: 1, torn_samples: 1, seed };
        for point in trace.points() {
            if rng.random_range(0..4) == 0 {
                let what = trace.check(point, Effort { disk, kv: 1 }, &mut rng);
                checked
                    .add(&what.unwrap_or_else(|e| panic!("LODESTORE_SEED={seed}, policy {policy}, {manner:?}: {e}")));
            }
        }
        checked
    };
    crate::parallel::run(n, work, |_, c| all.add(&c));
    all
}

/// Crashes short workloads once, and then at every event of the recovery, and of its recovery.
pub fn recovery_workloads(n: u64) -> Checked {
    let bases: Vec<Base> = POLICIES.iter().map(|p| Base::new(tiny(*p, 1 << 20, 1), &[alphabet::setup()])).collect();
    let mut all = Checked::default();
    let work = |i: u64| {
        let mut rng = SmallRng::seed_from_u64(i);
        let letters: Vec<usize> = (0..rng.random_range(1..5)).map(|_| rng.random_range(0..alphabet::LETTERS)).collect();
        let workload: Vec<Transaction> = letters.iter().enumerate().map(|(i, l)| alphabet::letter(*l, i)).collect();
        let policy = i as usize % 3;
        let manner = Manner { in_flight: 1 + i as usize % 4, umount: false, seed: i };
        let trace = bases[policy].run(&workload, manner);
        let points = trace.points();
        let point = points[rng.random_range(0..points.len())];
        let one = Limits { exhaustive_bits: 0, subset_samples: 0, torn_samples: 1, seed: i };
        let depth = if i % 4 == 0 { 2 } else { 1 };
        let what = trace.check_recovery(point, depth, Effort { disk: one, kv: 1 }, &mut rng);
        what.unwrap_or_else(|e| panic!("recovery {i} of {letters:?}, policy {}, {manner:?}: {e}", POLICIES[policy]))
    };
    crate::parallel::run(n, work, |_, c| all.add(&c));
    all
}
