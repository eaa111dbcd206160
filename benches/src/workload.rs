//! What is asked of the store: how many objects, which operations, in which order, for how long.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lodestore::{OBJECT_LEN_MAX, READ_LEN_MAX};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::error::BenchError;

/// Most operations in flight.
const DEPTH_MAX: usize = 4096;
/// Most client threads.
const CLIENTS_MAX: usize = 256;
/// Most objects.
const OBJECTS_MAX: u64 = 100_000_000;
/// Smallest unit whose contents can be verified, in bytes.
const UNIT_MIN: u64 = 512;
/// Largest such unit, in bytes.
const UNIT_MAX: u64 = 4096;

/// Which operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mix {
    /// Overwrites only.
    #[default]
    Write,
    /// Reads only.
    Read,
    /// This percentage of reads, the rest overwrites (fio's `rwmixread`).
    Mixed(u8),
}

impl Mix {
    /// Whether it writes at all.
    pub fn writes(self) -> bool {
        self != Mix::Read
    }
}

impl FromStr for Mix {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let percent = |p: &str| p.parse::<u8>().ok().filter(|p| (1..=99).contains(p)).map(Mix::Mixed);
        match s {
            "write" => Ok(Mix::Write),
            "read" => Ok(Mix::Read),
            _ => s.strip_prefix("mixed:").and_then(percent).ok_or_else(|| {
                format!("'{s}' is no operation; choose write, read, or mixed:N with N from 1 to 99 percent of reads")
            }),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mix::Write => f.write_str("write"),
            Mix::Read => f.write_str("read"),
            Mix::Mixed(p) => write!(f, "mixed:{p}"),
        }
    }
}

/// In which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pattern {
    /// Any place of any object, aligned to the I/O's size, each as likely as every other.
    #[default]
    Random,
    /// One after the other through all objects; every client begins at its share of them.
    Sequential,
}

impl FromStr for Pattern {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "random" => Ok(Pattern::Random),
            "sequential" => Ok(Pattern::Sequential),
            _ => Err(format!("'{s}' is no pattern; choose random or sequential")),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pattern::Random => "random",
            Pattern::Sequential => "sequential",
        })
    }
}

/// For how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// So long; operations begun by then are completed.
    Time(Duration),
    /// So many operations, over all clients.
    Ops(u64),
}

/// One measurement. Sizes in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Number of objects.
    pub objects: u64,
    /// Size of each.
    pub object_size: u64,
    /// Size of each operation.
    pub io_size: u64,
    /// Operations in flight, over all clients.
    pub depth: usize,
    /// Which operations.
    pub op: Mix,
    /// In which order.
    pub pattern: Pattern,
    /// For how long.
    pub until: Until,
    /// Client threads.
    pub threads: usize,
    /// Pause after every [`Workload::thinktime_blocks`] operations, once those in flight are done.
    pub thinktime: Duration,
    /// Operations between two pauses.
    pub thinktime_blocks: u64,
    /// Seed of contents and order.
    pub seed: u64,
    /// Whether everything that is read is compared with what was written.
    pub verify: bool,
}

impl Default for Workload {
    fn default() -> Self {
        Workload {
            objects: 256,
            object_size: 4 << 20,
            io_size: 128 << 10,
            depth: 16,
            op: Mix::Write,
            pattern: Pattern::Random,
            until: Until::Time(Duration::from_secs(10)),
            threads: 1,
            thinktime: Duration::ZERO,
            thinktime_blocks: 1,
            seed: 1,
            verify: false,
        }
    }
}

impl Workload {
    /// Refuses what makes no sense, in a sentence.
    pub fn check(&self) -> Result<(), BenchError> {
        let usage = |s: String| Err(BenchError::Usage(s));
        let range = |what: &str, n: u64, max: u64| match n {
            0 => usage(format!("{what} is 0; it must be at least 1")),
            n if n > max => usage(format!("{what} is {n}; at most {max} is possible")),
            _ => Ok(()),
        };
        range("the number of objects", self.objects, OBJECTS_MAX)?;
        range("the object size", self.object_size, OBJECT_LEN_MAX)?;
        range("the I/O size", self.io_size, READ_LEN_MAX)?;
        range("the depth", self.depth as u64, DEPTH_MAX as u64)?;
        range("the number of threads", self.threads as u64, CLIENTS_MAX as u64)?;
        range("thinktime-blocks", self.thinktime_blocks, u64::MAX)?;
        match self.until {
            Until::Ops(n) => range("the number of operations", n, u64::MAX)?,
            Until::Time(t) if t.is_zero() => {
                return usage("the runtime is 0; give some time, or a number of operations".into());
            }
            Until::Time(_) => {}
        }
        if self.io_size > self.object_size {
            return usage(format!("I/Os of {} bytes do not fit into objects of {}", self.io_size, self.object_size));
        }
        if self.depth < self.threads {
            return usage(format!(
                "depth {} over {} threads: each thread needs at least one operation in flight",
                self.depth, self.threads
            ));
        }
        if self.verify {
            self.unit()?;
        }
        Ok(())
    }

    /// The unit of verification: the largest power of two that divides all sizes, 512 to 4096.
    pub(crate) fn unit(&self) -> Result<u64, BenchError> {
        let unit = 1u64 << (self.io_size | self.object_size | UNIT_MAX).trailing_zeros();
        if unit < UNIT_MIN {
            return Err(BenchError::Usage(format!(
                "verification needs sizes that are multiples of {UNIT_MIN}; got I/Os of {} bytes, objects of {}",
                self.io_size, self.object_size
            )));
        }
        Ok(unit)
    }

    /// Bytes of all objects together.
    pub fn bytes(&self) -> u64 {
        self.objects.saturating_mul(self.object_size)
    }

    /// Operations in flight of one client.
    pub(crate) fn depth_of(&self, client: usize) -> usize {
        self.depth / self.threads + usize::from(client < self.depth % self.threads)
    }

    /// Operations of one client, if their number is what ends the run.
    pub(crate) fn quota_of(&self, client: usize) -> u64 {
        let (n, client) = (self.threads as u64, client as u64);
        match self.until {
            Until::Ops(ops) => ops / n + u64::from(client < ops % n),
            Until::Time(_) => u64::MAX,
        }
    }
}

/// One operation: on which object, at which multiple of the I/O size, and whether it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub write: bool,
    pub object: u64,
    pub offset: u64,
}

/// The operations of one client, in order. Depends on nothing but workload and client number.
#[derive(Debug)]
pub(crate) struct Stream {
    rng: SmallRng,
    op: Mix,
    pattern: Pattern,
    io_size: u64,
    per_object: u64,
    places: u64,
    next: u64,
}

impl Stream {
    pub fn new(w: &Workload, client: usize) -> Self {
        let per_object = w.object_size / w.io_size;
        let places = per_object * w.objects;
        Stream {
            rng: SmallRng::seed_from_u64(w.seed ^ (client as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            op: w.op,
            pattern: w.pattern,
            io_size: w.io_size,
            per_object,
            places,
            next: places / w.threads as u64 * client as u64,
        }
    }

    pub fn next(&mut self) -> Place {
        let write = match self.op {
            Mix::Write => true,
            Mix::Read => false,
            Mix::Mixed(reads) => self.rng.random_range(0..100) >= reads,
        };
        let n = match self.pattern {
            Pattern::Random => self.rng.random_range(0..self.places),
            Pattern::Sequential => {
                let n = self.next;
                self.next = (n + 1) % self.places;
                n
            }
        };
        Place { write, object: n / self.per_object, offset: n % self.per_object * self.io_size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(w: Workload) -> String {
        w.check().expect_err("refused").to_string()
    }

    #[test]
    fn nonsense_is_refused_in_a_sentence() {
        let d = Workload::default;
        d().check().unwrap();
        assert!(sentence(Workload { objects: 0, ..d() }).contains("objects is 0"));
        assert!(sentence(Workload { io_size: 8 << 20, ..d() }).contains("do not fit"));
        assert!(sentence(Workload { depth: 2, threads: 4, ..d() }).contains("each thread"));
        assert!(sentence(Workload { until: Until::Ops(0), ..d() }).contains("operations is 0"));
        assert!(sentence(Workload { io_size: 1000, verify: true, ..d() }).contains("multiples of 512"));
    }

    #[test]
    fn mixes_read_back_what_they_print() {
        for m in [Mix::Write, Mix::Read, Mix::Mixed(70)] {
            assert_eq!(m.to_string().parse(), Ok(m));
        }
        for s in ["", "mixed", "mixed:", "mixed:0", "mixed:100", "mixed:x", "erase"] {
            assert!(s.parse::<Mix>().is_err(), "{s}");
        }
    }

    #[test]
    fn the_unit_divides_every_size_and_is_at_most_a_block() {
        let unit = |io_size, object_size| Workload { io_size, object_size, ..Default::default() }.unit();
        assert_eq!(unit(128 << 10, 4 << 20).unwrap(), 4096);
        assert_eq!(unit(1536, 4 << 20).unwrap(), 512);
        assert_eq!(unit(4096, 6 << 10).unwrap(), 2048);
        assert!(unit(100, 4096).is_err());
    }

    #[test]
    fn a_sequential_stream_visits_every_place_once_before_any_again() {
        let w = Workload {
            objects: 3,
            object_size: 4096,
            io_size: 1024,
            pattern: Pattern::Sequential,
            ..Default::default()
        };
        let mut s = Stream::new(&w, 0);
        let seen: Vec<_> = (0..13).map(|_| s.next()).map(|p| (p.object, p.offset)).collect();
        assert_eq!(seen[0], (0, 0));
        assert_eq!(seen[5], (1, 1024));
        assert_eq!(seen[12], seen[0]);
        assert_eq!(seen[..12].iter().collect::<std::collections::HashSet<_>>().len(), 12);
    }

    #[test]
    fn shares_of_clients_add_up() {
        let w = Workload { depth: 17, threads: 4, until: Until::Ops(10), ..Default::default() };
        assert_eq!((0..4).map(|c| w.depth_of(c)).sum::<usize>(), 17);
        assert_eq!((0..4).map(|c| w.quota_of(c)).sum::<u64>(), 10);
    }
}
