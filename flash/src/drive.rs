//! The translation layer: where each page lies, and how room is made for the next.

use std::collections::VecDeque;
use std::ops::Range;

use crate::class::{Class, STREAMS};
use crate::counts::Counts;
use crate::error::FlashError;
use crate::geometry::{Geometry, OPEN_MAX};
use crate::victims::Victims;

const NONE: u32 = u32::MAX;

/// Free blocks that only collection may take: it moves at most one block's pages at a time.
const FREE_KEPT: usize = 1;

/// A drive with page mapping and greedy garbage collection.
///
/// Pages are written one after the other into an open block. When no block is free but the one
/// kept for it, the full block with the fewest valid pages is collected: these are appended behind
/// the host's (with streams: to an open block for moved pages), and the block is erased.
///
/// It takes 9 bytes of memory and a little for each page the host can address.
#[derive(Debug)]
pub struct Drive {
    geometry: Geometry,
    /// Pages in a block.
    per_block: u32,
    /// Physical page of each page the host can address.
    map: Vec<u32>,
    /// The other way round; `NONE` where the page is free or no longer valid.
    owner: Vec<u32>,
    /// Who wrote each page last, by [`Class::index`].
    class: Vec<u8>,
    blocks: Vec<Block>,
    /// The full blocks.
    victims: Victims,
    free: VecDeque<u32>,
    open: [Option<Open>; OPEN_MAX],
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    valid: u32,
    /// Whether it may be collected.
    full: bool,
}

/// A block being filled.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    filled: u32,
}

impl Drive {
    /// A drive, erased, of which the host can address `bytes` (rounded up to pages).
    ///
    /// # Errors
    /// [`FlashError::Geometry`] for sizes that make no drive.
    pub fn new(geometry: Geometry, bytes: u64) -> Result<Drive, FlashError> {
        geometry.check()?;
        let per_block = geometry.pages_per_block() as u32;
        let mut drive = Drive {
            geometry,
            per_block,
            map: Vec::new(),
            owner: Vec::new(),
            class: Vec::new(),
            blocks: Vec::new(),
            victims: Victims::new(per_block as usize),
            free: VecDeque::new(),
            open: [None; OPEN_MAX],
            counts: Counts::default(),
        };
        drive.grow(bytes)?;
        Ok(drive)
    }

    /// Makes the drive larger: the host can address `bytes` more, and erased blocks are added in
    /// proportion.
    ///
    /// # Errors
    /// [`FlashError::Geometry`] if it would have too many pages, or too few spare blocks; nothing
    /// is changed then.
    pub fn grow(&mut self, bytes: u64) -> Result<(), FlashError> {
        let pages = self.map.len() as u64 + bytes.div_ceil(self.geometry.page_bytes);
        let blocks = self.geometry.blocks_for(pages)? as usize;
        self.map.resize(pages as usize, NONE);
        self.class.resize(pages as usize, Class::Data.index() as u8);
        self.free.extend(self.blocks.len() as u32..blocks as u32);
        self.blocks.resize(blocks, Block::default());
        self.victims.grow(blocks);
        self.owner.resize(blocks * self.per_block as usize, NONE);
        Ok(())
    }

    /// What it is made of.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Bytes that the host can address.
    pub fn capacity(&self) -> u64 {
        self.map.len() as u64 * self.geometry.page_bytes
    }

    /// Bytes of flash, the over-provisioned ones included.
    pub fn media_capacity(&self) -> u64 {
        self.blocks.len() as u64 * self.geometry.block_bytes
    }

    /// Counters since the drive was made.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The host writes `len` bytes at `offset`. Pages written in part are rewritten whole.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] beyond the end; nothing is written then.
    pub fn write(&mut self, class: Class, offset: u64, len: u64) -> Result<(), FlashError> {
        let bytes = self.range(offset, len)?;
        let page = self.geometry.page_bytes;
        for logical in bytes.start / page..bytes.end.div_ceil(page) {
            self.write_page(class, logical as u32);
        }
        self.counts.by_class[class.index()].host += len;
        Ok(())
    }

    /// The same as if it had been before anything was counted: fills a drive, as one in use is.
    ///
    /// # Errors
    /// As [`Drive::write`].
    pub fn precondition(&mut self, class: Class, offset: u64, len: u64) -> Result<(), FlashError> {
        let counts = self.counts;
        let written = self.write(class, offset, len);
        self.counts = counts;
        written
    }

    /// The host no longer needs `len` bytes at `offset`. Pages that lie inside in part are kept.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] beyond the end; nothing is changed then.
    pub fn trim(&mut self, offset: u64, len: u64) -> Result<(), FlashError> {
        let bytes = self.range(offset, len)?;
        let page = self.geometry.page_bytes;
        for logical in bytes.start.div_ceil(page)..bytes.end / page {
            self.invalidate(logical as u32);
            self.map[logical as usize] = NONE;
        }
        Ok(())
    }

    fn range(&self, offset: u64, len: u64) -> Result<Range<u64>, FlashError> {
        let capacity = self.capacity();
        match offset.checked_add(len) {
            Some(end) if end <= capacity => Ok(offset..end),
            _ => Err(FlashError::OutOfRange { offset, len, capacity }),
        }
    }

    fn write_page(&mut self, class: Class, logical: u32) {
        // Before the page is given up: making room may move it.
        let into = if self.geometry.streams { class.stream() } else { 0 };
        self.make_room(into);
        self.invalidate(logical);
        self.class[logical as usize] = class.index() as u8;
        self.append(into, logical);
    }

    /// The page that holds `logical` is no longer valid.
    fn invalidate(&mut self, logical: u32) {
        let physical = self.map[logical as usize];
        if physical == NONE {
            return;
        }
        self.owner[physical as usize] = NONE;
        let number = physical / self.per_block;
        let block = &mut self.blocks[number as usize];
        block.valid -= 1;
        if block.full {
            let valid = block.valid as usize;
            self.victims.remove(number, valid + 1);
            self.victims.insert(number, valid);
        }
    }

    /// Collects until there is a block open for `into`, or a free one to open.
    fn make_room(&mut self, into: usize) {
        while self.open[into].is_none() && self.free.len() <= FREE_KEPT {
            self.collect();
        }
    }

    /// Moves the valid pages out of the best full block and erases it.
    fn collect(&mut self) {
        let (victim, valid) = self.victims.best().expect("with a spare block, some block is full");
        assert!(valid < self.per_block as usize, "with a spare block, some full block has an invalid page");
        self.victims.remove(victim, valid);
        self.blocks[victim as usize] = Block::default();
        let into = if self.geometry.streams { STREAMS } else { 0 };
        let first = victim as usize * self.per_block as usize;
        for physical in first..first + self.per_block as usize {
            let logical = std::mem::replace(&mut self.owner[physical], NONE);
            if logical != NONE {
                self.append(into, logical);
            }
        }
        self.free.push_back(victim);
        self.counts.erases += 1;
    }

    /// Puts `logical`, which has no valid page, behind what was written to `into` last.
    fn append(&mut self, into: usize, logical: u32) {
        let mut open = self.open[into].unwrap_or_else(|| {
            let block = self.free.pop_front().expect("a block is kept free for collection, another made for the host");
            Open { block, filled: 0 }
        });
        let physical = open.block * self.per_block + open.filled;
        open.filled += 1;
        self.map[logical as usize] = physical;
        self.owner[physical as usize] = logical;
        let block = &mut self.blocks[open.block as usize];
        block.valid += 1;
        block.full = open.filled == self.per_block;
        if block.full {
            self.victims.insert(open.block, block.valid as usize);
        }
        self.open[into] = (!block.full).then_some(open);
        self.counts.by_class[usize::from(self.class[logical as usize])].media += self.geometry.page_bytes;
    }

    /// Compares everything with everything: the mapping is one to one, and valid pages are counted
    /// right in every block. For tests; takes time in proportion to the drive.
    ///
    /// # Errors
    /// The first contradiction, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut valid = vec![0; self.blocks.len()];
        for (logical, &physical) in self.map.iter().enumerate().filter(|(_, p)| **p != NONE) {
            let owner = self.owner[physical as usize];
            if owner as usize != logical {
                return Err(format!("page {logical} lies at {physical}, which belongs to {owner}"));
            }
            valid[(physical / self.per_block) as usize] += 1;
        }
        for (n, block) in self.blocks.iter().enumerate() {
            let pages = &self.owner[n * self.per_block as usize..][..self.per_block as usize];
            let owned = pages.iter().filter(|p| **p != NONE).count();
            if (owned, block.valid) != (valid[n], valid[n] as u32) {
                return Err(format!(
                    "block {n} has {} valid pages, {} and {owned} were counted",
                    valid[n], block.valid
                ));
            }
        }
        if let Some(n) = self.free.iter().find(|n| self.blocks[**n as usize].valid > 0) {
            return Err(format!("block {n} is free and has valid pages"));
        }
        let full = self.blocks.iter().filter(|b| b.full).count();
        let open = self.open.iter().flatten().count();
        match full + open + self.free.len() == self.blocks.len() {
            true => Ok(()),
            false => Err(format!("{full} full, {open} open, {} free of {} blocks", self.free.len(), self.blocks.len())),
        }
    }
}
