//! Reads and writes by blocking system calls.

use std::io;
use std::os::unix::fs::FileExt;

use crate::files::FileSet;
use crate::open_file::OpenFile;
use crate::seam::{FileId, IoError};
use crate::transfer::{Direction, Step, Transfer};

/// Fills `buf` from `offset`.
pub(crate) fn read(files: &FileSet, file: FileId, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
    let (f, len) = (files.get(file), buf.len());
    let mut t = Transfer::new(Direction::Read, len);
    loop {
        let from = t.start();
        let result = f.file().read_at(&mut buf[from..], offset + from as u64);
        match t.step(as_kernel_result(result)) {
            Step::Done => return Ok(()),
            Step::Resume => {}
            Step::Failed(errno) => return Err(files.transfer_error("read", file, offset, len, errno)),
        }
    }
}

/// Writes `data` at `offset`; with `dsync`, durably.
pub(crate) fn write(files: &FileSet, file: FileId, offset: u64, data: &[u8], dsync: bool) -> Result<(), IoError> {
    let f = files.get(file);
    let mut t = Transfer::new(Direction::Write, data.len());
    loop {
        let (rest, at) = (&data[t.start()..], offset + t.start() as u64);
        let result = if dsync { write_dsync(f, rest, at) } else { f.file().write_at(rest, at) };
        match t.step(as_kernel_result(result)) {
            Step::Done => break,
            Step::Resume => {}
            Step::Failed(errno) => return Err(files.transfer_error("write", file, offset, data.len(), errno)),
        }
    }
    f.wrote(offset..offset + data.len() as u64);
    Ok(())
}

fn write_dsync(f: &OpenFile, data: &[u8], offset: u64) -> io::Result<usize> {
    let part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: one iovec that describes `data`, which the kernel only reads.
    let n = unsafe { libc::pwritev2(f.fd(), &raw const part, 1, offset as libc::off_t, libc::RWF_DSYNC) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

fn as_kernel_result(result: io::Result<usize>) -> i64 {
    match result {
        Ok(n) => n as i64,
        Err(e) => -i64::from(e.raw_os_error().unwrap_or(libc::EIO)),
    }
}
