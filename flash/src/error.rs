//! What a drive refuses.

/// A geometry that makes no drive, or a write beside the drive.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum FlashError {
    /// Sizes that do not fit together.
    #[error("flash model: {0}")]
    Geometry(String),
    /// Beyond the end of the drive.
    #[error("flash model: {len} bytes at offset {offset} reach beyond the drive's {capacity} bytes")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What the host can address.
        capacity: u64,
    },
}
