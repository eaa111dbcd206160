//! Crash states: records what the real engine does to the disk and the key-value store, builds
//! what a power failure at any point may leave, mounts the real engine on it and compares.

use std::sync::Arc;

use lodestore::{Counters, Engine, EngineConfig, Transaction};
use lodestore_aio::SimDisk;
use lodestore_kv::{KvImage, MemKv};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::check::{self, Dump};
use crate::drive::Drive;
use crate::model::{ErrKind, Model};
use crate::simdisk::{self, Record};
use crate::simstore::{Options, add_counters, choose};
use crate::subject::pattern;
use crate::tracekv::TraceKv;
use crate::alphabet::C;

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
    /// What a crash could leave of the key-value store, from which disk event on.
    diary: Vec<(usize, KvImage)>,
    /// Disk events, transactions acknowledged, transactions submitted: at every change.
    progress: Vec<(usize, u64, u64)>,
    /// The model after each transaction, the first before any.
    states: Vec<(Model, Dump)>,
    /// Counters of the run.
    pub counters: Counters,
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
        let engine = Engine::mount(Box::new(disk.clone()), kv.clone(), options.config.clone()).expect("a fresh store mounts");
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

    /// Runs a workload on a copy and records everything.
    pub fn run(&self, workload: &[Transaction], manner: Manner) -> Trace {
        let disk = simdisk::copy(&self.disk);
        simdisk::start_recording(&disk);
        let position = {
            let disk = disk.clone();
            move || simdisk::position(&disk)
        };
        let kv = Arc::new(TraceKv::new(self.kv.durable(), Box::new(position.clone())));
        let mut model = self.model.clone();
        let mut states = vec![(model.clone(), Dump::of(&model))];
        let engine = Engine::mount(Box::new(disk.clone()), kv.clone(), self.options.config.clone()).expect("a store at rest mounts");
        let mut drive = Drive::new(engine, manner.seed);
        let mut progress = vec![(0, 0, 0)];
        let mut note = |d: &Drive| {
            let now = (position(), d.acked, d.submitted());
            if progress.last().is_none_or(|p| (p.1, p.2) != (now.1, now.2)) {
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
        Trace { config: self.options.config.clone(), record: simdisk::record(&disk), diary: kv.diary(), progress, states, counters }
    }
}

/// A state of disk and key-value store after a crash.
struct Wreck {
    disk: SimDisk,
    kv: MemKv,
}

fn wreck(record: &Record, diary: &[(usize, KvImage)], position: usize, rng: &mut SmallRng) -> Wreck {
    // The notes made at this very event, and the last one before them.
    let end = diary.partition_point(|(p, _)| *p <= position);
    let first = diary.partition_point(|(p, _)| *p < position).saturating_sub(1);
    let image = &diary[rng.random_range(first..end)].1;
    Wreck { disk: simdisk::state(record, position, rng), kv: choose(image, rng) }
}

impl Trace {
    /// Number of disk events.
    pub fn events(&self) -> usize {
        self.record.len()
    }

    /// Acknowledged and submitted transactions when `position` events had happened.
    fn bounds(&self, position: usize) -> (usize, usize) {
        let past = self.progress.partition_point(|(p, _, _)| *p <= position);
        let (_, acked, submitted) = self.progress[past - 1];
        (acked as usize, submitted as usize)
    }

    /// Checks one state after a crash at `position`.
    pub fn check(&self, position: usize, rng: &mut SmallRng) -> Result<Checked, String> {
        let w = wreck(&self.record, &self.diary, position, rng);
        let (acked, submitted) = self.bounds(position);
        let context = |e: String| format!("crash after {position} of {} disk events, acked {acked}, submitted {submitted}: {e}", self.events());
        let counters = verify(w.disk, Arc::new(w.kv), &self.config, &self.states[acked..=submitted]).map_err(context)?;
        Ok(Checked { states: 1, during_recovery: 0, counters })
    }

    /// Crashes at `position`, then at each event of the recovery, `depth` times over.
    pub fn check_recovery(&self, position: usize, depth: usize, states_each: usize, rng: &mut SmallRng) -> Result<Checked, String> {
        let w = wreck(&self.record, &self.diary, position, rng);
        let (acked, submitted) = self.bounds(position);
        let context = |e: String| format!("crash after {position} of {} disk events, acked {acked}, submitted {submitted}: {e}", self.events());
        self.crash_again(w, &self.states[acked..=submitted], depth, states_each, rng).map_err(context)
    }

    fn crash_again(&self, w: Wreck, states: &[(Model, Dump)], depth: usize, states_each: usize, rng: &mut SmallRng) -> Result<Checked, String> {
        let mut checked = Checked::default();
        simdisk::start_recording(&w.disk);
        let disk = w.disk.clone();
        let kv = Arc::new(TraceKv::new(w.kv, Box::new(move || simdisk::position(&disk))));
        let engine = Engine::mount(Box::new(w.disk.clone()), kv.clone(), self.config.clone()).map_err(|e| format!("does not mount: {e}"))?;
        drop(engine);
        let (record, diary) = (simdisk::record(&w.disk), kv.diary());
        for position in 0..=record.len() {
            for _ in 0..states_each {
                let again = wreck(&record, &diary, position, rng);
                let context = |e: String| format!("then after {position} of {} events of recovery: {e}", record.len());
                if depth > 1 {
                    // Every event of the second recovery would be too many: one state each.
                    checked.add(&self.crash_again(again, states, depth - 1, 1, rng).map_err(context)?);
                } else {
                    let counters = verify(again.disk, Arc::new(again.kv), &self.config, states).map_err(context)?;
                    checked.add(&Checked { states: 1, during_recovery: 1, counters });
                }
            }
        }
        Ok(checked)
    }
}

/// Mounts, compares with the states that are allowed, checks the disk deeply, writes once more and
/// mounts again.
pub fn verify(disk: SimDisk, kv: Arc<MemKv>, config: &EngineConfig, states: &[(Model, Dump)]) -> Result<Counters, String> {
    let engine = Engine::mount(Box::new(disk.clone()), kv.clone(), config.clone()).map_err(|e| format!("does not mount: {e}"))?;
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
    let engine = Engine::mount(Box::new(disk), kv, config.clone()).map_err(|e| format!("does not mount after a clean unmount: {e}"))?;
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
        let all: Vec<String> = states.iter().enumerate().map(|(i, (_, d))| format!("[+{i}: {}]", got.difference(d).unwrap_or_default())).collect();
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
        false => Err(format!("fsck found: {}", report.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
    }
}
