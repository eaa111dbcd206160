//! Clones: blocks are shared by reference count until one side overwrites them.

use super::data::end_of;
use super::*;

const B: u64 = BLOCK_LEN;

/// What a part of a cloned range becomes.
enum Piece {
    /// Whole blocks, shared.
    Share,
    /// Nothing is mapped there.
    Hole,
    /// Bytes that lie within one block of the source.
    Copy(Bytes),
}

impl Planner<'_> {
    pub(super) fn clone_object(&mut self, c: CollectionId, from: &ObjectId, to: &ObjectId) -> Result<(), Stop> {
        let from_key = self.existing(c, from)?;
        if from == to {
            return Err(Error::Invalid(format!("object {from} cannot be cloned onto itself")).into());
        }
        let source = self.onode(&from_key).clone();
        // Reading an omap means reading the key-value store, which must be up to date for it.
        if source.omap != 0 && !self.env.drained {
            return Err(Stop::Drain);
        }
        let to_key = self.open(c, to)?;
        self.empty(&to_key)?;
        let nid = self.onode(&to_key).nid;
        let omap = if source.omap == 0 { 0 } else { self.new_id() };
        for index in self.chunk_indices(source.nid, 0, chunks(source.size))? {
            self.share_chunk(source.nid, nid, index)?;
        }
        if omap != 0 {
            for (k, value) in self.omap_entries(source.omap)? {
                let key = match key::parse_omap(&k)?.1 {
                    Some(user) => key::omap(omap, user),
                    None => key::omap_header(omap),
                };
                self.ops.push(KvOp::Put { cf: Cf::Omap, key, value });
            }
        }
        *self.onode_mut(&to_key) = Onode { nid, omap, ..source };
        Ok(())
    }

    /// Gives object `to`, which has nothing there, the blocks of a chunk of object `from`.
    fn share_chunk(&mut self, from: u64, to: u64, index: u32) -> Result<(), Stop> {
        let mut chunk = match self.chunks.get(&(from, index)) {
            Some(c) => c.clone(),
            None => (*self.meta.chunk(from, index)?).clone(),
        };
        if chunk.is_empty() {
            return Ok(());
        }
        let mut newly = false;
        for slot in chunk.slots.iter_mut().flatten() {
            newly |= !slot.shared;
            slot.shared = true;
            self.stored += 1;
            self.share(slot.place)?;
        }
        if newly {
            self.put_chunk(from, index, chunk.clone());
        }
        self.put_chunk(to, index, chunk);
        Ok(())
    }

    pub(super) fn clone_range(
        &mut self,
        c: CollectionId,
        from: &ObjectId,
        to: &ObjectId,
        from_offset: u64,
        len: u64,
        to_offset: u64,
    ) -> Result<(), Stop> {
        let from_key = self.existing(c, from)?;
        end_of(from_offset, len)?;
        end_of(to_offset, len)?;
        let source = self.onode(&from_key).clone();
        let len = len.min(source.size.saturating_sub(from_offset));
        if from == to && from_offset < to_offset + len && to_offset < from_offset + len {
            return Err(Error::Invalid(format!("the two ranges of object {from} overlap")).into());
        }
        let to_key = self.open(c, to)?;
        if len == 0 {
            return Ok(());
        }
        let (nid, size) = self.grow(&to_key, to_offset + len);
        let size = size.max(to_offset);
        // Everything is looked up before anything is changed: within one object, the first block
        // written may be the last one read.
        for (at, n, piece) in self.clone_pieces(source.nid, from_offset, to_offset, len)? {
            let (f, t) = (from_offset + at, to_offset + at);
            match piece {
                Piece::Share => self.share_blocks(source.nid, f / B, nid, t / B, n / B)?,
                Piece::Hole => self.zero_bytes(nid, size.max(t + n), t, t + n)?,
                Piece::Copy(data) => self.write_bytes(nid, size, t, &data)?,
            }
        }
        Ok(())
    }

    /// Divides a range into whole blocks that can be shared, and parts that must be copied, as
    /// offset in the range, length, and what it is.
    fn clone_pieces(&mut self, nid: u64, from: u64, to: u64, len: u64) -> Result<Vec<(u64, u64, Piece)>, Stop> {
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < len {
            let (f, t) = (from + at, to + at);
            let left = len - at;
            let (n, piece) = if f % B == 0 && t % B == 0 && left >= B {
                (left / B * B, Piece::Share)
            } else {
                // Up to the end of the source's block.
                let n = left.min(B - f % B);
                match self.slot(nid, f / B)? {
                    None => (n, Piece::Hole),
                    Some(slot) => {
                        let data = self.content(f / B, slot)?;
                        (n, Piece::Copy(data.slice((f % B) as usize..(f % B + n) as usize)))
                    }
                }
            };
            pieces.push((at, n, piece));
            at += n;
        }
        Ok(pieces)
    }

    /// Maps `blocks` blocks of object `to` to those of object `from`, sharing them.
    fn share_blocks(&mut self, from: u64, from_block: u64, to: u64, to_block: u64, blocks: u64) -> Result<(), Stop> {
        self.punch(to, to_block, to_block + blocks)?;
        let end = from_block + blocks;
        for index in self.chunk_indices(from, split_block(from_block).0, split_block(end - 1).0 + 1)? {
            let base = u64::from(index) * CHUNK_BLOCKS as u64;
            for i in 0..CHUNK_BLOCKS {
                let block = base + i as u64;
                if !(from_block..end).contains(&block) {
                    continue;
                }
                let Some(slot) = self.slot(from, block)? else { continue };
                let shared = Slot { shared: true, ..slot };
                if !slot.shared {
                    self.set_slot(from, block, shared)?;
                }
                self.set_slot(to, block - from_block + to_block, shared)?;
                self.share(slot.place)?;
                self.stored += 1;
            }
        }
        Ok(())
    }

    fn set_slot(&mut self, nid: u64, block: u64, slot: Slot) -> Result<(), Stop> {
        let (index, i) = split_block(block);
        let mut chunk = self.take_chunk(nid, index)?;
        chunk.slots[i] = Some(slot);
        self.put_chunk(nid, index, chunk);
        Ok(())
    }
}
