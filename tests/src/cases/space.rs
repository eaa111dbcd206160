//! Space: what is accounted for, and what happens when there is none.

use lodestore::{Answer, Read, StatFs};

use super::cases;
use crate::model::ErrKind;
use crate::subject::{C, Pair, oid, pattern, txn};

const MIB: u64 = 1 << 20;

/// Writes objects of 1 MiB until the store refuses one; how many it took.
fn fill(p: &mut Pair<'_>) -> u64 {
    for i in 0.. {
        let t = txn(|t| t.write(C, oid(format!("fill {i}")), 0, pattern(i, MIB as usize)));
        match p.subject.apply(t.clone()) {
            Ok(()) => p.model.apply(&t).expect("the model has no end of space"),
            Err(ErrKind::NoSpace) => return i,
            Err(other) => panic!("a full store answered {other:?}"),
        }
    }
    unreachable!("the loop ends when the store is full")
}

cases! {
    fn space_is_exact_after_every_kind_of_change(p) {
        let empty = p.statfs();
        assert_eq!((empty.allocated, empty.stored, empty.objects), (0, 0, 0));
        let expect = |s: StatFs, blocks: u64, mapped: u64, objects: u64| {
            assert_eq!((s.allocated, s.stored, s.objects), (blocks * 4096, mapped * 4096, objects));
            assert_eq!(s.total, s.allocated + s.available);
        };
        p.ok(|t| t.write(C, oid("a"), 100, pattern(1, 40_960)));
        expect(p.statfs(), 11, 11, 1);
        p.ok(|t| t.write(C, oid("a"), 0, pattern(2, 8192)));
        expect(p.statfs(), 11, 11, 1);
        p.ok(|t| t.zero(C, oid("a"), 4096, 8192));
        expect(p.statfs(), 9, 9, 1);
        p.ok(|t| t.clone_object(C, oid("a"), oid("b")));
        expect(p.statfs(), 9, 18, 2);
        p.ok(|t| t.write(C, oid("b"), 0, pattern(3, 4096)));
        expect(p.statfs(), 10, 18, 2);
        p.ok(|t| t.rename(C, oid("b"), C, oid("c")));
        expect(p.statfs(), 10, 18, 2);
        p.ok(|t| t.remove(C, oid("a")));
        expect(p.statfs(), 9, 9, 1);
        p.ok(|t| t.truncate(C, oid("c"), 4096));
        expect(p.statfs(), 1, 1, 1);
        p.check();
        p.ok(|t| t.remove(C, oid("c")));
        expect(p.statfs(), 0, 0, 0);
        p.check();
    }

    fn a_full_store_refuses_whole_and_goes_on_reading(p) {
        let n = fill(p);
        assert!(n > 10);
        p.compare();
        let t = txn(|t| t.touch(C, oid("before")).write(C, oid("x"), 0, pattern(1, 2 * MIB as usize)).set_attr(C, oid("before"), "k", "v"));
        assert_eq!(p.subject.apply(t), Err(ErrKind::NoSpace));
        assert!(!p.exists(&oid("before")));
        assert_eq!(p.read(&oid("fill 3"), 0, MIB), pattern(3, MIB as usize));
        // What needs no space still works.
        p.ok(|t| t.touch(C, oid("small")).set_attr(C, oid("small"), "k", "v").omap_set_header(C, oid("small"), "h"));
        p.check();
    }

    fn delete_then_write_works_without_a_restart(p) {
        let n = fill(p);
        for round in 0..3 * n {
            let (gone, new) = (round % n, pattern(1000 + round, MIB as usize));
            p.ok(|t| t.remove(C, oid(format!("fill {gone}"))));
            p.ok(|t| t.write(C, oid(format!("fill {gone}")), 0, new));
        }
        p.check();
    }

    fn delete_then_write_works_with_both_in_flight(p) {
        let n = fill(p);
        for i in 0..n {
            p.later(|t| t.remove(C, oid(format!("fill {i}"))));
            p.later(|t| t.write(C, oid(format!("fill {i}")), 0, pattern(2000 + i, MIB as usize)));
        }
        p.settle();
        p.check();
    }

    fn a_full_store_mounts(p) {
        fill(p);
        let left = p.statfs().available;
        if left > 0 {
            p.ok(|t| t.write(C, oid("rest"), 0, pattern(7, left as usize)));
        }
        assert_eq!(p.statfs().available, 0);
        p.check();
        p.ok(|t| t.remove(C, oid("fill 0")));
        p.ok(|t| t.write(C, oid("again"), 0, pattern(8, MIB as usize)));
        p.check();
    }

    fn removing_everything_gives_everything_back(p) {
        for _ in 0..2 {
            let n = fill(p);
            for i in 0..n {
                p.later(|t| t.remove(C, oid(format!("fill {i}"))));
            }
            p.settle();
            let s = p.statfs();
            assert_eq!((s.allocated, s.stored, s.objects, s.available), (0, 0, 0, s.total));
        }
        p.check();
    }

    fn a_clone_needs_no_space_until_it_is_written(p) {
        let n = fill(p);
        p.ok(|t| t.clone_object(C, oid("fill 0"), oid("clone")));
        let t = txn(|t| t.write(C, oid("clone"), 0, pattern(5, MIB as usize)));
        assert_eq!(p.subject.apply(t.clone()), Err(ErrKind::NoSpace));
        p.compare();
        p.ok(|t| t.remove(C, oid(format!("fill {}", n - 1))));
        assert_eq!(p.apply(t), Ok(()));
        p.check();
    }

    fn the_space_of_omaps_is_reported_apart(p) {
        p.ok(|t| t.touch(C, oid("a")).omap_set(C, oid("a"), (0..2000u32).map(|i| (i.to_be_bytes().to_vec(), vec![7; 100])).collect()));
        let Ok(Answer::Space(s)) = p.subject.query(Read::StatFs) else { panic!("no statfs") };
        assert!(s.omap >= 200_000, "omap is {} bytes", s.omap);
        assert_eq!(s.allocated, 0);
        p.check();
    }
}
