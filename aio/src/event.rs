//! The eventfd of a ring: signalled by completions and by whoever wants the ring's owner awake.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// A shared, non-blocking eventfd. The descriptor lives as long as any clone, so a thread that
/// wakes a ring never signals a stranger's descriptor after the ring is gone.
#[derive(Clone, Debug)]
pub struct EventFd(Arc<OwnedFd>);

impl EventFd {
    /// A new one, not signalled.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor made just now, which nobody else owns.
        Ok(EventFd(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes. The only failure, a full counter (EAGAIN), leaves it
        // readable, which is all that was wanted.
        unsafe { libc::write(self.raw(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable until the next signal; whether it had been signalled. To be called
    /// *before* looking at what the signals announce, else one may be lost.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes. EAGAIN means that it was not signalled.
        unsafe { libc::read(self.raw(), count.as_mut_ptr().cast(), count.len()) == 8 }
    }

    /// Waits until it is readable, or for `timeout` (`None`: for ever); whether it is. A signal
    /// handler ends the wait early.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut p = libc::pollfd { fd: self.raw(), events: libc::POLLIN, revents: 0 };
        let ms = timeout.map_or(-1, |t| i32::try_from(t.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut p, 1, ms) > 0 }
    }

    /// The descriptor, for an event loop.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.raw()
    }
}
