//! Collections: making, removing, listing, dividing and joining.

use lodestore::{Answer, CollectionId, ObjectId, Read, Transaction};

use super::cases;
use crate::model::ErrKind;
use crate::subject::{C, Pair, oid, pattern};

const P: CollectionId = CollectionId { pool: 7, seed: 0 };
const Q: CollectionId = CollectionId { pool: 7, seed: 1 };

fn hashed(i: u32) -> ObjectId {
    oid(format!("object {i}")).with_hash(i.wrapping_mul(0x9e37_79b9))
}

fn filled(p: &mut Pair<'_>, n: u32) {
    p.ok(|t| t.make_collection(P, 0));
    for i in 0..n {
        p.later(|t| t.write(P, hashed(i), 0, pattern(u64::from(i), 300)).set_attr(P, hashed(i), "i", i.to_le_bytes()));
    }
    p.settle();
    p.ok(|t| {
        t.omap_set(P, hashed(1), vec![(b"k".to_vec(), b"v".to_vec())]).clone_object(
            P,
            hashed(1),
            oid("clone").with_hash(3),
        )
    });
}

cases! {
    fn operations_on_a_missing_collection_say_so(p) {
        let none = CollectionId::new(99, 0);
        p.ok(|t| t.touch(C, oid("a")));
        let fill: Vec<fn(&mut Transaction, CollectionId)> = vec![
            |t, c| { t.touch(c, oid("a")); },
            |t, c| { t.create(c, oid("a")); },
            |t, c| { t.write(c, oid("a"), 0, "x"); },
            |t, c| { t.zero(c, oid("a"), 0, 1); },
            |t, c| { t.truncate(c, oid("a"), 0); },
            |t, c| { t.remove(c, oid("a")); },
            |t, c| { t.set_attr(c, oid("a"), "k", "v"); },
            |t, c| { t.rm_attr(c, oid("a"), "k"); },
            |t, c| { t.rm_attrs(c, oid("a")); },
            |t, c| { t.clone_object(c, oid("a"), oid("b")); },
            |t, c| { t.clone_range(c, oid("a"), oid("b"), 0, 1, 0); },
            |t, c| { t.omap_set(c, oid("a"), vec![(b"k".to_vec(), b"v".to_vec())]); },
            |t, c| { t.omap_rm_keys(c, oid("a"), vec![b"k".to_vec()]); },
            |t, c| { t.omap_rm_range(c, oid("a"), "a", "b"); },
            |t, c| { t.omap_clear(c, oid("a")); },
            |t, c| { t.omap_set_header(c, oid("a"), "h"); },
            |t, c| { t.remove_collection(c); },
            |t, c| { t.split(c, 1, CollectionId::new(99, 1)); },
            |t, c| { t.merge(c, 0, C); },
            |t, c| { t.merge(C, 0, c); },
            |t, c| { t.rename(c, oid("a"), C, oid("b")); },
            |t, c| { t.rename(C, oid("a"), c, oid("b")); },
            |t, c| { t.hint(c, oid("a"), Default::default()); },
        ];
        for f in fill {
            p.refused(ErrKind::NoCollection, |t| { f(t, none); t });
        }
        assert_eq!(p.ask(Read::Stat(none, oid("a"))), Err(ErrKind::NoCollection));
        assert_eq!(p.ask(Read::List(none, None, None, 1)), Err(ErrKind::NoCollection));
        p.check();
    }

    fn a_collection_is_made_listed_and_removed(p) {
        p.ok(|t| t.make_collection(P, 3));
        assert_eq!(p.ask(Read::Collections), Ok(Answer::Collections(vec![(C, 0), (P, 3)])));
        p.check();
        p.ok(|t| t.remove_collection(P));
        assert_eq!(p.ask(Read::Collections), Ok(Answer::Collections(vec![(C, 0)])));
        p.check();
    }

    fn a_collection_that_is_there_or_overlaps_one_is_refused(p) {
        p.ok(|t| t.make_collection(P, 1));
        p.refused(ErrKind::CollectionExists, |t| t.make_collection(P, 1));
        p.refused(ErrKind::CollectionExists, |t| t.make_collection(P, 2));
        p.refused(ErrKind::CollectionExists, |t| t.make_collection(CollectionId::new(7, 2), 2));
        p.refused(ErrKind::Invalid, |t| t.make_collection(Q, 0));
        p.ok(|t| t.make_collection(Q, 1));
        p.ok(|t| t.make_collection(CollectionId::new(8, 0), 32).make_collection(CollectionId::new(8, u32::MAX), 32));
        p.refused(ErrKind::TooLarge, |t| t.make_collection(CollectionId::new(9, 0), 33));
        p.refused(ErrKind::Invalid, |t| t.make_collection(CollectionId::new(9, 2), 1));
        p.check();
    }

    fn an_object_whose_hash_belongs_elsewhere_is_refused(p) {
        p.ok(|t| t.make_collection(P, 2).make_collection(CollectionId::new(8, 5), 32));
        p.refused(ErrKind::Invalid, |t| t.touch(P, oid("a").with_hash(1)));
        p.refused(ErrKind::Invalid, |t| t.write(P, oid("a").with_hash(2), 0, "x"));
        p.ok(|t| t.touch(P, oid("a").with_hash(4)).touch(CollectionId::new(8, 5), oid("b").with_hash(5)));
        p.refused(ErrKind::Invalid, |t| t.touch(CollectionId::new(8, 5), oid("b").with_hash(0x8000_0005)));
        p.refused(ErrKind::Invalid, |t| t.rename(P, oid("a").with_hash(4), P, oid("a").with_hash(5)));
        p.refused(ErrKind::Invalid, |t| t.clone_object(P, oid("a").with_hash(4), oid("a").with_hash(5)));
        p.check();
    }

    fn a_collection_with_objects_is_not_removed(p) {
        p.ok(|t| t.make_collection(P, 0).touch(P, oid("a")));
        p.refused(ErrKind::NotEmpty, |t| t.remove_collection(P));
        p.ok(|t| t.remove(P, oid("a")).remove_collection(P));
        p.check();
    }

    fn a_collection_is_removed_while_its_removes_are_pending(p) {
        filled(p, 50);
        for i in 0..50 {
            p.later(|t| t.remove(P, hashed(i)));
        }
        p.later(|t| t.remove(P, oid("clone").with_hash(3)));
        p.later(|t| t.remove_collection(P));
        p.later(|t| t.make_collection(P, 4).touch(P, oid("new").with_hash(16)));
        p.settle();
        assert_eq!(p.list(P, None, None, 100).0.len(), 1);
        p.check();
    }

    fn a_refused_removal_in_flight_leaves_the_collection(p) {
        p.ok(|t| t.make_collection(P, 0));
        p.later(|t| t.touch(P, oid("a")));
        p.refused_in_flight(ErrKind::NotEmpty, |t| t.remove_collection(P));
        p.later(|t| t.remove(P, oid("a")));
        p.later(|t| t.remove_collection(P));
        p.settle();
        p.check();
    }

    fn listing_is_in_order_of_the_reversed_hash_and_pages_join(p) {
        filled(p, 300);
        let (all, next) = p.list(P, None, None, 1000);
        assert_eq!((all.len(), next), (301, None));
        assert!(all.is_sorted_by(|a, b| a < b));
        assert!(all.is_sorted_by_key(|o| o.hash.reverse_bits()));
        for max in [1, 2, 7, 100, 300, 301] {
            let mut joined = Vec::new();
            let mut start = None;
            loop {
                let (page, next) = p.list(P, start, None, max);
                assert!(page.len() <= max);
                joined.extend(page);
                match next {
                    None => break,
                    next => start = next,
                }
            }
            assert_eq!(joined, all);
        }
        p.check();
    }

    fn a_listing_starts_at_its_start_and_stops_before_its_end(p) {
        filled(p, 100);
        let (all, _) = p.list(P, None, None, 1000);
        let (part, next) = p.list(P, Some(all[10].clone()), Some(all[20].clone()), 100);
        assert_eq!((part.as_slice(), next), (&all[10..20], None));
        let (part, next) = p.list(P, Some(all[10].clone()), Some(all[20].clone()), 10);
        assert_eq!((part.as_slice(), next), (&all[10..20], None));
        let (part, next) = p.list(P, Some(all[10].clone()), Some(all[20].clone()), 9);
        assert_eq!(part.as_slice(), &all[10..19]);
        assert!(next.is_some());
        assert_eq!(p.list(P, Some(all[20].clone()), Some(all[20].clone()), 9), (Vec::new(), None));
        assert_eq!(p.list(P, Some(all[20].clone()), Some(all[10].clone()), 9), (Vec::new(), None));
        // A cursor that names no object, and one whose object was removed meanwhile.
        p.ok(|t| t.remove(P, all[50].clone()));
        assert_eq!(p.list(P, Some(all[50].clone()), None, 1).0, all[51..52]);
        p.check();
    }

    fn listings_do_not_run_into_other_collections(p) {
        let neighbours = [CollectionId::new(7, 0), CollectionId::new(7, 1), CollectionId::new(6, 0), CollectionId::new(8, 1)];
        for c in neighbours {
            p.ok(|t| t.make_collection(c, 1).touch(c, oid("first").with_hash(c.seed)).touch(c, oid("last").with_hash(0xffff_fffe | c.seed)));
        }
        for c in neighbours {
            assert_eq!(p.list(c, None, None, 10).0.len(), 2);
        }
        p.check();
    }

    fn a_split_moves_names_only(p) {
        filled(p, 200);
        let before = p.statfs();
        p.ok(|t| t.split(P, 1, Q));
        let after = p.statfs();
        assert_eq!((before.allocated, before.stored, before.objects), (after.allocated, after.stored, after.objects));
        let (left, right) = (p.list(P, None, None, 1000).0, p.list(Q, None, None, 1000).0);
        assert_eq!(left.len() + right.len(), 201);
        assert!(left.iter().all(|o| o.hash % 2 == 0) && right.iter().all(|o| o.hash % 2 == 1));
        p.check();
        let odd = right[0].clone();
        p.refused(ErrKind::Invalid, |t| t.touch(P, odd.clone()));
        p.ok(|t| t.write(Q, odd.clone(), 100, pattern(5, 10)));
        p.check();
    }

    fn a_merge_undoes_a_split(p) {
        filled(p, 200);
        let (all, _) = p.list(P, None, None, 1000);
        p.ok(|t| t.split(P, 1, Q).split(Q, 2, CollectionId::new(7, 3)));
        p.compare();
        p.ok(|t| t.merge(CollectionId::new(7, 3), 1, Q));
        p.check();
        p.ok(|t| t.merge(Q, 0, P));
        assert_eq!(p.list(P, None, None, 1000).0, all);
        assert_eq!(p.ask(Read::List(Q, None, None, 1)), Err(ErrKind::NoCollection));
        p.check();
    }

    fn nonsense_splits_and_merges_are_refused(p) {
        filled(p, 10);
        p.refused(ErrKind::Invalid, |t| t.split(P, 0, Q));
        p.refused(ErrKind::Invalid, |t| t.split(P, 1, CollectionId::new(8, 1)));
        p.refused(ErrKind::Invalid, |t| t.split(P, 33, Q));
        p.refused(ErrKind::Invalid, |t| t.split(P, 1, CollectionId::new(7, 2)));
        p.ok(|t| t.split(P, 1, Q));
        p.refused(ErrKind::Invalid, |t| t.merge(Q, 1, P));
        p.refused(ErrKind::Invalid, |t| t.merge(Q, 0, Q));
        p.refused(ErrKind::Invalid, |t| t.merge(Q, 0, C));
        p.refused(ErrKind::Invalid, |t| t.merge(P, 0, Q));
        p.refused(ErrKind::Invalid, |t| t.split(P, 2, CollectionId::new(7, 3)));
        p.refused(ErrKind::Invalid, |t| t.split(P, 3, CollectionId::new(7, 4)));
        p.refused(ErrKind::CollectionExists, |t| t.split(P, 2, Q));
        p.ok(|t| t.make_collection(CollectionId::new(8, 0), 32));
        p.refused(ErrKind::Invalid, |t| t.split(CollectionId::new(8, 0), 33, CollectionId::new(8, 1)));
        p.check();
    }

    fn a_split_sees_the_writes_in_flight_before_it(p) {
        p.ok(|t| t.make_collection(P, 0));
        for i in 0..40 {
            p.later(|t| t.write(P, hashed(i), 0, pattern(u64::from(i), 5000)));
        }
        p.later(|t| t.split(P, 1, Q));
        for i in 0..40 {
            let c = if hashed(i).hash % 2 == 0 { P } else { Q };
            p.later(|t| t.write(c, hashed(i), 4999, pattern(u64::from(i) + 100, 50)));
        }
        p.settle();
        p.check();
    }
}
