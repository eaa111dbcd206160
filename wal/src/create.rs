//! Making a log.

use lodestore_aio::{AlignedBuf, BLOCK, FileId, Io, IoOp, Ring, Wait, run};

use crate::error::WalError;
use crate::format::{CleanEnd, LogHeader, SEGMENTS_OFFSET, salt, shape_fault};
use crate::slots;

/// Length of a segment unless asked otherwise.
pub const SEGMENT_LEN_DEFAULT: u64 = 16 << 20;
/// Bytes per write of zeros, and how many of them are in flight.
const ZEROS_LEN: u64 = 1 << 20;
const ZEROS_IN_FLIGHT: usize = 8;

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
/// `progress` is told the bytes written and the bytes to write. The ring must be idle.
pub fn format(
    ring: &mut dyn Ring,
    file: FileId,
    file_len: u64,
    geometry: LogGeometry,
    uuid: [u8; 16],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), WalError> {
    let segment_len = geometry.segment_len;
    let segments = file_len.saturating_sub(SEGMENTS_OFFSET).checked_div(segment_len).unwrap_or(0);
    if let Some(what) = shape_fault(segment_len, segments) {
        return Err(WalError::Geometry { what: format!("{what} in {file_len} bytes") });
    }
    zero(ring, file, SEGMENTS_OFFSET + segments * segment_len, progress)?;
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
    Ok(())
}

fn zero(ring: &mut dyn Ring, file: FileId, total: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<(), WalError> {
    debug_assert!(total.is_multiple_of(BLOCK as u64));
    let zeros = AlignedBuf::zeroed(ZEROS_LEN as usize).freeze();
    let depth = ring.capacity().min(ZEROS_IN_FLIGHT);
    let (mut pushed, mut written) = (0, 0);
    let mut done = Vec::new();
    let mut failed = None;
    progress(0, total);
    // After a failure nothing more is pushed, but what is in flight is waited for: the ring is left idle.
    while ring.in_flight() > 0 || (pushed < total && failed.is_none()) {
        while pushed < total && ring.in_flight() < depth && failed.is_none() {
            let len = ZEROS_LEN.min(total - pushed);
            let data = zeros.slice(..len as usize);
            let write = Io { token: len, op: IoOp::Write { file, offset: pushed, data, dsync: false } };
            if ring.push(write).is_err() {
                break;
            }
            pushed += len;
        }
        ring.submit()?;
        ring.reap(Wait::For(1), &mut done)?;
        for d in done.drain(..) {
            match d.result {
                Ok(()) => written += d.token,
                Err(e) => failed = Some(e),
            }
        }
        progress(written, total);
    }
    failed.map_or(Ok(()), |e| Err(e.into()))
}
