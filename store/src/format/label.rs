//! The label of a fragment file: whose it is and which. It lies in the block behind the data, so
//! that data begins at offset 0, aligned as the device is.

use super::BLOCK_LEN;
use crate::types::Lsn;

/// Bytes a label takes behind the data.
pub const LEN: u64 = BLOCK_LEN;

const MAGIC: [u8; 8] = *b"LODEDATA";
const VERSION: u32 = 1;
/// Bytes that are not zeros by definition: fewer than a sector, which is whole or absent.
const USED: usize = 52;

/// What the label says. Written by mkfs, and by every clean unmount before the snapshot that names
/// the same LSN: a file whose label is older than the snapshot was brought back from a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// The store that the file belongs to.
    pub uuid: [u8; 16],
    /// Which of its fragment files it is.
    pub number: u32,
    /// Bytes of data before the label.
    pub data_len: u64,
    /// The last LSN when the store was unmounted.
    pub lsn: Lsn,
}

impl Label {
    /// 0 magic, 8 version u32, 12 number u32, 16 uuid, 32 bytes of data u64, 40 LSN
    /// u64, 48 crc32c of all before it, zeros up to a block.
    pub fn encode(&self) -> [u8; LEN as usize] {
        let mut b = [0u8; LEN as usize];
        b[0..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[12..16].copy_from_slice(&self.number.to_le_bytes());
        b[16..32].copy_from_slice(&self.uuid);
        b[32..40].copy_from_slice(&self.data_len.to_le_bytes());
        b[40..48].copy_from_slice(&self.lsn.to_le_bytes());
        let crc = crc32c::crc32c(&b[..USED - 4]);
        b[USED - 4..USED].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Reverses [`Label::encode`]; `None` for anything that is no label, or a damaged one. A newer
    /// version comes with a newer superblock, which is refused before any label is read.
    pub fn decode(b: &[u8]) -> Option<Self> {
        let b = b.first_chunk::<USED>()?;
        let u32_at = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(b[at..at + 8].try_into().expect("8 bytes"));
        let right = b[0..8] == MAGIC && u32_at(8) == VERSION && u32_at(USED - 4) == crc32c::crc32c(&b[..USED - 4]);
        right.then(|| Label {
            uuid: b[16..32].try_into().expect("16 bytes"),
            number: u32_at(12),
            data_len: u64_at(32),
            lsn: u64_at(40),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_every_flip_is_noticed() {
        let l = Label { uuid: *b"0123456789abcdef", number: 3, data_len: 1 << 20, lsn: 1001 };
        let b = l.encode();
        let hex: String = b[..USED].iter().map(|x| format!("{x:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert!(b[USED..].iter().all(|x| *x == 0));
        assert_eq!(Label::decode(&b), Some(l));
        for bit in 0..USED * 8 {
            let mut c = b;
            c[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Label::decode(&c), None, "bit {bit}");
        }
        assert_eq!(Label::decode(&b[..20]), None);
    }

    const GOLDEN: &str = concat!(
        "4c4f4445444154410100000003000000303132333435363738396162636465660000100000000000",
        "e90300000000000055b7e68d",
    );
}
