//! The ledger of a run as it is reported: every byte by class, by type of operation and by column
//! family, beside what the kernel counted for the process and for each device.

use std::collections::BTreeMap;

use lodestore::{Ledger, OpBytes, Stats};
use lodestore_kv::{CFS, KvStats};
use serde::Serialize;

use super::device::{Device, Part};

/// Bytes the user asked to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct UserBytes {
    /// Object data.
    pub data: u64,
    /// Omap keys, values and headers.
    pub omap: u64,
    /// Attributes with their names.
    pub attrs: u64,
    /// All of it.
    pub total: u64,
}

macro_rules! classes {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Bytes the store issued, by class. Each byte is in one class.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
        pub struct Classes {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Classes {
            /// Names and bytes, in the order of the definition.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }
        }
    };
}

classes! {
    /// Object data written direct to newly allocated blocks.
    data_direct,
    /// Deferred contents written in place.
    data_deferred,
    /// Deferred contents in the log.
    log_payload,
    /// Metadata in the log.
    log_metadata,
    /// Zeros that fill log batches to whole blocks.
    log_padding,
    /// Headers of batches, length fields of records, the log's own header.
    log_header,
    /// Tables that flushes of the key-value store wrote.
    kv_flush,
    /// Tables that its compactions wrote.
    kv_compaction,
    /// Its own log, where that is on.
    kv_log,
    /// Its manifest, options and messages.
    kv_other,
    /// Zeros written to data space ahead of need.
    prewrite,
}

impl Classes {
    /// Everything.
    pub fn total(&self) -> u64 {
        self.list().iter().map(|(_, n)| n).sum()
    }

    /// What goes to the place of one part of the store.
    pub fn of_part(&self, part: Part) -> u64 {
        match part {
            Part::Data => self.data_direct + self.data_deferred + self.prewrite,
            Part::Log => self.log_payload + self.log_metadata + self.log_padding + self.log_header,
            Part::Kv => self.kv_flush + self.kv_compaction + self.kv_log + self.kv_other,
        }
    }
}

/// Tables of one column family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FamilyBytes {
    /// Written by flushes.
    pub flush: u64,
    /// Written by compactions.
    pub compaction: u64,
}

/// What the operations of one type wrote; see [`lodestore::ByOp`] for the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "each is the field of the same name of `lodestore::OpBytes`")]
pub struct OpRow {
    pub ops: u64,
    pub user: u64,
    pub data_direct: u64,
    pub data_deferred: u64,
    pub log_payload: u64,
    pub log_metadata: u64,
}

impl From<&OpBytes> for OpRow {
    fn from(b: &OpBytes) -> Self {
        let OpBytes { ops, user, data_direct, data_deferred, log_payload, log_metadata } = *b;
        OpRow { ops, user, data_direct, data_deferred, log_payload, log_metadata }
    }
}

/// A block device under the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceBytes {
    /// Its name.
    pub name: String,
    /// Its name and those of the devices under it, down to physical ones.
    pub chain: Vec<String>,
    /// What it wrote.
    pub bytes: u64,
    /// What each device of the chain wrote, itself included.
    pub chain_bytes: Vec<u64>,
    /// What of the store lies there: data, log, kv.
    pub classes: Vec<&'static str>,
    /// What the store issued for these, where they lie nowhere else.
    pub counted: Option<u64>,
    /// What the file system there says it wrote to its journal.
    pub fs_journal: Option<u64>,
}

/// Every byte of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LedgerReport {
    /// What was asked for.
    pub user: UserBytes,
    /// What was issued.
    pub classes: Classes,
    /// `kv_flush` and `kv_compaction` by column family.
    pub kv_by_cf: BTreeMap<&'static str, FamilyBytes>,
    /// `data_*`, `log_payload` and `log_metadata` by type of operation.
    pub by_op: BTreeMap<&'static str, OpRow>,
    /// What the kernel counted for this process.
    pub process_bytes: Option<u64>,
    /// What it counted for the block devices; empty if some part of the store lies on none.
    pub devices: Vec<DeviceBytes>,
    /// What the devices wrote beyond everything issued: file systems, and whatever else wrote there.
    pub fs_share: Option<i64>,
    /// The part of it that file systems count themselves: their journals.
    pub fs_journal: Option<u64>,
    /// Bytes of log records in tables of the key-value store.
    pub log_in_sst: u64,
}

/// What the kernel counted at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    /// Bytes this process caused to be written.
    pub process: Option<u64>,
    /// Bytes written by each block device, by name.
    pub devices: Option<BTreeMap<String, u64>>,
    /// Bytes written to the journal on each device of the store, by name.
    pub journals: BTreeMap<String, u64>,
}

impl LedgerReport {
    /// What happened between two states of a store on `devices`, and of the kernel's counters.
    pub(crate) fn between(begin: (&Stats, &Kernel), end: (&Stats, &Kernel), devices: &[Device]) -> LedgerReport {
        let l = end.0.ledger.since(&begin.0.ledger);
        let classes = classes(&l, &begin.0.kv, &end.0.kv);
        let devices: Vec<DeviceBytes> =
            devices.iter().filter_map(|d| of_device(d, &classes, devices, begin.1, end.1)).collect();
        let written = (!devices.is_empty()).then(|| devices.iter().map(|d| d.bytes).sum::<u64>());
        let journals: Vec<u64> = devices.iter().filter_map(|d| d.fs_journal).collect();
        LedgerReport {
            user: UserBytes { data: l.user_data, omap: l.user_omap, attrs: l.user_attrs, total: l.user() },
            kv_by_cf: by_family(&begin.0.kv, &end.0.kv),
            by_op: l.by_op.iter().map(|(kind, b)| (kind.name(), b.into())).collect(),
            process_bytes: end.1.process.zip(begin.1.process).map(|(e, b)| e.saturating_sub(b)),
            fs_share: written.map(|n| n as i64 - classes.total() as i64),
            fs_journal: (!journals.is_empty()).then(|| journals.iter().sum()),
            devices,
            log_in_sst: end.0.kv.log_in_tables() - begin.0.kv.log_in_tables(),
            classes,
        }
    }

    /// What all devices wrote.
    pub fn device_bytes(&self) -> Option<u64> {
        (!self.devices.is_empty()).then(|| self.devices.iter().map(|d| d.bytes).sum())
    }
}

fn of_device(d: &Device, classes: &Classes, all: &[Device], begin: &Kernel, end: &Kernel) -> Option<DeviceBytes> {
    let (before, after) = (begin.devices.as_ref()?, end.devices.as_ref()?);
    let written = |name: &String| Some(after.get(name)?.saturating_sub(*before.get(name)?));
    let chain_bytes = d.chain.iter().map(written).collect::<Option<Vec<u64>>>()?;
    let alone = d.parts.iter().all(|p| all.iter().filter(|o| o.parts.contains(p)).count() == 1);
    let journal = |k: &Kernel| k.journals.get(d.name()).copied();
    Some(DeviceBytes {
        name: d.name().to_owned(),
        chain: d.chain.clone(),
        bytes: chain_bytes[0],
        chain_bytes,
        classes: d.parts.iter().map(|p| p.name()).collect(),
        counted: alone.then(|| d.parts.iter().map(|p| classes.of_part(*p)).sum()),
        fs_journal: journal(end).zip(journal(begin)).map(|(e, b)| e.saturating_sub(b)),
    })
}

fn classes(l: &Ledger, before: &KvStats, after: &KvStats) -> Classes {
    let flush = |s: &KvStats| s.by_cf.iter().map(|c| c.flush_bytes).sum::<u64>();
    let compaction = |s: &KvStats| s.by_cf.iter().map(|c| c.compaction_bytes).sum::<u64>();
    Classes {
        data_direct: l.data_direct,
        data_deferred: l.data_deferred,
        log_payload: l.log_payload,
        log_metadata: l.log_metadata,
        log_padding: l.log_padding,
        log_header: l.log_header,
        kv_flush: flush(after) - flush(before),
        kv_compaction: compaction(after) - compaction(before),
        kv_log: after.log_bytes - before.log_bytes,
        kv_other: after.other_bytes - before.other_bytes,
        prewrite: l.prewrite,
    }
}

fn by_family(before: &KvStats, after: &KvStats) -> BTreeMap<&'static str, FamilyBytes> {
    let bytes = |cf: lodestore_kv::Cf| {
        let (b, a) = (&before.by_cf[cf as usize], &after.by_cf[cf as usize]);
        FamilyBytes { flush: a.flush_bytes - b.flush_bytes, compaction: a.compaction_bytes - b.compaction_bytes }
    };
    CFS.into_iter().map(|cf| (cf.name(), bytes(cf))).collect()
}
