//! Panics in the middle of the engine's work, at its fail points: nothing of a transaction is half
//! there afterwards, nobody waits for ever, and the store can be mounted again.
//!
//! Fail points belong to the process, so these run one at a time.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestore::{Commit, Engine, Policy, Store};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::alphabet;
use crate::check::{self, Dump};
use crate::crash::{long_workload, tiny, verify};
use crate::drive::Drive;
use crate::generate::{Gen, Shape};
use crate::kill::POINTS;
use crate::model::{ErrKind, Model};
use crate::realstore;
use crate::simstore::choose;

/// What a panic of a fail point says.
const SAYS: &str = "a panic at a fail point";

/// How often each point was reached in time, and panicked.
pub type Reached = BTreeMap<&'static str, u64>;

/// Makes the process panic once, when a fail point is passed for the `n`-th time from now (0 is the
/// next), while this lives.
struct Trap {
    point: &'static str,
    sprung: Arc<AtomicU64>,
}

impl Trap {
    fn new(point: &'static str, n: u64) -> Trap {
        let (left, sprung) = (AtomicU64::new(n), Arc::new(AtomicU64::new(0)));
        let count = sprung.clone();
        fail::cfg_callback(point, move || {
            if left.fetch_sub(1, Ordering::SeqCst) == 0 {
                count.fetch_add(1, Ordering::SeqCst);
                panic::panic_any(SAYS);
            }
        })
        .expect("fail points are compiled in");
        Trap { point, sprung }
    }

    fn is_sprung(&self) -> bool {
        self.sprung.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        fail::remove(self.point);
    }
}

/// Keeps the panics of this module off the screen while `work` runs.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let ordinary = Arc::new(panic::take_hook());
    let behind = ordinary.clone();
    panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&SAYS) {
            behind(info);
        }
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    drop(panic::take_hook());
    panic::set_hook(Box::new(move |info| ordinary(info)));
    result.unwrap_or_else(|e| panic::resume_unwind(e))
}

/// The engine on the simulated disk panics at a random moment; afterwards either the process was
/// merely gone, or power failed as well. Panics with the seed at the first wrong state.
pub fn in_the_engine(first_seed: u64, n: u64) -> Reached {
    let mut reached: Reached = POINTS.iter().map(|p| (*p, 0)).collect();
    quietly(|| {
        for seed in first_seed..first_seed + n {
            let point = POINTS[(seed % POINTS.len() as u64) as usize];
            *reached.get_mut(point).expect("listed above") += u64::from(case(seed, point));
        }
    });
    reached
}

fn case(seed: u64, point: &'static str) -> bool {
    let mut rng = SmallRng::seed_from_u64(seed);
    let policy = [Policy::Auto, Policy::Deferred, Policy::Direct][rng.random_range(0..3)];
    let options = tiny(policy, 1 << 20, seed);
    let (disk, kv) = options.mkfs();
    let kv = Arc::new(kv);
    let mount = || Engine::mount(Box::new(disk.reopened()), kv.clone(), options.config.clone());
    let mut drive = Drive::new(mount().expect("a fresh store mounts"), seed);
    let mut model = Model::new();
    model.apply(&alphabet::setup()).expect("the setup applies");
    drive.submit(alphabet::setup());
    drive.settle();
    let workload = long_workload(&options, &model, &mut rng);
    let mut states = vec![(model.clone(), Dump::of(&model))];

    // A mount passes its point once.
    let trap = Trap::new(point, if point.starts_with("mount") { 0 } else { rng.random_range(0..8) });
    let work = AssertUnwindSafe(|| {
        for t in &workload {
            model.apply(t).expect("a workload applies");
            states.push((model.clone(), Dump::of(&model)));
            drive.submit(t.clone());
            for _ in 0..rng.random_range(0..4) {
                drive.step(rng.random_bool(0.5));
            }
        }
        drive.settle();
        drive.idle();
    });
    let finished = panic::catch_unwind(work);
    // A panic of a job that runs elsewhere is a failure of the store, which goes on reading.
    let failed = drive.engine.poisoned().is_some();
    assert_eq!(finished.is_err() || failed, trap.is_sprung(), "seed {seed}: {point} and what came of it");
    let acked = drive.committed.values().take_while(|r| r.is_ok()).count() - 1;
    let submitted = drive.submitted() as usize - 1;
    // Unmounting and mounting have fail points, too. An engine that panicked goes as it is.
    let unmount = || if finished.is_ok() { drive.umount() } else { Ok(()) };
    if let Ok(result) = panic::catch_unwind(AssertUnwindSafe(unmount)) {
        assert!(result.is_ok() || trap.is_sprung(), "seed {seed}, {point}: {result:?}");
    }
    let mounted = panic::catch_unwind(AssertUnwindSafe(mount)).is_ok_and(|m| m.is_ok());
    assert!(mounted || trap.is_sprung(), "seed {seed}, {point}: does not mount");
    let sprung = trap.is_sprung();
    drop(trap);

    let (disk, kv) = match rng.random_bool(0.5) {
        true => (disk.clone(), kv),
        false => (disk.crash_random(rng.random()), Arc::new(choose(&kv.image(), &mut rng))),
    };
    if let Err(e) = verify(&disk, kv, &options.config, &states[acked..=submitted]) {
        panic!("seed {seed}, policy {policy}, {point}, acked {acked}, submitted {submitted}: {e}");
    }
    sprung
}

/// The thread of a real store panics: everybody who waits gets an answer, and the directory can be
/// mounted again at once, by the same process.
pub fn in_the_stores_thread(seed: u64) -> Reached {
    quietly(|| POINTS.iter().map(|point| (*point, u64::from(real_case(seed, point)))).collect())
}

fn real_case(seed: u64, point: &'static str) -> bool {
    let dir = realstore::temp_dir();
    // So small that the log goes round and trims.
    realstore::mkfs(dir.path(), 24 << 20, 1 << 20);
    let mut generator = Gen::new(seed, Shape::default());
    let mut states = vec![Model::new()];
    let submit = |store: &Store, generator: &mut Gen, states: &mut Vec<Model>| -> (Commit, Result<(), ErrKind>) {
        let mut next = states.last().expect("never empty").clone();
        let t = if states.len() == 1 { Gen::setup() } else { generator.transaction(&next) };
        let wanted = next.apply(&t);
        states.push(next);
        (store.submit(t), wanted)
    };
    let trap = Trap::new(point, if point.starts_with("mount") { 0 } else { 1 });
    let mut acked = 0;
    if let Ok(store) = panic::catch_unwind(|| realstore::mount(dir.path())) {
        let store = store.expect("a fresh store mounts");
        let mut lost = false;
        for round in 0..5 {
            let commits: Vec<_> = (0..40).map(|_| submit(&store, &mut generator, &mut states)).collect();
            for (i, (commit, wanted)) in commits.into_iter().enumerate() {
                match commit.wait().map_err(|e| ErrKind::from(&e)) {
                    Err(ErrKind::Unmounted | ErrKind::Poisoned) => lost = true,
                    got => {
                        let got = got.map(drop);
                        assert_eq!(got, wanted, "{point}: transaction {i} of round {round}");
                        // A refusal need not wait for those before it.
                        assert!(!lost || got.is_err(), "{point}: transaction {i} was acknowledged after a lost one");
                        acked += usize::from(!lost);
                    }
                }
            }
            // Flushes, writes in place and trims, whatever the log would need.
            lost |= store.flush().is_err();
        }
        assert!(!lost || trap.is_sprung(), "{point}: answers are lost without a panic");
        // It says that it failed if it did, and not before.
        assert!(store.umount().is_ok() || trap.is_sprung(), "{point}: does not unmount");
    }
    let sprung = trap.is_sprung();
    drop(trap);
    let store = realstore::mount(dir.path()).unwrap_or_else(|e| panic!("after {point}: does not mount: {e}"));
    let mut query = |r| store.query(r).wait().map_err(|e| ErrKind::from(&e));
    let kept = check::prefix(&mut query, &states, acked).unwrap_or_else(|e| panic!("after {point}: {e}"));
    // It goes on working from there.
    states.truncate(kept + 1);
    for _ in 0..20 {
        let (commit, wanted) = submit(&store, &mut generator, &mut states);
        assert_eq!(commit.wait().map(drop).map_err(|e| ErrKind::from(&e)), wanted, "after {point}");
    }
    store.umount().unwrap_or_else(|e| panic!("after {point}: does not unmount: {e}"));
    assert_eq!(realstore::fsck(dir.path()), [""; 0], "after {point}");
    sprung
}
