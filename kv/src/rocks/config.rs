//! What can be set about RocksDB, in the store's own words.

use super::file_trace::FileTrace;
use crate::traits::{CFS, Cf};
use std::path::PathBuf;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Memtables per family that may exist beyond those that a flush merges are as many again, and at
/// least so many: a flush slower than usual must not slow writes.
const SPARE_MEMTABLES_MIN: u32 = 3;

/// How blocks of table files are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Not at all: metadata is small and mostly checksums.
    #[default]
    None,
    /// LZ4.
    Lz4,
}

/// How table files are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compaction {
    /// Levels, each ten times the one above: least space and fastest reads.
    #[default]
    Leveled,
    /// Sorted runs of similar size: fewer bytes written, more space and slower reads.
    Universal,
}

/// Settings of [`crate::RocksKv`]. Arrays are indexed by [`crate::Cf`] in the order of
/// [`crate::CFS`]: meta, onode, extent, omap, shared. Sizes are bytes.
///
/// Memory is bounded by `block_cache_bytes` (data, index and filter blocks of all families) plus
/// [`RocksConfig::memtables_bytes_max`], of which about a quarter is used while flushes keep up,
/// plus what a flush or compaction in progress holds (some MiB).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RocksConfig {
    /// One cache for data, index and filter blocks of every family. Default 256 MiB.
    pub block_cache_bytes: u64,
    /// A memtable of this size is full and a new one begun. Default 8 MiB, for omap 16 MiB, for
    /// meta and shared 4 MiB.
    pub write_buffer_bytes: [u64; 5],
    /// So many full memtables are merged into one table file by a flush. Several small ones write
    /// the same bytes as one large one, because keys set again and again still meet, and take
    /// half the CPU per put, because a small skip list stays in the processor's caches; each of
    /// them costs an iterator a seek. Default 8 for extent (64 MiB together), 4 for onode
    /// (32 MiB), 2 for omap (32 MiB), which is iterated, 1 for meta and shared.
    pub min_write_buffer_number_to_merge: [u32; 5],
    /// Default [`Compaction::Leveled`].
    pub compaction: Compaction,
    /// Default [`Compression::None`] for every family.
    pub compression: [Compression; 5],
    /// Omap values of at least this size go to blob files, which compaction does not rewrite.
    /// Default `None`: no blob files.
    pub omap_blob_bytes_min: Option<u64>,
    /// Bits per key of the bloom filters in table files of onode, extent and shared; 0: none.
    /// Default 10 (about 1 % false positives).
    pub bloom_bits_per_key: u32,
    /// Memtables of onode, extent and shared have bloom filters too: about 0.2 us more per put,
    /// several us less per lookup of a key not in memory. Default true.
    pub memtable_bloom: bool,
    /// Size of a data block in a table file. Default 4 KiB: one page of a point lookup.
    pub block_bytes: u64,
    /// Size of a table file that compaction writes. Default 64 MiB.
    pub table_file_bytes: u64,
    /// Flushes and compactions write (and compactions read) with O_DIRECT. Default true; opening
    /// fails where the file system refuses it.
    pub direct_flush: bool,
    /// Lookups and iterators read with O_DIRECT, so that the block cache is the only cache.
    /// Default true; opening fails where the file system refuses it.
    pub direct_reads: bool,
    /// Threads for flushes and compactions together. Default 2.
    pub max_background_jobs: u32,
    /// Without O_DIRECT: table files are written back every so many bytes. Default 1 MiB.
    pub bytes_per_sync: u64,
    /// RocksDB's own log. Default false: what is not flushed is lost in a crash, and the caller's
    /// log replays it from each family's marker. True: every write is synced in RocksDB's log.
    pub log: bool,
    /// Folder of RocksDB's own log; `None`: beside the table files.
    pub log_dir: Option<PathBuf>,
    /// So many files of RocksDB's own log are kept for reuse, which spares the file system's
    /// journal. Used only with `log`. Default 4.
    pub recycle_log_file_num: u32,
    /// Memtables are flushed to free RocksDB's own log beyond this size. Used only with `log`.
    /// Default 256 MiB.
    pub log_bytes_max: u64,
    /// RocksDB's messages go to `LOG`, and at this size to `LOG.old`. Default 1 MiB.
    pub info_log_bytes_max: u64,
    /// Table files kept open; negative: all (about 10 KiB of memory each). Default -1.
    pub open_files_max: i32,
    /// Told of every file made and removed, and of what is appended to RocksDB's own log. Default
    /// `None`.
    pub file_trace: Option<FileTrace>,
}

impl RocksConfig {
    /// Full and filling memtables that a family may have before writes wait for its flush.
    pub(super) fn memtables_max(&self, cf: Cf) -> u32 {
        let merge = self.min_write_buffer_number_to_merge[cf as usize].max(1);
        merge.saturating_add(merge.max(SPARE_MEMTABLES_MIN))
    }

    /// Bytes that all memtables together can take at worst, when no flush keeps up. By default
    /// 304 MiB.
    pub fn memtables_bytes_max(&self) -> u64 {
        CFS.iter().fold(0, |sum, cf| {
            let bytes = self.write_buffer_bytes[*cf as usize];
            bytes.saturating_mul(u64::from(self.memtables_max(*cf))).saturating_add(sum)
        })
    }
}

impl Default for RocksConfig {
    fn default() -> Self {
        RocksConfig {
            block_cache_bytes: 256 * MIB,
            write_buffer_bytes: [4 * MIB, 8 * MIB, 8 * MIB, 16 * MIB, 4 * MIB],
            min_write_buffer_number_to_merge: [1, 4, 8, 2, 1],
            compaction: Compaction::Leveled,
            compression: [Compression::None; 5],
            omap_blob_bytes_min: None,
            bloom_bits_per_key: 10,
            memtable_bloom: true,
            block_bytes: 4 * KIB,
            table_file_bytes: 64 * MIB,
            direct_flush: true,
            direct_reads: true,
            max_background_jobs: 2,
            bytes_per_sync: MIB,
            log: false,
            log_dir: None,
            recycle_log_file_num: 4,
            log_bytes_max: 256 * MIB,
            info_log_bytes_max: MIB,
            open_files_max: -1,
            file_trace: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_memtables_are_bounded_as_documented() {
        assert_eq!(RocksConfig::default().memtables_bytes_max(), 304 * MIB);
    }
}
