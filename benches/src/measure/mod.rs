//! What a run cost: time, switches of threads, and every byte written.
//!
//! Bytes are counted twice, by who issued them and by the block device, and the difference is
//! shown: the ledger of the store (data, log, pre-writing), the key-value store's flushes and
//! compactions, the process as the kernel accounts it, and the sectors that the device wrote.

pub mod device;
mod journal;
pub mod ledger;
pub mod process;
pub mod report;
pub mod series;

use std::path::Path;
use std::time::Duration;

use lodestore::{LEDGER, Stats};

use device::Devices;
use ledger::{Kernel, LedgerReport};
use report::Amplification;

/// The state of every counter at one moment.
pub(crate) struct Snapshot {
    stats: Stats,
    cpu: Duration,
    switches: process::Switches,
    kernel: Kernel,
}

/// What happened between two snapshots.
pub(crate) struct Cost {
    /// Bytes that the user asked to be written.
    pub user: u64,
    pub cpu: Duration,
    pub switches: u64,
    pub handoffs: u64,
    pub amplification: Amplification,
    /// Nothing if the store does not count.
    pub ledger: Option<LedgerReport>,
}

impl Snapshot {
    /// Reads every counter; `stats` are the store's own. Everything that waits in the page cache
    /// of the file system of `dir` is written first, so that it is not counted later.
    pub fn take(dir: &Path, stats: Stats, devices: &Devices) -> Self {
        device::sync(dir);
        Snapshot {
            cpu: process::cpu(),
            switches: process::Switches::now(),
            kernel: Kernel {
                process: process::written_bytes(),
                devices: devices.written_bytes(),
                journals: devices
                    .all()
                    .into_iter()
                    .flatten()
                    .filter_map(|d| Some((d.name().to_owned(), d.journal_bytes()?)))
                    .collect(),
            },
            stats,
        }
    }

    /// The store's own counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What happened from `self` to `end`, on `devices`.
    pub fn until(&self, end: &Snapshot, devices: &Devices) -> Cost {
        let all = devices.all().unwrap_or_default();
        let ledger = LedgerReport::between((&self.stats, &self.kernel), (&end.stats, &end.kernel), all);
        Cost {
            user: ledger.user.total,
            cpu: end.cpu.saturating_sub(self.cpu),
            switches: end.switches.since(&self.switches),
            handoffs: end.stats.handoffs - self.stats.handoffs,
            amplification: Amplification::new(&ledger),
            ledger: LEDGER.then_some(ledger),
        }
    }
}
