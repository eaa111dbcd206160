//! One object of the model: sparse blocks, attributes, omap.

use std::collections::BTreeMap;
use std::sync::Arc;

use lodestore::AllocHint;

/// Bytes of one block, as in the engine.
pub const BLOCK: u64 = 4096;

/// A block's bytes. Two objects that share one `Arc` share one block on disk.
pub type Block = Arc<[u8]>;

/// An object as the contract sees it.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Logical size in bytes.
    pub size: u64,
    /// Mapped blocks by index. Bytes of the last block behind `size` are zero.
    pub blocks: BTreeMap<u64, Block>,
    /// Attributes.
    pub attrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Omap header, empty if none was set.
    pub header: Vec<u8>,
    /// Omap; shared, because most changes leave it alone.
    pub omap: Arc<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Last allocation hint.
    pub hint: AllocHint,
}

fn zero_block() -> Block {
    Arc::from(vec![0u8; BLOCK as usize])
}

fn bytes_of(block: &mut Block) -> &mut [u8] {
    if Arc::get_mut(block).is_none() {
        *block = Arc::from(&block[..]);
    }
    Arc::get_mut(block).expect("the block was made unique")
}

impl Object {
    /// Writes `data` at `offset`; the caller checked the limits.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (index, inside) = (at / BLOCK, (at % BLOCK) as usize);
            let n = rest.len().min(BLOCK as usize - inside);
            if n == BLOCK as usize {
                self.blocks.insert(index, Arc::from(&rest[..n]));
            } else {
                let block = self.blocks.entry(index).or_insert_with(zero_block);
                bytes_of(block)[inside..inside + n].copy_from_slice(&rest[..n]);
            }
            at += n as u64;
            rest = &rest[n..];
        }
        self.size = self.size.max(at);
    }

    /// Makes `offset..end` read as zeros: blocks wholly inside become holes, parts of mapped blocks
    /// are zeroed where they are not zeros already.
    pub fn punch(&mut self, offset: u64, end: u64) {
        if offset >= end {
            return;
        }
        let touched: Vec<u64> = self.blocks.range(offset / BLOCK..=(end - 1) / BLOCK).map(|(i, _)| *i).collect();
        for index in touched {
            let start = index * BLOCK;
            let (from, to) = (offset.max(start) - start, end.min(start + BLOCK) - start);
            if to - from == BLOCK {
                self.blocks.remove(&index);
                continue;
            }
            let block = self.blocks.get_mut(&index).expect("the index was found above");
            let part = from as usize..to as usize;
            if block[part.clone()].iter().any(|b| *b != 0) {
                bytes_of(block)[part].fill(0);
            }
        }
    }

    /// Zeroes a range and extends the object to its end. A last block that is zeroed up to the
    /// block's own end is a hole, one zeroed only up to the object's end is not.
    pub fn zero(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = (offset + len).min(self.size.next_multiple_of(BLOCK));
        self.size = self.size.max(offset + len);
        self.punch(offset, end);
    }

    /// Sets the size, cutting or extending with a hole.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            let keep = size.div_ceil(BLOCK);
            self.blocks.split_off(&keep);
            self.punch(size, size.next_multiple_of(BLOCK));
        }
        self.size = size;
    }

    /// Bytes of `offset..offset + len`, cut at the end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return Vec::new();
        }
        let mut out = vec![0u8; (end - offset) as usize];
        for (index, block) in self.blocks.range(offset / BLOCK..=(end - 1) / BLOCK) {
            let start = index * BLOCK;
            let (from, to) = (offset.max(start), end.min(start + BLOCK));
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&block[(from - start) as usize..(to - start) as usize]);
        }
        out
    }

    /// Copies `len` bytes (cut at the end of `from`) to `to_offset`. Whole blocks that are blocks
    /// on both sides are shared.
    pub fn clone_range(&mut self, from: &Object, from_offset: u64, len: u64, to_offset: u64) {
        let end = from_offset.saturating_add(len).min(from.size);
        if from_offset >= end {
            return;
        }
        let len = end - from_offset;
        self.size = self.size.max(to_offset + len);
        let mut at = from_offset;
        while at < end {
            let to = to_offset + (at - from_offset);
            // Up to the next block edge of either side.
            let n = (BLOCK - at % BLOCK).min(BLOCK - to % BLOCK).min(end - at);
            match from.blocks.get(&(at / BLOCK)) {
                Some(block) if n == BLOCK => {
                    self.blocks.insert(to / BLOCK, block.clone());
                }
                Some(block) => {
                    let start = (at % BLOCK) as usize;
                    let part = block[start..start + n as usize].to_vec();
                    self.write(to, &part);
                }
                None => self.punch(to, to + n),
            }
            at += n;
        }
    }

    /// Mapped parts of `offset..offset + len`, merged, cut at the object's end.
    pub fn extents(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(len).min(self.size);
        let mut out: Vec<(u64, u64)> = Vec::new();
        if offset >= end {
            return out;
        }
        for index in self.blocks.range(offset / BLOCK..=(end - 1) / BLOCK).map(|(i, _)| *i) {
            let (start, stop) = ((index * BLOCK).max(offset), ((index + 1) * BLOCK).min(end));
            match out.last_mut() {
                Some((s, l)) if *s + *l == start => *l = stop - *s,
                _ => out.push((start, stop - start)),
            }
        }
        out
    }

    /// Bytes of names and values of all attributes.
    pub fn attrs_len(&self) -> usize {
        self.attrs.iter().map(|(k, v)| k.len() + v.len()).sum()
    }
}
