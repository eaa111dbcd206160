//! Where the parts of a store lie on the model drive.
//!
//! The real drive's addresses are the file system's business; here every file of the store gets a
//! range of its own when it is opened. The key-value store's files come and go: each takes the
//! first gap that holds it whole, else the first gaps that together do, and leaves them when it is
//! removed. The drive is as large as all of that was at its largest.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Files take whole blocks, as in a file system.
pub(super) const BLOCK: u64 = 4096;

/// The drive grows for the key-value store by so much at least.
const GROWTH_MIN: u64 = 4 << 20;

/// The address space of a model drive, in bytes.
#[derive(Debug, Default)]
pub(super) struct Space {
    end: u64,
    /// Length of each gap, by its first byte.
    gaps: BTreeMap<u64, u64>,
    /// The key-value store's files, by number.
    files: HashMap<u64, Vec<Range<u64>>>,
}

impl Space {
    /// Bytes from the first to the last ever used.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// A range for a file that stays.
    pub fn reserve(&mut self, bytes: u64) -> Range<u64> {
        let begin = self.end;
        self.end += bytes.next_multiple_of(BLOCK);
        begin..self.end
    }

    /// Places a file of the key-value store. `None` if a file of that number is there already.
    pub fn place(&mut self, number: u64, bytes: u64) -> Option<&[Range<u64>]> {
        if self.files.contains_key(&number) {
            return None;
        }
        let bytes = bytes.next_multiple_of(BLOCK);
        let gap = self.gaps.iter().find(|(_, len)| **len >= bytes).map(|(begin, _)| *begin);
        let extents = match gap {
            Some(begin) => vec![self.take(begin, bytes)],
            None => self.gather(bytes),
        };
        Some(self.files.entry(number).or_insert(extents))
    }

    /// Takes the first gaps until they suffice, making the space larger if all of them do not.
    fn gather(&mut self, bytes: u64) -> Vec<Range<u64>> {
        let free: u64 = self.gaps.values().sum();
        if free < bytes {
            let grown = self.reserve((bytes - free).max(GROWTH_MIN));
            self.leave(grown);
        }
        let (mut extents, mut left) = (Vec::new(), bytes);
        while left > 0 {
            let (&begin, &len) = self.gaps.iter().next().expect("there are gaps enough");
            extents.push(self.take(begin, len.min(left)));
            left -= len.min(left);
        }
        extents
    }

    fn take(&mut self, begin: u64, bytes: u64) -> Range<u64> {
        let len = self.gaps.remove(&begin).expect("the gap was found");
        if len > bytes {
            self.gaps.insert(begin + bytes, len - bytes);
        }
        begin..begin + bytes
    }

    /// Makes a range a gap, one with those it touches.
    fn leave(&mut self, range: Range<u64>) {
        let (mut begin, mut end) = (range.start, range.end);
        if let Some((&before, &len)) = self.gaps.range(..begin).next_back()
            && before + len == begin
        {
            self.gaps.remove(&before);
            begin = before;
        }
        if let Some(len) = self.gaps.remove(&end) {
            end += len;
        }
        self.gaps.insert(begin, end - begin);
    }

    /// Removes a file of the key-value store and gives what it leaves; nothing if it is not known.
    pub fn remove(&mut self, number: u64) -> Vec<Range<u64>> {
        let extents = self.files.remove(&number).unwrap_or_default();
        for e in &extents {
            self.leave(e.clone());
        }
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn files_take_the_first_gap_that_holds_them_whole() {
        let mut s = Space::default();
        assert_eq!(s.reserve(5000), 0..8192);
        let base = s.end();
        let at = |mib: u64, len: u64| base + mib * MIB..base + (mib + len) * MIB;
        for (number, mib) in [(1, 1), (2, 3), (3, 2), (4, 2)] {
            s.place(number, mib * MIB).unwrap();
        }
        assert_eq!(s.end(), base + 8 * MIB);
        s.remove(1);
        s.remove(3);
        assert_eq!(s.place(5, 2 * MIB).unwrap(), [at(4, 2)]);
        assert_eq!(s.place(6, MIB - 1).unwrap(), [at(0, 1)]);
        assert_eq!(s.end(), base + 8 * MIB);
    }

    #[test]
    fn a_file_too_large_for_any_gap_is_split_before_the_drive_grows() {
        let mut s = Space::default();
        for number in 0..8 {
            s.place(number, MIB).unwrap();
        }
        for number in [1, 3, 4] {
            s.remove(number);
        }
        assert_eq!(s.place(9, 3 * MIB).unwrap(), [MIB..2 * MIB, 3 * MIB..5 * MIB]);
        assert_eq!(s.end(), 8 * MIB);
        s.place(10, MIB).unwrap();
        assert_eq!(s.end(), 8 * MIB + GROWTH_MIN);
    }

    #[test]
    fn a_number_is_placed_once_and_removed_once() {
        let mut s = Space::default();
        assert!(s.place(1, 10).is_some() && s.place(1, 10).is_none());
        assert!(s.remove(1).iter().eq(&Some(0..BLOCK)));
        assert_eq!(s.remove(1), []);
    }

    #[test]
    fn files_never_overlap() {
        use rand::rngs::SmallRng;
        use rand::{Rng, SeedableRng};
        let (mut s, mut rng) = (Space::default(), SmallRng::seed_from_u64(1));
        let mut live = Vec::new();
        for number in 0..2000 {
            s.place(number, rng.random_range(1..3 * MIB)).unwrap();
            live.push(number);
            if live.len() > 20 {
                s.remove(live.swap_remove(rng.random_range(0..live.len())));
            }
            let mut all: Vec<Range<u64>> = s.files.values().flatten().cloned().collect();
            all.extend(s.gaps.iter().map(|(b, len)| *b..b + len));
            all.sort_by_key(|r| r.start);
            assert!(all.windows(2).all(|w| w[0].end == w[1].start), "file {number}: {all:?}");
            assert_eq!(all.last().unwrap().end, s.end());
        }
        // 21 files of 1.5 MiB on average; the space is that of the most there ever were.
        assert!(s.end() < 63 * MIB, "{}", s.end());
    }
}
