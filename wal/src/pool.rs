//! Batch buffers that come back: a batch's memory is reused once the ring has let go of it, so that
//! steady logging allocates and faults in no pages.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use lodestore_aio::AlignedBuf;

/// Room of a new buffer.
const CAPACITY: usize = 64 << 10;
/// One buffer is open and one in flight; more are not kept.
const KEPT_MAX: usize = 2;
/// A buffer that held a longer batch is given back to the system.
const KEPT_LEN_MAX: usize = 1 << 20;

/// Buffers waiting for their next batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<AlignedBuf>>>);

impl Pool {
    /// An empty buffer.
    pub(crate) fn take(&self) -> AlignedBuf {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(
            || AlignedBuf::with_capacity(CAPACITY),
            |mut buf| {
                buf.resize(0);
                buf
            },
        )
    }

    /// The buffer's bytes, shared; the buffer returns here with the last of them.
    pub(crate) fn freeze(&self, buf: AlignedBuf) -> Bytes {
        Bytes::from_owner(Lent { buf: Some(buf), pool: self.clone() })
    }
}

struct Lent {
    buf: Option<AlignedBuf>,
    pool: Pool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or(&[])
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(buf) = self.buf.take() else { return };
        let mut kept = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX && buf.len() <= KEPT_LEN_MAX {
            kept.push(buf);
        }
    }
}
