//! What the engine asks of a key-value store: ordered column families, atomic batches without a
//! log of their own, and an explicit point at which everything written is durable.

use std::fmt::Debug;

/// A column family, by its position in [`CFS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Cf {
    /// Collections, counters, the allocator's snapshot. RocksDB's default family.
    Meta = 0,
    /// Onodes by collection and name.
    Onode = 1,
    /// Chunks of extent maps by object number.
    Extent = 2,
    /// Omap headers, keys and values by omap number.
    Omap = 3,
    /// Reference counts of shared blocks.
    Shared = 4,
}

/// Every column family, in order of its number.
pub const CFS: [Cf; 5] = [Cf::Meta, Cf::Onode, Cf::Extent, Cf::Omap, Cf::Shared];

impl Cf {
    /// The family with number `n`, if there is one.
    pub fn from_u8(n: u8) -> Option<Cf> {
        CFS.get(n as usize).copied()
    }

    /// Whether records of the log are kept in it. In none: the log is beside the key-value store.
    pub fn holds_log(self) -> bool {
        match self {
            Cf::Meta | Cf::Onode | Cf::Extent | Cf::Omap | Cf::Shared => false,
        }
    }

    /// The family's name on disk and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Cf::Meta => "default",
            Cf::Onode => "onode",
            Cf::Extent => "extent",
            Cf::Omap => "omap",
            Cf::Shared => "shared",
        }
    }
}

/// The key under which each family keeps the LSN it has reached: it sorts before every other key,
/// because no other key is empty. Written in the same batch as the changes it stands for.
pub const MARKER_KEY: &[u8] = b"";

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KvOp {
    /// Set `key` to `value`.
    Put {
        /// Where.
        cf: Cf,
        /// The key; never empty.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Remove `key`; it need not exist.
    Delete {
        /// Where.
        cf: Cf,
        /// The key.
        key: Vec<u8>,
    },
    /// Remove every key in `from..to`.
    DeleteRange {
        /// Where.
        cf: Cf,
        /// First key removed.
        from: Vec<u8>,
        /// First key kept.
        to: Vec<u8>,
    },
}

impl KvOp {
    /// The family it changes.
    pub fn cf(&self) -> Cf {
        match self {
            KvOp::Put { cf, .. } | KvOp::Delete { cf, .. } | KvOp::DeleteRange { cf, .. } => *cf,
        }
    }
}

/// Result of a lookup that must not block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cached {
    /// The answer, from memory.
    Known(Option<Vec<u8>>),
    /// Only a read from the medium can tell.
    WouldBlock,
}

/// A failure of the key-value store. Any failed write or flush makes the store above read-only.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KvError {
    /// The medium or RocksDB reported a failure.
    #[error("key-value store: {what} failed: {reason}")]
    Failed {
        /// The operation.
        what: &'static str,
        /// RocksDB's words.
        reason: String,
    },
    /// The files are damaged.
    #[error("key-value store is damaged: {reason}")]
    Damaged {
        /// RocksDB's words, with the file.
        reason: String,
    },
    /// Somebody else has it open.
    #[error("key-value store is in use by another process ({reason})")]
    InUse {
        /// RocksDB's words.
        reason: String,
    },
    /// It is not there, or is there where none was expected.
    #[error("key-value store: {reason}")]
    Missing {
        /// What is missing.
        reason: String,
    },
}

/// Entries in order, as `(key, value)`. Bounded on both sides when it was made.
pub type KvIter<'a> = Box<dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>), KvError>> + 'a>;

/// Bytes written to the medium by one column family since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CfStats {
    /// By flushes of memtables.
    pub flush_bytes: u64,
    /// By compactions.
    pub compaction_bytes: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Compactions done.
    pub compactions: u64,
    /// Bytes of live table files now.
    pub table_bytes: u64,
    /// Bytes in memtables now.
    pub memtable_bytes: u64,
}

/// What the key-value store did since it was opened.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct KvStats {
    /// By [`Cf`], in order of [`CFS`].
    pub by_cf: [CfStats; 5],
    /// Bytes written to the store's own log (0 while it is off).
    pub log_bytes: u64,
    /// Bytes written to its manifest and other small files, where known.
    pub other_bytes: u64,
    /// Microseconds that writes were stalled.
    pub stall_us: u64,
}

impl KvStats {
    /// Bytes of log records that got into table files.
    pub fn log_in_tables(&self) -> u64 {
        let families = CFS.iter().zip(&self.by_cf).filter(|(cf, _)| cf.holds_log());
        families.map(|(_, s)| s.flush_bytes + s.compaction_bytes).sum()
    }

    /// Everything it wrote.
    pub fn written_bytes(&self) -> u64 {
        let tables: u64 = self.by_cf.iter().map(|s| s.flush_bytes + s.compaction_bytes).sum();
        tables + self.log_bytes + self.other_bytes
    }
}

/// A key-value store. Shared between the engine's thread and helpers that flush.
pub trait Kv: Send + Sync + Debug {
    /// Looks up one key; may read from the medium.
    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// Looks up one key in memory only.
    fn get_cached(&self, cf: Cf, key: &[u8]) -> Result<Cached, KvError>;

    /// Entries with `lower <= key < upper`, ascending, as they were when it was made. Never crosses
    /// its bounds. The marker is no entry: a `lower` of `b""` begins after it.
    fn iter(&self, cf: Cf, lower: &[u8], upper: &[u8]) -> KvIter<'_>;

    /// The same for a scan of much, as at mount: reads far ahead and keeps nothing in the cache.
    fn scan(&self, cf: Cf, lower: &[u8], upper: &[u8]) -> KvIter<'_> {
        self.iter(cf, lower, upper)
    }

    /// Applies all of `ops`, in order, atomically within each family, and in the same step sets
    /// the marker of every family it touches to `lsn`. In memory only: durable after [`Kv::flush`].
    /// A range that is empty or upside down deletes nothing, and no range reaches the marker.
    /// After any failure every later write and flush fails; reads go on.
    ///
    /// # Panics
    /// If a key to put or delete is empty.
    fn write(&self, ops: &[KvOp], lsn: u64) -> Result<(), KvError>;

    /// The LSN a family has reached (0 if none): its contents are those of every write up to it.
    fn marker(&self, cf: Cf) -> Result<u64, KvError>;

    /// Makes everything written before the call durable. Blocks; other calls go on meanwhile.
    fn flush(&self) -> Result<(), KvError>;

    /// Counters since opening.
    fn stats(&self) -> KvStats;
}
