//! Random histories against a model: what was durable is there, in order; what was not is all or
//! nothing; nothing else appears.

use std::collections::BTreeMap;

use lodestore_wal::{AppendError, Batch, Lsn, Tail, Writer};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::mem::MemRing;
use crate::{OVERHEAD, SEGMENT, fresh, read, write};

#[derive(Default)]
struct Seen {
    torn: u64,
    wraps: u64,
    groups: u64,
    full: u64,
    crashes: u64,
    closes: u64,
    whole_in_flight: u64,
}

struct Run {
    rng: StdRng,
    ring: MemRing,
    writer: Writer,
    /// Durable and not durably trimmed.
    durable: BTreeMap<Lsn, Vec<u8>>,
    /// Appended, not durable.
    pending: BTreeMap<Lsn, Vec<u8>>,
    /// Sealed, not durable, and whether it is to be (partly) on disk.
    in_flight: Option<Batch>,
    trim: Lsn,
}

impl Run {
    fn append(&mut self, seen: &mut Seen) {
        let len = match self.rng.random_range(0..20) {
            0..10 => self.rng.random_range(0..300),
            10..16 => self.rng.random_range(0..9000),
            16..19 => {
                *[4096usize, 8192, 12288, SEGMENT as usize].choose(&mut self.rng).unwrap()
                    - OVERHEAD
                    - self.rng.random_range(0..2)
            }
            _ => SEGMENT as usize - OVERHEAD + 1,
        };
        let body: Vec<u8> = (0..len).map(|_| self.rng.random()).collect();
        let cut = self.rng.random_range(0..=len);
        match self.writer.append(&[&body[..cut], &body[cut..]]) {
            Ok(lsn) => assert!(self.pending.insert(lsn, body).is_none()),
            Err(AppendError::TooLarge { .. }) => assert!(len > SEGMENT as usize - OVERHEAD),
            Err(AppendError::BatchFull) => assert!(self.writer.open_records() > 0),
            Err(AppendError::Full) => {
                seen.full += 1;
                self.finish();
                self.trim(self.writer.last_durable());
                self.seal(true);
                self.finish();
                assert!(self.writer.used_bytes() < self.writer.capacity_bytes());
            }
        }
    }

    fn trim(&mut self, lsn: Lsn) {
        self.writer.trim(lsn);
        self.trim = self.trim.max(lsn);
    }

    fn seal(&mut self, empty: bool) {
        if self.in_flight.is_none() {
            let acked = self.writer.last_durable();
            self.in_flight = if empty { self.writer.seal_empty(acked) } else { self.writer.seal(acked) };
        }
    }

    fn finish(&mut self) {
        if let Some(batch) = self.in_flight.take() {
            write(&mut self.ring, &batch);
            self.writer.durable();
            let later = self.pending.split_off(&(batch.last + 1));
            self.durable.append(&mut std::mem::replace(&mut self.pending, later));
            self.durable = self.durable.split_off(&(self.writer.trim_durable() + 1));
        }
    }

    /// Power fails: of the batch in flight, any sectors have arrived.
    fn crash(&mut self, seen: &mut Seen) {
        seen.crashes += 1;
        self.count(seen);
        let mut maybe = BTreeMap::new();
        let mut trim = 0;
        if let Some(batch) = self.in_flight.take() {
            let all = self.rng.random_bool(0.2);
            for (i, sector) in batch.data.chunks(512).enumerate() {
                if all || self.rng.random_bool(0.8) {
                    self.ring.data[batch.offset as usize + i * 512..][..512].copy_from_slice(sector);
                }
            }
            let mut pending = std::mem::take(&mut self.pending);
            pending.split_off(&(batch.last + 1));
            maybe = pending;
            trim = self.trim;
        }
        self.pending.clear();
        let acked = self.writer.trim_durable();
        let (reader, records) = read(&mut self.ring).unwrap();
        assert!(reader.acked() >= acked);
        seen.torn += u64::from(reader.tail() != Tail::Clean);
        let found: BTreeMap<Lsn, Vec<u8>> = records.into_iter().map(|r| (r.lsn, r.body.to_vec())).collect();
        let without = self.durable.clone();
        let mut with = self.durable.clone();
        with.append(&mut maybe);
        let with = with.split_off(&(trim + 1));
        assert!(found == without || found == with, "all of the batch in flight, or nothing of it");
        seen.whole_in_flight += u64::from(found != without);
        let next = self.rng.random_range(1..=reader.lsn_max() + 2);
        self.restart(reader, next);
    }

    fn close(&mut self, seen: &mut Seen) {
        seen.closes += 1;
        self.finish();
        self.seal(true);
        self.finish();
        assert!(self.pending.is_empty());
        self.count(seen);
        let (reader, _) = read(&mut self.ring).unwrap();
        let other = reader.restart(&mut self.ring.clone(), 1).unwrap();
        std::mem::replace(&mut self.writer, other).close(&mut self.ring).unwrap();
        let (reader, records) = read(&mut self.ring).unwrap();
        assert!(records.iter().all(|r| r.acked) && reader.was_closed());
        let found: BTreeMap<Lsn, Vec<u8>> = records.into_iter().map(|r| (r.lsn, r.body.to_vec())).collect();
        assert_eq!(found, self.durable);
        self.restart(reader, 1);
    }

    fn restart(&mut self, reader: lodestore_wal::Reader, next: Lsn) {
        let lsn_max = reader.lsn_max();
        self.writer = reader.restart(&mut self.ring, next).unwrap();
        assert!(self.writer.next_lsn() > lsn_max && self.writer.next_lsn() >= next);
        self.durable.clear();
        self.trim = self.writer.trim_durable();
    }

    fn count(&self, seen: &mut Seen) {
        seen.wraps += self.writer.counters().wraps;
        seen.groups += self.writer.counters().group_commits;
    }
}

#[test]
fn random_histories_with_crashes_agree_with_a_model() {
    let seed: u64 = std::env::var("LODESTORE_SEED").map_or_else(|_| rand::random(), |s| s.parse().unwrap());
    println!("LODESTORE_SEED={seed}");
    let mut seen = Seen::default();
    for history in 0..300 {
        let rng = StdRng::seed_from_u64(seed.wrapping_add(history));
        let (ring, writer) = fresh(3 + history as usize % 5);
        let mut run =
            Run { rng, ring, writer, durable: BTreeMap::new(), pending: BTreeMap::new(), in_flight: None, trim: 0 };
        for _ in 0..400 {
            match run.rng.random_range(0..100) {
                0..55 => run.append(&mut seen),
                55..75 => run.seal(false),
                75..78 => run.seal(true),
                78..94 => run.finish(),
                94..97 => {
                    let (from, to) = (run.trim, run.writer.last_durable());
                    let lsn = run.rng.random_range(from..=to.max(from));
                    // What is in flight carries the trim of when it was sealed.
                    if run.in_flight.is_none() {
                        run.trim(lsn);
                    }
                }
                97..99 => run.crash(&mut seen),
                _ => run.close(&mut seen),
            }
        }
        run.count(&mut seen);
    }
    println!(
        "{} crashes, {} torn tails, {} whole batches in flight, {} closes, {} wraps, {} group commits, {} times full",
        seen.crashes, seen.torn, seen.whole_in_flight, seen.closes, seen.wraps, seen.groups, seen.full
    );
    for n in [seen.crashes, seen.torn, seen.whole_in_flight, seen.closes, seen.wraps, seen.groups, seen.full] {
        assert!(n > 0, "a path was not reached");
    }
}
