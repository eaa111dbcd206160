//! The names of things: collections, objects, and what a caller is told about them.

use std::cmp::Ordering;
use std::fmt;

/// Longest object name, in bytes.
pub const NAME_LEN_MAX: usize = 4096;
/// Longest namespace or locator key, in bytes.
pub const LOCATOR_LEN_MAX: usize = 1024;
/// Longest attribute name, in bytes.
pub const ATTR_NAME_LEN_MAX: usize = 256;
/// Longest attribute value, in bytes.
pub const ATTR_LEN_MAX: usize = 64 << 10;
/// Most bytes of names and values of all attributes of one object.
pub const ATTRS_LEN_MAX: usize = 256 << 10;
/// Longest omap key, in bytes.
pub const OMAP_KEY_LEN_MAX: usize = 4096;
/// Longest omap value or omap header, in bytes.
pub const OMAP_VALUE_LEN_MAX: usize = 1 << 20;
/// Largest object, in bytes (1 TiB; objects to 128 GiB are planned for).
pub const OBJECT_LEN_MAX: u64 = 1 << 40;
/// Most bytes one write may carry.
pub const WRITE_LEN_MAX: usize = 256 << 20;
/// Most bytes one read may return.
pub const READ_LEN_MAX: u64 = 256 << 20;
/// Most operations in one transaction.
pub const OPS_MAX: usize = 65_536;
/// Most entries one page of a listing returns, whatever was asked for.
pub const PAGE_MAX: usize = 10_000;

/// The snapshot id of an object that is no snapshot.
pub const SNAP_HEAD: u64 = u64::MAX - 1;

/// A collection, like a placement group: the objects of `pool` whose hash ends in `seed`'s low
/// bits. How many bits count is the collection's own property and changes when it is split.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CollectionId {
    /// Collections of one pool divide its hash space among them.
    pub pool: u64,
    /// The low bits shared by the hashes of all its objects.
    pub seed: u32,
}

impl CollectionId {
    /// The collection of `pool` with `seed`.
    pub fn new(pool: u64, seed: u32) -> Self {
        CollectionId { pool, seed }
    }
}

impl fmt::Display for CollectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

/// An object's name. Any bytes will do; a name never becomes a path.
///
/// Ordered by bit-reversed hash, then namespace, locator key, name and snapshot: the order of
/// listings, in which a collection is one contiguous range, and so are the two halves of a split.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectId {
    /// Placement hash of the name, chosen by the caller.
    pub hash: u32,
    /// Namespace, empty for the default one.
    pub nspace: Vec<u8>,
    /// Locator key, empty for none.
    pub key: Vec<u8>,
    /// The name.
    pub name: Vec<u8>,
    /// Snapshot id, [`SNAP_HEAD`] for the live object.
    pub snap: u64,
}

impl ObjectId {
    /// The live object `name` in the default namespace, hashed with crc32c.
    pub fn new(name: impl Into<Vec<u8>>) -> Self {
        let name = name.into();
        ObjectId { hash: crc32c::crc32c(&name), nspace: Vec::new(), key: Vec::new(), name, snap: SNAP_HEAD }
    }

    /// The same object with another hash.
    pub fn with_hash(mut self, hash: u32) -> Self {
        self.hash = hash;
        self
    }
}

impl Ord for ObjectId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.hash
            .reverse_bits()
            .cmp(&other.hash.reverse_bits())
            .then_with(|| self.nspace.cmp(&other.nspace))
            .then_with(|| self.key.cmp(&other.key))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.snap.cmp(&other.snap))
    }
}

impl PartialOrd for ObjectId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}:", self.hash)?;
        if !self.nspace.is_empty() {
            write!(f, "{}/", self.nspace.escape_ascii())?;
        }
        if !self.key.is_empty() {
            write!(f, "[{}]", self.key.escape_ascii())?;
        }
        write!(f, "{}", self.name.escape_ascii())?;
        if self.snap != SNAP_HEAD {
            write!(f, "@{:x}", self.snap)?;
        }
        Ok(())
    }
}

/// Position of a transaction in the log: 1 for the first, one more for each that follows.
pub type Lsn = u64;

/// What a caller may know of an object without reading it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectStat {
    /// Logical size in bytes.
    pub size: u64,
    /// Bytes of blocks mapped to it, shared ones counted in full.
    pub mapped: u64,
    /// Number of attributes.
    pub attrs: usize,
    /// What [`Transaction::hint`](crate::Transaction::hint) said last.
    pub hint: AllocHint,
}

/// How an object is expected to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocHint {
    /// Expected size of the object in bytes, 0 if unknown.
    pub object_size: u64,
    /// Expected size of writes in bytes, 0 if unknown.
    pub write_size: u64,
    /// Flags, kept for the caller.
    pub flags: u32,
}

/// Space in a store, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Room for object data.
    pub total: u64,
    /// Of it, available to new writes (blocks that wait for the log to be trimmed included).
    pub available: u64,
    /// Blocks that hold object data; one shared by clones counts once.
    pub allocated: u64,
    /// Blocks mapped by objects; one shared by clones counts for each of them.
    pub stored: u64,
    /// Freed blocks that wait for the log to be trimmed.
    pub limbo: u64,
    /// Of `total`, pre-written so far.
    pub prewritten: u64,
    /// Table files and memtables of omap.
    pub omap: u64,
    /// Table files and memtables of everything else in the key-value store.
    pub metadata: u64,
    /// Objects.
    pub objects: u64,
}
