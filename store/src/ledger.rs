//! The ledger: every byte written, counted where it is issued, and what the user asked for.

/// Bytes since the store was mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Object data the user asked to be written.
    pub user_data: u64,
    /// Omap keys, values and headers the user asked to be written.
    pub user_omap: u64,
    /// Attributes the user asked to be written.
    pub user_attrs: u64,
    /// Data written direct to newly allocated blocks.
    pub data_direct: u64,
    /// Deferred contents written in place.
    pub data_deferred: u64,
    /// Deferred contents in the log.
    pub log_payload: u64,
    /// Metadata in the log, batch headers included.
    pub log_metadata: u64,
    /// Zeros that fill log batches to whole blocks.
    pub log_padding: u64,
    /// Zeros written to data space ahead of need.
    pub prewrite: u64,
    /// Object data read from the medium.
    pub data_read: u64,
}

impl Ledger {
    /// All log bytes.
    pub fn log(&self) -> u64 {
        self.log_payload + self.log_metadata + self.log_padding
    }

    /// What the user asked to be written.
    pub fn user(&self) -> u64 {
        self.user_data + self.user_omap + self.user_attrs
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        Ledger {
            user_data: self.user_data - earlier.user_data,
            user_omap: self.user_omap - earlier.user_omap,
            user_attrs: self.user_attrs - earlier.user_attrs,
            data_direct: self.data_direct - earlier.data_direct,
            data_deferred: self.data_deferred - earlier.data_deferred,
            log_payload: self.log_payload - earlier.log_payload,
            log_metadata: self.log_metadata - earlier.log_metadata,
            log_padding: self.log_padding - earlier.log_padding,
            prewrite: self.prewrite - earlier.prewrite,
            data_read: self.data_read - earlier.data_read,
        }
    }
}

/// How often each path was taken since the store was mounted; what happened while mounting counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Transactions acknowledged.
    pub commits: u64,
    /// Transactions refused.
    pub refused: u64,
    /// Of them, for lack of space.
    pub enospc_refused: u64,
    /// Log batches written.
    pub batches: u64,
    /// Of them, with more than one record.
    pub group_commits: u64,
    /// Flushes of the media asked for.
    pub syncs: u64,
    /// Times the log began again at its first segment.
    pub log_wraps: u64,
    /// Transactions that waited because the log was full.
    pub log_full_waits: u64,
    /// Transactions that waited for space to come out of limbo or to be pre-written.
    pub space_waits: u64,
    /// Times the allocator's search went round.
    pub allocator_wraps: u64,
    /// Overwrites of shared blocks that went elsewhere.
    pub cow_copies: u64,
    /// Lookups of metadata that were not in memory, done by another thread.
    pub lookups_elsewhere: u64,
    /// Blocks read to overwrite a part of them.
    pub blocks_fetched: u64,
    /// Deferred blocks written in place.
    pub deferred_applied: u64,
    /// Deferred blocks overwritten before they were written.
    pub deferred_coalesced: u64,
    /// Deferred blocks freed before they were written.
    pub deferred_dropped: u64,
    /// Flushes of the key-value store asked for.
    pub kv_flushes: u64,
    /// Log trims.
    pub trims: u64,
    /// Blocks of data found in memory.
    pub cache_hits: u64,
    /// Reads repeated because the block changed under them.
    pub reads_retried: u64,
    /// Blocks whose checksum did not match.
    pub damaged_blocks: u64,
    /// Records replayed at mount.
    pub records_replayed: u64,
    /// Records at the end of the log not believed at mount: their data was not there.
    pub records_cut: u64,
    /// Torn tails of the log cut at mount.
    pub torn_tails_cut: u64,
    /// Deferred blocks written by replay.
    pub deferred_replayed: u64,
    /// Mounts that walked every extent map because there was no snapshot to believe.
    pub allocator_rebuilds: u64,
}
