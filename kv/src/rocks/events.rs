//! Counts by family what flushes and compactions write, from the events RocksDB logs.
//!
//! Its tickers are exact but sum over all families, and its table of statistics by family is
//! rounded to a tenth of a GiB. The event it logs for every finished table file names the family,
//! the job and the size in bytes; the event at the start of a compaction names its job. Together
//! they are exact but for the padding of the last page of each file.

use super::file_trace::{FileEvent, FileTrace};
use super::info_log::InfoLog;
use crate::traits::{CFS, CfStats};
use rocksdb::LogLevel;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Begins the line RocksDB logs for each failed flush, compaction or manifest write, whether or
/// not it means to try again.
const BACKGROUND_ERROR: &str = "Background IO error ";

/// Begins an event, in JSON.
const EVENT: &str = "EVENT_LOG_v1 {";

/// Bytes of a blob file's header and footer, which its event does not count.
const BLOB_FILE_FRAME_BYTES: u64 = 30 + 32;

#[derive(Debug, Default)]
struct Counters {
    flush_bytes: AtomicU64,
    compaction_bytes: AtomicU64,
    flushes: AtomicU64,
    compactions: AtomicU64,
}

/// Receives RocksDB's messages, from any of its threads.
#[derive(Debug)]
pub(super) struct Events {
    by_cf: [Counters; 5],
    /// Running compactions: job to family.
    compactions: Mutex<HashMap<u64, usize>>,
    background_error: OnceLock<String>,
    log: Mutex<InfoLog>,
    files: Option<FileTrace>,
}

impl Events {
    pub(super) fn new(log: InfoLog, files: Option<FileTrace>) -> Events {
        Events {
            by_cf: Default::default(),
            compactions: Mutex::default(),
            background_error: OnceLock::new(),
            log: Mutex::new(log),
            files,
        }
    }

    /// Takes one message. Called from C++, so it must not panic.
    pub(super) fn message(&self, level: LogLevel, text: &str) {
        if text.starts_with(BACKGROUND_ERROR) {
            let _already_known = self.background_error.set(text.trim_end().to_owned());
        }
        // At the start of the line, or after the time a message spent in a buffer.
        if let Some(at) = text.find(EVENT) {
            self.event(&text[at..]);
        }
        // Headers are the dump of all options at every opening: they are in the OPTIONS file.
        if level != LogLevel::Header {
            self.log.lock().unwrap_or_else(PoisonError::into_inner).line(text);
        }
    }

    fn event(&self, text: &str) {
        let Some(job) = number(text, "job") else {
            return;
        };
        let jobs = || self.compactions.lock().unwrap_or_else(PoisonError::into_inner);
        match word(text, "event") {
            Some("compaction_started") => {
                if let Some(cf) = family(text) {
                    jobs().insert(job, cf);
                }
            }
            Some("compaction_finished") => {
                if let Some(cf) = jobs().remove(&job) {
                    self.by_cf[cf].compactions.fetch_add(1, Relaxed);
                }
            }
            Some("table_file_creation") => {
                if let (Some(cf), Some(bytes)) = (family(text), number(text, "file_size")) {
                    let is_flush = !jobs().contains_key(&job);
                    self.count(cf, is_flush, bytes);
                    self.file_made(text, bytes, is_flush);
                    if is_flush {
                        self.by_cf[cf].flushes.fetch_add(1, Relaxed);
                    }
                }
            }
            Some("blob_file_creation") => {
                if let (Some(cf), Some(bytes)) = (family(text), number(text, "total_blob_bytes")) {
                    let is_flush = !jobs().contains_key(&job);
                    self.count(cf, is_flush, bytes + BLOB_FILE_FRAME_BYTES);
                    self.file_made(text, bytes + BLOB_FILE_FRAME_BYTES, is_flush);
                }
            }
            Some("table_file_deletion" | "blob_file_deletion") => {
                if let (Some(files), Some(number)) = (&self.files, number(text, "file_number")) {
                    files.tell(FileEvent::Removed { number });
                }
            }
            _ => {}
        }
    }

    fn count(&self, cf: usize, is_flush: bool, bytes: u64) {
        let c = &self.by_cf[cf];
        if is_flush { &c.flush_bytes } else { &c.compaction_bytes }.fetch_add(bytes, Relaxed);
    }

    fn file_made(&self, text: &str, bytes: u64, is_flush: bool) {
        if let (Some(files), Some(number)) = (&self.files, number(text, "file_number")) {
            files.tell(FileEvent::Made { number, bytes, compaction: !is_flush });
        }
    }

    /// Counters of family number `cf`; sizes of live files are left at 0.
    pub(super) fn counters(&self, cf: usize) -> CfStats {
        let c = &self.by_cf[cf];
        CfStats {
            flush_bytes: c.flush_bytes.load(Relaxed),
            compaction_bytes: c.compaction_bytes.load(Relaxed),
            flushes: c.flushes.load(Relaxed),
            compactions: c.compactions.load(Relaxed),
            ..CfStats::default()
        }
    }

    /// The first failure of RocksDB's own threads.
    pub(super) fn background_error(&self) -> Option<&str> {
        self.background_error.get().map(String::as_str)
    }

    /// Bytes of messages written.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).written_bytes()
    }
}

/// What follows `"key": ` in an event. Keys that matter come before the table's properties, which
/// repeat some of them.
fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut rest = text;
    while let Some(at) = rest.find(key) {
        let (before, from) = (&rest[..at], &rest[at + key.len()..]);
        if before.ends_with('"')
            && let Some(value) = from.strip_prefix("\": ")
        {
            return Some(value);
        }
        rest = from;
    }
    None
}

fn number(text: &str, key: &str) -> Option<u64> {
    let value = after(text, key)?;
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    value[..end].parse().ok()
}

fn word<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    after(text, key)?.strip_prefix('"')?.split('"').next()
}

fn family(text: &str) -> Option<usize> {
    let name = word(text, "cf_name")?;
    CFS.iter().position(|cf| cf.name() == name)
}

#[cfg(test)]
mod tests {
    use super::super::file_trace::tests::Kept;
    use super::*;
    use std::sync::Arc;

    fn events() -> (tempfile::TempDir, Events) {
        let dir = tempfile::tempdir().unwrap();
        let log = InfoLog::open(dir.path(), 1 << 20).unwrap();
        (dir, Events::new(log, None))
    }

    fn tell(e: &Events, json: &str) {
        e.message(LogLevel::Info, &format!("EVENT_LOG_v1 {{\"time_micros\": 17, {json}}}\n"));
    }

    #[test]
    fn tables_of_a_compaction_are_told_from_those_of_a_flush() {
        let (_dir, e) = events();
        let table = |job, bytes| {
            format!(
                "\"cf_name\": \"extent\", \"job\": {job}, \"event\": \"table_file_creation\", \
                 \"file_number\": 9, \"file_size\": {bytes}, \"table_properties\": {{}}"
            )
        };
        tell(&e, &table(3, 100));
        tell(&e, "\"job\": 4, \"event\": \"compaction_started\", \"cf_name\": \"extent\"");
        tell(&e, &table(4, 1000));
        tell(&e, &table(5, 10));
        e.message(
            LogLevel::Info,
            "(Original Log Time 2026/01/02-03:04:05.000006) EVENT_LOG_v1 {\"time_micros\": 17, \
             \"job\": 4, \"event\": \"compaction_finished\", \"total_output_size\": 1000}",
        );
        tell(&e, &table(4, 1));
        let got = e.counters(2);
        assert_eq!((got.flush_bytes, got.flushes), (111, 3));
        assert_eq!((got.compaction_bytes, got.compactions), (1000, 1));
        assert_eq!(e.counters(1), CfStats::default());
    }

    #[test]
    fn files_are_told_when_they_are_made_and_removed() {
        let (dir, kept) = (tempfile::tempdir().unwrap(), Arc::new(Kept::default()));
        let e = Events::new(InfoLog::open(dir.path(), 1 << 20).unwrap(), Some(FileTrace(kept.clone())));
        tell(&e, "\"job\": 4, \"event\": \"compaction_started\", \"cf_name\": \"omap\"");
        for (job, number) in [(3, 10), (4, 11)] {
            let file = format!(
                "\"cf_name\": \"omap\", \"job\": {job}, \"event\": \"table_file_creation\", \"file_number\": {number}"
            );
            tell(&e, &format!("{file}, \"file_size\": 100"));
        }
        tell(
            &e,
            "\"cf_name\": \"omap\", \"job\": 3, \"event\": \"blob_file_creation\", \"file_number\": 12, \"total_blob_bytes\": 38",
        );
        tell(&e, "\"job\": 4, \"event\": \"table_file_deletion\", \"file_number\": 10");
        let made = |number, compaction| FileEvent::Made { number, bytes: 100, compaction };
        let removed = FileEvent::Removed { number: 10 };
        assert_eq!(*kept.0.lock().unwrap(), [made(10, false), made(11, true), made(12, false), removed]);
    }

    #[test]
    fn first_background_error_is_kept() {
        let (_dir, e) = events();
        assert_eq!(e.background_error(), None);
        e.message(LogLevel::Warn, "Background IO error IO error: a, reason 0");
        e.message(LogLevel::Warn, "Background IO error IO error: b, reason 0");
        assert_eq!(e.background_error(), Some("Background IO error IO error: a, reason 0"));
    }

    #[test]
    fn nonsense_is_ignored() {
        let (_dir, e) = events();
        for text in ["\"job\": x", "\"job\": 1", "\"event\": \"table_file_creation", "", "\"cf_name\": "] {
            tell(&e, text);
        }
        assert_eq!(e.counters(0), CfStats::default());
    }
}
