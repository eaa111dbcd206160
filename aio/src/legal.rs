//! What every ring asks of a request. A breach is a bug of the caller, hence a panic.

use crate::buf::is_aligned;
use crate::seam::{BLOCK, FILES_MAX, IoOp};

/// Panics unless `op` is aligned, not empty and names files below `files` only.
pub(crate) fn assert_legal(op: &IoOp, files: usize) {
    match op {
        IoOp::Read { file, offset, buf } => assert_transfer("read", file.0, files, *offset, buf),
        IoOp::Write { file, offset, data, .. } => assert_transfer("write", file.0, files, *offset, data),
        IoOp::Sync { files: mask } => {
            let known = if files >= FILES_MAX { u64::MAX } else { (1 << files) - 1 };
            assert!(mask & !known == 0, "sync of files {mask:#x}, but only {files} were open when the ring was made");
        }
    }
}

fn assert_transfer(what: &str, file: u8, files: usize, offset: u64, data: &[u8]) {
    assert!(usize::from(file) < files, "{what} of file {file}, but only {files} were open when the ring was made");
    assert!(!data.is_empty(), "{what} of nothing");
    assert!(offset.is_multiple_of(BLOCK as u64), "{what} at offset {offset}, which is not a multiple of {BLOCK}");
    assert!(is_aligned(data), "{what} of an unaligned buffer ({} bytes at {:p})", data.len(), data.as_ptr());
    let end = offset.checked_add(data.len() as u64);
    assert!(end.is_some_and(|e| i64::try_from(e).is_ok()), "{what} at offset {offset} ends beyond any file");
}
