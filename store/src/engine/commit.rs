//! The way of a transaction to durability.
//!
//! queued -> planned (data writes started, record in the open group) -> sealed (log batch started)
//! -> written (data and log complete) -> synced = durable -> acknowledged -> in the key-value store.

use std::collections::HashMap;

use bytes::Bytes;
use lodestore_aio::{AlignedBuf, Done, IoOp};
use lodestore_kv::KvOp;
use lodestore_wal::AppendError;

use super::{Engine, Event, kind, token};
use crate::alloc::Run;
use crate::bugs::{self, Bug};
use crate::deferred::Overwrite;
use crate::error::Error;
use crate::format::chunk::Slot;
use crate::format::{BLOCK_LEN, record};
use crate::ledger::OpBytes;
use crate::meta::{Lookups, Touched};
use crate::plan::{self, Draft, Env, FetchError, Fetched, Outcome, Plan};
use crate::txn::{Op, Transaction};
use crate::types::Lsn;

/// Queued transactions looked at beyond the first for blocks that must be read.
const PREFETCH_MAX: usize = 64;

/// Bytes of data queued that are worth a system call of their own.
const WORTH_A_CALL: u64 = 64 << 10;

/// Mismatches of blocks read for one transaction that are forgiven as races.
const MISMATCHES_MAX: u32 = 2;

/// A transaction that is not planned yet.
#[derive(Debug)]
pub(super) struct Queued {
    pub seq: u64,
    pub token: u64,
    txn: Transaction,
    objects: Vec<Vec<u8>>,
    fetched: HashMap<u64, Fetched>,
    fetching: usize,
    lookups: Lookups,
    probed: bool,
    mismatches: u32,
    /// Makes, removes, divides or joins collections.
    collections: bool,
}

impl Queued {
    pub fn new(seq: u64, token: u64, txn: Transaction, objects: Vec<Vec<u8>>) -> Self {
        let collections = txn.ops().iter().any(|(_, op)| {
            matches!(op, Op::MakeCollection { .. } | Op::RemoveCollection | Op::Split { .. } | Op::Merge { .. })
        });
        Queued {
            seq,
            token,
            txn,
            objects,
            fetched: HashMap::new(),
            fetching: 0,
            lookups: Lookups::default(),
            probed: false,
            mismatches: 0,
            collections,
        }
    }
}

/// A planned transaction.
#[derive(Debug)]
pub(super) struct Durable {
    pub seq: u64,
    token: u64,
    lsn: Lsn,
    ops: Vec<KvOp>,
    touched: Touched,
    objects: Vec<Vec<u8>>,
    deferred: Vec<Overwrite>,
    taken: Vec<Run>,
    freed: Vec<Run>,
}

/// Transactions that share a log batch.
#[derive(Debug)]
pub(super) struct Group {
    number: u64,
    txns: Vec<Durable>,
    /// Data writes started and not complete.
    data_left: usize,
    /// Bytes of them.
    bytes: u64,
    has_data: bool,
    /// Its sync covers writes in place as well.
    covers_deferred: bool,
    state: GroupState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupState {
    /// Takes more records.
    Open,
    /// Its log batch is being written.
    Sealed,
    /// Its log batch is written, data may not be.
    Logged,
    /// A sync that covers data and log is in flight.
    Syncing,
}

impl Group {
    pub fn is_empty(&self) -> bool {
        self.txns.is_empty() && self.state == GroupState::Open
    }

    /// Number of transactions.
    pub fn len(&self) -> usize {
        self.txns.len()
    }

    /// Blocks that its transactions freed.
    pub fn freed_blocks(&self) -> u64 {
        self.txns.iter().flat_map(|t| &t.freed).map(|r| r.blocks).sum()
    }

    /// I/Os that a sealed group still waits for.
    pub fn sealed_io_left(&self) -> usize {
        match self.state {
            GroupState::Open => 0,
            GroupState::Sealed => self.data_left + 1,
            GroupState::Logged => self.data_left,
            GroupState::Syncing => 1,
        }
    }

    pub fn into_tokens(self) -> impl Iterator<Item = u64> {
        self.txns.into_iter().filter(|t| t.token != INTERNAL).map(|t| t.token)
    }
}

/// Token of the engine's own transactions, which nobody waits for.
const INTERNAL: u64 = u64::MAX;

impl Engine {
    /// Plans queued transactions in order until one has to wait.
    pub(super) fn plan_queue(&mut self) {
        self.space_wanted = false;
        while let Some(q) = self.queue.front() {
            // A listing that waits must not find its collection's bounds changed.
            let listings_first = q.collections && self.barriers.front().is_some_and(|s| *s < q.seq);
            if q.fetching > 0 || listings_first || self.reads_come_first(q.seq, &q.objects) {
                break;
            }
            let mut q = self.queue.pop_front().expect("looked at above");
            match self.plan_one(&mut q) {
                Outcome::Ready(draft) => {
                    if !self.carry_out(q, *draft) {
                        break;
                    }
                    if !self.start_early() {
                        return;
                    }
                }
                Outcome::NeedBlocks(slots) => {
                    self.fetch(&mut q, slots);
                    self.queue.push_front(q);
                    break;
                }
                Outcome::NeedLookup => {
                    self.look_up_for(&mut q);
                    self.queue.push_front(q);
                    break;
                }
                Outcome::NeedDrained => {
                    self.queue.push_front(q);
                    break;
                }
                Outcome::NeedSpace => {
                    self.counters.space_waits += 1;
                    self.request_trim();
                    self.space_wanted = true;
                    self.queue.push_front(q);
                    break;
                }
                Outcome::Refused(e) => self.refuse(q, e),
            }
        }
        self.prefetch();
    }

    /// Puts a planned transaction into the open group. Returns whether the next one may follow; if
    /// not, this one waits at the front of the queue, or the store has failed.
    fn carry_out(&mut self, q: Queued, mut draft: Draft) -> bool {
        // Large writes are on their way to the medium while they are summed, if nothing can stop
        // the transaction any more.
        let bytes: u64 = draft.writes.iter().map(|(_, data)| data.len() as u64).sum();
        let early = bytes >= WORTH_A_CALL && self.wal.has_room(draft.record_len_max());
        if early {
            let writes = std::mem::take(&mut draft.writes);
            self.start_writes(&writes);
            self.start_io();
            if self.poison.is_some() {
                return self.refuse_poisoned(q);
            }
            draft.writes = writes;
        }
        let mut plan = draft.finish();
        match self.append(&plan) {
            Ok(lsn) => {
                if early {
                    plan.writes.clear();
                }
                self.commit(q, plan, lsn);
                true
            }
            Err(e) => {
                assert!(!early, "the log had room");
                plan.taken.iter().for_each(|r| self.alloc.release(*r));
                match e {
                    AppendError::TooLarge { len, max } => {
                        self.refuse(q, Error::RecordTooLarge { got: len, max });
                        return true;
                    }
                    AppendError::Full => {
                        self.counters.log_full_waits += 1;
                        self.request_trim();
                    }
                    AppendError::BatchFull => {}
                }
                self.queue.push_front(q);
                false
            }
        }
    }

    /// The store failed while a transaction was between the queue and a group.
    fn refuse_poisoned(&mut self, q: Queued) -> bool {
        let reason = self.poison.clone().expect("it failed");
        self.events.push(Event::Committed { token: q.token, result: Err(Error::Poisoned(reason)) });
        false
    }

    /// Starts what was planned before the rest of the queue is: the medium works while later
    /// transactions are summed and planned. A group that is large enough goes its way alone, so that
    /// one group's flush overlaps with the next one's writes. Returns whether planning may go on.
    fn start_early(&mut self) -> bool {
        let Some(group) = self.groups.back() else { return true };
        if group.bytes >= self.config.group_bytes {
            self.seal_group();
        } else if self.backlog_bytes < WORTH_A_CALL {
            return true;
        }
        self.start_io();
        self.poison.is_none()
    }

    fn plan_one(&mut self, q: &mut Queued) -> Outcome {
        fail::fail_point!("engine::before_plan");
        let drained = self.groups.iter().all(Group::is_empty) && self.unapplied.is_empty();
        let coming = self.limbo.blocks() + self.doomed() + self.alloc.total() - self.alloc.usable();
        let data = &self.data;
        let place_name = |place: u64| {
            let d = &data[data.partition_point(|d| d.first + d.blocks <= place)];
            format!("{} offset {}", d.name, (place - d.first) * BLOCK_LEN)
        };
        let env = Env {
            policy: self.config.policy,
            deferred_max: self.config.deferred_max,
            writing: &self.writing,
            pending: &self.deferred,
            fetched: &q.fetched,
            drained,
            coming,
            place_name: &place_name,
        };
        self.meta.without_blocking(std::mem::take(&mut q.lookups));
        let outcome = plan::plan(&q.txn, &mut self.meta, &mut self.alloc, &env);
        q.lookups = self.meta.looked_up();
        outcome
    }

    /// Issues reads of the blocks and lookups of the metadata that transactions further back will need,
    /// so that a queue of them does not wait for one after the other.
    fn prefetch(&mut self) {
        if self.queue.front().is_none_or(|q| q.fetching == 0) {
            return;
        }
        for i in 1..self.queue.len().min(PREFETCH_MAX) {
            if self.queue[i].probed || self.queue[i].fetching > 0 {
                continue;
            }
            let nobody = Queued::new(0, 0, Transaction::new(), Vec::new());
            let mut q = std::mem::replace(&mut self.queue[i], nobody);
            q.probed = true;
            match self.plan_one(&mut q) {
                Outcome::Ready(plan) => plan.taken.iter().for_each(|r| self.alloc.release(*r)),
                Outcome::NeedBlocks(slots) => self.fetch(&mut q, slots),
                Outcome::NeedLookup => self.look_up_for(&mut q),
                // Whatever it is, it is decided when its turn comes.
                Outcome::NeedDrained | Outcome::NeedSpace | Outcome::Refused(_) => {}
            }
            self.queue[i] = q;
        }
    }

    /// Has metadata looked up where blocking is allowed, and the transaction wait for it.
    fn look_up_for(&mut self, q: &mut Queued) {
        let place = q.lookups.take().expect("planning names what it lacks");
        q.fetching += 1;
        self.look_up(place, q.seq);
    }

    /// Metadata that transaction `seq` waits for is in memory.
    pub(super) fn looked_up_for_transaction(&mut self, seq: u64) {
        // Refused or lost meanwhile: nobody needs it.
        if let Ok(i) = self.queue.binary_search_by_key(&seq, |q| q.seq) {
            self.queue[i].fetching -= 1;
            // Its next lookup may be known only now: it, too, need not wait for its turn.
            self.queue[i].probed = false;
        }
    }

    fn fetch(&mut self, q: &mut Queued, mut slots: Vec<Slot>) {
        slots.sort_by_key(|s| s.place);
        slots.dedup();
        for slot in slots {
            let (file, offset, _) = self.locate(slot.place);
            let buf = AlignedBuf::zeroed(BLOCK_LEN as usize);
            // Until the bytes are here: whoever plans with this entry would find a mismatch.
            let absent = Fetched { expected: slot.crc, found: Err(FetchError::Mismatch(!slot.crc)) };
            q.fetched.insert(slot.place, absent);
            q.fetching += 1;
            self.counters.blocks_fetched += 1;
            self.ledger.count(|l| l.data_read += BLOCK_LEN);
            self.fetches.insert(self.next_fetch, (q.seq, slot));
            self.io(token(kind::FETCH, self.next_fetch), IoOp::Read { file, offset, buf });
            self.next_fetch += 1;
        }
    }

    pub(super) fn fetched(&mut self, which: u64, d: Done) {
        let (seq, slot) = self.fetches.remove(&which).expect("a fetch is answered once");
        // Refused or lost meanwhile: nobody needs it.
        let Ok(i) = self.queue.binary_search_by_key(&seq, |q| q.seq) else { return };
        let q = &mut self.queue[i];
        q.fetching -= 1;
        let found = match d.result {
            Err(e) => Err(FetchError::Io(e)),
            Ok(()) => {
                let buf = d.buf.expect("a read returns its buffer");
                let got = crc32c::crc32c(&buf);
                if got == slot.crc { Ok(buf.freeze()) } else { Err(FetchError::Mismatch(got)) }
            }
        };
        if let Err(FetchError::Mismatch(_)) = found {
            // The block may have been overwritten in place meanwhile: then planning finds another
            // checksum in the extent map, and asks again. It asks a few times before it is damage.
            q.mismatches += 1;
            if q.mismatches <= MISMATCHES_MAX {
                q.fetched.remove(&slot.place);
                return;
            }
            self.counters.damaged_blocks += 1;
        }
        q.fetched.insert(slot.place, Fetched { expected: slot.crc, found });
    }

    fn refuse(&mut self, q: Queued, e: Error) {
        self.counters.refused += 1;
        self.counters.enospc_refused += u64::from(matches!(e, Error::NoSpace { .. }));
        self.events.push(Event::Committed { token: q.token, result: Err(e) });
        self.finished(q.seq, &q.objects);
    }

    /// Puts a plan's record into the open group.
    fn append(&mut self, plan: &Plan) -> Result<Lsn, AppendError> {
        let head = record::encode_head(&plan.ops, &plan.data, &plan.deferred_runs());
        let mut parts: Vec<&[u8]> = Vec::with_capacity(1 + plan.deferred.len());
        parts.push(&head);
        parts.extend(plan.deferred.iter().map(|b| &b.data[..]));
        let lsn = self.wal.append(&parts)?;
        let payload = plan.deferred.len() as u64 * BLOCK_LEN;
        self.open_payload += payload;
        self.ledger.count(|l| {
            let all = OpBytes {
                data_direct: plan.writes.iter().map(|(_, data)| data.len() as u64).sum(),
                log_payload: payload,
                log_metadata: head.len() as u64,
                ..OpBytes::default()
            };
            plan.shares.charge(&mut l.by_op, all);
        });
        Ok(lsn)
    }

    /// From here on the transaction will happen, or the store fails.
    fn commit(&mut self, q: Queued, mut plan: Plan, lsn: Lsn) {
        fail::fail_point!("engine::after_append");
        if bugs::enabled(Bug::DeferredBeforeDurable) {
            plan.writes.extend(plan.deferred.iter().map(|b| (b.place, b.data.clone())));
        }
        self.ledger.count(|l| l.asked(&q.txn, plan.shares.first()));
        self.stored = self.stored.checked_add_signed(plan.stored).expect("mapped blocks are counted on both ways");
        self.objects = self.objects.checked_add_signed(plan.objects).expect("objects are counted on both ways");
        self.counters.cow_copies += plan.cow_copies;
        self.deferred.plan(lsn, &plan.deferred);
        let touched = Touched::from(&plan.changes);
        self.meta.commit(lsn, plan.changes);

        plan.deferred.iter().for_each(|b| self.forget_cached(b.place, 1));
        self.open_group().txns.push(Durable {
            seq: q.seq,
            token: q.token,
            lsn,
            ops: plan.ops,
            touched,
            objects: q.objects,
            deferred: plan.deferred,
            taken: plan.taken,
            freed: plan.freed,
        });
        self.start_writes(&plan.writes);
    }

    /// Queues direct writes, which belong to the open group.
    fn start_writes(&mut self, writes: &[(u64, Bytes)]) {
        if writes.is_empty() {
            return;
        }
        let number = self.open_group().number;
        let (mut started, mut bytes) = (0, 0);
        for (place, data) in writes {
            self.forget_cached(*place, data.len() as u64 / BLOCK_LEN);
            bytes += data.len() as u64;
            self.writing.insert(*place, data.clone());
            started += self.write_blocks(token(kind::DATA, number), *place, data);
        }
        self.ledger.count(|l| l.data_direct += bytes);
        self.backlog_bytes += bytes;
        let group = self.open_group();
        group.has_data = true;
        group.data_left += started;
        group.bytes += bytes;
    }

    /// Adds a record of the engine's own: metadata only, nobody waits for it.
    pub(super) fn append_internal(&mut self, ops: Vec<KvOp>) -> Result<Lsn, AppendError> {
        let plan = Plan { ops, ..Default::default() };
        let lsn = self.append(&plan)?;
        let seq = self.next_seq();
        self.pending.insert(seq);
        self.commit(Queued::new(seq, INTERNAL, Transaction::new(), Vec::new()), plan, lsn);
        Ok(lsn)
    }

    fn open_group(&mut self) -> &mut Group {
        if self.groups.back().is_none_or(|g| g.state != GroupState::Open) {
            self.next_group += 1;
            let number = self.next_group;
            let (txns, state) = (Vec::new(), GroupState::Open);
            self.groups.push_back(Group {
                number,
                txns,
                data_left: 0,
                bytes: 0,
                has_data: false,
                covers_deferred: false,
                state,
            });
        }
        self.groups.back_mut().expect("made above")
    }

    /// Starts the log batch of the open group, if no other batch is in flight.
    pub(super) fn seal_group(&mut self) {
        let [group] = self.groups.make_contiguous() else { return };
        if group.state != GroupState::Open {
            return;
        }
        let batch = match group.txns.is_empty() {
            false => self.wal.seal(self.acked),
            true => None,
        };
        let Some(batch) = batch else { return };
        group.state = GroupState::Sealed;
        if bugs::enabled(Bug::ApplyBeforeDurable) {
            let early = group.txns.iter().try_for_each(|t| self.kv.write(&t.ops, t.lsn));
            early.expect("only a test runs with a bug");
        }
        self.start_batch(batch);
    }

    /// Starts a batch without records, which only carries what is acknowledged and trimmed.
    pub(super) fn seal_empty(&mut self) {
        if self.groups.iter().any(|g| g.state != GroupState::Open || !g.txns.is_empty()) {
            return;
        }
        let Some(batch) = self.wal.seal_empty(self.acked) else { return };
        self.open_group().state = GroupState::Sealed;
        self.start_batch(batch);
    }

    fn start_batch(&mut self, batch: lodestore_wal::Batch) {
        let payload = std::mem::take(&mut self.open_payload);
        self.ledger.count(|l| {
            l.log_payload += payload;
            l.log_metadata += batch.payload_bytes - payload;
            l.log_padding += batch.padding_bytes;
            l.log_header += batch.header_bytes;
        });
        let op = IoOp::Write { file: batch.file, offset: batch.offset, data: batch.data, dsync: false };
        self.io(token(kind::LOG, 0), op);
    }

    pub(super) fn log_written(&mut self) {
        let group = self.groups.front_mut().expect("a batch belongs to a group");
        assert_eq!(group.state, GroupState::Sealed);
        group.state = GroupState::Logged;
    }

    pub(super) fn data_written(&mut self, number: u64) {
        let group = self.groups.iter_mut().find(|g| g.number == number).expect("a group outlives its writes");
        group.data_left -= 1;
    }

    /// Once data and log of the sealed group are written: one flush of everything involved.
    pub(super) fn sync_group(&mut self) {
        let data_files = self.data_files();
        let Some(group) = self.groups.front_mut() else { return };
        if group.state != GroupState::Logged || group.data_left > 0 {
            return;
        }
        group.state = GroupState::Syncing;
        if bugs::enabled(Bug::AckBeforeFlush) {
            return self.group_synced();
        }
        // With another sync in flight, what it covers and what this one does could not be told
        // apart: then writes in place wait for the next.
        group.covers_deferred = !self.lone_sync && self.deferred.wants_sync();
        let with_data = group.has_data || group.covers_deferred;
        let files = self.log_file.mask() | if with_data { data_files } else { 0 };
        if group.covers_deferred {
            self.deferred.sync_issued();
        }
        fail::fail_point!("engine::before_sync");
        self.counters.syncs += 1;
        self.io(token(kind::SYNC, 0), IoOp::Sync { files });
    }

    /// The group is durable: acknowledge, then let its effects go on.
    pub(super) fn group_synced(&mut self) {
        fail::fail_point!("engine::after_sync");
        let group = self.groups.pop_front().expect("a sync belongs to a group");
        assert_eq!(group.state, GroupState::Syncing);
        self.wal.durable();
        if group.covers_deferred {
            self.deferred.synced();
        }
        let trimmed = self.wal.trim_durable();
        self.limbo.release(trimmed, &mut self.alloc);
        for mut t in group.txns {
            assert!(t.lsn > self.acked, "acknowledged in log order");
            self.acked = t.lsn;
            if t.token != INTERNAL {
                self.counters.commits += 1;
                self.events.push(Event::Committed { token: t.token, result: Ok(t.lsn) });
            }
            for run in &t.taken {
                while let Some((first, _)) = self.writing.range(run.place..run.place + run.blocks).next() {
                    let first = *first;
                    self.writing.remove(&first);
                }
            }
            self.counters.deferred_coalesced += self.deferred.promote(t.lsn, std::mem::take(&mut t.deferred));
            for run in &t.freed {
                self.counters.deferred_dropped += self.deferred.drop_freed(run.place, run.blocks);
                if bugs::enabled(Bug::ReuseFreedEarly) {
                    self.alloc.release(*run);
                } else {
                    self.limbo.add(t.lsn, *run);
                }
            }
            self.unapplied.push_back(t);
        }
    }

    /// Gives acknowledged changes to the key-value store. Returns whether there were any.
    pub(super) fn apply_durable(&mut self) -> bool {
        let Some(last) = self.unapplied.back().map(|t| t.lsn) else { return false };
        fail::fail_point!("engine::before_apply");
        let mut ops = Vec::with_capacity(2 * self.unapplied.len());
        self.unapplied.iter_mut().for_each(|t| ops.append(&mut t.ops));
        if let Err(e) = self.kv.write(&ops, last) {
            self.poison(e.to_string());
            self.abandon_unapplied();
            return false;
        }
        self.applied = last;
        for t in std::mem::take(&mut self.unapplied) {
            self.meta.applied(t.lsn, &t.touched);
            self.finished(t.seq, &t.objects);
        }
        true
    }

    /// The key-value store takes no more: what was acknowledged and is not in it cannot be read
    /// before the next mount.
    fn abandon_unapplied(&mut self) {
        let unapplied = std::mem::take(&mut self.unapplied);
        self.behind.extend(unapplied.iter().flat_map(|t| t.objects.clone()));
        for t in unapplied {
            self.finished(t.seq, &t.objects);
        }
    }

    /// A transaction is in the key-value store, or refused: reads may stop waiting for it.
    fn finished(&mut self, seq: u64, objects: &[Vec<u8>]) {
        self.pending.remove(&seq);
        for k in objects {
            if let Some(f) = self.flights.get_mut(k) {
                if let Some(i) = f.txns.iter().position(|s| *s == seq) {
                    f.txns.remove(i);
                }
                if f.txns.is_empty() && f.reads.is_empty() {
                    self.flights.remove(k);
                }
            }
        }
        self.release_reads_of(objects);
    }
}
