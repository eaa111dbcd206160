//! Buffers that direct I/O accepts: their address is a multiple of [`BLOCK`].

use std::ops::{Deref, DerefMut};

use aligned_vec::{AVec, ConstAlign};
use bytes::Bytes;

use crate::seam::BLOCK;

/// A block-aligned, owned buffer. Cheap to turn into [`Bytes`] for writing.
#[derive(Debug)]
pub struct AlignedBuf(AVec<u8, ConstAlign<BLOCK>>);

impl AlignedBuf {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut v = AVec::with_capacity(BLOCK, len);
        v.resize(len, 0);
        AlignedBuf(v)
    }

    /// Empty, with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        AlignedBuf(AVec::with_capacity(BLOCK, capacity))
    }

    /// A copy of `src`.
    pub fn copy_of(src: &[u8]) -> Self {
        AlignedBuf(AVec::from_slice(BLOCK, src))
    }

    /// Appends bytes.
    pub fn extend(&mut self, src: &[u8]) {
        self.0.extend_from_slice(src);
    }

    /// Appends zeros up to `len` bytes, or shortens to it.
    pub fn resize(&mut self, len: usize) {
        self.0.resize(len, 0);
    }

    /// Shares the bytes without copying them; slices keep the whole buffer alive.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Whether `data` can be handed to direct I/O as it is.
pub fn is_aligned(data: &[u8]) -> bool {
    (data.as_ptr() as usize).is_multiple_of(BLOCK) && data.len().is_multiple_of(BLOCK)
}

/// `data` itself if it is aligned, else an aligned copy.
pub fn aligned(data: Bytes) -> Bytes {
    if is_aligned(&data) { data } else { AlignedBuf::copy_of(&data).freeze() }
}
