//! Disks that lie and disks that fail: damage is found and never returned as data, a failed write
//! or sync ends writing and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use lodestore::{Answer, CollectionId, Engine, Error, FsckError, ObjectId, Policy, Read, Transaction};
use lodestore_aio::SimDisk;
use lodestore_aio::sim::OpKind;
use lodestore_kv::{Kv, KvImage, MemKv};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::alphabet;
use crate::check::Dump;
use crate::crash::{long_workload, tiny, verify};
use crate::drive::Drive;
use crate::model::{BLOCK, ErrKind, Model};
use crate::simstore::{Options, choose};

/// A store at rest: disk, an older version of it, key-value store, what it holds.
pub struct Rest {
    options: Options,
    disk: SimDisk,
    older: SimDisk,
    kv: KvImage,
    model: Model,
    workload: Vec<Transaction>,
    /// The state after each of the first transactions of the workload.
    states: Vec<(Model, Dump)>,
}

impl Rest {
    /// Makes a store, works on it, and unmounts it; what it would do next is its workload.
    pub fn new(policy: Policy, seed: u64) -> Rest {
        let mut rng = SmallRng::seed_from_u64(seed);
        let options = tiny(policy, 1 << 20, seed);
        let (disk, kv) = options.mkfs();
        let kv = Arc::new(kv);
        let engine =
            Engine::mount(Box::new(disk.reopened()), kv.clone(), options.config.clone()).expect("a fresh store mounts");
        let mut drive = Drive::new(engine, seed);
        let mut model = Model::new();
        model.apply(&alphabet::setup()).expect("the setup applies");
        drive.submit(alphabet::setup());
        let mut older = disk.fork(seed);
        for part in 0..4 {
            for t in long_workload(&options, &model, &mut rng) {
                model.apply(&t).expect("a workload applies");
                drive.submit(t);
                drive.settle();
            }
            drive.idle();
            if part == 1 {
                older = disk.fork(seed);
            }
        }
        assert!(drive.committed.values().all(Result::is_ok), "a workload applies");
        drive.umount().expect("a store unmounts");
        let workload = long_workload(&options, &model, &mut rng);
        let mut state = model.clone();
        let mut states = vec![(state.clone(), Dump::of(&state))];
        for t in &workload {
            state.apply(t).expect("a workload applies");
            states.push((state.clone(), Dump::of(&state)));
        }
        Rest { options, disk: disk.fork(seed), older, kv: kv.image(), model, workload, states }
    }

    fn mount(&self, disk: &SimDisk, kv: Arc<MemKv>) -> Result<Drive, Error> {
        Ok(Drive::new(Engine::mount(Box::new(disk.reopened()), kv, self.options.config.clone())?, 1))
    }
}

/// What damage did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Damage {
    /// Cases.
    pub cases: u64,
    /// Of them, in which a block of an object was hit.
    pub hit: u64,
}

/// Flips bits, swaps, reverts and clears blocks of data, `cases` times.
pub fn damaged_data(cases: u64) -> Damage {
    let rests: Vec<Rest> = [Policy::Auto, Policy::Direct, Policy::Deferred]
        .into_iter()
        .enumerate()
        .map(|(i, p)| Rest::new(p, 40 + i as u64))
        .collect();
    let mut all = Damage::default();
    let work = |i: u64| damaged_case(&rests[i as usize % 3], i);
    crate::parallel::run(cases, work, |_, hit| {
        all.cases += 1;
        all.hit += u64::from(hit);
    });
    all
}

fn damaged_case(rest: &Rest, case: u64) -> bool {
    const FILE: &str = "data.0";
    let mut rng = SmallRng::seed_from_u64(case);
    let disk = rest.disk.fork(case);
    let blocks = rest.options.layout.data[0] / BLOCK;
    // Most of the space was never written: damage there is no test.
    let mut somewhere = || {
        let mut at = 0;
        for _ in 0..200 {
            at = rng.random_range(0..blocks) * BLOCK;
            if disk.peek(FILE, at, BLOCK as usize).iter().any(|b| *b != 0) {
                break;
            }
        }
        at
    };
    let (a, b) = (somewhere(), somewhere());
    // How many blocks may be wrong afterwards.
    let (what, changed) = match rng.random_range(0..4) {
        0 => {
            let at = a + rng.random_range(0..BLOCK);
            disk.flip(FILE, at, rng.random_range(0..8));
            ("flip", 1)
        }
        1 => {
            disk.swap_blocks(FILE, a, b);
            ("swap", 2)
        }
        2 => {
            disk.poke(FILE, a, &rest.older.peek(FILE, a, BLOCK as usize));
            ("revert", 1)
        }
        _ => {
            disk.poke(FILE, a, &[0; BLOCK as usize]);
            ("clear", 1)
        }
    };
    let context = format!("case {case}: {what} at {a}, {b}");
    let mut drive = rest.mount(&disk, Arc::new(rest.kv.durable())).unwrap_or_else(|e| panic!("{context}: {e}"));
    let mut wrong: BTreeSet<(CollectionId, ObjectId, u64)> = BTreeSet::new();
    let mut identities = BTreeSet::new();
    for (c, oid, object) in rest.model.objects() {
        let mut whole = true;
        for block in 0..object.size.div_ceil(BLOCK) {
            match drive.query(Read::Data(c, oid.clone(), vec![(block * BLOCK, BLOCK)])) {
                Ok(Answer::Data(d)) => assert_eq!(
                    d[0],
                    object.read(block * BLOCK, BLOCK),
                    "{context}: wrong bytes of {oid}, block {block}"
                ),
                Err(Error::Damaged { oid: named, offset, .. }) => {
                    assert_eq!((&*named, offset), (oid, block * BLOCK), "{context}: the error names another place");
                    wrong.insert((c, oid.clone(), offset));
                    identities.insert(object.blocks.get(&block).map(|b| b.as_ptr()));
                    whole = false;
                }
                other => panic!("{context}: read of {oid} answered {other:?}"),
            }
        }
        let all = drive.query(Read::Data(c, oid.clone(), vec![(0, object.size)]));
        assert_eq!(all.is_ok(), whole, "{context}: {oid} as a whole answered {:?}", all.map(drop));
    }
    assert!(identities.len() <= changed, "{context}: {} blocks read as damaged, {changed} were", identities.len());
    let report = drive.engine.fsck(true, false).unwrap_or_else(|e| panic!("{context}: {e}"));
    let found: BTreeSet<(ObjectId, u64)> = report
        .errors
        .into_iter()
        .map(|e| match e {
            FsckError::Data { oid, offset, .. } => (oid, offset),
            other => panic!("{context}: fsck found {other}"),
        })
        .collect();
    let named: BTreeSet<(ObjectId, u64)> = wrong.iter().map(|(_, o, at)| (o.clone(), *at)).collect();
    assert_eq!(found, named, "{context}: fsck and reads disagree");
    !wrong.is_empty()
}

/// Flips a bit in each sector of the log of a store that crashed: it is mounted with everything
/// acknowledged, or refused. Only the very last batch may be taken for a torn one. Returns how
/// many sectors there were, and how many mounts were refused.
pub fn damaged_log() -> (u64, u64) {
    let rest = Rest::new(Policy::Deferred, 50);
    let disk = rest.disk.fork(1);
    let kv = Arc::new(rest.kv.durable());
    let mut drive = rest.mount(&disk, kv.clone()).expect("a store at rest mounts");
    let workload = &rest.workload[..8];
    for t in workload {
        drive.submit(t.clone());
        drive.settle();
    }
    let (disk, image) = (disk.fork(2), kv.image());
    drop(drive);
    let sectors = rest.options.layout.log / 512;
    let (mut refused, mut shortened) = (0, 0);
    for sector in 0..sectors {
        let broken = disk.fork(sector);
        broken.flip("log", sector * 512 + sector % 512, (sector % 8) as u8);
        match rest.mount(&broken, Arc::new(image.durable())) {
            Err(Error::Wal(_) | Error::Mount(_) | Error::Metadata(_)) => refused += 1,
            Err(e) => panic!("sector {sector}: {e}"),
            Ok(mut drive) => {
                let got = Dump::take(&mut |r| drive.query(r).map_err(|e| ErrKind::from(&e)))
                    .unwrap_or_else(|e| panic!("sector {sector}: {e}"));
                if got == rest.states[workload.len()].1 {
                    continue;
                }
                assert!(
                    got == rest.states[workload.len() - 1].1,
                    "sector {sector}: acknowledged transactions are silently gone"
                );
                shortened += 1;
            }
        }
    }
    // One transaction of a few deferred blocks is all that the last batch holds.
    assert!(shortened <= 64, "{shortened} sectors look like the end of the log");
    (sectors, refused)
}

/// Something that goes wrong once, at the n-th occasion.
type Inject = fn(&SimDisk, &MemKv, u64);

/// Every fault that ends writing, by name.
pub const FATAL: &[(&str, Inject)] = &[
    ("EIO on a write of the log", |d, _, n| d.fail_nth(OpKind::Write, |f| f == "log", n, libc::EIO)),
    ("EIO on a write of data", |d, _, n| d.fail_nth(OpKind::Write, |f| f.starts_with("data"), n, libc::EIO)),
    ("EIO on a sync", |d, _, n| d.fail_nth(OpKind::Sync, |_| true, n, libc::EIO)),
    ("ENOSPC on a write of data", |d, _, n| d.fail_nth(OpKind::Write, |f| f.starts_with("data"), n, libc::ENOSPC)),
    ("a failed write of the key-value store", |_, kv, n| kv.fail_writes_after(n - 1)),
    ("a failed flush of the key-value store", |_, kv, n| kv.fail_flushes_after(n - 1)),
];

/// Injects each fatal fault at every occasion there is; how many occasions there were.
pub fn fatal_faults() -> u64 {
    let mut occasions = 0;
    for (i, policy) in [Policy::Auto, Policy::Direct, Policy::Deferred].into_iter().enumerate() {
        let rest = Rest::new(policy, 60 + i as u64);
        for (what, inject) in FATAL {
            for n in 1.. {
                if !fatal_fault(&rest, *inject, n, &format!("{what}, occasion {n}, policy {policy}")) {
                    break;
                }
                occasions += 1;
            }
        }
    }
    occasions
}

/// Whether the fault happened.
fn fatal_fault(rest: &Rest, inject: Inject, n: u64, context: &str) -> bool {
    let (disk, kv) = (rest.disk.fork(n), Arc::new(rest.kv.durable()));
    let mut drive = rest.mount(&disk, kv.clone()).expect("a store at rest mounts");
    inject(&disk, &kv, n);
    for t in &rest.workload {
        while drive.submitted() - drive.acked >= 3 {
            drive.step(true);
        }
        drive.submit(t.clone());
    }
    drive.settle();
    // Work is done; let the background do its part.
    while drive.step(true) {}
    let poisoned = drive.engine.poisoned().is_some();
    let acked = drive.committed.values().take_while(|r| r.is_ok()).count();
    for (number, r) in drive.committed.iter().skip(acked) {
        let kind = r.as_ref().map_err(ErrKind::from);
        assert_eq!(kind, Err(ErrKind::Poisoned), "{context}: transaction {number} after the failure");
    }
    if !poisoned {
        assert_eq!(acked, rest.workload.len(), "{context}: refused without a failure");
        let broken = disk.counters().faults > 0;
        assert!(!broken, "{context}: nobody noticed the failure");
        return false;
    }
    // Nothing more is taken, everything acknowledged is readable.
    let late = drive.submit(Transaction::new());
    drive.settle();
    assert!(drive.result(late).is_some_and(Result::is_err), "{context}: a poisoned store took a transaction");
    match Dump::take(&mut |r| drive.query(r).map_err(|e| ErrKind::from(&e))) {
        Ok(got) => {
            if let Some(d) = got.difference(&rest.states[acked].1) {
                panic!("{context}: a poisoned store reads otherwise than acknowledged: {d}");
            }
        }
        // Without its key-value store it may know that it does not know.
        Err(e) if kv.flush().is_err() && e.kind == Some(ErrKind::Poisoned) => {}
        Err(e) => panic!("{context}: {e}"),
    }
    assert!(drive.engine.umount().1.is_err(), "{context}: a poisoned store unmounted as if it were clean");
    // A new mount finds a prefix.
    let mut rng = SmallRng::seed_from_u64(n);
    for seed in 0..4 {
        let (disk, kv) = (disk.crash_random(seed), choose(&kv.image(), &mut rng));
        let states = &rest.states[acked..=rest.workload.len()];
        verify(&disk, Arc::new(kv), &rest.options.config, states)
            .unwrap_or_else(|e| panic!("{context}, then crash {seed}: {e}"));
    }
    true
}

/// Fails the n-th read, write or sync of a mount after a crash, for every n: the mount says so (or
/// did not need what it could not read), and the next one works. How many occasions there were.
pub fn faults_while_mounting() -> u64 {
    let rest = Rest::new(Policy::Auto, 70);
    let (disk, kv) = (rest.disk.fork(1), Arc::new(rest.kv.durable()));
    let mut drive = rest.mount(&disk, kv.clone()).expect("a store at rest mounts");
    for t in &rest.workload {
        drive.submit(t.clone());
    }
    drive.settle();
    let (disk, image) = (disk.crash(1), kv.image());
    drop(drive);
    let states = &rest.states[rest.workload.len()..];
    let mut occasions = 0;
    for kind in [OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Open] {
        for n in 1.. {
            let disk = disk.fork(n);
            let kv = Arc::new(image.durable());
            disk.fail_nth(kind, |_| true, n, libc::EIO);
            let mounted = rest.mount(&disk, kv.clone());
            if disk.counters().faults == 0 {
                break;
            }
            occasions += 1;
            if let Ok(mut drive) = mounted {
                // What it could not read is there twice.
                let got = Dump::take(&mut |r| drive.query(r).map_err(|e| ErrKind::from(&e))).expect("it mounted");
                assert!(kind == OpKind::Read && got == states[0].1, "{kind:?} {n} failed and the mount went on");
            }
            let mut rng = SmallRng::seed_from_u64(n);
            for seed in 0..4 {
                let (disk, kv) = (disk.crash_random(seed), choose(&kv.image(), &mut rng));
                verify(&disk, Arc::new(kv), &rest.options.config, states)
                    .unwrap_or_else(|e| panic!("{kind:?} {n}, then crash {seed}: {e}"));
            }
        }
    }
    occasions
}

/// Fails the n-th read of data, for every n: that request says so, and nothing else does.
pub fn failed_reads() -> u64 {
    let rest = Rest::new(Policy::Auto, 80);
    for n in 1.. {
        let disk = rest.disk.fork(n);
        let mut drive = rest.mount(&disk, Arc::new(rest.kv.durable())).expect("a store at rest mounts");
        disk.fail_nth(OpKind::Read, |f| f.starts_with("data"), n, libc::EIO);
        let mut failed = 0;
        for (c, oid, object) in rest.model.objects() {
            match drive.query(Read::Data(c, oid.clone(), vec![(0, object.size)])) {
                Ok(Answer::Data(d)) => assert_eq!(d[0], object.read(0, object.size), "wrong bytes of {oid}"),
                Err(Error::ReadFailed { oid: named, .. }) => {
                    assert_eq!(&*named, oid);
                    failed += 1;
                }
                other => panic!("read of {oid} answered {other:?}"),
            }
        }
        if failed == 0 {
            assert_eq!(disk.counters().faults, 0, "read {n} failed and nobody was told");
            return n - 1;
        }
        let got = Dump::take(&mut |r| drive.query(r).map_err(|e| ErrKind::from(&e))).expect("the fault is over");
        assert!(got == Dump::of(&rest.model));
    }
    unreachable!("there is an end of reads")
}

/// A disk that takes its time, with one request in flight: everything is done in the end.
pub fn slow_disk_of_depth_one() {
    for policy in [Policy::Auto, Policy::Direct, Policy::Deferred] {
        let mut rest = Rest::new(policy, 90);
        rest.options.config.depth = 1;
        let (disk, kv) = (rest.disk.fork(1), Arc::new(rest.kv.durable()));
        let mut drive = rest.mount(&disk, kv).expect("a store at rest mounts");
        disk.delay(5);
        for t in &rest.workload {
            drive.submit(t.clone());
            drive.start_read(Read::Data(alphabet::C, ObjectId::new("a"), vec![(0, 1 << 20)]));
        }
        drive.idle();
        let got = Dump::take(&mut |r| drive.query(r).map_err(|e| ErrKind::from(&e))).expect("a slow disk reads");
        assert!(got == rest.states[rest.workload.len()].1);
        drive.umount().expect("a slow store unmounts");
    }
}

/// A disk too small for the store: mkfs says so.
pub fn mkfs_on_a_full_disk() {
    let options = tiny(Policy::Auto, 1 << 20, 1);
    for capacity in [0, 4096, 1 << 20, (1 << 20) + 100_000] {
        let mut disk = SimDisk::new(1);
        disk.set_capacity(capacity);
        let result = Engine::mkfs(&mut disk, &MemKv::new(), &options.layout, [1; 16], &mut |_, _, _| ());
        match result {
            Err(Error::Io(e)) if e.is_full() => {}
            other => panic!("mkfs on a disk of {capacity} bytes: {other:?}"),
        }
        assert!(Engine::mount(Box::new(disk.reopened()), Arc::new(MemKv::new()), options.config.clone()).is_err());
    }
}
