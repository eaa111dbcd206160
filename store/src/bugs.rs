//! Deliberate bugs. With the feature `bugs`, the environment variable `LODESTORE_BUG` switches one
//! on, and a named test must fail: so the tests are known to be able to. Without the feature every
//! question here is a constant `false`.

/// A bug that can be put back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Acknowledge when data and log are written but not flushed.
    AckBeforeFlush,
    /// Make freed blocks allocatable at once instead of when the log is trimmed past them.
    ReuseFreedEarly,
    /// Believe every record found in the log, whatever its data blocks hold.
    ReplayWithoutChecksumRule,
    /// Let the key-value store run ahead of the log.
    ApplyBeforeDurable,
    /// Keep counting on a block whose last co-owner went away.
    RefcountOffByOne,
    /// Return what the medium has without comparing checksums.
    SkipReadChecksum,
    /// Forget the deferred contents in the log on replay.
    DeferredNotReplayed,
    /// Trim the log past deferred writes that are not on the medium.
    TrimTooFar,
    /// Clear an omap without removing its keys from what a new one sees.
    ForgetOmapClear,
    /// Write deferred contents in place before their record is durable.
    DeferredBeforeDurable,
    /// Overwrite in place a block that clones share.
    OverwriteShared,
    /// Leave the rest of a block as it was when an object is cut inside it.
    TruncateKeepsTail,
    /// Replay what is to be seen in the log without first making it durable.
    BelieveUnflushedLog,
}

/// Every bug with its name.
pub const BUGS: &[(Bug, &str)] = &[
    (Bug::AckBeforeFlush, "ack-before-flush"),
    (Bug::ReuseFreedEarly, "reuse-freed-early"),
    (Bug::ReplayWithoutChecksumRule, "replay-without-checksum-rule"),
    (Bug::ApplyBeforeDurable, "apply-before-durable"),
    (Bug::RefcountOffByOne, "refcount-off-by-one"),
    (Bug::SkipReadChecksum, "skip-read-checksum"),
    (Bug::DeferredNotReplayed, "deferred-not-replayed"),
    (Bug::TrimTooFar, "trim-too-far"),
    (Bug::ForgetOmapClear, "forget-omap-clear"),
    (Bug::DeferredBeforeDurable, "deferred-before-durable"),
    (Bug::OverwriteShared, "overwrite-shared"),
    (Bug::TruncateKeepsTail, "truncate-keeps-tail"),
    (Bug::BelieveUnflushedLog, "believe-unflushed-log"),
];

/// Whether a bug is switched on.
#[cfg(feature = "bugs")]
pub fn enabled(bug: Bug) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<Option<Bug>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("LODESTORE_BUG").ok()?;
        let found = BUGS.iter().find(|(_, n)| *n == name);
        Some(found.unwrap_or_else(|| panic!("LODESTORE_BUG: no bug is called '{name}'")).0)
    });
    *chosen == Some(bug)
}

/// Whether a bug is switched on: never, without the feature `bugs`.
#[cfg(not(feature = "bugs"))]
pub const fn enabled(_: Bug) -> bool {
    false
}
