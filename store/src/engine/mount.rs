//! Mounting: replay, then the allocator.
//!
//! Replay may be interrupted anywhere and begun again: it writes nothing but what the log says,
//! and the log is restarted (which is what ends the life of its old records) only when everything
//! it held is durable elsewhere.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use lodestore_aio::{AlignedBuf, Disk, IoOp, Ring, run};
use lodestore_kv::{CFS, Cf, Kv, KvOp};
use lodestore_wal::{HEADER_CHANGE_BYTES, Reader, Tail};

use super::parts::Parts;
use super::{DataFile, Engine};
use crate::alloc::{Allocator, Limbo};
use crate::bugs::{self, Bug};
use crate::config::EngineConfig;
use crate::datacache::DataCache;
use crate::deferred::DeferredSet;
use crate::error::Error;
use crate::format::chunk::Chunk;
use crate::format::record::{self, DataRef};
use crate::format::snapshot::{self, Head};
use crate::format::superblock::Superblock;
use crate::format::{BLOCK_LEN, damaged, key, small};
use crate::ledger::{Counters, Ledger, OpKind};
use crate::meta::Meta;
use crate::types::Lsn;

/// Deferred contents gathered before they are written, while replaying.
const REPLAY_BYTES_MAX: u64 = 32 << 20;
/// Metadata changes gathered before they are given to the key-value store.
const REPLAY_OPS_MAX: usize = 4096;
/// Blocks read at a time to compare data with its record.
const VERIFY_BLOCKS: u64 = 256;

impl Engine {
    /// Opens the store on `disk`, replays its log and returns it ready to work.
    pub fn mount(disk: Box<dyn Disk>, kv: Arc<dyn Kv>, config: EngineConfig) -> Result<Engine, Error> {
        Engine::mount_with(disk, |_| Ok(kv), config)
    }

    /// The same, with a key-value store that is opened only when superblock, fragment files and log
    /// were found to belong together and to be whole: opening it may change it.
    pub fn mount_with(
        mut disk: Box<dyn Disk>,
        open_kv: impl FnOnce(&Superblock) -> Result<Arc<dyn Kv>, Error>,
        config: EngineConfig,
    ) -> Result<Engine, Error> {
        let parts = Parts::open(&mut *disk)?;
        let mut ring = disk.ring(config.depth.max(8))?;
        let labels = parts.labels(&mut *ring)?;
        // After a mere kill, what was written but not flushed is still to be seen. Nothing may be
        // done because of it before it is durable: a power failure could take it back.
        let all = parts.data.iter().map(|d| d.file.mask()).fold(parts.log.mask(), |a, b| a | b);
        if !bugs::enabled(Bug::BelieveUnflushedLog) {
            run(&mut *ring, IoOp::Sync { files: all })?;
        }
        let reader = Reader::open(&mut *ring, parts.log, parts.superblock.uuid)?;
        let kv = open_kv(&parts.superblock)?;
        let clean = reader.was_closed().then(|| reader.lsn_max());
        parts.check_kv(&*kv, clean, &labels)?;
        let Parts { superblock, data, log: log_file } = parts;
        let total = superblock.layout.data.iter().sum::<u64>() / BLOCK_LEN;
        let mut replay = Replay {
            ring: &mut *ring,
            kv: &*kv,
            data: &data,
            counters: Counters::default(),
            ledger: Ledger::default(),
        };
        let (wal, last) = replay.run(reader)?;
        let (mut counters, mut ledger) = (replay.counters, replay.ledger);
        ledger.count(|l| l.log_header += HEADER_CHANGE_BYTES);

        let usable = match kv.get(Cf::Meta, key::PREWRITTEN)? {
            Some(v) => small::decode_u64("pre-written space", &v)?,
            None => return Err(damaged("pre-written space", "its record is missing")),
        };
        if usable > total {
            return Err(damaged("pre-written space", format_args!("{usable} of {total} blocks")));
        }
        let (space, damage) = match load_snapshot(&*kv, clean, total, usable)? {
            Some(s) => (s, None),
            None => {
                counters.allocator_rebuilds += 1;
                rebuild(&*kv, total, usable)?
            }
        };
        // With an extent map that cannot be read nobody knows which blocks are free.
        let poison = damage.map(|e| Arc::from(format!("{e}: which blocks are free is not known")));
        let max_record = wal.record_len_max();
        let mut config = config;
        // Deferred contents must leave room for the metadata of the same record.
        config.deferred_max = config.deferred_max.min(max_record / 2);
        Ok(Engine {
            cache: DataCache::new(config.data_cache_bytes),
            meta: Meta::load(kv.clone(), config.meta_cache_bytes)?,
            config,
            ring,
            kv,
            wal,
            log_file,
            data,
            label_uuid: superblock.has_labels().then_some(superblock.uuid),
            alloc: space.alloc,
            limbo: Limbo::default(),
            deferred: DeferredSet::default(),
            writing: BTreeMap::new(),
            next_seq: 0,
            queue: VecDeque::new(),
            groups: VecDeque::new(),
            next_group: 0,
            unapplied: VecDeque::new(),
            flights: HashMap::new(),
            pending: Default::default(),
            barriers: VecDeque::new(),
            reads: HashMap::new(),
            fetches: HashMap::new(),
            read_ios: HashMap::new(),
            next_fetch: 0,
            open_payload: 0,
            events: Vec::new(),
            jobs: VecDeque::new(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            acked: last,
            applied: last,
            flushed: last,
            flushing: false,
            trimmed: last,
            trim_goal: 0,
            lone_sync: false,
            applies: HashMap::new(),
            next_apply: 0,
            space_wanted: false,
            prewriting: None,
            more_to_come: false,
            stored: space.stored,
            objects: space.objects,
            ledger,
            counters,
            poison,
            behind: Default::default(),
            done: Vec::new(),
        })
    }
}

struct Replay<'a> {
    ring: &'a mut dyn Ring,
    kv: &'a dyn Kv,
    data: &'a [DataFile],
    counters: Counters,
    ledger: Ledger,
}

impl Replay<'_> {
    /// Replays the log and restarts it behind its last record; returns that record's LSN.
    fn run(&mut self, mut reader: Reader) -> Result<(lodestore_wal::Writer, Lsn), Error> {
        let mut markers = [0; CFS.len()];
        for cf in CFS {
            markers[cf as usize] = self.kv.marker(cf)?;
        }
        let ahead = markers.iter().max().copied().unwrap_or(0);
        if ahead > reader.lsn_max() {
            return Err(Error::MountDamaged(format!(
                "the key-value store has changes up to LSN {ahead}, the log ends at {}: its end was lost. Nothing was changed; restore from a replica or a backup",
                reader.lsn_max()
            )));
        }
        let mut last = reader.trim();
        let mut ops: Vec<KvOp> = Vec::new();
        let mut deferred: BTreeMap<u64, Bytes> = BTreeMap::new();
        let mut deferred_bytes = 0;
        while let Some(r) = reader.next(self.ring)? {
            let body = record::decode(&r.body)?;
            if !r.acked && !self.data_is_there(&body.data)? {
                self.counters.records_cut += reader.lsn_max() - r.lsn + 1;
                break;
            }
            self.counters.records_replayed += 1;
            last = r.lsn;
            ops.extend(body.ops.into_iter().filter(|op| r.lsn > markers[op.cf() as usize]));
            for d in body.deferred {
                deferred_bytes += d.data.len() as u64;
                for i in 0..d.data.len() as u64 / BLOCK_LEN {
                    let contents = d.data.slice((i * BLOCK_LEN) as usize..((i + 1) * BLOCK_LEN) as usize);
                    deferred.insert(d.place + i, contents);
                }
            }
            if ops.len() >= REPLAY_OPS_MAX {
                self.kv.write(&std::mem::take(&mut ops), last)?;
            }
            if deferred_bytes >= REPLAY_BYTES_MAX {
                self.write_deferred(&mut deferred)?;
                deferred_bytes = 0;
            }
        }
        if ahead > last {
            return Err(Error::MountDamaged(format!(
                "the key-value store has changes up to LSN {ahead}, the data of LSN {} in the log is damaged; restore from a replica or a backup",
                last + 1
            )));
        }
        self.counters.torn_tails_cut += u64::from(matches!(reader.tail(), Tail::Torn { .. }));
        self.kv.write(&ops, last)?;
        self.write_deferred(&mut deferred)?;
        let files = self.data.iter().map(|d| d.file.mask()).fold(0, |a, b| a | b);
        run(self.ring, IoOp::Sync { files })?;
        self.counters.syncs += 1;
        if self.counters.records_replayed > 0 {
            self.kv.flush()?;
        }
        fail::fail_point!("mount::before_restart");
        Ok((reader.restart(self.ring, last + 1)?, last))
    }

    /// Whether the blocks a record wrote hold what it wrote.
    fn data_is_there(&mut self, refs: &[DataRef]) -> Result<bool, Error> {
        if bugs::enabled(Bug::ReplayWithoutChecksumRule) {
            return Ok(true);
        }
        for r in refs {
            let mut crc = 0;
            let mut at = 0;
            while at < u64::from(r.blocks) {
                let d = self.file_of(r.place + at)?;
                let offset = (r.place + at - d.first) * BLOCK_LEN;
                let n = (u64::from(r.blocks) - at).min(VERIFY_BLOCKS).min(d.first + d.blocks - r.place - at);
                let (file, buf) = (d.file, AlignedBuf::zeroed((n * BLOCK_LEN) as usize));
                let buf = run(self.ring, IoOp::Read { file, offset, buf })?.expect("a read returns its buffer");
                for b in buf.chunks_exact(BLOCK_LEN as usize) {
                    crc = crc32c::crc32c_append(crc, &crc32c::crc32c(b).to_le_bytes());
                }
                at += n;
            }
            if crc != r.crc {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn file_of(&self, place: u64) -> Result<&DataFile, Error> {
        let i = self.data.partition_point(|d| d.first + d.blocks <= place);
        self.data.get(i).ok_or_else(|| damaged("log record", format_args!("block {place} is beyond the data space")))
    }

    fn write_deferred(&mut self, deferred: &mut BTreeMap<u64, Bytes>) -> Result<(), Error> {
        let blocks = std::mem::take(deferred);
        if bugs::enabled(Bug::DeferredNotReplayed) {
            return Ok(());
        }
        for (place, contents) in blocks {
            let d = self.file_of(place)?;
            let (file, offset) = (d.file, (place - d.first) * BLOCK_LEN);
            let data = AlignedBuf::copy_of(&contents).freeze();
            run(self.ring, IoOp::Write { file, offset, data, dsync: false })?;
            self.counters.deferred_replayed += 1;
            self.ledger.count(|l| {
                l.data_deferred += BLOCK_LEN;
                l.by_op[OpKind::Replay].data_deferred += BLOCK_LEN;
            });
        }
        Ok(())
    }
}

/// Free space and totals.
pub(super) struct Space {
    pub alloc: Allocator,
    pub stored: u64,
    pub objects: u64,
}

/// The snapshot of a clean unmount, if the log says it is the last thing that happened.
fn load_snapshot(kv: &dyn Kv, clean: Option<Lsn>, total: u64, usable: u64) -> Result<Option<Space>, Error> {
    let (Some(end), Some(head)) = (clean, kv.get(Cf::Meta, &key::snapshot(0))?) else { return Ok(None) };
    let head = Head::decode(&head)?;
    if head.lsn != end {
        return Ok(None);
    }
    let mut alloc = Allocator::new(total, usable);
    let mut at = 0;
    for part in 1..=head.parts {
        let bytes = kv.get(Cf::Meta, &key::snapshot(part))?;
        let bytes = bytes.ok_or_else(|| damaged("allocator snapshot", format_args!("part {part} is missing")))?;
        for (gap, blocks) in snapshot::decode_runs(&bytes)? {
            let place = u64::checked_add(at, gap);
            let end = place.and_then(|p| p.checked_add(blocks)).filter(|e| *e <= usable && blocks > 0);
            let (Some(place), Some(end)) = (place, end) else {
                return Err(damaged("allocator snapshot", "a run lies outside the space"));
            };
            alloc.take_run(place, blocks);
            at = end;
        }
    }
    if usable - alloc.free_blocks() != head.used {
        return Err(damaged("allocator snapshot", "its runs do not add up"));
    }
    Ok(Some(Space { alloc, stored: head.stored, objects: head.objects }))
}

/// Walks every extent map. With the space returns the first one that could not be read.
pub(super) fn rebuild(kv: &dyn Kv, total: u64, usable: u64) -> Result<(Space, Option<Error>), Error> {
    let mut damage = None;
    let mut alloc = Allocator::new(total, usable);
    let mut stored = 0;
    for entry in kv.scan(Cf::Extent, &key::extent(0, 0), &key::extent(u64::MAX, u32::MAX)) {
        let chunk = match Chunk::decode(&entry?.1) {
            Ok(c) => c,
            Err(e) => {
                damage = damage.or(Some(e));
                continue;
            }
        };
        for slot in chunk.slots.iter().flatten() {
            // A block met again is shared, or used twice: fsck tells which.
            alloc.take(slot.place);
            stored += 1;
        }
    }
    let mut objects = 0;
    for entry in kv.scan(Cf::Onode, &[0], &[0xff; 16]) {
        entry?;
        objects += 1;
    }
    Ok((Space { alloc, stored, objects }, damage))
}
