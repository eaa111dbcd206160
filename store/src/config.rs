//! What can be chosen when a store is made and when it is mounted.

use std::fmt;
use std::str::FromStr;

/// How overwrites of existing blocks reach the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Whole blocks direct, partial blocks deferred: the fewest bytes, few milliseconds.
    #[default]
    Auto,
    /// Everything to newly allocated blocks, also the partial ones (read, merged, rewritten).
    Direct,
    /// Payload in the log, written in place after the acknowledgement.
    Deferred,
}

impl FromStr for Policy {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Policy::Auto),
            "direct" => Ok(Policy::Direct),
            "deferred" => Ok(Policy::Deferred),
            other => Err(format!("'{other}' is no overwrite policy; choose auto, direct or deferred")),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Auto => "auto",
            Policy::Direct => "direct",
            Policy::Deferred => "deferred",
        })
    }
}

/// Sizes fixed when a store is made, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Room for object data, one entry a fragment file. Multiples of 4 KiB.
    pub data: Vec<u64>,
    /// The log, its two header blocks included.
    pub log: u64,
    /// One segment of the log; a record (metadata and deferred payload of one transaction) fits
    /// into one, and its deferred payload into half of it. At most 64 MiB.
    pub segment: u64,
    /// How much of the data space is pre-written when the store is made; the rest follows in the
    /// background, ahead of need.
    pub prewrite: u64,
}

/// Choices of one mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// How overwrites reach the medium.
    pub policy: Policy,
    /// Most I/Os in flight.
    pub depth: usize,
    /// Most bytes of decoded metadata kept in memory.
    pub meta_cache_bytes: u64,
    /// Most bytes of object data kept in memory, 0 for none.
    pub data_cache_bytes: u64,
    /// Most bytes of requests that callers may have submitted and not been answered (each counts
    /// its data and 4 KiB); more are refused.
    pub submitted_bytes_max: u64,
    /// Bytes of data after which a group of transactions is sent off without waiting for more.
    pub group_bytes: u64,
    /// Largest overwrite that is deferred, in bytes; larger ones go direct whatever the policy.
    pub deferred_max: u64,
    /// Deferred blocks waiting to be applied that start the applying, in bytes.
    pub deferred_batch: u64,
    /// Step of background pre-writing, in bytes.
    pub prewrite_step: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            policy: Policy::Auto,
            depth: 512,
            meta_cache_bytes: 128 << 20,
            data_cache_bytes: 64 << 20,
            submitted_bytes_max: 1 << 30,
            group_bytes: 4 << 20,
            deferred_max: 1 << 20,
            deferred_batch: 4 << 20,
            prewrite_step: 32 << 20,
        }
    }
}
