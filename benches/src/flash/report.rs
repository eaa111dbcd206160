//! What a run cost the flash, as it is printed and as JSON.

use std::time::Duration;

use lodestore_flash::{Bytes, CLASSES};
use serde::{Serialize, Serializer};

use super::smart::SmartBytes;
use super::worker::ModelRun;

/// Bytes that the host wrote and that the cells took.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FlashBytes {
    /// Written to the drive.
    pub host: u64,
    /// Written to its cells.
    pub media: u64,
    /// The quotient.
    pub wa: f64,
}

impl FlashBytes {
    fn new(b: Bytes) -> Option<Self> {
        Some(FlashBytes { host: b.host, media: b.media, wa: round(b.amplification()?) })
    }
}

/// The model drive and what it says of its own figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FlashModel {
    /// Flash beyond what the host can address, as a share of that.
    pub over_provisioning: f64,
    /// Erase block, in bytes.
    pub block_bytes: u64,
    /// Page, in bytes.
    pub page_bytes: u64,
    /// Whether each class had blocks of its own.
    pub streams: bool,
    /// Whether removed files of the key-value store were trimmed.
    pub trim: bool,
    /// Bytes that the host can address, all written before the first run.
    pub drive_bytes: u64,
    /// Bytes of flash.
    pub flash_bytes: u64,
    /// Erase blocks erased in the run.
    pub erases: u64,
    /// How often the host had written the whole drive when the second half of the run began.
    pub drives_written: f64,
    /// Amplification in the third and the last quarter of the run's host bytes; `None` where it
    /// was too short to tell.
    pub wa_quarters: Option<(f64, f64)>,
    /// Whether the figure is that of the steady state; if not, a longer run may differ.
    pub steady: bool,
    /// About how long the run would have to be to become steady, in seconds.
    pub steady_after_s: Option<f64>,
}

/// What a run cost the flash.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlashReport {
    /// `smart` (the drive's own counters) or `model`.
    pub source: &'static str,
    /// Bytes the drive was given; 0 where that is not known.
    pub host_bytes: u64,
    /// Bytes its cells took; `None` where the drive does not tell.
    pub media_bytes: Option<u64>,
    /// The quotient.
    pub wa: Option<f64>,
    /// Bytes the cells took for each byte the user asked to be written.
    pub per_user_byte: Option<f64>,
    /// By class; empty with `smart`, because a drive does not know them. A page that collection
    /// moved counts for the class that wrote it.
    #[serde(serialize_with = "as_map")]
    pub by_class: Vec<(&'static str, FlashBytes)>,
    /// The model drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<FlashModel>,
    /// Why there is a model where the drive itself was to be asked, or no figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl FlashReport {
    /// Without a figure, and why.
    pub(super) fn unknown(why: String) -> FlashReport {
        FlashReport {
            source: "model",
            host_bytes: 0,
            media_bytes: None,
            wa: None,
            per_user_byte: None,
            by_class: Vec::new(),
            model: None,
            note: Some(why),
        }
    }

    pub(super) fn of_smart(before: SmartBytes, after: SmartBytes, user: u64) -> FlashReport {
        let host = after.host.saturating_sub(before.host);
        let media = after.media.zip(before.media).map(|(a, b)| a.saturating_sub(b));
        FlashReport {
            source: "smart",
            host_bytes: host,
            media_bytes: media,
            wa: media.and_then(|m| quotient(m, host)),
            per_user_byte: media.and_then(|m| quotient(m, user)),
            by_class: Vec::new(),
            model: None,
            note: media.is_none().then(|| "the drive has no OCP log, so it does not tell what its cells took".into()),
        }
    }

    pub(super) fn of_model(r: &ModelRun, trim: bool, user: u64, ran: Duration, note: Option<String>) -> FlashReport {
        let total = r.counts.total();
        let s = &r.steadiness;
        let rate = total.host as f64 / ran.as_secs_f64().max(1e-9);
        let seconds = (!s.steady && rate > 0.0).then(|| (s.run_bytes_needed as f64 / rate).ceil());
        FlashReport {
            source: "model",
            host_bytes: total.host,
            media_bytes: Some(total.media),
            wa: quotient(total.media, total.host),
            per_user_byte: quotient(total.media, user),
            by_class: CLASSES.iter().filter_map(|c| Some((c.name(), FlashBytes::new(r.counts.of(*c))?))).collect(),
            model: Some(FlashModel {
                over_provisioning: r.geometry.over_provisioning,
                block_bytes: r.geometry.block_bytes,
                page_bytes: r.geometry.page_bytes,
                streams: r.geometry.streams,
                trim,
                drive_bytes: r.capacity,
                flash_bytes: r.media_capacity,
                erases: r.counts.erases,
                drives_written: round(s.drives_written),
                wa_quarters: s.quarters.map(|(a, b)| (round(a), round(b))),
                steady: s.steady,
                steady_after_s: seconds,
            }),
            note,
        }
    }
}

fn quotient(n: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| round(n as f64 / by as f64))
}

fn round(n: f64) -> f64 {
    (n * 1e4).round() / 1e4
}

fn as_map<S: Serializer>(entries: &[(&'static str, FlashBytes)], s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(entries.iter().copied())
}
