//! One client: issues the operations of its stream, keeps so many in flight, takes times.
//!
//! The loop is the same whether operations go to a store's loop thread or to an engine in this
//! thread; what differs is the [`Transport`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use lodestore::{Answer, Error, Lsn, Read, Transaction};

use crate::error::BenchError;
use crate::live::Live;
use crate::names;
use crate::pool::Pool;
use crate::verify::Book;
use crate::workload::{Place, Stream, Until, Workload};

/// Latencies above this count as this, in nanoseconds.
const LATENCY_NS_MAX: u64 = 100_000_000_000;
/// Decimal digits of a latency that are kept.
const LATENCY_DIGITS: u8 = 3;

/// An operation on its way.
pub(crate) enum Request {
    Write(Transaction),
    Read(Read),
}

/// What became of it.
pub(crate) type Outcome = Result<Option<Bytes>, Error>;

/// The outcome of a write.
pub(crate) fn written(r: Result<Lsn, Error>) -> Outcome {
    r.map(|_| None)
}

/// The outcome of a read of one range.
pub(crate) fn answered(r: Result<Answer, Error>) -> Outcome {
    match r? {
        Answer::Data(mut v) if v.len() == 1 => Ok(v.pop()),
        other => unreachable!("one range was asked for; answered by {other:?}"),
    }
}

/// Where operations go.
pub(crate) trait Transport {
    /// Starts `r`; its completion names `slot`, which no other operation under way has.
    fn submit(&mut self, slot: usize, r: Request);
    /// Waits, without spinning, for at least one completion.
    fn wait(&mut self, done: &mut Vec<(usize, Outcome)>);
}

/// What a client did.
pub(crate) struct Tally {
    /// Latencies in nanoseconds.
    pub reads: Histogram<u64>,
    /// Latencies in nanoseconds.
    pub writes: Histogram<u64>,
    /// When its last operation was complete.
    pub end: Instant,
    /// Voluntary context switches of its thread, where that ended with the client.
    pub switches: u64,
}

impl Tally {
    pub fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS).expect("sane bounds");
        Tally { reads: histogram(), writes: histogram(), end: Instant::now(), switches: 0 }
    }

    pub fn merge(&mut self, other: Tally) {
        self.reads.add(other.reads).expect("the same bounds");
        self.writes.add(other.writes).expect("the same bounds");
        self.end = self.end.max(other.end);
        self.switches += other.switches;
    }
}

/// What the clients of one run share.
pub(crate) struct Shared<'a> {
    pub workload: &'a Workload,
    pub book: Option<&'a Book>,
    pub live: &'a Live,
    /// Set by a client that failed, so that the others end too.
    pub failed: AtomicBool,
}

struct Issued {
    place: Place,
    /// Versions that a read may not fall behind.
    oldest: Vec<u32>,
    start: Instant,
}

/// Issues operations and takes their outcomes.
struct Source<'a> {
    shared: &'a Shared<'a>,
    stream: Stream,
    pool: Pool,
    quota: u64,
    deadline: Option<Instant>,
    issued: u64,
    tally: Tally,
}

impl<'a> Source<'a> {
    fn new(shared: &'a Shared<'a>, client: usize) -> Self {
        let w = shared.workload;
        Source {
            shared,
            stream: Stream::new(w, client),
            pool: Pool::new(w.io_size as usize, w.seed.wrapping_add(client as u64)),
            quota: w.quota_of(client),
            deadline: None,
            issued: 0,
            tally: Tally::new(),
        }
    }

    fn may_issue(&self, now: Instant) -> bool {
        self.issued < self.quota
            && self.deadline.is_none_or(|d| now < d)
            && !self.shared.live.stopped()
            && !self.shared.failed.load(Ordering::Relaxed)
    }

    fn pause_due(&self) -> bool {
        let w = self.shared.workload;
        !w.thinktime.is_zero() && self.issued.is_multiple_of(w.thinktime_blocks)
    }

    fn issue(&mut self, slot: usize, to: &mut impl Transport) -> Issued {
        let place = self.stream.next();
        let len = self.shared.workload.io_size;
        let (c, oid) = (names::collection(), names::object(place.object));
        let _in_order = self.shared.book.map(|b| b.lock(place.object));
        let mut oldest = Vec::new();
        let request = if place.write {
            let data = match self.shared.book {
                Some(b) => b.overwrite(place.object, place.offset, len),
                None => self.pool.take(),
            };
            let mut t = Transaction::new();
            t.write(c, oid, place.offset, data);
            Request::Write(t)
        } else {
            if let Some(b) = self.shared.book {
                oldest = b.versions(place.object, place.offset, len);
            }
            Request::Read(Read::Data(c, oid, vec![(place.offset, len)]))
        };
        self.issued += 1;
        let start = Instant::now();
        to.submit(slot, request);
        Issued { place, oldest, start }
    }

    fn complete(&mut self, i: Issued, now: Instant, outcome: Outcome) -> Result<(), BenchError> {
        let data = match outcome {
            Err(e) if i.place.write => return Err(e.into()),
            Err(e) => return Err(BenchError::of_read(e)),
            Ok(data) => data,
        };
        if let (Some(b), Some(data)) = (self.shared.book, data) {
            b.check(i.place.object, i.place.offset, &data, &i.oldest)?;
        }
        let ns = u64::try_from((now - i.start).as_nanos()).unwrap_or(LATENCY_NS_MAX);
        let histogram = if i.place.write { &mut self.tally.writes } else { &mut self.tally.reads };
        histogram.saturating_record(ns);
        self.shared.live.add(1, self.shared.workload.io_size);
        self.tally.end = now;
        Ok(())
    }
}

/// A client that is ready to begin.
pub(crate) struct Client<'a>(Source<'a>, usize);

impl<'a> Client<'a> {
    /// Prepares client number `client`.
    pub fn new(shared: &'a Shared<'a>, client: usize) -> Self {
        Client(Source::new(shared, client), shared.workload.depth_of(client))
    }

    /// Runs it to its end. Whatever happens, nothing is in flight when it returns.
    pub fn run(self, to: &mut impl Transport) -> Result<Tally, BenchError> {
        let Client(mut source, depth) = self;
        let mut now = Instant::now();
        if let Until::Time(t) = source.shared.workload.until {
            source.deadline = Some(now + t);
        }
        let mut slots: Vec<Option<Issued>> = (0..depth).map(|_| None).collect();
        let mut free: Vec<usize> = (0..depth).rev().collect();
        let mut done = Vec::with_capacity(depth);
        let (mut pausing, mut result) = (false, Ok(()));
        loop {
            while !pausing && result.is_ok() && source.may_issue(now) {
                let Some(slot) = free.pop() else { break };
                slots[slot] = Some(source.issue(slot, to));
                pausing = source.pause_due();
            }
            if free.len() == depth {
                if !pausing || result.is_err() || !source.may_issue(now) {
                    break;
                }
                pause(source.shared.workload.thinktime, source.deadline);
                pausing = false;
                now = Instant::now();
                continue;
            }
            to.wait(&mut done);
            now = Instant::now();
            for (slot, outcome) in done.drain(..) {
                let issued = slots[slot].take().expect("an operation is completed once");
                free.push(slot);
                if let Err(e) = source.complete(issued, now, outcome)
                    && result.is_ok()
                {
                    source.shared.failed.store(true, Ordering::Relaxed);
                    result = Err(e);
                }
            }
        }
        result.map(|()| source.tally)
    }
}

/// Sleeps, but not past the end of the run.
fn pause(t: Duration, deadline: Option<Instant>) {
    let left = deadline.map_or(t, |d| d.saturating_duration_since(Instant::now()));
    thread::sleep(t.min(left));
}
