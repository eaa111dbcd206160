//! Reads: what a caller can ask of a store, and what it is answered.

use bytes::Bytes;

use crate::types::{CollectionId, ObjectId, ObjectStat};

/// A question. An answer reflects every transaction submitted before it that touches the same
/// object, and none that is not durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// Answered by [`Answer::Stat`].
    Stat(CollectionId, ObjectId),
    /// Ranges as `(offset, length)`; each is cut at the object's end. Answered by [`Answer::Data`],
    /// one buffer a range.
    Data(CollectionId, ObjectId, Vec<(u64, u64)>),
    /// Which parts of `offset..offset+len` are mapped (not holes), merged where adjacent, in whole
    /// blocks cut at the object's end. Answered by [`Answer::Extents`].
    Extents(CollectionId, ObjectId, u64, u64),
    /// One attribute. Answered by [`Answer::Attr`].
    Attr(CollectionId, ObjectId, Vec<u8>),
    /// All attributes in order of their names. Answered by [`Answer::Entries`].
    Attrs(CollectionId, ObjectId),
    /// The omap header, empty if none was set. Answered by [`Answer::Attr`].
    OmapHeader(CollectionId, ObjectId),
    /// Those of the keys that exist, with values. Answered by [`Answer::Entries`].
    OmapValues(CollectionId, ObjectId, Vec<Vec<u8>>),
    /// A page of the omap. Answered by [`Answer::Entries`].
    Omap(CollectionId, ObjectId, OmapRange),
    /// A page of the collection's objects: from `start` (included), to `end` (excluded), at most
    /// `max`. Answered by [`Answer::Objects`].
    List(CollectionId, Option<ObjectId>, Option<ObjectId>, usize),
    /// Every collection with its bits. Answered by [`Answer::Collections`].
    Collections,
    /// Space. Answered by [`Answer::Space`].
    StatFs,
}

/// Part of an omap, in order of the keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OmapRange {
    /// First key wanted; from the first if `None`.
    pub lower: Option<Vec<u8>>,
    /// Whether `lower` itself is left out (to go on behind the last key of a page).
    pub after: bool,
    /// First key not wanted; to the end if `None`.
    pub upper: Option<Vec<u8>>,
    /// Most entries; at most [`PAGE_MAX`](crate::types::PAGE_MAX) are returned.
    pub max: usize,
}

/// An answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// Of an object.
    Stat(ObjectStat),
    /// One buffer a range.
    Data(Vec<Bytes>),
    /// As `(offset, length)`.
    Extents(Vec<(u64, u64)>),
    /// A value.
    Attr(Vec<u8>),
    /// Names or keys with values, and whether there are more behind them.
    Entries(Vec<(Vec<u8>, Vec<u8>)>, bool),
    /// Objects, and where to go on: `None` at the end.
    Objects(Vec<ObjectId>, Option<ObjectId>),
    /// Collections with their bits.
    Collections(Vec<(CollectionId, u8)>),
    /// Space.
    Space(crate::types::StatFs),
}
