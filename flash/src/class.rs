//! Whose bytes they are.

/// What a write is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Object data, direct and deferred.
    Data,
    /// Zeros written to data space ahead of need.
    Prewrite,
    /// The store's log.
    Log,
    /// The key-value store's own log.
    KvLog,
    /// Table and blob files made by a flush of the key-value store.
    KvFlush,
    /// Table and blob files made by a compaction.
    KvCompaction,
}

/// Every class, in the order of [`Class::index`].
pub const CLASSES: [Class; 6] =
    [Class::Data, Class::Prewrite, Class::Log, Class::KvLog, Class::KvFlush, Class::KvCompaction];

/// Streams of the host, where streams are separate.
pub(crate) const STREAMS: usize = 4;

impl Class {
    /// Its place in [`CLASSES`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::Data => "data",
            Class::Prewrite => "prewrite",
            Class::Log => "log",
            Class::KvLog => "kv_log",
            Class::KvFlush => "kv_flush",
            Class::KvCompaction => "kv_compaction",
        }
    }

    /// The stream it is written to where streams are separate. What dies together shares one: both
    /// logs are overwritten in the order they were written in, data space is data space.
    pub(crate) fn stream(self) -> usize {
        match self {
            Class::Data | Class::Prewrite => 0,
            Class::Log | Class::KvLog => 1,
            Class::KvFlush => 2,
            Class::KvCompaction => 3,
        }
    }
}
