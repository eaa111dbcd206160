//! Contents that nobody verifies: cut from a pool, because making them must cost the client nothing.

use bytes::Bytes;
use lodestore_aio::{AlignedBuf, BLOCK};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// Block-aligned random buffers of one size, handed out in turn without copying.
#[derive(Debug)]
pub struct Pool {
    buffers: Vec<Bytes>,
    turn: usize,
}

/// Bytes of a pool: more than a core's private cache, so that checksums are not flattered.
const POOL_LEN: usize = 8 << 20;

impl Pool {
    pub fn new(size: usize, seed: u64) -> Self {
        let stride = size.next_multiple_of(BLOCK);
        let n = (POOL_LEN / stride).max(4);
        let mut all = AlignedBuf::zeroed(stride * n);
        SmallRng::seed_from_u64(seed).fill_bytes(&mut all);
        let all = all.freeze();
        Pool { buffers: (0..n).map(|i| all.slice(i * stride..i * stride + size)).collect(), turn: 0 }
    }

    pub fn take(&mut self) -> Bytes {
        self.turn = (self.turn + 1) % self.buffers.len();
        self.buffers[self.turn].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_buffers_are_aligned_and_of_the_size_asked_for() {
        for size in [512, 4096, 5000, 128 << 10] {
            let mut p = Pool::new(size, 1);
            for _ in 0..10 {
                let b = p.take();
                assert_eq!(b.len(), size);
                assert!((b.as_ptr() as usize).is_multiple_of(BLOCK));
            }
        }
    }
}
