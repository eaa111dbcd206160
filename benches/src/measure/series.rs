//! A run over time: one sample a second.

use std::time::{Duration, Instant};

use lodestore::{Ledger, Stats};
use lodestore_kv::KvStats;
use serde::Serialize;

use super::device::{Devices, written_bytes};
use crate::live::{Live, Stage};

/// Time between two samples.
const EVERY: Duration = Duration::from_secs(1);

/// What happened since the run's first operation.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Sample {
    /// Seconds since the first operation.
    pub t_s: f64,
    /// Operations completed.
    pub ops: u64,
    /// Bytes the user asked to be written.
    pub user: u64,
    /// Object data written.
    pub data: u64,
    /// Log written.
    pub log: u64,
    /// Tables written by flushes of the key-value store.
    pub kv_flush: u64,
    /// Tables written by its compactions.
    pub kv_compaction: u64,
    /// Its own log.
    pub kv_log: u64,
    /// Everything the block devices wrote so far: what is in page caches follows later.
    pub device: Option<u64>,
    /// Flushes of the key-value store done.
    pub flushes: u64,
    /// Compactions done.
    pub compactions: u64,
}

/// Takes samples when they are due.
#[derive(Debug)]
pub(crate) struct Sampler {
    begin: Instant,
    first: Stats,
    devices: Vec<String>,
    device_first: Option<u64>,
    ops: u64,
    samples: Vec<Sample>,
}

impl Sampler {
    /// A run begins now; `first` is the store's state.
    pub fn begin(first: Stats, devices: &Devices) -> Self {
        let devices: Vec<String> = devices.all().into_iter().flatten().map(|d| d.name().to_owned()).collect();
        let device_first = written(&devices);
        Sampler { begin: Instant::now(), first, devices, device_first, ops: 0, samples: Vec::new() }
    }

    /// How long until the next sample is due; zero if it is.
    pub fn due_in(&self) -> Duration {
        let next = EVERY * (self.samples.len() as u32 + 1);
        next.saturating_sub(self.begin.elapsed())
    }

    /// Takes a sample. `live` tells how many operations are done.
    pub fn sample(&mut self, stats: &Stats, live: &Live) {
        if live.stage() == Stage::Running {
            self.ops = self.ops.max(live.done());
        }
        let t_s = self.begin.elapsed().as_secs_f64();
        self.samples.push(self.since_begin(stats, t_s, self.ops));
    }

    /// All samples, the last of them the state at the end of the run's flush.
    pub fn finish(mut self, end: &Stats, ops: u64) -> Vec<Sample> {
        let last = self.since_begin(end, self.begin.elapsed().as_secs_f64(), ops);
        self.samples.push(last);
        self.samples
    }

    fn since_begin(&self, now: &Stats, t_s: f64, ops: u64) -> Sample {
        let l: Ledger = now.ledger.since(&self.first.ledger);
        let kv = |f: fn(&KvStats) -> u64| f(&now.kv) - f(&self.first.kv);
        Sample {
            t_s: (t_s * 1e3).round() / 1e3,
            ops,
            user: l.user(),
            data: l.data(),
            log: l.log(),
            kv_flush: kv(|s| s.by_cf.iter().map(|c| c.flush_bytes).sum()),
            kv_compaction: kv(|s| s.by_cf.iter().map(|c| c.compaction_bytes).sum()),
            kv_log: kv(|s| s.log_bytes),
            device: written(&self.devices).zip(self.device_first).map(|(now, first)| now.saturating_sub(first)),
            flushes: kv(|s| s.by_cf.iter().map(|c| c.flushes).sum()),
            compactions: kv(|s| s.by_cf.iter().map(|c| c.compactions).sum()),
        }
    }
}

fn written(devices: &[String]) -> Option<u64> {
    (!devices.is_empty()).then(|| devices.iter().map(|d| written_bytes(d)).sum()).flatten()
}
