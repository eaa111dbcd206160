//! A store in a real directory: RocksDB, and libaio where the file system has O_DIRECT.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lodestore::{Answer, Commit, Error, MkfsOptions, MountGuard, MountOptions, Read, Store, Transaction};
use lodestore_aio::Engine as IoEngine;
use tempfile::TempDir;

use crate::drive::Drive;
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

/// libaio where the file system beside the test binary has O_DIRECT, else threads.
pub fn io_engine() -> IoEngine {
    if has_direct_io() { IoEngine::Libaio } else { IoEngine::Threads(4) }
}

/// Mounts a store.
pub fn mount(dir: &Path) -> Result<Store, Error> {
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
    Store::mkfs(dir, &Setup::usual(size, log).mkfs, &mut |_, _, _| ()).expect("a store can be made");
}

/// Checks an unmounted store deeply; what is wrong, in words.
pub fn fsck(dir: &Path) -> Vec<String> {
    check(dir, &options())
}

fn check(dir: &Path, how: &MountOptions) -> Vec<String> {
    match Store::fsck(dir, how, true, false) {
        Ok(report) => report.errors.iter().map(ToString::to_string).collect(),
        Err(e) => vec![e.to_string()],
    }
}

/// Who moves the engine on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Driver {
    /// The store's own loop thread.
    #[default]
    Thread,
    /// The calling thread, without any other.
    Embedded,
}

/// What a real store is made of, how its bytes are moved, and who drives it. Every suite that runs
/// on real stores takes one, so that a new choice is one more setup and not one more suite.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The directory in which the store's own directory is made; none for beside the test binary.
    pub place: Option<PathBuf>,
    /// How it is made.
    pub mkfs: MkfsOptions,
    /// How it is mounted.
    pub mount: MountOptions,
    /// Who drives it.
    pub driver: Driver,
    /// Whether the largest cases are scaled down.
    pub scaled: bool,
}

impl Setup {
    /// A store with room for `size` bytes and a log of `log` bytes, moved by `engine`.
    pub fn new(size: u64, log: u64, engine: IoEngine) -> Self {
        let mkfs =
            MkfsOptions { size, log_size: Some(log), prewrite: Some(size / 4), engine, ..MkfsOptions::default() };
        let mount = MountOptions { engine, ..options() };
        Setup { place: None, mkfs, mount, driver: Driver::Thread, scaled: true }
    }

    /// The one that most tests use: libaio where the file system has O_DIRECT, cases in full.
    pub fn usual(size: u64, log: u64) -> Self {
        Setup { scaled: false, ..Setup::new(size, log, io_engine()) }
    }

    fn dir(&self) -> TempDir {
        match &self.place {
            None => temp_dir(),
            Some(place) => tempfile::tempdir_in(place).expect("the place for stores is writable"),
        }
    }
}

/// A store in a directory of its own.
pub struct RealStore {
    setup: Setup,
    mounted: Option<Mounted>,
    dir: TempDir,
}

enum Mounted {
    Thread(Store, VecDeque<Commit>),
    /// The engine, transactions not waited for, and what frees the directory, last.
    Embedded(Box<Drive>, VecDeque<u64>, MountGuard),
}

impl RealStore {
    /// Makes and mounts a store.
    pub fn new(setup: Setup) -> Self {
        let dir = setup.dir();
        {
            Store::mkfs(dir.path(), &setup.mkfs, &mut |_, _, _| ()).expect("a store can be made");
        }
        let mut s = RealStore { setup, mounted: None, dir };
        s.mount();
        s
    }

    /// The usual store with room for `size` bytes, and a log of `log` bytes.
    pub fn fresh(size: u64, log: u64) -> Self {
        RealStore::new(Setup::usual(size, log))
    }

    fn mount(&mut self) {
        let (dir, how) = (self.dir.path(), &self.setup.mount);
        self.mounted = Some(match self.setup.driver {
            Driver::Thread => Mounted::Thread(Store::mount(dir, how).expect("the store mounts"), VecDeque::new()),
            Driver::Embedded => {
                let (engine, guard) = lodestore::mount_engine(dir, how).expect("the store mounts");
                Mounted::Embedded(Box::new(Drive::new(engine, 1)), VecDeque::new(), guard)
            }
        });
    }

    fn mounted(&mut self) -> &mut Mounted {
        self.mounted.as_mut().expect("mounted but for a moment")
    }

    fn umount(&mut self) {
        match self.mounted.take().expect("mounted but for a moment") {
            Mounted::Thread(store, _) => store.umount(),
            Mounted::Embedded(drive, _, _guard) => drive.umount(),
        }
        .expect("the store unmounts");
    }
}

impl Subject for RealStore {
    fn submit(&mut self, t: Transaction) {
        match self.mounted() {
            Mounted::Thread(store, commits) => commits.push_back(store.submit(t)),
            Mounted::Embedded(drive, waiting, _) => {
                waiting.push_back(drive.submit(t));
                drive.step(false);
            }
        }
    }

    fn settle(&mut self) -> Vec<Result<(), ErrKind>> {
        match self.mounted() {
            Mounted::Thread(_, commits) => {
                std::mem::take(commits).into_iter().map(|c| c.wait().map(drop).map_err(|e| ErrKind::from(&e))).collect()
            }
            Mounted::Embedded(drive, waiting, _) => {
                drive.settle();
                let result = |n| drive.result(n).expect("settled").as_ref().map(|_| ()).map_err(ErrKind::from);
                std::mem::take(waiting).into_iter().map(result).collect()
            }
        }
    }

    fn query(&mut self, read: Read) -> Result<Answer, ErrKind> {
        match self.mounted() {
            Mounted::Thread(store, _) => store.query(read).wait(),
            Mounted::Embedded(drive, ..) => drive.query(read),
        }
        .map_err(|e| ErrKind::from(&e))
    }

    fn remount(&mut self) {
        self.umount();
        self.mount();
    }

    fn fsck(&mut self) -> Vec<String> {
        self.umount();
        let found = { check(self.dir.path(), &self.setup.mount) };
        self.mount();
        found
    }

    fn is_scaled_down(&self) -> bool {
        self.setup.scaled
    }
}

impl Drop for RealStore {
    fn drop(&mut self) {
        // A failed case is a panic already; a clean one unmounts cleanly.
        if self.mounted.is_some() && !std::thread::panicking() {
            self.umount();
        }
    }
}
