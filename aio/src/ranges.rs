//! Sets of byte ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, non-touching, non-empty ranges: start to end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range; what touches it is merged.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        while let Some((&s, &e)) = self.0.range(..=end).next_back()
            && e >= start
        {
            start = start.min(s);
            end = end.max(e);
            self.0.remove(&s);
        }
        self.0.insert(start, end);
    }

    /// Whether every byte of a range is in the set.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        self.0.range(..=range.start).next_back().is_some_and(|(_, &e)| e >= range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_or_overlap_are_merged_and_others_are_not() {
        let mut r = Ranges::default();
        r.insert(10..20);
        r.insert(30..40);
        assert!(r.covers(&(10..20)) && !r.covers(&(10..21)) && !r.covers(&(9..20)) && !r.covers(&(15..35)));
        r.insert(20..25);
        assert!(r.covers(&(10..25)) && !r.covers(&(20..31)));
        r.insert(5..35);
        assert_eq!(r, Ranges([(5, 40)].into()));
        r.insert(50..50);
        assert_eq!(r, Ranges([(5, 40)].into()));
    }
}
