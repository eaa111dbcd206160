//! The result of a run, as it is printed and as JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::device::Part;
use super::ledger::LedgerReport;
use super::series::Sample;
use crate::flash::FlashReport;
use crate::workload::{Until, Workload};

/// Bytes written per byte the user asked to be written. `None` where nothing was written or the
/// system does not tell.
///
/// Counted from the first operation to the end of a flush behind the last one, which brings the
/// key-value store's memtables and deferred contents to the medium: a short run hides nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Amplification {
    /// Object data: direct, and deferred contents written in place.
    pub data: Option<f64>,
    /// The log: records, deferred payload, padding.
    pub log: Option<f64>,
    /// Flushes and compactions of the key-value store (and its own log, where that is on).
    pub kv: Option<f64>,
    /// The rest of what the block device wrote: the store's small files, the file system's
    /// journal, and whatever else wrote to the same device in the meantime.
    pub other: Option<f64>,
    /// All of the above.
    pub total: Option<f64>,
    /// Data space pre-written ahead of need; not part of the total.
    pub prewrite: Option<f64>,
    /// Of `other`, what this process wrote by the kernel's account; the rest is the file system's
    /// and that of other processes.
    pub other_of_process: Option<f64>,
}

impl Amplification {
    pub(crate) fn new(l: &LedgerReport) -> Self {
        let (user, c) = (l.user.total, &l.classes);
        if user == 0 {
            return Amplification::default();
        }
        let per_user = |n: f64| Some(round(n / user as f64, 4));
        let (data, log) = (c.data_direct + c.data_deferred, c.of_part(Part::Log));
        let kv = c.kv_flush + c.kv_compaction + c.kv_log;
        let counted = (data + log + kv) as f64;
        // Signed: a device that saw less than was issued must show, too.
        let beyond = |n: Option<u64>| n.map(|n| n as f64 - counted - c.prewrite as f64);
        let other = beyond(l.device_bytes());
        Amplification {
            data: per_user(data as f64),
            log: per_user(log as f64),
            kv: per_user(kv as f64),
            other: other.and_then(per_user),
            total: per_user(counted + other.unwrap_or(0.0)),
            prewrite: per_user(c.prewrite as f64),
            other_of_process: other.and(beyond(l.process_bytes)).and_then(per_user),
        }
    }
}

/// Latency in microseconds, from submission to the moment the client knows of the completion.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of all operations took no longer.
    pub p50: f64,
    /// 95 of 100 took no longer.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    pub(crate) fn new(ns: &Histogram<u64>) -> Self {
        let us = |n: f64| round(n / 1000.0, 1);
        let at = |q: f64| us(ns.value_at_quantile(q) as f64);
        Latency {
            mean: us(ns.mean()),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: us(ns.max() as f64),
        }
    }
}

/// Reads or writes of a mixed run on their own.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Side {
    /// Operations.
    pub ops: u64,
    /// Operations a second.
    pub iops: f64,
    /// Their latency.
    pub latency_us: Latency,
}

/// Memory of the process, in bytes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Memory {
    /// Resident after the run.
    pub rss: u64,
    /// Resident at the most since the process began.
    pub rss_max: u64,
    /// What it was allowed to cache: decoded metadata, data, the key-value store's blocks and
    /// memtables.
    pub caches_max: u64,
}

/// What was asked for, as strings and numbers that can be given to the program again.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[expect(missing_docs, reason = "each is the option of the same name")]
pub struct Config {
    pub objects: u64,
    pub object_size: u64,
    pub io_size: u64,
    pub depth: usize,
    pub op: String,
    pub pattern: String,
    pub runtime_s: Option<f64>,
    pub ops: Option<u64>,
    pub threads: usize,
    pub thinktime_us: f64,
    pub thinktime_blocks: u64,
    pub engine: String,
    pub driver: String,
    pub overwrite: String,
    pub seed: u64,
    pub verify: bool,
    pub data_cache: u64,
    pub meta_cache: u64,
    pub device: Option<String>,
    pub version: &'static str,
}

impl Config {
    pub(crate) fn of_workload(w: &Workload) -> Self {
        let (runtime_s, ops) = match w.until {
            Until::Time(t) => (Some(t.as_secs_f64()), None),
            Until::Ops(n) => (None, Some(n)),
        };
        Config {
            objects: w.objects,
            object_size: w.object_size,
            io_size: w.io_size,
            depth: w.depth,
            op: w.op.to_string(),
            pattern: w.pattern.to_string(),
            runtime_s,
            ops,
            threads: w.threads,
            thinktime_us: w.thinktime.as_secs_f64() * 1e6,
            thinktime_blocks: w.thinktime_blocks,
            engine: String::new(),
            driver: String::new(),
            overwrite: String::new(),
            seed: w.seed,
            verify: w.verify,
            data_cache: 0,
            meta_cache: 0,
            device: None,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// What was asked for.
    pub config: Config,
    /// Operations done.
    pub ops: u64,
    /// Seconds from the first operation's start to the last one's end.
    pub elapsed_s: f64,
    /// Operations a second.
    pub iops: f64,
    /// MiB a second, read and written.
    pub mib_per_s: f64,
    /// Of all operations.
    pub latency_us: Latency,
    /// CPU time of the whole process, the flush at the end included, by operation.
    pub cpu_us_per_op: f64,
    /// Voluntary context switches of all threads, by operation.
    pub context_switches_per_op: f64,
    /// Operations that passed from one thread to another on their way to the engine, by operation.
    pub handoffs_per_op: f64,
    /// Bytes written per user byte.
    pub amplification: Amplification,
    /// What it cost the flash, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashReport>,
    /// Every byte by class, by type of operation and by device; nothing if the store does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerReport>,
    /// The run second by second.
    pub series: Vec<Sample>,
    /// The reads of a mixed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Side>,
    /// The writes of a mixed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<Side>,
    /// Memory.
    pub memory: Option<Memory>,
}

impl Report {
    /// Puts a run together.
    pub(crate) fn new(config: Config, tally: &crate::client::Tally, elapsed: Duration, cost: super::Cost) -> Report {
        let mut all = tally.reads.clone();
        all.add(&tally.writes).expect("the same bounds");
        let (ops, s) = (all.len(), elapsed.as_secs_f64().max(1e-9));
        let per_op = |n: f64| round(n / ops.max(1) as f64, 3);
        let side =
            |h: &Histogram<u64>| Side { ops: h.len(), iops: round(h.len() as f64 / s, 1), latency_us: Latency::new(h) };
        let mixed = !tally.reads.is_empty() && !tally.writes.is_empty();
        Report {
            ops,
            elapsed_s: round(s, 6),
            iops: round(ops as f64 / s, 1),
            mib_per_s: round(ops as f64 * config.io_size as f64 / s / (1 << 20) as f64, 1),
            latency_us: Latency::new(&all),
            cpu_us_per_op: per_op(cost.cpu.as_secs_f64() * 1e6),
            context_switches_per_op: per_op((cost.switches + tally.switches) as f64),
            handoffs_per_op: per_op(cost.handoffs as f64),
            amplification: cost.amplification,
            flash: None,
            ledger: cost.ledger,
            series: Vec::new(),
            reads: mixed.then(|| side(&tally.reads)),
            writes: mixed.then(|| side(&tally.writes)),
            memory: None,
            config,
        }
    }
}

fn round(n: f64, digits: i32) -> f64 {
    let f = 10f64.powi(digits);
    (n * f).round() / f
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::ledger::{Classes, DeviceBytes, UserBytes};

    /// 1000 bytes asked for, 1000 of data, 30 of log, 10 of tables, 500 pre-written; the process wrote
    /// 1545, the device 1560.
    fn ledger() -> LedgerReport {
        let classes = Classes {
            data_direct: 900,
            data_deferred: 100,
            log_payload: 15,
            log_metadata: 9,
            log_padding: 5,
            log_header: 1,
            kv_flush: 7,
            kv_compaction: 3,
            prewrite: 500,
            ..Classes::default()
        };
        LedgerReport {
            user: UserBytes { data: 1000, total: 1000, ..UserBytes::default() },
            classes,
            kv_by_cf: Default::default(),
            by_op: Default::default(),
            process_bytes: Some(1545),
            devices: vec![DeviceBytes {
                name: "sda".into(),
                chain: vec!["sda".into()],
                bytes: 1560,
                chain_bytes: vec![1560],
                classes: vec!["data", "log", "kv"],
                counted: Some(1540),
                fs_journal: None,
            }],
            fs_share: Some(20),
            fs_journal: None,
            log_in_sst: 0,
        }
    }

    #[test]
    fn what_nobody_counted_is_other_and_part_of_the_total() {
        let a = Amplification::new(&ledger());
        assert_eq!((a.data, a.log, a.kv), (Some(1.0), Some(0.03), Some(0.01)));
        assert_eq!((a.other, a.total, a.prewrite), (Some(0.02), Some(1.06), Some(0.5)));
        assert_eq!(a.other_of_process, Some(0.005));
    }

    #[test]
    fn an_unknown_device_leaves_what_was_counted() {
        let a = Amplification::new(&LedgerReport { devices: Vec::new(), ..ledger() });
        assert_eq!((a.other, a.total, a.other_of_process), (None, Some(1.04), None));
    }

    #[test]
    fn without_writes_there_is_nothing_to_divide_by() {
        let user = UserBytes::default();
        assert_eq!(Amplification::new(&LedgerReport { user, ..ledger() }), Amplification::default());
    }
}
