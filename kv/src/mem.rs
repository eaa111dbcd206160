//! The key-value store in memory, with a model of what a crash leaves of RocksDB.
//!
//! With its log off, RocksDB loses in a crash what no memtable flush has written, and it flushes
//! memtables when it likes, each family on its own. So after a crash each family independently
//! stands at some write between its last flush and now, whole and with its marker. [`MemKv`] keeps
//! a snapshot of a family after every write that touched it (persistent maps: constant time and
//! little memory); [`MemKv::image`] hands them out, [`KvImage::choose`] builds a store from one
//! of them per family.

use crate::format::{decode_marker, encode_marker};
use crate::traits::{CFS, Cached, Cf, CfStats, Kv, KvError, KvIter, KvOp, KvStats, MARKER_KEY};
use rpds::RedBlackTreeMapSync;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A family keeps at most so many snapshots; beyond it the oldest but the durable one goes, as if
/// RocksDB never flushed at that point.
pub const HISTORY_MAX: usize = 4096;

/// The smallest key that is not the marker's.
const FIRST_KEY: &[u8] = &[0];

type Map = RedBlackTreeMapSync<Vec<u8>, Vec<u8>>;

/// One family's contents, marker included, at one moment. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    map: Map,
    /// Sum of the lengths of keys and values.
    bytes: u64,
}

impl Snapshot {
    fn empty() -> Snapshot {
        Snapshot { map: Map::new_sync(), bytes: 0 }
    }

    /// The LSN it stands for.
    pub fn marker(&self) -> u64 {
        let value = self.map.get(MARKER_KEY).map(Vec::as_slice);
        // The family's name only appears in an error, and only this module writes the marker.
        decode_marker(Cf::Meta, value).expect("only this module writes the marker")
    }

    /// Entries in order, without the marker.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.map.range::<[u8], _>((Bound::Included(FIRST_KEY), Bound::Unbounded)).map(|(k, v)| (&k[..], &v[..]))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.remove(key);
        self.bytes += (key.len() + value.len()) as u64;
        self.map.insert_mut(key.to_vec(), value.to_vec());
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(old) = self.map.get(key) {
            self.bytes -= (key.len() + old.len()) as u64;
            self.map.remove_mut(key);
        }
    }

    fn remove_range(&mut self, from: &[u8], to: &[u8]) {
        let from = if from == MARKER_KEY { FIRST_KEY } else { from };
        while let Some(key) = self.first_in(Bound::Included(from), to).map(|(k, _)| k.clone()) {
            self.remove(&key);
        }
    }

    fn first_in(&self, lower: Bound<&[u8]>, upper: &[u8]) -> Option<(&Vec<u8>, &Vec<u8>)> {
        let (Bound::Included(l) | Bound::Excluded(l)) = lower else {
            return None;
        };
        if l >= upper {
            return None;
        }
        self.map.range::<[u8], _>((lower, Bound::Excluded(upper))).next()
    }
}

/// What a crash may leave: for each family, in the order of [`CFS`], the durable snapshot and then
/// one after each write since. Never empty.
#[derive(Clone, Debug)]
pub struct KvImage {
    /// By family; index 0 is what was durable, the last is what was current.
    pub by_cf: [Vec<Snapshot>; 5],
}

impl KvImage {
    /// The store after a crash in which each family survived up to the snapshot of this index.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn choose(&self, index: [usize; 5]) -> MemKv {
        let mut n = 0;
        MemKv::from_snapshots(index.map(|i| {
            let snapshot = self.by_cf[n][i].clone();
            n += 1;
            snapshot
        }))
    }

    /// How many snapshots each family has to choose from.
    pub fn lengths(&self) -> [usize; 5] {
        self.by_cf.each_ref().map(Vec::len)
    }

    /// The store after a crash that lost all that could be lost.
    pub fn durable(&self) -> MemKv {
        self.choose([0; 5])
    }

    /// The store after a crash that lost nothing.
    pub fn current(&self) -> MemKv {
        self.choose(self.lengths().map(|n| n - 1))
    }
}

#[derive(Debug)]
struct Family {
    /// The durable snapshot, then one after each write since. Never empty.
    history: VecDeque<Snapshot>,
    /// Bytes of the operations since the last flush.
    dirty_bytes: u64,
    stats: CfStats,
}

#[derive(Debug)]
struct State {
    families: [Family; 5],
    writes_left: Option<u64>,
    flushes_left: Option<u64>,
    failed: Option<KvError>,
}

/// [`Kv`] in memory. Deterministic; nothing outlives the process but what [`MemKv::image`] gives.
#[derive(Debug)]
pub struct MemKv {
    state: RwLock<State>,
    block_every: AtomicU64,
    cached_lookups: AtomicU64,
}

impl Default for MemKv {
    fn default() -> Self {
        MemKv::new()
    }
}

impl MemKv {
    /// An empty store.
    pub fn new() -> MemKv {
        MemKv::from_snapshots(std::array::from_fn(|_| Snapshot::empty()))
    }

    /// A store with these contents, all of them durable.
    pub fn from_snapshots(by_cf: [Snapshot; 5]) -> MemKv {
        let families = by_cf.map(|s| Family {
            stats: CfStats { table_bytes: s.bytes, ..CfStats::default() },
            history: VecDeque::from([s]),
            dirty_bytes: 0,
        });
        let state = State { families, writes_left: None, flushes_left: None, failed: None };
        MemKv { state: RwLock::new(state), block_every: AtomicU64::new(0), cached_lookups: AtomicU64::new(0) }
    }

    /// Everything a crash now may leave. Takes time and memory by the number of writes since the
    /// last flush, not by what the store holds.
    pub fn image(&self) -> KvImage {
        let state = self.read();
        KvImage { by_cf: state.families.each_ref().map(|f| f.history.iter().cloned().collect()) }
    }

    /// `n` more writes succeed; the next fails with nothing applied, and the store stops.
    pub fn fail_writes_after(&self, n: u64) {
        self.change().writes_left = Some(n);
    }

    /// `n` more flushes succeed; the next fails with nothing made durable, and the store stops.
    pub fn fail_flushes_after(&self, n: u64) {
        self.change().flushes_left = Some(n);
    }

    /// Every `n`-th [`Kv::get_cached`] answers [`Cached::WouldBlock`]; 0 (the default): none.
    pub fn block_every(&self, n: u64) {
        self.block_every.store(n, Relaxed);
    }

    // A panic under the lock leaves a batch half applied at worst, as any panic of the store does.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self, cf: Cf) -> Snapshot {
        self.read().families[cf as usize].now().clone()
    }
}

impl Family {
    fn now(&self) -> &Snapshot {
        self.history.back().expect("a history is never empty")
    }

    fn push(&mut self, snapshot: Snapshot) {
        self.history.push_back(snapshot);
        if self.history.len() > HISTORY_MAX {
            // Index 0 is what is durable and stays.
            self.history.remove(1);
        }
    }

    fn flush(&mut self) {
        if self.history.len() == 1 {
            return;
        }
        let now = self.now().clone();
        self.stats.flushes += 1;
        self.stats.flush_bytes += self.dirty_bytes;
        self.stats.table_bytes = now.bytes;
        self.dirty_bytes = 0;
        self.history = VecDeque::from([now]);
    }
}

impl State {
    fn alive(&self, what: &'static str) -> Result<(), KvError> {
        match &self.failed {
            None => Ok(()),
            Some(first) => Err(KvError::Failed { what, reason: format!("stopped: {first}") }),
        }
    }

    /// Counts one of a limited number of successes down, or fails for good.
    fn spend(left: &mut Option<u64>, failed: &mut Option<KvError>, what: &'static str) -> Result<(), KvError> {
        match left {
            None => Ok(()),
            Some(0) => {
                let error = KvError::Failed { what, reason: "injected".to_owned() };
                *failed = Some(error.clone());
                Err(error)
            }
            Some(n) => {
                *n -= 1;
                Ok(())
            }
        }
    }
}

impl Kv for MemKv {
    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.read().families[cf as usize].now().map.get(key).cloned())
    }

    fn get_cached(&self, cf: Cf, key: &[u8]) -> Result<Cached, KvError> {
        let every = self.block_every.load(Relaxed);
        if every > 0 && (self.cached_lookups.fetch_add(1, Relaxed) + 1).is_multiple_of(every) {
            return Ok(Cached::WouldBlock);
        }
        self.get(cf, key).map(Cached::Known)
    }

    fn iter(&self, cf: Cf, lower: &[u8], upper: &[u8]) -> KvIter<'_> {
        let snapshot = self.now(cf);
        let upper = upper.to_vec();
        let lower = if lower == MARKER_KEY { FIRST_KEY } else { lower };
        let mut next = snapshot.first_in(Bound::Included(lower), &upper).map(|(k, v)| (k.clone(), v.clone()));
        Box::new(std::iter::from_fn(move || {
            let entry = next.take()?;
            next = snapshot.first_in(Bound::Excluded(&entry.0), &upper).map(|(k, v)| (k.clone(), v.clone()));
            Some(Ok(entry))
        }))
    }

    fn write(&self, ops: &[KvOp], lsn: u64) -> Result<(), KvError> {
        if ops.is_empty() {
            return Ok(());
        }
        let mut state = self.change();
        state.alive("write")?;
        let State { writes_left, failed, .. } = &mut *state;
        State::spend(writes_left, failed, "write")?;
        let mut touched: [Option<Snapshot>; 5] = Default::default();
        for op in ops {
            let n = op.cf() as usize;
            let family = &mut state.families[n];
            let snapshot = touched[n].get_or_insert_with(|| family.now().clone());
            family.dirty_bytes += op_bytes(op);
            match op {
                KvOp::Put { key, value, .. } => {
                    assert!(!key.is_empty(), "the empty key is the marker's");
                    snapshot.put(key, value);
                }
                KvOp::Delete { key, .. } => {
                    assert!(!key.is_empty(), "the empty key is the marker's");
                    snapshot.remove(key);
                }
                KvOp::DeleteRange { from, to, .. } => snapshot.remove_range(from, to),
            }
        }
        for (n, snapshot) in touched.into_iter().enumerate() {
            if let Some(mut snapshot) = snapshot {
                snapshot.put(MARKER_KEY, &encode_marker(lsn));
                state.families[n].push(snapshot);
            }
        }
        Ok(())
    }

    fn marker(&self, cf: Cf) -> Result<u64, KvError> {
        Ok(self.now(cf).marker())
    }

    fn flush(&self) -> Result<(), KvError> {
        let mut state = self.change();
        state.alive("flush")?;
        let State { flushes_left, failed, .. } = &mut *state;
        State::spend(flushes_left, failed, "flush")?;
        for family in &mut state.families {
            family.flush();
        }
        Ok(())
    }

    /// A model: a flush writes the keys and values of the operations since the one before, and
    /// nothing is ever compacted.
    fn stats(&self) -> KvStats {
        let state = self.read();
        let mut stats = KvStats::default();
        for cf in CFS {
            let family = &state.families[cf as usize];
            stats.by_cf[cf as usize] = CfStats { memtable_bytes: family.dirty_bytes, ..family.stats };
        }
        stats
    }
}

fn op_bytes(op: &KvOp) -> u64 {
    let bytes = match op {
        KvOp::Put { key, value, .. } => key.len() + value.len(),
        KvOp::Delete { key, .. } => key.len(),
        KvOp::DeleteRange { from, to, .. } => from.len() + to.len(),
    };
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cf: Cf, key: &str, value: &str) -> KvOp {
        KvOp::Put { cf, key: key.into(), value: value.into() }
    }

    fn markers(kv: &MemKv) -> [u64; 5] {
        CFS.map(|cf| kv.marker(cf).unwrap())
    }

    #[test]
    fn every_family_survives_a_crash_up_to_a_point_of_its_own() {
        let kv = MemKv::new();
        kv.write(&[put(Cf::Onode, "a", "1"), put(Cf::Omap, "a", "1")], 1).unwrap();
        kv.flush().unwrap();
        kv.write(&[put(Cf::Onode, "a", "2"), put(Cf::Extent, "e", "2")], 2).unwrap();
        kv.write(&[put(Cf::Onode, "b", "3")], 3).unwrap();
        let image = kv.image();
        assert_eq!(image.lengths(), [1, 3, 2, 1, 1]);
        assert_eq!(markers(&image.durable()), [0, 1, 0, 1, 0]);
        assert_eq!(markers(&image.current()), [0, 3, 2, 1, 0]);
        let middle = image.choose([0, 1, 0, 0, 0]);
        assert_eq!(markers(&middle), [0, 2, 0, 1, 0]);
        assert_eq!(middle.get(Cf::Onode, b"a").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(middle.get(Cf::Onode, b"b").unwrap(), None);
        // What the image gave is durable in the new store, and apart from the old one.
        middle.write(&[put(Cf::Onode, "c", "4")], 4).unwrap();
        assert_eq!(markers(&middle.image().durable()), [0, 2, 0, 1, 0]);
        assert_eq!(kv.get(Cf::Onode, b"c").unwrap(), None);
        assert_eq!(image.by_cf[1][2].entries().count(), 2);
    }

    #[test]
    fn history_is_bounded_and_keeps_what_is_durable() {
        let kv = MemKv::new();
        let last = HISTORY_MAX as u64 + 10;
        for lsn in 1..=last {
            kv.write(&[put(Cf::Meta, "k", &lsn.to_string())], lsn).unwrap();
        }
        let image = kv.image();
        assert_eq!(image.lengths()[0], HISTORY_MAX);
        assert_eq!(image.by_cf[0][0].marker(), 0);
        assert_eq!(image.by_cf[0][1].marker(), last - HISTORY_MAX as u64 + 2);
        assert_eq!(image.by_cf[0][HISTORY_MAX - 1].marker(), last);
    }

    #[test]
    fn injected_failure_applies_nothing_and_stops_the_store() {
        let kv = MemKv::new();
        kv.fail_writes_after(1);
        kv.write(&[put(Cf::Meta, "a", "1")], 1).unwrap();
        for _ in 0..2 {
            let e = kv.write(&[put(Cf::Meta, "a", "2")], 2).unwrap_err();
            assert!(matches!(e, KvError::Failed { what: "write", .. }), "{e}");
        }
        assert!(kv.flush().is_err());
        assert_eq!(kv.get(Cf::Meta, b"a").unwrap(), Some(b"1".to_vec()));
        assert_eq!(markers(&kv.image().durable()), [0; 5]);

        let kv = MemKv::new();
        kv.fail_flushes_after(1);
        kv.flush().unwrap();
        kv.write(&[put(Cf::Meta, "a", "1")], 1).unwrap();
        assert!(kv.flush().is_err());
        assert!(kv.write(&[put(Cf::Meta, "a", "2")], 2).is_err());
        assert_eq!(kv.image().lengths(), [2, 1, 1, 1, 1]);
    }

    #[test]
    fn lookups_block_when_asked_to() {
        let kv = MemKv::new();
        kv.block_every(3);
        let got: Vec<bool> = (0..6).map(|_| kv.get_cached(Cf::Meta, b"x").unwrap() == Cached::WouldBlock).collect();
        assert_eq!(got, [false, false, true, false, false, true]);
    }
}
