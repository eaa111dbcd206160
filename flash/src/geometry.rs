//! The sizes of a drive.

use crate::class::STREAMS;
use crate::error::FlashError;

/// Pages are numbered by 32 bits, of which the last number means none.
const PAGES_MAX: u64 = u32::MAX as u64;

/// Most blocks being filled at a time.
pub(crate) const OPEN_MAX: usize = STREAMS + 1;

/// What a drive is made of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Geometry {
    /// The unit of mapping, in bytes; a smaller write takes a whole one. A power of two.
    pub page_bytes: u64,
    /// The unit of erasing, in bytes: a whole number of pages, at least two. Drives erase many
    /// planes and dies together, so that this is the size of such a superblock.
    pub block_bytes: u64,
    /// Flash beyond what the host can address, as a share of the latter: 0.07 for 7 %.
    pub over_provisioning: f64,
    /// Whether each class is appended to blocks of its own. What collection moves goes to blocks of
    /// its own too, whatever its class (NVMe calls this *initially isolated*).
    pub streams: bool,
}

impl Default for Geometry {
    /// Pages of 4 KiB, blocks of 4 MiB, 7 % over-provisioning, no streams.
    fn default() -> Self {
        Geometry { page_bytes: 4 << 10, block_bytes: 4 << 20, over_provisioning: 0.07, streams: false }
    }
}

impl Geometry {
    /// Pages in a block.
    pub fn pages_per_block(&self) -> u64 {
        self.block_bytes / self.page_bytes
    }

    /// Blocks being filled at a time: one a stream and one for what collection moves, or one for
    /// everything.
    pub(crate) fn open_max(&self) -> usize {
        if self.streams { OPEN_MAX } else { 1 }
    }

    /// Checks the sizes against one another.
    ///
    /// # Errors
    /// [`FlashError::Geometry`] for sizes that make no drive.
    pub fn check(&self) -> Result<(), FlashError> {
        let bad = |s: String| Err(FlashError::Geometry(s));
        let (page, block) = (self.page_bytes, self.block_bytes);
        if !page.is_power_of_two() {
            return bad(format!("pages of {page} bytes: a power of two is needed"));
        }
        if block < 2 * page || !block.is_multiple_of(page) {
            return bad(format!("erase blocks of {block} bytes: a whole number of pages of {page} bytes is needed"));
        }
        if !(self.over_provisioning > 0.0 && self.over_provisioning <= 100.0) {
            return bad(format!("over-provisioning of {}: a share above 0 is needed", self.over_provisioning));
        }
        Ok(())
    }

    /// Blocks that a drive has for `pages` the host can address.
    ///
    /// # Errors
    /// [`FlashError::Geometry`] if there would be too many, or too few spare ones for the open
    /// blocks: collection must always find a block with a page that is no longer valid, which
    /// needs one block more than the open ones and the one it moves to.
    pub(crate) fn blocks_for(&self, pages: u64) -> Result<u64, FlashError> {
        let bad = |s: String| Err(FlashError::Geometry(s));
        let per_block = self.pages_per_block();
        let blocks = (pages as f64 * (1.0 + self.over_provisioning) / per_block as f64).round() as u64;
        let least = pages.div_ceil(per_block) + self.open_max() as u64 + 2;
        if blocks < least {
            return bad(format!(
                "over-provisioning of {} leaves {} of {blocks} erase blocks spare, {} are needed: choose smaller blocks or more of it",
                self.over_provisioning,
                blocks.saturating_sub(pages.div_ceil(per_block)),
                self.open_max() + 2,
            ));
        }
        if blocks.saturating_mul(per_block) > PAGES_MAX {
            return bad(format!("{blocks} erase blocks of {per_block} pages are too many: choose larger pages"));
        }
        Ok(blocks)
    }
}
