//! Transactions: what a caller wants changed, all of it or nothing.

use bytes::Bytes;

use crate::types::{AllocHint, CollectionId, ObjectId};

/// One operation of a [`Transaction`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Make the object if it is not there.
    Touch(ObjectId),
    /// Make the object; refused if it is there.
    Create(ObjectId),
    /// Write bytes, making and extending the object as needed.
    Write {
        /// Object to write.
        oid: ObjectId,
        /// Byte offset.
        offset: u64,
        /// What to write. Written without a copy where it is block-aligned in memory.
        data: Bytes,
    },
    /// Make a range read as zeros, extending the object if it ends past it.
    Zero {
        /// Object to change.
        oid: ObjectId,
        /// Byte offset.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Set the size, cutting or extending with a hole.
    Truncate {
        /// Object to change.
        oid: ObjectId,
        /// New size in bytes.
        size: u64,
    },
    /// Remove the object with everything it has.
    Remove(ObjectId),
    /// Set one attribute.
    SetAttr {
        /// Object to change.
        oid: ObjectId,
        /// Attribute name.
        name: Vec<u8>,
        /// Attribute value.
        value: Vec<u8>,
    },
    /// Remove one attribute; it need not be there.
    RmAttr {
        /// Object to change.
        oid: ObjectId,
        /// Attribute name.
        name: Vec<u8>,
    },
    /// Remove every attribute.
    RmAttrs(ObjectId),
    /// Make `to` a copy of `from`: data (sharing its blocks), attributes and omap.
    Clone {
        /// Object to copy.
        from: ObjectId,
        /// Object made or replaced.
        to: ObjectId,
    },
    /// Copy a range of data (sharing whole blocks where both offsets allow it).
    CloneRange {
        /// Object to copy from.
        from: ObjectId,
        /// Object to copy to; made if it is not there.
        to: ObjectId,
        /// Byte offset in `from`.
        from_offset: u64,
        /// Length in bytes; cut at the end of `from`.
        len: u64,
        /// Byte offset in `to`.
        to_offset: u64,
    },
    /// Set omap keys.
    OmapSet {
        /// Object to change.
        oid: ObjectId,
        /// Keys and values.
        entries: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// Remove omap keys; they need not be there.
    OmapRmKeys {
        /// Object to change.
        oid: ObjectId,
        /// Keys.
        keys: Vec<Vec<u8>>,
    },
    /// Remove omap keys from `first` (included) to `last` (excluded).
    OmapRmRange {
        /// Object to change.
        oid: ObjectId,
        /// First key removed.
        first: Vec<u8>,
        /// First key kept.
        last: Vec<u8>,
    },
    /// Remove the omap header and every key.
    OmapClear(ObjectId),
    /// Set the omap header.
    OmapSetHeader {
        /// Object to change.
        oid: ObjectId,
        /// The header.
        header: Vec<u8>,
    },
    /// Make the collection; the low `bits` bits of its objects' hashes equal its seed's.
    MakeCollection {
        /// How many low bits of the hash count, 0 to 32.
        bits: u8,
    },
    /// Remove the collection; refused unless it is empty.
    RemoveCollection,
    /// Divide the collection: from now on `bits` bits count, and the objects whose hash matches
    /// `to.seed` are in the new collection `to`. Metadata only, whatever the number of objects.
    Split {
        /// New number of bits of both, one above the old.
        bits: u8,
        /// The new collection, of the same pool.
        to: CollectionId,
    },
    /// Undo a split: everything in this collection goes to `to`, for which `bits` bits count from
    /// now on; this collection is gone.
    Merge {
        /// New number of bits of `to`.
        bits: u8,
        /// The collection that takes the objects.
        to: CollectionId,
    },
    /// Give the object another name and collection, replacing nothing: refused if `to` exists.
    Rename {
        /// Present name.
        from: ObjectId,
        /// Collection it moves to.
        to_collection: CollectionId,
        /// New name.
        to: ObjectId,
        /// Whether an absent `from` is an error.
        must_exist: bool,
    },
    /// Say how the object will be used.
    Hint {
        /// Object to change; made if it is not there.
        oid: ObjectId,
        /// The hint.
        hint: AllocHint,
    },
}

/// A list of operations applied atomically, in order, and durable when acknowledged.
///
/// Transactions take effect in the order in which they were submitted. One that cannot be applied
/// (no such object, no space, a limit) is refused whole, before anything is changed.
///
/// ```
/// use lodestore::{CollectionId, ObjectId, Transaction};
/// let c = CollectionId::new(1, 0);
/// let mut t = Transaction::new();
/// t.make_collection(c, 0);
/// t.write(c, ObjectId::new("greeting"), 0, "hello");
/// t.set_attr(c, ObjectId::new("greeting"), "lang", "en");
/// assert_eq!(t.ops().len(), 3);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    ops: Vec<(CollectionId, Op)>,
}

/// What a caller asks to be written, in bytes.
#[derive(Default)]
pub(crate) struct UserBytes {
    pub data: u64,
    pub attrs: u64,
    pub omap: u64,
}

impl UserBytes {
    pub fn total(&self) -> u64 {
        self.data + self.attrs + self.omap
    }
}

impl Op {
    /// What the caller asks to be written: contents with their names, not what is removed or shared.
    pub(crate) fn user_bytes(&self) -> UserBytes {
        let mut n = UserBytes::default();
        match self {
            Op::Write { data, .. } => n.data = data.len() as u64,
            Op::SetAttr { name, value, .. } => n.attrs = (name.len() + value.len()) as u64,
            Op::OmapSet { entries, .. } => n.omap = entries.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum(),
            Op::OmapSetHeader { header, .. } => n.omap = header.len() as u64,
            _ => {}
        }
        n
    }
}

impl Transaction {
    /// An empty transaction. It can be submitted: its acknowledgement says that everything
    /// submitted before it is durable.
    pub fn new() -> Self {
        Self::default()
    }

    /// The operations so far, each with its collection.
    pub fn ops(&self) -> &[(CollectionId, Op)] {
        &self.ops
    }

    /// Adds an operation.
    pub fn push(&mut self, c: CollectionId, op: Op) -> &mut Self {
        self.ops.push((c, op));
        self
    }

    /// Bytes of data and metadata the caller asks to be written.
    pub fn user_bytes(&self) -> u64 {
        self.ops.iter().map(|(_, op)| op.user_bytes().total()).sum()
    }

    /// See [`Op::Touch`].
    pub fn touch(&mut self, c: CollectionId, oid: ObjectId) -> &mut Self {
        self.push(c, Op::Touch(oid))
    }
    /// See [`Op::Create`].
    pub fn create(&mut self, c: CollectionId, oid: ObjectId) -> &mut Self {
        self.push(c, Op::Create(oid))
    }
    /// See [`Op::Write`].
    pub fn write(&mut self, c: CollectionId, oid: ObjectId, offset: u64, data: impl Into<Bytes>) -> &mut Self {
        self.push(c, Op::Write { oid, offset, data: data.into() })
    }
    /// See [`Op::Zero`].
    pub fn zero(&mut self, c: CollectionId, oid: ObjectId, offset: u64, len: u64) -> &mut Self {
        self.push(c, Op::Zero { oid, offset, len })
    }
    /// See [`Op::Truncate`].
    pub fn truncate(&mut self, c: CollectionId, oid: ObjectId, size: u64) -> &mut Self {
        self.push(c, Op::Truncate { oid, size })
    }
    /// See [`Op::Remove`].
    pub fn remove(&mut self, c: CollectionId, oid: ObjectId) -> &mut Self {
        self.push(c, Op::Remove(oid))
    }
    /// See [`Op::SetAttr`].
    pub fn set_attr(
        &mut self,
        c: CollectionId,
        oid: ObjectId,
        name: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> &mut Self {
        self.push(c, Op::SetAttr { oid, name: name.into(), value: value.into() })
    }
    /// See [`Op::RmAttr`].
    pub fn rm_attr(&mut self, c: CollectionId, oid: ObjectId, name: impl Into<Vec<u8>>) -> &mut Self {
        self.push(c, Op::RmAttr { oid, name: name.into() })
    }
    /// See [`Op::RmAttrs`].
    pub fn rm_attrs(&mut self, c: CollectionId, oid: ObjectId) -> &mut Self {
        self.push(c, Op::RmAttrs(oid))
    }
    /// See [`Op::Clone`].
    pub fn clone_object(&mut self, c: CollectionId, from: ObjectId, to: ObjectId) -> &mut Self {
        self.push(c, Op::Clone { from, to })
    }
    /// See [`Op::CloneRange`].
    pub fn clone_range(
        &mut self,
        c: CollectionId,
        from: ObjectId,
        to: ObjectId,
        from_offset: u64,
        len: u64,
        to_offset: u64,
    ) -> &mut Self {
        self.push(c, Op::CloneRange { from, to, from_offset, len, to_offset })
    }
    /// See [`Op::OmapSet`].
    pub fn omap_set(&mut self, c: CollectionId, oid: ObjectId, entries: Vec<(Vec<u8>, Vec<u8>)>) -> &mut Self {
        self.push(c, Op::OmapSet { oid, entries })
    }
    /// See [`Op::OmapRmKeys`].
    pub fn omap_rm_keys(&mut self, c: CollectionId, oid: ObjectId, keys: Vec<Vec<u8>>) -> &mut Self {
        self.push(c, Op::OmapRmKeys { oid, keys })
    }
    /// See [`Op::OmapRmRange`].
    pub fn omap_rm_range(
        &mut self,
        c: CollectionId,
        oid: ObjectId,
        first: impl Into<Vec<u8>>,
        last: impl Into<Vec<u8>>,
    ) -> &mut Self {
        self.push(c, Op::OmapRmRange { oid, first: first.into(), last: last.into() })
    }
    /// See [`Op::OmapClear`].
    pub fn omap_clear(&mut self, c: CollectionId, oid: ObjectId) -> &mut Self {
        self.push(c, Op::OmapClear(oid))
    }
    /// See [`Op::OmapSetHeader`].
    pub fn omap_set_header(&mut self, c: CollectionId, oid: ObjectId, header: impl Into<Vec<u8>>) -> &mut Self {
        self.push(c, Op::OmapSetHeader { oid, header: header.into() })
    }
    /// See [`Op::MakeCollection`].
    pub fn make_collection(&mut self, c: CollectionId, bits: u8) -> &mut Self {
        self.push(c, Op::MakeCollection { bits })
    }
    /// See [`Op::RemoveCollection`].
    pub fn remove_collection(&mut self, c: CollectionId) -> &mut Self {
        self.push(c, Op::RemoveCollection)
    }
    /// See [`Op::Split`].
    pub fn split(&mut self, c: CollectionId, bits: u8, to: CollectionId) -> &mut Self {
        self.push(c, Op::Split { bits, to })
    }
    /// See [`Op::Merge`].
    pub fn merge(&mut self, c: CollectionId, bits: u8, to: CollectionId) -> &mut Self {
        self.push(c, Op::Merge { bits, to })
    }
    /// See [`Op::Rename`]; an absent source is an error.
    pub fn rename(&mut self, c: CollectionId, from: ObjectId, to_collection: CollectionId, to: ObjectId) -> &mut Self {
        self.push(c, Op::Rename { from, to_collection, to, must_exist: true })
    }
    /// See [`Op::Rename`]; an absent source changes nothing.
    pub fn try_rename(
        &mut self,
        c: CollectionId,
        from: ObjectId,
        to_collection: CollectionId,
        to: ObjectId,
    ) -> &mut Self {
        self.push(c, Op::Rename { from, to_collection, to, must_exist: false })
    }
    /// See [`Op::Hint`].
    pub fn hint(&mut self, c: CollectionId, oid: ObjectId, hint: AllocHint) -> &mut Self {
        self.push(c, Op::Hint { oid, hint })
    }
}
