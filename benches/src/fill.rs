//! Filling: every object is there, whole, before anything is measured, so that every write is an
//! overwrite.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lodestore::{AllocHint, Commit, Error, Store, Transaction};

use crate::error::BenchError;
use crate::live::{Live, Stage};
use crate::names;
use crate::pool::Pool;
use crate::verify::Book;
use crate::workload::Workload;

/// Bytes of one write, and of one transaction that makes several small objects.
const TXN_LEN: u64 = 1 << 20;
/// Objects made by one transaction.
const OBJECTS_PER_TXN: usize = 64;
/// Transactions in flight.
const TXNS_IN_FLIGHT: usize = 32;
/// Objects of an earlier run removed by one transaction.
const REMOVED_PER_TXN: usize = 256;
/// Attribute of the marker object.
const FILLED: &str = "filled";

/// What was found in place of the objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The objects themselves.
    Same,
    /// The same objects, but written without verification: nobody knows what they hold.
    Unverifiable,
    /// Nothing, or others.
    Other,
}

/// What filling did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Filled {
    /// Bytes written; 0 if an earlier run had filled the same objects.
    pub bytes: u64,
    /// What was there before.
    pub found: Found,
    /// How long it took.
    pub elapsed: Duration,
}

/// What the objects hold; recorded beside them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contents {
    /// Bytes that nobody can verify.
    Random,
    /// Verifiable units of this size.
    Units(u64),
}

/// How the objects are recorded.
fn record(w: &Workload, contents: Contents) -> String {
    let contents = match contents {
        Contents::Random => "random".to_owned(),
        Contents::Units(n) => format!("units:{n}"),
    };
    format!("version=1 objects={} object_size={} seed={} contents={contents}", w.objects, w.object_size, w.seed)
}

/// Whether the objects of the store are those of `w` with `contents`.
pub(crate) fn is_filled(store: &Store, w: &Workload, contents: Contents) -> Result<bool, Error> {
    match store.attr(names::collection(), &names::marker(), FILLED.as_bytes()) {
        Ok(found) => Ok(found == record(w, contents).as_bytes()),
        Err(Error::NoCollection(_) | Error::NoObject(..) | Error::NoAttr(..)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Records what the objects hold, or are about to hold in part.
pub(crate) fn mark(store: &Store, w: &Workload, contents: Contents) -> Result<(), Error> {
    let mut t = Transaction::new();
    t.touch(names::collection(), names::marker());
    t.set_attr(names::collection(), names::marker(), FILLED, record(w, contents));
    store.apply(t).map(drop)
}

/// Replaces whatever an earlier run left by the objects of `w`.
pub(crate) fn fill(
    store: &Store,
    w: &Workload,
    book: Option<&Book>,
    contents: Contents,
    found: Found,
    live: &Live,
) -> Result<Filled, BenchError> {
    live.enter(Stage::Filling, w.bytes());
    let begin = Instant::now();
    clear(store)?;
    let mut source = Source { pool: Pool::new(TXN_LEN.min(w.object_size) as usize, w.seed), book };
    let mut in_flight: VecDeque<(Commit, u64)> = VecDeque::new();
    let mut open = (Transaction::new(), 0u64, 0usize);
    let c = names::collection();
    for n in 0..w.objects {
        for offset in (0..w.object_size).step_by(TXN_LEN as usize) {
            if live.stopped() {
                return Err(BenchError::Stopped);
            }
            let len = TXN_LEN.min(w.object_size - offset);
            if offset == 0 {
                let hint = AllocHint { object_size: w.object_size, write_size: w.io_size, flags: 0 };
                open.0.hint(c, names::object(n), hint);
                open.2 += 1;
            }
            open.0.write(c, names::object(n), offset, source.contents(n, offset, len));
            open.1 += len;
            let last = n + 1 == w.objects && offset + len == w.object_size;
            if open.1 + TXN_LEN.min(w.object_size) > TXN_LEN || open.2 >= OBJECTS_PER_TXN || last {
                let (t, bytes, _) = std::mem::replace(&mut open, (Transaction::new(), 0, 0));
                in_flight.push_back((store.submit(t), bytes));
            }
            if in_flight.len() >= TXNS_IN_FLIGHT {
                finish_one(&mut in_flight, live)?;
            }
        }
    }
    while !in_flight.is_empty() {
        finish_one(&mut in_flight, live)?;
    }
    // Last, so that an interrupted filling is begun again.
    mark(store, w, contents)?;
    live.enter(Stage::Idle, 0);
    Ok(Filled { bytes: w.bytes(), found, elapsed: begin.elapsed() })
}

struct Source<'a> {
    pool: Pool,
    book: Option<&'a Book>,
}

impl Source<'_> {
    fn contents(&mut self, object: u64, offset: u64, len: u64) -> Bytes {
        match self.book {
            Some(b) => b.contents(object, offset, len).freeze(),
            None => self.pool.take().slice(..len as usize),
        }
    }
}

fn finish_one(in_flight: &mut VecDeque<(Commit, u64)>, live: &Live) -> Result<(), Error> {
    if let Some((commit, bytes)) = in_flight.pop_front() {
        commit.wait()?;
        live.add(bytes, bytes);
    }
    Ok(())
}

/// An empty collection, whether there was one or not.
fn clear(store: &Store) -> Result<(), Error> {
    let c = names::collection();
    let mut t = Transaction::new();
    t.make_collection(c, 0);
    match store.apply(t) {
        Err(Error::CollectionExists(_)) => {}
        other => return other.map(drop),
    }
    let mut start = None;
    loop {
        let (found, next) = store.list(c, start, None, REMOVED_PER_TXN)?;
        let mut t = Transaction::new();
        for oid in found {
            t.remove(c, oid);
        }
        store.apply(t)?;
        match next {
            Some(_) => start = next,
            None => return Ok(()),
        }
    }
}
