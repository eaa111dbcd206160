//! The executable contract: a store of plain maps that says what every transaction and every read
//! must answer. It knows nothing of logs, extents or crashes.

mod apply;
mod object;
mod query;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lodestore::{CollectionId, Error, ObjectId, Op, Transaction};

pub use object::{BLOCK, Block, Object};

/// An error without its details: what the model and the engine must agree on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are those of lodestore::Error, which documents them")]
pub enum ErrKind {
    NoCollection,
    CollectionExists,
    NotEmpty,
    NoObject,
    ObjectExists,
    NoAttr,
    Invalid,
    TooLarge,
    NoSpace,
    Busy,
    Damaged,
    ReadFailed,
    Poisoned,
    Unmounted,
    Metadata,
    Io,
    Kv,
    Wal,
    Mount,
}

impl From<&Error> for ErrKind {
    fn from(e: &Error) -> Self {
        match e {
            Error::NoCollection(_) => ErrKind::NoCollection,
            Error::CollectionExists(_) => ErrKind::CollectionExists,
            Error::NotEmpty(_) => ErrKind::NotEmpty,
            Error::NoObject(..) => ErrKind::NoObject,
            Error::ObjectExists(..) => ErrKind::ObjectExists,
            Error::NoAttr(..) => ErrKind::NoAttr,
            Error::Invalid(_) => ErrKind::Invalid,
            Error::TooLarge { .. } | Error::RecordTooLarge { .. } => ErrKind::TooLarge,
            Error::NoSpace { .. } => ErrKind::NoSpace,
            Error::Busy { .. } => ErrKind::Busy,
            Error::Damaged { .. } => ErrKind::Damaged,
            Error::ReadFailed { .. } => ErrKind::ReadFailed,
            Error::Poisoned(_) => ErrKind::Poisoned,
            Error::Unmounted => ErrKind::Unmounted,
            Error::Metadata(_) => ErrKind::Metadata,
            Error::Io(_) => ErrKind::Io,
            Error::Kv(_) => ErrKind::Kv,
            Error::Wal(_) => ErrKind::Wal,
            Error::Mount(_) | Error::MountDamaged(_) => ErrKind::Mount,
        }
    }
}

/// A collection of the model.
#[derive(Clone, Debug, Default)]
pub struct Collection {
    /// How many low bits of the hash count.
    pub bits: u8,
    /// Objects in listing order.
    pub objects: BTreeMap<ObjectId, Arc<Object>>,
}

/// The whole store. Cheap to clone: everything big is shared until it changes.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Collections in order of pool and seed.
    pub collections: BTreeMap<CollectionId, Arc<Collection>>,
}

/// The low `bits` bits of a hash.
pub fn low_bits(hash: u32, bits: u8) -> u32 {
    if bits >= 32 { hash } else { hash & ((1u32 << bits) - 1) }
}

impl Model {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a transaction whole, or refuses it and changes nothing.
    pub fn apply(&mut self, t: &Transaction) -> Result<(), ErrKind> {
        let mut next = self.clone();
        apply::size(t)?;
        for (c, op) in t.ops() {
            apply::op(&mut next, *c, op)?;
        }
        *self = next;
        Ok(())
    }

    /// The object, if collection and object are there.
    pub fn object(&self, c: CollectionId, oid: &ObjectId) -> Option<&Arc<Object>> {
        self.collections.get(&c).and_then(|c| c.objects.get(oid))
    }

    /// Every object with its collection.
    pub fn objects(&self) -> impl Iterator<Item = (CollectionId, &ObjectId, &Arc<Object>)> {
        self.collections.iter().flat_map(|(c, coll)| coll.objects.iter().map(move |(o, obj)| (*c, o, obj)))
    }

    /// Bytes of distinct blocks: one shared by clones counts once.
    pub fn allocated(&self) -> u64 {
        let distinct: BTreeSet<*const u8> =
            self.objects().flat_map(|(_, _, o)| o.blocks.values().map(|b| b.as_ptr())).collect();
        distinct.len() as u64 * BLOCK
    }

    /// Bytes of mapped blocks: one shared by clones counts for each.
    pub fn stored(&self) -> u64 {
        self.objects().map(|(_, _, o)| o.blocks.len() as u64 * BLOCK).sum()
    }

    /// An upper bound for the bytes of new blocks that a transaction may need.
    pub fn needed_at_most(&self, t: &Transaction) -> u64 {
        let span = |offset: u64, len: u64| {
            if len == 0 { 0 } else { (offset.saturating_add(len) - 1) / BLOCK - offset / BLOCK + 1 }
        };
        let blocks: u64 = t
            .ops()
            .iter()
            .map(|(_, op)| match op {
                Op::Write { offset, data, .. } => span(*offset, data.len() as u64),
                Op::Zero { .. } => 2,
                Op::Truncate { .. } => 2,
                Op::CloneRange { to_offset, len, from, from_offset, .. } => {
                    let size = self.objects().filter(|(_, o, _)| *o == from).map(|(_, _, o)| o.size).max().unwrap_or(0);
                    // An earlier operation of the same transaction may have made `from` larger.
                    let grown = t.user_bytes() + size;
                    // Each block of the target may take a piece of two blocks of the source, one by one.
                    2 * span(*to_offset, (*len).min(grown.saturating_sub(*from_offset).max(grown))) + 2
                }
                _ => 0,
            })
            .sum();
        blocks * BLOCK
    }
}
