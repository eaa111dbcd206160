//! Recently read blocks, in a bounded cache. A block is in it only while the medium (or a deferred
//! write) holds the very same bytes: whoever gives a block new contents evicts it first.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use crate::format::BLOCK_LEN;

/// Bytes of bookkeeping for one block.
const ENTRY_OVERHEAD: u64 = 96;

#[derive(Debug)]
struct BlockWeight;
impl Weighter<u64, (u32, Bytes)> for BlockWeight {
    fn weight(&self, _: &u64, _: &(u32, Bytes)) -> u64 {
        BLOCK_LEN + ENTRY_OVERHEAD
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct DataCache {
    blocks: Option<Cache<u64, (u32, Bytes), BlockWeight>>,
    hits: u64,
}

impl DataCache {
    /// A cache of at most `bytes` bytes; of none if that is too little for a block.
    pub fn new(bytes: u64) -> Self {
        let n = bytes / (BLOCK_LEN + ENTRY_OVERHEAD);
        let blocks = (n > 0).then(|| Cache::with_weighter(n as usize, bytes, BlockWeight));
        DataCache { blocks, hits: 0 }
    }

    /// Contents of a block, if they are here and have checksum `crc`.
    pub fn get(&mut self, place: u64, crc: u32) -> Option<Bytes> {
        let (have, data) = self.blocks.as_ref()?.get(&place)?;
        if *have != crc {
            return None;
        }
        self.hits += 1;
        Some(data.clone())
    }

    /// Keeps verified contents. The block is copied: a slice would keep all of a large read alive.
    pub fn insert(&mut self, place: u64, crc: u32, data: &[u8]) {
        if let Some(c) = &mut self.blocks {
            c.insert(place, (crc, Bytes::copy_from_slice(data)));
        }
    }

    /// Forgets blocks that are about to get new contents.
    pub fn evict(&mut self, place: u64, blocks: u64) {
        if let Some(c) = self.blocks.as_mut().filter(|c| !c.is_empty()) {
            (place..place + blocks).for_each(|p| drop(c.remove(&p)));
        }
    }

    /// Lookups answered.
    pub fn hits(&self) -> u64 {
        self.hits
    }
}
