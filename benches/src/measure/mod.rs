//! What a run cost: time, switches of threads, and every byte written.
//!
//! Bytes are counted twice, by who issued them and by the block device, and the difference is
//! shown: the ledger of the store (data, log, pre-writing), the key-value store's flushes and
//! compactions, the process as the kernel accounts it, and the sectors that the device wrote.

pub mod device;
pub mod process;
pub mod report;

use std::path::Path;
use std::time::Duration;

use lodestore::Stats;

use device::Devices;
use report::Amplification;

/// The state of every counter at one moment.
pub(crate) struct Snapshot {
    stats: Stats,
    cpu: Duration,
    switches: process::Switches,
    /// Bytes this process caused to be written, by the kernel's account.
    process: Option<u64>,
    /// Bytes the block devices wrote.
    device: Option<u64>,
}

/// What happened between two snapshots.
pub(crate) struct Cost {
    /// Bytes that the user asked to be written.
    pub user: u64,
    pub cpu: Duration,
    pub switches: u64,
    pub handoffs: u64,
    pub amplification: Amplification,
}

impl Snapshot {
    /// Reads every counter; `stats` are the store's own. Everything that waits in the page cache
    /// of the file system of `dir` is written first, so that it is not counted later.
    pub fn take(dir: &Path, stats: Stats, devices: &Devices) -> Self {
        device::sync(dir);
        Snapshot {
            cpu: process::cpu(),
            switches: process::Switches::now(),
            process: process::written_bytes(),
            device: devices.written_bytes(),
            stats,
        }
    }

    /// What happened from `self` to `end`.
    pub fn until(&self, end: &Snapshot) -> Cost {
        let ledger = end.stats.ledger.since(&self.stats.ledger);
        let kv =
            |s: &Stats| s.kv.by_cf.iter().map(|c| c.flush_bytes + c.compaction_bytes).sum::<u64>() + s.kv.log_bytes;
        let bytes = report::Bytes {
            user: ledger.user(),
            data: ledger.data_direct + ledger.data_deferred,
            log: ledger.log(),
            kv: kv(&end.stats) - kv(&self.stats),
            prewrite: ledger.prewrite,
            process: difference(self.process, end.process),
            device: difference(self.device, end.device),
        };
        Cost {
            user: bytes.user,
            cpu: end.cpu.saturating_sub(self.cpu),
            switches: end.switches.since(&self.switches),
            handoffs: end.stats.handoffs - self.stats.handoffs,
            amplification: Amplification::new(&bytes),
        }
    }
}

fn difference(begin: Option<u64>, end: Option<u64>) -> Option<u64> {
    Some(end?.saturating_sub(begin?))
}
