//! The engine: a state machine that takes transactions and reads in, moves bytes through a ring,
//! and gives completions out. It owns no thread, no clock and no file, so whoever drives it (a loop
//! thread, a caller's own loop, the simulator) decides when it runs, and it always does the same.
//!
//! The life of a transaction, and what is durable in each state, is in `docs/commit.md`.

mod background;
mod commit;
mod fsck;
mod mkfs;
mod mount;
mod parts;
mod read;
mod umount;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use lodestore_aio::{Done, EventFd, FileId, Io, IoOp, Ring, Wait};
use lodestore_kv::Kv;

use crate::alloc::{Allocator, Limbo};
use crate::config::EngineConfig;
use crate::datacache::DataCache;
use crate::deferred::DeferredSet;
use crate::error::Error;
use crate::format::chunk::Slot;
use crate::format::{BLOCK_LEN, key};
use crate::ledger::{Counters, Ledger};
use crate::meta::Meta;
use crate::read::{Answer, Read};
use crate::txn::{Op, Transaction};
use crate::types::{CollectionId, Lsn, ObjectId};

pub use background::{Job, JobDone, LOOKUP_THREADS};
use commit::{Durable, Group, Queued};
pub use fsck::{FsckError, FsckReport};
pub(crate) use mkfs::check_layout;
pub use mkfs::{LOG_FILE, data_file};
use read::Reading;

/// A completion.
#[derive(Debug)]
pub enum Event {
    /// A transaction is durable, or refused, or lost to a failure of the store.
    Committed {
        /// As given to [`Engine::submit`].
        token: u64,
        /// Its position in the log.
        result: Result<Lsn, Error>,
    },
    /// A read is answered.
    Answered {
        /// As given to [`Engine::read`].
        token: u64,
        /// The answer.
        result: Result<Answer, Error>,
    },
}

/// Where blocks of the data space lie.
#[derive(Debug)]
struct DataFile {
    file: FileId,
    name: String,
    first: u64,
    blocks: u64,
}

/// Transactions and reads under way on one object.
#[derive(Debug, Default)]
struct Flight {
    /// Submission numbers of transactions that are not yet in the key-value store, ascending.
    txns: VecDeque<u64>,
    /// Submission numbers of reads that wait for some of them.
    reads: VecDeque<u64>,
}

/// See the module's description.
pub struct Engine {
    config: EngineConfig,
    ring: Box<dyn Ring>,
    kv: Arc<dyn Kv>,
    wal: lodestore_wal::Writer,
    log_file: FileId,
    data: Vec<DataFile>,
    /// The store's uuid, if its fragment files have labels.
    label_uuid: Option<[u8; 16]>,
    meta: Meta,
    alloc: Allocator,
    limbo: Limbo,
    deferred: DeferredSet,
    cache: DataCache,
    /// Direct writes of transactions that are not acknowledged, by first block: contents, because
    /// a transaction that needs them must not race with the write that brings them to the medium.
    writing: BTreeMap<u64, Bytes>,

    /// Number of the next transaction or read submitted.
    next_seq: u64,
    /// Submitted, not planned.
    queue: VecDeque<Queued>,
    /// The open group at the back, the sealed one (if any) before it.
    groups: VecDeque<Group>,
    next_group: u64,
    /// Acknowledged, not in the key-value store.
    unapplied: VecDeque<Durable>,
    flights: HashMap<Vec<u8>, Flight>,
    /// Every transaction not yet in the key-value store.
    pending: BTreeSet<u64>,
    /// Reads of more than one object that wait for every transaction before them.
    barriers: VecDeque<u64>,
    reads: HashMap<u64, Reading>,
    /// Reads of old block contents for planning: for whom, and what.
    fetches: HashMap<u64, (u64, Slot)>,
    /// Pieces of reads in flight: which read, which piece.
    read_ios: HashMap<u64, (u64, usize)>,
    next_fetch: u64,
    /// Deferred contents in the open batch, in bytes.
    open_payload: u64,
    events: Vec<Event>,
    jobs: VecDeque<Job>,

    /// I/O that waits for a place in the ring.
    backlog: VecDeque<Io>,
    /// Bytes of data queued since I/O was last handed to the ring.
    backlog_bytes: u64,
    acked: Lsn,
    applied: Lsn,
    /// Highest LSN whose metadata the key-value store has made durable.
    flushed: Lsn,
    flushing: bool,
    /// The log is trimmed up to here, as soon as a durable batch says so.
    trimmed: Lsn,
    /// The log is to be trimmed up to here.
    trim_goal: Lsn,
    /// A sync for deferred writes alone is in flight.
    lone_sync: bool,
    /// Writes in place in flight: first block, blocks, I/Os left.
    applies: HashMap<u64, (u64, u64, usize)>,
    next_apply: u64,
    /// The transaction at the front of the queue waits for free blocks.
    space_wanted: bool,
    prewriting: Option<background::Prewrite>,
    /// The driver expects more transactions at once: see [`Engine::expect_more`].
    more_to_come: bool,

    stored: u64,
    objects: u64,
    ledger: Ledger,
    counters: Counters,
    poison: Option<Arc<str>>,
    /// Objects and collections with acknowledged changes that did not get into the key-value store
    /// (a remount replays them).
    behind: HashSet<Vec<u8>>,
    done: Vec<Done>,
}

/// Kinds of I/O, in the top byte of a token; the rest says which.
pub(crate) mod kind {
    /// Bits of a token below its kind.
    pub const SHIFT: u32 = 56;
    pub const LOG: u64 = 1;
    pub const DATA: u64 = 2;
    pub const SYNC: u64 = 3;
    pub const FETCH: u64 = 4;
    pub const READ: u64 = 5;
    pub const APPLY: u64 = 6;
    pub const LONE_SYNC: u64 = 7;
    pub const PREWRITE: u64 = 8;
    pub const PREWRITE_SYNC: u64 = 9;
}

fn token(kind: u64, which: u64) -> u64 {
    debug_assert!(which < 1 << kind::SHIFT);
    kind << kind::SHIFT | which
}

impl Engine {
    /// Submits a transaction; its [`Event::Committed`] carries `token`.
    pub fn submit(&mut self, token: u64, txn: Transaction) {
        if let Some(reason) = &self.poison {
            let result = Err(Error::Poisoned(reason.clone()));
            self.events.push(Event::Committed { token, result });
            return;
        }
        let seq = self.next_seq();
        let mut objects: Vec<Vec<u8>> = Vec::with_capacity(1);
        for (c, op) in txn.ops() {
            for_objects(*c, op, &mut |c, oid| {
                let k = key::onode(c, oid);
                if !objects.contains(&k) {
                    objects.push(k);
                }
            });
        }
        for (c, op) in txn.ops() {
            match op {
                Op::MakeCollection { .. } | Op::RemoveCollection => objects.push(key::collection(*c)),
                Op::Split { to, .. } | Op::Merge { to, .. } => {
                    objects.extend([key::collection(*c), key::collection(*to)])
                }
                _ => {}
            }
        }
        for k in &objects {
            self.flights.entry(k.clone()).or_default().txns.push_back(seq);
        }
        self.pending.insert(seq);
        self.queue.push_back(Queued::new(seq, token, txn, objects));
    }

    /// Plans what was submitted and starts large writes, so that the medium works while the caller
    /// makes its next transactions. The log batch is left open for those: [`Engine::poll`] sends it.
    pub fn start(&mut self) {
        if self.poison.is_none() {
            self.plan_queue();
        }
    }

    /// Whether the driver expects further transactions within microseconds, because their callers
    /// were just answered: until it takes that back, the open log batch waits for them. A driver that
    /// says so must take it back, or what was submitted stays where it is.
    pub fn expect_more(&mut self, yes: bool) {
        self.more_to_come = yes;
    }

    /// Submits a read; its [`Event::Answered`] carries `token`.
    pub fn read(&mut self, token: u64, read: Read) {
        let seq = self.next_seq();
        self.start_read(seq, token, read);
    }

    fn next_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    /// Moves everything that can be moved. With `wait`, blocks until at least one I/O completes,
    /// if any is in flight and nothing else can be done. Returns as soon as there are events: the
    /// caller hears of an acknowledgement before the engine does the work it left for later.
    pub fn poll(&mut self, wait: bool) {
        let mut may_wait = wait;
        loop {
            self.advance();
            if !self.events.is_empty() {
                return;
            }
            let worked = self.apply_durable();
            if !self.events.is_empty() {
                return;
            }
            let how = match may_wait && !worked && self.ring.in_flight() > 0 {
                true => Wait::For(self.worth_waiting_for()),
                false => Wait::No,
            };
            let mut done = std::mem::take(&mut self.done);
            if let Err(e) = self.ring.reap(how, &mut done) {
                return self.ring_failed(&e);
            }
            let nothing = done.is_empty() && !worked;
            may_wait &= nothing;
            for d in done.drain(..) {
                self.complete(d);
            }
            self.done = done;
            if nothing {
                return;
            }
        }
    }

    /// How many completions a waiter should sleep for: all of a sealed group's, since nothing can
    /// be acknowledged before, unless others wait for something else.
    fn worth_waiting_for(&self) -> usize {
        let group = self.groups.front().map_or(0, |g| g.sealed_io_left());
        let all = self.ring.in_flight();
        if group > 0 && group == all { group } else { 1 }
    }

    /// Whether everything submitted is in one log batch under way, so that a driver loses nothing
    /// by blocking in [`Engine::poll`] until it is written: one wake-up instead of one for each
    /// part. (A request that arrives meanwhile waits for no longer than that write takes.)
    pub fn waits_for_one_batch(&self) -> bool {
        let sealed = self.groups.front().filter(|g| g.sealed_io_left() > 0);
        self.reads.is_empty()
            && sealed.is_some_and(|g| g.sealed_io_left() == self.io_in_flight() && g.len() == self.pending.len())
    }

    /// Completions since the last call, in order.
    pub fn events(&mut self) -> std::vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Whether [`Engine::poll`] could do something now without any completion.
    pub fn has_work(&self) -> bool {
        !self.events.is_empty() || !self.unapplied.is_empty()
    }

    /// I/Os in flight or waiting for the ring.
    pub fn io_in_flight(&self) -> usize {
        self.ring.in_flight() + self.backlog.len()
    }

    /// Nothing is queued, in flight or waiting; deferred contents may still wait to be applied.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.groups.iter().all(Group::is_empty)
            && self.unapplied.is_empty()
            && self.reads.is_empty()
            && self.io_in_flight() == 0
            && self.events.is_empty()
            && self.jobs.is_empty()
            && !self.flushing
    }

    /// What becomes readable when completions can be reaped; `None` where they need no waiting.
    pub fn waker(&self) -> Option<EventFd> {
        self.ring.waker()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        let wal = self.wal.counters();
        Counters {
            batches: wal.batches,
            group_commits: wal.group_commits,
            log_wraps: wal.wraps,
            allocator_wraps: self.alloc.wraps(),
            cache_hits: self.cache.hits(),
            ..self.counters
        }
    }

    /// Bytes so far.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// Times the ring handed a request to another thread or back.
    pub fn io_handoffs(&self) -> u64 {
        // A lookup goes to another thread and comes back.
        self.ring.handoffs() + 2 * self.counters.lookups_elsewhere
    }

    /// The key-value store.
    pub fn kv(&self) -> &Arc<dyn Kv> {
        &self.kv
    }

    /// Why the store is read-only, if it is.
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.poison.clone()
    }

    /// Starts whatever can be started. Order matters: what acknowledges comes first.
    fn advance(&mut self) {
        if self.poison.is_none() {
            self.plan_queue();
            if !self.more_to_come {
                self.seal_group();
            }
            self.sync_group();
            self.background();
        }
        self.start_io();
    }

    /// Hands queued I/O to the ring.
    fn start_io(&mut self) {
        self.push_backlog();
        self.backlog_bytes = 0;
        if let Err(e) = self.ring.submit() {
            self.ring_failed(&e);
        }
    }

    fn ring_failed(&mut self, e: &lodestore_aio::IoError) {
        self.poison(format!("the I/O ring failed: {e}"));
        self.backlog.clear();
        self.fail_reads(&self.poison.clone().expect("set above"));
    }

    fn push_backlog(&mut self) {
        while let Some(io) = self.backlog.pop_front() {
            if let Err(io) = self.ring.push(io) {
                self.backlog.push_front(io);
                break;
            }
        }
    }

    /// Queues an I/O; it starts with the next `advance`.
    fn io(&mut self, token: u64, op: IoOp) {
        self.backlog.push_back(Io { token, op });
    }

    fn complete(&mut self, d: Done) {
        let which = d.token & ((1 << kind::SHIFT) - 1);
        match d.token >> kind::SHIFT {
            kind::FETCH => self.fetched(which, d),
            kind::READ => self.read_done(which, d),
            // Everything below is part of making writes durable: failing at it ends writing.
            k => match d.result {
                Err(e) => self.poison(e.to_string()),
                Ok(()) if self.poison.is_some() => {}
                Ok(()) => match k {
                    kind::LOG => self.log_written(),
                    kind::DATA => self.data_written(which),
                    kind::SYNC => self.group_synced(),
                    kind::APPLY => self.deferred_written(which),
                    kind::LONE_SYNC => self.lone_synced(),
                    kind::PREWRITE => self.prewritten(),
                    kind::PREWRITE_SYNC => self.prewrite_synced(),
                    other => unreachable!("no I/O of kind {other} is ever issued"),
                },
            },
        }
    }

    /// After a failure nothing more is acknowledged; what was, stays readable.
    fn poison(&mut self, reason: String) {
        if self.poison.is_some() {
            return;
        }
        let reason: Arc<str> = reason.into();
        self.poison = Some(reason.clone());
        let waiting = self.groups.drain(..).flat_map(Group::into_tokens).collect::<Vec<_>>();
        let queued = self.queue.drain(..).map(|q| q.token).collect::<Vec<_>>();
        for token in waiting.into_iter().chain(queued) {
            self.events.push(Event::Committed { token, result: Err(Error::Poisoned(reason.clone())) });
        }
        self.backlog.retain(|io| matches!(io.op, IoOp::Read { .. }));
        self.writing.clear();
        self.deferred.forget_planned();
        // Only acknowledged transactions are left; if even this fails, reads fail with it.
        let kept: Vec<u64> = self.unapplied.iter().map(|d| d.seq).collect();
        self.pending.retain(|s| kept.contains(s));
        for f in self.flights.values_mut() {
            f.txns.retain(|s| kept.contains(s));
        }
        self.meta.forget_above(self.acked);
        self.release_reads();
    }

    /// The file of a block, the offset in it, and how many blocks follow there.
    fn locate(&self, place: u64) -> (FileId, u64, u64) {
        let d = self.data_file(place);
        (d.file, (place - d.first) * BLOCK_LEN, d.first + d.blocks - place)
    }

    fn data_file(&self, place: u64) -> &DataFile {
        let i = self.data.partition_point(|d| d.first + d.blocks <= place);
        &self.data[i]
    }

    /// File and offset of a block, for messages.
    fn place_name(&self, place: u64) -> String {
        let d = self.data_file(place);
        format!("{} offset {}", d.name, (place - d.first) * BLOCK_LEN)
    }

    /// Splits a run of blocks at the ends of fragment files.
    fn pieces(&self, place: u64, blocks: u64) -> Vec<(FileId, u64, u64, u64)> {
        let mut out = Vec::with_capacity(1);
        let mut at = 0;
        while at < blocks {
            let (file, offset, room) = self.locate(place + at);
            let n = room.min(blocks - at);
            out.push((file, offset, at, n));
            at += n;
        }
        out
    }

    /// Queues writes of whole blocks from `place` on, one for each fragment file they lie in;
    /// returns how many.
    fn write_blocks(&mut self, token: u64, place: u64, data: &Bytes) -> usize {
        let pieces = self.pieces(place, data.len() as u64 / BLOCK_LEN);
        for (file, offset, at, n) in &pieces {
            let data = data.slice((at * BLOCK_LEN) as usize..((at + n) * BLOCK_LEN) as usize);
            self.io(token, IoOp::Write { file: *file, offset: *offset, data, dsync: false });
        }
        pieces.len()
    }

    /// The fragment files, as a set.
    fn data_files(&self) -> u64 {
        self.data.iter().map(|d| d.file.mask()).fold(0, |a, b| a | b)
    }
}

/// Calls `f` with every object an operation names.
fn for_objects(c: CollectionId, op: &Op, f: &mut dyn FnMut(CollectionId, &ObjectId)) {
    match op {
        Op::Touch(oid)
        | Op::Create(oid)
        | Op::Remove(oid)
        | Op::RmAttrs(oid)
        | Op::OmapClear(oid)
        | Op::Write { oid, .. }
        | Op::Zero { oid, .. }
        | Op::Truncate { oid, .. }
        | Op::SetAttr { oid, .. }
        | Op::RmAttr { oid, .. }
        | Op::OmapSet { oid, .. }
        | Op::OmapRmKeys { oid, .. }
        | Op::OmapRmRange { oid, .. }
        | Op::OmapSetHeader { oid, .. }
        | Op::Hint { oid, .. } => f(c, oid),
        Op::Clone { from, to } | Op::CloneRange { from, to, .. } => {
            f(c, from);
            f(c, to);
        }
        Op::Rename { from, to_collection, to, .. } => {
            f(c, from);
            f(*to_collection, to);
        }
        Op::MakeCollection { .. } | Op::RemoveCollection | Op::Split { .. } | Op::Merge { .. } => {}
    }
}
