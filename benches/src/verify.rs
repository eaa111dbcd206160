//! The proof that what is read is what was written: the version of every unit, kept in memory, and
//! the reading of everything.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lodestore::{Answer, Error, Read, Reply, Store};
use lodestore_aio::AlignedBuf;

use crate::error::BenchError;
use crate::format::Unit;
use crate::live::{Live, Stage};
use crate::names;
use crate::workload::Workload;

/// Bytes of one read when everything is read.
const READ_LEN: u64 = 1 << 20;
/// Such reads in flight.
const READS_IN_FLIGHT: usize = 16;
/// Locks over all objects.
const STRIPES: usize = 64;

/// What was read is not what was written.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// The store itself found that the bytes are wrong.
    #[error("verification failed: {0}")]
    Damaged(Error),
    /// The store returned other bytes.
    #[error("verification failed: object {object} offset {offset}: {why}")]
    Wrong {
        /// Its name.
        object: String,
        /// Byte offset of the unit in it.
        offset: u64,
        /// What was expected and what was found.
        why: String,
    },
}

/// Everything was read and is as it was written.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Verified {
    /// Bytes compared.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// The version of every unit of every object.
pub(crate) struct Book {
    seed: u64,
    unit: u64,
    per_object: u64,
    versions: Vec<AtomicU32>,
    /// Versions are numbered in the order of submission: both happen under the object's lock.
    stripes: Vec<Mutex<()>>,
}

impl Book {
    /// Every unit in the version that filling writes.
    pub fn new(w: &Workload, unit: u64) -> Self {
        let per_object = w.object_size / unit;
        let n = w.objects * per_object;
        Book {
            seed: w.seed,
            unit,
            per_object,
            versions: (0..n).map(|_| AtomicU32::new(1)).collect(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        }
    }

    /// To be held from numbering a version to submitting it.
    pub fn lock(&self, object: u64) -> MutexGuard<'_, ()> {
        // Nothing is left half done by a client that panicked.
        self.stripes[object as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn version(&self, object: u64, index: u64) -> &AtomicU32 {
        &self.versions[(object * self.per_object + index) as usize]
    }

    fn indices(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / self.unit..(offset + len) / self.unit
    }

    /// Contents of the range in its present version.
    pub fn contents(&self, object: u64, offset: u64, len: u64) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(len as usize);
        for (index, out) in self.indices(offset, len).zip(buf.chunks_exact_mut(self.unit as usize)) {
            let version = self.version(object, index).load(Ordering::Relaxed);
            Unit { seed: self.seed, object, index, version }.write(out);
        }
        buf
    }

    /// Contents of the range in a new version, which becomes the present one.
    pub fn overwrite(&self, object: u64, offset: u64, len: u64) -> Bytes {
        for index in self.indices(offset, len) {
            self.version(object, index).fetch_add(1, Ordering::Relaxed);
        }
        self.contents(object, offset, len).freeze()
    }

    /// Present versions of a range.
    pub fn versions(&self, object: u64, offset: u64, len: u64) -> Vec<u32> {
        self.indices(offset, len).map(|i| self.version(object, i).load(Ordering::Relaxed)).collect()
    }

    /// Compares what was read at `offset` with what may be there: nothing older than `oldest`,
    /// nothing newer than the present version.
    pub fn check(&self, object: u64, offset: u64, found: &[u8], oldest: &[u32]) -> Result<(), Mismatch> {
        let wrong = |index: u64, why: String| Mismatch::Wrong {
            object: names::object(object).to_string(),
            offset: index * self.unit,
            why,
        };
        let mut units = found.chunks_exact(self.unit as usize);
        for (at, oldest) in oldest.iter().enumerate() {
            let index = offset / self.unit + at as u64;
            let Some(bytes) = units.next() else {
                return Err(wrong(index, format!("the read ended here, {} bytes after its beginning", found.len())));
            };
            let newest = self.version(object, index).load(Ordering::Relaxed);
            let expected = Unit { seed: self.seed, object, index, version: newest };
            if !(*oldest..=newest).rev().any(|version| Unit { version, ..expected }.matches(bytes)) {
                return Err(wrong(index, describe(&expected, *oldest, bytes)));
            }
        }
        Ok(())
    }

    /// Takes the versions found in objects of an earlier run as the present ones.
    pub fn learn(&self, store: &Store, w: &Workload, live: &Live) -> Result<Verified, BenchError> {
        read_all(store, w, live, |object, offset, found| {
            for (index, bytes) in self.indices(offset, found.len() as u64).zip(found.chunks_exact(self.unit as usize)) {
                let expected = Unit { seed: self.seed, object, index, version: 1 };
                let version = Unit::read(bytes).map_or(1, |u| u.version);
                if !(Unit { version, ..expected }).matches(bytes) {
                    let why = describe(&expected, 1, bytes);
                    return Err(Mismatch::Wrong {
                        object: names::object(object).to_string(),
                        offset: index * self.unit,
                        why,
                    });
                }
                self.version(object, index).store(version, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Reads and compares everything. Nothing may be in flight.
    pub fn verify(&self, store: &Store, w: &Workload, live: &Live) -> Result<Verified, BenchError> {
        read_all(store, w, live, |object, offset, found| {
            let present = self.versions(object, offset, READ_LEN.min(w.object_size - offset));
            self.check(object, offset, found, &present)
        })
    }
}

/// What is wrong with `found`, as precisely as its header allows.
fn describe(expected: &Unit, oldest: u32, found: &[u8]) -> String {
    let wanted = if oldest == expected.version {
        format!("version {oldest}")
    } else {
        format!("version {oldest} to {}", expected.version)
    };
    match Unit::read(found) {
        None if found.iter().all(|b| *b == 0) => format!("expected {wanted}, found zeros"),
        None => format!("expected {wanted}, found bytes that are no block of this benchmark"),
        Some(u) if !u.matches(found) => {
            format!("expected {wanted}, found a block with a header of version {} and a damaged rest", u.version)
        }
        Some(u) if (u.seed, u.object, u.index) != (expected.seed, expected.object, expected.index) => format!(
            "expected {wanted}, found version {} of object {} offset {} (seed {})",
            u.version,
            names::object(u.object),
            u.index * found.len() as u64,
            u.seed
        ),
        Some(u) => format!("expected {wanted}, found version {}", u.version),
    }
}

/// Reads every byte of every object, in order.
fn read_all(
    store: &Store,
    w: &Workload,
    live: &Live,
    mut take: impl FnMut(u64, u64, &[u8]) -> Result<(), Mismatch>,
) -> Result<Verified, BenchError> {
    live.enter(Stage::Verifying, w.bytes());
    let begin = Instant::now();
    let mut in_flight: VecDeque<(u64, u64, Reply)> = VecDeque::new();
    let mut places = (0..w.objects).flat_map(|o| (0..w.object_size).step_by(READ_LEN as usize).map(move |at| (o, at)));
    loop {
        while in_flight.len() < READS_IN_FLIGHT {
            let Some((object, offset)) = places.next() else { break };
            let ranges = vec![(offset, READ_LEN.min(w.object_size - offset))];
            in_flight.push_back((
                object,
                offset,
                store.query(Read::Data(names::collection(), names::object(object), ranges)),
            ));
        }
        let Some((object, offset, reply)) = in_flight.pop_front() else { break };
        if live.stopped() {
            return Err(BenchError::Stopped);
        }
        let Answer::Data(found) = reply.wait().map_err(BenchError::of_read)? else { unreachable!("asked for data") };
        let found = found.first().map_or(&[][..], |b| b);
        take(object, offset, found)?;
        let expected = READ_LEN.min(w.object_size - offset);
        if (found.len() as u64) < expected {
            let why = format!("the object ends here; {} bytes were expected", w.object_size);
            return Err(Mismatch::Wrong {
                object: names::object(object).to_string(),
                offset: offset + found.len() as u64,
                why,
            }
            .into());
        }
        live.add(expected, expected);
    }
    live.enter(Stage::Idle, 0);
    Ok(Verified { bytes: w.bytes(), elapsed: begin.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> Book {
        let w = Workload { objects: 2, object_size: 16 << 10, io_size: 4096, verify: true, ..Default::default() };
        Book::new(&w, w.unit().unwrap())
    }

    fn why(b: &Book, object: u64, offset: u64, found: &[u8], oldest: &[u32]) -> String {
        b.check(object, offset, found, oldest).unwrap_err().to_string()
    }

    #[test]
    fn only_the_present_version_is_accepted_when_nothing_was_in_flight() {
        let b = book();
        let old = b.contents(1, 4096, 8192);
        b.check(1, 4096, &old, &[1, 1]).unwrap();
        let new = b.overwrite(1, 8192, 4096);
        assert_eq!(b.versions(1, 4096, 8192), [1, 2]);
        let message = why(&b, 1, 4096, &old, &[1, 2]);
        assert!(
            message.contains("bench-00000001 offset 8192") && message.contains("expected version 2, found version 1"),
            "{message}"
        );
        b.check(1, 8192, &new, &[2]).unwrap();
    }

    #[test]
    fn a_read_in_flight_with_a_write_may_see_either_version() {
        let b = book();
        let (old, oldest) = (b.contents(0, 0, 4096), b.versions(0, 0, 4096));
        let new = b.overwrite(0, 0, 4096);
        b.check(0, 0, &old, &oldest).unwrap();
        b.check(0, 0, &new, &oldest).unwrap();
    }

    #[test]
    fn misplaced_cut_and_blank_blocks_are_told_apart() {
        let b = book();
        assert!(why(&b, 0, 0, &b.contents(1, 4096, 4096), &[1]).contains("bench-00000001 offset 4096"));
        assert!(why(&b, 0, 0, &[0; 4096], &[1]).contains("found zeros"));
        assert!(why(&b, 0, 0, &[7; 4096], &[1]).contains("no block of this benchmark"));
        assert!(why(&b, 0, 4096, &[], &[1]).contains("offset 4096: the read ended here"));
        let mut damaged = b.contents(0, 0, 4096);
        damaged[4000] ^= 1;
        assert!(why(&b, 0, 0, &damaged, &[1]).contains("damaged rest"));
    }
}
