//! An open file or block device, and what it takes to make its writes durable.

use std::collections::VecDeque;
use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fiemap;
use crate::ranges::Ranges;

const EXT4_MAGIC: i64 = 0xef53;
const XFS_MAGIC: i64 = 0x5846_5342;
const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
const FS_XFLAG_REALTIME: u32 = 1;

/// What a flush of this file flushes, and so which files may share one.
///
/// A write with O_DIRECT is in the device's volatile cache (or on the medium) when it completes.
/// `fdatasync` of *any* file of the same ext4 or XFS ends in a flush of that device's whole cache,
/// so one call makes the completed writes of every such file durable, *as far as bytes go*. What it
/// does not do is commit another file's metadata: a first write into a reserved or missing block
/// turns the block into a written one in the journal, and that transaction is committed only by a
/// sync of the very file. (Were it skipped, the bytes would read as zeros after a power failure.)
///
/// Hence the rule kept here: a file rides along on another's flush while all its writes since its
/// own last `fdatasync` went to *settled* ranges, those known to be written extents, committed.
/// What is settled is read from the extent map when the file is opened and then grows with each
/// `fdatasync` of the file. Nothing in lodestore ever unsettles a range. A foreign hand might: a
/// reflink copy, a punched hole or an online defragmentation of a store's files while the store is
/// mounted; that is forbidden to operators, or `FileDiskOptions::flush_each` is set.
///
/// Excluded are files where O_DIRECT is a mere word (journaled data, encryption, verity, inline
/// data: the kernel reports no direct-I/O alignment for them) and XFS realtime files, whose bytes
/// are on another device than `st_dev` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// Only its own.
    Own,
    /// The whole device with this number.
    Device(u64),
}

/// Writes and what is known to be settled; see [`Flush`].
#[derive(Default)]
struct Extents {
    settled: Ranges,
    /// Completed writes outside `settled`, oldest first.
    fresh: VecDeque<Range<u64>>,
    /// How many have left `fresh`, so that each has a number that stays.
    fresh_gone: u64,
}

/// An open file or block device.
pub(crate) struct OpenFile {
    file: File,
    name: String,
    identity: (u64, u64),
    flush: Flush,
    /// `None`: every range is settled (a block device) or it does not matter ([`Flush::Own`]).
    extents: Option<Mutex<Extents>>,
    /// Of a block device, whose metadata do not tell.
    device_len: Option<u64>,
}

impl OpenFile {
    /// Takes over an open file. `direct`: it was opened with O_DIRECT; `share`: it may share
    /// flushes if the file system allows.
    pub(crate) fn new(file: File, name: String, direct: bool, share: bool) -> std::io::Result<Self> {
        let meta = file.metadata()?;
        let block_device = meta.file_type().is_block_device();
        let identity = if block_device { (u64::MAX, meta.rdev()) } else { (meta.dev(), meta.ino()) };
        let mut this = OpenFile { file, name, identity, flush: Flush::Own, extents: None, device_len: None };
        if block_device {
            this.device_len = Some(std::io::Seek::seek(&mut &this.file, std::io::SeekFrom::End(0))?);
            this.flush = if direct && share { Flush::Device(meta.rdev()) } else { Flush::Own };
        } else if direct && share && this.is_plain_direct() {
            // The first sync gives blocks to what an earlier writer left in the page cache, the
            // second commits whatever the map shows.
            this.file.sync_data()?;
            if let Ok(settled) = fiemap::written(&this.file) {
                this.file.sync_data()?;
                this.extents = Some(Mutex::new(Extents { settled, ..Extents::default() }));
                this.flush = Flush::Device(meta.dev());
            }
        }
        Ok(this)
    }

    /// Whether O_DIRECT on this regular file is real and on the device that `st_dev` names, on a
    /// file system whose fdatasync always flushes it.
    fn is_plain_direct(&self) -> bool {
        let fd = self.fd();
        let mut fs = MaybeUninit::<libc::statfs>::zeroed();
        let mut st = MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: `fs` has room for the answer; zeros are a valid `statfs`.
        let (rc, fs) = unsafe { (libc::fstatfs(fd, fs.as_mut_ptr()), fs.assume_init()) };
        // SAFETY: an empty path with AT_EMPTY_PATH means `fd`; `st` has room for the answer.
        let rx = unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, st.as_mut_ptr()) };
        // SAFETY: zeros are a valid `statx`, and so is what the kernel wrote over them.
        let st = unsafe { st.assume_init() };
        let has_direct = rx == 0 && st.stx_mask & libc::STATX_DIOALIGN != 0 && st.stx_dio_mem_align != 0;
        #[allow(clippy::unnecessary_cast)] // The type of f_type differs between targets.
        let magic = fs.f_type as i64;
        rc == 0 && has_direct && (magic == EXT4_MAGIC || magic == XFS_MAGIC && !self.is_realtime())
    }

    fn is_realtime(&self) -> bool {
        // struct fsxattr of linux/fs.h: 28 bytes, the flags first.
        let mut attributes = [0u32; 7];
        // SAFETY: the kernel writes 28 bytes, which is what the array has.
        let rc = unsafe { libc::ioctl(self.fd(), FS_IOC_FSGETXATTR, attributes.as_mut_ptr()) };
        rc < 0 || attributes[0] & FS_XFLAG_REALTIME != 0
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The same for two descriptors of one file or device.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    pub(crate) fn flush(&self) -> Flush {
        self.flush
    }

    /// Length in bytes now.
    pub(crate) fn len(&self) -> u64 {
        self.device_len.unwrap_or_else(|| self.file.metadata().expect("an open file has metadata").len())
    }

    fn extents(&self) -> Option<MutexGuard<'_, Extents>> {
        // A panic elsewhere leaves no half-made change: each is one step.
        self.extents.as_ref().map(|m| m.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A write completed without error.
    pub(crate) fn wrote(&self, range: Range<u64>) {
        if let Some(mut x) = self.extents()
            && !x.settled.covers(&range)
        {
            x.fresh.push_back(range);
        }
    }

    /// Whether completed writes need a sync of this very file.
    pub(crate) fn needs_own_sync(&self) -> bool {
        self.extents().is_some_and(|x| !x.fresh.is_empty())
    }

    /// Call before a sync starts; the answer goes to [`OpenFile::sync_done`].
    pub(crate) fn sync_mark(&self) -> u64 {
        self.extents().map_or(0, |x| x.fresh_gone + x.fresh.len() as u64)
    }

    /// A sync that began after [`OpenFile::sync_mark`] succeeded.
    pub(crate) fn sync_done(&self, mark: u64) {
        if let Some(mut x) = self.extents() {
            while x.fresh_gone < mark
                && let Some(range) = x.fresh.pop_front()
            {
                x.fresh_gone += 1;
                x.settled.insert(range);
            }
        }
    }
}
