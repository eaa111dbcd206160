//! Metadata as the planner sees it: what was planned but is not yet in the key-value store, then
//! what is cached, then the key-value store.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use lodestore_kv::{Cached, Cf, Kv};
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use crate::error::Error;
use crate::format::chunk::Chunk;
use crate::format::key;
use crate::format::onode::Onode;
use crate::format::shared::Region;
use crate::format::small;
use crate::types::{CollectionId, Lsn};

/// Object numbers reserved at a time, so that not every new object writes the counter.
pub const ID_STEP: u64 = 4096;

/// Decoded metadata changed by one transaction.
#[derive(Debug, Default)]
pub struct Changes {
    /// By key; `None` was removed.
    pub onodes: BTreeMap<Vec<u8>, Option<Arc<Onode>>>,
    /// By object number and chunk.
    pub chunks: BTreeMap<(u64, u32), Arc<Chunk>>,
    /// By region.
    pub regions: BTreeMap<u64, Arc<Region>>,
    /// All collections, if the transaction changed any.
    pub collections: Option<BTreeMap<CollectionId, u8>>,
    /// Next object number, if the transaction used any, and how far numbers are reserved.
    pub ids: Option<(u64, u64)>,
}

#[derive(Debug)]
struct OnodeWeight;
impl Weighter<Vec<u8>, Option<Arc<Onode>>> for OnodeWeight {
    fn weight(&self, k: &Vec<u8>, v: &Option<Arc<Onode>>) -> u64 {
        96 + k.len() as u64 + v.as_ref().map_or(0, |o| o.weight())
    }
}

#[derive(Debug)]
struct ChunkWeight;
impl Weighter<(u64, u32), Arc<Chunk>> for ChunkWeight {
    fn weight(&self, _: &(u64, u32), _: &Arc<Chunk>) -> u64 {
        size_of::<Chunk>() as u64 + 96
    }
}

/// A key of the key-value store.
pub type Place = (Cf, Vec<u8>);

/// Why there is no answer.
#[derive(Debug)]
pub enum Missed {
    /// Only the medium can tell: [`Meta::looked_up`] has the key, which somebody who may block must
    /// look up first.
    NotInMemory,
    /// It failed.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Missed {
    fn from(e: E) -> Self {
        Missed::Failed(e.into())
    }
}

/// Lookups for one transaction or read that memory could not answer.
#[derive(Debug, Default)]
pub struct Lookups {
    /// Done elsewhere, so that the key-value store's cache has the answer. If it has lost it again,
    /// the next lookup blocks: nothing goes in circles.
    tried: HashSet<Place>,
    /// To be done next.
    missing: Option<Place>,
}

impl Lookups {
    /// What is to be looked up next.
    pub fn take(&mut self) -> Option<Place> {
        let place = self.missing.take()?;
        self.tried.insert(place.clone());
        Some(place)
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct Meta {
    kv: Arc<dyn Kv>,
    /// Of the transaction or read at work; `None`: lookups may block.
    lookups: Option<Lookups>,
    collections: BTreeMap<CollectionId, u8>,
    next_id: u64,
    reserved_id: u64,
    onodes: Cache<Vec<u8>, Option<Arc<Onode>>, OnodeWeight>,
    chunks: Cache<(u64, u32), Arc<Chunk>, ChunkWeight>,
    /// Planned, not yet in the key-value store: the LSN that has to be there before it may go.
    pending_onodes: BTreeMap<Vec<u8>, (Lsn, Option<Arc<Onode>>)>,
    pending_chunks: BTreeMap<(u64, u32), (Lsn, Arc<Chunk>)>,
    pending_regions: BTreeMap<u64, (Lsn, Arc<Region>)>,
}

impl Meta {
    /// Loads collections and counters; everything else comes as it is asked for.
    pub fn load(kv: Arc<dyn Kv>, cache_bytes: u64) -> Result<Meta, Error> {
        let next_id = match kv.get(Cf::Meta, key::NEXT_ID)? {
            Some(v) => small::decode_u64("object number", &v)?,
            None => 1,
        };
        let (onode_bytes, chunk_bytes) = (cache_bytes / 3, cache_bytes - cache_bytes / 3);
        Ok(Meta {
            collections: load_collections(&*kv)?,
            kv,
            lookups: None,
            next_id,
            reserved_id: next_id,
            onodes: Cache::with_weighter((onode_bytes / 256) as usize + 16, onode_bytes, OnodeWeight),
            chunks: Cache::with_weighter((chunk_bytes / 608) as usize + 16, chunk_bytes, ChunkWeight),
            pending_onodes: BTreeMap::new(),
            pending_chunks: BTreeMap::new(),
            pending_regions: BTreeMap::new(),
        })
    }

    /// The key-value store below.
    pub fn kv(&self) -> &Arc<dyn Kv> {
        &self.kv
    }

    /// From here on a lookup that would block gives [`Missed::NotInMemory`], unless `l` says that it
    /// was done already.
    pub fn without_blocking(&mut self, l: Lookups) {
        self.lookups = Some(l);
    }

    /// Ends [`Meta::without_blocking`].
    pub fn looked_up(&mut self) -> Lookups {
        self.lookups.take().unwrap_or_default()
    }

    /// One value.
    pub fn get(&mut self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, Missed> {
        let Some(l) = &mut self.lookups else { return Ok(self.kv.get(cf, key)?) };
        match self.kv.get_cached(cf, key)? {
            Cached::Known(v) => Ok(v),
            Cached::WouldBlock => {
                let place = (cf, key.to_vec());
                if l.tried.contains(&place) {
                    return Ok(self.kv.get(cf, key)?);
                }
                l.missing = Some(place);
                Err(Missed::NotInMemory)
            }
        }
    }

    /// Every collection with its bits.
    pub fn collections(&self) -> &BTreeMap<CollectionId, u8> {
        &self.collections
    }

    /// Next object number and the first one that is not reserved.
    pub fn ids(&self) -> (u64, u64) {
        (self.next_id, self.reserved_id)
    }

    /// The object stored under an onode key.
    pub fn onode(&mut self, k: &[u8]) -> Result<Option<Arc<Onode>>, Missed> {
        if let Some((_, o)) = self.pending_onodes.get(k) {
            return Ok(o.clone());
        }
        if let Some(o) = self.onodes.get(k) {
            return Ok(o.clone());
        }
        let o = match self.get(Cf::Onode, k)? {
            Some(v) => Some(Arc::new(Onode::decode(&v)?)),
            None => None,
        };
        self.onodes.insert(k.to_vec(), o.clone());
        Ok(o)
    }

    /// A chunk of an object's extent map; an absent one is empty.
    pub fn chunk(&mut self, nid: u64, index: u32) -> Result<Arc<Chunk>, Missed> {
        if let Some((_, c)) = self.pending_chunks.get(&(nid, index)) {
            return Ok(c.clone());
        }
        if let Some(c) = self.chunks.get(&(nid, index)) {
            return Ok(c.clone());
        }
        let c = Arc::new(match self.get(Cf::Extent, &key::extent(nid, index))? {
            Some(v) => Chunk::decode(&v)?,
            None => Chunk::default(),
        });
        self.chunks.insert((nid, index), c.clone());
        Ok(c)
    }

    /// Reference counts of a region; an absent one has none.
    pub fn region(&mut self, region: u64) -> Result<Arc<Region>, Missed> {
        if let Some((_, r)) = self.pending_regions.get(&region) {
            return Ok(r.clone());
        }
        Ok(Arc::new(match self.get(Cf::Shared, &key::shared(region))? {
            Some(v) => Region::decode(&v)?,
            None => Region::default(),
        }))
    }

    /// Chunks of `nid` in `from..to` that may have blocks, in order.
    pub fn chunk_indices(&mut self, nid: u64, from: u32, to: u32) -> Result<Vec<u32>, Error> {
        /// Looking up this many one by one costs less than an iterator over the memtables.
        const LOOKUP_MAX: u32 = 64;
        if to.saturating_sub(from) <= LOOKUP_MAX {
            return Ok((from..to).collect());
        }
        let mut found = std::collections::BTreeSet::new();
        for entry in self.kv.iter(Cf::Extent, &key::extent(nid, from), &key::extent(nid, to)) {
            found.insert(key::parse_extent(&entry?.0)?.1);
        }
        found.extend(self.pending_chunks.range((nid, from)..(nid, to)).map(|((_, i), _)| *i));
        Ok(found.into_iter().collect())
    }

    /// Takes over what the transaction with `lsn` changed.
    pub fn commit(&mut self, lsn: Lsn, changes: Changes) {
        for (k, o) in changes.onodes {
            self.onodes.insert(k.clone(), o.clone());
            self.pending_onodes.insert(k, (lsn, o));
        }
        for (k, c) in changes.chunks {
            self.chunks.insert(k, c.clone());
            self.pending_chunks.insert(k, (lsn, c));
        }
        for (k, r) in changes.regions {
            self.pending_regions.insert(k, (lsn, r));
        }
        if let Some(c) = changes.collections {
            self.collections = c;
        }
        if let Some((next, reserved)) = changes.ids {
            (self.next_id, self.reserved_id) = (next, reserved);
        }
    }

    /// Everything up to `lsn` is in the key-value store now; `touched` is what that transaction
    /// changed.
    pub fn applied(&mut self, lsn: Lsn, touched: &Touched) {
        drop_applied(&mut self.pending_onodes, &touched.onodes, lsn);
        drop_applied(&mut self.pending_chunks, &touched.chunks, lsn);
        drop_applied(&mut self.pending_regions, &touched.regions, lsn);
    }

    /// After a failure: forgets everything planned above `durable`, so that reads see only what
    /// was acknowledged.
    pub fn forget_above(&mut self, durable: Lsn) {
        self.pending_onodes.retain(|_, (l, _)| *l <= durable);
        self.pending_chunks.retain(|_, (l, _)| *l <= durable);
        self.pending_regions.retain(|_, (l, _)| *l <= durable);
        self.onodes.clear();
        self.chunks.clear();
        // Where even this cannot be read, the collections stay as planned: nothing can be written
        // to them any more.
        if let Ok(all) = load_collections(&*self.kv) {
            self.collections = all;
        }
    }
}

/// Removes those of `keys` that were not planned again above `lsn`.
fn drop_applied<K: Ord, V>(pending: &mut BTreeMap<K, (Lsn, V)>, keys: &[K], lsn: Lsn) {
    for k in keys {
        if pending.get(k).is_some_and(|(l, _)| *l <= lsn) {
            pending.remove(k);
        }
    }
}

/// Keys of decoded metadata that a transaction changed.
#[derive(Debug, Default)]
pub struct Touched {
    onodes: Vec<Vec<u8>>,
    chunks: Vec<(u64, u32)>,
    regions: Vec<u64>,
}

impl From<&Changes> for Touched {
    fn from(c: &Changes) -> Self {
        Touched {
            onodes: c.onodes.keys().cloned().collect(),
            chunks: c.chunks.keys().copied().collect(),
            regions: c.regions.keys().copied().collect(),
        }
    }
}

/// Every collection in the key-value store, with its bits.
pub fn load_collections(kv: &dyn Kv) -> Result<BTreeMap<CollectionId, u8>, Error> {
    let mut all = BTreeMap::new();
    for entry in kv.iter(Cf::Meta, &[key::COLLECTION], &[key::COLLECTION + 1]) {
        let (k, v) = entry?;
        all.insert(key::parse_collection(&k)?, small::decode_bits(&v)?);
    }
    Ok(all)
}
