//! The in-memory key-value store with a diary: what a crash could leave of it, noted at every
//! change, with a mark in the disk's recording.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use lodestore_kv::{Cached, Cf, Kv, KvError, KvImage, KvIter, KvOp, KvStats, MemKv};

/// Puts a number into the disk's recording.
pub type Mark = Box<dyn Fn(u64) + Send + Sync>;

/// See the module's description.
pub struct TraceKv {
    inner: MemKv,
    mark: Mark,
    diary: Mutex<Vec<KvImage>>,
}

impl fmt::Debug for TraceKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceKv").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl TraceKv {
    /// Traces `inner`; the first note is what it holds now. Every note calls `mark` with its number.
    pub fn new(inner: MemKv, mark: Mark) -> Self {
        let kv = TraceKv { inner, mark, diary: Mutex::new(Vec::new()) };
        kv.note();
        kv
    }

    /// The store itself.
    pub fn inner(&self) -> &MemKv {
        &self.inner
    }

    fn note(&self) {
        let mut diary = self.diary.lock().unwrap_or_else(PoisonError::into_inner);
        (self.mark)(diary.len() as u64);
        diary.push(self.inner.image());
    }

    /// Every note so far: what a crash could leave from that mark on.
    pub fn diary(&self) -> Vec<KvImage> {
        self.diary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Kv for TraceKv {
    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.inner.get(cf, key)
    }

    fn get_cached(&self, cf: Cf, key: &[u8]) -> Result<Cached, KvError> {
        self.inner.get_cached(cf, key)
    }

    fn iter(&self, cf: Cf, lower: &[u8], upper: &[u8]) -> KvIter<'_> {
        self.inner.iter(cf, lower, upper)
    }

    fn write(&self, ops: &[KvOp], lsn: u64) -> Result<(), KvError> {
        let result = self.inner.write(ops, lsn);
        self.note();
        result
    }

    fn marker(&self, cf: Cf) -> Result<u64, KvError> {
        self.inner.marker(cf)
    }

    fn flush(&self) -> Result<(), KvError> {
        let result = self.inner.flush();
        self.note();
        result
    }

    fn stats(&self) -> KvStats {
        self.inner.stats()
    }
}
