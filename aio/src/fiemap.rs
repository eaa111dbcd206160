//! Which parts of a file are plain, written extents (`FS_IOC_FIEMAP`).

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

use crate::ranges::Ranges;

const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
const EXTENT_LAST: u32 = 0x1;
const EXTENT_MERGED: u32 = 0x1000;
const EXTENTS_PER_CALL: usize = 256;

/// `struct fiemap` of linux/fiemap.h with room for extents behind it.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS_PER_CALL],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Request>() == 32 + 56 * EXTENTS_PER_CALL);

/// The ranges of `file` that have blocks of their own which have been written: not holes, not
/// reserved-but-unwritten, not shared with another file, and stored as they are.
///
/// Errors: EOPNOTSUPP where the file system cannot tell, and whatever else it answers.
pub(crate) fn written(file: &File) -> io::Result<Ranges> {
    let mut ranges = Ranges::default();
    let mut start = 0;
    loop {
        let mut request = Request {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: EXTENTS_PER_CALL as u32,
            reserved: 0,
            extents: [Extent::default(); EXTENTS_PER_CALL],
        };
        // SAFETY: the kernel fills in at most `extent_count` extents, for which there is room.
        let rc = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = &request.extents[..(request.mapped_extents as usize).min(EXTENTS_PER_CALL)];
        for e in mapped {
            if e.flags & !(EXTENT_LAST | EXTENT_MERGED) == 0 {
                ranges.insert(e.logical..e.logical.saturating_add(e.length));
            }
        }
        match mapped.last() {
            Some(e) if e.flags & EXTENT_LAST == 0 && e.logical + e.length > start => start = e.logical + e.length,
            _ => return Ok(ranges),
        }
    }
}
