//! Making a log.

use lodestore_aio::{FileId, IoOp, Ring, run, zero};

use crate::error::WalError;
use crate::format::{CleanEnd, LogHeader, SEGMENTS_OFFSET, salt, shape_fault};
use crate::slots;

/// Length of a segment unless asked otherwise.
pub const SEGMENT_LEN_DEFAULT: u64 = 16 << 20;

/// The shape of a log that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGeometry {
    /// Bytes of a segment: a multiple of 4096 from [`SEGMENT_LEN_MIN`](crate::SEGMENT_LEN_MIN) to
    /// [`SEGMENT_LEN_MAX`](crate::SEGMENT_LEN_MAX). Bounds the size of a record.
    pub segment_len: u64,
}

impl Default for LogGeometry {
    fn default() -> Self {
        LogGeometry { segment_len: SEGMENT_LEN_DEFAULT }
    }
}

/// Makes an empty log of the store `uuid` in the first `file_len` bytes of `file`: writes zeros
/// everywhere (so that later writes change no file-system metadata), then the header, and syncs.
/// There are as many segments as fit; at least [`SEGMENTS_MIN`](crate::SEGMENTS_MIN) must.
///
/// `progress` is told the bytes written and the bytes to write. The ring must be idle. Returns the
/// bytes written in all.
pub fn format(
    ring: &mut dyn Ring,
    file: FileId,
    file_len: u64,
    geometry: LogGeometry,
    uuid: [u8; 16],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, WalError> {
    let segment_len = geometry.segment_len;
    let segments = file_len.saturating_sub(SEGMENTS_OFFSET).checked_div(segment_len).unwrap_or(0);
    if let Some(what) = shape_fault(segment_len, segments) {
        return Err(WalError::Geometry { what: format!("{what} in {file_len} bytes") });
    }
    let total = SEGMENTS_OFFSET + segments * segment_len;
    zero(ring, file, total, &mut |written| progress(written, total))?;
    run(ring, IoOp::Sync { files: file.mask() })?;
    let header = LogHeader {
        uuid,
        segment_len,
        segment_count: segments as u32,
        generation: 1,
        epoch: 1,
        start_lsn: 1,
        start_seq: 0,
        salt: salt(&uuid, 1),
        end: Some(CleanEnd { batches: 0, lsn: 0, seq: 0 }),
    };
    slots::write(ring, file, &header, 1)?;
    Ok(total + slots::HEADER_CHANGE_BYTES)
}
