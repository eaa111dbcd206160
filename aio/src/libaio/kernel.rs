//! The system calls of the libaio ring behind a trait, so that tests can play the kernel.

use std::sync::atomic::{AtomicU32, Ordering};

use libaio_sys::{Context, RING_MAGIC, RingHeader, io_event, iocb};

/// What a kernel does for the ring. Errors are errno numbers.
pub(crate) trait Kernel: Send {
    /// Submits the `iocbs` numbered in `order`; how many were taken, from the front. An error
    /// concerns the first.
    ///
    /// # Safety
    /// The buffer of each request must stay valid, and be touched by nobody else in a way that
    /// conflicts with the request, until its event has been taken.
    unsafe fn submit(&mut self, iocbs: &mut [iocb], order: &[u32]) -> Result<usize, i32>;

    /// Takes events, waiting for at least `min` of them.
    fn events(&mut self, min: usize, events: &mut [io_event]) -> Result<usize, i32>;

    /// Whether there may be events to take. `false` must be certain.
    fn may_have_events(&self) -> bool;

    /// Ends the context, once nothing of it is in flight.
    fn destroy(&mut self) -> Result<(), i32>;
}

/// The real kernel.
pub(crate) struct LinuxKernel {
    context: Context,
    /// Scratch of `submit`; empty between calls.
    pointers: Vec<*mut iocb>,
}

// SAFETY: the context is a process-wide number, and no pointer outlives the call that stored it.
unsafe impl Send for LinuxKernel {}

impl LinuxKernel {
    /// A context for `depth` requests at a time.
    pub(crate) fn new(depth: usize) -> Result<Self, i32> {
        let nr = u32::try_from(depth).map_err(|_| libc::EINVAL)?;
        Ok(LinuxKernel { context: libaio_sys::io_setup(nr)?, pointers: Vec::with_capacity(depth) })
    }
}

impl Kernel for LinuxKernel {
    unsafe fn submit(&mut self, iocbs: &mut [iocb], order: &[u32]) -> Result<usize, i32> {
        self.pointers.clear();
        let base = iocbs.as_mut_ptr();
        for &i in order {
            assert!((i as usize) < iocbs.len(), "iocb {i} of {}", iocbs.len());
            // SAFETY: within the slice, as asserted.
            self.pointers.push(unsafe { base.add(i as usize) });
        }
        // SAFETY: the pointers point into `iocbs`, which is borrowed for the whole call, after
        // which the kernel does not look at them again; the buffers are the caller's promise.
        let taken = unsafe { libaio_sys::io_submit(self.context, &mut self.pointers) };
        self.pointers.clear();
        taken
    }

    fn events(&mut self, min: usize, events: &mut [io_event]) -> Result<usize, i32> {
        libaio_sys::io_getevents(self.context, min, events, None)
    }

    fn may_have_events(&self) -> bool {
        let header = std::ptr::with_exposed_provenance::<RingHeader>(self.context as usize);
        // SAFETY: the kernel maps the header at the context's address from io_setup to io_destroy,
        // which takes `&mut self`. It writes head and tail concurrently, hence the atomic loads;
        // magic never changes.
        let (magic, head, tail) = unsafe {
            let head = &*(&raw const (*header).head).cast::<AtomicU32>();
            let tail = &*(&raw const (*header).tail).cast::<AtomicU32>();
            ((*header).magic, head.load(Ordering::Relaxed), tail.load(Ordering::Acquire))
        };
        magic != RING_MAGIC || head != tail
    }

    fn destroy(&mut self) -> Result<(), i32> {
        // SAFETY: no reference into the mapped ring outlives `may_have_events`.
        unsafe { libaio_sys::io_destroy(self.context) }
    }
}
