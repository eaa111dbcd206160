//! The directory of a store: what is made, found, locked and removed in it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_aio::{DEPTH_MAX, Disk, Engine as IoEngine, FileDisk, FileDiskOptions, IoError, SyncMode, TraceDisk};
use lodestore_kv::{Kv, RocksConfig, RocksKv};

use super::claim;
use crate::config::{EngineConfig, Layout};
use crate::engine::{Engine, FsckReport, LOG_FILE, check_layout, data_file};
use crate::error::Error;
use crate::format::BLOCK_LEN;
use crate::format::codec::VALUE_LEN_MAX;
use crate::format::label::{self, Label};
use crate::format::superblock::{self, Superblock, uuid_text};
use crate::ledger::Ledger;
use crate::trace::WriteTrace;

pub(super) const LOCK_FILE: &str = "lock";
pub(super) const KV_DIR: &str = "kv";
/// In the directory of the key-value store: whose it is.
const KV_LABEL_FILE: &str = "label";
/// Stands in that label where a fragment file has its number.
const KV_LABEL_NUMBER: u32 = u32::MAX;

/// What to make. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Room for object data, over all fragment files.
    pub size: u64,
    /// Files to make or block devices to use as fragment files; none for one in the directory.
    pub data: Vec<PathBuf>,
    /// File to make or block device to use for the log; none for one in the directory.
    pub log: Option<PathBuf>,
    /// Directory for the key-value store, which must not exist; none for one in the directory.
    pub kv: Option<PathBuf>,
    /// Size of the log; by default 1/32 of the size, 16 MiB to 512 MiB. One that is chosen has
    /// segments of an eighth of it, up to 64 MiB; else they have at most 16 MiB.
    pub log_size: Option<u64>,
    /// How much of the data space is pre-written now; by default at most 4 GiB.
    pub prewrite: Option<u64>,
    /// How files are written.
    pub engine: IoEngine,
    /// Overwrite block devices that hold something, replace files that exist.
    pub force: bool,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        MkfsOptions {
            size: 16 << 30,
            data: Vec::new(),
            log: None,
            kv: None,
            log_size: None,
            prewrite: None,
            engine: IoEngine::Libaio,
            force: false,
        }
    }
}

/// How to mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// How files are read and written.
    pub engine: IoEngine,
    /// How libaio flushes.
    pub sync_mode: SyncMode,
    /// Choices of the engine.
    pub config: EngineConfig,
    /// Choices of the key-value store.
    pub kv: RocksConfig,
    /// Who is told of every completed write of data and log.
    pub trace: Option<WriteTrace>,
}

/// Segments of a log whose size was chosen, and of others, are at most so long.
const SEGMENT_CHOSEN_MAX: u64 = VALUE_LEN_MAX as u64;
const SEGMENT_MAX: u64 = 16 << 20;

impl MkfsOptions {
    /// Refuses what [`Store::mkfs`](crate::Store::mkfs) into `dir` would refuse before it makes
    /// anything; else says what sizes the store will have.
    pub fn check(&self, dir: &Path) -> Result<Layout, Error> {
        let layout = self.layout()?;
        check_layout(&layout)?;
        if dir.exists() {
            claim::check_empty(dir, false)?;
        }
        claim::check(dir, self)?;
        Ok(layout)
    }

    /// The sizes that come of the options; block devices bring their own.
    fn layout(&self) -> Result<Layout, Error> {
        let round = |n: u64| n / BLOCK_LEN * BLOCK_LEN;
        let n = self.data.len().max(1) as u64;
        let mut data = Vec::new();
        for i in 0..n as usize {
            let device = self.data.get(i).filter(|p| is_block_device(p));
            data.push(match device {
                Some(p) => round(device_len(p)?).saturating_sub(label::LEN),
                None => round(self.size / n),
            });
        }
        let total = data.iter().fold(0u64, |a, b| a.saturating_add(*b));
        const LEAST: u64 = 16 << 20;
        if total < LEAST {
            return Err(Error::Invalid(format!(
                "a store of {total} bytes is too small: at least {LEAST} are needed (16m)"
            )));
        }
        let log = match (&self.log_size, &self.log) {
            (Some(n), _) => *n,
            (None, Some(p)) if is_block_device(p) => device_len(p)?.min(512 << 20),
            _ => (total / 32).clamp(16 << 20, 512 << 20),
        };
        let segment_max = if self.log_size.is_some() { SEGMENT_CHOSEN_MAX } else { SEGMENT_MAX };
        let segment = round((log / 8).clamp(64 << 10, segment_max));
        // The log is whole segments behind its two header blocks.
        let segments = log.saturating_sub(2 * BLOCK_LEN) / segment.max(1);
        let log = 2 * BLOCK_LEN + segments * segment;
        let prewrite = round(self.prewrite.unwrap_or(4 << 30).min(total));
        Ok(Layout { data, log, segment, prewrite })
    }
}

/// What [`Store::mkfs`](crate::Store::mkfs) made.
#[derive(Clone, Debug)]
pub struct MkfsReport {
    /// The sizes it has.
    pub layout: Layout,
    /// Bytes written for it.
    pub written: Ledger,
}

/// Makes a store in `dir`, which must be empty or absent. What was made is removed if it fails.
pub(super) fn mkfs(dir: &Path, o: &MkfsOptions, progress: &mut dyn FnMut(&str, u64, u64)) -> Result<MkfsReport, Error> {
    let layout = o.check(dir)?;
    let mut made = Made::default();
    let result = made.directories(dir).and_then(|()| make(dir, o, &layout, &mut made, progress));
    if result.is_err() {
        made.remove();
    }
    result.map(|written| MkfsReport { layout, written })
}

/// What was made so far, to be removed on failure.
#[derive(Default)]
struct Made(Vec<(PathBuf, Kind)>);

enum Kind {
    File,
    /// With everything in it.
    Tree,
    /// If nothing is left in it.
    Directory,
}

impl Made {
    fn add(&mut self, path: impl Into<PathBuf>, kind: Kind) {
        self.0.push((path.into(), kind));
    }

    /// Makes a directory and those above it that are missing.
    fn directories(&mut self, dir: &Path) -> Result<(), Error> {
        let missing: Vec<&Path> =
            dir.ancestors().take_while(|p| !p.as_os_str().is_empty() && fs::symlink_metadata(p).is_err()).collect();
        for p in missing.into_iter().rev() {
            match fs::create_dir(p) {
                Ok(()) => self.add(p, Kind::Directory),
                // Somebody else was faster.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(place("create", p, e)),
            }
        }
        Ok(())
    }

    fn remove(self) {
        // The failure that led here is what the caller must hear of, not what follows from it.
        for (p, kind) in self.0.iter().rev() {
            let _ = match kind {
                Kind::File => fs::remove_file(p),
                Kind::Tree if p.is_symlink() => fs::remove_file(p),
                Kind::Tree => fs::remove_dir_all(p),
                Kind::Directory => fs::remove_dir(p),
            };
        }
    }
}

fn make(
    dir: &Path,
    o: &MkfsOptions,
    layout: &Layout,
    made: &mut Made,
    progress: &mut dyn FnMut(&str, u64, u64),
) -> Result<Ledger, Error> {
    let _lock = lock(dir)?;
    // Whoever held the lock before may have made a store meanwhile.
    claim::check_empty(dir, true)?;
    made.add(dir.join(LOCK_FILE), Kind::File);
    for (n, len) in layout.data.iter().enumerate() {
        made.add(dir.join(data_file(n)), Kind::File);
        if let Some(p) = o.data.get(n) {
            link(p, &dir.join(data_file(n)), len + label::LEN, o.engine, made)?;
        }
    }
    made.add(dir.join(LOG_FILE), Kind::File);
    if let Some(p) = &o.log {
        link(p, &dir.join(LOG_FILE), layout.log, o.engine, made)?;
    }
    made.add(dir.join(superblock::FILE), Kind::File);
    made.add(dir.join(KV_DIR), Kind::Tree);
    if let Some(p) = &o.kv {
        made.directories(p)?;
        made.add(p, Kind::Tree);
        symlink(absolute(p)?, dir.join(KV_DIR)).map_err(|e| place("link", p, e))?;
    }
    let mut disk = open_disk(dir, o.engine, SyncMode::default());
    let kv = RocksKv::create(&dir.join(KV_DIR), &kv_config(RocksConfig::default(), dir, o.engine))?;
    let uuid = rand::random();
    write_kv_label(&dir.join(KV_DIR), uuid)?;
    let ledger = Engine::mkfs(&mut disk, &kv, layout, uuid, progress)?;
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| place("sync", dir, e))?;
    Ok(ledger)
}

/// Says in the directory of the key-value store whose it is, where that can be read without
/// opening it.
fn write_kv_label(kv: &Path, uuid: [u8; 16]) -> Result<(), Error> {
    let path = kv.join(KV_LABEL_FILE);
    let label = Label { uuid, number: KV_LABEL_NUMBER, data_len: 0, lsn: 0 };
    let written = File::create_new(&path).and_then(|mut f| f.write_all(&label.encode()).and_then(|()| f.sync_all()));
    written.and_then(|()| File::open(kv)?.sync_all()).map_err(|e| place("write", &path, e))
}

/// Refuses the key-value store of another store before it is opened, which may change it.
fn check_kv_label(kv: &Path, s: &Superblock) -> Result<(), Error> {
    let path = kv.join(KV_LABEL_FILE);
    let found = match fs::read(&path) {
        Ok(b) => Label::decode(&b),
        // Without a key-value store there is no label either, which opening it says better.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(place("read", &path, e)),
    };
    match found {
        Some(l) if l.uuid == s.uuid => Ok(()),
        Some(l) => Err(Error::Mount(format!(
            "{} is the key-value store of store {}, not of {}; nothing was changed, check where 'kv' leads",
            kv.display(),
            uuid_text(&l.uuid),
            uuid_text(&s.uuid)
        ))),
        None => Err(Error::MountDamaged(format!("{} is damaged: it says of no store whose it is", path.display()))),
    }
}

/// Makes `link` point to `target`, which is made with `len` bytes unless it is a block device.
fn link(target: &Path, link: &Path, len: u64, engine: IoEngine, made: &mut Made) -> Result<(), Error> {
    if !is_block_device(target) {
        if target.exists() {
            // It was found that it may be replaced.
            let file = absolute(target)?;
            fs::remove_file(&file).map_err(|e| place("removal", &file, e))?;
        }
        let (parent, name) =
            (target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")), target.file_name());
        let name = name
            .and_then(|n| n.to_str())
            .ok_or_else(|| Error::Invalid(format!("{} is no name for a file (it must be UTF-8)", target.display())))?;
        open_disk(parent, engine, SyncMode::default()).create(name, len)?;
        made.add(target, Kind::File);
    }
    symlink(absolute(target)?, link).map_err(|e| place("link", link, e))
}

fn absolute(p: &Path) -> Result<PathBuf, Error> {
    fs::canonicalize(p).map_err(|e| place("open", p, e))
}

fn is_block_device(p: &Path) -> bool {
    fs::metadata(p).is_ok_and(|m| m.file_type().is_block_device())
}

pub(super) fn device_len(p: &Path) -> Result<u64, Error> {
    use std::io::{Seek, SeekFrom};
    File::open(p).and_then(|mut f| f.seek(SeekFrom::End(0))).map_err(|e| place("open", p, e))
}

fn open_disk(dir: &Path, engine: IoEngine, sync_mode: SyncMode) -> FileDisk {
    // libaio without O_DIRECT would block in every submission; the others can do without, where the
    // file system has none.
    let direct = engine == IoEngine::Libaio || has_direct(dir);
    FileDisk::new(dir, FileDiskOptions { engine, sync_mode, direct, ..Default::default() })
}

/// The key-value store's choices, without O_DIRECT where the engine does without it.
fn kv_config(mut c: RocksConfig, dir: &Path, engine: IoEngine) -> RocksConfig {
    if engine != IoEngine::Libaio && !has_direct(dir) {
        (c.direct_flush, c.direct_reads) = (false, false);
    }
    c
}

/// Whether the file system of `dir`, which has a lock file by now, has O_DIRECT.
fn has_direct(dir: &Path) -> bool {
    File::options().read(true).custom_flags(libc::O_DIRECT).open(dir.join(LOCK_FILE)).is_ok()
}

/// A failure of the system, and where it met it.
pub(super) fn place(what: &'static str, p: &Path, e: io::Error) -> Error {
    let errno = e.raw_os_error().unwrap_or(libc::EIO);
    Error::Io(IoError { what, file: p.display().to_string(), offset: 0, len: 0, errno })
}

/// A directory held for one process.
#[derive(Debug)]
pub(super) struct DirLock(File);

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has it open,
        // too, until it has become another program. Where this fails, closing is all there is.
        let _ = self.0.unlock();
    }
}

/// Holds the directory.
fn lock(dir: &Path) -> Result<DirLock, Error> {
    let path = dir.join(LOCK_FILE);
    let f =
        File::options().create(true).truncate(false).write(true).open(&path).map_err(|e| place("open", &path, e))?;
    match f.try_lock() {
        Ok(()) => Ok(DirLock(f)),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Mount(format!("store {} is in use by another process; nothing was changed", dir.display())))
        }
        Err(TryLockError::Error(e)) => Err(place("lock", &path, e)),
    }
}

/// A mounted engine and the lock that goes with it.
pub(super) struct Mounted {
    pub engine: Engine,
    pub kv: Arc<RocksKv>,
    pub lock: DirLock,
}

/// Mounts the store in `dir`.
pub(super) fn mount(dir: &Path, o: &MountOptions) -> Result<Mounted, Error> {
    if o.config.depth == 0 || o.config.depth > DEPTH_MAX {
        return Err(Error::Invalid(format!("{} I/Os in flight: 1 to {DEPTH_MAX} are possible", o.config.depth)));
    }
    if !dir.join(superblock::FILE).exists() {
        let why = match fs::metadata(dir) {
            Err(e) => format!("{e}; check the path, or make a store there with mkfs"),
            Ok(m) if !m.is_dir() => "is not a directory".into(),
            Ok(_) => format!(
                "has no file '{}': it is not a lodestore store; make one with mkfs, or check the path",
                superblock::FILE
            ),
        };
        return Err(Error::Mount(format!("{}: {why}", dir.display())));
    }
    let lock = lock(dir)?;
    let disk = open_disk(dir, o.engine, o.sync_mode);
    let disk: Box<dyn Disk> = match &o.trace {
        Some(trace) => Box::new(TraceDisk::new(disk, trace.0.clone())),
        None => Box::new(disk),
    };
    let mut opened = None;
    let open_kv = |s: &Superblock| {
        let path = dir.join(KV_DIR);
        check_kv_label(&path, s)?;
        let kv = Arc::new(RocksKv::open(&path, &kv_config(o.kv.clone(), dir, o.engine))?);
        opened = Some(kv.clone());
        Ok(kv as Arc<dyn Kv>)
    };
    let engine = Engine::mount_with(disk, open_kv, o.config.clone())?;
    let kv = opened.expect("a mounted engine has its key-value store");
    Ok(Mounted { engine, kv, lock })
}

/// Holds a store's directory for as long as it lives.
#[derive(Debug)]
pub struct MountGuard {
    _lock: DirLock,
}

/// Mounts the store in `dir` for a loop of the caller's own: who drives the engine need not hand
/// anything to another thread. Unmount the engine before dropping the guard.
pub fn mount_engine(dir: &Path, o: &MountOptions) -> Result<(Engine, MountGuard), Error> {
    let m = mount(dir, o)?;
    Ok((m.engine, MountGuard { _lock: m.lock }))
}

/// Mounts, checks and unmounts the store in `dir`.
pub(super) fn fsck(dir: &Path, o: &MountOptions, deep: bool, repair: bool) -> Result<FsckReport, Error> {
    let mut m = mount(dir, o)?;
    let poisoned = m.engine.poisoned().is_some();
    let report = m.engine.fsck(deep, repair)?;
    match m.engine.umount().1 {
        Err(e) if !poisoned => Err(e),
        // One that could only be read is left as it was; the report says why.
        _ => Ok(report),
    }
}
