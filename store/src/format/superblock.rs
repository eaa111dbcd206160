//! The superblock: what the store is and what its files must look like. Written once, last, by
//! mkfs: a store without one was never finished.

use super::BLOCK_LEN;
use crate::config::Layout;
use crate::error::Error;

/// Name of the file that holds it.
pub const FILE: &str = "superblock";

const MAGIC: [u8; 8] = *b"lodestor";
/// Format of everything outside the log, which has a version of its own.
pub const VERSION: u32 = 1;
/// Most fragment files.
pub const DATA_FILES_MAX: usize = 32;

/// What the superblock says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Identity of the store, also in its log.
    pub uuid: [u8; 16],
    /// Sizes; `prewrite` is not stored.
    pub layout: Layout,
}

impl Superblock {
    /// 0 magic, 8 version u32, 12 number of fragment files u32, 16 uuid, 32 log bytes u64,
    /// 40 segment bytes u64, 48 bytes of each fragment file u64…, 4092 crc32c of all before it.
    pub fn encode(&self) -> [u8; BLOCK_LEN as usize] {
        let mut b = [0u8; BLOCK_LEN as usize];
        b[0..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[12..16].copy_from_slice(&(self.layout.data.len() as u32).to_le_bytes());
        b[16..32].copy_from_slice(&self.uuid);
        b[32..40].copy_from_slice(&self.layout.log.to_le_bytes());
        b[40..48].copy_from_slice(&self.layout.segment.to_le_bytes());
        for (i, len) in self.layout.data.iter().enumerate() {
            b[48 + 8 * i..56 + 8 * i].copy_from_slice(&len.to_le_bytes());
        }
        let crc = crc32c::crc32c(&b[..4092]);
        b[4092..].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Reverses [`Superblock::encode`].
    pub fn decode(b: &[u8]) -> Result<Self, Error> {
        let mount = |s: String| Err(Error::Mount(s));
        if b.len() != BLOCK_LEN as usize || b[0..8] != MAGIC {
            return mount(format!(
                "file '{FILE}' is not that of a lodestore store; make one with mkfs, or check the path"
            ));
        }
        let u32_at = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(b[at..at + 8].try_into().expect("8 bytes"));
        // The version comes before the checksum: a newer format may sum differently.
        let version = u32_at(8);
        if version > VERSION {
            return mount(format!(
                "store has format {version}, this program knows formats up to {VERSION}; use a newer program"
            ));
        }
        let (got, expected) = (crc32c::crc32c(&b[..4092]), u32_at(4092));
        if got != expected || version == 0 {
            return mount(format!(
                "superblock is damaged: checksum {got:08x}, expected {expected:08x}; restore the file '{FILE}' from a backup"
            ));
        }
        let files = u32_at(12) as usize;
        if files == 0 || files > DATA_FILES_MAX {
            return mount(format!("superblock names {files} fragment files, 1 to {DATA_FILES_MAX} are possible"));
        }
        let data = (0..files).map(|i| u64_at(48 + 8 * i)).collect();
        let layout = Layout { data, log: u64_at(32), segment: u64_at(40), prewrite: 0 };
        Ok(Superblock { uuid: b[16..32].try_into().expect("16 bytes"), layout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_every_flip_is_noticed() {
        let layout = Layout { data: vec![1 << 20, 2 << 20], log: 1 << 18, segment: 1 << 16, prewrite: 0 };
        let s = Superblock { uuid: *b"0123456789abcdef", layout };
        let b = s.encode();
        assert_eq!(&b[..16], b"lodestor\x01\0\0\0\x02\0\0\0");
        assert_eq!(&b[16..32], b"0123456789abcdef");
        assert_eq!(&b[48..64], &[0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0]);
        assert_eq!(Superblock::decode(&b).unwrap(), s);
        for bit in 0..b.len() * 8 {
            let mut c = b;
            c[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&c).is_err(), "bit {bit}");
        }
    }
}
