//! Reads. One that names an object runs when every transaction submitted before it on that object
//! is in the key-value store; transactions submitted after it wait until it has looked up what it
//! needs. Data is always compared with its checksum.

use std::sync::Arc;

use bytes::Bytes;
use lodestore_aio::{AlignedBuf, Done, IoError, IoOp};
use lodestore_kv::Cf;

use super::{Engine, Event, Flight, kind, token};
use crate::bugs::{self, Bug};
use crate::error::Error;
use crate::format::chunk::{CHUNK_BLOCKS, Slot};
use crate::format::onode::Onode;
use crate::format::{BLOCK_LEN, key, small};
use crate::meta::{Lookups, Missed};
use crate::read::{Answer, OmapRange, Read};
use crate::types::{CollectionId, ObjectId, ObjectStat, PAGE_MAX, READ_LEN_MAX, StatFs};

const B: u64 = BLOCK_LEN;
/// Blocks in one read of the medium, at most: 1 MiB.
const READ_BLOCKS_MAX: usize = 256;
/// Times a read is begun anew because a block did not match: it may have been overwritten in place
/// while it was read. After that it is damage.
const ATTEMPTS_MAX: u32 = 4;

/// A read that is not answered yet.
#[derive(Debug)]
pub(super) struct Reading {
    token: u64,
    read: Read,
    attempt: u32,
    lookups: Lookups,
    /// Metadata is being looked up for it: it runs again then, and not before.
    looking_up: bool,
    /// Data reads: the buffer of each range (whole blocks), and what is still under way.
    ranges: Vec<Range>,
    pieces: Vec<Piece>,
    left: usize,
    failed: Option<Error>,
    mismatch: bool,
}

#[derive(Debug)]
struct Range {
    offset: u64,
    len: u64,
    /// Covers the whole blocks around the range.
    buf: AlignedBuf,
}

/// Consecutive blocks of the medium, read by one I/O.
#[derive(Debug)]
struct Piece {
    range: usize,
    /// First block in the object.
    block: u64,
    place: u64,
    crcs: Vec<u32>,
    /// Whether what is read may be kept: not if the block got new contents meanwhile.
    keep: bool,
}

impl Engine {
    pub(super) fn start_read(&mut self, seq: u64, token: u64, read: Read) {
        let reading = Reading {
            token,
            read,
            attempt: 0,
            lookups: Lookups::default(),
            looking_up: false,
            ranges: Vec::new(),
            pieces: Vec::new(),
            left: 0,
            failed: None,
            mismatch: false,
        };
        self.reads.insert(seq, reading);
        self.run_or_wait(seq);
    }

    /// Runs a read unless a transaction submitted before it concerns its object or collection.
    fn run_or_wait(&mut self, seq: u64) {
        let Some(r) = self.reads.get(&seq) else { return };
        let Some((c, oid)) = object_of(&r.read) else {
            if self.pending.first().is_some_and(|s| *s < seq) {
                self.barriers.push_back(seq);
                return;
            }
            return self.run_read(seq);
        };
        let keys = [key::onode(c, oid), key::collection(c)];
        let earlier = |f: &Flight| f.txns.front().is_some_and(|s| *s < seq);
        if !keys.iter().any(|k| self.flights.get(k).is_some_and(earlier)) {
            return self.run_read(seq);
        }
        self.hold(seq, keys);
    }

    /// A read waits under the keys of its object and its collection, whichever holds it up: later
    /// transactions on either wait for it.
    fn hold(&mut self, seq: u64, keys: [Vec<u8>; 2]) {
        for k in keys {
            let reads = &mut self.flights.entry(k).or_default().reads;
            if let Err(i) = reads.binary_search(&seq) {
                reads.insert(i, seq);
            }
        }
    }

    fn unhold(&mut self, seq: u64, keys: [Vec<u8>; 2]) {
        for k in keys {
            if let Some(f) = self.flights.get_mut(&k) {
                f.reads.retain(|s| *s != seq);
                if f.txns.is_empty() && f.reads.is_empty() {
                    self.flights.remove(&k);
                }
            }
        }
    }

    /// Metadata that read `seq` waits for is in memory.
    pub(super) fn looked_up_for_read(&mut self, seq: u64) {
        let Some(r) = self.reads.get_mut(&seq) else { return };
        r.looking_up = false;
        let (c, oid) = object_of(&r.read).expect("only a read of an object looks something up");
        let keys = [key::onode(c, oid), key::collection(c)];
        self.unhold(seq, keys);
        self.run_read(seq);
    }

    /// Whether a read submitted before transaction `seq` still waits for one of its objects.
    pub(super) fn reads_come_first(&self, seq: u64, objects: &[Vec<u8>]) -> bool {
        let waits = |f: &Flight| f.reads.front().is_some_and(|s| *s < seq);
        objects.iter().any(|k| self.flights.get(k).is_some_and(waits))
    }

    /// Runs the reads that waited for transactions on these objects, and those that waited for all.
    pub(super) fn release_reads_of(&mut self, objects: &[Vec<u8>]) {
        let mut ready = Vec::new();
        for k in objects {
            let Some(f) = self.flights.get(k) else { continue };
            let first = f.txns.front().copied().unwrap_or(u64::MAX);
            let looking_up = |seq: &u64| self.reads.get(seq).is_some_and(|r| r.looking_up);
            ready.extend(f.reads.iter().take_while(|seq| **seq < first).filter(|seq| !looking_up(seq)).copied());
        }
        for seq in &ready {
            let Some((c, oid)) = self.reads.get(seq).and_then(|r| object_of(&r.read)) else { continue };
            let keys = [key::onode(c, oid), key::collection(c)];
            self.unhold(*seq, keys);
        }
        self.run_ready(ready);
    }

    /// The same for every object: after a failure nobody waits any more.
    pub(super) fn release_reads(&mut self) {
        let objects: Vec<Vec<u8>> = self.flights.keys().cloned().collect();
        self.release_reads_of(&objects);
    }

    fn run_ready(&mut self, mut ready: Vec<u64>) {
        let first = self.pending.first().copied().unwrap_or(u64::MAX);
        while let Some(read) = self.barriers.pop_front_if(|seq| *seq < first) {
            ready.push(read);
        }
        ready.sort_unstable();
        ready.dedup();
        ready.into_iter().for_each(|r| self.run_or_wait(r));
    }

    /// Looks up what the read needs; data goes on by I/O, everything else is answered.
    fn run_read(&mut self, id: u64) {
        // One that waited with others may have been told meanwhile that the ring failed.
        let Some(mut r) = self.reads.remove(&id) else { return };
        self.meta.without_blocking(std::mem::take(&mut r.lookups));
        // Taken out, so that the rest of the reading can be filled in beside it.
        let read = std::mem::replace(&mut r.read, Read::Collections);
        let answer = self.answer(&mut r, &read);
        r.read = read;
        r.lookups = self.meta.looked_up();
        let result = match answer {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => {
                self.issue(id, &mut r);
                self.reads.insert(id, r);
                // At once, not with the next `poll`: the medium works while the caller thinks.
                return self.start_io();
            }
            Err(Missed::NotInMemory) => {
                let place = r.lookups.take().expect("a lookup names what it lacks");
                let (c, oid) = object_of(&r.read).expect("only a read of an object looks something up");
                let keys = [key::onode(c, oid), key::collection(c)];
                r.looking_up = true;
                self.reads.insert(id, r);
                self.hold(id, keys);
                return self.look_up(place, id);
            }
            Err(Missed::Failed(e)) => Err(e),
        };
        self.events.push(Event::Answered { token: r.token, result });
    }

    /// The answer to a read; `None` if data has to be read for it.
    fn answer(&mut self, r: &mut Reading, read: &Read) -> Result<Option<Answer>, Missed> {
        if self.is_behind(read) {
            // After a failure in the middle of applying, this would miss acknowledged changes.
            return Err(Error::Poisoned(self.poison.clone().expect("it failed")).into());
        }
        Ok(Some(match read {
            Read::Data(c, oid, ranges) => {
                self.begin_data(r, *c, oid, ranges)?;
                if r.left > 0 {
                    return Ok(None);
                }
                Answer::Data(r.take_data())
            }
            Read::Stat(c, oid) => self.stat(*c, oid)?,
            Read::Extents(c, oid, offset, len) => self.extents(*c, oid, *offset, *len)?,
            Read::Attr(c, oid, name) => match self.object(*c, oid)?.attrs.get(name) {
                Some(v) => Answer::Attr(v.clone()),
                None => return Err(Error::NoAttr(oid.clone(), name.clone()).into()),
            },
            Read::Attrs(c, oid) => {
                let o = self.object(*c, oid)?;
                Answer::Entries(o.attrs.iter().map(|(k, v)| (k.clone(), v.clone())).collect(), false)
            }
            Read::OmapHeader(c, oid) => self.omap_header(*c, oid)?,
            Read::OmapValues(c, oid, keys) => self.omap_values(*c, oid, keys)?,
            Read::Omap(c, oid, range) => self.omap_page(*c, oid, range)?,
            Read::List(c, start, end, max) => self.list(*c, start.as_ref(), end.as_ref(), *max)?,
            Read::Collections => Answer::Collections(crate::meta::load_collections(&*self.kv)?.into_iter().collect()),
            Read::StatFs => Answer::Space(self.statfs()),
        }))
    }

    /// Whether an answer would lack acknowledged changes that the key-value store did not take.
    fn is_behind(&self, read: &Read) -> bool {
        match object_of(read) {
            Some((c, oid)) => [key::onode(c, oid), key::collection(c)].iter().any(|k| self.behind.contains(k)),
            None => !self.behind.is_empty(),
        }
    }

    /// After a failure of the ring: whoever waits for it is told.
    pub(super) fn fail_reads(&mut self, reason: &Arc<str>) {
        self.read_ios.clear();
        for (_, r) in std::mem::take(&mut self.reads) {
            self.events.push(Event::Answered { token: r.token, result: Err(Error::Poisoned(reason.clone())) });
        }
        self.flights.values_mut().for_each(|f| f.reads.clear());
        self.barriers.clear();
    }

    /// The onode of an object that must exist.
    fn object(&mut self, c: CollectionId, oid: &ObjectId) -> Result<Arc<Onode>, Missed> {
        let bits = *self.meta.collections().get(&c).ok_or(Error::NoCollection(c))?;
        if !key::belongs(c, bits, oid.hash) {
            return Err(Error::NoObject(c, oid.clone()).into());
        }
        Ok(self.meta.onode(&key::onode(c, oid))?.ok_or_else(|| Error::NoObject(c, oid.clone()))?)
    }

    fn stat(&mut self, c: CollectionId, oid: &ObjectId) -> Result<Answer, Missed> {
        let o = self.object(c, oid)?;
        let mut mapped = 0;
        for index in self.meta.chunk_indices(o.nid, 0, crate::plan::chunks(o.size))? {
            mapped += self.meta.chunk(o.nid, index)?.mapped();
        }
        Ok(Answer::Stat(ObjectStat { size: o.size, mapped: mapped * B, attrs: o.attrs.len(), hint: o.hint() }))
    }

    fn extents(&mut self, c: CollectionId, oid: &ObjectId, offset: u64, len: u64) -> Result<Answer, Missed> {
        let o = self.object(c, oid)?;
        let end = offset.saturating_add(len).min(o.size);
        let mut out: Vec<(u64, u64)> = Vec::new();
        if offset >= end {
            return Ok(Answer::Extents(out));
        }
        let (first, last) = (offset / B, (end - 1) / B);
        let span = CHUNK_BLOCKS as u64;
        for index in self.meta.chunk_indices(o.nid, (first / span) as u32, (last / span) as u32 + 1)? {
            let chunk = self.meta.chunk(o.nid, index)?;
            for (i, slot) in chunk.slots.iter().enumerate() {
                let block = u64::from(index) * span + i as u64;
                if slot.is_none() || block < first || block > last {
                    continue;
                }
                let (from, to) = ((block * B).max(offset), ((block + 1) * B).min(end));
                match out.last_mut() {
                    Some((o, l)) if *o + *l == from => *l += to - from,
                    _ => out.push((from, to - from)),
                }
            }
        }
        Ok(Answer::Extents(out))
    }

    fn omap_header(&mut self, c: CollectionId, oid: &ObjectId) -> Result<Answer, Missed> {
        let o = self.object(c, oid)?;
        let found = match o.omap {
            0 => None,
            id => self.meta.get(Cf::Omap, &key::omap_header(id))?,
        };
        Ok(Answer::Attr(found.map(small::decode_bytes).transpose()?.unwrap_or_default()))
    }

    fn omap_values(&mut self, c: CollectionId, oid: &ObjectId, keys: &[Vec<u8>]) -> Result<Answer, Missed> {
        let o = self.object(c, oid)?;
        let mut out = Vec::new();
        let mut keys: Vec<&Vec<u8>> = keys.iter().collect();
        keys.sort();
        keys.dedup();
        for k in keys {
            if o.omap != 0
                && let Some(v) = self.meta.get(Cf::Omap, &key::omap(o.omap, k))?
            {
                out.push((k.clone(), small::decode_bytes(v)?));
            }
        }
        Ok(Answer::Entries(out, false))
    }

    fn omap_page(&mut self, c: CollectionId, oid: &ObjectId, range: &OmapRange) -> Result<Answer, Missed> {
        let o = self.object(c, oid)?;
        if o.omap == 0 {
            return Ok(Answer::Entries(Vec::new(), false));
        }
        let mut lower = key::omap(o.omap, range.lower.as_deref().unwrap_or_default());
        if range.after && range.lower.is_some() {
            lower.push(0);
        }
        let upper = match &range.upper {
            Some(k) => key::omap(o.omap, k),
            None => key::omap_end(o.omap),
        };
        let max = range.max.min(PAGE_MAX);
        let mut out = Vec::new();
        if lower >= upper {
            return Ok(Answer::Entries(out, false));
        }
        let mut bytes = 0;
        for entry in self.kv.iter(Cf::Omap, &lower, &upper) {
            let (k, v) = entry?;
            if out.len() >= max || bytes >= OMAP_PAGE_BYTES_MAX {
                return Ok(Answer::Entries(out, true));
            }
            let (_, user) = key::parse_omap(&k)?;
            bytes += k.len() + v.len();
            out.push((user.unwrap_or_default().to_vec(), small::decode_bytes(v)?));
        }
        Ok(Answer::Entries(out, false))
    }

    fn list(
        &mut self,
        c: CollectionId,
        start: Option<&ObjectId>,
        end: Option<&ObjectId>,
        max: usize,
    ) -> Result<Answer, Missed> {
        let bits = *self.meta.collections().get(&c).ok_or(Error::NoCollection(c))?;
        let (mut from, mut to) = key::collection_range(c, bits);
        if let Some(s) = start {
            from = from.max(key::onode(c, s));
        }
        if let Some(e) = end {
            to = to.min(key::onode(c, e));
        }
        let max = max.min(PAGE_MAX);
        let mut out = Vec::new();
        if from < to {
            for entry in self.kv.iter(Cf::Onode, &from, &to) {
                let (_, oid) = key::parse_onode(&entry?.0)?;
                if out.len() >= max {
                    return Ok(Answer::Objects(out, Some(oid)));
                }
                out.push(oid);
            }
        }
        Ok(Answer::Objects(out, None))
    }

    /// Space now.
    pub fn statfs(&self) -> StatFs {
        let kv = self.kv.stats();
        let size = |cf: Cf| kv.by_cf[cf as usize].table_bytes + kv.by_cf[cf as usize].memtable_bytes;
        let all: u64 = lodestore_kv::CFS.iter().map(|cf| size(*cf)).sum();
        let free = self.alloc.free_blocks();
        let (usable, total, limbo) = (self.alloc.usable(), self.alloc.total(), self.limbo.blocks());
        let allocated = usable - free - limbo - self.doomed();
        StatFs {
            total: total * B,
            available: (total - allocated) * B,
            allocated: allocated * B,
            stored: self.stored * B,
            limbo: limbo * B,
            prewritten: usable * B,
            omap: size(Cf::Omap),
            metadata: all - size(Cf::Omap),
            objects: self.objects,
        }
    }

    /// Blocks freed by transactions that are not durable yet.
    pub(super) fn doomed(&self) -> u64 {
        self.groups.iter().map(|g| g.freed_blocks()).sum()
    }

    fn begin_data(
        &mut self,
        r: &mut Reading,
        c: CollectionId,
        oid: &ObjectId,
        ranges: &[(u64, u64)],
    ) -> Result<(), Missed> {
        let o = self.object(c, oid)?;
        (r.ranges, r.pieces, r.mismatch) = (Vec::new(), Vec::new(), false);
        let mut sum = 0u64;
        for (offset, len) in ranges {
            let end = offset.saturating_add(*len).min(o.size);
            let len = end.saturating_sub(*offset);
            sum = sum.saturating_add(len);
            if sum > READ_LEN_MAX {
                return Err(Error::TooLarge { what: "length of a read", got: sum, max: READ_LEN_MAX }.into());
            }
            let mut range = Range { offset: *offset, len, buf: AlignedBuf::with_capacity(0) };
            if len > 0 {
                let (first, last) = (offset / B, (end - 1) / B);
                let at = r.ranges.len();
                let slots = self.slots(o.nid, first, last)?;
                let one_io = self.is_one_io(&slots);
                // A single read fills its own buffer; only others need a place to be gathered in.
                if !one_io {
                    range.buf = AlignedBuf::zeroed(((last - first + 1) * B) as usize);
                }
                self.plan_pieces(r, at, first, &slots, &mut range);
            }
            r.ranges.push(range);
        }
        r.left = r.pieces.len();
        Ok(())
    }

    /// Whether blocks can be read by one I/O straight into the answer: all mapped, one behind the
    /// other in one file, none of them newer in memory.
    fn is_one_io(&mut self, slots: &[Option<Slot>]) -> bool {
        let follows = |w: &[Option<Slot>]| matches!(w, [Some(a), Some(b)] if a.place + 1 == b.place);
        let Some(first) = slots[0] else { return false };
        slots.len() <= READ_BLOCKS_MAX
            && self.locate(first.place).2 >= slots.len() as u64
            && slots.windows(2).all(follows)
            && !slots.iter().flatten().any(|s| self.in_memory(s).is_some())
    }

    /// Contents of a block that need not be read.
    fn in_memory(&mut self, slot: &Slot) -> Option<Bytes> {
        self.deferred.durable(slot.place).or_else(|| self.cache.get(slot.place, slot.crc))
    }

    /// Blocks are about to get new contents: neither cache nor reads under way may keep the old.
    pub(super) fn forget_cached(&mut self, place: u64, blocks: u64) {
        self.cache.evict(place, blocks);
        for (id, n) in self.read_ios.values() {
            let p = &mut self.reads.get_mut(id).expect("a read waits for all its pieces").pieces[*n];
            p.keep &= p.place + p.crcs.len() as u64 <= place || place + blocks <= p.place;
        }
    }

    /// Where blocks `first..=last` of an object lie.
    fn slots(&mut self, nid: u64, first: u64, last: u64) -> Result<Vec<Option<Slot>>, Missed> {
        let span = CHUNK_BLOCKS as u64;
        let mut out = Vec::with_capacity((last - first + 1) as usize);
        for index in first / span..=last / span {
            let chunk = self.meta.chunk(nid, index as u32)?;
            let from = first.max(index * span) - index * span;
            let to = last.min(index * span + span - 1) - index * span;
            out.extend_from_slice(&chunk.slots[from as usize..=to as usize]);
        }
        Ok(out)
    }

    /// Blocks in memory are copied, runs on the medium become pieces.
    fn plan_pieces(&mut self, r: &mut Reading, at: usize, first: u64, slots: &[Option<Slot>], range: &mut Range) {
        for (i, slot) in slots.iter().enumerate() {
            let Some(slot) = slot else { continue };
            if let Some(b) = self.in_memory(slot) {
                range.buf[i * B as usize..(i + 1) * B as usize].copy_from_slice(&b);
                continue;
            }
            let block = first + i as u64;
            match r.pieces.last_mut() {
                Some(p)
                    if p.range == at
                        && p.block + p.crcs.len() as u64 == block
                        && p.place + p.crcs.len() as u64 == slot.place
                        && p.crcs.len() < READ_BLOCKS_MAX
                        && self.locate(p.place).2 > p.crcs.len() as u64 =>
                {
                    p.crcs.push(slot.crc);
                }
                _ => r.pieces.push(Piece { range: at, block, place: slot.place, crcs: vec![slot.crc], keep: true }),
            }
        }
    }

    fn issue(&mut self, id: u64, r: &mut Reading) {
        for (n, p) in r.pieces.iter().enumerate() {
            let (file, offset, _) = self.locate(p.place);
            let len = p.crcs.len() * B as usize;
            self.ledger.count(|l| l.data_read += len as u64);
            let io = self.next_fetch;
            self.next_fetch += 1;
            self.read_ios.insert(io, (id, n));
            self.io(token(kind::READ, io), IoOp::Read { file, offset, buf: AlignedBuf::zeroed(len) });
        }
    }

    pub(super) fn read_done(&mut self, io: u64, d: Done) {
        // After a failure of the ring its reads were answered already.
        let Some((id, n)) = self.read_ios.remove(&io) else { return };
        let r = self.reads.get_mut(&id).expect("a read waits for all its pieces");
        r.left -= 1;
        let oid = object_of(&r.read).map(|(_, oid)| oid.clone()).expect("data belongs to an object");
        let p = &r.pieces[n];
        match d.result {
            Err(error) => r.failed = Some(read_failed(oid, error)),
            Ok(()) => {
                let buf = d.buf.expect("a read returns its buffer");
                let bad = buf.chunks_exact(B as usize).zip(&p.crcs).position(|(b, crc)| crc32c::crc32c(b) != *crc);
                if let Some(i) = bad.filter(|_| !bugs::enabled(Bug::SkipReadChecksum)) {
                    let got = crc32c::crc32c(&buf[i * B as usize..(i + 1) * B as usize]);
                    let (offset, place, expected) = ((p.block + i as u64) * B, p.place + i as u64, p.crcs[i]);
                    r.mismatch = true;
                    let place = self.place_name(place);
                    let r = self.reads.get_mut(&id).expect("looked up above");
                    r.failed = Some(Error::Damaged { oid: Box::new(oid), offset, place, got, expected });
                } else {
                    if p.keep {
                        for (i, b) in buf.chunks_exact(B as usize).enumerate() {
                            self.cache.insert(p.place + i as u64, p.crcs[i], b);
                        }
                    }
                    let range = &mut r.ranges[p.range];
                    if range.buf.is_empty() {
                        range.buf = buf;
                    } else {
                        let at = ((p.block - range.offset / B) * B) as usize;
                        range.buf[at..at + buf.len()].copy_from_slice(&buf);
                    }
                }
            }
        }
        let r = &self.reads[&id];
        if r.left == 0 {
            self.finish_data(id);
        }
    }

    fn finish_data(&mut self, id: u64) {
        let r = self.reads.get_mut(&id).expect("a read waits for all its pieces");
        if r.mismatch {
            r.attempt += 1;
            if r.attempt < ATTEMPTS_MAX {
                (r.failed, r.mismatch) = (None, false);
                self.counters.reads_retried += 1;
                // Asked anew: it must wait for what was submitted meanwhile, or it would see
                // changes that are not durable.
                let r = self.reads.remove(&id).expect("looked up above");
                let seq = self.next_seq();
                self.reads.insert(seq, r);
                return self.run_or_wait(seq);
            }
            self.counters.damaged_blocks += 1;
        }
        let mut r = self.reads.remove(&id).expect("looked up above");
        let result = match r.failed.take() {
            Some(e) => Err(e),
            None => Ok(Answer::Data(r.take_data())),
        };
        self.events.push(Event::Answered { token: r.token, result });
    }
}

/// Most bytes of keys and values in a page of an omap.
const OMAP_PAGE_BYTES_MAX: usize = 32 << 20;

impl Reading {
    /// The ranges asked for, cut out of their blocks.
    fn take_data(&mut self) -> Vec<Bytes> {
        let cut = |r: Range| {
            let at = (r.offset % B) as usize;
            match r.len {
                0 => Bytes::new(),
                len => r.buf.freeze().slice(at..at + len as usize),
            }
        };
        std::mem::take(&mut self.ranges).into_iter().map(cut).collect()
    }
}

fn read_failed(oid: ObjectId, error: IoError) -> Error {
    Error::ReadFailed { oid: Box::new(oid), error }
}

/// The object that a read is about, if it is one.
fn object_of(read: &Read) -> Option<(CollectionId, &ObjectId)> {
    match read {
        Read::Stat(c, oid)
        | Read::Data(c, oid, _)
        | Read::Extents(c, oid, ..)
        | Read::Attr(c, oid, _)
        | Read::Attrs(c, oid)
        | Read::OmapHeader(c, oid)
        | Read::OmapValues(c, oid, _)
        | Read::Omap(c, oid, _) => Some((*c, oid)),
        Read::List(..) | Read::Collections | Read::StatFs => None,
    }
}
