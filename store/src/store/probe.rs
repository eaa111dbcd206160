//! What a file or block device holds that mkfs was asked to write on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use lodestore_wal::format::LogHeader;

use crate::engine::{LOG_FILE, data_file};
use crate::format::label::{self, Label};
use crate::format::superblock::uuid_text;

/// Bytes looked at from the beginning; every mark in [`MARKS`] lies in them.
const HEAD_LEN: usize = 128 << 10;

/// Offset, bytes, and what they are the mark of.
const MARKS: [(usize, &[u8], &str); 21] = [
    (0, b"XFSB", "an XFS file system"),
    (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0x10040, b"_BHRfS_M", "a Btrfs file system"),
    (4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9], "a bcachefs file system"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    (0, b"bluestore block device", "a Ceph BlueStore device"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (512, b"LABELONE", "an LVM volume"),
    (0, b"LABELONE", "an LVM volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID array"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID array"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (512, b"EFI PART", "a partition table"),
    (4096, b"EFI PART", "a partition table"),
    (510, &[0x55, 0xaa], "a partition table or boot sector"),
];

/// Says what is found on `file`, which has `len` bytes; `None` if there are only zeros where
/// anything known leaves its mark.
pub(super) fn holds(file: &File, len: u64) -> io::Result<Option<String>> {
    let mut head = vec![0; HEAD_LEN.min(usize::try_from(len).unwrap_or(HEAD_LEN))];
    file.read_exact_at(&mut head, 0)?;
    if let Ok(h) = head.first_chunk::<512>().map_or(Err(()), |b| LogHeader::decode(b).map_err(drop)) {
        return Ok(Some(format!("'{LOG_FILE}' of the lodestore store {}", uuid_text(&h.uuid))));
    }
    let end = len / label::LEN * label::LEN;
    let mut tail = vec![0; label::LEN.min(end) as usize];
    file.read_exact_at(&mut tail, end.saturating_sub(label::LEN))?;
    if let Some(l) = Label::decode(&tail) {
        return Ok(Some(format!("'{}' of the lodestore store {}", data_file(l.number as usize), uuid_text(&l.uuid))));
    }
    let mark = |(at, bytes, _): &&(usize, &[u8], &str)| head.get(*at..*at + bytes.len()) == Some(bytes);
    if let Some((_, _, what)) = MARKS.iter().find(mark) {
        return Ok(Some((*what).to_owned()));
    }
    Ok(head.iter().position(|b| *b != 0).map(|at| format!("bytes of an unknown kind (from offset {at} on)")))
}
