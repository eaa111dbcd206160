//! The store of a benchmark without a directory: made in the current one, removed at the end.

use std::path::Path;

use lodestore::MkfsOptions;
use lodestore_benches::{IoEngine, Workload};
use tempfile::TempDir;

use crate::cmd::mkfs;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

const BLOCK: u64 = 4096;
/// Least room beside the objects.
const SPARE_MIN: u64 = 64 << 20;
/// Most room beside the objects.
const SPARE_MAX: u64 = 4 << 30;

/// A store that is gone when this is.
pub struct Temporary(TempDir);

impl Temporary {
    /// Makes one with room for the objects of `runs`, all of it pre-written: what is measured is a
    /// store that has been in use, not the first touch of its blocks.
    pub fn make(runs: &[Workload], engine: IoEngine, interrupt: &Interrupt) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| {
            // Without the name, which says nothing to anybody.
            let why = e.raw_os_error().map_or(e.to_string(), |n| std::io::Error::from_raw_os_error(n).to_string());
            Failure::other(format!(
                "a temporary store cannot be made in the current directory: {why}; change to another, or name a store"
            ))
        };
        let dir = tempfile::Builder::new().prefix("lodestore-bench-").tempdir_in(".").map_err(failed)?;
        interrupt.remove_temporary(dir.path());
        let size = runs.iter().map(size).max().unwrap_or(0);
        mkfs::make(dir.path(), &MkfsOptions { size, prewrite: Some(size), engine, ..Default::default() }, interrupt)?;
        Ok(Temporary(dir))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Removes it, and says so if it cannot be.
    pub fn remove(self) -> Result<(), Failure> {
        let path = self.path().to_owned();
        self.0.close().map_err(|e| Failure::other(format!("removing {}: {e}", path.display())))
    }
}

/// The objects twice over again beside them, within bounds: overwrites go to new blocks, and the
/// old ones are free only when the log is trimmed.
fn size(w: &Workload) -> u64 {
    let objects = w.objects.saturating_mul(w.object_size.next_multiple_of(BLOCK));
    let in_flight = (w.depth as u64).saturating_mul(w.io_size);
    let spare = objects.saturating_mul(2).max(in_flight.saturating_mul(4)).clamp(SPARE_MIN, SPARE_MAX);
    objects.saturating_add(spare)
}
