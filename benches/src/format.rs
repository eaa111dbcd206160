//! Contents of blocks that are to be verified, derived from their place and version.
//!
//! A unit of verifiable contents (512 to 4096 bytes, little-endian; version 1 of this layout):
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | magic `LSB1` |
//! | 4 | 4 | version: 1 from filling, one more with each overwrite |
//! | 8 | 8 | seed |
//! | 16 | 8 | object number |
//! | 24 | 8 | number of the unit in the object |
//! | 32 | rest | words of a generator started from all of these |
//!
//! So a block that is found where it does not belong says where it came from.

const MAGIC: [u8; 4] = *b"LSB1";
const HEADER_LEN: usize = 32;

/// What identifies the contents of one unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    pub seed: u64,
    pub object: u64,
    pub index: u64,
    pub version: u32,
}

impl Unit {
    /// Fills `out`, whose length is that of a unit, with the contents.
    pub fn write(&self, out: &mut [u8]) {
        let (header, rest) = out.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&self.header());
        let mut state = self.start();
        for word in rest.chunks_mut(8) {
            let w = next(&mut state).to_le_bytes();
            word.copy_from_slice(&w[..word.len()]);
        }
    }

    /// Whether `found` is exactly the contents.
    pub fn matches(&self, found: &[u8]) -> bool {
        let Some((header, rest)) = found.split_at_checked(HEADER_LEN) else { return false };
        let mut state = self.start();
        header == self.header() && rest.chunks(8).all(|word| next(&mut state).to_le_bytes()[..word.len()] == *word)
    }

    /// What the header of `found` says it is, if it is one.
    pub fn read(found: &[u8]) -> Option<Unit> {
        let header: &[u8; HEADER_LEN] = found.first_chunk()?;
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let version = u32::from_le_bytes(header[4..8].try_into().expect("4 bytes"));
        (header[..4] == MAGIC).then(|| Unit { seed: u64_at(8), object: u64_at(16), index: u64_at(24), version })
    }

    fn header(&self) -> [u8; HEADER_LEN] {
        let mut h = [0; HEADER_LEN];
        h[..4].copy_from_slice(&MAGIC);
        h[4..8].copy_from_slice(&self.version.to_le_bytes());
        h[8..16].copy_from_slice(&self.seed.to_le_bytes());
        h[16..24].copy_from_slice(&self.object.to_le_bytes());
        h[24..].copy_from_slice(&self.index.to_le_bytes());
        h
    }

    fn start(&self) -> u64 {
        let mut state = self.seed;
        for part in [self.object, self.index, u64::from(self.version)] {
            state = next(&mut state) ^ part;
        }
        state
    }
}

/// splitmix64 (Steele, Lea, Flood 2014): one addition and a mix a word.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: Unit = Unit { seed: 1, object: 2, index: 3, version: 4 };

    #[test]
    fn a_unit_matches_itself_and_nothing_that_differs_in_any_byte() {
        let mut buf = vec![0; 512];
        U.write(&mut buf);
        assert!(U.matches(&buf));
        assert_eq!(Unit::read(&buf), Some(U));
        for i in 0..buf.len() {
            buf[i] ^= 1;
            assert!(!U.matches(&buf), "byte {i}");
            buf[i] ^= 1;
        }
        assert!(!U.matches(&buf[..20]));
    }

    #[test]
    fn neighbours_in_every_dimension_have_other_contents() {
        let body = |u: Unit| {
            let mut buf = vec![0; 512];
            u.write(&mut buf);
            buf.split_off(HEADER_LEN)
        };
        let others = [Unit { seed: 2, ..U }, Unit { object: 3, ..U }, Unit { index: 4, ..U }, Unit { version: 5, ..U }];
        for o in others {
            assert_ne!(body(U), body(o), "{o:?}");
        }
    }
}
