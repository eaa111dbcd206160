//! Tells somebody what RocksDB does with its files: made, appended to, removed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a block of RocksDB's own log: no fragment of a record crosses its end.
const LOG_BLOCK_BYTES: u64 = 32 << 10;

/// Bytes before each fragment of a record, with the number of a log that is used again.
const LOG_FRAGMENT_HEADER_BYTES: u64 = 11;

/// Something that happened to a file of RocksDB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileEvent {
    /// A table or blob file was there when the store was opened.
    Found {
        /// Its number.
        number: u64,
        /// Its length.
        bytes: u64,
    },
    /// A table or blob file was completed.
    Made {
        /// Its number.
        number: u64,
        /// Its length.
        bytes: u64,
        /// By a compaction; else by a flush.
        compaction: bool,
    },
    /// A table or blob file was removed.
    Removed {
        /// Its number.
        number: u64,
    },
    /// A batch was appended to RocksDB's own log, and the log synced.
    LogAppended {
        /// Bytes of the batch and of the headers around it.
        bytes: u64,
    },
}

/// Who wants to know. Called from RocksDB's threads, in the middle of their work.
pub trait FileSink: Send + Sync {
    /// Takes an event. Must not panic: the caller may be C++.
    fn file_event(&self, event: FileEvent);
}

/// A [`FileSink`] as a part of [`super::RocksConfig`]; equal to itself and its clones alone.
#[derive(Clone)]
pub struct FileTrace(pub Arc<dyn FileSink>);

impl fmt::Debug for FileTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileTrace")
    }
}

impl PartialEq for FileTrace {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for FileTrace {}

impl FileTrace {
    pub(super) fn tell(&self, event: FileEvent) {
        self.0.file_event(event);
    }

    /// Tells of the table and blob files in `dir`. One that cannot be looked at is not there for
    /// the listener: this feeds a model, and RocksDB itself will report the folder.
    pub(super) fn found(&self, dir: &Path) {
        let mut files: Vec<(u64, u64)> = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let stem = name.strip_suffix(".sst").or_else(|| name.strip_suffix(".blob"))?;
                Some((stem.parse().ok()?, entry.metadata().ok()?.len()))
            })
            .collect();
        // The order of a directory is no order.
        files.sort_unstable();
        for (number, bytes) in files {
            self.tell(FileEvent::Found { number, bytes });
        }
    }

    /// Tells of a batch of so many bytes in RocksDB's own log.
    pub(super) fn log_appended(&self, batch_bytes: u64) {
        let fragments = batch_bytes.div_ceil(LOG_BLOCK_BYTES - LOG_FRAGMENT_HEADER_BYTES);
        self.tell(FileEvent::LogAppended { bytes: batch_bytes + fragments * LOG_FRAGMENT_HEADER_BYTES });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Keeps what it is told.
    #[derive(Default)]
    pub struct Kept(pub Mutex<Vec<FileEvent>>);

    impl FileSink for Kept {
        fn file_event(&self, event: FileEvent) {
            self.0.lock().unwrap().push(event);
        }
    }

    #[test]
    fn files_that_are_there_are_told_by_number() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [("000012.sst", 5), ("000007.blob", 7), ("CURRENT", 3), ("MANIFEST-000001", 9)] {
            std::fs::write(dir.path().join(name), vec![0; bytes]).unwrap();
        }
        let kept = Arc::new(Kept::default());
        FileTrace(kept.clone()).found(dir.path());
        let found = |number, bytes| FileEvent::Found { number, bytes };
        assert_eq!(*kept.0.lock().unwrap(), [found(7, 7), found(12, 5)]);
    }

    #[test]
    fn headers_of_log_records_count() {
        let kept = Arc::new(Kept::default());
        let trace = FileTrace(kept.clone());
        trace.log_appended(100);
        trace.log_appended(100_000);
        let appended = |bytes| FileEvent::LogAppended { bytes };
        assert_eq!(*kept.0.lock().unwrap(), [appended(111), appended(100_044)]);
    }
}
