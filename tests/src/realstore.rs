//! A store in a real directory: RocksDB, and libaio where the file system has O_DIRECT.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard};

use lodestore::{Answer, Commit, Error, MkfsOptions, MountOptions, Read, Store, Transaction};
use lodestore_aio::Engine as IoEngine;
use tempfile::TempDir;

use crate::model::ErrKind;
use crate::subject::Subject;

/// A temporary directory beside the test binary: on the file system of the build, which is a real
/// one more often than the system's temporary directory.
pub fn temp_dir() -> TempDir {
    let binary = std::env::current_exe().expect("a test knows its binary");
    let beside = binary.parent().expect("a file has a directory");
    tempfile::Builder::new().prefix("lodestore-test-").tempdir_in(beside).expect("the build directory is writable")
}

/// Whether files beside the test binary can be opened with O_DIRECT.
fn has_direct_io() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let dir = temp_dir();
        let probe: PathBuf = dir.path().join("probe");
        let direct = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(probe)
            .is_ok();
        println!(
            "stores in {}: {}",
            dir.path().display(),
            if direct { "libaio, O_DIRECT" } else { "no O_DIRECT here, thread pool instead" }
        );
        direct
    })
}

fn io_engine() -> IoEngine {
    if has_direct_io() { IoEngine::Libaio } else { IoEngine::Threads(4) }
}

/// A process that is being started holds the locks of its parent's stores until it is another
/// program: nobody mounts meanwhile (readers), whoever starts one is the writer.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a process.
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

fn nobody_starts() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Mounts a store.
pub fn mount(dir: &Path) -> Result<Store, Error> {
    let _guard = nobody_starts();
    Store::mount(dir, &options())
}

/// How the tests mount.
pub fn options() -> MountOptions {
    let mut o = MountOptions { engine: io_engine(), ..MountOptions::default() };
    o.kv.direct_reads = has_direct_io();
    o.kv.direct_flush = has_direct_io();
    o.config.deferred_batch = 256 << 10;
    o
}

/// Makes a store with room for `size` bytes of data, and a log of `log` bytes.
pub fn mkfs(dir: &Path, size: u64, log: u64) {
    let o = MkfsOptions {
        size,
        log_size: Some(log),
        prewrite: Some(size / 4),
        engine: io_engine(),
        ..MkfsOptions::default()
    };
    let _guard = nobody_starts();
    Store::mkfs(dir, &o, &mut |_, _, _| ()).expect("a store can be made");
}

/// Checks an unmounted store deeply; what is wrong, in words.
pub fn fsck(dir: &Path) -> Vec<String> {
    let _guard = nobody_starts();
    match Store::fsck(dir, &options(), true, false) {
        Ok(report) => report.errors.iter().map(ToString::to_string).collect(),
        Err(e) => vec![e.to_string()],
    }
}

/// A store in a directory of its own.
pub struct RealStore {
    dir: TempDir,
    store: Option<Store>,
    commits: VecDeque<Commit>,
}

impl RealStore {
    /// Makes and mounts a store with room for `size` bytes, and a log of `log` bytes.
    pub fn fresh(size: u64, log: u64) -> Self {
        let dir = temp_dir();
        mkfs(dir.path(), size, log);
        let mut s = RealStore { dir, store: None, commits: VecDeque::new() };
        s.mount();
        s
    }

    fn mount(&mut self) {
        self.store = Some(mount(self.dir.path()).expect("the store mounts"));
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("mounted but for a moment")
    }

    fn umount(&mut self) {
        self.store.take().expect("mounted but for a moment").umount().expect("the store unmounts");
    }
}

impl Subject for RealStore {
    fn submit(&mut self, t: Transaction) {
        let commit = self.store().submit(t);
        self.commits.push_back(commit);
    }

    fn settle(&mut self) -> Vec<Result<(), ErrKind>> {
        let commits = std::mem::take(&mut self.commits);
        commits.into_iter().map(|c| c.wait().map(drop).map_err(|e| ErrKind::from(&e))).collect()
    }

    fn query(&mut self, read: Read) -> Result<Answer, ErrKind> {
        self.store().query(read).wait().map_err(|e| ErrKind::from(&e))
    }

    fn remount(&mut self) {
        self.umount();
        self.mount();
    }

    fn fsck(&mut self) -> Vec<String> {
        self.umount();
        let found = fsck(self.dir.path());
        self.mount();
        found
    }

    fn is_simulated(&self) -> bool {
        false
    }
}

impl Drop for RealStore {
    fn drop(&mut self) {
        // A failed case is a panic already; a clean one unmounts cleanly.
        if let Some(store) = self.store.take()
            && !std::thread::panicking()
        {
            store.umount().expect("the store unmounts");
        }
    }
}
