//! First the process is killed, so that what it had written but not flushed is still to be seen;
//! then, while the next mount is under way, power fails and takes that away.
//!
//! Recovery must not do anything because of what it sees before that is durable.

use std::sync::Arc;

use lodestore::{Engine, Policy};
use lodestore_aio::sim::OpKind;
use lodestore_kv::MemKv;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::alphabet;
use crate::check::Dump;
use crate::crash::{long_workload, tiny, verify};
use crate::drive::Drive;
use crate::model::Model;
use crate::simstore::choose;

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Killed {
    /// Cases.
    pub cases: u64,
    /// Of them, in which something was written and not flushed when the process was killed.
    pub unflushed: u64,
    /// Of them, in which power failed before the mount was done.
    pub interrupted: u64,
}

/// Tries `n` cases. Panics with the seed at the first wrong state.
pub fn then_power_fails(first_seed: u64, n: u64) -> Killed {
    let mut all = Killed::default();
    crate::parallel::run(
        n,
        |i| case(first_seed + i),
        |_, (unflushed, interrupted)| {
            all.cases += 1;
            all.unflushed += u64::from(unflushed);
            all.interrupted += u64::from(interrupted);
        },
    );
    all
}

fn case(seed: u64) -> (bool, bool) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let policy = [Policy::Auto, Policy::Deferred, Policy::Direct][rng.random_range(0..3)];
    let options = tiny(policy, 1 << 20, seed);
    let (disk, kv) = options.mkfs();
    let kv = Arc::new(kv);
    let mount = |disk, kv: &Arc<MemKv>| Engine::mount(Box::new(disk), kv.clone(), options.config.clone());
    let mut drive = Drive::new(mount(disk.reopened(), &kv).expect("a fresh store mounts"), seed);
    let mut model = Model::new();
    model.apply(&alphabet::setup()).expect("the setup applies");
    drive.submit(alphabet::setup());
    drive.settle();

    let workload = long_workload(&options, &model, &mut rng);
    let mut states = vec![(model.clone(), Dump::of(&model))];
    for t in &workload {
        model.apply(t).expect("a workload applies");
        states.push((model.clone(), Dump::of(&model)));
        drive.submit(t.clone());
        for _ in 0..rng.random_range(0..4) {
            drive.step(rng.random_bool(0.5));
        }
        if rng.random_range(0..workload.len()) == 0 {
            break;
        }
    }
    // The setup is the first transaction, and the first state is the one behind it.
    let (acked, submitted) = (drive.acked as usize - 1, drive.submitted() as usize - 1);
    drop(drive);
    let unflushed = disk.volatile() != (0, 0);

    let kv = Arc::new(choose(&kv.image(), &mut rng));
    let kind = [OpKind::Write, OpKind::Sync][rng.random_range(0..2)];
    disk.fail_from(kind, |_| true, rng.random_range(1..12), libc::EIO);
    let interrupted = match mount(disk.reopened(), &kv) {
        Ok(engine) => {
            drop(engine);
            false
        }
        Err(_) => true,
    };
    let after = disk.crash_random(rng.random());
    let kv = Arc::new(choose(&kv.image(), &mut rng));
    if let Err(e) = verify(&after, kv, &options.config, &states[acked..=submitted]) {
        panic!("LODESTORE_SEED={seed}, policy {policy}, acked {acked}, submitted {submitted}: {e}");
    }
    (unflushed, interrupted)
}
