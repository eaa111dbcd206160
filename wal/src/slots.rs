//! The two header slots: one change of the log's header, whole or not at all.
//!
//! A change goes to the slot that does not hold the present header, is synced, and then goes to the
//! other slot as well, and nothing is appended before both are written. So a torn write leaves the
//! header before it; a slot that rots later has its double; and the slots differ only after a crash
//! between the two writes, when falling back to the older one repeats a recovery and loses nothing.

use lodestore_aio::{AlignedBuf, BLOCK, FileId, IoOp, Ring, run};

use crate::error::WalError;
use crate::format::{HeaderFault, LogHeader, VERSION};

/// Bytes that one change of the log's header writes.
pub const HEADER_CHANGE_BYTES: u64 = 2 * BLOCK as u64;

/// The header in force.
pub(crate) struct Slots {
    /// The newest valid header.
    pub(crate) header: LogHeader,
    /// The slot it was read from (or was last written to).
    pub(crate) slot: usize,
    /// Slots that could not be read or believed.
    pub(crate) bad: u32,
}

/// Reads both slots and chooses.
pub(crate) fn read(ring: &mut dyn Ring, file: FileId) -> Result<Slots, WalError> {
    let name = ring.file_name(file);
    let mut best: Option<(LogHeader, usize)> = None;
    let mut faults = Vec::new();
    let mut io = None;
    for slot in 0..2 {
        let read = IoOp::Read { file, offset: (slot * BLOCK) as u64, buf: AlignedBuf::zeroed(BLOCK) };
        let fault = match run(ring, read) {
            // An unreadable sector in one slot is what the other one is for.
            Err(e) => {
                io = Some(e);
                continue;
            }
            Ok(buf) => match LogHeader::decode(&buf.unwrap_or_else(|| AlignedBuf::zeroed(BLOCK))) {
                Ok(h) => {
                    if best.as_ref().is_none_or(|(b, _)| h.generation > b.generation) {
                        best = Some((h, slot));
                    }
                    continue;
                }
                Err(fault) => fault,
            },
        };
        if let HeaderFault::Newer(found) = fault {
            return Err(WalError::NewerFormat { file: name, found, supported: VERSION });
        }
        faults.push((slot, fault));
    }
    let bad = faults.len() as u32 + u32::from(io.is_some());
    if let Some((header, slot)) = best {
        return Ok(Slots { header, slot, bad });
    }
    if let Some(e) = io {
        return Err(e.into());
    }
    if faults.iter().all(|(_, f)| *f == HeaderFault::NoMagic) {
        return Err(WalError::NotALog { file: name });
    }
    // Name the slot that still looks like a header.
    let (slot, fault) =
        faults.into_iter().find(|(_, f)| *f != HeaderFault::NoMagic).unwrap_or((0, HeaderFault::NoMagic));
    let what = match fault {
        HeaderFault::Checksum { got, expected } => {
            format!("checksum {got:#010x}, expected {expected:#010x}")
        }
        _ => "impossible values".to_string(),
    };
    Err(WalError::Damaged {
        file: name,
        offset: (slot * BLOCK) as u64,
        what: format!("neither of the two header slots at offsets 0 and {BLOCK} is valid ({what})"),
    })
}

/// Writes `header` durably to both slots, first to the one that is not `present`. Returns the slot
/// written last. The ring must be idle.
pub(crate) fn write(ring: &mut dyn Ring, file: FileId, header: &LogHeader, present: usize) -> Result<usize, WalError> {
    let mut block = AlignedBuf::copy_of(&header.encode());
    block.resize(BLOCK);
    let data = block.freeze();
    for slot in [1 - present, present] {
        run(ring, IoOp::Write { file, offset: (slot * BLOCK) as u64, data: data.clone(), dsync: false })?;
        run(ring, IoOp::Sync { files: file.mask() })?;
    }
    Ok(present)
}
