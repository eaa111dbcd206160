//! The bytes of one simulated file, cheap to copy.

use std::sync::Arc;

use bytes::Bytes;

use crate::seam::BLOCK;

/// Pages in a chunk. With 64, a copy of a 64 MiB file shares all but 256 pointers, and changing a
/// page copies 64.
const CHUNK: usize = 64;

type Chunk = [Option<Bytes>; CHUNK];

/// Sparse pages of [`BLOCK`] bytes; a missing one is zeros. Pages are slices of the buffers that
/// were written, so a write copies nothing, and a copy of an image shares everything until it
/// changes.
#[derive(Clone, Default, Debug)]
pub(crate) struct Image {
    len: u64,
    chunks: Arc<Vec<Option<Arc<Chunk>>>>,
}

static ZEROS: [u8; BLOCK] = [0; BLOCK];

impl Image {
    pub(crate) fn new(len: u64) -> Self {
        Image { len, chunks: Arc::default() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of a page; zeros if it was never written.
    pub(crate) fn page(&self, index: u64) -> Bytes {
        self.stored(index).cloned().unwrap_or(Bytes::from_static(&ZEROS))
    }

    fn stored(&self, index: u64) -> Option<&Bytes> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.as_ref()?[index % CHUNK].as_ref()
    }

    /// Replaces a page. Pages beyond the length lengthen the file.
    pub(crate) fn set_page(&mut self, index: u64, page: Bytes) {
        assert_eq!(page.len(), BLOCK);
        self.len = self.len.max((index + 1) * BLOCK as u64);
        *self.slot(index) = Some(page);
    }

    fn slot(&mut self, index: u64) -> &mut Option<Bytes> {
        let index = index as usize;
        let chunks = Arc::make_mut(&mut self.chunks);
        if chunks.len() <= index / CHUNK {
            chunks.resize(index / CHUNK + 1, None);
        }
        let chunk = chunks[index / CHUNK].get_or_insert_with(|| Arc::new([const { None }; CHUNK]));
        &mut Arc::make_mut(chunk)[index % CHUNK]
    }

    /// Writes whole pages.
    pub(crate) fn write(&mut self, offset: u64, data: &Bytes) {
        let first = offset / BLOCK as u64;
        for (i, at) in (0..data.len()).step_by(BLOCK).enumerate() {
            self.set_page(first + i as u64, data.slice(at..at + BLOCK));
        }
    }

    /// Copies bytes from any offset; beyond the last page they are zeros.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        let mut at = 0;
        while at < buf.len() {
            let position = offset + at as u64;
            let within = (position % BLOCK as u64) as usize;
            let n = (BLOCK - within).min(buf.len() - at);
            let to = &mut buf[at..at + n];
            match self.stored(position / BLOCK as u64) {
                Some(page) => to.copy_from_slice(&page[within..within + n]),
                None => to.fill(0),
            }
            at += n;
        }
    }

    /// Cuts the file to `len` bytes, or extends it with zeros.
    pub(crate) fn truncate(&mut self, len: u64) {
        if len < self.len {
            let whole = len / BLOCK as u64;
            let tail = (len % BLOCK as u64) as usize;
            if tail > 0 && self.stored(whole).is_some() {
                let mut page = self.page(whole).to_vec();
                page[tail..].fill(0);
                self.set_page(whole, page.into());
            }
            for page in len.div_ceil(BLOCK as u64)..self.len.div_ceil(BLOCK as u64) {
                if self.stored(page).is_some() {
                    *self.slot(page) = None;
                }
            }
        }
        self.len = len;
    }

    /// The same for the same bytes, whether a page of zeros is stored or missing.
    pub(crate) fn hash(&self) -> u64 {
        let mut sum = self.len;
        for (c, chunk) in self.chunks.iter().enumerate() {
            for (i, page) in chunk.iter().flat_map(|c| c.iter()).enumerate() {
                if let Some(page) = page
                    && page[..] != ZEROS[..]
                {
                    sum = sum.wrapping_add(page_hash((c * CHUNK + i) as u64, page));
                }
            }
        }
        sum
    }
}

/// A 64-bit hash of a page's place and bytes. Not for files: it is free to change.
pub(crate) fn page_hash(place: u64, page: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    // Four lanes, so that the multiplications overlap.
    let mut lanes = [place, !place, place ^ K, place.wrapping_mul(K)];
    for group in page.chunks_exact(32) {
        for (lane, word) in lanes.iter_mut().zip(group.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            *lane = (*lane ^ word).wrapping_mul(K).rotate_left(29);
        }
    }
    lanes.into_iter().fold(0, |h, lane| mix(h ^ lane))
}

/// Spreads the bits of a number.
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Bytes {
        vec![byte; BLOCK].into()
    }

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let mut a = Image::new(1 << 20);
        a.set_page(3, page(1));
        let b = a.clone();
        a.set_page(3, page(2));
        assert_eq!((b.page(3), a.page(3)), (page(1), page(2)));
        assert_ne!(a.hash(), b.hash());
    }

    #[test]
    fn reading_crosses_pages_and_holes_are_zeros() {
        let mut a = Image::new(1 << 20);
        a.set_page(1, page(7));
        let mut buf = [9; 20];
        a.read(2 * BLOCK as u64 - 10, &mut buf);
        assert_eq!(buf, [[7; 10], [0; 10]].concat()[..]);
    }

    #[test]
    fn truncation_forgets_what_was_behind_it() {
        let mut a = Image::new(1 << 20);
        a.write(0, &vec![7; 3 * BLOCK].into());
        a.truncate(BLOCK as u64 + 5);
        assert_eq!(a.len(), BLOCK as u64 + 5);
        a.truncate(1 << 20);
        let mut buf = [9; 10];
        a.read(BLOCK as u64, &mut buf);
        assert_eq!(buf, [7, 7, 7, 7, 7, 0, 0, 0, 0, 0]);
        assert_eq!(a.page(2), page(0));
    }

    #[test]
    fn the_hash_takes_a_page_of_zeros_for_a_hole_and_tells_places_apart() {
        let (mut a, b) = (Image::new(1 << 20), Image::new(1 << 20));
        a.set_page(100, page(0));
        assert_eq!(a.hash(), b.hash());
        let mut c = b.clone();
        a.set_page(1, page(1));
        c.set_page(2, page(1));
        assert_ne!(a.hash(), c.hash());
    }
}
