//! Deferred contents on their way to the medium: each block's newest contents, and how far they
//! have come. A block overwritten again before it is written is written once.

use std::collections::BTreeMap;

use bytes::Bytes;
use lodestore_aio::AlignedBuf;

use crate::format::BLOCK_LEN;
use crate::ledger::OpKind;
use crate::types::Lsn;

/// Most blocks written by one I/O when deferred contents are applied: 1 MiB.
const APPLY_BLOCKS_MAX: usize = 256;

/// New contents of one block, to be written in place.
#[derive(Clone, Debug)]
pub struct Overwrite {
    /// The block.
    pub place: u64,
    /// Its contents, aligned in memory.
    pub data: Bytes,
    /// The operation they come from.
    pub by: OpKind,
}

/// See the module's description. By block: the record that holds the contents, and the contents.
#[derive(Debug, Default)]
pub struct DeferredSet {
    /// Planned; the record is not durable yet. Must not be written in place.
    planned: BTreeMap<u64, (Lsn, Overwrite)>,
    /// Durable in the log, waiting.
    ready: BTreeMap<u64, (Lsn, Overwrite)>,
    /// Being written in place. Never two writes of one block at a time.
    writing: BTreeMap<u64, (Lsn, Overwrite)>,
    /// Written in place, not synced.
    written: Vec<Lsn>,
    /// Of those, the ones that the sync in flight covers.
    syncing: Vec<Lsn>,
}

/// One write in place.
#[derive(Debug)]
pub struct Apply {
    /// First block.
    pub place: u64,
    /// Whole blocks, aligned in memory.
    pub data: Bytes,
    /// The operation that each block comes from.
    pub by: Vec<OpKind>,
}

impl DeferredSet {
    /// The newest contents of a block, durable or not.
    pub fn newest(&self, place: u64) -> Option<Bytes> {
        self.planned.get(&place).map(|(_, b)| b.data.clone()).or_else(|| self.durable(place))
    }

    /// The newest durable contents of a block that the medium may not have yet.
    pub fn durable(&self, place: u64) -> Option<Bytes> {
        self.ready.get(&place).or_else(|| self.writing.get(&place)).map(|(_, b)| b.data.clone())
    }

    /// Notes contents of a planned record.
    pub fn plan(&mut self, lsn: Lsn, blocks: &[Overwrite]) {
        self.planned.extend(blocks.iter().map(|b| (b.place, (lsn, b.clone()))));
    }

    /// The record is durable: its contents may be written. Returns how many older contents need
    /// not be written any more.
    pub fn promote(&mut self, lsn: Lsn, blocks: Vec<Overwrite>) -> u64 {
        let mut coalesced = 0;
        for new in blocks {
            let place = new.place;
            if self.planned.get(&place).is_some_and(|(l, _)| *l == lsn) {
                self.planned.remove(&place);
            }
            coalesced += u64::from(self.ready.insert(place, (lsn, new)).is_some());
        }
        coalesced
    }

    /// A durable record freed the blocks: what waits for them need not be written. Returns how
    /// many did.
    pub fn drop_freed(&mut self, place: u64, blocks: u64) -> u64 {
        let gone: Vec<u64> = self.ready.range(place..place + blocks).map(|(p, _)| *p).collect();
        gone.iter().for_each(|p| drop(self.ready.remove(p)));
        gone.len() as u64
    }

    /// After a failure: forgets what is not durable.
    pub fn forget_planned(&mut self) {
        self.planned.clear();
    }

    /// Bytes waiting to be written.
    pub fn ready_bytes(&self) -> u64 {
        self.ready.len() as u64 * BLOCK_LEN
    }

    /// Takes up to `max` writes out of what waits; blocks being written already stay.
    pub fn take(&mut self, max: usize) -> Vec<Apply> {
        let mut out: Vec<Apply> = Vec::new();
        while out.len() < max {
            let mut run: Vec<u64> = Vec::new();
            for place in self.ready.keys().filter(|p| !self.writing.contains_key(p)) {
                match run.last() {
                    Some(last) if *place != last + 1 || run.len() == APPLY_BLOCKS_MAX => break,
                    _ => run.push(*place),
                }
            }
            let Some(first) = run.first().copied() else { break };
            let mut data = AlignedBuf::with_capacity(run.len() * BLOCK_LEN as usize);
            let mut by = Vec::with_capacity(run.len());
            for place in run {
                let entry = self.ready.remove(&place).expect("listed above");
                data.extend(&entry.1.data);
                by.push(entry.1.by);
                self.writing.insert(place, entry);
            }
            out.push(Apply { place: first, data: data.freeze(), by });
        }
        out
    }

    /// A write in place is complete.
    pub fn wrote(&mut self, place: u64, blocks: u64) {
        for p in place..place + blocks {
            let (lsn, _) = self.writing.remove(&p).expect("was being written");
            self.written.push(lsn);
        }
    }

    /// A sync is about to be issued: it covers everything written so far.
    pub fn sync_issued(&mut self) {
        self.syncing.append(&mut self.written);
    }

    /// That sync is complete.
    pub fn synced(&mut self) {
        self.syncing.clear();
    }

    /// Whether something is written but not covered by any sync.
    pub fn wants_sync(&self) -> bool {
        !self.written.is_empty()
    }

    /// Whether everything durable is on the medium.
    pub fn is_settled(&self) -> bool {
        self.ready.is_empty() && self.writing.is_empty() && self.written.is_empty() && self.syncing.is_empty()
    }

    /// The oldest record whose contents replay would still need.
    pub fn oldest(&self) -> Option<Lsn> {
        let waiting = self.ready.values().chain(self.writing.values()).map(|(lsn, _)| *lsn);
        waiting.chain(self.written.iter().copied()).chain(self.syncing.iter().copied()).min()
    }
}
