//! Feeds the model drive with what was recorded, on a thread of its own, between runs.
//!
//! While a run is measured this thread only keeps the chunks it is given, up to a bound; it works
//! through them before the next run begins and after a run's last counter was read.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender};

use lodestore_flash::{Class, Counts, Drive, FlashError, Geometry};

use super::FlashOptions;
use super::iolog::TraceFile;
use super::record::{CHUNK, Entry, What};
use super::space::{BLOCK, Space};
use super::steady::{Curve, Steadiness};

/// Chunks kept while a run goes on: 96 MiB. What is beyond is worked through while the run goes on,
/// which a very long run will hardly notice.
const BACKLOG_CHUNKS_MAX: usize = (96 << 20) / (CHUNK * size_of::<Entry>());

/// Memory that a model nobody asked for may take.
const UNASKED_BYTES_MAX: u64 = 1 << 30;

/// Memory of the model by page.
const BYTES_PER_PAGE: u64 = 10;

/// Erase blocks by default: a thousandth of the drive, within these bounds. A drive of a few GiB
/// stands for one of a TiB, whose erase blocks are as many.
const BLOCKS_BY_DEFAULT: u64 = 1000;
const BLOCK_BYTES_MIN: u64 = 64 << 10;
const BLOCK_BYTES_MAX: u64 = 4 << 20;

/// What the recorder and the job say.
pub(super) enum Message {
    /// A file of the store with so many bytes, for its log or for data; they are numbered.
    File { bytes: u64, log: bool },
    /// What happened since the last chunk.
    Chunk(Vec<Entry>),
    /// A run begins, at this time.
    Begin(u64, Sender<Result<(), String>>),
    /// It is over.
    End(Sender<Ended>),
    /// Nothing more will come.
    Finish(Sender<Result<(), String>>),
}

/// What the model says of a run.
pub(super) struct ModelRun {
    pub counts: Counts,
    pub geometry: Geometry,
    /// Bytes that the host can address, and bytes of flash.
    pub capacity: u64,
    pub media_capacity: u64,
    pub steadiness: Steadiness,
}

/// The end of a run.
pub(super) struct Ended {
    /// `None` if no model was asked for.
    pub model: Option<Result<ModelRun, String>>,
}

/// See the module's description.
pub(super) struct Worker {
    options: FlashOptions,
    /// Whether there is to be a model, and whether a run without one is a failure.
    model: bool,
    required: bool,
    backlog: VecDeque<Vec<Entry>>,
    space: Space,
    /// Where each file of the store lies, and what it is for.
    files: Vec<(Range<u64>, Class)>,
    /// Length of the key-value store's own log, its place, and where its next byte goes.
    kv_log_bytes: u64,
    kv_log: Option<(Range<u64>, u64)>,
    drive: Option<Result<Drive, String>>,
    curve: Curve,
    /// Counters when the run began that is going on.
    run: Option<Counts>,
    trace: Option<TraceFile<BufWriter<File>>>,
    /// When the first run began.
    trace_begin_us: Option<u64>,
    trace_error: Option<io::Error>,
}

impl Worker {
    pub fn new(
        options: FlashOptions,
        model: bool,
        required: bool,
        kv_log_bytes: u64,
        trace: Option<TraceFile<BufWriter<File>>>,
    ) -> Self {
        Worker {
            options,
            model,
            required,
            backlog: VecDeque::new(),
            space: Space::default(),
            files: Vec::new(),
            kv_log_bytes,
            kv_log: None,
            drive: None,
            curve: Curve::default(),
            run: None,
            trace,
            trace_begin_us: None,
            trace_error: None,
        }
    }

    /// Works until every sender is gone.
    pub fn work(mut self, messages: &Receiver<Message>) {
        // A reply that nobody waits for any more is not missed.
        for m in messages {
            match m {
                Message::File { bytes, log } => {
                    let class = if log { Class::Log } else { Class::Data };
                    let range = self.space.reserve(bytes);
                    self.files.push((range, class));
                }
                Message::Chunk(chunk) => {
                    self.backlog.push_back(chunk);
                    while self.backlog.len() > BACKLOG_CHUNKS_MAX {
                        self.replay_one();
                    }
                }
                Message::Begin(time_us, reply) => drop(reply.send(self.begin(time_us))),
                Message::End(reply) => drop(reply.send(self.end())),
                Message::Finish(reply) => drop(reply.send(self.finish())),
            }
        }
    }

    fn begin(&mut self, time_us: u64) -> Result<(), String> {
        while self.replay_one() {}
        self.make_drive();
        self.trace_begin_us.get_or_insert(time_us);
        let (counts, failed) = match &self.drive {
            Some(Ok(drive)) => (drive.counts(), None),
            Some(Err(e)) => (Counts::default(), Some(e.clone())),
            None => (Counts::default(), None),
        };
        self.run = Some(counts);
        failed.filter(|_| self.required).map_or(Ok(()), Err)
    }

    fn end(&mut self) -> Ended {
        while self.replay_one() {}
        let begin = self.run.take().unwrap_or_default();
        let run = |drive: &Drive| ModelRun {
            counts: drive.counts().since(&begin),
            geometry: drive.geometry(),
            capacity: drive.capacity(),
            media_capacity: drive.media_capacity(),
            steadiness: self.curve.judge(begin.total().host, drive.counts().total(), drive.capacity()),
        };
        let model = self.drive.as_ref().map(|d| d.as_ref().map(run).map_err(Clone::clone));
        Ended { model: model.filter(|_| self.model) }
    }

    fn finish(&mut self) -> Result<(), String> {
        let finished = self.trace.take().map_or(Ok(()), TraceFile::finish);
        self.trace_error.take().map_or(finished, Err).map_err(|e| e.to_string())
    }

    /// Works through the oldest chunk; whether there was one.
    fn replay_one(&mut self) -> bool {
        let Some(chunk) = self.backlog.pop_front() else { return false };
        if !chunk.is_empty() {
            self.make_drive();
        }
        for e in &chunk {
            self.replay(e);
        }
        true
    }

    /// Makes the drive, full from end to end, of the files that are known by now.
    fn make_drive(&mut self) {
        if self.model && self.drive.is_none() {
            self.drive = Some(self.full_drive());
        }
    }

    fn full_drive(&self) -> Result<Drive, String> {
        let (o, bytes) = (&self.options, self.space.end());
        let memory = bytes / o.page_bytes.max(1) * BYTES_PER_PAGE;
        if !self.required && memory > UNASKED_BYTES_MAX {
            let gib = memory as f64 / (1u64 << 30) as f64;
            return Err(format!(
                "a model of this store takes {gib:.1} GiB of memory: ask for it (--flash model), or for larger pages"
            ));
        }
        let by_default = (bytes / BLOCKS_BY_DEFAULT).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        // Rounded down to a power of two.
        let by_default = 1 << by_default.ilog2();
        let geometry = Geometry {
            page_bytes: o.page_bytes,
            block_bytes: o.erase_block_bytes.unwrap_or(by_default),
            over_provisioning: o.over_provisioning,
            streams: o.streams,
        };
        let make = || -> Result<Drive, FlashError> {
            let mut drive = Drive::new(geometry, bytes)?;
            for (range, class) in &self.files {
                drive.precondition(*class, range.start, range.end - range.start)?;
            }
            Ok(drive)
        };
        make().map_err(|e| e.to_string())
    }

    fn replay(&mut self, e: &Entry) {
        let bytes = u64::from(e.blocks) * BLOCK;
        match e.what {
            What::Data | What::Prewrite | What::Log => {
                let class = match e.what {
                    What::Data => Class::Data,
                    What::Prewrite => Class::Prewrite,
                    _ => Class::Log,
                };
                let begin = self.files[usize::from(e.file)].0.start + e.at;
                self.write(e.time_us, class, begin..begin + bytes);
            }
            What::KvFound => {
                // One that is known was there before the store was mounted again.
                self.space.place(e.at, bytes);
                self.grow_drive();
            }
            What::KvFlush => self.kv_file(e, Class::KvFlush),
            What::KvCompaction => self.kv_file(e, Class::KvCompaction),
            What::KvRemoved => {
                let extents = self.space.remove(e.at);
                if let (true, Some(Ok(drive))) = (self.options.trim, &mut self.drive) {
                    for x in extents {
                        let trimmed = drive.trim(x.start, x.end - x.start);
                        trimmed.expect("the drive is as large as the space");
                    }
                }
            }
            What::KvLog => self.kv_log(e),
        }
    }

    /// A table file, written at once when it is complete.
    fn kv_file(&mut self, e: &Entry, class: Class) {
        let placed = self.space.place(e.at, u64::from(e.blocks) * BLOCK).map(<[_]>::to_vec);
        self.grow_drive();
        for extent in placed.unwrap_or_default() {
            self.write(e.time_us, class, extent);
        }
    }

    /// An append to the key-value store's own log: the blocks it touches, the one that the append
    /// before ended in among them, round and round.
    fn kv_log(&mut self, e: &Entry) {
        if self.kv_log.is_none() {
            let range = self.space.reserve(self.kv_log_bytes.max(BLOCK));
            self.kv_log = Some((range, 0));
            self.grow_drive();
        }
        let (range, at) = self.kv_log.as_mut().expect("made above");
        let (begin, len) = (range.start, range.end - range.start);
        let (from, to) = (*at / BLOCK * BLOCK, (*at + e.at).next_multiple_of(BLOCK));
        *at = (*at + e.at) % len;
        for p in [from..to.min(len), 0..to.saturating_sub(len).min(len)] {
            self.write(e.time_us, Class::KvLog, begin + p.start..begin + p.end);
        }
    }

    /// What the space has gained is as full of something as the rest of the drive.
    fn grow_drive(&mut self) {
        let end = self.space.end();
        if let Some(Ok(drive)) = &mut self.drive
            && drive.capacity() < end
        {
            let old = drive.capacity();
            let grown = drive.grow(end - old).and_then(|()| drive.precondition(Class::KvFlush, old, end - old));
            if let Err(e) = grown {
                self.drive = Some(Err(e.to_string()));
            }
        }
    }

    fn write(&mut self, time_us: u64, class: Class, range: Range<u64>) {
        if let Some(Ok(drive)) = &mut self.drive {
            let written = drive.write(class, range.start, range.end - range.start);
            written.expect("the drive is as large as the space, and writes lie within their files");
            self.curve.note(drive.counts().total(), drive.capacity());
        }
        if let (Some(trace), Some(begin), Some(_)) = (&mut self.trace, self.trace_begin_us, &self.run)
            && let Err(e) = trace.write(time_us.saturating_sub(begin), class, range)
        {
            // The first failure says it all.
            (self.trace, self.trace_error) = (None, Some(e));
        }
    }
}
