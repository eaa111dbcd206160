//! A chunk of an object's extent map: where each of [`CHUNK_BLOCKS`] consecutive blocks lies and
//! what its checksum is. An overwrite of 128 KiB rewrites one or two of them, a few hundred bytes,
//! however large the object.

use super::damaged;
use crate::error::Error;

/// Blocks covered by one chunk: 128 KiB of an object.
pub const CHUNK_BLOCKS: usize = 32;

/// Most bytes of an encoded chunk: every block a run of its own, with the longest place.
pub const CHUNK_ENCODED_MAX: usize = 1 + CHUNK_BLOCKS * (2 + 10 + 4);

const VERSION: u8 = 1;
/// Set in the length byte of a run whose blocks may be shared with other objects.
const SHARED: u8 = 0x80;

/// One block of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Number of the block in the store's data space.
    pub place: u64,
    /// crc32c of its 4 KiB.
    pub crc: u32,
    /// Whether a reference count may exist for it. Never false while one does.
    pub shared: bool,
}

/// The blocks of one chunk; `None` is a hole. In memory an array: no extent ever has to be split.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chunk {
    /// By block within the chunk.
    pub slots: [Option<Slot>; CHUNK_BLOCKS],
}

impl Chunk {
    /// Whether it has no block at all: such a chunk is not stored.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Number of mapped blocks.
    pub fn mapped(&self) -> u64 {
        self.slots.iter().flatten().count() as u64
    }

    /// Version, then runs of blocks that are consecutive both in the object and in the data space:
    /// first block u8, length | shared u8, place varint, one crc32c u32 a block.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        out.push(VERSION);
        let mut i = 0;
        while i < CHUNK_BLOCKS {
            let Some(first) = self.slots[i] else {
                i += 1;
                continue;
            };
            let mut n = 1;
            while i + n < CHUNK_BLOCKS
                && self.slots[i + n].is_some_and(|s| s.place == first.place + n as u64 && s.shared == first.shared)
            {
                n += 1;
            }
            out.push(i as u8);
            out.push(n as u8 | if first.shared { SHARED } else { 0 });
            put_varint(first.place, &mut out);
            for slot in self.slots[i..i + n].iter().flatten() {
                out.extend_from_slice(&slot.crc.to_le_bytes());
            }
            i += n;
        }
        out
    }

    /// Reverses [`Chunk::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let bad = |why: &str| damaged("extent map", why);
        let mut rest = match bytes {
            [VERSION, rest @ ..] => rest,
            [v, ..] => return Err(damaged("extent map", format_args!("version {v} is not known here"))),
            [] => return Err(bad("empty")),
        };
        let mut chunk = Chunk::default();
        let mut next = 0;
        while let [first, len, tail @ ..] = rest {
            let (first, shared, n) = (*first as usize, len & SHARED != 0, (len & !SHARED) as usize);
            if n == 0 || first < next || first + n > CHUNK_BLOCKS {
                return Err(bad("run out of order or too long"));
            }
            let (place, tail) = get_varint(tail).ok_or_else(|| bad("place cut short"))?;
            if place.checked_add(n as u64).is_none() || tail.len() < 4 * n {
                return Err(bad("checksums cut short"));
            }
            let (crcs, tail) = tail.split_at(4 * n);
            for (i, crc) in crcs.chunks_exact(4).enumerate() {
                let crc = u32::from_le_bytes(crc.try_into().expect("4 bytes"));
                chunk.slots[first + i] = Some(Slot { place: place + i as u64, crc, shared });
            }
            next = first + n;
            rest = tail;
        }
        if rest.is_empty() { Ok(chunk) } else { Err(bad("cut short")) }
    }
}

/// LEB128: seven bits a byte, low bits first.
pub(super) fn put_varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Reverses [`put_varint`] at the front of `bytes`; `None` if it is cut short or too large.
pub(super) fn get_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut v = 0u64;
    for (i, b) in bytes.iter().enumerate().take(10) {
        let low = u64::from(b & 0x7f);
        if i == 9 && low > 1 {
            return None;
        }
        v |= low << (7 * i);
        if b & 0x80 == 0 {
            return Some((v, &bytes[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(place: u64, crc: u32, shared: bool) -> Option<Slot> {
        Some(Slot { place, crc, shared })
    }

    #[test]
    fn golden_bytes_of_a_chunk() {
        let mut c = Chunk::default();
        c.slots[0] = slot(300, 1, false);
        c.slots[1] = slot(301, 2, false);
        c.slots[5] = slot(9, 0xaabb_ccdd, true);
        let bytes = c.encode();
        let expected = [1, 0, 2, 0xac, 0x02, 1, 0, 0, 0, 2, 0, 0, 0, 5, 0x81, 9, 0xdd, 0xcc, 0xbb, 0xaa];
        assert_eq!(bytes, expected);
        assert_eq!(Chunk::decode(&bytes).unwrap(), c);
    }

    #[test]
    fn every_cut_and_every_flip_decodes_to_something_or_is_refused_without_panic() {
        let mut c = Chunk::default();
        for i in 0..CHUNK_BLOCKS {
            if i % 3 != 0 {
                c.slots[i] = slot(1 << (i % 60), i as u32, i % 2 == 0);
            }
        }
        let bytes = c.encode();
        assert_eq!(Chunk::decode(&bytes).unwrap(), c);
        for n in 0..bytes.len() {
            let _ = Chunk::decode(&bytes[..n]);
            for bit in 0..8 {
                let mut b = bytes.clone();
                b[n] ^= 1 << bit;
                let _ = Chunk::decode(&b);
            }
        }
        assert!(Chunk::decode(&[]).is_err());
        assert!(Chunk::decode(&[2]).is_err());
        assert!(Chunk::decode(&[1, 31, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn a_fully_scattered_chunk_stays_below_three_hundred_bytes_on_a_terabyte() {
        let mut c = Chunk::default();
        for (i, s) in c.slots.iter_mut().enumerate() {
            *s = slot((1 << 27) + 2 * i as u64, 0, false);
        }
        assert!(c.encode().len() <= 1 + 32 * (2 + 4 + 4));
    }
}
