//! The simulated disk: what a power failure may leave.

use std::collections::HashSet;

use lodestore_aio::sim::{Event, Limits};
use lodestore_aio::{BLOCK, Disk, FileId, IoOp, Ring, SimDisk, run};

use super::subject::{B, finish, frozen, pattern, push, seed, write_op};

const WHOLE_ONLY: Limits = Limits { exhaustive_bits: 8, subset_samples: 64, torn_samples: 0, seed: 0 };

fn disk() -> (SimDisk, [FileId; 2], Box<dyn Ring>) {
    let mut disk = SimDisk::new(3);
    let files = [disk.create("a", 64 * B).unwrap(), disk.create("b", 64 * B).unwrap()];
    let ring = disk.ring(64).unwrap();
    (disk, files, ring)
}

/// The first bytes of these blocks of "a", in each state.
fn firsts(states: impl Iterator<Item = SimDisk>, blocks: &[u64]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = states.map(|s| blocks.iter().map(|b| s.peek("a", b * B, 1)[0]).collect()).collect();
    all.sort();
    all
}

#[test]
fn a_tiny_history_has_exactly_the_states_counted_by_hand() {
    let (disk, [a, _], mut ring) = disk();
    disk.start_recording();
    run(&mut *ring, write_op(a, 0, [1; BLOCK])).unwrap(); // events 1, 2: submitted, completed
    run(&mut *ring, write_op(a, 1, [2; BLOCK])).unwrap(); // events 3, 4
    disk.mark(10); // event 5
    run(&mut *ring, IoOp::Sync { files: a.mask() }).unwrap(); // event 6
    disk.mark(11); // event 7
    run(&mut *ring, write_op(a, 0, [3; BLOCK])).unwrap(); // events 8, 9
    let r = disk.stop_recording();

    assert_eq!(r.points(), 10);
    assert!(matches!(r.events()[5], Event::Synced { ref ids, .. } if ids.len() == 2));
    let expected = [1, 2, 2, 4, 4, 4, 1, 1, 2, 2];
    let counted: Vec<u64> = (0..r.points()).map(|p| r.states(p, &WHOLE_ONLY).count_distinct()).collect();
    assert_eq!(counted, expected);
    assert_eq!((0..r.points()).map(|p| r.states(p, &WHOLE_ONLY).count() as u64).collect::<Vec<_>>(), expected);
    // Points 1, 3, 4, 6 and 8 are followed by a completion or a mark.
    let same: Vec<usize> = (0..r.points()).filter(|&p| r.same_as_next(p)).collect();
    assert_eq!(same, [1, 3, 4, 6, 8]);
    assert_eq!(r.count_states(&WHOLE_ONLY), 1 + 2 + 4 + 1 + 2);

    assert_eq!(firsts(r.states(4, &WHOLE_ONLY), &[0, 1]), [[0, 0], [0, 2], [1, 0], [1, 2]]);
    assert_eq!(firsts(r.states(6, &WHOLE_ONLY), &[0, 1]), [[1, 2]]);
    assert_eq!(firsts(r.states(9, &WHOLE_ONLY), &[0, 1]), [[1, 2], [3, 2]]);
    assert_eq!((r.marks_before(4), r.marks_before(5), r.marks_before(9)), (vec![], vec![10], vec![10, 11]));
}

#[test]
fn overlapping_volatile_writes_leave_the_newest_an_older_or_the_base() {
    let (disk, [a, _], mut ring) = disk();
    run(&mut *ring, write_op(a, 0, [9; BLOCK])).unwrap();
    run(&mut *ring, IoOp::Sync { files: a.mask() }).unwrap();
    for v in 1..=3u8 {
        run(&mut *ring, write_op(a, 0, [v; BLOCK])).unwrap();
    }
    // Eight subsets, four different outcomes.
    assert_eq!(firsts(disk.crash_states(&WHOLE_ONLY), &[0]), [[1], [2], [3], [9]]);
}

#[test]
fn of_two_writes_that_are_both_there_the_newer_wins_where_they_overlap() {
    let (disk, [a, _], mut ring) = disk();
    run(&mut *ring, write_op(a, 0, [1; 2 * BLOCK])).unwrap();
    run(&mut *ring, write_op(a, 1, [2; 2 * BLOCK])).unwrap();
    let states = [[0, 0, 0], [0, 2, 2], [1, 1, 0], [1, 2, 2]];
    assert_eq!(firsts(disk.crash_states(&WHOLE_ONLY), &[0, 1, 2]), states);
}

#[test]
fn writes_that_change_nothing_make_no_new_state() {
    let (disk, [a, _], mut ring) = disk();
    run(&mut *ring, write_op(a, 0, [0; BLOCK])).unwrap();
    run(&mut *ring, write_op(a, 1, [4; BLOCK])).unwrap();
    run(&mut *ring, write_op(a, 1, [4; BLOCK])).unwrap();
    assert_eq!(firsts(disk.crash_states(&WHOLE_ONLY), &[0, 1]), [[0, 0], [0, 4]]);
}

#[test]
fn torn_states_mix_sectors_old_and_new_and_nothing_else() {
    let (disk, [a, _], mut ring) = disk();
    run(&mut *ring, write_op(a, 0, [1; 2 * BLOCK])).unwrap();
    run(&mut *ring, IoOp::Sync { files: a.mask() }).unwrap();
    run(&mut *ring, write_op(a, 0, [2; 2 * BLOCK])).unwrap();
    run(&mut *ring, write_op(a, 1, [3; BLOCK])).unwrap();
    let limits = Limits { torn_samples: 500, seed: seed(), ..WHOLE_ONLY };
    let (mut torn, mut shapes) = (0, HashSet::new());
    for s in disk.crash_states(&limits) {
        let bytes = s.peek("a", 0, 3 * BLOCK);
        let sectors: Vec<u8> = bytes.chunks(512).map(|c| c[0]).collect();
        assert!(bytes.chunks(512).all(|c| c.iter().all(|&b| b == c[0])), "a sector is never torn");
        assert!(
            sectors[..8].iter().all(|b| [1, 2].contains(b)) && sectors[8..16].iter().all(|b| [1, 2, 3].contains(b))
        );
        assert!(sectors[16..].iter().all(|&b| b == 0));
        torn += usize::from(sectors[..8].iter().any(|&b| b != sectors[0]));
        assert!(shapes.insert(sectors), "each state comes once");
        assert_eq!(s.volatile(), (0, 0));
    }
    assert!(torn > 100, "{torn} torn states");
}

#[test]
fn each_file_is_lost_or_kept_on_its_own_and_a_sync_of_two_has_a_moment_between() {
    let mut between = HashSet::new();
    for seed in 0..20 {
        let mut disk = SimDisk::new(seed);
        let (a, b) = (disk.create("a", B).unwrap(), disk.create("b", B).unwrap());
        let mut ring = disk.ring(4).unwrap();
        disk.start_recording();
        push(&mut *ring, 1, write_op(a, 0, [1; BLOCK]));
        push(&mut *ring, 2, write_op(b, 0, [1; BLOCK]));
        finish(&mut *ring);
        run(&mut *ring, IoOp::Sync { files: 3 }).unwrap();
        let r = disk.stop_recording();
        assert_eq!(r.points(), 7);
        assert_eq!(r.states(4, &WHOLE_ONLY).count_distinct(), 4);
        for s in r.states(5, &WHOLE_ONLY) {
            between.insert((s.peek("a", 0, 1)[0], s.peek("b", 0, 1)[0]));
        }
        assert_eq!(r.states(6, &WHOLE_ONLY).count_distinct(), 1);
    }
    assert_eq!(between, [(1, 1), (1, 0), (0, 1)].into(), "either may be the first");
}

#[test]
fn a_file_is_there_from_its_creation_on() {
    let mut disk = SimDisk::new(1);
    disk.start_recording();
    disk.create("a", B).unwrap();
    let r = disk.stop_recording();
    let names = |p| r.states(p, &WHOLE_ONLY).map(|s| s.files()).collect::<Vec<_>>();
    assert_eq!((names(0), names(1)), (vec![vec![]], vec![vec![("a".to_owned(), B)]]));
}

#[test]
fn a_recording_goes_on_over_damage_and_starts_from_what_is_pending() {
    let (disk, [a, _], mut ring) = disk();
    run(&mut *ring, write_op(a, 0, [1; BLOCK])).unwrap();
    disk.start_recording();
    disk.poke("a", B, &[5]);
    run(&mut *ring, IoOp::Sync { files: a.mask() }).unwrap();
    let r = disk.stop_recording();
    assert_eq!(firsts(r.states(0, &WHOLE_ONLY), &[0, 1]), [[0, 0], [1, 0]]);
    assert_eq!(firsts(r.states(1, &WHOLE_ONLY), &[0, 1]), [[0, 5], [1, 5]]);
    assert_eq!(firsts(r.states(2, &WHOLE_ONLY), &[0, 1]), [[1, 5]]);
}

#[test]
fn beyond_the_exhaustive_bound_samples_hold_none_and_all_and_agree_for_a_seed() {
    let (disk, [a, b], mut ring) = disk();
    for i in 0..40 {
        push(&mut *ring, i, write_op(if i % 2 == 0 { a } else { b }, i, [1; BLOCK]));
    }
    finish(&mut *ring);
    let limits = Limits { subset_samples: 100, torn_samples: 20, ..Limits::default() };
    let hashes = |l: &Limits| disk.crash_states(l).map(|s| s.hash()).collect::<Vec<_>>();
    let all = hashes(&limits);
    assert!((80..=122).contains(&all.len()), "{} states", all.len());
    assert_eq!(all, hashes(&limits));
    assert_ne!(all, hashes(&Limits { seed: 1, ..limits }));
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    assert!(all.contains(&disk.crash(0).hash()) && all.contains(&disk.fork(0).hash()));
}

#[test]
fn replaying_a_long_recording_ends_in_the_state_of_the_disk_at_every_point() {
    let seed = seed();
    let mut disk = SimDisk::new(seed);
    let f = disk.create("a", 64 * B).unwrap();
    let mut ring = disk.ring(8).unwrap();
    disk.start_recording();
    let mut expected = Vec::new();
    let nothing_survives = Limits { exhaustive_bits: 0, subset_samples: 0, torn_samples: 0, seed: 0 };
    for i in 0..150u64 {
        let dsync = i % 11 == 0;
        run(&mut *ring, IoOp::Write { file: f, offset: (i * 7 % 60) * B, data: frozen(pattern(i, 4)), dsync }).unwrap();
        if i % 5 == 0 {
            run(&mut *ring, IoOp::Sync { files: 1 }).unwrap();
        }
        disk.mark(i);
        expected.push(disk.crash(0).hash());
    }
    let r = disk.stop_recording();
    for point in 0..r.points() {
        if let Some(Event::Mark(i)) = point.checked_sub(1).map(|e| &r.events()[e]) {
            let base = r.states(point, &nothing_survives).next().unwrap();
            assert_eq!(base.hash(), expected[*i as usize], "after step {i}");
        }
    }
}

#[test]
fn a_random_crash_is_one_of_the_legal_states() {
    let (disk, [a, _], mut ring) = disk();
    run(&mut *ring, write_op(a, 0, [1; BLOCK])).unwrap();
    push(&mut *ring, 1, write_op(a, 1, [2; BLOCK]));
    ring.submit().unwrap();
    let mut seen = HashSet::new();
    for seed in 0..100 {
        let bytes = disk.crash_random(seed).peek("a", 0, 2 * BLOCK);
        let sectors: Vec<u8> = bytes.chunks(512).map(|c| c[0]).collect();
        assert!(sectors[..8].iter().all(|b| *b <= 1) && sectors[8..].iter().all(|b| [0, 2].contains(b)));
        seen.insert(sectors);
    }
    assert!(seen.len() > 20);
}
