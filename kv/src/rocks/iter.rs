//! Iterators that never cross their bounds, so that they never walk over tombstones of others.

use super::error::failed;
use crate::traits::{KvError, MARKER_KEY};
use rocksdb::{ColumnFamily, DB, DBRawIteratorWithThreadMode, ReadOptions};

/// Read ahead of scans, which are sequential and, with O_DIRECT, have no help from the kernel.
const SCAN_READAHEAD_BYTES: usize = 2 << 20;

/// The smallest key that is not the marker's.
pub(crate) const FIRST_KEY: &[u8] = &[0];

/// Options of a scan of much: reads ahead, and leaves the block cache to the rest.
pub(super) fn scan_options() -> ReadOptions {
    let mut o = ReadOptions::default();
    o.fill_cache(false);
    o.set_readahead_size(SCAN_READAHEAD_BYTES);
    o
}

/// A raw iterator on `lower..upper` without the marker, already on its first entry; `None` if the
/// range is empty.
pub(super) fn seek<'a>(
    db: &'a DB,
    family: &ColumnFamily,
    lower: &[u8],
    upper: &[u8],
    mut o: ReadOptions,
) -> Option<DBRawIteratorWithThreadMode<'a, DB>> {
    let lower = if lower == MARKER_KEY { FIRST_KEY } else { lower };
    if lower >= upper {
        return None;
    }
    o.set_iterate_lower_bound(lower);
    o.set_iterate_upper_bound(upper);
    o.set_total_order_seek(true);
    let mut raw = db.raw_iterator_cf_opt(family, o);
    raw.seek(lower);
    Some(raw)
}

/// Owned entries of a range.
pub(super) struct Entries<'a> {
    /// `None` after the end or an error.
    raw: Option<DBRawIteratorWithThreadMode<'a, DB>>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(db: &'a DB, family: &ColumnFamily, lower: &[u8], upper: &[u8], o: ReadOptions) -> Entries<'a> {
        Entries { raw: seek(db, family, lower, upper, o) }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>), KvError>;

    fn next(&mut self) -> Option<Self::Item> {
        let raw = self.raw.as_mut()?;
        if let Some((key, value)) = raw.item() {
            let entry = (key.to_vec(), value.to_vec());
            raw.next();
            return Some(Ok(entry));
        }
        let status = raw.status();
        self.raw = None;
        status.err().map(|e| Err(failed("iterate", e)))
    }
}
