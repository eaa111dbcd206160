//! The rings under test.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use lodestore_aio::{
    AlignedBuf, BLOCK, Disk, Done, Engine, FileDisk, FileDiskOptions, FileId, Io, IoOp, Ring, SimDisk, SyncMode,
    TraceDisk, Wait, WriteSink, Written,
};

/// Bytes of a block as a file offset.
pub const B: u64 = BLOCK as u64;

/// One kind of ring over a fresh, empty disk.
pub struct Subject {
    pub name: String,
    pub disk: Box<dyn Disk>,
    medium: Medium,
}

enum Medium {
    Directory { dir: tempfile::TempDir, options: FileDiskOptions },
    Simulated(SimDisk),
}

/// The seed of random tests: printed, and taken from `LODESTORE_SEED` if that is set.
pub fn seed() -> u64 {
    let seed = std::env::var("LODESTORE_SEED")
        .ok()
        .map_or_else(rand::random, |s| s.parse().expect("LODESTORE_SEED is a number"));
    println!("LODESTORE_SEED={seed}");
    seed
}

/// A directory beside the test binary: on a real file system more often than the system's
/// temporary one.
fn temp_dir() -> tempfile::TempDir {
    let binary = std::env::current_exe().unwrap();
    tempfile::tempdir_in(binary.parent().unwrap()).unwrap()
}

fn has_direct() -> bool {
    let dir = temp_dir();
    match FileDisk::new(dir.path(), FileDiskOptions::default()).create("probe", B) {
        Ok(_) => true,
        Err(e) if e.is_direct_refused() => {
            println!("no O_DIRECT beside the test binary: the same rings, buffered");
            false
        }
        Err(e) => panic!("{e}"),
    }
}

/// Runs a case on every kind of ring.
pub fn on_every_ring(case: impl Fn(&mut Subject)) {
    let direct = has_direct();
    let real = |engine, sync_mode| FileDiskOptions { engine, sync_mode, direct, flush_each: false };
    let mut all = vec![
        real(Engine::Libaio, SyncMode::Blocking),
        real(Engine::Libaio, SyncMode::Aio),
        real(Engine::Libaio, SyncMode::Thread),
        real(Engine::Threads(4), SyncMode::Blocking),
        real(Engine::Sync, SyncMode::Blocking),
    ];
    all.push(FileDiskOptions { direct: false, ..all[3] });
    all.push(FileDiskOptions { flush_each: true, ..all[0] });
    for options in all {
        let dir = temp_dir();
        let disk = Box::new(FileDisk::new(dir.path(), options));
        let name = format!("{} {}{}", options.engine, options.sync_mode, if options.direct { " direct" } else { "" });
        println!("on {name}");
        case(&mut Subject { name, disk, medium: Medium::Directory { dir, options } });
    }
    let (dir, options) = (temp_dir(), real(Engine::Sync, SyncMode::Blocking));
    let disk = Box::new(TraceDisk::new(FileDisk::new(dir.path(), options), Arc::new(Deaf)));
    println!("on a traced disk");
    case(&mut Subject { name: "traced".into(), disk, medium: Medium::Directory { dir, options } });
    println!("on the simulated disk");
    for _ in 0..4 {
        let disk = SimDisk::new(seed());
        case(&mut Subject { name: "simulated".into(), disk: Box::new(disk.clone()), medium: Medium::Simulated(disk) });
    }
}

/// The rings are under test, not what they tell.
struct Deaf;

impl WriteSink for Deaf {
    fn opened(&self, _name: &str, _len: u64) -> u16 {
        0
    }

    fn written(&self, _writes: &[Written]) {}
}

impl Subject {
    /// Makes a file of so many blocks and writes zeros to them.
    pub fn file(&mut self, name: &str, blocks: usize) -> FileId {
        let file = self.disk.create(name, blocks as u64 * B).unwrap();
        let mut ring = self.disk.ring(1).unwrap();
        lodestore_aio::run(&mut *ring, write_op(file, 0, vec![0; blocks * BLOCK])).unwrap();
        file
    }

    /// Cuts a file behind the ring's back.
    pub fn shorten(&mut self, name: &str, len: u64) {
        match &self.medium {
            Medium::Directory { dir, .. } => {
                std::fs::OpenOptions::new().write(true).open(dir.path().join(name)).unwrap().set_len(len).unwrap();
            }
            Medium::Simulated(disk) => disk.truncate(name, len),
        }
    }

    /// The same place with no file open.
    pub fn reopened(&self) -> Box<dyn Disk> {
        match &self.medium {
            Medium::Directory { dir, options } => Box::new(FileDisk::new(dir.path(), *options)),
            Medium::Simulated(disk) => Box::new(disk.reopened()),
        }
    }

    /// The directory, where there is one.
    pub fn dir(&self) -> Option<PathBuf> {
        match &self.medium {
            Medium::Directory { dir, .. } => Some(dir.path().to_owned()),
            Medium::Simulated(_) => None,
        }
    }

    /// What messages call a file: real ones by their path.
    pub fn shown(&self, name: &str) -> String {
        match &self.medium {
            Medium::Directory { dir, .. } => dir.path().join(name).display().to_string(),
            Medium::Simulated(_) => name.to_owned(),
        }
    }

    /// A ring over the files open now.
    pub fn ring(&self, depth: usize) -> Box<dyn Ring> {
        self.disk.ring(depth).unwrap()
    }
}

pub fn write_op(file: FileId, block: u64, data: impl AsRef<[u8]>) -> IoOp {
    IoOp::Write { file, offset: block * B, data: frozen(data), dsync: false }
}

pub fn frozen(data: impl AsRef<[u8]>) -> Bytes {
    AlignedBuf::copy_of(data.as_ref()).freeze()
}

pub fn read_op(file: FileId, block: u64, blocks: usize) -> IoOp {
    IoOp::Read { file, offset: block * B, buf: AlignedBuf::zeroed(blocks * BLOCK) }
}

/// A block-sized pattern that differs for each `n`.
pub fn pattern(n: u64, blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK).map(|i| (n.wrapping_mul(31) as usize + i / 61 + i) as u8).collect()
}

pub fn push(ring: &mut dyn Ring, token: u64, op: IoOp) {
    assert!(ring.push(Io { token, op }).is_ok(), "there is room");
}

/// Submits and waits for everything; sorted by token.
pub fn finish(ring: &mut dyn Ring) -> Vec<Done> {
    ring.submit().unwrap();
    let mut done = Vec::new();
    while ring.in_flight() > 0 {
        ring.reap(Wait::For(1), &mut done).unwrap();
    }
    done.sort_by_key(|d| d.token);
    done
}

/// Reads blocks of a file that must be there.
pub fn read(ring: &mut dyn Ring, file: FileId, block: u64, blocks: usize) -> Vec<u8> {
    lodestore_aio::run(ring, read_op(file, block, blocks)).unwrap().unwrap().to_vec()
}
