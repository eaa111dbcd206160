//! Which operation of a transaction wrote what, for the ledger; see [`ByOp`](crate::ledger::ByOp)
//! for the rule.

use std::collections::BTreeMap;

use bytes::Bytes;
use lodestore_kv::KvOp;

use crate::deferred::Overwrite;
use crate::ledger::{ByOp, LEDGER, OpBytes, OpKind};
use crate::txn::Transaction;

/// Something that a transaction writes once, however often it changes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Written {
    Onode(Vec<u8>),
    Chunk(u64, u32),
    Region(u64),
    /// Blocks written direct, by the first.
    Direct(u64),
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Origins {
    first: OpKind,
    now: OpKind,
    /// Only of a transaction with operations of several types: in any other, everything is the
    /// first one's.
    mixed: Option<Mixed>,
}

#[derive(Debug, Default)]
struct Mixed {
    last: BTreeMap<Written, OpKind>,
    /// Of [`Draft::ops`](super::Draft), one by one.
    ops: Vec<OpKind>,
}

impl Origins {
    pub fn of(txn: &Transaction) -> Self {
        let mut kinds = txn.ops().iter().map(|(_, op)| OpKind::of(op));
        let first = kinds.next().unwrap_or(OpKind::Empty);
        let mixed = LEDGER && kinds.any(|k| k != first);
        Origins { first, now: first, mixed: mixed.then(Mixed::default) }
    }

    /// An operation is planned from here on.
    pub fn begin(&mut self, kind: OpKind) {
        self.now = kind;
    }

    /// It is planned, and there are so many operations on the key-value store that keep their order.
    pub fn end(&mut self, ops: usize) {
        if let Some(m) = &mut self.mixed {
            m.ops.resize(ops, self.now);
        }
    }

    /// The operation at work.
    pub fn now(&self) -> OpKind {
        self.now
    }

    /// The operation at work changes this.
    pub fn mark(&mut self, what: impl FnOnce() -> Written) {
        if let Some(m) = &mut self.mixed {
            m.last.insert(what(), self.now);
        }
    }

    /// `what` was divided: this is a part of it.
    pub fn split(&mut self, what: Written, part: Written) {
        if let Some(m) = &mut self.mixed
            && let Some(kind) = m.last.get(&what).copied()
        {
            m.last.insert(part, kind);
        }
    }

    /// The shares of the operations on the key-value store that keep their order.
    pub fn shares(self, ops: &[KvOp]) -> Shares {
        let mut shares = Shares { first: self.first, parts: Vec::new(), last: BTreeMap::new() };
        if let Some(m) = self.mixed {
            for (op, kind) in ops.iter().zip(m.ops) {
                shares.add(kind, |b| b.log_metadata += key_and_value(op));
            }
            shares.last = m.last;
        }
        shares
    }
}

/// What each type of operation wrote in a transaction.
#[derive(Debug)]
pub struct Shares {
    first: OpKind,
    /// Nothing where everything is the first one's.
    parts: Vec<(OpKind, OpBytes)>,
    last: BTreeMap<Written, OpKind>,
}

impl Default for Shares {
    /// Of a record of the engine's own.
    fn default() -> Self {
        Shares { first: OpKind::Engine, parts: Vec::new(), last: BTreeMap::new() }
    }
}

impl Shares {
    /// The type of the transaction's first operation.
    pub fn first(&self) -> OpKind {
        self.first
    }

    fn add(&mut self, kind: OpKind, f: impl FnOnce(&mut OpBytes)) {
        let i = self.parts.iter().position(|(k, _)| *k == kind).unwrap_or_else(|| {
            self.parts.push((kind, OpBytes::default()));
            self.parts.len() - 1
        });
        f(&mut self.parts[i].1);
    }

    /// Adds a key and its value.
    pub(super) fn metadata(&mut self, what: impl FnOnce() -> Written, op: &KvOp) {
        if !self.last.is_empty()
            && let Some(kind) = self.last.get(&what()).copied()
        {
            self.add(kind, |b| b.log_metadata += key_and_value(op));
        }
    }

    /// Adds direct writes.
    pub(super) fn direct(&mut self, writes: &[(u64, Bytes)]) {
        if self.last.is_empty() {
            return;
        }
        for (place, data) in writes {
            let kind = self.last.get(&Written::Direct(*place)).copied().unwrap_or(self.first);
            self.add(kind, |b| b.data_direct += data.len() as u64);
        }
    }

    /// Adds deferred contents.
    pub(super) fn deferred(&mut self, blocks: &[Overwrite]) {
        if self.last.is_empty() {
            return;
        }
        for b in blocks {
            self.add(b.by, |bytes| bytes.log_payload += b.data.len() as u64);
        }
    }

    /// Adds a transaction's bytes to the ledger: `all` of them, divided as far as is known.
    pub fn charge(&self, ledger: &mut ByOp, all: OpBytes) {
        let mut rest = all;
        for (kind, part) in &self.parts {
            ledger[*kind] += *part;
            rest = rest - *part;
        }
        ledger[self.first] += rest;
    }
}

/// Bytes of an operation's keys and value.
fn key_and_value(op: &KvOp) -> u64 {
    let n = match op {
        KvOp::Put { key, value, .. } => key.len() + value.len(),
        KvOp::Delete { key, .. } => key.len(),
        KvOp::DeleteRange { from, to, .. } => from.len() + to.len(),
    };
    n as u64
}
