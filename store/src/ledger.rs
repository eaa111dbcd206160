//! The ledger: every byte written, counted where it is issued, and what the user asked for.
//!
//! Two counts are kept apart: by class, when an I/O is queued, and by type of operation, when a
//! transaction is planned. On a store at rest they agree.

use std::ops::{AddAssign, Index, IndexMut, Sub};

use crate::txn::{Op, Transaction};

/// Whether anything is counted; not with the feature `no-ledger`, which is there to measure what
/// counting costs.
pub const LEDGER: bool = !cfg!(feature = "no-ledger");

macro_rules! op_kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal,)*) => {
        /// Types of operations, as bytes are counted by them.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum OpKind {
            $($(#[$doc])* $kind,)*
        }

        /// Every type, in order of its number.
        pub const OP_KINDS: [OpKind; [$($name),*].len()] = [$(OpKind::$kind,)*];

        impl OpKind {
            /// Its name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(OpKind::$kind => $name,)*
                }
            }
        }
    };
}

op_kinds! {
    /// [`Op::Write`] of whole blocks.
    Write "write",
    /// [`Op::Write`] that begins or ends inside a block.
    WritePartial "write_partial",
    /// [`Op::Zero`].
    Zero "zero",
    /// [`Op::Truncate`].
    Truncate "truncate",
    /// [`Op::Touch`].
    Touch "touch",
    /// [`Op::Create`].
    Create "create",
    /// [`Op::Remove`].
    Remove "remove",
    /// [`Op::Rename`].
    Rename "rename",
    /// [`Op::Clone`].
    Clone "clone",
    /// [`Op::CloneRange`].
    CloneRange "clone_range",
    /// [`Op::SetAttr`].
    SetAttr "set_attr",
    /// [`Op::RmAttr`].
    RmAttr "rm_attr",
    /// [`Op::RmAttrs`].
    RmAttrs "rm_attrs",
    /// [`Op::OmapSet`].
    OmapSet "omap_set",
    /// [`Op::OmapRmKeys`].
    OmapRmKeys "omap_rm_keys",
    /// [`Op::OmapRmRange`].
    OmapRmRange "omap_rm_range",
    /// [`Op::OmapClear`].
    OmapClear "omap_clear",
    /// [`Op::OmapSetHeader`].
    OmapSetHeader "omap_set_header",
    /// [`Op::Hint`].
    Hint "hint",
    /// [`Op::MakeCollection`].
    MakeCollection "make_collection",
    /// [`Op::RemoveCollection`].
    RemoveCollection "remove_collection",
    /// [`Op::Split`].
    Split "split",
    /// [`Op::Merge`].
    Merge "merge",
    /// A transaction without operations.
    Empty "empty",
    /// Records of the engine's own: the account of pre-written space.
    Engine "engine",
    /// Deferred contents that replay wrote in place; whose they were, the log does not say.
    Replay "replay",
}

impl OpKind {
    /// The type of an operation.
    pub fn of(op: &Op) -> OpKind {
        use crate::format::BLOCK_LEN;
        match op {
            Op::Write { offset, data, .. } => match (*offset | data.len() as u64) % BLOCK_LEN {
                0 => OpKind::Write,
                _ => OpKind::WritePartial,
            },
            Op::Zero { .. } => OpKind::Zero,
            Op::Truncate { .. } => OpKind::Truncate,
            Op::Touch(_) => OpKind::Touch,
            Op::Create(_) => OpKind::Create,
            Op::Remove(_) => OpKind::Remove,
            Op::Rename { .. } => OpKind::Rename,
            Op::Clone { .. } => OpKind::Clone,
            Op::CloneRange { .. } => OpKind::CloneRange,
            Op::SetAttr { .. } => OpKind::SetAttr,
            Op::RmAttr { .. } => OpKind::RmAttr,
            Op::RmAttrs(_) => OpKind::RmAttrs,
            Op::OmapSet { .. } => OpKind::OmapSet,
            Op::OmapRmKeys { .. } => OpKind::OmapRmKeys,
            Op::OmapRmRange { .. } => OpKind::OmapRmRange,
            Op::OmapClear(_) => OpKind::OmapClear,
            Op::OmapSetHeader { .. } => OpKind::OmapSetHeader,
            Op::Hint { .. } => OpKind::Hint,
            Op::MakeCollection { .. } => OpKind::MakeCollection,
            Op::RemoveCollection => OpKind::RemoveCollection,
            Op::Split { .. } => OpKind::Split,
            Op::Merge { .. } => OpKind::Merge,
        }
    }
}

macro_rules! bytes {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Sub for $name {
            type Output = $name;
            fn sub(self, earlier: $name) -> $name {
                $name { $($field: self.$field - earlier.$field),* }
            }
        }
    };
}

bytes! {
    /// What the operations of one type wrote.
    OpBytes {
        /// Operations (transactions, where there is no operation).
        ops: u64,
        /// Bytes the user asked to be written.
        user: u64,
        /// Data written direct.
        data_direct: u64,
        /// Deferred contents written in place.
        data_deferred: u64,
        /// Deferred contents in the log.
        log_payload: u64,
        /// Metadata in the log: records without their deferred contents.
        log_metadata: u64,
    }
}

impl AddAssign for OpBytes {
    fn add_assign(&mut self, more: OpBytes) {
        self.ops += more.ops;
        self.user += more.user;
        self.data_direct += more.data_direct;
        self.data_deferred += more.data_deferred;
        self.log_payload += more.log_payload;
        self.log_metadata += more.log_metadata;
    }
}

/// Bytes by type of operation. What several operations of one transaction change together, a block
/// or the value of a key, is written once and counts for the last of them. What a record holds
/// beside keys, values and deferred contents (counts, lengths, references to data) counts for the
/// transaction's first operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ByOp([OpBytes; OP_KINDS.len()]);

impl ByOp {
    /// Every type that wrote or asked for anything, with its bytes.
    pub fn iter(&self) -> impl Iterator<Item = (OpKind, &OpBytes)> {
        OP_KINDS.into_iter().zip(&self.0).filter(|(_, b)| **b != OpBytes::default())
    }

    /// The sum over all types.
    pub fn total(&self) -> OpBytes {
        let mut sum = OpBytes::default();
        self.0.iter().for_each(|b| sum += *b);
        sum
    }
}

impl Index<OpKind> for ByOp {
    type Output = OpBytes;
    fn index(&self, kind: OpKind) -> &OpBytes {
        &self.0[kind as usize]
    }
}

impl IndexMut<OpKind> for ByOp {
    fn index_mut(&mut self, kind: OpKind) -> &mut OpBytes {
        &mut self.0[kind as usize]
    }
}

impl Sub for ByOp {
    type Output = ByOp;
    fn sub(self, earlier: ByOp) -> ByOp {
        ByOp(std::array::from_fn(|i| self.0[i] - earlier.0[i]))
    }
}

bytes! {
    /// Bytes since the store was mounted.
    Ledger {
        /// Object data the user asked to be written.
        user_data: u64,
        /// Omap keys, values and headers the user asked to be written.
        user_omap: u64,
        /// Attributes the user asked to be written.
        user_attrs: u64,
        /// Data written direct to newly allocated blocks.
        data_direct: u64,
        /// Deferred contents written in place.
        data_deferred: u64,
        /// Deferred contents in the log.
        log_payload: u64,
        /// Metadata in the log: records without their deferred contents.
        log_metadata: u64,
        /// Zeros that fill log batches to whole blocks.
        log_padding: u64,
        /// Headers of batches, length fields of records, and the log's own header.
        log_header: u64,
        /// Zeros written to data space ahead of need.
        prewrite: u64,
        /// What making the store wrote beside pre-written data space: the log's zeros and header, the
        /// superblock, the key-value store. Only in what [`Store::mkfs`](crate::Store::mkfs) returns.
        mkfs: u64,
        /// Object data read from the medium.
        data_read: u64,
        /// The same by type of operation.
        by_op: ByOp,
    }
}

impl Ledger {
    /// Changes it, unless nothing is counted.
    pub(crate) fn count(&mut self, f: impl FnOnce(&mut Ledger)) {
        if LEDGER {
            f(self);
        }
    }

    /// Counts what a transaction asks for; `first` is the type of its first operation.
    pub(crate) fn asked(&mut self, txn: &Transaction, first: OpKind) {
        if txn.ops().is_empty() {
            self.by_op[first].ops += 1;
        }
        for (_, op) in txn.ops() {
            let user = op.user_bytes();
            self.user_data += user.data;
            self.user_attrs += user.attrs;
            self.user_omap += user.omap;
            let by = &mut self.by_op[OpKind::of(op)];
            by.ops += 1;
            by.user += user.total();
        }
    }

    /// All log bytes.
    pub fn log(&self) -> u64 {
        self.log_payload + self.log_metadata + self.log_padding + self.log_header
    }

    /// All data bytes that a user's operations caused.
    pub fn data(&self) -> u64 {
        self.data_direct + self.data_deferred
    }

    /// What the user asked to be written.
    pub fn user(&self) -> u64 {
        self.user_data + self.user_omap + self.user_attrs
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        *self - *earlier
    }
}

/// How often each path was taken since the store was mounted; what happened while mounting counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Transactions acknowledged.
    pub commits: u64,
    /// Transactions refused.
    pub refused: u64,
    /// Of them, for lack of space.
    pub enospc_refused: u64,
    /// Log batches written.
    pub batches: u64,
    /// Of them, with more than one record.
    pub group_commits: u64,
    /// Flushes of the media asked for.
    pub syncs: u64,
    /// Times the log began again at its first segment.
    pub log_wraps: u64,
    /// Transactions that waited because the log was full.
    pub log_full_waits: u64,
    /// Transactions that waited for space to come out of limbo or to be pre-written.
    pub space_waits: u64,
    /// Times the allocator's search went round.
    pub allocator_wraps: u64,
    /// Overwrites of shared blocks that went elsewhere.
    pub cow_copies: u64,
    /// Lookups of metadata that were not in memory, done by another thread.
    pub lookups_elsewhere: u64,
    /// Blocks read to overwrite a part of them.
    pub blocks_fetched: u64,
    /// Deferred blocks written in place.
    pub deferred_applied: u64,
    /// Deferred blocks overwritten before they were written.
    pub deferred_coalesced: u64,
    /// Deferred blocks freed before they were written.
    pub deferred_dropped: u64,
    /// Flushes of the key-value store asked for.
    pub kv_flushes: u64,
    /// Log trims.
    pub trims: u64,
    /// Blocks of data found in memory.
    pub cache_hits: u64,
    /// Reads repeated because the block changed under them.
    pub reads_retried: u64,
    /// Blocks whose checksum did not match.
    pub damaged_blocks: u64,
    /// Records replayed at mount.
    pub records_replayed: u64,
    /// Records at the end of the log not believed at mount: their data was not there.
    pub records_cut: u64,
    /// Torn tails of the log cut at mount.
    pub torn_tails_cut: u64,
    /// Deferred blocks written by replay.
    pub deferred_replayed: u64,
    /// Mounts that walked every extent map because there was no snapshot to believe.
    pub allocator_rebuilds: u64,
}
