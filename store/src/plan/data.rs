//! Writes, zeros and truncation: which blocks are allocated, overwritten in place or freed.

use bytes::Bytes;
use lodestore_aio::{AlignedBuf, aligned};

use super::*;
use crate::format::BLOCK_LEN;

const B: u64 = BLOCK_LEN;

/// One block of an object to be given new contents.
struct NewBlock {
    block: u64,
    /// Aligned memory that holds the contents, from byte `at` on.
    source: Bytes,
    at: usize,
}

impl NewBlock {
    fn data(&self) -> &[u8] {
        &self.source[self.at..self.at + B as usize]
    }

    fn bytes(&self) -> Bytes {
        self.source.slice(self.at..self.at + B as usize)
    }
}

impl Planner<'_> {
    pub(super) fn write(&mut self, c: CollectionId, oid: &ObjectId, offset: u64, data: &Bytes) -> Result<(), Stop> {
        limit("length of a write", data.len() as u64, WRITE_LEN_MAX as u64)?;
        let end = end_of(offset, data.len() as u64)?;
        let k = self.open(c, oid)?;
        if data.is_empty() {
            return Ok(());
        }
        let (nid, size) = self.grow(&k, end);
        self.write_bytes(nid, size, offset, data)
    }

    /// Writes bytes to the blocks of object `nid`, which was `size` bytes long.
    pub(super) fn write_bytes(&mut self, nid: u64, size: u64, offset: u64, data: &Bytes) -> Result<(), Stop> {
        let end = offset + data.len() as u64;
        let (first, last) = (offset / B, (end - 1) / B);
        if first == last && (offset % B != 0 || end % B != 0) {
            self.write_partial(nid, size, offset, data)?;
        } else {
            let mut from = offset;
            if offset % B != 0 {
                from = (first + 1) * B;
                self.write_partial(nid, size, offset, &data.slice(..(from - offset) as usize))?;
            }
            let to = end / B * B;
            if to > from {
                let middle = aligned(data.slice((from - offset) as usize..(to - offset) as usize));
                let at = |block: u64| (block * B - from) as usize;
                let whole = (from / B..to / B).map(|block| NewBlock { block, source: middle.clone(), at: at(block) });
                let in_place = self.env.policy == Policy::Deferred && to - from <= self.env.deferred_max;
                self.write_blocks(nid, whole.collect(), in_place)?;
            }
            if end % B != 0 {
                self.write_partial(nid, size, to, &data.slice((to - offset) as usize..))?;
            }
        }
        Ok(())
    }

    /// Writes part of one block; the rest of it keeps its contents.
    fn write_partial(&mut self, nid: u64, size: u64, offset: u64, data: &[u8]) -> Result<(), Stop> {
        let (block, at) = (offset / B, (offset % B) as usize);
        let old = self.slot(nid, block)?;
        // Behind the object's end a block is zeros, by invariant: nothing to read then.
        let covers_all = at == 0 && offset + data.len() as u64 >= size;
        let mut merged = match old {
            Some(slot) if !covers_all => AlignedBuf::copy_of(&self.content(block, slot)?),
            _ => AlignedBuf::zeroed(B as usize),
        };
        merged[at..at + data.len()].copy_from_slice(data);
        let in_place = self.env.policy != Policy::Direct;
        self.write_blocks(nid, vec![NewBlock { block, source: merged.freeze(), at: 0 }], in_place)
    }

    /// Gives blocks new contents: in place through the log where `in_place` and the block allow
    /// it, else in newly allocated blocks.
    fn write_blocks(&mut self, nid: u64, blocks: Vec<NewBlock>, in_place: bool) -> Result<(), Stop> {
        let mut direct = Vec::with_capacity(blocks.len());
        for new in blocks {
            if self.rewrite(nid, &new)? || (in_place && self.overwrite(nid, &new)?) {
                continue;
            }
            direct.push(new);
        }
        if direct.is_empty() {
            return Ok(());
        }
        let runs = self.allocate(direct.len() as u64)?;
        let mut rest = &direct[..];
        for run in runs {
            let (now, later) = rest.split_at(run.blocks as usize);
            rest = later;
            self.write_run(nid, run, now)?;
        }
        Ok(())
    }

    /// Changes what this very transaction is about to write to a block, if it is: no second block
    /// is needed for it.
    fn rewrite(&mut self, nid: u64, new: &NewBlock) -> Result<bool, Stop> {
        let Some(slot) = self.slot(nid, new.block)? else { return Ok(false) };
        let Some((&first, piece)) = self.fresh.range(..=slot.place).next_back() else { return Ok(false) };
        let (at, n) = ((slot.place - first) as usize, piece.len() / B as usize);
        if at >= n || self.is_shared(slot)? {
            return Ok(false);
        }
        let old = self.fresh.remove(&first).expect("found above");
        let bytes = |from: usize, to: usize| old.slice(from * B as usize..to * B as usize);
        for (from, data) in [(0, bytes(0, at)), (at, new.bytes()), (at + 1, bytes(at + 1, n))] {
            if !data.is_empty() {
                let place = first + from as u64;
                self.origins.split(Written::Direct(first), Written::Direct(place));
                self.fresh.insert(place, data);
            }
        }
        self.origins.mark(|| Written::Direct(slot.place));
        let (index, i) = split_block(new.block);
        let mut chunk = self.take_chunk(nid, index)?;
        chunk.slots[i] = Some(Slot { shared: false, ..slot });
        self.put_chunk(nid, index, chunk);
        Ok(true)
    }

    /// Overwrites one block in place, deferred, if that is allowed.
    fn overwrite(&mut self, nid: u64, new: &NewBlock) -> Result<bool, Stop> {
        let Some(slot) = self.slot(nid, new.block)? else { return Ok(false) };
        if self.is_shared(slot)? && !bugs::enabled(Bug::OverwriteShared) {
            self.cow_copies += 1;
            return Ok(false);
        }
        let settled = block_in(self.env.writing, slot.place).is_none();
        let room = (self.deferred.len() as u64 + 1) * B <= self.env.deferred_max;
        if !settled || !(room || self.deferred.contains_key(&slot.place)) {
            return Ok(false);
        }
        let (index, i) = split_block(new.block);
        let mut chunk = self.take_chunk(nid, index)?;
        chunk.slots[i] = Some(Slot { place: slot.place, crc: crc32c::crc32c(new.data()), shared: false });
        self.put_chunk(nid, index, chunk);
        let by = self.origins.now();
        self.deferred.insert(slot.place, Overwrite { place: slot.place, data: new.bytes(), by });
        Ok(true)
    }

    /// Maps consecutive data-space blocks `run` to `blocks` and writes them direct. Their checksums
    /// follow when the plan is finished.
    fn write_run(&mut self, nid: u64, run: Run, blocks: &[NewBlock]) -> Result<(), Stop> {
        let mut at = 0;
        while at < blocks.len() {
            let (index, _) = split_block(blocks[at].block);
            let mut chunk = self.take_chunk(nid, index)?;
            while let Some(new) = blocks.get(at).filter(|n| split_block(n.block).0 == index) {
                let slot = Slot { place: run.place + at as u64, crc: UNSUMMED, shared: false };
                self.stored += 1;
                if let Some(old) = chunk.slots[split_block(new.block).1].replace(slot) {
                    self.unmap(old)?;
                }
                at += 1;
            }
            self.put_chunk(nid, index, chunk);
        }
        self.write_pieces(run.place, blocks);
        Ok(())
    }

    /// One device write for each stretch of blocks that is one stretch of memory.
    fn write_pieces(&mut self, place: u64, blocks: &[NewBlock]) {
        let mut at = 0;
        while at < blocks.len() {
            let first = &blocks[at];
            let follows = |n: usize| {
                blocks
                    .get(at + n)
                    .is_some_and(|b| b.source.as_ptr() == first.source.as_ptr() && b.at == first.at + n * B as usize)
            };
            let n = (1..).find(|n| !follows(*n)).expect("the list of blocks ends");
            self.origins.mark(|| Written::Direct(place + at as u64));
            self.fresh.insert(place + at as u64, first.source.slice(first.at..first.at + n * B as usize));
            at += n;
        }
    }

    /// Contents of a block that this transaction writes direct.
    fn fresh(&self, place: u64) -> Option<Bytes> {
        block_in(&self.fresh, place)
    }

    /// Contents of a block as the transaction finds them, or zeros with a note that they must be
    /// read first.
    pub(super) fn content(&mut self, block: u64, slot: Slot) -> Result<Bytes, Stop> {
        if let Some(b) = self.deferred.get(&slot.place).map(|d| d.data.clone()).or_else(|| self.fresh(slot.place)) {
            return Ok(b);
        }
        if let Some(b) = self.env.pending.newest(slot.place).or_else(|| block_in(self.env.writing, slot.place)) {
            return Ok(b);
        }
        match self.env.fetched.get(&slot.place).filter(|f| f.expected == slot.crc) {
            None => {
                self.needs.push(slot);
                Ok(Bytes::from_owner(AlignedBuf::zeroed(B as usize)))
            }
            Some(Fetched { found: Ok(b), .. }) => Ok(b.clone()),
            Some(Fetched { found: Err(e), .. }) => {
                let oid = Box::new(self.current.clone().expect("an object is at work"));
                Err(match e {
                    FetchError::Mismatch(got) => Error::Damaged {
                        oid,
                        offset: block * B,
                        place: (self.env.place_name)(slot.place),
                        got: *got,
                        expected: slot.crc,
                    },
                    FetchError::Io(error) => Error::ReadFailed { oid, error: error.clone() },
                }
                .into())
            }
        }
    }

    pub(super) fn zero(&mut self, c: CollectionId, oid: &ObjectId, offset: u64, len: u64) -> Result<(), Stop> {
        let end = end_of(offset, len)?;
        let k = self.open(c, oid)?;
        if len == 0 {
            return Ok(());
        }
        let (nid, size) = self.grow(&k, end);
        self.zero_bytes(nid, size, offset, end)
    }

    /// Sees to it that an object ends at `end` or behind it; its number, and its size before.
    pub(super) fn grow(&mut self, k: &[u8], end: u64) -> (u64, u64) {
        let (nid, size) = (self.onode(k).nid, self.onode(k).size);
        if end > size {
            self.onode_mut(k).size = end;
        }
        (nid, size)
    }

    /// Makes `offset..end` of object `nid`, which was `size` bytes long, read as zeros.
    pub(super) fn zero_bytes(&mut self, nid: u64, size: u64, offset: u64, end: u64) -> Result<(), Stop> {
        let end = end.min(size.next_multiple_of(B));
        if offset >= end {
            return Ok(());
        }
        let (first_whole, last_whole) = (offset.div_ceil(B), end / B);
        if first_whole > last_whole {
            return self.zero_part(nid, offset, end);
        }
        if offset % B != 0 {
            self.zero_part(nid, offset, first_whole * B)?;
        }
        self.punch(nid, first_whole, last_whole)?;
        if end % B != 0 {
            self.zero_part(nid, last_whole * B, end)?;
        }
        Ok(())
    }

    /// Zeros part of one block, if it is mapped at all.
    fn zero_part(&mut self, nid: u64, offset: u64, end: u64) -> Result<(), Stop> {
        let block = offset / B;
        let Some(slot) = self.slot(nid, block)? else { return Ok(()) };
        let old = self.content(block, slot)?;
        let range = (offset % B) as usize..(offset % B + end - offset) as usize;
        if old[range.clone()].iter().all(|b| *b == 0) {
            return Ok(());
        }
        let mut data = AlignedBuf::copy_of(&old);
        data[range].fill(0);
        let in_place = self.env.policy != Policy::Direct;
        self.write_blocks(nid, vec![NewBlock { block, source: data.freeze(), at: 0 }], in_place)
    }

    /// Unmaps blocks `from..to`.
    pub(super) fn punch(&mut self, nid: u64, from: u64, to: u64) -> Result<(), Stop> {
        if from >= to {
            return Ok(());
        }
        for index in self.chunk_indices(nid, split_block(from).0, split_block(to - 1).0 + 1)? {
            let base = u64::from(index) * CHUNK_BLOCKS as u64;
            let changed = self.chunks.contains_key(&(nid, index));
            let mut chunk = self.take_chunk(nid, index)?;
            let mut freed = 0;
            for (i, s) in chunk.slots.iter_mut().enumerate() {
                let block = base + i as u64;
                if (from..to).contains(&block)
                    && let Some(slot) = s.take()
                {
                    self.unmap(slot)?;
                    freed += 1;
                }
            }
            // A chunk in which nothing changes need not be written.
            if freed > 0 || changed {
                self.put_chunk(nid, index, chunk);
            }
        }
        Ok(())
    }

    pub(super) fn truncate(&mut self, c: CollectionId, oid: &ObjectId, size: u64) -> Result<(), Stop> {
        limit("size of an object", size, OBJECT_LEN_MAX)?;
        let k = self.existing(c, oid)?;
        let o = self.onode_mut(&k);
        let (nid, old) = (o.nid, o.size);
        o.size = size;
        if size < old {
            self.punch(nid, size.div_ceil(B), old.div_ceil(B))?;
            if size % B != 0 && !bugs::enabled(Bug::TruncateKeepsTail) {
                self.zero_part(nid, size, (size / B + 1) * B)?;
            }
        }
        Ok(())
    }
}

/// What stands for a checksum until [`Sums`] are known.
const UNSUMMED: u32 = 0;

/// Checksums of blocks written direct.
pub(super) struct Sums {
    /// By first block: one checksum a block.
    pieces: Vec<(u64, Vec<u32>)>,
}

impl Sums {
    /// Sums the blocks of `writes`, which are in order.
    pub fn of(writes: &[(u64, Bytes)]) -> Sums {
        let sum = |data: &Bytes| data.chunks_exact(B as usize).map(crc32c::crc32c).collect();
        Sums { pieces: writes.iter().map(|(place, data)| (*place, sum(data))).collect() }
    }

    /// Gives the slots of `chunk` that map blocks written direct their checksums.
    pub fn fill(&self, chunk: &mut Chunk) {
        let (Some(first), Some(last)) = (self.pieces.first(), self.pieces.last()) else { return };
        let all = first.0..last.0 + last.1.len() as u64;
        for slot in chunk.slots.iter_mut().flatten().filter(|s| all.contains(&s.place)) {
            let i = self.pieces.partition_point(|(place, _)| *place <= slot.place) - 1;
            let (place, crcs) = &self.pieces[i];
            if let Some(crc) = crcs.get((slot.place - place) as usize) {
                slot.crc = *crc;
            }
        }
    }

    /// For the log: one checksum of checksums for each run of consecutive blocks.
    pub fn refs(&self) -> Vec<DataRef> {
        let mut refs: Vec<DataRef> = Vec::new();
        for (place, crcs) in &self.pieces {
            let sum = |crc: u32| crcs.iter().fold(crc, |sum, c| crc32c::crc32c_append(sum, &c.to_le_bytes()));
            match refs.last_mut() {
                Some(r) if r.place + u64::from(r.blocks) == *place => {
                    r.crc = sum(r.crc);
                    r.blocks += crcs.len() as u32;
                }
                _ => refs.push(DataRef { place: *place, blocks: crcs.len() as u32, crc: sum(0) }),
            }
        }
        refs
    }
}

/// The contents of a block among pieces of whole blocks, by first block.
fn block_in(pieces: &BTreeMap<u64, Bytes>, place: u64) -> Option<Bytes> {
    let (first, piece) = pieces.range(..=place).next_back()?;
    let at = ((place - first) * B) as usize;
    (at < piece.len()).then(|| piece.slice(at..at + B as usize))
}

/// The end of a range, within the largest object.
pub(super) fn end_of(offset: u64, len: u64) -> Result<u64, Error> {
    let end =
        offset.checked_add(len).ok_or_else(|| Error::Invalid(format!("offset {offset} + length {len} overflows")))?;
    limit("size of an object", end, OBJECT_LEN_MAX)?;
    Ok(end)
}
