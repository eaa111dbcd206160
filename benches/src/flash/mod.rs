//! How many bytes a run cost the flash: by the drive's own counters, or by a model drive that is
//! fed with the run's writes.

mod iolog;
mod record;
mod report;
mod smart;
mod space;
mod steady;
#[cfg(test)]
mod tests;
mod worker;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use lodestore::{MountOptions, WriteTrace};
use lodestore_kv::FileTrace;

pub use iolog::{TraceFormat, TraceTo};
pub use report::{FlashBytes, FlashModel, FlashReport};

use crate::error::BenchError;
use crate::measure::device::Devices;
use iolog::TraceFile;
use record::Recorder;
use smart::{Smart, SmartBytes};
use worker::{Message, Worker};

/// Who says what reaches the cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlashMode {
    /// The drive, if it is one that tells; else the model.
    Auto,
    /// The model.
    Model,
    /// The drive; a run fails if it does not tell even what its host wrote.
    Smart,
    /// Nobody.
    #[default]
    Off,
}

impl FromStr for FlashMode {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(FlashMode::Auto),
            "model" => Ok(FlashMode::Model),
            "smart" => Ok(FlashMode::Smart),
            "off" => Ok(FlashMode::Off),
            _ => Err(format!("'{s}' is no source of flash bytes; choose auto, model, smart or off")),
        }
    }
}

impl fmt::Display for FlashMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FlashMode::Auto => "auto",
            FlashMode::Model => "model",
            FlashMode::Smart => "smart",
            FlashMode::Off => "off",
        })
    }
}

/// What is asked about the flash.
#[derive(Clone, PartialEq, Debug)]
pub struct FlashOptions {
    /// Who is asked.
    pub mode: FlashMode,
    /// Of the model drive: flash beyond what the host can address, as a share of that.
    pub over_provisioning: f64,
    /// Its erase block, in bytes; by default a thousandth of the drive, 64 KiB to 4 MiB.
    pub erase_block_bytes: Option<u64>,
    /// Its page, in bytes.
    pub page_bytes: u64,
    /// Whether it has blocks for each class.
    pub streams: bool,
    /// Whether it is told of removed files of the key-value store.
    pub trim: bool,
    /// Where a trace of every write of the runs goes.
    pub trace: Option<TraceTo>,
}

impl Default for FlashOptions {
    fn default() -> Self {
        FlashOptions {
            mode: FlashMode::default(),
            over_provisioning: 0.07,
            erase_block_bytes: None,
            page_bytes: 4 << 10,
            streams: false,
            trim: false,
            trace: None,
        }
    }
}

/// The flash under a job.
pub(crate) struct Flash {
    options: FlashOptions,
    /// The drives, and their counters when the run began.
    smart: Option<(Smart, SmartBytes)>,
    recorder: Option<Arc<Recorder>>,
    /// Why the drives are not asked.
    note: Option<String>,
}

impl Flash {
    /// Sees who can be asked about the store in `dir`, and has a mount by `mount` recorded if that
    /// takes it. `None` if nothing is asked.
    pub fn start(o: &FlashOptions, dir: &Path, mount: &mut MountOptions) -> Result<Option<Flash>, BenchError> {
        if o.mode == FlashMode::Off && o.trace.is_none() {
            return Ok(None);
        }
        let (mut smart, mut note) = (None, None);
        if matches!(o.mode, FlashMode::Auto | FlashMode::Smart) {
            match Smart::of(&Devices::of_store(dir).names()) {
                Err(why) if o.mode == FlashMode::Smart => {
                    return Err(BenchError::Usage(format!("the drive does not tell what reaches its flash: {why}")));
                }
                Err(why) => note = Some(why),
                Ok((_, SmartBytes { media: None, .. })) if o.mode == FlashMode::Auto => {
                    note = Some("the drive has no OCP log".into());
                }
                Ok(s) => smart = Some(s),
            }
        }
        let model = o.mode == FlashMode::Model || o.mode == FlashMode::Auto && smart.is_none();
        let recorder = match model || o.trace.is_some() {
            true => Some(record(o, model, mount)?),
            false => None,
        };
        Ok(Some(Flash { options: o.clone(), smart, recorder, note }))
    }

    /// A run begins.
    pub fn begin(&mut self) -> Result<(), BenchError> {
        if let Some((smart, before)) = &mut self.smart {
            *before = smart.read().map_err(BenchError::Usage)?;
        }
        match &self.recorder {
            Some(r) => ask(r, |reply| Message::Begin(r.now_us(), reply)).map_err(BenchError::Usage),
            None => Ok(()),
        }
    }

    /// A run is over, after `ran`, in which the user wrote so many bytes. `None` if nothing reached
    /// the drive, or nothing is asked but a trace.
    pub fn end(&mut self, user: u64, ran: Duration) -> Result<Option<FlashReport>, BenchError> {
        let ended = self.recorder.as_ref().map(|r| ask(r, Message::End));
        if let Some((smart, before)) = &self.smart {
            let after = smart.read().map_err(BenchError::Usage)?;
            return Ok(Some(FlashReport::of_smart(*before, after, user)));
        }
        Ok(match ended.and_then(|e| e.model) {
            None => None,
            Some(Ok(run)) => (run.counts.total().host > 0)
                .then(|| FlashReport::of_model(&run, self.options.trim, user, ran, self.note.clone())),
            Some(Err(why)) => Some(FlashReport::unknown(why)),
        })
    }

    /// Ends the trace.
    pub fn finish(self) -> Result<(), BenchError> {
        let (Some(recorder), Some(to)) = (&self.recorder, &self.options.trace) else { return Ok(()) };
        ask(recorder, Message::Finish).map_err(|e| trace_error(to, std::io::Error::other(e)))
    }
}

/// Starts the thread that keeps and replays, and has the store's writes sent to it.
fn record(o: &FlashOptions, model: bool, mount: &mut MountOptions) -> Result<Arc<Recorder>, BenchError> {
    let trace = match &o.trace {
        Some(to) => Some(TraceFile::create(&to.path, to.format).map_err(|e| trace_error(to, e))?),
        None => None,
    };
    let (to, messages) = channel();
    let worker = Worker::new(o.clone(), model, o.mode == FlashMode::Model, mount.kv.log_bytes_max, trace);
    let spawned = thread::Builder::new().name("flash-model".into()).spawn(move || worker.work(&messages));
    spawned.map_err(|error| BenchError::System { what: "starting a thread".into(), error })?;
    let recorder = Arc::new(Recorder::new(to));
    mount.trace = Some(WriteTrace(recorder.clone()));
    mount.kv.file_trace = Some(FileTrace(recorder.clone()));
    Ok(recorder)
}

fn trace_error(to: &TraceTo, error: std::io::Error) -> BenchError {
    BenchError::System { what: format!("writing the trace to {}", to.path.display()), error }
}

/// Sends a question behind everything recorded so far and waits for the answer.
fn ask<T>(r: &Recorder, question: impl FnOnce(Sender<T>) -> Message) -> T {
    let (reply, answer) = channel();
    r.flush(question(reply));
    answer.recv().expect("the thread works as long as there is a recorder")
}
