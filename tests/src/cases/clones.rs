//! Clones and ranges of clones: shared blocks, independent bytes.

use lodestore::{Answer, Read};

use super::cases;
use crate::model::ErrKind;
use crate::subject::{C, Pair, oid, pattern};

const B: u64 = 4096;

fn cloned(p: &mut Pair<'_>) {
    p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 10 * B as usize + 100)).set_attr(C, oid("a"), "k", "v"));
    p.ok(|t| t.clone_object(C, oid("a"), oid("b")));
    p.compare();
}

cases! {
    fn a_clone_shares_every_block(p) {
        cloned(p);
        let space = p.statfs();
        assert_eq!((space.allocated, space.stored), (11 * B, 22 * B));
        p.check();
    }

    fn an_overwrite_after_a_clone_changes_one_side_only(p) {
        cloned(p);
        p.ok(|t| t.write(C, oid("a"), 2 * B, pattern(2, 2 * B as usize)));
        p.ok(|t| t.write(C, oid("b"), 5 * B + 7, pattern(3, 100)));
        p.ok(|t| t.write(C, oid("a"), 5 * B + 50, pattern(4, 5000)));
        p.check();
    }

    fn a_hole_after_a_clone_is_in_one_side_only(p) {
        cloned(p);
        p.ok(|t| t.zero(C, oid("a"), B + 100, 3 * B));
        p.ok(|t| t.zero(C, oid("b"), 0, 2 * B));
        p.check();
    }

    fn a_tail_after_a_clone_is_on_one_side_only(p) {
        cloned(p);
        p.ok(|t| t.write(C, oid("a"), 10 * B + 100, pattern(2, 50)));
        p.ok(|t| t.write(C, oid("b"), 10 * B + 100, pattern(3, 9000)));
        p.check();
    }

    fn a_truncate_after_a_clone_cuts_one_side_only(p) {
        cloned(p);
        p.ok(|t| t.truncate(C, oid("a"), 3 * B + 5).truncate(C, oid("a"), 5 * B));
        p.check();
        p.ok(|t| t.truncate(C, oid("b"), 3 * B + 5).write(C, oid("b"), 3 * B + 10, "x"));
        p.check();
    }

    fn removing_either_side_leaves_the_other_whole(p) {
        for gone in ["a", "b"] {
            cloned(p);
            p.ok(|t| t.remove(C, oid(gone)));
            assert_eq!(p.statfs().allocated, 11 * B);
            let left = if gone == "a" { "b" } else { "a" };
            assert_eq!(p.read(&oid(left), 0, 20 * B), pattern(1, 10 * B as usize + 100));
            p.check();
            p.ok(|t| t.remove(C, oid(left)));
            assert_eq!(p.statfs().allocated, 0);
            p.check();
        }
    }

    fn many_clones_go_in_any_order(p) {
        cloned(p);
        for i in 0..20 {
            p.later(|t| t.clone_object(C, oid("b"), oid(format!("c{i}"))));
        }
        p.settle();
        p.ok(|t| t.remove(C, oid("a")).remove(C, oid("b")));
        for i in [5, 19, 0, 7, 13, 1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 14, 15, 16, 17] {
            p.later(|t| t.write(C, oid(format!("c{i}")), B * (i % 10), pattern(i, 10)).remove(C, oid(format!("c{i}"))));
        }
        p.settle();
        assert_eq!(p.statfs().allocated, 11 * B);
        p.check();
    }

    fn a_clone_of_a_clone_shares_with_both(p) {
        cloned(p);
        p.ok(|t| t.write(C, oid("b"), 0, pattern(2, 4096)).clone_object(C, oid("b"), oid("c")).write(C, oid("c"), B, pattern(3, 4096)));
        assert_eq!(p.statfs().allocated, 13 * B);
        p.check();
    }

    fn a_clone_replaces_data_attributes_and_omap(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 5000)).set_attr(C, oid("a"), "a", "1").omap_set_header(C, oid("a"), "ha"));
        p.ok(|t| {
            t.write(C, oid("b"), 0, pattern(2, 90_000)).set_attr(C, oid("b"), "b", "2").omap_set_header(C, oid("b"), "hb");
            t.omap_set(C, oid("b"), vec![(b"k".to_vec(), b"v".to_vec())])
        });
        p.ok(|t| t.clone_object(C, oid("a"), oid("b")));
        assert_eq!(p.ask(Read::Attr(C, oid("b"), b"b".to_vec())), Err(ErrKind::NoAttr));
        assert_eq!(p.ask(Read::OmapHeader(C, oid("b"))), Ok(Answer::Attr(b"ha".to_vec())));
        assert_eq!(p.size(&oid("b")), 5000);
        p.check();
    }

    fn a_clone_over_a_sharing_object_keeps_the_count_right(p) {
        cloned(p);
        p.ok(|t| t.clone_object(C, oid("a"), oid("b")).clone_object(C, oid("b"), oid("a")).clone_object(C, oid("a"), oid("b")));
        assert_eq!(p.statfs().allocated, 11 * B);
        p.ok(|t| t.remove(C, oid("a")).remove(C, oid("b")));
        assert_eq!(p.statfs().allocated, 0);
        p.check();
    }

    fn a_clone_onto_itself_is_refused(p) {
        cloned(p);
        p.refused(ErrKind::Invalid, |t| t.clone_object(C, oid("a"), oid("a")));
        p.check();
    }

    fn a_deferred_write_then_a_clone_then_another_deferred_write(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 4 * B as usize)));
        p.later(|t| t.write(C, oid("a"), 100, pattern(2, 200)));
        p.later(|t| t.clone_object(C, oid("a"), oid("b")));
        p.later(|t| t.write(C, oid("a"), 150, pattern(3, 200)));
        p.later(|t| t.write(C, oid("b"), 180, pattern(4, 5000)));
        p.settle();
        p.check();
        p.ok(|t| t.remove(C, oid("a")));
        p.check();
    }

    fn write_clone_and_write_in_one_transaction(p) {
        p.ok(|t| {
            t.write(C, oid("a"), 0, pattern(1, 3 * B as usize + 50)).clone_object(C, oid("a"), oid("b"));
            t.write(C, oid("a"), 10, pattern(2, 20)).clone_object(C, oid("a"), oid("c")).write(C, oid("b"), 3 * B, pattern(3, 500)).remove(C, oid("a"))
        });
        p.check();
    }

    fn an_aligned_range_is_shared(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 10 * B as usize)));
        p.ok(|t| t.clone_range(C, oid("a"), oid("b"), 2 * B, 4 * B, 8 * B));
        let space = p.statfs();
        assert_eq!((space.allocated, space.stored), (10 * B, 14 * B));
        assert_eq!(p.size(&oid("b")), 12 * B);
        p.ok(|t| t.write(C, oid("a"), 3 * B + 1, pattern(2, 10)).remove(C, oid("a")));
        p.check();
    }

    fn an_unaligned_range_is_copied(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 10 * B as usize)).write(C, oid("b"), 0, pattern(2, 6 * B as usize)));
        p.ok(|t| t.clone_range(C, oid("a"), oid("b"), 100, 3 * B, 5000));
        p.compare();
        p.ok(|t| t.clone_range(C, oid("a"), oid("b"), 100, 3 * B, B + 100));
        p.compare();
        p.ok(|t| t.clone_range(C, oid("a"), oid("b"), 5, 10, 9 * B));
        p.check();
    }

    fn a_range_takes_its_holes_along(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 10 * B as usize)).zero(C, oid("a"), 2 * B, 5 * B).write(C, oid("b"), 0, pattern(2, 12 * B as usize)));
        p.ok(|t| t.clone_range(C, oid("a"), oid("b"), B, 8 * B, 2 * B));
        p.compare();
        p.ok(|t| t.clone_range(C, oid("a"), oid("b"), B + 50, 7 * B, 100));
        p.check();
    }

    fn a_range_is_cut_at_the_end_of_its_source(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 5000)));
        p.ok(|t| t.clone_range(C, oid("a"), oid("b"), 1000, 100_000, 0));
        assert_eq!(p.size(&oid("b")), 4000);
        p.ok(|t| t.clone_range(C, oid("a"), oid("c"), 5000, 10, 700));
        assert_eq!(p.size(&oid("c")), 0);
        p.ok(|t| t.clone_range(C, oid("a"), oid("d"), 4096, 4096, 8192));
        assert_eq!(p.size(&oid("d")), 8192 + 904);
        p.ok(|t| t.write(C, oid("d"), 8192 + 2000, "tail"));
        assert_eq!(p.read(&oid("d"), 8192 + 904, 1096), vec![0; 1096]);
        p.check();
    }

    fn a_range_over_the_tail_of_a_longer_object_keeps_the_rest(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 5000)).write(C, oid("b"), 0, pattern(2, 20_000)));
        p.ok(|t| t.clone_range(C, oid("a"), oid("b"), 4096, 904, 8192));
        assert_eq!(p.read(&oid("b"), 9096, 5000), pattern(2, 20_000)[9096..14_096]);
        p.check();
    }

    fn a_range_within_one_object_may_not_overlap(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 10 * B as usize)));
        p.refused(ErrKind::Invalid, |t| t.clone_range(C, oid("a"), oid("a"), 0, 2 * B, B));
        p.refused(ErrKind::Invalid, |t| t.clone_range(C, oid("a"), oid("a"), B, 2 * B, 0));
        p.ok(|t| t.clone_range(C, oid("a"), oid("a"), 0, 2 * B, 2 * B));
        p.ok(|t| t.clone_range(C, oid("a"), oid("a"), 100, 300, 9 * B));
        p.check();
        p.ok(|t| t.write(C, oid("a"), 0, pattern(2, 100)).zero(C, oid("a"), 2 * B, B));
        p.check();
    }

    fn clones_of_an_aged_object_with_single_block_extents(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 256 * B as usize)));
        for i in 0..256u64 {
            let at = i * 97 % 256;
            p.later(|t| t.write(C, oid("a"), at * B, pattern(i + 2, B as usize)));
        }
        p.settle();
        p.ok(|t| t.clone_object(C, oid("a"), oid("b")));
        p.ok(|t| t.clone_range(C, oid("a"), oid("c"), 3 * B, 200 * B, 5 * B));
        for i in 0..64u64 {
            p.later(|t| t.write(C, oid("a"), i * 3 * B + 9, pattern(i + 500, 100)));
        }
        p.settle();
        p.check();
        p.ok(|t| t.remove(C, oid("a")));
        p.ok(|t| t.remove(C, oid("c")));
        p.check();
    }
}
