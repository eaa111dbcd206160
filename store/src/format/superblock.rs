//! The superblock: what the store is and what its files must look like. Written once, last, by
//! mkfs: a store without one was never finished.

use super::BLOCK_LEN;
use crate::config::Layout;
use crate::error::Error;

/// Name of the file that holds it.
pub const FILE: &str = "superblock";

const MAGIC: [u8; 8] = *b"lodestor";
/// Format of everything outside the log, which has a version of its own. Version 1 had no labels.
pub const VERSION: u32 = 2;
/// From this version on fragment files and key-value store have labels.
const VERSION_LABELS: u32 = 2;
/// Most fragment files.
pub const DATA_FILES_MAX: usize = 32;

/// What the superblock says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The format it was made in.
    pub version: u32,
    /// Identity of the store, also in its log.
    pub uuid: [u8; 16],
    /// Sizes; `prewrite` is not stored.
    pub layout: Layout,
}

/// A uuid as it is usually written.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

impl Superblock {
    /// That of a store made now.
    pub fn new(uuid: [u8; 16], layout: Layout) -> Self {
        Superblock { version: VERSION, uuid, layout }
    }

    /// Whether the store's parts have labels.
    pub fn has_labels(&self) -> bool {
        self.version >= VERSION_LABELS
    }

    /// 0 magic, 8 version u32, 12 number of fragment files u32, 16 uuid, 32 log bytes u64,
    /// 40 segment bytes u64, 48 bytes of each fragment file u64…, 4092 crc32c of all before it.
    pub fn encode(&self) -> [u8; BLOCK_LEN as usize] {
        let mut b = [0u8; BLOCK_LEN as usize];
        b[0..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&self.version.to_le_bytes());
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

    /// Reverses [`Superblock::encode`]. `name` is the file's, for messages.
    pub fn decode(b: &[u8], name: &str) -> Result<Self, Error> {
        let mount = |s: String| Err(Error::Mount(s));
        let damaged = |s: String| Err(Error::MountDamaged(s));
        if b.len() != BLOCK_LEN as usize || b[0..8] != MAGIC {
            return mount(format!(
                "{name} is not the superblock of a lodestore store; make one with mkfs, or check the path"
            ));
        }
        let u32_at = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(b[at..at + 8].try_into().expect("8 bytes"));
        // The version comes before the checksum: a newer format may sum differently.
        let version = u32_at(8);
        if version > VERSION {
            return mount(format!(
                "{name}: the store has format {version}, this program knows formats up to {VERSION}; nothing was changed, use a newer program"
            ));
        }
        let (got, expected) = (crc32c::crc32c(&b[..4092]), u32_at(4092));
        if got != expected || version == 0 {
            return damaged(format!(
                "{name} is damaged: checksum {got:08x}, expected {expected:08x}; bring this one file back from a backup (it never changes after mkfs)"
            ));
        }
        let files = u32_at(12) as usize;
        if files == 0 || files > DATA_FILES_MAX {
            return damaged(format!("{name} names {files} fragment files, 1 to {DATA_FILES_MAX} are possible"));
        }
        let data = (0..files).map(|i| u64_at(48 + 8 * i)).collect();
        let layout = Layout { data, log: u64_at(32), segment: u64_at(40), prewrite: 0 };
        Ok(Superblock { version, uuid: b[16..32].try_into().expect("16 bytes"), layout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_every_flip_is_noticed() {
        let layout = Layout { data: vec![1 << 20, 2 << 20], log: 1 << 18, segment: 1 << 16, prewrite: 0 };
        let s = Superblock::new(*b"0123456789abcdef", layout);
        let b = s.encode();
        assert_eq!(&b[..16], b"lodestor\x02\0\0\0\x02\0\0\0");
        assert_eq!(&b[16..32], b"0123456789abcdef");
        assert_eq!(&b[48..64], &[0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0]);
        assert_eq!(Superblock::decode(&b, FILE).unwrap(), s);
        assert!(s.has_labels());
        for bit in 0..b.len() * 8 {
            let mut c = b;
            c[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&c, FILE).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn version_1_is_read_as_a_store_without_labels() {
        let layout = Layout { data: vec![1 << 20], log: 1 << 18, segment: 1 << 16, prewrite: 0 };
        let old = Superblock { version: 1, uuid: [7; 16], layout };
        let read = Superblock::decode(&old.encode(), FILE).unwrap();
        assert_eq!(read, old);
        assert!(!read.has_labels());
    }

    #[test]
    fn uuids_are_written_in_five_groups() {
        assert_eq!(uuid_text(b"0123456789abcdef"), "30313233-3435-3637-3839-616263646566");
    }
}
