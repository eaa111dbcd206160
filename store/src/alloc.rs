//! Free space: one bit a block, a summary bit for every 64, next fit.
//!
//! The allocator knows three kinds of block: free, used, and beyond the pre-written part of the
//! data space (counted as used until [`Allocator::extend`]). Blocks that were freed but must not be
//! reused yet are in limbo: used for the allocator, listed in [`Limbo`].

use std::collections::VecDeque;

use crate::types::Lsn;

/// A run of blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Run {
    /// First block.
    pub place: u64,
    /// Number of blocks, at least 1.
    pub blocks: u64,
}

/// Most free runs looked at to find one that is long enough, before pieces are taken.
const SEARCH_RUNS_MAX: usize = 1024;

/// The bitmap. Memory: 1/32768 of the data space.
#[derive(Debug)]
pub struct Allocator {
    /// Bit set = free. Bit `i % 64` of word `i / 64`.
    free: Vec<u64>,
    /// Bit set = that word of `free` is not 0.
    summary: Vec<u64>,
    total: u64,
    usable: u64,
    free_blocks: u64,
    cursor: u64,
    wraps: u64,
}

impl Allocator {
    /// `total` blocks, of which the first `usable` are pre-written; every usable block is free.
    pub fn new(total: u64, usable: u64) -> Self {
        let words = total.div_ceil(64) as usize;
        let mut a = Allocator {
            free: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            total,
            usable: 0,
            free_blocks: 0,
            cursor: 0,
            wraps: 0,
        };
        a.extend(usable);
        a
    }

    /// Blocks in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Blocks pre-written so far.
    pub fn usable(&self) -> u64 {
        self.usable
    }

    /// Blocks that can be allocated now.
    pub fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Times the search went round to the start.
    pub fn wraps(&self) -> u64 {
        self.wraps
    }

    /// Makes the blocks up to `usable` available.
    pub fn extend(&mut self, usable: u64) {
        assert!(usable <= self.total && usable >= self.usable, "pre-written part only grows, within the space");
        let (from, n) = (self.usable, usable - self.usable);
        self.usable = usable;
        if n > 0 {
            self.release(Run { place: from, blocks: n });
        }
    }

    /// Whether a block is free.
    pub fn is_free(&self, place: u64) -> bool {
        self.free[(place / 64) as usize] >> (place % 64) & 1 == 1
    }

    /// Marks one block used; false if it was already, or lies outside the usable part.
    pub fn take(&mut self, place: u64) -> bool {
        if place >= self.usable || !self.is_free(place) {
            return false;
        }
        self.clear(Run { place, blocks: 1 });
        true
    }

    /// Marks a run used; every block of it must be free.
    pub fn take_run(&mut self, place: u64, blocks: u64) {
        self.clear(Run { place, blocks });
    }

    /// Gives a run back. Every block of it must be used.
    pub fn release(&mut self, run: Run) {
        let mut at = run.place;
        let end = run.place + run.blocks;
        assert!(end <= self.total, "released blocks lie in the data space");
        while at < end {
            let (word, mask, n) = word_part(at, end);
            assert_eq!(self.free[word] & mask, 0, "block near {at} freed twice");
            self.free[word] |= mask;
            self.summary[word / 64] |= 1 << (word % 64);
            at += n;
        }
        self.free_blocks += run.blocks;
    }

    /// Allocates `blocks` as few runs as a bounded search finds, in order; `None` (and nothing
    /// changed) if there are not so many free blocks.
    pub fn allocate(&mut self, blocks: u64) -> Option<Vec<Run>> {
        if blocks > self.free_blocks {
            return None;
        }
        let mut runs = Vec::with_capacity(1);
        let mut need = blocks;
        let mut bound = SEARCH_RUNS_MAX;
        while need > 0 {
            let run = self.find(need, bound);
            self.clear(run);
            need -= run.blocks;
            runs.push(run);
            // Where space is fragmented, one search is enough: the rest is taken as it comes.
            bound = 1;
        }
        Some(runs)
    }

    /// A free run of at most `want` blocks from the cursor on: the first that is long enough,
    /// else the longest of the first `bound` runs. There is at least one free block.
    fn find(&mut self, want: u64, bound: usize) -> Run {
        let mut best: Option<Run> = None;
        let mut looked = 0;
        let mut at = self.cursor;
        let mut wrapped = false;
        loop {
            let Some(start) = self.next_free(at) else {
                // A cursor in the middle of the last free run leaves its front for the second turn.
                if wrapped {
                    break;
                }
                (wrapped, at) = (true, 0);
                self.wraps += 1;
                continue;
            };
            if wrapped && start >= self.cursor && best.is_some() {
                break;
            }
            let n = self.run_length(start, want);
            if best.is_none_or(|b| n > b.blocks) {
                best = Some(Run { place: start, blocks: n });
            }
            looked += 1;
            if n == want || looked >= bound {
                break;
            }
            at = start + n;
        }
        let run = best.expect("a free block exists");
        self.cursor = run.place + run.blocks;
        run
    }

    /// First free block at or behind `at`.
    fn next_free(&self, at: u64) -> Option<u64> {
        let mut word = (at / 64) as usize;
        if word >= self.free.len() {
            return None;
        }
        let here = self.free[word] & (u64::MAX << (at % 64));
        if here != 0 {
            return Some(word as u64 * 64 + u64::from(here.trailing_zeros()));
        }
        word += 1;
        let mut s = word / 64;
        let mut mask = if word % 64 == 0 { u64::MAX } else { u64::MAX << (word % 64) };
        while s < self.summary.len() {
            let here = self.summary[s] & mask;
            if here != 0 {
                let word = s * 64 + here.trailing_zeros() as usize;
                return Some(word as u64 * 64 + u64::from(self.free[word].trailing_zeros()));
            }
            mask = u64::MAX;
            s += 1;
        }
        None
    }

    /// Length of the free run at `start`, at most `want`.
    fn run_length(&self, start: u64, want: u64) -> u64 {
        let mut n = 0;
        while n < want {
            let at = start + n;
            let Some(&word) = self.free.get((at / 64) as usize) else { break };
            let ones = u64::from((!(word >> (at % 64))).trailing_zeros()).min(64 - at % 64);
            n += ones;
            if ones < 64 - at % 64 {
                break;
            }
        }
        n.min(want)
    }

    fn clear(&mut self, run: Run) {
        let mut at = run.place;
        let end = run.place + run.blocks;
        while at < end {
            let (word, mask, n) = word_part(at, end);
            assert_eq!(self.free[word] & mask, mask, "block near {at} allocated twice");
            self.free[word] &= !mask;
            if self.free[word] == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
            at += n;
        }
        self.free_blocks -= run.blocks;
    }

    /// Runs of used blocks in the usable part, in order.
    pub fn used_runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut at = 0;
        while at < self.usable {
            let end = self.next_free(at).unwrap_or(self.usable).min(self.usable);
            if end > at {
                runs.push(Run { place: at, blocks: end - at });
            }
            at = end + self.run_length(end, self.usable - end);
        }
        runs
    }
}

/// The word of `at`, the mask of its bits in `at..end`, and how many they are.
fn word_part(at: u64, end: u64) -> (usize, u64, u64) {
    let n = (64 - at % 64).min(end - at);
    let mask = if n == 64 { u64::MAX } else { ((1u64 << n) - 1) << (at % 64) };
    ((at / 64) as usize, mask, n)
}

/// Freed blocks in the order in which they were freed, waiting until the log is trimmed past the
/// transaction that freed them: before that, replay could still write to them, or compare them
/// with the checksum of a transaction that once owned them.
#[derive(Debug, Default)]
pub struct Limbo {
    waiting: VecDeque<(Lsn, Run)>,
    blocks: u64,
}

impl Limbo {
    /// Adds a run freed by `lsn`; LSNs never decrease.
    pub fn add(&mut self, lsn: Lsn, run: Run) {
        if let Some((last_lsn, last)) = self.waiting.back_mut() {
            assert!(*last_lsn <= lsn, "freed in log order");
            if *last_lsn == lsn && last.place + last.blocks == run.place {
                last.blocks += run.blocks;
                self.blocks += run.blocks;
                return;
            }
        }
        self.waiting.push_back((lsn, run));
        self.blocks += run.blocks;
    }

    /// Blocks waiting.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Moves everything freed at or before `trimmed` to the allocator.
    pub fn release(&mut self, trimmed: Lsn, to: &mut Allocator) {
        while let Some((_, run)) = self.waiting.pop_front_if(|(lsn, _)| *lsn <= trimmed) {
            self.blocks -= run.blocks;
            to.release(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocates_contiguous_runs_next_fit_and_wraps() {
        let mut a = Allocator::new(1000, 1000);
        assert_eq!(a.allocate(300).unwrap(), [Run { place: 0, blocks: 300 }]);
        assert_eq!(a.allocate(300).unwrap(), [Run { place: 300, blocks: 300 }]);
        a.release(Run { place: 0, blocks: 300 });
        assert_eq!(a.allocate(350).unwrap(), [Run { place: 600, blocks: 350 }]);
        assert_eq!(a.allocate(100).unwrap(), [Run { place: 0, blocks: 100 }]);
        assert!(a.wraps() > 0);
        assert_eq!(a.free_blocks(), 250);
        assert!(a.allocate(251).is_none());
        assert_eq!(a.allocate(250).unwrap().iter().map(|r| r.blocks).sum::<u64>(), 250);
        assert_eq!(a.free_blocks(), 0);
        assert_eq!(a.used_runs(), [Run { place: 0, blocks: 1000 }]);
    }

    #[test]
    fn a_fragmented_space_is_used_to_the_last_block() {
        let mut a = Allocator::new(4096, 4096);
        a.allocate(4096).unwrap();
        for i in (0..4096).step_by(3) {
            a.release(Run { place: i, blocks: 1 });
        }
        let n = a.free_blocks();
        let runs = a.allocate(n).unwrap();
        assert_eq!(runs.len() as u64, n);
        assert_eq!(a.free_blocks(), 0);
    }

    #[test]
    fn random_allocations_never_overlap_and_match_a_plain_set() {
        let mut rng = 12345u64;
        let mut next = |n: u64| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (rng >> 33) % n
        };
        let mut a = Allocator::new(777, 500);
        let mut used = vec![false; 777];
        let mut live: Vec<Run> = Vec::new();
        for step in 0..20_000 {
            if step == 10_000 {
                a.extend(777);
            }
            if next(2) == 0 {
                if let Some(runs) = a.allocate(1 + next(40)) {
                    for r in runs {
                        for b in r.place..r.place + r.blocks {
                            assert!(!std::mem::replace(&mut used[b as usize], true));
                            assert!(b < a.usable());
                        }
                        live.push(r);
                    }
                }
            } else if !live.is_empty() {
                let r = live.swap_remove(next(live.len() as u64) as usize);
                used[r.place as usize..(r.place + r.blocks) as usize].fill(false);
                a.release(r);
            }
            let count = used.iter().filter(|u| **u).count() as u64;
            assert_eq!(a.free_blocks(), a.usable() - count);
        }
        let listed: u64 = a.used_runs().iter().map(|r| r.blocks).sum();
        assert_eq!(listed, used.iter().filter(|u| **u).count() as u64);
    }

    #[test]
    fn limbo_gives_back_only_what_the_log_no_longer_knows() {
        let mut a = Allocator::new(100, 100);
        a.allocate(100).unwrap();
        let mut l = Limbo::default();
        l.add(5, Run { place: 0, blocks: 10 });
        l.add(7, Run { place: 10, blocks: 10 });
        l.release(4, &mut a);
        assert_eq!(a.free_blocks(), 0);
        l.release(6, &mut a);
        assert_eq!((a.free_blocks(), l.blocks()), (10, 10));
        l.release(7, &mut a);
        assert!(l.is_empty() && a.free_blocks() == 20);
    }
}
