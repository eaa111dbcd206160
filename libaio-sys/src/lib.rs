//! The kernel's AIO interface (`linux/aio_abi.h`, `io_setup(2)` and its relatives), nothing else.
//!
//! The calls go to the kernel directly; the C library `libaio` is not needed. Errors are errno
//! numbers. Structures have the kernel's layout, which is checked when this crate is compiled.

#![cfg(target_os = "linux")]

use std::mem::{offset_of, size_of};

/// A completion context, `aio_context_t`. The address at which the kernel maps its [`RingHeader`].
pub type Context = libc::c_ulong;

/// Opcode: read `aio_nbytes` at `aio_offset` into `aio_buf`.
pub const IOCB_CMD_PREAD: u16 = 0;
/// Opcode: write `aio_nbytes` from `aio_buf` at `aio_offset`.
pub const IOCB_CMD_PWRITE: u16 = 1;
/// Opcode: fsync.
pub const IOCB_CMD_FSYNC: u16 = 2;
/// Opcode: fdatasync.
pub const IOCB_CMD_FDSYNC: u16 = 3;
/// Opcode: read into the `aio_nbytes` iovecs at `aio_buf`.
pub const IOCB_CMD_PREADV: u16 = 7;
/// Opcode: write from the `aio_nbytes` iovecs at `aio_buf`.
pub const IOCB_CMD_PWRITEV: u16 = 8;

/// Flag in `aio_flags`: signal the eventfd `aio_resfd` at completion.
pub const IOCB_FLAG_RESFD: u32 = 1;
/// Flag in `aio_rw_flags`: this write is as if the file were opened with O_DSYNC.
pub const RWF_DSYNC: u32 = 2;

/// Value of [`RingHeader::magic`] where the ring can be looked at from user space.
pub const RING_MAGIC: u32 = 0xa10a_10a1;

/// One request, `struct iocb`. The kernel reads it during `io_submit` only.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct iocb {
    /// Returned in [`io_event::data`].
    pub aio_data: u64,
    /// Written by the kernel at submission.
    #[cfg(target_endian = "little")]
    pub aio_key: u32,
    /// `RWF_*` flags.
    pub aio_rw_flags: u32,
    /// Written by the kernel at submission.
    #[cfg(target_endian = "big")]
    pub aio_key: u32,
    /// `IOCB_CMD_*`.
    pub aio_lio_opcode: u16,
    /// I/O priority, with `IOCB_FLAG_IOPRIO` only.
    pub aio_reqprio: i16,
    /// The file descriptor.
    pub aio_fildes: u32,
    /// Address of the buffer.
    pub aio_buf: u64,
    /// Length of the buffer in bytes.
    pub aio_nbytes: u64,
    /// Offset in the file in bytes.
    pub aio_offset: i64,
    /// Must be zero.
    pub aio_reserved2: u64,
    /// `IOCB_FLAG_*`.
    pub aio_flags: u32,
    /// An eventfd, with [`IOCB_FLAG_RESFD`].
    pub aio_resfd: u32,
}

/// One completion, `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub struct io_event {
    /// The request's [`iocb::aio_data`].
    pub data: u64,
    /// Address of the request's iocb.
    pub obj: u64,
    /// Bytes moved, or a negated errno.
    pub res: i64,
    /// A second result; zero for files.
    pub res2: i64,
}

/// Start of the completion ring that the kernel maps at the address [`Context`].
///
/// Only `head` and `tail` change. Completions are waiting exactly if they differ.
#[repr(C)]
#[derive(Debug)]
pub struct RingHeader {
    /// The kernel's number for this context.
    pub id: u32,
    /// Events the ring has room for.
    pub nr: u32,
    /// Next event to be taken.
    pub head: u32,
    /// Next event to be put.
    pub tail: u32,
    /// [`RING_MAGIC`].
    pub magic: u32,
    /// Feature bits.
    pub compat_features: u32,
    /// Feature bits a reader must know; zero today.
    pub incompat_features: u32,
    /// Bytes of this header.
    pub header_length: u32,
}

const _: () = {
    assert!(size_of::<iocb>() == 64);
    assert!(offset_of!(iocb, aio_lio_opcode) == 16);
    assert!(offset_of!(iocb, aio_fildes) == 20);
    assert!(offset_of!(iocb, aio_buf) == 24);
    assert!(offset_of!(iocb, aio_nbytes) == 32);
    assert!(offset_of!(iocb, aio_offset) == 40);
    assert!(offset_of!(iocb, aio_flags) == 56);
    assert!(offset_of!(iocb, aio_resfd) == 60);
    assert!(size_of::<io_event>() == 32);
    assert!(offset_of!(io_event, res) == 16);
    assert!(size_of::<RingHeader>() == 32);
    assert!(offset_of!(RingHeader, magic) == 16);
};

fn check(returned: libc::c_long) -> Result<usize, i32> {
    // A failed system call leaves its reason in errno, which last_os_error reads.
    usize::try_from(returned).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Makes a context for at least `nr_events` requests at a time.
///
/// Errors: EAGAIN above `/proc/sys/fs/aio-max-nr`, EINVAL, ENOMEM, ENOSYS.
pub fn io_setup(nr_events: u32) -> Result<Context, i32> {
    let mut context: Context = 0;
    // SAFETY: the kernel writes one `Context` to the address, which is valid during the call.
    check(unsafe { libc::syscall(libc::SYS_io_setup, nr_events, &raw mut context) })?;
    Ok(context)
}

/// Destroys a context; returns when no request of it is in flight any more.
///
/// # Safety
/// The context's [`RingHeader`] is unmapped: nobody may hold a reference to it.
pub unsafe fn io_destroy(context: Context) -> Result<(), i32> {
    // SAFETY: takes no pointer that the kernel would follow on our behalf.
    check(unsafe { libc::syscall(libc::SYS_io_destroy, context) }).map(drop)
}

/// Submits requests; returns how many of them were taken, from the front.
///
/// Errors concern the first request only: EAGAIN, EBADF, EFAULT, EINVAL, ...
///
/// # Safety
/// Each pointer must be valid for reads and writes during the call; each buffer, and whatever the
/// request's opcode says about it, until the request's completion has been taken.
pub unsafe fn io_submit(context: Context, iocbs: &mut [*mut iocb]) -> Result<usize, i32> {
    // SAFETY: pointer and length describe one slice; the rest is the caller's promise.
    check(unsafe { libc::syscall(libc::SYS_io_submit, context, iocbs.len() as libc::c_long, iocbs.as_mut_ptr()) })
}

/// Takes completions: waits for `min_nr` of them, or for `timeout` (`None`: for ever); returns how
/// many were written to `events`, from its front.
///
/// Errors: EINTR, EINVAL.
pub fn io_getevents(
    context: Context,
    min_nr: usize,
    events: &mut [io_event],
    timeout: Option<libc::timespec>,
) -> Result<usize, i32> {
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (min_nr, nr) = (min_nr as libc::c_long, events.len() as libc::c_long);
    // SAFETY: the kernel writes at most `nr` events to the slice and reads one timespec or none; a
    // stale context is an error (EINVAL) and nothing is written.
    check(unsafe { libc::syscall(libc::SYS_io_getevents, context, min_nr, nr, events.as_mut_ptr(), timeout) })
}

/// Asks for a request to be cancelled. Ordinary files and block devices do not support it.
///
/// # Safety
/// `iocb` must be valid for reads during the call.
pub unsafe fn io_cancel(context: Context, iocb: *mut iocb, event: &mut io_event) -> Result<(), i32> {
    // SAFETY: `event` is valid for the kernel's write; `iocb` is the caller's promise.
    check(unsafe { libc::syscall(libc::SYS_io_cancel, context, iocb, std::ptr::from_mut(event)) }).map(drop)
}
