//! `fsck --repair`: everything it mends is mended, whatever it is interrupted by, and what it would
//! have to guess it leaves exactly as it is.

use std::sync::Arc;

use lodestore::format::chunk::{Chunk, Slot};
use lodestore::format::shared::Region;
use lodestore::format::snapshot::{self, Head};
use lodestore::format::{key, small};
use lodestore::{Engine, FsckError, FsckReport, Policy, Read};
use lodestore_aio::SimDisk;
use lodestore_aio::sim::Limits;
use lodestore_kv::{CFS, Cf, Kv, KvOp, MemKv};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::alphabet;
use crate::check::Dump;
use crate::crash::{Base, Record, long_workload, record, tiny, verify};
use crate::drive::Drive;
use crate::model::{BLOCK, ErrKind, Model};
use crate::simstore::choose;

/// Object and omap numbers that no test comes to, and that an engine will not refuse.
const NOBODY: u64 = 1 << 40;

/// A store at rest whose metadata can be changed behind its back.
struct Wound<'a> {
    base: &'a Base,
    disk: SimDisk,
    kv: MemKv,
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

impl Wound<'_> {
    fn entries(&self, cf: Cf) -> Entries {
        self.kv.iter(cf, &[0], &[0xff; 32]).map(|e| e.expect("memory can be read")).collect()
    }

    /// Changes metadata as a bug or bit rot would: durably, and unknown to the log.
    fn write(&self, ops: &[KvOp]) {
        let lsn = CFS.iter().map(|cf| self.kv.marker(*cf).expect("memory can be read")).max().expect("five families");
        self.kv.write(ops, lsn).expect("memory can be written");
        self.kv.flush().expect("memory can be flushed");
    }

    fn put(&self, cf: Cf, key: Vec<u8>, value: Vec<u8>) {
        self.write(&[KvOp::Put { cf, key, value }]);
    }

    /// Changes the snapshot of the allocator, which an unmount left.
    fn snapshot(&self, change: impl FnOnce(&mut Head, &mut Vec<(u64, u64)>)) {
        let get = |part| self.kv.get(Cf::Meta, &key::snapshot(part)).expect("memory can be read").expect("it is there");
        let mut head = Head::decode(&get(0)).expect("an unmount left it");
        assert_eq!(head.parts, 1, "a small store has one part");
        let mut runs = snapshot::decode_runs(&get(1)).expect("an unmount left it");
        change(&mut head, &mut runs);
        head.used = runs.iter().map(|(_, n)| n).sum();
        self.put(Cf::Meta, key::snapshot(0), head.encode());
        self.put(Cf::Meta, key::snapshot(1), snapshot::encode_runs(&runs));
    }

    fn blocks(&self) -> u64 {
        self.base.options().layout.data.iter().sum::<u64>() / BLOCK
    }

    /// A block that nobody uses.
    fn free_block(&self) -> u64 {
        let used: Vec<u64> = self.entries(Cf::Extent).iter().flat_map(|(_, v)| places(v)).collect();
        (0..self.blocks()).rev().find(|b| !used.contains(b)).expect("the store is not full")
    }

    /// The region of some shared block, and what is recorded of it.
    fn region(&self) -> (Vec<u8>, Region) {
        let (key, value) = self.entries(Cf::Shared).into_iter().next().expect("something is shared");
        (key, Region::decode(&value).expect("it was encoded"))
    }

    fn recount(&self, change: impl FnOnce(&mut Region)) {
        let (key, mut region) = self.region();
        change(&mut region);
        self.put(Cf::Shared, key, region.encode());
    }

    /// A chunk with a block of its own, its key, and the number of the block in it.
    fn sole(&self) -> (Vec<u8>, Chunk, usize) {
        let found = self.entries(Cf::Extent).into_iter().find_map(|(k, v)| {
            let chunk = Chunk::decode(&v).expect("it was encoded");
            let i = chunk.slots.iter().position(|s| s.is_some_and(|s| !s.shared))?;
            Some((k, chunk, i))
        });
        found.expect("some block belongs to one object only")
    }

    fn mount(&self, disk: &SimDisk, kv: Arc<dyn Kv>) -> Result<Engine, String> {
        Engine::mount(Box::new(disk.reopened()), kv, self.base.options().config.clone())
            .map_err(|e| format!("does not mount: {e}"))
    }
}

fn places(chunk: &[u8]) -> Vec<u64> {
    Chunk::decode(chunk).expect("it was encoded").slots.iter().flatten().map(|s| s.place).collect()
}

/// Damages a store, which is at rest.
type Damage = fn(&Wound<'_>);
/// Whether a finding is the one that a damage must lead to.
type Finding = fn(&FsckError) -> bool;

/// Everything that can be mended.
const MENDED: &[(&str, Damage, Finding)] = &[
    (
        "a leak",
        |w| {
            w.snapshot(|_, runs| {
                // The last run grows over free blocks, or becomes one with the run behind it.
                let end: u64 = runs.iter().map(|(gap, n)| gap + n).sum();
                assert!(end + 3 <= w.blocks(), "there is room behind the last run");
                runs.last_mut().expect("something is stored").1 += 3;
            })
        },
        |e| matches!(e, FsckError::Leaked { blocks: 3 }),
    ),
    (
        "a block in use that is marked free",
        |w| {
            w.snapshot(|_, runs| match runs[0] {
                (gap, 1) => {
                    runs.remove(0);
                    runs[0].0 += gap + 1;
                }
                (gap, n) => runs[0] = (gap + 1, n - 1),
            })
        },
        |e| matches!(e, FsckError::UsedButFree { .. }),
    ),
    (
        "a wrong number of objects",
        |w| w.snapshot(|head, _| head.objects += 2),
        |e| matches!(e, FsckError::Totals { what: "objects", .. }),
    ),
    (
        "a wrong number of mapped blocks",
        |w| w.snapshot(|head, _| head.stored -= 1),
        |e| matches!(e, FsckError::Totals { what: "mapped blocks", .. }),
    ),
    (
        "a reference count too high",
        |w| w.recount(|r| *r.counts.values_mut().next().expect("a region has a count") += 1),
        |e| matches!(e, FsckError::RefCount { .. }),
    ),
    (
        "a reference count that is missing",
        |w| w.write(&[KvOp::Delete { cf: Cf::Shared, key: w.region().0 }]),
        |e| matches!(e, FsckError::RefCount { recorded: 1, .. }),
    ),
    (
        "a reference count of a block that nobody shares",
        |w| w.recount(|r| _ = r.counts.insert((0..).find(|i| !r.counts.contains_key(i)).expect("some"), 2)),
        |e| matches!(e, FsckError::RefCount { recorded: 2, .. }),
    ),
    (
        "an extent map of no object",
        |w| {
            let mut chunk = Chunk::default();
            chunk.slots[3] = Some(Slot { place: w.free_block(), crc: 1, shared: false });
            w.put(Cf::Extent, key::extent(NOBODY, 0), chunk.encode());
        },
        |e| matches!(e, FsckError::Stray { key } if key.starts_with("extent")),
    ),
    (
        "omap keys of no object",
        |w| {
            w.put(Cf::Omap, key::omap(NOBODY, b"key"), small::encode_bytes(b"value"));
            w.put(Cf::Omap, key::omap_header(NOBODY), small::encode_bytes(b"header"));
        },
        |e| matches!(e, FsckError::Stray { key } if key.starts_with("omap")),
    ),
    (
        "everything at once",
        |w| MENDED[..MENDED.len() - 1].iter().filter(|(what, ..)| !what.contains("missing")).for_each(|(_, d, _)| d(w)),
        |e| matches!(e, FsckError::Leaked { .. }),
    ),
];

/// Everything that cannot be mended without a guess.
const LEFT: &[(&str, Damage, Finding)] = &[
    (
        "rotten data",
        |w| {
            let (_, chunk, i) = w.sole();
            w.disk.flip("data.0", chunk.slots[i].expect("a block").place * BLOCK + 9, 3);
        },
        |e| matches!(e, FsckError::Data { .. }),
    ),
    (
        "an object that cannot be decoded, and a wrong count",
        |w| {
            let (key, mut value) = w.entries(Cf::Onode).pop().expect("there are objects");
            value[0] = 0xee;
            w.put(Cf::Onode, key, value);
            w.recount(|r| *r.counts.values_mut().next().expect("a region has a count") += 1);
        },
        |e| matches!(e, FsckError::Metadata { .. }),
    ),
    (
        "an extent map that cannot be decoded",
        |w| {
            let (key, chunk, _) = w.sole();
            let mut value = chunk.encode();
            value.pop();
            w.put(Cf::Extent, key, value);
        },
        |e| matches!(e, FsckError::Metadata { .. }),
    ),
    (
        "a block that two objects believe to be their own, and keys of nobody",
        |w| {
            let (key, mut chunk, i) = w.sole();
            let place = chunk.slots[i].expect("a block").place;
            let mut others = w.entries(Cf::Extent).into_iter().flat_map(|(_, v)| places(&v));
            let other = others.find(|p| *p != place).expect("there are two blocks");
            chunk.slots[i] = Some(Slot { place: other, crc: 1, shared: false });
            w.put(Cf::Extent, key, chunk.encode());
            w.put(Cf::Omap, key::omap(NOBODY, b"key"), small::encode_bytes(b"value"));
        },
        |e| matches!(e, FsckError::DoubleUse { .. }),
    ),
];

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Repairs {
    /// Damaged stores that were mended.
    pub mended: u64,
    /// States after a crash in the middle of it that were mended again.
    pub crash_states: u64,
    /// Damaged stores that were left as they were.
    pub left: u64,
}

/// Stores at rest with something shared, something deferred, omaps and holes.
fn bases() -> Vec<Base> {
    let base = |policy, seed| {
        let options = tiny(policy, 1 << 20, seed);
        let mut model = Model::new();
        let mut setup = vec![alphabet::setup()];
        model.apply(&setup[0]).expect("the setup applies");
        let mut rng = SmallRng::seed_from_u64(seed);
        for t in long_workload(&options, &model, &mut rng) {
            model.apply(&t).expect("a workload applies");
            setup.push(t);
        }
        // Whatever the workload left, this is there at the end.
        let mut last = alphabet::letter(7, 0);
        last.write(alphabet::C, lodestore::ObjectId::new("last"), 0, crate::subject::pattern(3, 9000));
        setup.push(last);
        Base::new(options, &setup)
    };
    vec![base(Policy::Auto, 300), base(Policy::Direct, 301), base(Policy::Deferred, 302)]
}

/// Mends, and leaves, everything there is. Panics at the first thing that is wrong.
pub fn everything() -> Repairs {
    let mut all = Repairs::default();
    for base in &bases() {
        for (what, damage, finding) in MENDED {
            all.crash_states += mend(base, *damage, *finding).unwrap_or_else(|e| panic!("{what}: {e}"));
            all.mended += 1;
        }
        for (what, damage, finding) in LEFT {
            leave(base, *damage, *finding).unwrap_or_else(|e| panic!("{what}: {e}"));
            all.left += 1;
        }
    }
    all
}

fn fsck(engine: &mut Engine, repair: bool) -> Result<FsckReport, String> {
    engine.fsck(true, repair).map_err(|e| format!("fsck answered {e}"))
}

fn found(report: &FsckReport) -> String {
    report.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn mend(base: &Base, damage: Damage, finding: Finding) -> Result<u64, String> {
    let (disk, kv) = base.copy(1);
    let w = Wound { base, disk, kv };
    damage(&w);
    let config = &base.options().config;
    let states = [(base.model().clone(), Dump::of(base.model()))];

    // Without --repair it says what it found, again and again, and mends nothing.
    let traced = record(&w.disk, w.kv.image().current());
    let mut engine = w.mount(&w.disk, traced.clone())?;
    let first = fsck(&mut engine, false)?;
    let again = fsck(&mut engine, false)?;
    if first.errors.is_empty() || !first.errors.iter().any(finding) {
        return Err(format!("fsck found: {}", found(&first)));
    }
    if first != again || first.repaired != 0 || !first.errors.iter().all(FsckError::is_repairable) {
        return Err(format!("fsck found first: {}; then: {}", found(&first), found(&again)));
    }

    // With it, all of it.
    let report = fsck(&mut engine, true)?;
    if report.repaired != report.errors.len() as u64 || report.errors.is_empty() {
        return Err(format!("{} of these were mended: {}", report.repaired, found(&report)));
    }
    let after = fsck(&mut engine, false)?;
    if !after.errors.is_empty() {
        return Err(format!("left after the repair: {}", found(&after)));
    }
    let mut drive = Drive::new(engine, 1);
    let got = Dump::take(&mut |r: Read| drive.query(r).map_err(|e| ErrKind::from(&e))).map_err(|e| e.to_string())?;
    if let Some(d) = got.difference(&states[0].1) {
        return Err(format!("the repair changed what is stored: {d}"));
    }
    drive.umount().map_err(|e| format!("does not unmount: {e}"))?;
    let record = Record::new(&w.disk, &traced);
    let kept = Arc::new(traced.inner().image().current());
    verify(&w.disk, kept, config, &states).map_err(|e| format!("after the repair: {e}"))?;

    // Interrupted anywhere, from the mount to the unmount, it can be done again.
    let mut crash_states = 0;
    let mut rng = SmallRng::seed_from_u64(7);
    let limits = Limits { exhaustive_bits: 1, subset_samples: 1, torn_samples: 1, seed: 7 };
    for point in record.points() {
        for disk in record.disk.states(point, &limits) {
            for _ in 0..2 {
                let kv = Arc::new(choose(record.kv(point), &mut rng));
                mend_again(&w, &disk, kv, &states).map_err(|e| format!("crash point {point}: {e}"))?;
                crash_states += 1;
            }
        }
    }
    Ok(crash_states)
}

fn mend_again(w: &Wound<'_>, disk: &SimDisk, kv: Arc<MemKv>, states: &[(Model, Dump)]) -> Result<(), String> {
    let mut engine = w.mount(disk, kv.clone())?;
    let report = fsck(&mut engine, true)?;
    if report.repaired != report.errors.len() as u64 {
        return Err(format!("{} of these were mended: {}", report.repaired, found(&report)));
    }
    engine.umount().1.map_err(|e| format!("does not unmount: {e}"))?;
    verify(disk, kv, &w.base.options().config, states).map(drop)
}

fn leave(base: &Base, damage: Damage, finding: Finding) -> Result<(), String> {
    let (disk, kv) = base.copy(2);
    let w = Wound { base, disk, kv };
    damage(&w);
    let kv = Arc::new(w.kv.image().current());
    let contents = |kv: &MemKv| -> Vec<Entries> {
        let all = |cf: &Cf| kv.iter(*cf, &[0], &[0xff; 32]).map(|e| e.expect("memory can be read")).collect();
        CFS.iter().map(all).collect()
    };
    let mut engine = w.mount(&w.disk, kv.clone())?;
    let first = fsck(&mut engine, false)?;
    if !first.errors.iter().any(finding) {
        return Err(format!("fsck found: {}", found(&first)));
    }
    let before = contents(&kv);
    let report = fsck(&mut engine, true)?;
    if report.repaired != 0 || report.errors != first.errors {
        return Err(format!("{} of these were mended: {}", report.repaired, found(&report)));
    }
    if contents(&kv) != before {
        return Err("metadata was changed by a guess".into());
    }
    Ok(())
}
