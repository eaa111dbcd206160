//! The real engine on the simulated disk and the in-memory key-value store.

use std::collections::VecDeque;
use std::sync::Arc;

use lodestore::{Answer, Counters, Engine, EngineConfig, Error, Layout, Policy, Read, Transaction};
use lodestore_aio::SimDisk;
use lodestore_kv::{CFS, MemKv};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::drive::Drive;
use crate::model::ErrKind;
use crate::subject::Subject;

/// Identity of every simulated store.
pub const UUID: [u8; 16] = *b"simulated store!";

/// What a simulated store is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sizes.
    pub layout: Layout,
    /// Choices of every mount.
    pub config: EngineConfig,
    /// Decides the order of completions and the moments of jobs.
    pub seed: u64,
}

impl Options {
    /// Small caches and batches, so that every path is short.
    pub fn new(layout: Layout, policy: Policy, seed: u64) -> Self {
        let config = EngineConfig {
            policy,
            depth: 32,
            meta_cache_bytes: 256 << 10,
            data_cache_bytes: 0,
            deferred_max: 64 << 10,
            deferred_batch: 64 << 10,
            prewrite_step: 1 << 20,
            ..EngineConfig::default()
        };
        Options { layout, config, seed }
    }

    /// Makes the files of a store on a new disk; what is durable then, and the key-value store.
    pub fn mkfs(&self) -> (SimDisk, MemKv) {
        let mut disk = SimDisk::new(self.seed);
        let kv = MemKv::new();
        Engine::mkfs(&mut disk, &kv, &self.layout, UUID, &mut |_, _, _| ()).expect("a simulated disk has room");
        (disk, kv)
    }
}

/// One of so many lookups of metadata finds nothing in memory.
const LOOKUP_BLOCKS_EVERY: u64 = 17;

/// See the module's description.
pub struct SimStore {
    options: Options,
    disk: SimDisk,
    kv: Arc<MemKv>,
    drive: Option<Drive>,
    mounts: u64,
    /// Counters of the mounts before this one.
    counted: Counters,
    /// Transactions submitted in mounts before this one: numbers go on across mounts.
    base: u64,
    waiting: VecDeque<u64>,
    hash: u64,
}

impl SimStore {
    /// Makes and mounts a store.
    pub fn new(options: Options) -> Self {
        let (disk, kv) = options.mkfs();
        let mut s = SimStore {
            options,
            disk,
            kv: Arc::new(kv),
            drive: None,
            mounts: 0,
            counted: Counters::default(),
            base: 0,
            waiting: VecDeque::new(),
            hash: 0xcbf2_9ce4_8422_2325,
        };
        s.mount().expect("a fresh store mounts");
        s
    }

    /// A store for the conformance cases: room for `space` bytes of data, a log of about `log`.
    pub fn fresh(space: u64, log: u64, policy: Policy) -> Self {
        let segment = log / 8;
        let layout = Layout { data: vec![space], log: 8192 + 5 * segment, segment, prewrite: space / 2 };
        SimStore::new(Options::new(layout, policy, 7))
    }

    fn mount(&mut self) -> Result<(), Error> {
        self.mounts += 1;
        // Now and then metadata is not in memory and must be looked up by somebody else.
        self.kv.block_every(LOOKUP_BLOCKS_EVERY);
        let engine = Engine::mount(Box::new(self.disk.reopened()), self.kv.clone(), self.options.config.clone())?;
        self.drive = Some(Drive::new(engine, self.options.seed.wrapping_add(self.mounts)));
        Ok(())
    }

    fn drive(&mut self) -> &mut Drive {
        self.drive.as_mut().expect("mounted but for a moment")
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.hash = (self.hash ^ u64::from(crc32c::crc32c(bytes))).wrapping_mul(0x0100_0000_01b3);
    }

    fn mix_answer(&mut self, answer: &Result<Answer, ErrKind>) {
        match answer {
            Ok(Answer::Data(parts)) => parts.iter().for_each(|p| self.mix(p)),
            other => self.mix(format!("{other:?}").as_bytes()),
        }
    }

    fn leave(&mut self) -> Drive {
        let drive = self.drive.take().expect("mounted but for a moment");
        add_counters(&mut self.counted, &drive.engine.counters());
        self.base += drive.submitted();
        self.waiting.clear();
        drive
    }

    /// Room for object data, in bytes.
    pub fn data_bytes(&self) -> u64 {
        self.options.layout.data.iter().sum()
    }

    /// Submits a transaction; its number.
    pub fn submit(&mut self, t: Transaction) -> u64 {
        let base = self.base;
        base + self.drive().submit(t)
    }

    /// Waits for a transaction of this mount.
    pub fn wait(&mut self, number: u64) -> Result<(), ErrKind> {
        let number = number - self.base;
        let drive = self.drive();
        drive.until(|d| d.result(number).is_some());
        let result = drive.result(number).expect("waited for it").as_ref().map(|_| ()).map_err(ErrKind::from);
        self.mix(format!("{result:?}").as_bytes());
        result
    }

    /// Transactions answered without a gap, over all mounts.
    pub fn acked(&mut self) -> u64 {
        let base = self.base;
        base + self.drive().acked
    }

    /// Lets the engine do a little.
    pub fn step(&mut self) {
        self.drive().step(false);
    }

    /// Starts a read; its number in this mount.
    pub fn start_read(&mut self, read: Read) -> u64 {
        self.drive().start_read(read)
    }

    /// Waits for the answer of a read.
    pub fn answer(&mut self, number: u64) -> Result<Answer, ErrKind> {
        let answer = self.drive().answer(number).map_err(|e| ErrKind::from(&e));
        self.mix_answer(&answer);
        answer
    }

    /// Asks and waits.
    pub fn query(&mut self, read: Read) -> Result<Answer, ErrKind> {
        let number = self.start_read(read);
        self.answer(number)
    }

    /// Unmounts cleanly and mounts again.
    pub fn remount(&mut self) -> Result<(), Error> {
        self.leave().umount()?;
        self.mount()
    }

    /// Power fails: of what was not synced anything may be lost or torn, and each family of the
    /// key-value store stands where it likes since its last flush. Then mounts again.
    pub fn crash(&mut self, how: u64) -> Result<(), Error> {
        let mut rng = SmallRng::seed_from_u64(how);
        // Before the engine goes: its ring would wait for what is in flight.
        let disk = self.disk.crash_random(rng.random());
        drop(self.leave());
        self.disk = disk;
        self.kv = Arc::new(choose(&self.kv.image(), &mut rng));
        self.mount()
    }

    /// Checks deeply; what is wrong, in words.
    pub fn fsck(&mut self) -> Vec<String> {
        self.drive().idle();
        match self.drive().engine.fsck(true, false) {
            Ok(report) => {
                let mut found: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
                found.extend(self.ledger_error());
                found
            }
            Err(e) => vec![e.to_string()],
        }
    }

    /// Where the ledger's two counts disagree, by class and by type of operation.
    fn ledger_error(&mut self) -> Option<String> {
        let l = self.drive().engine.ledger();
        let by_class = [l.user(), l.data_direct, l.data_deferred, l.log_payload, l.log_metadata];
        let t = l.by_op.total();
        let by_op = [t.user, t.data_direct, t.data_deferred, t.log_payload, t.log_metadata];
        (by_class != by_op).then(|| format!("ledger: {by_class:?} by class, {by_op:?} by operation"))
    }

    /// The engine's counters over all mounts.
    pub fn counters(&mut self) -> Counters {
        let mut all = self.counted;
        add_counters(&mut all, &self.drive().engine.counters());
        all
    }

    /// Hash of every answer so far, and of the disk and the key-value store as they are.
    pub fn hash(&mut self) -> u64 {
        let disk = self.disk.hash();
        self.mix(&disk.to_le_bytes());
        let image = self.kv.image();
        for cf in CFS {
            for (k, v) in image.by_cf[cf as usize].last().expect("never empty").entries() {
                self.mix(k);
                self.mix(v);
            }
        }
        self.hash
    }
}

/// A store after a crash: each family at a random point since its last flush, the two ends more
/// often than others.
pub fn choose(image: &lodestore_kv::KvImage, rng: &mut SmallRng) -> MemKv {
    let together = rng.random_range(0..4);
    image.choose(image.lengths().map(|n| match (together, rng.random_range(0..4)) {
        (0, _) | (2.., 0) => 0,
        (1, _) | (2.., 1) => n - 1,
        _ => rng.random_range(0..n),
    }))
}

impl Subject for SimStore {
    fn submit(&mut self, t: Transaction) {
        let number = SimStore::submit(self, t);
        self.waiting.push_back(number);
        // Some work is done between submissions, as it would be.
        self.step();
    }

    fn settle(&mut self) -> Vec<Result<(), ErrKind>> {
        std::mem::take(&mut self.waiting).into_iter().map(|n| self.wait(n)).collect()
    }

    fn query(&mut self, read: Read) -> Result<Answer, ErrKind> {
        SimStore::query(self, read)
    }

    fn remount(&mut self) {
        SimStore::remount(self).expect("the store unmounts and mounts");
    }

    fn fsck(&mut self) -> Vec<String> {
        SimStore::fsck(self)
    }

    fn is_scaled_down(&self) -> bool {
        true
    }
}

macro_rules! sum {
    ($a:ident, $b:ident: $($field:ident)*) => {
        $($a.$field += $b.$field;)*
    };
}

/// Adds the counters of another mount.
pub fn add_counters(a: &mut Counters, b: &Counters) {
    sum!(a, b: commits refused enospc_refused batches group_commits syncs log_wraps log_full_waits space_waits
        lookups_elsewhere allocator_wraps cow_copies blocks_fetched deferred_applied deferred_coalesced deferred_dropped kv_flushes trims cache_hits reads_retried damaged_blocks
        records_replayed records_cut torn_tails_cut deferred_replayed allocator_rebuilds);
}
