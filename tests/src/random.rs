//! Random sequences on the simulated disk, compared with the model at every step: answers of
//! transactions and reads in flight, whole contents after remounts and crashes, space, the deep
//! check.

use std::collections::VecDeque;

use lodestore::{Counters, Layout, Policy, Read};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::check::{self, Dump};
use crate::generate::{Gen, Shape};
use crate::model::{ErrKind, Model};
use crate::simstore::{Options, SimStore};
use crate::subject::summary;

/// Operations of one sequence.
pub const OPERATIONS: u64 = 150;

/// Transactions in flight, at most.
const IN_FLIGHT_MAX: usize = 12;

/// What a sequence did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Sequences.
    pub sequences: u64,
    /// Transactions answered.
    pub transactions: u64,
    /// Of them, refused.
    pub refused: u64,
    /// Of them, for lack of space.
    pub no_space: u64,
    /// Reads compared.
    pub reads: u64,
    /// Clean remounts.
    pub remounts: u64,
    /// Crashes recovered from.
    pub crashes: u64,
    /// The engine's counters, summed over all mounts.
    pub counters: Counters,
    /// Hash of every answer and of the disk at the end.
    pub hash: u64,
}

impl Totals {
    /// Adds another sequence's.
    pub fn add(&mut self, other: &Totals) {
        self.sequences += other.sequences;
        self.transactions += other.transactions;
        self.refused += other.refused;
        self.no_space += other.no_space;
        self.reads += other.reads;
        self.remounts += other.remounts;
        self.crashes += other.crashes;
        crate::simstore::add_counters(&mut self.counters, &other.counters);
        self.hash = (self.hash ^ other.hash).wrapping_mul(0x0100_0000_01b3);
    }
}

/// A transaction in flight: its number, what the model said, and the state after it.
struct Flying {
    number: u64,
    want: Result<(), ErrKind>,
    after: Model,
    what: Vec<String>,
}

struct Sequence {
    seed: u64,
    rng: SmallRng,
    generator: Gen,
    store: SimStore,
    /// State after everything acknowledged.
    acked: Model,
    flying: VecDeque<Flying>,
    /// Reads in flight: number, question, and where in `history` it was asked.
    reads: Vec<(u64, Read, usize)>,
    /// Every state since the oldest of them was asked.
    history: Vec<Model>,
    totals: Totals,
}

/// Sizes and policy of the store of a sequence, and of the work on it: all small, some so small
/// that data space or the log fill.
fn options(rng: &mut SmallRng, seed: u64) -> (Options, Shape) {
    let policy = [Policy::Auto, Policy::Auto, Policy::Direct, Policy::Deferred][rng.random_range(0..4)];
    let data: u64 = if rng.random_bool(0.3) { rng.random_range(48..160) << 12 } else { 2 << 20 };
    // A record is at most half a segment: in a small one only small transactions fit.
    let (segment, segments, shape) = match rng.random_range(0..10) {
        0 => (32 << 10, 4, Shape { write_max: 3 << 10, operations_max: 1, ..Shape::default() }),
        1..=2 => (64 << 10, 4, Shape { write_max: 6 << 10, operations_max: 2, ..Shape::default() }),
        _ => (128 << 10, rng.random_range(4..7), Shape::default()),
    };
    // Sometimes two fragment files, sometimes space that is not pre-written yet.
    let data =
        if rng.random_bool(0.3) { vec![data / 2 / 4096 * 4096, (data - data / 2) / 4096 * 4096] } else { vec![data] };
    let total: u64 = data.iter().sum();
    let prewrite = if rng.random_bool(0.3) { (total / 3).next_multiple_of(4096) } else { total };
    let mut o = Options::new(Layout { data, log: 8192 + segment * segments, segment, prewrite }, policy, seed);
    o.config.depth = [1, 2, 8, 64][rng.random_range(0..4)];
    o.config.data_cache_bytes = [0, 64 << 10, 1 << 20][rng.random_range(0..3)];
    o.config.meta_cache_bytes = [0, 16 << 10, 1 << 20][rng.random_range(0..3)];
    o.config.deferred_batch = [1, 32 << 10, 256 << 10][rng.random_range(0..3)];
    o.config.deferred_max = [4096, 64 << 10][rng.random_range(0..2)];
    o.config.prewrite_step = 128 << 10;
    (o, shape)
}

/// Runs one sequence. Panics with the seed and what went wrong.
pub fn sequence(seed: u64) -> Totals {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (options, shape) = options(&mut rng, seed);
    let mut s = Sequence {
        seed,
        generator: Gen::new(rng.random(), shape),
        rng,
        store: SimStore::new(options),
        acked: Model::new(),
        flying: VecDeque::new(),
        reads: Vec::new(),
        history: Vec::new(),
        totals: Totals { sequences: 1, ..Totals::default() },
    };
    s.submit(Gen::setup());
    for _ in 0..OPERATIONS {
        match s.rng.random_range(0..200) {
            0..=2 => s.remount(),
            3..=6 => s.crash(),
            7..=9 => s.compare(),
            10..=39 => s.read(),
            _ => {
                let newest = s.flying.back().map_or(&s.acked, |f| &f.after);
                let t = s.generator.transaction(newest);
                s.submit(t);
            }
        }
    }
    s.settle();
    s.compare();
    s.remount();
    let found = s.store.fsck();
    assert!(found.is_empty(), "{}: the deep check found {found:?}", s.context());
    s.totals.counters = s.store.counters();
    s.totals.hash = s.store.hash();
    s.totals
}

impl Sequence {
    fn context(&self) -> String {
        format!(
            "LODESTORE_SEED={} after {} transactions, {} crashes",
            self.seed, self.totals.transactions, self.totals.crashes
        )
    }

    /// The state after everything submitted.
    fn newest(&self) -> &Model {
        self.flying.back().map_or(&self.acked, |f| &f.after)
    }

    fn submit(&mut self, t: lodestore::Transaction) {
        let total = self.store.data_bytes();
        let mut after = self.newest().clone();
        let needed = after.needed_at_most(&t);
        // What cannot run out of space may be in flight with others; the rest is waited for.
        let roomy = after.allocated() + needed <= total;
        if !roomy {
            self.settle();
            after = self.acked.clone();
        }
        let what = summary(&t);
        let want = after.apply(&t);
        let number = self.store.submit(t);
        if roomy {
            if !self.reads.is_empty() {
                self.history.push(after.clone());
            }
            self.flying.push_back(Flying { number, want, after, what });
            let limit = 1 + self.rng.random_range(0..IN_FLIGHT_MAX);
            while self.flying.len() > limit {
                self.land();
            }
            if self.rng.random_bool(0.5) {
                self.store.step();
            }
            return;
        }
        let got = self.store.wait(number);
        self.totals.transactions += 1;
        // Space may end before the operation that would be refused anyway.
        if got == Err(ErrKind::NoSpace) {
            self.totals.no_space += 1;
            self.totals.refused += 1;
            return;
        }
        assert_eq!(got, want, "{}: {what:?}", self.context());
        self.totals.refused += u64::from(got.is_err());
        self.acked = after;
    }

    /// Waits for the oldest transaction in flight.
    fn land(&mut self) {
        let Some(f) = self.flying.pop_front() else { return };
        let got = self.store.wait(f.number);
        self.totals.transactions += 1;
        assert_eq!(got, f.want, "{}: {:?}", self.context(), f.what);
        self.totals.refused += u64::from(got.is_err());
        self.acked = f.after;
    }

    fn settle(&mut self) {
        while !self.flying.is_empty() {
            self.land();
        }
        let history = std::mem::take(&mut self.history);
        for (number, read, asked) in std::mem::take(&mut self.reads) {
            let got = self.store.answer(number);
            self.totals.reads += 1;
            // Never older than the question; newer is as good as asked later.
            let states = &history[asked..];
            let agreed = states.iter().any(|m| check::agree(&got, &m.query(&read)));
            let want = states[0].query(&read);
            assert!(
                agreed,
                "{}: {} answered {}, expected {}",
                self.context(),
                check::describe(&read),
                check::shorten(&got),
                check::shorten(&want)
            );
        }
    }

    fn read(&mut self) {
        let read = {
            let newest = self.flying.back().map_or(&self.acked, |f| &f.after);
            self.generator.read(newest)
        };
        if self.history.is_empty() {
            self.history.push(self.newest().clone());
        }
        let number = self.store.start_read(read.clone());
        self.reads.push((number, read, self.history.len() - 1));
        if self.reads.len() > 4 {
            self.settle();
        }
    }

    /// Compares everything.
    fn compare(&mut self) {
        self.settle();
        let got = Dump::take(&mut |r| self.store.query(r)).unwrap_or_else(|e| panic!("{}: {e}", self.context()));
        if let Some(d) = got.difference(&Dump::of(&self.acked)) {
            panic!("{}: {d}", self.context());
        }
        if let Err(e) = check::space(&mut |r| self.store.query(r), &self.acked) {
            let where_ = check::extents(&mut |r| self.store.query(r), &self.acked);
            panic!("{}: {e}; {where_:?}; fsck: {:?}", self.context(), self.store.fsck());
        }
    }

    fn remount(&mut self) {
        self.settle();
        if let Err(e) = self.store.remount() {
            panic!("{}: {e}", self.context());
        }
        self.totals.remounts += 1;
        self.compare();
    }

    /// Power fails with transactions in flight; what is there afterwards must be the state after
    /// some of those submitted, and all of those acknowledged.
    fn crash(&mut self) {
        self.reads.clear();
        self.history.clear();
        let acked = self.store.acked();
        while self.flying.front().is_some_and(|f| f.number < acked) {
            self.land();
        }
        let how: u64 = self.rng.random();
        if let Err(e) = self.store.crash(how) {
            panic!("{}: crash {how}: {e}", self.context());
        }
        self.totals.crashes += 1;
        let got =
            Dump::take(&mut |r| self.store.query(r)).unwrap_or_else(|e| panic!("{}: crash {how}: {e}", self.context()));
        let mut states: Vec<Model> = vec![self.acked.clone()];
        states.extend(self.flying.drain(..).map(|f| f.after));
        let fits: Vec<Model> = states.iter().filter(|m| Dump::of(m) == got).cloned().collect();
        if fits.is_empty() {
            let d = got.difference(&Dump::of(&states[0])).unwrap_or_default();
            panic!(
                "{}: crash {how}: none of {} states fits; to the acknowledged one: {d}",
                self.context(),
                states.len()
            );
        }
        // States may differ in sharing only: the account of space tells them apart.
        let right = fits.into_iter().rev().find(|m| check::space(&mut |r| self.store.query(r), m).is_ok());
        let Some(right) = right else {
            let e = check::space(&mut |r| self.store.query(r), &self.acked);
            panic!("{}: crash {how}: the space of no fitting state fits: {e:?}", self.context());
        };
        self.acked = right;
    }
}
