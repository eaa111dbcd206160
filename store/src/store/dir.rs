//! The directory of a store: what is made, found, locked and removed in it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_aio::{DEPTH_MAX, Disk, Engine as IoEngine, FileDisk, FileDiskOptions, SyncMode};
use lodestore_kv::{Kv, RocksConfig, RocksKv};

use crate::config::{EngineConfig, Layout};
use crate::engine::{Engine, FsckReport, LOG_FILE, data_file};
use crate::error::Error;
use crate::format::BLOCK_LEN;
use crate::format::superblock;
use crate::ledger::Ledger;

const LOCK_FILE: &str = "lock";
const KV_DIR: &str = "kv";

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
    /// Size of the log; by default 1/32 of the size, 16 MiB to 512 MiB.
    pub log_size: Option<u64>,
    /// How much of the data space is pre-written now; by default at most 4 GiB.
    pub prewrite: Option<u64>,
    /// How files are written.
    pub engine: IoEngine,
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
}

impl MkfsOptions {
    fn layout(&self) -> Result<Layout, Error> {
        let round = |n: u64| n / BLOCK_LEN * BLOCK_LEN;
        let n = self.data.len().max(1) as u64;
        let mut data = Vec::new();
        for i in 0..n as usize {
            let device = self.data.get(i).filter(|p| is_block_device(p));
            data.push(match device {
                Some(p) => round(device_len(p)?),
                None => round(self.size / n),
            });
        }
        let total: u64 = data.iter().sum();
        const LEAST: u64 = 16 << 20;
        if total < LEAST {
            return Err(Error::Invalid(format!(
                "a store of {} bytes: at least {LEAST} are needed",
                self.size.max(total)
            )));
        }
        let log = match (&self.log_size, &self.log) {
            (Some(n), _) => *n,
            (None, Some(p)) if is_block_device(p) => device_len(p)?.min(512 << 20),
            _ => (total / 32).clamp(16 << 20, 512 << 20),
        };
        let segment = round((log / 8).clamp(64 << 10, 16 << 20));
        // The log is whole segments behind its two header blocks.
        let segments = log.saturating_sub(2 * BLOCK_LEN) / segment.max(1);
        let log = 2 * BLOCK_LEN + segments * segment;
        let prewrite = round(self.prewrite.unwrap_or(4 << 30).min(total));
        Ok(Layout { data, log, segment, prewrite })
    }
}

/// Makes a store in `dir`, which must be empty or absent. What was made is removed if it fails.
pub(super) fn mkfs(dir: &Path, o: &MkfsOptions, progress: &mut dyn FnMut(&str, u64, u64)) -> Result<Ledger, Error> {
    let layout = o.layout()?;
    let existed = dir.exists();
    if existed {
        let mut entries = fs::read_dir(dir).map_err(|e| place(dir, e))?;
        if let Some(Ok(e)) = entries.find(|e| e.as_ref().is_ok_and(|e| e.file_name() != "lost+found")) {
            let what = if dir.join(superblock::FILE).exists() { "holds a store" } else { "is not empty" };
            return Err(Error::Mount(format!(
                "directory {} {what} (it has '{}'); nothing was changed, choose an empty or a new one",
                dir.display(),
                e.file_name().display()
            )));
        }
    } else {
        fs::create_dir_all(dir).map_err(|e| place(dir, e))?;
    }
    let mut made = Made::default();
    let result = make(dir, o, &layout, &mut made, progress);
    if result.is_err() {
        made.remove(dir, existed);
    }
    result
}

/// Paths made so far, to be removed on failure.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn remove(self, dir: &Path, existed: bool) {
        // The failure that led here is what the caller must hear of, not what follows from it.
        for p in self.0.iter().rev() {
            let _ = if p.is_dir() && !p.is_symlink() { fs::remove_dir_all(p) } else { fs::remove_file(p) };
        }
        if !existed {
            let _ = fs::remove_dir(dir);
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
    made.0.push(dir.join(LOCK_FILE));
    let _lock = lock(dir)?;
    for (n, len) in layout.data.iter().enumerate() {
        made.0.push(dir.join(data_file(n)));
        if let Some(p) = o.data.get(n) {
            link(p, &dir.join(data_file(n)), *len, o.engine, made)?;
        }
    }
    made.0.push(dir.join(LOG_FILE));
    if let Some(p) = &o.log {
        link(p, &dir.join(LOG_FILE), layout.log, o.engine, made)?;
    }
    made.0.push(dir.join(superblock::FILE));
    made.0.push(dir.join(KV_DIR));
    if let Some(p) = &o.kv {
        if p.exists() {
            return Err(Error::Mount(format!(
                "{} exists: the key-value store needs a directory of its own that does not",
                p.display()
            )));
        }
        made.0.push(p.clone());
        fs::create_dir_all(p).map_err(|e| place(p, e))?;
        symlink(absolute(p)?, dir.join(KV_DIR)).map_err(|e| place(p, e))?;
    }
    let mut disk = open_disk(dir, o.engine, SyncMode::default());
    let kv = RocksKv::create(&dir.join(KV_DIR), &kv_config(RocksConfig::default(), dir, o.engine))?;
    let ledger = Engine::mkfs(&mut disk, &kv, layout, rand::random(), progress)?;
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| place(dir, e))?;
    Ok(ledger)
}

/// Makes `link` point to `target`, which is made with `len` bytes unless it is a block device.
fn link(target: &Path, link: &Path, len: u64, engine: IoEngine, made: &mut Made) -> Result<(), Error> {
    if !is_block_device(target) {
        if target.exists() {
            return Err(Error::Mount(format!(
                "{} exists and is no block device; nothing was changed",
                target.display()
            )));
        }
        let (parent, name) =
            (target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")), target.file_name());
        let name = name
            .and_then(|n| n.to_str())
            .ok_or_else(|| Error::Mount(format!("{} is no name for a file", target.display())))?;
        made.0.push(target.to_path_buf());
        open_disk(parent, engine, SyncMode::default()).create(name, len)?;
    }
    symlink(absolute(target)?, link).map_err(|e| place(link, e))
}

fn absolute(p: &Path) -> Result<PathBuf, Error> {
    fs::canonicalize(p).map_err(|e| place(p, e))
}

fn is_block_device(p: &Path) -> bool {
    fs::metadata(p).is_ok_and(|m| m.file_type().is_block_device())
}

fn device_len(p: &Path) -> Result<u64, Error> {
    use std::io::{Seek, SeekFrom};
    File::open(p).and_then(|mut f| f.seek(SeekFrom::End(0))).map_err(|e| place(p, e))
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

fn place(p: &Path, e: io::Error) -> Error {
    Error::Mount(format!("{}: {e}", p.display()))
}

/// Holds the directory for one process; the lock goes with the file.
fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join(LOCK_FILE);
    let f = File::options().create(true).truncate(false).write(true).open(&path).map_err(|e| place(&path, e))?;
    match f.try_lock() {
        Ok(()) => Ok(f),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Mount(format!("store {} is in use by another process", dir.display())))
        }
        Err(TryLockError::Error(e)) => Err(place(&path, e)),
    }
}

/// A mounted engine and the lock that goes with it.
pub(super) struct Mounted {
    pub engine: Engine,
    pub kv: Arc<RocksKv>,
    pub lock: File,
}

/// Mounts the store in `dir`.
pub(super) fn mount(dir: &Path, o: &MountOptions) -> Result<Mounted, Error> {
    if o.config.depth == 0 || o.config.depth > DEPTH_MAX {
        return Err(Error::Invalid(format!("{} I/Os in flight: 1 to {DEPTH_MAX} are possible", o.config.depth)));
    }
    if !dir.join(superblock::FILE).exists() {
        let why = match fs::metadata(dir) {
            Err(e) => e.to_string(),
            Ok(m) if !m.is_dir() => "is not a directory".into(),
            Ok(_) => format!(
                "has no file '{}': it is not a lodestore store; make one with mkfs, or check the path",
                superblock::FILE
            ),
        };
        return Err(Error::Mount(format!("{}: {why}", dir.display())));
    }
    let lock = lock(dir)?;
    // Before anything is opened that a newer format may have laid out otherwise.
    let mut disk = open_disk(dir, o.engine, o.sync_mode);
    crate::engine::check_superblock(&mut disk)?;
    let kv = Arc::new(RocksKv::open(&dir.join(KV_DIR), &kv_config(o.kv.clone(), dir, o.engine))?);
    let disk = Box::new(open_disk(dir, o.engine, o.sync_mode));
    let engine = Engine::mount(disk, kv.clone() as Arc<dyn Kv>, o.config.clone())?;
    Ok(Mounted { engine, kv, lock })
}

/// Holds a store's directory for as long as it lives.
#[derive(Debug)]
pub struct MountGuard {
    _lock: File,
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
