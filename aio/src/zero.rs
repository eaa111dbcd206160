//! Writing zeros ahead of need, so that later writes change no file-system metadata.

use crate::buf::AlignedBuf;
use crate::seam::{BLOCK, FileId, Io, IoError, IoOp, Ring, Wait};

/// Bytes per write of zeros, and how many of them are in flight.
const ZEROS_LEN: u64 = 1 << 20;
const ZEROS_IN_FLIGHT: usize = 8;

/// Writes zeros to the first `len` bytes of `file`, a multiple of [`BLOCK`]; not synced. `progress`
/// is told the bytes written. The ring must be idle, and is idle again afterwards, also after a
/// failed write.
pub fn zero(ring: &mut dyn Ring, file: FileId, len: u64, progress: &mut dyn FnMut(u64)) -> Result<(), IoError> {
    debug_assert!(len.is_multiple_of(BLOCK as u64));
    let zeros = AlignedBuf::zeroed(ZEROS_LEN as usize).freeze();
    let depth = ring.capacity().min(ZEROS_IN_FLIGHT);
    let (mut pushed, mut written) = (0, 0);
    let mut done = Vec::new();
    let mut failed = None;
    progress(0);
    // After a failure nothing more is pushed, but what is in flight is waited for: the ring is left idle.
    while ring.in_flight() > 0 || (pushed < len && failed.is_none()) {
        while pushed < len && ring.in_flight() < depth && failed.is_none() {
            let n = ZEROS_LEN.min(len - pushed);
            let data = zeros.slice(..n as usize);
            let write = Io { token: n, op: IoOp::Write { file, offset: pushed, data, dsync: false } };
            if ring.push(write).is_err() {
                break;
            }
            pushed += n;
        }
        ring.submit()?;
        ring.reap(Wait::For(1), &mut done)?;
        for d in done.drain(..) {
            match d.result {
                Ok(()) => written += d.token,
                Err(e) => failed = Some(e),
            }
        }
        progress(written);
    }
    failed.map_or(Ok(()), Err)
}
