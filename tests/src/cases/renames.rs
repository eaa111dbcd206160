//! Renames.

use lodestore::{Answer, CollectionId, Read};

use super::cases;
use crate::model::ErrKind;
use crate::subject::{C, Pair, oid, pattern};

fn full(p: &mut Pair<'_>, name: &str, seed: u64) {
    p.ok(|t| {
        t.write(C, oid(name), 0, pattern(seed, 9000)).set_attr(C, oid(name), "name", name).omap_set_header(
            C,
            oid(name),
            name,
        );
        t.omap_set(C, oid(name), vec![(name.as_bytes().to_vec(), b"v".to_vec())])
    });
}

cases! {
    fn a_rename_moves_data_attributes_and_omap(p) {
        full(p, "a", 1);
        p.ok(|t| t.rename(C, oid("a"), C, oid("b")));
        assert!(!p.exists(&oid("a")));
        assert_eq!(p.read(&oid("b"), 0, 10_000), pattern(1, 9000));
        assert_eq!(p.ask(Read::OmapHeader(C, oid("b"))), Ok(Answer::Attr(b"a".to_vec())));
        p.check();
    }

    fn a_rename_into_another_collection(p) {
        let other = CollectionId::new(2, 0);
        full(p, "a", 1);
        p.ok(|t| t.make_collection(other, 0).rename(C, oid("a"), other, oid("a")));
        assert_eq!(p.ask(Read::Attr(other, oid("a"), b"name".to_vec())), Ok(Answer::Attr(b"a".to_vec())));
        assert_eq!(p.list(C, None, None, 10).0.len(), 0);
        p.check();
        p.ok(|t| t.remove(other, oid("a")));
        assert_eq!(p.statfs().allocated, 0);
        p.check();
    }

    fn a_rename_onto_an_object_is_refused_unless_it_was_removed_before(p) {
        full(p, "a", 1);
        full(p, "b", 2);
        p.refused(ErrKind::ObjectExists, |t| t.rename(C, oid("a"), C, oid("b")));
        p.refused(ErrKind::ObjectExists, |t| t.rename(C, oid("a"), C, oid("a")));
        p.ok(|t| t.remove(C, oid("b")).rename(C, oid("a"), C, oid("b")));
        assert_eq!(p.read(&oid("b"), 0, 10), pattern(1, 10));
        p.check();
    }

    fn a_try_rename_of_an_absent_object_changes_nothing(p) {
        full(p, "b", 1);
        p.ok(|t| t.try_rename(C, oid("a"), C, oid("c")).set_attr(C, oid("b"), "x", "y"));
        p.refused(ErrKind::NoObject, |t| t.rename(C, oid("a"), C, oid("c")));
        p.ok(|t| t.try_rename(C, oid("b"), C, oid("c")));
        assert!(p.exists(&oid("c")));
        p.check();
    }

    fn renames_chain_within_a_transaction(p) {
        full(p, "a", 1);
        full(p, "c", 3);
        p.ok(|t| t.rename(C, oid("a"), C, oid("b")).rename(C, oid("c"), C, oid("a")));
        assert_eq!(p.read(&oid("a"), 0, 10), pattern(3, 10));
        p.check();
        p.ok(|t| t.rename(C, oid("a"), C, oid("t")).rename(C, oid("b"), C, oid("a")).rename(C, oid("t"), C, oid("b")));
        assert_eq!(p.read(&oid("a"), 0, 10), pattern(1, 10));
        p.check();
    }

    fn the_transaction_of_a_rename_may_make_the_source_again(p) {
        full(p, "a", 1);
        p.ok(|t| t.rename(C, oid("a"), C, oid("b")).write(C, oid("a"), 0, pattern(2, 100)).set_attr(C, oid("a"), "new", "1"));
        assert_eq!(p.ask(Read::Attr(C, oid("a"), b"name".to_vec())), Err(ErrKind::NoAttr));
        assert_eq!(p.size(&oid("a")), 100);
        p.check();
        p.ok(|t| t.remove(C, oid("b")));
        p.check();
    }

    fn there_and_back_in_one_transaction(p) {
        full(p, "a", 1);
        p.ok(|t| t.rename(C, oid("a"), C, oid("b")).write(C, oid("b"), 50, pattern(2, 50)).rename(C, oid("b"), C, oid("a")));
        p.check();
    }

    fn a_rename_with_deferred_writes_pending(p) {
        full(p, "a", 1);
        p.later(|t| t.write(C, oid("a"), 100, pattern(2, 50)));
        p.later(|t| t.rename(C, oid("a"), C, oid("b")));
        p.later(|t| t.write(C, oid("b"), 120, pattern(3, 50)));
        p.later(|t| t.write(C, oid("a"), 0, pattern(4, 5)));
        p.settle();
        p.check();
    }

    fn renames_around_a_ring_of_objects(p) {
        let name = |i: u64| oid(format!("ring {i}"));
        for i in 0..8 {
            p.ok(|t| t.write(C, name(i), 0, pattern(i, 5000 + i as usize)).omap_set_header(C, name(i), i.to_le_bytes()));
        }
        for round in 0..24u64 {
            p.later(|t| {
                t.rename(C, name(0), C, oid("spare"));
                for i in 1..8 {
                    t.rename(C, name(i), C, name(i - 1));
                }
                t.rename(C, oid("spare"), C, name(7)).write(C, name(3), round * 100, pattern(round + 50, 60))
            });
        }
        p.settle();
        p.check();
    }
}
