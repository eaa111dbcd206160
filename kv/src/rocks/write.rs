//! Turns a batch of operations into one of RocksDB's.

use super::{RocksKv, error, iter};
use crate::format::{MARKER_LEN, encode_marker};
use crate::traits::{CFS, Cf, KvError, KvOp, MARKER_KEY};
use rocksdb::{ColumnFamily, ErrorKind, ReadOptions, WriteBatch};
use std::sync::PoisonError;

/// A range with at most so many keys is deleted key by key. A range tombstone costs every later
/// read of the family that has to look past it, so it must be worth that.
pub const RANGE_DELETE_SINGLES_MAX: usize = 128;

/// The search for those keys gives up after passing so many deleted ones: a range emptied again
/// and again becomes one range tombstone, which also covers the old ones.
pub const RANGE_DELETE_SKIPS_MAX: u64 = 1024;

/// Bytes of a batch's header and, at most, of one record beside its key and value.
const BATCH_HEADER_BYTES: usize = 12;
const RECORD_HEADER_BYTES: usize = 16;

impl RocksKv {
    /// See [`crate::Kv::write`].
    pub(super) fn apply(&self, ops: &[KvOp], lsn: u64) -> Result<(), KvError> {
        if ops.is_empty() {
            return Ok(());
        }
        let _one_at_a_time = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.alive()?;
        let mut families: [Option<&ColumnFamily>; 5] = [None; 5];
        let mut batch = WriteBatch::with_capacity_bytes(capacity(ops));
        for (n, op) in ops.iter().enumerate() {
            let cf = op.cf();
            let family = *families[cf as usize].get_or_insert_with(|| self.family(cf));
            match op {
                KvOp::Put { key, value, .. } => {
                    assert!(!key.is_empty(), "the empty key is the marker's");
                    batch.put_cf(family, key, value);
                }
                KvOp::Delete { key, .. } => {
                    assert!(!key.is_empty(), "the empty key is the marker's");
                    batch.delete_cf(family, key);
                }
                KvOp::DeleteRange { from, to, .. } => {
                    self.delete_range(&mut batch, family, &ops[..n], cf, from, to)?;
                }
            }
        }
        let marker = encode_marker(lsn);
        for family in families.into_iter().flatten() {
            batch.put_cf(family, MARKER_KEY, marker);
        }
        let bytes = batch.size_in_bytes() as u64;
        self.db.write_opt(batch, &self.write_options).map_err(|e| self.stop(error::failed("write", e)))?;
        if let Some(log) = &self.log_trace {
            log.log_appended(bytes);
        }
        Ok(())
    }

    /// Deletes the keys of a small range one by one: those in the store, found by a bounded
    /// iterator, and those that `earlier` operations of the same batch put, which the iterator
    /// cannot see yet. Nothing else can add a key meanwhile: writers are serialised.
    fn delete_range(
        &self,
        batch: &mut WriteBatch,
        family: &ColumnFamily,
        earlier: &[KvOp],
        cf: Cf,
        from: &[u8],
        to: &[u8],
    ) -> Result<(), KvError> {
        let from = if from == MARKER_KEY { iter::FIRST_KEY } else { from };
        if from >= to {
            return Ok(());
        }
        let put_before = || {
            earlier.iter().filter_map(|op| match op {
                KvOp::Put { cf: c, key, .. } if *c == cf && key[..] >= *from && key[..] < *to => Some(key.as_slice()),
                _ => None,
            })
        };
        let found = if put_before().nth(RANGE_DELETE_SINGLES_MAX).is_some() {
            None
        } else {
            self.small_range(family, from, to)?
        };
        let Some(stored) = found else {
            batch.delete_range_cf(family, from, to);
            return Ok(());
        };
        for key in stored.iter().map(Vec::as_slice).chain(put_before()) {
            batch.delete_cf(family, key);
        }
        Ok(())
    }

    /// The keys of `from..to` in the store, or `None` if they are too many.
    fn small_range(&self, family: &ColumnFamily, from: &[u8], to: &[u8]) -> Result<Option<Vec<Vec<u8>>>, KvError> {
        let mut o = ReadOptions::default();
        o.set_max_skippable_internal_keys(RANGE_DELETE_SKIPS_MAX);
        let mut keys = Vec::new();
        let Some(mut raw) = iter::seek(&self.db, family, from, to, o) else {
            return Ok(Some(keys));
        };
        while let Some(key) = raw.key() {
            if keys.len() == RANGE_DELETE_SINGLES_MAX {
                return Ok(None);
            }
            keys.push(key.to_vec());
            raw.next();
        }
        match raw.status() {
            Ok(()) => Ok(Some(keys)),
            Err(e) if e.kind() == ErrorKind::Incomplete => Ok(None),
            Err(e) => Err(self.stop(error::failed("range delete", e))),
        }
    }
}

/// Enough for all of `ops` but the keys of range deletes, so that the batch is allocated once.
fn capacity(ops: &[KvOp]) -> usize {
    let records: usize = ops
        .iter()
        .map(|op| match op {
            KvOp::Put { key, value, .. } => RECORD_HEADER_BYTES + key.len() + value.len(),
            KvOp::Delete { key, .. } => RECORD_HEADER_BYTES + key.len(),
            KvOp::DeleteRange { from, to, .. } => RECORD_HEADER_BYTES + from.len() + to.len(),
        })
        .sum();
    BATCH_HEADER_BYTES + records + CFS.len() * (RECORD_HEADER_BYTES + MARKER_LEN)
}
