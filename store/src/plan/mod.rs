//! Planning: what a transaction means, computed without any I/O.
//!
//! A plan is made against the newest planned state and touches nothing: metadata it changes stays
//! in a scratch area until the engine commits the plan, and blocks it allocated are given back if
//! it cannot be used. So a transaction is refused whole, and one that lacks something (the old
//! contents of a partly overwritten block, say) is simply planned again once it is there.

mod clone;
mod collection;
mod data;
mod object;
mod origin;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use lodestore_kv::{Cf, KvOp};

use crate::alloc::{Allocator, Run};
use crate::bugs::{self, Bug};
use crate::config::Policy;
use crate::deferred::{DeferredSet, Overwrite};
use crate::error::Error;
use crate::format::chunk::{CHUNK_BLOCKS, CHUNK_ENCODED_MAX, Chunk, Slot};
use crate::format::onode::Onode;
use crate::format::record::DataRef;
use crate::format::shared::{self, Region};
use crate::format::{BLOCK_LEN, key, small};
use crate::ledger::OpKind;
use crate::meta::{Changes, ID_STEP, Meta, Missed};
use crate::txn::{Op, Transaction};
use crate::types::*;
use origin::{Origins, Shares, Written};

/// Old contents of a block, read for a plan: the checksum it was expected to have, and the bytes
/// or, where they do not match it, the checksum they have.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Checksum by the extent map when the read was issued.
    pub expected: u32,
    /// What was found.
    pub found: Result<Bytes, FetchError>,
}

/// Why a block could not be had.
#[derive(Clone, Debug)]
pub enum FetchError {
    /// Its bytes have this checksum instead.
    Mismatch(u32),
    /// The medium refused.
    Io(lodestore_aio::IoError),
}

/// What a plan depends on besides metadata and free space.
pub struct Env<'a> {
    /// How overwrites reach the medium.
    pub policy: Policy,
    /// Most bytes of deferred contents in one record.
    pub deferred_max: u64,
    /// Direct writes of transactions that are not acknowledged, by first block. Their blocks must
    /// not be overwritten in place, because replay may have to compare them with their checksum,
    /// nor read, because they may still be on their way to the medium.
    pub writing: &'a BTreeMap<u64, Bytes>,
    /// Contents of blocks that are newer than what the medium has.
    pub pending: &'a DeferredSet,
    /// Blocks read for this plan.
    pub fetched: &'a HashMap<u64, Fetched>,
    /// Whether the key-value store has everything that was planned before.
    pub drained: bool,
    /// Blocks that will be free in time without any further removal.
    pub coming: u64,
    /// Where a block lies, for messages.
    pub place_name: &'a dyn Fn(u64) -> String,
}

/// A transaction turned into effects.
#[derive(Debug, Default)]
pub struct Plan {
    /// Changes of metadata, in order.
    pub ops: Vec<KvOp>,
    /// The same, decoded.
    pub changes: Changes,
    /// Direct writes: first block and whole blocks, aligned in memory.
    pub writes: Vec<(u64, Bytes)>,
    /// Checksums of the direct writes.
    pub data: Vec<DataRef>,
    /// Deferred contents, in order of the blocks.
    pub deferred: Vec<Overwrite>,
    /// Blocks allocated.
    pub taken: Vec<Run>,
    /// Blocks nobody uses any more.
    pub freed: Vec<Run>,
    /// Change of the number of mapped blocks.
    pub stored: i64,
    /// Change of the number of objects.
    pub objects: i64,
    /// Overwrites of shared blocks that went elsewhere.
    pub cow_copies: u64,
    /// Who wrote what.
    pub shares: Shares,
}

impl Plan {
    /// Runs of consecutive deferred blocks.
    pub fn deferred_runs(&self) -> Vec<(u64, u32)> {
        let mut runs: Vec<(u64, u32)> = Vec::new();
        for b in &self.deferred {
            match runs.last_mut() {
                Some((first, n)) if *first + u64::from(*n) == b.place => *n += 1,
                _ => runs.push((b.place, 1)),
            }
        }
        runs
    }
}

/// Outcome of planning.
#[derive(Debug)]
pub enum Outcome {
    /// Commit this, once it is finished.
    Ready(Box<Draft>),
    /// Read these blocks, then plan again.
    NeedBlocks(Vec<Slot>),
    /// Wait until everything planned before is in the key-value store, then plan again.
    NeedDrained,
    /// Wait until freed or unwritten space is usable, then plan again.
    NeedSpace,
    /// Do the lookup that [`Meta::looked_up`] has, then plan again.
    NeedLookup,
    /// Nothing was changed.
    Refused(Error),
}

/// Why planning stopped early.
enum Stop {
    Refuse(Error),
    Drain,
    Space,
    Lookup,
}

impl From<Missed> for Stop {
    fn from(m: Missed) -> Self {
        match m {
            Missed::NotInMemory => Stop::Lookup,
            Missed::Failed(e) => Stop::Refuse(e),
        }
    }
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(e: E) -> Self {
        Stop::Refuse(e.into())
    }
}

/// Plans `txn`.
pub fn plan(txn: &Transaction, meta: &mut Meta, alloc: &mut Allocator, env: &Env<'_>) -> Outcome {
    let mut p = Planner::new(meta, alloc, env, Origins::of(txn));
    let stop = match p.run(txn) {
        Ok(()) if p.needs.is_empty() => return Outcome::Ready(Box::new(p.draft())),
        Ok(()) => None,
        Err(stop) => Some(stop),
    };
    for run in std::mem::take(&mut p.taken) {
        p.alloc.release(run);
    }
    match stop {
        Some(Stop::Lookup) => Outcome::NeedLookup,
        // What was missing may have led astray: first get it.
        _ if !p.needs.is_empty() => Outcome::NeedBlocks(p.needs),
        None => unreachable!("a plan that stops without a reason lacks blocks"),
        Some(Stop::Refuse(e)) => Outcome::Refused(e),
        Some(Stop::Drain) => Outcome::NeedDrained,
        Some(Stop::Space) => Outcome::NeedSpace,
    }
}

struct Planner<'a> {
    meta: &'a mut Meta,
    alloc: &'a mut Allocator,
    env: &'a Env<'a>,
    collections: Option<BTreeMap<CollectionId, u8>>,
    onodes: BTreeMap<Vec<u8>, Option<Onode>>,
    /// The same as they were found.
    before: BTreeMap<Vec<u8>, Option<Arc<Onode>>>,
    chunks: BTreeMap<(u64, u32), Chunk>,
    regions: BTreeMap<u64, Region>,
    /// Operations on collections and omaps, which are not gathered by key but keep their order.
    ops: Vec<KvOp>,
    next_id: Option<u64>,
    deferred: BTreeMap<u64, Overwrite>,
    /// Direct writes of this very transaction, by their first block.
    fresh: BTreeMap<u64, Bytes>,
    taken: Vec<Run>,
    freed: Vec<Run>,
    needs: Vec<Slot>,
    stored: i64,
    objects: i64,
    cow_copies: u64,
    /// The object at work, for messages about damaged blocks.
    current: Option<ObjectId>,
    origins: Origins,
}

impl<'a> Planner<'a> {
    fn new(meta: &'a mut Meta, alloc: &'a mut Allocator, env: &'a Env<'a>, origins: Origins) -> Self {
        Planner {
            meta,
            alloc,
            env,
            collections: None,
            onodes: BTreeMap::new(),
            before: BTreeMap::new(),
            chunks: BTreeMap::new(),
            regions: BTreeMap::new(),
            ops: Vec::new(),
            next_id: None,
            deferred: BTreeMap::new(),
            fresh: BTreeMap::new(),
            taken: Vec::new(),
            freed: Vec::new(),
            needs: Vec::new(),
            stored: 0,
            objects: 0,
            cow_copies: 0,
            current: None,
            origins,
        }
    }

    fn run(&mut self, txn: &Transaction) -> Result<(), Stop> {
        limit("number of operations in a transaction", txn.ops().len() as u64, OPS_MAX as u64)?;
        for (c, op) in txn.ops() {
            self.origins.begin(OpKind::of(op));
            self.op(*c, op)?;
            self.origins.end(self.ops.len());
        }
        Ok(())
    }

    fn op(&mut self, c: CollectionId, op: &Op) -> Result<(), Stop> {
        match op {
            Op::MakeCollection { bits } => self.make_collection(c, *bits),
            Op::RemoveCollection => self.remove_collection(c),
            Op::Split { bits, to } => self.split(c, *bits, *to),
            Op::Merge { bits, to } => self.merge(c, *bits, *to),
            Op::Touch(oid) => self.open(c, oid).map(drop),
            Op::Create(oid) => self.create(c, oid),
            Op::Write { oid, offset, data } => self.write(c, oid, *offset, data),
            Op::Zero { oid, offset, len } => self.zero(c, oid, *offset, *len),
            Op::Truncate { oid, size } => self.truncate(c, oid, *size),
            Op::Remove(oid) => self.remove(c, oid),
            Op::SetAttr { oid, name, value } => self.set_attr(c, oid, name, value),
            Op::RmAttr { oid, name } => self.edit(c, oid, |o| {
                o.attrs.remove(name);
            }),
            Op::RmAttrs(oid) => self.edit(c, oid, |o| o.attrs.clear()),
            Op::Clone { from, to } => self.clone_object(c, from, to),
            Op::CloneRange { from, to, from_offset, len, to_offset } => {
                self.clone_range(c, from, to, *from_offset, *len, *to_offset)
            }
            Op::OmapSet { oid, entries } => self.omap_set(c, oid, entries),
            Op::OmapRmKeys { oid, keys } => self.omap_rm_keys(c, oid, keys),
            Op::OmapRmRange { oid, first, last } => self.omap_rm_range(c, oid, first, last),
            Op::OmapClear(oid) => self.omap_clear(c, oid),
            Op::OmapSetHeader { oid, header } => self.omap_set_header(c, oid, header),
            Op::Rename { from, to_collection, to, must_exist } => self.rename(c, from, *to_collection, to, *must_exist),
            Op::Hint { oid, hint } => {
                let k = self.open(c, oid)?;
                self.onode_mut(&k).hint = (hint.object_size, hint.write_size, hint.flags);
                Ok(())
            }
        }
    }

    /// The onode key of an object, after checking names and collection.
    fn key(&mut self, c: CollectionId, oid: &ObjectId) -> Result<Vec<u8>, Stop> {
        let bits = *self.collections().get(&c).ok_or(Error::NoCollection(c))?;
        limit("length of an object name", oid.name.len() as u64, NAME_LEN_MAX as u64)?;
        limit("length of a namespace", oid.nspace.len() as u64, LOCATOR_LEN_MAX as u64)?;
        limit("length of a locator key", oid.key.len() as u64, LOCATOR_LEN_MAX as u64)?;
        if !key::belongs(c, bits, oid.hash) {
            let why = format!("object {oid} does not belong to collection {c}: the low {bits} bits of its hash differ");
            return Err(Error::Invalid(why).into());
        }
        self.current = Some(oid.clone());
        Ok(key::onode(c, oid))
    }

    /// Loads an onode into the scratch area; `None` if there is no such object.
    fn load(&mut self, k: &[u8]) -> Result<Option<&mut Onode>, Stop> {
        if !self.onodes.contains_key(k) {
            let o = self.meta.onode(k)?;
            self.onodes.insert(k.to_vec(), o.as_deref().cloned());
            self.before.insert(k.to_vec(), o);
        }
        Ok(self.onodes.get_mut(k).expect("loaded above").as_mut())
    }

    /// The key of an object that must exist.
    fn existing(&mut self, c: CollectionId, oid: &ObjectId) -> Result<Vec<u8>, Stop> {
        let k = self.key(c, oid)?;
        match self.load(&k)? {
            Some(_) => Ok(k),
            None => Err(Error::NoObject(c, oid.clone()).into()),
        }
    }

    /// The key of an object, made if it does not exist.
    fn open(&mut self, c: CollectionId, oid: &ObjectId) -> Result<Vec<u8>, Stop> {
        let k = self.key(c, oid)?;
        if self.load(&k)?.is_none() {
            let nid = self.new_id();
            self.set_onode(k.clone(), Some(Onode::new(nid)));
            self.objects += 1;
        }
        Ok(k)
    }

    /// An onode that [`Planner::open`] or [`Planner::existing`] found.
    fn onode(&self, k: &[u8]) -> &Onode {
        self.onodes.get(k).and_then(Option::as_ref).expect("the object was opened")
    }

    /// The same, to be changed.
    fn onode_mut(&mut self, k: &[u8]) -> &mut Onode {
        self.origins.mark(|| Written::Onode(k.to_vec()));
        self.onodes.get_mut(k).and_then(Option::as_mut).expect("the object was opened")
    }

    /// Sets or removes an onode.
    fn set_onode(&mut self, k: Vec<u8>, o: Option<Onode>) {
        self.origins.mark(|| Written::Onode(k.clone()));
        self.onodes.insert(k, o);
    }

    /// A number never used before, for an object or an omap.
    fn new_id(&mut self) -> u64 {
        let id = self.next_id.unwrap_or(self.meta.ids().0);
        self.next_id = Some(id + 1);
        id
    }

    fn collections(&self) -> &BTreeMap<CollectionId, u8> {
        self.collections.as_ref().unwrap_or(self.meta.collections())
    }

    /// Where a block of an object lies.
    fn slot(&mut self, nid: u64, block: u64) -> Result<Option<Slot>, Stop> {
        let (index, i) = split_block(block);
        if let Some(c) = self.chunks.get(&(nid, index)) {
            return Ok(c.slots[i]);
        }
        Ok(self.meta.chunk(nid, index)?.slots[i])
    }

    /// Takes a chunk out to be changed; [`Planner::put_chunk`] puts it back.
    fn take_chunk(&mut self, nid: u64, index: u32) -> Result<Chunk, Stop> {
        match self.chunks.remove(&(nid, index)) {
            Some(c) => Ok(c),
            None => Ok((*self.meta.chunk(nid, index)?).clone()),
        }
    }

    fn put_chunk(&mut self, nid: u64, index: u32, chunk: Chunk) {
        self.origins.mark(|| Written::Chunk(nid, index));
        self.chunks.insert((nid, index), chunk);
    }

    /// Chunks of an object in `from..to` that may hold blocks.
    fn chunk_indices(&mut self, nid: u64, from: u32, to: u32) -> Result<Vec<u32>, Stop> {
        let mut found = self.meta.chunk_indices(nid, from, to)?;
        found.extend(self.chunks.range((nid, from)..(nid, to)).map(|((_, i), _)| *i));
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    fn region_mut(&mut self, region: u64) -> Result<&mut Region, Stop> {
        if !self.regions.contains_key(&region) {
            let r = (*self.meta.region(region)?).clone();
            self.regions.insert(region, r);
        }
        self.origins.mark(|| Written::Region(region));
        Ok(self.regions.get_mut(&region).expect("loaded above"))
    }

    /// Whether more than one owner of a block exists now.
    fn is_shared(&mut self, slot: Slot) -> Result<bool, Stop> {
        if !slot.shared {
            return Ok(false);
        }
        let (region, i) = shared::locate(slot.place);
        Ok(self.region_mut(region)?.counts.contains_key(&i))
    }

    /// One more owner for a block.
    fn share(&mut self, place: u64) -> Result<(), Stop> {
        let (region, i) = shared::locate(place);
        *self.region_mut(region)?.counts.entry(i).or_insert(1) += 1;
        Ok(())
    }

    /// One owner less for a block; the last one frees it.
    fn unmap(&mut self, slot: Slot) -> Result<(), Stop> {
        self.stored -= 1;
        if slot.shared {
            let (region, i) = shared::locate(slot.place);
            let counts = &mut self.region_mut(region)?.counts;
            let keep = if bugs::enabled(Bug::RefcountOffByOne) { 3 } else { 2 };
            match counts.get_mut(&i) {
                Some(n) if *n > keep => {
                    *n -= 1;
                    return Ok(());
                }
                Some(_) => {
                    counts.remove(&i);
                    if !bugs::enabled(Bug::RefcountOffByOne) {
                        return Ok(());
                    }
                }
                None => {}
            }
        }
        // What was to be written there is not wanted any more.
        self.deferred.remove(&slot.place);
        match self.freed.last_mut() {
            Some(run) if run.place + run.blocks == slot.place => run.blocks += 1,
            _ => self.freed.push(Run { place: slot.place, blocks: 1 }),
        }
        Ok(())
    }

    /// Allocates blocks, or says why not.
    fn allocate(&mut self, blocks: u64) -> Result<Vec<Run>, Stop> {
        match self.alloc.allocate(blocks) {
            Some(runs) => {
                self.taken.extend(&runs);
                Ok(runs)
            }
            None if blocks <= self.alloc.free_blocks() + self.env.coming => Err(Stop::Space),
            None => {
                let available = (self.alloc.free_blocks() + self.env.coming) * BLOCK_LEN;
                Err(Error::NoSpace { needed: blocks * BLOCK_LEN, available }.into())
            }
        }
    }

    /// The scratch area without what it was made with.
    fn draft(self) -> Draft {
        let mut onodes = self.onodes;
        onodes.retain(|k, o| self.before.get(k).is_none_or(|before| before.as_deref() != o.as_ref()));
        Draft {
            collections: self.collections,
            onodes,
            chunks: self.chunks,
            regions: self.regions,
            ops: self.ops,
            ids: self.next_id.map(|next| (next, self.meta.ids().1)),
            writes: self.fresh.into_iter().collect(),
            deferred: self.deferred.into_values().collect(),
            taken: self.taken,
            freed: self.freed,
            stored: self.stored,
            objects: self.objects,
            cow_copies: self.cow_copies,
            origins: self.origins,
        }
    }
}

/// A plan whose direct writes can be started, and are not summed yet: the medium works while their
/// checksums are computed.
#[derive(Debug)]
pub struct Draft {
    collections: Option<BTreeMap<CollectionId, u8>>,
    onodes: BTreeMap<Vec<u8>, Option<Onode>>,
    chunks: BTreeMap<(u64, u32), Chunk>,
    regions: BTreeMap<u64, Region>,
    ops: Vec<KvOp>,
    /// Next object number, if any was used, and how far numbers are reserved.
    ids: Option<(u64, u64)>,
    /// Direct writes: first block and whole blocks, aligned in memory.
    pub writes: Vec<(u64, Bytes)>,
    deferred: Vec<Overwrite>,
    /// Blocks allocated.
    pub taken: Vec<Run>,
    freed: Vec<Run>,
    stored: i64,
    objects: i64,
    cow_copies: u64,
    origins: Origins,
}

impl Draft {
    /// No less than the length of the record this becomes.
    pub fn record_len_max(&self) -> u64 {
        // Beside key and value an operation has a kind, a family and two lengths, and a reference to
        // data or deferred contents has three numbers, all below so many bytes.
        const EACH: usize = 32;
        let chunks = self.chunks.len() * (key::extent(0, 0).len() + CHUNK_ENCODED_MAX + EACH);
        let onodes = self.onodes.iter().map(|(k, o)| k.len() + o.as_ref().map_or(0, |o| o.encode().len()) + EACH);
        let regions = self.regions.values().map(|r| key::shared(0).len() + r.encode().len() + EACH);
        let ops = self.ops.iter().map(|op| match op {
            KvOp::Put { key, value, .. } => key.len() + value.len() + EACH,
            KvOp::Delete { key, .. } => key.len() + EACH,
            KvOp::DeleteRange { from, to, .. } => from.len() + to.len() + EACH,
        });
        let deferred = self.deferred.iter().map(|b| b.data.len() + EACH);
        let fixed = 4 * EACH + self.writes.len() * EACH;
        let sum: usize = onodes.chain(regions).chain(ops).chain(deferred).sum();
        (fixed + chunks + sum) as u64
    }

    /// Sums the direct writes and turns everything into a plan.
    pub fn finish(self) -> Plan {
        let mut ops = self.ops;
        let mut shares = self.origins.shares(&ops);
        shares.direct(&self.writes);
        shares.deferred(&self.deferred);
        let mut changes = Changes { collections: self.collections, ..Default::default() };
        for (k, o) in self.onodes {
            let op = match &o {
                Some(o) => KvOp::Put { cf: Cf::Onode, key: k.clone(), value: o.encode() },
                None => KvOp::Delete { cf: Cf::Onode, key: k.clone() },
            };
            shares.metadata(|| Written::Onode(k.clone()), &op);
            ops.push(op);
            changes.onodes.insert(k, o.map(Arc::new));
        }
        let sums = data::Sums::of(&self.writes);
        for ((nid, index), mut c) in self.chunks {
            sums.fill(&mut c);
            let key = key::extent(nid, index);
            let op = match c.is_empty() {
                false => KvOp::Put { cf: Cf::Extent, key, value: c.encode() },
                true => KvOp::Delete { cf: Cf::Extent, key },
            };
            shares.metadata(|| Written::Chunk(nid, index), &op);
            ops.push(op);
            changes.chunks.insert((nid, index), Arc::new(c));
        }
        for (region, r) in self.regions {
            let key = key::shared(region);
            let op = match r.counts.is_empty() {
                false => KvOp::Put { cf: Cf::Shared, key, value: r.encode() },
                true => KvOp::Delete { cf: Cf::Shared, key },
            };
            shares.metadata(|| Written::Region(region), &op);
            ops.push(op);
            changes.regions.insert(region, Arc::new(r));
        }
        if let Some((next, mut reserved)) = self.ids {
            if next > reserved {
                reserved = next + ID_STEP;
                ops.push(KvOp::Put { cf: Cf::Meta, key: key::NEXT_ID.to_vec(), value: small::encode_u64(reserved) });
            }
            changes.ids = Some((next, reserved));
        }
        Plan {
            ops,
            changes,
            data: sums.refs(),
            writes: self.writes,
            deferred: self.deferred,
            taken: self.taken,
            freed: self.freed,
            stored: self.stored,
            objects: self.objects,
            cow_copies: self.cow_copies,
            shares,
        }
    }
}

/// Number of chunks that an object of `size` bytes may have.
pub fn chunks(size: u64) -> u32 {
    size.div_ceil(BLOCK_LEN * CHUNK_BLOCKS as u64) as u32
}

/// The chunk of a block of an object, and its index there.
fn split_block(block: u64) -> (u32, usize) {
    ((block / CHUNK_BLOCKS as u64) as u32, (block % CHUNK_BLOCKS as u64) as usize)
}

/// Refuses what exceeds a limit of the store.
fn limit(what: &'static str, got: u64, max: u64) -> Result<(), Error> {
    if got > max { Err(Error::TooLarge { what, got, max }) } else { Ok(()) }
}
