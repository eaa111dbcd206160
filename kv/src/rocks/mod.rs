//! The key-value store on RocksDB, its own log off.

mod config;
mod error;
mod events;
mod file_trace;
mod info_log;
mod iter;
mod options;
mod small_files;
mod write;

pub use config::{Compaction, Compression, RocksConfig};
pub use file_trace::{FileEvent, FileSink, FileTrace};
pub use write::{RANGE_DELETE_SINGLES_MAX, RANGE_DELETE_SKIPS_MAX};

use crate::format::decode_marker;
use crate::traits::{CFS, Cached, Cf, Kv, KvError, KvIter, KvOp, KvStats, MARKER_KEY};
use events::Events;
use info_log::InfoLog;
use rocksdb::properties::CUR_SIZE_ALL_MEM_TABLES;
use rocksdb::statistics::Ticker;
use rocksdb::{
    Cache, ColumnFamily, ColumnFamilyDescriptor, DB, ErrorKind, FlushOptions, InfoLogger, LogLevel, Options,
    ReadOptions, ReadTier, WaitForCompactOptions, WriteOptions,
};
use small_files::SmallFiles;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes of a family's blob files; the crate has no name for this property.
const LIVE_BLOB_FILE_SIZE: &str = "rocksdb.live-blob-file-size";

thread_local! {
    // Making and freeing these costs as much as a lookup that hits the memtable.
    static READ: ReadOptions = ReadOptions::default();
    static READ_CACHED: ReadOptions = {
        let mut o = ReadOptions::default();
        o.set_read_tier(ReadTier::BlockCache);
        o
    };
}

/// RocksDB behind [`Kv`].
///
/// Any failed write, flush, compaction or manifest write stops it for good: later writes and
/// flushes fail, reads go on. Dropping it closes RocksDB, which flushes what is in memory unless
/// it had failed; nothing may rely on that.
pub struct RocksKv {
    // Before `options`, which keep the logger that closing still uses.
    db: DB,
    options: Options,
    write_options: WriteOptions,
    path: PathBuf,
    blobs: bool,
    /// Who is told of what goes to RocksDB's own log, where that is on.
    log_trace: Option<FileTrace>,
    events: Arc<Events>,
    small_files: SmallFiles,
    /// Held over a batch: finding the keys of a small range and deleting them is one step.
    writer: Mutex<()>,
    failed: OnceLock<KvError>,
}

impl RocksKv {
    /// Makes a store in `path`, which is made too if absent, and opens it.
    ///
    /// # Errors
    /// [`KvError::Missing`] if there is a store already (nothing is changed), [`KvError::Failed`]
    /// if the file system refuses it, or refuses O_DIRECT where that is asked for.
    pub fn create(path: &Path, config: &RocksConfig) -> Result<RocksKv, KvError> {
        if holds_store(path) {
            return Err(KvError::Missing { reason: format!("a store is already there in {}", path.display()) });
        }
        std::fs::create_dir_all(path).map_err(|e| io_failed("create", path, &e))?;
        Self::start(path, config, true)
    }

    /// Opens the store in `path`.
    ///
    /// # Errors
    /// [`KvError::Missing`] if there is none (nothing is made), [`KvError::InUse`] if it is open
    /// already, [`KvError::Damaged`] if its files are, [`KvError::Failed`] if the file system
    /// refuses it, or refuses O_DIRECT where that is asked for.
    pub fn open(path: &Path, config: &RocksConfig) -> Result<RocksKv, KvError> {
        if !holds_store(path) {
            return Err(KvError::Missing {
                reason: format!(
                    "there is none in {}; put its directory back, or check where the path leads",
                    path.display()
                ),
            });
        }
        if !path.join("CURRENT").exists() {
            return Err(KvError::Damaged {
                reason: format!("{} has table or manifest files but no CURRENT", path.display()),
            });
        }
        Self::start(path, config, false)
    }

    fn start(path: &Path, config: &RocksConfig, create: bool) -> Result<RocksKv, KvError> {
        let what = if create { "create" } else { "open" };
        let small_files = SmallFiles::before_opening(path);
        let log = InfoLog::open(path, config.info_log_bytes_max).map_err(|e| io_failed(what, path, &e))?;
        let events = Arc::new(Events::new(log, config.file_trace.clone()));
        if let Some(files) = &config.file_trace {
            files.found(path);
        }
        let mut options = options::database(config);
        options.create_if_missing(create);
        options.create_missing_column_families(create);
        options.set_error_if_exists(create);
        let sink = Arc::clone(&events);
        options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Info, move |level, text| {
            sink.message(level, text);
        }));
        let size = usize::try_from(config.block_cache_bytes).unwrap_or(usize::MAX);
        let cache = Cache::new_lru_cache(size);
        let families = CFS.map(|cf| ColumnFamilyDescriptor::new(cf.name(), options::family(config, cf, &cache)));
        let direct = config.direct_reads || config.direct_flush;
        let db = DB::open_cf_descriptors(&options, path, families).map_err(|e| error::not_opened(what, direct, e))?;
        let mut write_options = WriteOptions::new();
        write_options.disable_wal(!config.log);
        write_options.set_sync(config.log);
        let kv = RocksKv {
            db,
            options,
            write_options,
            path: path.to_owned(),
            blobs: config.omap_blob_bytes_min.is_some(),
            log_trace: config.file_trace.clone().filter(|_| config.log),
            events,
            small_files,
            writer: Mutex::new(()),
            failed: OnceLock::new(),
        };
        for cf in CFS {
            kv.marker(cf)?;
        }
        Ok(kv)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Merges all table files of every family, and waits. For tests and for offline maintenance:
    /// it rewrites everything.
    pub fn compact(&self) -> Result<(), KvError> {
        for cf in CFS {
            self.db.compact_range_cf(self.family(cf), None::<&[u8]>, None::<&[u8]>);
        }
        // A compaction is counted a moment after its result is in place.
        self.db
            .wait_for_compact(&WaitForCompactOptions::default())
            .map_err(|e| self.stop(error::failed("compaction", e)))?;
        self.alive()
    }

    /// Bytes that flushes and compactions of all families wrote, from RocksDB's own totals: the
    /// cross-check of [`Kv::stats`], which counts by family. A little more, because these take in
    /// what the same threads append to the manifest.
    pub fn written_bytes_total(&self) -> (u64, u64) {
        (
            self.options.get_ticker_count(Ticker::FlushWriteBytes),
            self.options.get_ticker_count(Ticker::CompactWriteBytes),
        )
    }

    fn family(&self, cf: Cf) -> &ColumnFamily {
        self.db.cf_handle(cf.name()).expect("every family was opened and none is ever dropped")
    }

    /// Fails if anything failed before.
    fn alive(&self) -> Result<(), KvError> {
        if let Some(first) = self.failed.get() {
            return Err(KvError::Failed { what: "write", reason: format!("stopped: {first}") });
        }
        if let Some(reason) = self.events.background_error() {
            return Err(KvError::Failed { what: "background work", reason: reason.to_owned() });
        }
        Ok(())
    }

    fn stop(&self, error: KvError) -> KvError {
        let _first_wins = self.failed.set(error.clone());
        error
    }

    fn lookup(&self, cf: Cf, key: &[u8], o: &ReadOptions) -> Result<Option<Vec<u8>>, rocksdb::Error> {
        let value = self.db.get_pinned_cf_opt(self.family(cf), key, o)?;
        Ok(value.map(|v| v.to_vec()))
    }
}

impl Kv for RocksKv {
    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        READ.with(|o| self.lookup(cf, key, o)).map_err(|e| error::failed("get", e))
    }

    fn get_cached(&self, cf: Cf, key: &[u8]) -> Result<Cached, KvError> {
        match READ_CACHED.with(|o| self.lookup(cf, key, o)) {
            Ok(value) => Ok(Cached::Known(value)),
            Err(e) if e.kind() == ErrorKind::Incomplete => Ok(Cached::WouldBlock),
            Err(e) => Err(error::failed("get", e)),
        }
    }

    fn iter(&self, cf: Cf, lower: &[u8], upper: &[u8]) -> KvIter<'_> {
        Box::new(iter::Entries::new(&self.db, self.family(cf), lower, upper, ReadOptions::default()))
    }

    fn scan(&self, cf: Cf, lower: &[u8], upper: &[u8]) -> KvIter<'_> {
        let o = iter::scan_options();
        Box::new(iter::Entries::new(&self.db, self.family(cf), lower, upper, o))
    }

    fn write(&self, ops: &[KvOp], lsn: u64) -> Result<(), KvError> {
        self.apply(ops, lsn)
    }

    fn marker(&self, cf: Cf) -> Result<u64, KvError> {
        decode_marker(cf, self.get(cf, MARKER_KEY)?.as_deref())
    }

    /// RocksDB syncs each new table file, the folder and the manifest before it calls a flush
    /// done. Families without unflushed data cost nothing.
    fn flush(&self) -> Result<(), KvError> {
        self.alive()?;
        let families = CFS.map(|cf| self.family(cf));
        let mut o = FlushOptions::new();
        o.set_wait(true);
        self.db.flush_cfs_opt(&families.each_ref(), &o).map_err(|e| self.stop(error::failed("flush", e)))?;
        // RocksDB may try again by itself and succeed; a store that failed once is not trusted.
        if self.options.get_ticker_count(Ticker::ErrorHandlerBgErrorCount) > 0 {
            self.alive()?;
            let reason = "a background error was counted".to_owned();
            return Err(self.stop(KvError::Failed { what: "flush", reason }));
        }
        self.small_files.look();
        Ok(())
    }

    /// Flush and compaction bytes are the sizes of the files written, exact but for one page of
    /// padding per file; `other_bytes` is manifest, options and message files.
    fn stats(&self) -> KvStats {
        let mut stats = KvStats {
            log_bytes: self.options.get_ticker_count(Ticker::WalFileBytes),
            other_bytes: self.small_files.look() + self.events.log_bytes(),
            stall_us: self.options.get_ticker_count(Ticker::StallMicros),
            ..KvStats::default()
        };
        for cf in CFS {
            let family = self.family(cf);
            // A property RocksDB cannot give counts as 0: statistics must not fail a store.
            let int = |value: Result<Option<u64>, rocksdb::Error>| value.ok().flatten().unwrap_or(0);
            let mut s = self.events.counters(cf as usize);
            s.table_bytes = self.db.get_column_family_metadata_cf(family).size;
            if self.blobs {
                s.table_bytes += int(self.db.property_int_value_cf(family, LIVE_BLOB_FILE_SIZE));
            }
            s.memtable_bytes = int(self.db.property_int_value_cf(family, CUR_SIZE_ALL_MEM_TABLES));
            stats.by_cf[cf as usize] = s;
        }
        stats
    }
}

impl std::fmt::Debug for RocksKv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksKv").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Whether `path` holds a store, or remains of one.
fn holds_store(path: &Path) -> bool {
    std::fs::read_dir(path).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name == "CURRENT" || name.starts_with("MANIFEST-") || name.ends_with(".sst")
    })
}

fn io_failed(what: &'static str, path: &Path, e: &std::io::Error) -> KvError {
    KvError::Failed { what, reason: format!("{}: {e}", path.display()) }
}
