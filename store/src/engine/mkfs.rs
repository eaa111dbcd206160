//! Making a store. The superblock is written last: until then there is no store.

use lodestore_aio::{AlignedBuf, Disk, FileId, IoError, IoOp, Ring, run, zero};
use lodestore_kv::{Cf, Kv, KvOp};
use lodestore_wal::LogGeometry;

use super::Engine;
use crate::config::Layout;
use crate::error::Error;
use crate::format::codec::VALUE_LEN_MAX;
use crate::format::label::{self, Label};
use crate::format::snapshot::Head;
use crate::format::superblock::{DATA_FILES_MAX, FILE, Superblock};
use crate::format::{BLOCK_LEN, key, small};
use crate::ledger::Ledger;
use crate::types::Lsn;

/// Name of the log's file.
pub const LOG_FILE: &str = "log";
const DEPTH: usize = 8;

/// Name of the n-th fragment file.
pub fn data_file(n: usize) -> String {
    format!("data.{n}")
}

/// Takes what is done, how much of it, and how much there is.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

impl Engine {
    /// Makes the files of a store on `disk` (those that are there already, such as links to block
    /// devices, are taken as they are if large enough), pre-writes log and data space, and writes
    /// the superblock. `kv` must be empty. Returns what it wrote.
    pub fn mkfs(
        disk: &mut dyn Disk,
        kv: &dyn Kv,
        layout: &Layout,
        uuid: [u8; 16],
        progress: Progress<'_>,
    ) -> Result<Ledger, Error> {
        check_layout(layout)?;
        let mut data = Vec::new();
        for (n, len) in layout.data.iter().enumerate() {
            data.push((file(disk, &data_file(n), *len + label::LEN)?, *len));
        }
        let log = file(disk, LOG_FILE, layout.log)?;
        let superblock = file(disk, FILE, BLOCK_LEN)?;
        let mut ids: Vec<FileId> = data.iter().map(|(f, _)| *f).chain([log, superblock]).collect();
        ids.sort();
        ids.dedup();
        if ids.len() != data.len() + 2 {
            return Err(Error::Invalid("the same file or device is given twice".into()));
        }
        let mut ring = disk.ring(DEPTH)?;
        let ring = &mut *ring;
        let geometry = LogGeometry { segment_len: layout.segment };
        let log_bytes =
            lodestore_wal::format(ring, log, layout.log, geometry, uuid, &mut |done, all| progress("log", done, all))?;
        let prewrite = layout.prewrite.min(layout.data.iter().sum());
        zero_data(ring, &data, prewrite, progress)?;
        write_labels(ring, data.iter().copied(), uuid, 0)?;
        let value = small::encode_u64(prewrite / BLOCK_LEN);
        let put = |key: &[u8], value| KvOp::Put { cf: Cf::Meta, key: key.to_vec(), value };
        // As after a clean unmount, so that the first mount need not look for free space.
        let head = Head { lsn: 0, parts: 0, objects: 0, stored: 0, used: 0 };
        let uuid_value = small::encode_bytes(&uuid);
        kv.write(&[put(key::PREWRITTEN, value), put(key::UUID, uuid_value), put(&key::snapshot(0), head.encode())], 0)?;
        kv.flush()?;
        let labels = data.len() as u64 * label::LEN;
        let bytes = Superblock::new(uuid, layout.clone()).encode();
        let data = AlignedBuf::copy_of(&bytes).freeze();
        run(ring, IoOp::Write { file: superblock, offset: 0, data, dsync: false })?;
        run(ring, IoOp::Sync { files: superblock.mask() })?;
        let mut ledger = Ledger::default();
        ledger.count(|l| {
            l.prewrite = prewrite;
            l.mkfs = log_bytes + labels + BLOCK_LEN + kv.stats().written_bytes();
        });
        Ok(ledger)
    }
}

/// Labels the fragment files, given in order with their bytes of data, and makes everything
/// written to them durable. The ring must be idle.
pub(super) fn write_labels(
    ring: &mut dyn Ring,
    files: impl Iterator<Item = (FileId, u64)>,
    uuid: [u8; 16],
    lsn: Lsn,
) -> Result<(), IoError> {
    let mut mask = 0;
    for (number, (file, data_len)) in files.enumerate() {
        let label = Label { uuid, number: number as u32, data_len, lsn };
        let data = AlignedBuf::copy_of(&label.encode()).freeze();
        run(ring, IoOp::Write { file, offset: data_len, data, dsync: false })?;
        mask |= file.mask();
    }
    run(ring, IoOp::Sync { files: mask }).map(drop)
}

/// Refuses sizes that make no store.
pub(crate) fn check_layout(layout: &Layout) -> Result<(), Error> {
    let invalid = |s: String| Err(Error::Invalid(s));
    if layout.data.is_empty() || layout.data.len() > DATA_FILES_MAX {
        return invalid(format!("{} fragment files: 1 to {DATA_FILES_MAX} are possible", layout.data.len()));
    }
    for len in layout.data.iter().chain([&layout.log, &layout.segment, &layout.prewrite]) {
        if len % BLOCK_LEN != 0 {
            return invalid(format!("{len} bytes is not a multiple of {BLOCK_LEN}"));
        }
    }
    if layout.data.contains(&0) {
        return invalid("a fragment file of no bytes".into());
    }
    if layout.segment < 4 * BLOCK_LEN || (layout.log.saturating_sub(2 * BLOCK_LEN)) / layout.segment < 4 {
        return invalid(format!(
            "a log of {} bytes is too small: it has no room for 4 segments of {}",
            layout.log, layout.segment
        ));
    }
    if layout.segment as usize > VALUE_LEN_MAX {
        return invalid(format!("segments of {} bytes: at most {VALUE_LEN_MAX} are possible", layout.segment));
    }
    Ok(())
}

fn file(disk: &mut dyn Disk, name: &str, len: u64) -> Result<FileId, Error> {
    match disk.create(name, len) {
        Err(e) if e.errno == libc::EEXIST => {
            let f = disk.open(name)?;
            match disk.len(f) {
                have if have < len => {
                    let name = disk.ring(1)?.file_name(f);
                    Err(Error::Mount(format!("{name} has {have} bytes, {len} are needed: it is too small")))
                }
                _ => Ok(f),
            }
        }
        other => Ok(other?),
    }
}

/// Writes zeros to the first `len` bytes of the data space.
fn zero_data(ring: &mut dyn Ring, files: &[(FileId, u64)], len: u64, progress: Progress<'_>) -> Result<(), IoError> {
    let mut before = 0;
    for (file, file_len) in files {
        let n = (len - before).min(*file_len);
        zero(ring, *file, n, &mut |written| progress("data", before + written, len))?;
        before += n;
    }
    Ok(())
}
