//! The alphabet of the crash workloads: twelve operations, chosen so that every pair and triple of
//! them meets in the engine somewhere: direct, deferred and shared blocks, cuts, names, omap.

use lodestore::{CollectionId, ObjectId, Transaction};

use crate::subject::pattern;

/// The collection of the workloads.
pub const C: CollectionId = CollectionId { pool: 1, seed: 0 };

/// Number of letters.
pub const LETTERS: usize = 12;

/// Number of workloads of one to three letters.
pub const WORKLOADS: usize = LETTERS + LETTERS * LETTERS + LETTERS * LETTERS * LETTERS;

fn oid(name: &str) -> ObjectId {
    ObjectId::new(name)
}

/// What is there before a workload begins.
pub fn setup() -> Transaction {
    let mut t = Transaction::new();
    t.make_collection(C, 0).write(C, oid("a"), 0, pattern(1, 2 * 4096 + 300)).set_attr(C, oid("a"), "k", "v");
    t.omap_set(C, oid("a"), (0..4u8).map(|i| (vec![i], vec![i; 20])).collect()).omap_set_header(C, oid("a"), "h");
    t.write(C, oid("b"), 0, pattern(2, 4096)).clone_object(C, oid("b"), oid("s"));
    t
}

/// The transaction of a letter at a position of the workload. Every workload can be applied: what
/// a letter needs it makes, and what it would collide with it removes.
pub fn letter(letter: usize, position: usize) -> Transaction {
    let seed = 100 + position as u64 * 16 + letter as u64;
    let mut t = Transaction::new();
    match letter {
        // A whole block, direct.
        0 => t.write(C, oid("a"), 0, pattern(seed, 4096)),
        // Part of a block: deferred.
        1 => t.write(C, oid("a"), 100, pattern(seed, 50)),
        // Across the edge of two blocks.
        2 => t.write(C, oid("a"), 4000, pattern(seed, 300)),
        // Three blocks of another object, one of them shared with its clone.
        3 => t.write(C, oid("b"), 0, pattern(seed, 3 * 4096)),
        // Partial overwrite of a shared block.
        4 => t.write(C, oid("s"), 1000, pattern(seed, 1000)),
        // An append that fills a block and goes on.
        5 => t.write(C, oid("a"), 2 * 4096 + 300, pattern(seed, 5000)),
        // A cut inside a block, then a hole.
        6 => t.touch(C, oid("a")).truncate(C, oid("a"), 4096 + 50).truncate(C, oid("a"), 3 * 4096),
        // Shares everything that is there.
        7 => t.touch(C, oid("a")).clone_object(C, oid("a"), oid("s")),
        // Everything of an object goes, its space is free again.
        8 => t.touch(C, oid("a")).remove(C, oid("a")),
        // Another name, made again.
        9 => t.touch(C, oid("a")).touch(C, oid("b")).remove(C, oid("b")).rename(C, oid("a"), C, oid("b")).write(
            C,
            oid("a"),
            0,
            pattern(seed, 10),
        ),
        // Metadata of every kind.
        10 => t
            .touch(C, oid("a"))
            .set_attr(C, oid("a"), "k", pattern(seed, 30))
            .omap_clear(C, oid("a"))
            .omap_set(C, oid("a"), vec![(vec![1], pattern(seed, 10)), (vec![9], pattern(seed, 20))])
            .omap_set_header(C, oid("a"), pattern(seed, 5)),
        // Zeros over whole and partial blocks, and keys removed.
        _ => t.zero(C, oid("a"), 50, 2 * 4096).omap_rm_range(C, oid("a"), vec![1], vec![3]).rm_attr(C, oid("a"), "k"),
    };
    t
}

/// The letters of workload `n`, of those below [`WORKLOADS`]: shortest first.
pub fn workload(n: usize) -> Vec<usize> {
    let (one, two) = (LETTERS, LETTERS * LETTERS);
    if n < one {
        vec![n]
    } else if n < one + two {
        let m = n - one;
        vec![m / LETTERS, m % LETTERS]
    } else {
        let m = n - one - two;
        vec![m / two, m / LETTERS % LETTERS, m % LETTERS]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::Model;

    #[test]
    fn every_workload_of_up_to_three_letters_is_enumerated_once_and_applies() {
        let all: BTreeSet<Vec<usize>> = (0..WORKLOADS).map(workload).collect();
        assert_eq!((all.len(), WORKLOADS), (1884, 1884));
        for letters in all {
            let mut model = Model::new();
            assert_eq!(model.apply(&setup()), Ok(()));
            for (i, l) in letters.iter().enumerate() {
                assert_eq!(model.apply(&letter(*l, i)), Ok(()), "letter {l} in {letters:?}");
            }
        }
    }
}
