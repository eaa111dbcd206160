//! Takes writes as they complete, in the middle of a run: as little as can be, 24 bytes each.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lodestore::{LOG_FILE, WriteKind, WriteSink, Written};
use lodestore_kv::{FileEvent, FileSink};

use super::space::BLOCK;
use super::worker::Message;

/// Entries handed over at a time.
pub(super) const CHUNK: usize = 32 << 10;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// `blocks` were written to the file of the store with number `file`, from byte `at`.
    Data,
    Prewrite,
    Log,
    /// A file of the key-value store with number `at` and so many `blocks`: was there, was made.
    KvFound,
    KvFlush,
    KvCompaction,
    /// That file was removed.
    KvRemoved,
    /// `at` bytes were appended to the key-value store's own log.
    KvLog,
}

/// One event, at `time_us` since the recording began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub time_us: u64,
    pub at: u64,
    pub blocks: u32,
    pub file: u16,
    pub what: What,
}

/// Where a store's writes are told to.
pub(super) struct Recorder {
    begin: Instant,
    to: Sender<Message>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    chunk: Vec<Entry>,
    /// Names of the store's files, by number.
    files: Vec<String>,
}

impl Recorder {
    /// Chunks go to `to`, and word of each new file before any write to it.
    pub fn new(to: Sender<Message>) -> Self {
        Recorder { begin: Instant::now(), to, state: Mutex::default() }
    }

    /// Microseconds since the recording began.
    pub fn now_us(&self) -> u64 {
        self.begin.elapsed().as_micros() as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, m: Message) {
        // Whoever listens outlives the store; without one there is nobody to miss it.
        let _ = self.to.send(m);
    }

    fn push(&self, state: &mut State, e: Entry) {
        if state.chunk.capacity() == 0 {
            state.chunk.reserve_exact(CHUNK);
        }
        state.chunk.push(e);
        if state.chunk.len() == CHUNK {
            self.send(Message::Chunk(std::mem::take(&mut state.chunk)));
        }
    }

    /// Hands over what is there, and `m` behind it.
    pub fn flush(&self, m: Message) {
        let mut state = self.state();
        let chunk = std::mem::take(&mut state.chunk);
        self.send(Message::Chunk(chunk));
        self.send(m);
    }
}

impl WriteSink for Recorder {
    fn opened(&self, name: &str, len: u64) -> u16 {
        let mut state = self.state();
        let known = state.files.iter().position(|n| n == name);
        let number = known.unwrap_or_else(|| {
            state.files.push(name.to_owned());
            self.send(Message::File { bytes: len, log: name == LOG_FILE });
            state.files.len() - 1
        });
        number as u16
    }

    fn written(&self, writes: &[Written]) {
        let time_us = self.now_us();
        let mut state = self.state();
        for w in writes {
            let what = match WriteKind::of(w.token) {
                Some(WriteKind::Log) => What::Log,
                Some(WriteKind::Direct | WriteKind::Deferred) => What::Data,
                Some(WriteKind::Prewrite) => What::Prewrite,
                None if state.files[usize::from(w.file)] == LOG_FILE => What::Log,
                None => What::Data,
            };
            // The ring takes whole blocks only, and far fewer than 2^32 at a time.
            let entry = Entry { time_us, at: w.offset, blocks: (w.len / BLOCK) as u32, file: w.file, what };
            self.push(&mut state, entry);
        }
    }
}

impl FileSink for Recorder {
    fn file_event(&self, event: FileEvent) {
        let (what, at, bytes) = match event {
            FileEvent::Found { number, bytes } => (What::KvFound, number, bytes),
            FileEvent::Made { number, bytes, compaction: false } => (What::KvFlush, number, bytes),
            FileEvent::Made { number, bytes, compaction: true } => (What::KvCompaction, number, bytes),
            FileEvent::Removed { number } => (What::KvRemoved, number, 0),
            FileEvent::LogAppended { bytes } => (What::KvLog, bytes, 0),
        };
        // No file system has files of more blocks.
        let blocks = u32::try_from(bytes.div_ceil(BLOCK)).unwrap_or(u32::MAX);
        let entry = Entry { time_us: self.now_us(), at, blocks, file: 0, what };
        self.push(&mut self.state(), entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry>(), 24);
    }
}
