//! What is durable and what is not: all that a power failure asks about.

use std::sync::Arc;

use bytes::Bytes;

use super::image::Image;
use crate::seam::BLOCK;

/// All files.
#[derive(Clone, Default, Debug)]
pub(crate) struct Medium {
    pub(crate) files: Vec<FileState>,
}

/// One file: its durable bytes, and the writes that are not, in the order of submission. Writes
/// that overlap were submitted one after the completion of the other, so among those the order of
/// submission is the order of effect.
#[derive(Clone, Debug)]
pub(crate) struct FileState {
    pub(crate) name: Arc<str>,
    pub(crate) durable: Image,
    pub(crate) pending: Vec<Pending>,
}

/// A write, or what is left of one, that is not durable.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// Ascending in order of submission. The parts of one write share it.
    pub(crate) id: u64,
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    /// When it completed, as a number that counts completions; `None` while in flight.
    pub(crate) completed: Option<u64>,
    /// It failed, or a sync that covered it did: no later sync makes it durable, though the medium
    /// may have taken it.
    pub(crate) stranded: bool,
}

impl Pending {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    pub(crate) fn overlaps(&self, offset: u64, end: u64) -> bool {
        self.offset < end && offset < self.end()
    }
}

impl Medium {
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|f| &*f.name == name)
    }

    pub(crate) fn create(&mut self, name: &Arc<str>, len: u64) {
        self.files.push(FileState { name: Arc::clone(name), durable: Image::new(len), pending: Vec::new() });
    }
}

impl FileState {
    /// Notes a write as under way.
    pub(crate) fn submitted(&mut self, id: u64, offset: u64, data: Bytes) {
        self.pending.push(Pending { id, offset, data, completed: None, stranded: false });
    }

    pub(crate) fn completed(&mut self, id: u64, count: u64) {
        self.pending.iter_mut().filter(|p| p.id == id).for_each(|p| p.completed = Some(count));
    }

    pub(crate) fn stranded(&mut self, ids: &[u64]) {
        self.pending.iter_mut().filter(|p| ids.contains(&p.id)).for_each(|p| p.stranded = true);
    }

    /// Ids of the writes that a sync pushed after `count` completions makes durable, ascending.
    pub(crate) fn covered(&self, count: u64) -> Vec<u64> {
        let covered = |p: &&Pending| !p.stranded && p.completed.is_some_and(|c| c <= count);
        let mut ids: Vec<u64> = self.pending.iter().filter(covered).map(|p| p.id).collect();
        ids.dedup();
        ids
    }

    /// Makes the writes `ids` (ascending) durable. What older writes would have put in the same
    /// places can never come back.
    pub(crate) fn synced(&mut self, ids: &[u64]) {
        let mut kept: Vec<Pending> = Vec::with_capacity(self.pending.len());
        for p in std::mem::take(&mut self.pending) {
            if ids.binary_search(&p.id).is_ok() {
                cut(&mut kept, p.offset, p.end());
                self.durable.write(p.offset, &p.data);
            } else {
                kept.push(p);
            }
        }
        self.pending = kept;
    }

    /// Forgets pending writes to one page, which is about to be replaced on the medium itself.
    pub(crate) fn forget(&mut self, page: u64) {
        let offset = page * BLOCK as u64;
        cut(&mut self.pending, offset, offset + BLOCK as u64);
    }
}

/// Removes a range of bytes from pending writes.
fn cut(pending: &mut Vec<Pending>, offset: u64, end: u64) {
    if !pending.iter().any(|p| p.overlaps(offset, end)) {
        return;
    }
    let mut kept = Vec::with_capacity(pending.len() + 1);
    for p in pending.drain(..) {
        if !p.overlaps(offset, end) {
            kept.push(p);
            continue;
        }
        if p.offset < offset {
            let data = p.data.slice(..(offset - p.offset) as usize);
            kept.push(Pending { data, ..p.clone() });
        }
        if p.end() > end {
            let data = p.data.slice((end - p.offset) as usize..);
            kept.push(Pending { offset: end, data, ..p });
        }
    }
    *pending = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = BLOCK as u64;

    fn data(byte: u8, blocks: usize) -> Bytes {
        vec![byte; blocks * BLOCK].into()
    }

    fn file() -> FileState {
        FileState { name: "f".into(), durable: Image::new(1 << 20), pending: Vec::new() }
    }

    #[test]
    fn a_durable_write_cuts_older_pending_ones_in_its_place_only() {
        let mut f = file();
        f.submitted(1, 0, data(1, 4));
        f.completed(1, 1);
        f.submitted(2, B, data(2, 2));
        f.synced(&[2]);
        let left: Vec<(u64, u64, usize)> = f.pending.iter().map(|p| (p.id, p.offset, p.data.len())).collect();
        assert_eq!(left, [(1, 0, BLOCK), (1, 3 * B, BLOCK)]);
        assert_eq!(f.durable.page(1), data(2, 1));
        f.synced(&[1]);
        assert!(f.pending.is_empty());
        assert_eq!((f.durable.page(0), f.durable.page(2), f.durable.page(3)), (data(1, 1), data(2, 1), data(1, 1)));
    }

    #[test]
    fn a_sync_covers_what_completed_before_it_and_nothing_stranded() {
        let mut f = file();
        for id in 1..=4 {
            f.submitted(id, id * B, data(id as u8, 1));
        }
        f.completed(2, 1);
        f.completed(1, 2);
        f.completed(3, 3);
        f.stranded(&[2]);
        assert_eq!(f.covered(2), [1]);
        assert_eq!(f.covered(3), [1, 3]);
    }
}
