//! RocksDB's messages in two files of bounded size.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the file being written.
const NAME: &str = "LOG";

/// Name of the one before.
const NAME_OLD: &str = "LOG.old";

/// A diagnostic: never synced, and a line that cannot be written is dropped, because a full disk
/// must not turn a message about it into a second failure.
#[derive(Debug)]
pub(super) struct InfoLog {
    dir: PathBuf,
    file: Option<File>,
    size_bytes: u64,
    max_bytes: u64,
    written_bytes: u64,
}

impl InfoLog {
    /// Appends to the file in `dir`, which must exist.
    pub(super) fn open(dir: &Path, max_bytes: u64) -> std::io::Result<InfoLog> {
        let file = OpenOptions::new().create(true).append(true).open(dir.join(NAME))?;
        let size_bytes = file.metadata()?.len();
        Ok(InfoLog { dir: dir.to_owned(), file: Some(file), size_bytes, max_bytes, written_bytes: 0 })
    }

    /// Adds one line with the time in microseconds since 1970.
    pub(super) fn line(&mut self, text: &str) {
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros());
        let line = format!("{now_us} {}\n", text.trim_end());
        if self.size_bytes > 0 && self.size_bytes + line.len() as u64 > self.max_bytes {
            self.file = fs::rename(self.dir.join(NAME), self.dir.join(NAME_OLD))
                .and_then(|()| File::create(self.dir.join(NAME)))
                .ok();
            self.size_bytes = 0;
        }
        if let Some(file) = &mut self.file
            && file.write_all(line.as_bytes()).is_ok()
        {
            self.size_bytes += line.len() as u64;
            self.written_bytes += line.len() as u64;
        }
    }

    /// Bytes written since it was opened.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_messages_make_room_for_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = InfoLog::open(dir.path(), 1000).unwrap();
        for n in 0..500 {
            log.line(&format!("message {n}"));
        }
        let now = fs::read_to_string(dir.path().join(NAME)).unwrap();
        let old = fs::read_to_string(dir.path().join(NAME_OLD)).unwrap();
        assert!(now.len() <= 1000 && old.len() <= 1000 && now.ends_with("message 499\n"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(log.written_bytes() > 10_000);
    }
}
