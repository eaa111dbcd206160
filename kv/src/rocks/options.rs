//! Translates [`RocksConfig`] into RocksDB's options.

use super::config::{Compaction, Compression, RocksConfig};
use crate::traits::Cf;
use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ChecksumType, DBCompactionStyle, DBCompressionType,
    DataBlockIndexType, LogLevel, Options,
};

/// Newest format of table files that the bundled RocksDB writes by default.
const TABLE_FORMAT_VERSION: i32 = 7;

/// Index and filter partitions: large enough to be few, small enough to be cached one by one.
const METADATA_BLOCK_BYTES: usize = 4096;

/// Level 1 holds so many flushes' worth of tables.
const LEVEL_BASE_FLUSHES: u64 = 4;

/// Share of a memtable for its bloom filter: about 32 bits per key of 150-byte values.
const MEMTABLE_BLOOM_RATIO: f64 = 0.02;

/// Bounds the manifest: a new one is begun beyond this size.
const MANIFEST_BYTES_MAX: usize = 16 << 20;

/// Options of the whole database. The info logger is set by the caller.
pub(super) fn database(cfg: &RocksConfig) -> Options {
    let mut o = Options::default();
    o.set_max_background_jobs(to_int(cfg.max_background_jobs));
    o.set_use_direct_reads(cfg.direct_reads);
    o.set_use_direct_io_for_flush_and_compaction(cfg.direct_flush);
    o.set_bytes_per_sync(cfg.bytes_per_sync);
    o.set_max_open_files(cfg.open_files_max);
    o.set_max_manifest_file_size(MANIFEST_BYTES_MAX);
    o.set_paranoid_checks(true);
    // Without it, opening reads every table's properties; they only steer compaction.
    o.set_skip_stats_update_on_db_open(true);
    o.set_log_level(LogLevel::Info);
    // Counters yes, clocks on the write path no.
    o.enable_statistics();
    o.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    o.set_stats_dump_period_sec(0);
    o.set_stats_persist_period_sec(0);
    // Writes come from one thread at a time: no compare-and-swap inserts, no write groups to
    // overlap, and memory order is never relaxed.
    o.set_allow_concurrent_memtable_write(false);
    o.set_enable_write_thread_adaptive_yield(false);
    o.set_enable_pipelined_write(false);
    o.set_unordered_write(false);
    if cfg.log {
        o.set_recycle_log_file_num(cfg.recycle_log_file_num as usize);
        o.set_max_total_wal_size(cfg.log_bytes_max);
    }
    if let Some(dir) = &cfg.log_dir {
        o.set_wal_dir(dir);
    }
    o
}

/// Options of one family; all share `cache`.
pub(super) fn family(cfg: &RocksConfig, cf: Cf, cache: &Cache) -> Options {
    let n = cf as usize;
    let mut o = Options::default();
    o.set_write_buffer_size(to_size(cfg.write_buffer_bytes[n]));
    let merge = cfg.min_write_buffer_number_to_merge[n].max(1);
    o.set_min_write_buffer_number_to_merge(to_int(merge));
    o.set_max_write_buffer_number(to_int(cfg.memtables_max(cf)));
    o.set_compression_type(match cfg.compression[n] {
        Compression::None => DBCompressionType::None,
        Compression::Lz4 => DBCompressionType::Lz4,
    });
    o.set_target_file_size_base(cfg.table_file_bytes);
    match cfg.compaction {
        Compaction::Leveled => {
            o.set_compaction_style(DBCompactionStyle::Level);
            o.set_level_compaction_dynamic_level_bytes(true);
            o.set_max_bytes_for_level_base(
                cfg.write_buffer_bytes[n].saturating_mul(u64::from(merge)).saturating_mul(LEVEL_BASE_FLUSHES),
            );
        }
        Compaction::Universal => o.set_compaction_style(DBCompactionStyle::Universal),
    }
    if let (Cf::Omap, Some(min)) = (cf, cfg.omap_blob_bytes_min) {
        o.set_enable_blob_files(true);
        o.set_min_blob_size(min);
        o.set_enable_blob_gc(true);
        o.set_blob_compression_type(match cfg.compression[n] {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
        });
    }
    if cfg.memtable_bloom && has_point_lookups(cf) {
        o.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM_RATIO);
        o.set_memtable_whole_key_filtering(true);
    }
    o.set_block_based_table_factory(&table(cfg, cf, cache));
    o
}

/// Families where a key is looked up far more often than a range is walked.
fn has_point_lookups(cf: Cf) -> bool {
    matches!(cf, Cf::Onode | Cf::Extent | Cf::Shared)
}

/// Index and filters live inside the block cache, so that it bounds memory; they are partitioned,
/// so that a cold filter costs a page and not half a megabyte.
fn table(cfg: &RocksConfig, cf: Cf, cache: &Cache) -> BlockBasedOptions {
    let mut t = BlockBasedOptions::default();
    t.set_block_cache(cache);
    t.set_block_size(to_size(cfg.block_bytes));
    t.set_format_version(TABLE_FORMAT_VERSION);
    t.set_checksum_type(ChecksumType::CRC32c);
    t.set_cache_index_and_filter_blocks(true);
    t.set_cache_index_and_filter_blocks_with_high_priority(true);
    t.set_pin_l0_filter_and_index_blocks_in_cache(true);
    t.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    t.set_metadata_block_size(METADATA_BLOCK_BYTES);
    t.set_pin_top_level_index_and_filter(true);
    let point_lookups = has_point_lookups(cf);
    if point_lookups && cfg.bloom_bits_per_key > 0 {
        t.set_bloom_filter(f64::from(cfg.bloom_bits_per_key), false);
        t.set_whole_key_filtering(true);
        t.set_partition_filters(true);
        t.set_optimize_filters_for_memory(true);
    }
    if point_lookups {
        t.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    }
    t
}

fn to_int(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn to_size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
