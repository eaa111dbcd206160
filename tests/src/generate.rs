//! Random work, biased to where the bugs are: the same few names, block edges and one byte beside
//! them, partial blocks, clones of clones, refused operations in the middle of a transaction.

use lodestore::{AllocHint, CollectionId, ObjectId, OmapRange, Op, Read, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::model::{BLOCK, Model, low_bits};
use crate::subject::pattern;

/// Sizes of the work.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Longest ordinary write, in bytes.
    pub write_max: u64,
    /// Objects rarely grow beyond this, in bytes.
    pub object_max: u64,
    /// Chance in 100 that an operation which the model refuses is kept.
    pub refused_percent: u32,
    /// Most operations of a transaction.
    pub operations_max: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { write_max: 24 << 10, object_max: 96 << 10, refused_percent: 8, operations_max: 6 }
    }
}

/// Names and hashes: collisions, both sides of two splits, the last hash.
const NAMES: [(&str, u32); 10] = [
    ("a", 0),
    ("b", 0),
    ("c", 2),
    ("d", 2),
    ("e", 4),
    ("f", 0xffff_fffe),
    ("a", 1),
    ("b", 1),
    ("g", 3),
    ("h", u32::MAX),
];

/// A source of transactions and reads, the same for the same seed.
pub struct Gen {
    rng: SmallRng,
    serial: u64,
    shape: Shape,
}

impl Gen {
    /// A generator; everything follows from `seed`.
    pub fn new(seed: u64, shape: Shape) -> Self {
        Gen { rng: SmallRng::seed_from_u64(seed), serial: seed << 20, shape }
    }

    /// The first transaction of every sequence: two collections that share a pool.
    pub fn setup() -> Transaction {
        let mut t = Transaction::new();
        t.make_collection(CollectionId::new(1, 0), 1).make_collection(CollectionId::new(1, 1), 1);
        t
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.rng.random_range(0..n.max(1))
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn name(&mut self) -> ObjectId {
        let (name, hash) = NAMES[self.below(NAMES.len() as u64) as usize];
        ObjectId::new(name).with_hash(hash)
    }

    /// A name, most often one that exists.
    fn present(&mut self, model: &Model) -> ObjectId {
        for _ in 0..4 {
            let oid = self.name();
            if model.object(self.home(model, &oid), &oid).is_some() {
                return oid;
            }
        }
        self.name()
    }

    /// The collection that an object belongs to; rarely a wrong one.
    fn home(&mut self, model: &Model, oid: &ObjectId) -> CollectionId {
        if self.rng.random_range(0..400) == 0 {
            return CollectionId::new(1, oid.hash & 7);
        }
        let mine = |(c, coll): (&CollectionId, &std::sync::Arc<crate::model::Collection>)| {
            (low_bits(c.seed, coll.bits) == low_bits(oid.hash, coll.bits)).then_some(*c)
        };
        model.collections.iter().find_map(mine).unwrap_or(CollectionId::new(1, oid.hash & 1))
    }

    /// A byte offset near an edge: of a block, of the object, or anywhere.
    fn offset(&mut self, size: u64) -> u64 {
        let edge = |gen_: &mut Self, at: u64| (at + gen_.below(3)).saturating_sub(1);
        let blocks = self.shape.object_max / BLOCK;
        match self.below(20) {
            0..=2 => 0,
            3..=6 => self.below(blocks) * BLOCK,
            7..=10 => {
                let at = self.below(blocks) * BLOCK;
                edge(self, at)
            }
            11..=13 => size,
            14 => edge(self, size),
            15 => self.below(16) << 16,
            _ => self.below(self.shape.object_max),
        }
    }

    /// A length in bytes, small or near a number of blocks.
    fn len(&mut self, max: u64) -> u64 {
        let len = match self.below(20) {
            0 => 0,
            1..=4 => 1 + self.below(16),
            5..=7 => BLOCK - 1 + self.below(3),
            8..=10 => (1 + self.below(max / BLOCK)) * BLOCK,
            11..=12 => 1 + self.below(BLOCK),
            13 => (1 + self.below(max / BLOCK)) * BLOCK + self.below(3) - 1,
            _ => 1 + self.below(max),
        };
        len.min(max)
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        self.serial += 1;
        // Zeros are data too.
        if self.below(60) == 0 { vec![0; len as usize] } else { pattern(self.serial, len as usize) }
    }

    fn attr_name(&mut self) -> Vec<u8> {
        [&b"a"[..], b"b", b"", b"a\0", b"\xff"][self.below(5) as usize].to_vec()
    }

    fn omap_key(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => Vec::new(),
            1 => vec![0xff; 3],
            n => format!("k{:02}", n * 5 % 18).into_bytes(),
        }
    }

    /// One transaction of one to six operations, most of which the model accepts.
    pub fn transaction(&mut self, model: &Model) -> Transaction {
        let ops = match self.below(20) {
            0..=11 => 1,
            12..=15 => 2,
            16..=17 => 3,
            n => n - 14,
        };
        let ops = ops.min(self.shape.operations_max);
        let mut t = Transaction::new();
        let mut scratch = model.clone();
        for _ in 0..ops {
            for _ in 0..8 {
                let (c, op) = self.op(&scratch);
                let mut one = Transaction::new();
                one.push(c, op);
                let refused = scratch.apply(&one).is_err();
                if !refused || self.chance(self.shape.refused_percent) {
                    let (c, op) = &one.ops()[0];
                    t.push(*c, op.clone());
                    if refused {
                        // The rest would not be looked at.
                        return t;
                    }
                    break;
                }
            }
        }
        t
    }

    /// One operation with its collection.
    fn op(&mut self, model: &Model) -> (CollectionId, Op) {
        let kind = self.below(100);
        if kind < 3 {
            return self.collection_op(model);
        }
        // Writes and what makes objects may aim at absent ones, everything else rarely does.
        let oid = if kind < 45 { self.name() } else { self.present(model) };
        let c = self.home(model, &oid);
        let size = model.object(c, &oid).map_or(0, |o| o.size);
        let op = match kind {
            3..=36 => {
                let offset = self.offset(size);
                let len = self.len(self.shape.write_max);
                Op::Write { oid, offset, data: self.bytes(len).into() }
            }
            37..=38 => Op::Touch(oid),
            39..=40 => Op::Create(oid),
            41 => Op::Hint {
                oid,
                hint: AllocHint { object_size: self.below(3), write_size: self.below(3), flags: self.below(3) as u32 },
            },
            42..=48 => Op::Zero { oid, offset: self.offset(size), len: self.len(self.shape.object_max / 2) },
            49..=55 => Op::Truncate { oid, size: self.offset(size) },
            56..=61 => Op::Remove(oid),
            62..=68 => Op::Clone { to: self.sibling(model, c), from: oid },
            69..=75 => {
                let (from_offset, len) = (self.offset(size), self.len(self.shape.write_max));
                // Half of them at the same place in a block, so that blocks are shared.
                let to_offset =
                    if self.chance(50) { self.below(24) * BLOCK + from_offset % BLOCK } else { self.offset(size) };
                Op::CloneRange { to: self.sibling(model, c), from: oid, from_offset, len, to_offset }
            }
            76..=79 => {
                let len = if self.below(30) == 0 { 3000 } else { self.below(60) };
                Op::SetAttr { oid, name: self.attr_name(), value: self.bytes(len) }
            }
            80..=81 => Op::RmAttr { oid, name: self.attr_name() },
            82 => Op::RmAttrs(oid),
            83..=87 => {
                let n = 1 + self.below(6);
                let entries = (0..n)
                    .map(|_| {
                        (self.omap_key(), {
                            let len = self.below(80);
                            self.bytes(len)
                        })
                    })
                    .collect();
                Op::OmapSet { oid, entries }
            }
            88..=89 => Op::OmapRmKeys { oid, keys: (0..1 + self.below(4)).map(|_| self.omap_key()).collect() },
            90..=91 => Op::OmapRmRange { oid, first: self.omap_key(), last: self.omap_key() },
            92 => Op::OmapClear(oid),
            93 => Op::OmapSetHeader {
                oid,
                header: {
                    let len = self.below(40);
                    self.bytes(len)
                },
            },
            _ => {
                let to = self.name();
                Op::Rename { to_collection: self.home(model, &to), from: oid, to, must_exist: self.chance(70) }
            }
        };
        (c, op)
    }

    /// Another name of the same collection.
    fn sibling(&mut self, model: &Model, c: CollectionId) -> ObjectId {
        for _ in 0..6 {
            let oid = self.name();
            if self.home(model, &oid) == c {
                return oid;
            }
        }
        self.name()
    }

    fn collection_op(&mut self, model: &Model) -> (CollectionId, Op) {
        let all: Vec<(CollectionId, u8)> = model.collections.iter().map(|(c, coll)| (*c, coll.bits)).collect();
        if all.is_empty() {
            return (CollectionId::new(1, 0), Op::MakeCollection { bits: 1 });
        }
        let (c, bits) = all[self.below(all.len() as u64) as usize];
        let other = all[self.below(all.len() as u64) as usize].0;
        match self.below(10) {
            0..=3 if bits < 4 => (c, Op::Split { bits: bits + 1, to: CollectionId::new(1, c.seed ^ (1 << bits)) }),
            4..=7 => {
                // Prefer the partner of a former split.
                let partner = CollectionId::new(1, c.seed ^ (1u32 << bits.saturating_sub(1)));
                let to = if model.collections.contains_key(&partner) { partner } else { other };
                (c, Op::Merge { bits: bits.saturating_sub(1), to })
            }
            8 => (CollectionId::new(2, self.below(4) as u32), Op::MakeCollection { bits: self.below(3) as u8 }),
            _ => (c, Op::RemoveCollection),
        }
    }

    /// One read, of something that is there more often than not.
    pub fn read(&mut self, model: &Model) -> Read {
        let oid = self.present(model);
        let c = self.home(model, &oid);
        let size = model.object(c, &oid).map_or(0, |o| o.size);
        match self.below(20) {
            0 => Read::Stat(c, oid),
            1..=8 => {
                let n = if self.chance(80) { 1 } else { self.below(4) };
                let ranges = (0..n).map(|_| (self.offset(size), self.len(self.shape.object_max))).collect();
                Read::Data(c, oid, ranges)
            }
            9 => Read::Data(c, oid, vec![(0, self.shape.object_max * 16)]),
            10 => Read::Attr(c, oid, self.attr_name()),
            11 => Read::Attrs(c, oid),
            12 => Read::OmapHeader(c, oid),
            13 => {
                let mut keys: Vec<_> = (0..self.below(5)).map(|_| self.omap_key()).collect();
                keys.sort();
                keys.dedup();
                Read::OmapValues(c, oid, keys)
            }
            14..=15 => {
                let bound = |g: &mut Self| if g.chance(50) { None } else { Some(g.omap_key()) };
                let range = OmapRange {
                    lower: bound(self),
                    after: self.chance(50),
                    upper: bound(self),
                    max: 1 + self.below(8) as usize,
                };
                Read::Omap(c, oid, range)
            }
            16..=17 => {
                let bound = |g: &mut Self| if g.chance(50) { None } else { Some(g.name()) };
                Read::List(c, bound(self), bound(self), 1 + self.below(6) as usize)
            }
            18 => Read::Extents(c, oid, 0, 1 << 40),
            _ => Read::Collections,
        }
    }
}
