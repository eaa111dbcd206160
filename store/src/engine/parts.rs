//! The parts of a store as they are found: whether each is there, long enough, and this store's.
//! Everything here only reads.

use lodestore_aio::{AlignedBuf, Disk, FileId, IoOp, Ring, run};
use lodestore_kv::{Cf, Kv};

use super::DataFile;
use super::mkfs::{LOG_FILE, data_file};
use crate::error::Error;
use crate::format::label::{self, Label};
use crate::format::snapshot::Head;
use crate::format::superblock::{FILE, Superblock, uuid_text};
use crate::format::{BLOCK_LEN, key, small};
use crate::types::Lsn;

/// The files of a store, open.
pub(super) struct Parts {
    pub superblock: Superblock,
    pub data: Vec<DataFile>,
    pub log: FileId,
}

impl Parts {
    /// Opens what the superblock names.
    pub fn open(disk: &mut dyn Disk) -> Result<Self, Error> {
        let superblock = read_superblock(disk)?;
        let behind = if superblock.has_labels() { label::LEN } else { 0 };
        let mut data = Vec::new();
        let mut first = 0;
        for (n, len) in superblock.layout.data.iter().enumerate() {
            let name = data_file(n);
            let file = open(disk, &name)?;
            if disk.len(file) < len + behind {
                return Err(too_short(disk, file, len + behind, &superblock, n)?);
            }
            data.push(DataFile { file, name, first, blocks: len / BLOCK_LEN });
            first += len / BLOCK_LEN;
        }
        let log = open(disk, LOG_FILE)?;
        if disk.len(log) < superblock.layout.log {
            return Err(shortened(&disk.ring(1)?.file_name(log), disk.len(log), superblock.layout.log));
        }
        let mut files: Vec<FileId> = data.iter().map(|d| d.file).chain([log]).collect();
        files.sort();
        files.dedup();
        if files.len() != data.len() + 1 {
            return Err(Error::Mount(
                "two of the store's files are one and the same; nothing was changed, check where the links lead".into(),
            ));
        }
        Ok(Parts { superblock, data, log })
    }

    /// The label of each fragment file; refuses one that is not the one it should be. None where
    /// the format has no labels.
    pub fn labels(&self, ring: &mut dyn Ring) -> Result<Vec<(String, Label)>, Error> {
        let mut labels = Vec::new();
        for (n, d) in self.data.iter().enumerate().filter(|_| self.superblock.has_labels()) {
            let (name, found) = (ring.file_name(d.file), label_at(ring, d.file, d.blocks * BLOCK_LEN)?);
            labels.push((name.clone(), check_label(&name, found, &self.superblock, n)?));
        }
        Ok(labels)
    }

    /// Refuses the key-value store of another store, which a link may lead to, and parts that are
    /// of different moments: a clean unmount puts the same LSN first into the labels, then into the
    /// snapshot in the key-value store, then into the log.
    pub fn check_kv(&self, kv: &dyn Kv, closed_at: Option<Lsn>, labels: &[(String, Label)]) -> Result<(), Error> {
        const CHECK: &str = "nothing was changed, check where 'kv' leads";
        match kv.get(Cf::Meta, key::UUID)? {
            Some(v) if small::decode_bytes(v.clone())? == self.superblock.uuid => {}
            Some(_) => return Err(Error::Mount(format!("the key-value store belongs to another store; {CHECK}"))),
            None => return Err(Error::Mount(format!("the key-value store is that of no store; {CHECK}"))),
        }
        let head = kv.get(Cf::Meta, &key::snapshot(0))?.map(|v| Head::decode(&v)).transpose()?;
        let kv_lsn = head.map_or(0, |h| h.lsn);
        const RESTORE: &str = "they are of different moments; nothing was changed, restore all parts from the same one";
        if let Some(end) = closed_at
            && end != kv_lsn
        {
            return Err(Error::MountDamaged(format!(
                "the log was closed at LSN {end}, the key-value store at {kv_lsn}: {RESTORE}"
            )));
        }
        match labels.iter().find(|(_, l)| l.lsn < kv_lsn) {
            Some((name, l)) => Err(Error::MountDamaged(format!(
                "{name} was closed at LSN {}, the key-value store at {kv_lsn}: {RESTORE}",
                l.lsn
            ))),
            None => Ok(()),
        }
    }
}

fn label_at(ring: &mut dyn Ring, file: FileId, offset: u64) -> Result<Option<Label>, Error> {
    let buf = AlignedBuf::zeroed(BLOCK_LEN as usize);
    let buf = run(ring, IoOp::Read { file, offset, buf })?.expect("a read returns its buffer");
    Ok(Label::decode(&buf))
}

/// What is wrong with a fragment file that is too short: another store's says so at its own end.
fn too_short(disk: &dyn Disk, file: FileId, needed: u64, s: &Superblock, n: usize) -> Result<Error, Error> {
    let mut ring = disk.ring(1)?;
    let (name, len) = (ring.file_name(file), disk.len(file));
    if let Some(at) = (len / BLOCK_LEN).checked_sub(1)
        && let Some(l) = label_at(&mut *ring, file, at * BLOCK_LEN)?
        && let Err(e) = check_label(&name, Some(l), s, n)
    {
        return Ok(e);
    }
    Ok(shortened(&name, len, needed))
}

fn shortened(name: &str, len: u64, needed: u64) -> Error {
    Error::MountDamaged(format!(
        "{name} has {len} bytes, {needed} are expected: it was shortened, or is another file; nothing was changed"
    ))
}

fn check_label(name: &str, found: Option<Label>, s: &Superblock, n: usize) -> Result<Label, Error> {
    const CHECK: &str = "nothing was changed, check where it leads";
    let why = match found {
        None => {
            return Err(Error::MountDamaged(format!(
                "{name} has no label behind its data: it is no fragment file of a store, or was overwritten; {CHECK}"
            )));
        }
        Some(l) if l.uuid != s.uuid => {
            let (its, this) = (uuid_text(&l.uuid), uuid_text(&s.uuid));
            format!("{name} is '{}' of store {its}, not of {this}; {CHECK}", data_file(l.number as usize))
        }
        Some(l) if l.number as usize != n => {
            format!("{name} is '{}' of this store, not '{}'; {CHECK}", data_file(l.number as usize), data_file(n))
        }
        Some(l) if l.data_len != s.layout.data[n] => {
            format!("{name} was made for {} bytes, the superblock says {}; {CHECK}", l.data_len, s.layout.data[n])
        }
        Some(l) => return Ok(l),
    };
    Err(Error::Mount(why))
}

fn read_superblock(disk: &mut dyn Disk) -> Result<Superblock, Error> {
    let file = disk.open(FILE).map_err(|e| match e.errno {
        libc::ENOENT => Error::Mount(format!(
            "{} is missing: this is not a lodestore store; make one with mkfs, or check the path",
            e.file
        )),
        _ => e.into(),
    })?;
    let mut ring = disk.ring(1)?;
    let name = ring.file_name(file);
    if disk.len(file) < BLOCK_LEN {
        return Err(Error::Mount(format!(
            "{name} has {} bytes, {BLOCK_LEN} are needed: mkfs did not finish, or it was cut",
            disk.len(file)
        )));
    }
    let buf = AlignedBuf::zeroed(BLOCK_LEN as usize);
    let buf = run(&mut *ring, IoOp::Read { file, offset: 0, buf })?.expect("a read returns its buffer");
    if buf.iter().all(|b| *b == 0) {
        // It is written last.
        return Err(Error::Mount(format!(
            "{name} is empty: mkfs did not finish; remove the directory and make it anew"
        )));
    }
    Superblock::decode(&buf, &name)
}

fn open(disk: &mut dyn Disk, name: &str) -> Result<FileId, Error> {
    disk.open(name).map_err(|e| match e.errno {
        libc::ENOENT => Error::Mount(format!(
            "{} is missing, a part of the store; nothing was changed, put it back or attach its device",
            e.file
        )),
        _ => e.into(),
    })
}
