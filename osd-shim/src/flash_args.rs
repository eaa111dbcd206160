//! What `bench` is asked about the flash, and where its trace goes.

use std::path::PathBuf;

use lodestore_benches::flash::{FlashMode, FlashOptions, TraceFormat, TraceTo};

use crate::units;

/// Options of `bench`.
#[derive(clap::Args)]
#[command(next_help_heading = "Flash and trace")]
pub struct FlashArgs {
    /// Who says what reaches the flash: smart (the NVMe drive's own counters, by nvme-cli), model (a
    /// model drive fed with the run's writes, when the run is over), auto (smart where the drive
    /// tells, else the model) or off.
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    flash: FlashMode,
    /// Model drive: flash beyond what the host can address, as a share of that.
    #[arg(long, value_name = "PERCENT", default_value = "7%", value_parser = units::percent)]
    over_provisioning: f64,
    /// Model drive: erase block; by default a thousandth of the drive, 64k to 4m.
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    erase_block: Option<u64>,
    /// Model drive: page.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = units::size)]
    flash_page: u64,
    /// Model drive: separate blocks for data, logs, flushes, compactions, and what is moved.
    #[arg(long)]
    streams: bool,
    /// Model drive: removed files of the key-value store are trimmed.
    #[arg(long)]
    trim: bool,
    /// Save every write of the measured runs as text, which `fio --read_iolog=FILE` replays.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Form of that text: fio or blkparse.
    #[arg(long, value_name = "FORM", default_value = "fio", requires = "trace")]
    trace_format: TraceFormat,
}

impl FlashArgs {
    /// The same for the benchmark.
    pub fn options(&self) -> FlashOptions {
        let trace = self.trace.clone().map(|path| TraceTo { path, format: self.trace_format });
        FlashOptions {
            mode: self.flash,
            over_provisioning: self.over_provisioning,
            erase_block_bytes: self.erase_block,
            page_bytes: self.flash_page,
            streams: self.streams,
            trim: self.trim,
            trace,
        }
    }
}
