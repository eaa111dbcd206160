//! A directory, or the block devices named in it, as a [`Disk`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::{Engine, SyncMode, THREADS_MAX};
use crate::files::FileSet;
use crate::libaio::LibaioRing;
use crate::open_file::OpenFile;
use crate::seam::{DEPTH_MAX, Disk, FILES_MAX, FileId, IoError, OPEN_DIRECT, Ring};
use crate::sync_ring::SyncRing;
use crate::threads::ThreadRing;

/// How a [`FileDisk`] treats its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileDiskOptions {
    /// Which ring moves the bytes.
    pub engine: Engine,
    /// How [`Engine::Libaio`] flushes; the other engines always block in fdatasync.
    pub sync_mode: SyncMode,
    /// Open everything with O_DIRECT. Without it libaio blocks in `submit`; use another engine.
    pub direct: bool,
    /// Call fdatasync for every file of a sync, even where one call flushes the device for all.
    pub flush_each: bool,
}

impl Default for FileDiskOptions {
    fn default() -> Self {
        FileDiskOptions { engine: Engine::default(), sync_mode: SyncMode::default(), direct: true, flush_each: false }
    }
}

/// Files in a directory. Names are relative to it; `open` also takes absolute paths and block
/// devices. All files are opened in one mode, so none is ever written both buffered and direct.
pub struct FileDisk {
    dir: PathBuf,
    options: FileDiskOptions,
    files: Vec<Arc<OpenFile>>,
    syncs: Arc<AtomicU64>,
}

impl FileDisk {
    /// A disk over `dir`. Touches nothing yet.
    ///
    /// Panics if `options` ask for no threads or for more than [`THREADS_MAX`].
    pub fn new(dir: impl Into<PathBuf>, options: FileDiskOptions) -> Self {
        if let Engine::Threads(n) = options.engine {
            assert!((1..=THREADS_MAX).contains(&n), "a pool of {n} threads");
        }
        FileDisk { dir: dir.into(), options, files: Vec::new(), syncs: Arc::default() }
    }

    /// How many times a file has been synced (fdatasync, or the aio request) by this disk's rings.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// The options it was made with.
    pub fn options(&self) -> FileDiskOptions {
        self.options
    }

    pub(crate) fn file_set(&self) -> FileSet {
        FileSet::new(self.files.clone().into(), Arc::clone(&self.syncs))
    }

    fn path(&self, name: &str) -> PathBuf {
        // An absolute name replaces the directory.
        self.dir.join(name)
    }

    fn open_path(&mut self, name: &str) -> Result<FileId, IoError> {
        let path = self.path(name);
        let name = shown(&path);
        let error = |what: &'static str| {
            let name = &name;
            move |e: io::Error| io_error(what, name, &e)
        };
        let kind = std::fs::metadata(&path).map_err(error("open"))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let errno = if kind.is_dir() { libc::EISDIR } else { libc::ENOTBLK };
            return Err(error("open")(io::Error::from_raw_os_error(errno)));
        }
        let mut how = OpenOptions::new();
        how.read(true).write(true);
        let direct = if self.options.direct { libc::O_DIRECT } else { 0 };
        // On a block device O_EXCL refuses one that is mounted, or that another store uses.
        let exclusive = if kind.is_block_device() { libc::O_EXCL } else { 0 };
        how.custom_flags(direct | exclusive);
        let what = if self.options.direct { OPEN_DIRECT } else { "open" };
        let reason =
            |e: io::Error| io_error(if e.raw_os_error() == Some(libc::EINVAL) { what } else { "open" }, &name, &e);
        let file = how.open(&path).map_err(reason)?;
        let file =
            OpenFile::new(file, name.clone(), self.options.direct, !self.options.flush_each).map_err(error("open"))?;
        if let Some(known) = self.files.iter().position(|f| f.identity() == file.identity()) {
            return Ok(FileId(known as u8));
        }
        if self.files.len() == FILES_MAX {
            return Err(error("open")(io::Error::from_raw_os_error(libc::EMFILE)));
        }
        self.files.push(Arc::new(file));
        Ok(FileId((self.files.len() - 1) as u8))
    }
}

impl Disk for FileDisk {
    fn create(&mut self, name: &str, len: u64) -> Result<FileId, IoError> {
        let path = self.path(name);
        let error = |e: io::Error| io_error("create", &shown(&path), &e);
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(error)?;
        // Made without O_DIRECT and opened again with it: where O_DIRECT is refused, a file made
        // with it may be left behind. Nothing is written through this descriptor.
        let made =
            reserve(&file, len).and_then(|()| file.sync_all()).and_then(|()| sync_directory_of(&path)).map_err(error);
        drop(file);
        let opened = made.and_then(|()| self.open_path(name));
        if opened.is_err() {
            // The reason for the failure is what the caller needs to hear; an empty directory
            // entry that could not be removed either is seen by the next attempt (EEXIST).
            let _ = std::fs::remove_file(&path);
        }
        opened
    }

    fn open(&mut self, name: &str) -> Result<FileId, IoError> {
        self.open_path(name)
    }

    fn len(&self, file: FileId) -> u64 {
        self.files[usize::from(file.0)].len()
    }

    fn ring(&self, depth: usize) -> Result<Box<dyn Ring>, IoError> {
        assert!((1..=DEPTH_MAX).contains(&depth), "a ring of {depth} requests; 1 to {DEPTH_MAX} are possible");
        let files = self.file_set();
        let name = self.dir.display().to_string();
        Ok(match self.options.engine {
            Engine::Libaio => Box::new(
                LibaioRing::new(files, depth, self.options.sync_mode).map_err(|e| io_error("io_setup", &name, &e))?,
            ),
            Engine::Threads(n) => {
                Box::new(ThreadRing::new(files, depth, n).map_err(|e| io_error("eventfd", &name, &e))?)
            }
            Engine::Sync => Box::new(SyncRing::new(files, depth)),
        })
    }
}

/// What a file is called in messages: its path, and where that leads if it is a link.
fn shown(path: &Path) -> String {
    match std::fs::read_link(path) {
        Ok(target) => format!("{} (a link to {})", path.display(), target.display()),
        Err(_) => path.display().to_string(),
    }
}

/// Gives `file` a length of `len` and space for it.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    let len = libc::off_t::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    if len == 0 {
        return Ok(());
    }
    // SAFETY: takes no pointer. Where the file system cannot reserve, the C library writes zeros.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Makes the directory entry of `path` durable.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let dir = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    File::open(dir)?.sync_all()
}

fn io_error(what: &'static str, name: &str, e: &io::Error) -> IoError {
    IoError { what, file: name.to_owned(), offset: 0, len: 0, errno: e.raw_os_error().unwrap_or(libc::EIO) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::AlignedBuf;
    use crate::open_file::Flush;
    use crate::seam::{BLOCK, IoOp, run};

    fn beside_the_binary() -> tempfile::TempDir {
        let binary = std::env::current_exe().unwrap();
        tempfile::tempdir_in(binary.parent().unwrap()).unwrap()
    }

    /// The number of fdatasync calls that each of three syncs of two files takes, each after a
    /// write of the first block of both, the last after one of their second block.
    fn syncs_of(options: FileDiskOptions) -> Option<(Flush, [u64; 3])> {
        let dir = beside_the_binary();
        let mut disk = FileDisk::new(dir.path(), options);
        let files = match disk.create("a", 1 << 20).and_then(|a| disk.create("b", 1 << 20).map(|b| [a, b])) {
            Ok(files) => files,
            Err(e) if e.is_direct_refused() => {
                println!("not shown here, where direct I/O is refused: {e}");
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        let mut ring = disk.ring(4).unwrap();
        let counts = [0, 0, BLOCK as u64].map(|offset| {
            let before = disk.syncs();
            for file in files {
                let data = AlignedBuf::copy_of(&[7; BLOCK]).freeze();
                run(&mut *ring, IoOp::Write { file, offset, data, dsync: false }).unwrap();
            }
            run(&mut *ring, IoOp::Sync { files: 3 }).unwrap();
            disk.syncs() - before
        });
        Some((disk.files[0].flush(), counts))
    }

    #[test]
    fn files_share_a_flush_only_while_their_writes_go_to_settled_blocks() {
        for sync_mode in [SyncMode::Blocking, SyncMode::Aio, SyncMode::Thread] {
            let options = FileDiskOptions { sync_mode, ..FileDiskOptions::default() };
            match syncs_of(options) {
                Some((Flush::Device(_), counts)) => assert_eq!(counts, [2, 1, 2], "{sync_mode}"),
                Some((Flush::Own, counts)) => assert_eq!(counts, [2, 2, 2], "{sync_mode}"),
                None => {}
            }
        }
        for engine in [Engine::Threads(2), Engine::Sync] {
            if let Some((Flush::Device(_), counts)) = syncs_of(FileDiskOptions { engine, ..FileDiskOptions::default() })
            {
                assert_eq!(counts, [2, 1, 2], "{engine}");
            }
        }
    }

    #[test]
    fn files_never_share_a_flush_when_told_or_when_buffered() {
        let each = FileDiskOptions { flush_each: true, ..FileDiskOptions::default() };
        let buffered = FileDiskOptions { engine: Engine::Sync, direct: false, ..FileDiskOptions::default() };
        for options in [each, buffered] {
            assert!(syncs_of(options).is_none_or(|(flush, counts)| flush == Flush::Own && counts == [2, 2, 2]));
        }
    }

    #[test]
    fn a_file_opened_again_knows_what_is_settled() {
        let dir = beside_the_binary();
        std::fs::write(dir.path().join("a"), vec![1; 64 * BLOCK]).unwrap();
        let mut disk = FileDisk::new(dir.path(), FileDiskOptions::default());
        let Ok(file) = disk.open("a") else { return println!("not shown here, where direct I/O is refused") };
        let f = &disk.files[usize::from(file.0)];
        f.wrote(0..64 * BLOCK as u64);
        assert!(!f.needs_own_sync(), "written blocks are settled");
        f.wrote(64 * BLOCK as u64..65 * BLOCK as u64);
        assert_eq!(f.needs_own_sync(), f.flush() != Flush::Own, "a block beyond them is not");
    }
}
