//! Omap: header, keys, ranges, pages.

use lodestore::{Answer, OmapRange, Read};

use super::cases;
use crate::subject::{C, oid, pattern};

type Entry = (Vec<u8>, Vec<u8>);

fn key(i: u32) -> Vec<u8> {
    format!("{i:08}").into_bytes()
}

fn entries(range: std::ops::Range<u32>) -> Vec<Entry> {
    range.map(|i| (key(i), pattern(u64::from(i), 1 + i as usize % 40))).collect()
}

fn page(lower: Option<&[u8]>, after: bool, upper: Option<&[u8]>, max: usize) -> OmapRange {
    OmapRange { lower: lower.map(<[u8]>::to_vec), after, upper: upper.map(<[u8]>::to_vec), max }
}

cases! {
    fn keys_are_set_replaced_and_removed(p) {
        p.ok(|t| t.touch(C, oid("a")).omap_set(C, oid("a"), entries(0..50)));
        p.ok(|t| t.omap_set(C, oid("a"), vec![(key(3), b"new".to_vec()), (b"".to_vec(), b"empty key".to_vec()), (key(4), Vec::new())]));
        p.check();
        p.ok(|t| t.omap_rm_keys(C, oid("a"), vec![key(1), key(49), b"absent".to_vec()]));
        p.check();
    }

    fn values_are_answered_for_the_keys_that_exist(p) {
        p.ok(|t| t.touch(C, oid("a")).omap_set(C, oid("a"), entries(0..10)));
        let asked = vec![key(2), key(5), b"absent".to_vec()];
        let Ok(Answer::Entries(got, _)) = p.ask(Read::OmapValues(C, oid("a"), asked)) else { panic!("no entries") };
        assert_eq!(got.len(), 2);
        p.check();
    }

    fn the_header_is_apart_from_the_keys(p) {
        p.ok(|t| t.touch(C, oid("a")).omap_set_header(C, oid("a"), "header"));
        assert_eq!(p.omap(&oid("a"), page(None, false, None, 10)), (Vec::new(), false));
        p.ok(|t| t.omap_set(C, oid("a"), entries(0..3)));
        p.ok(|t| t.omap_rm_range(C, oid("a"), "", "\u{7f}"));
        assert_eq!(p.ask(Read::OmapHeader(C, oid("a"))), Ok(Answer::Attr(b"header".to_vec())));
        p.ok(|t| t.omap_set_header(C, oid("a"), ""));
        assert_eq!(p.ask(Read::OmapHeader(C, oid("a"))), Ok(Answer::Attr(Vec::new())));
        p.check();
    }

    fn clear_takes_header_and_keys_and_leaves_other_objects_alone(p) {
        for name in ["a", "b", "c"] {
            p.ok(|t| t.touch(C, oid(name)).omap_set(C, oid(name), entries(0..100)).omap_set_header(C, oid(name), name));
        }
        p.ok(|t| t.omap_clear(C, oid("b")));
        assert_eq!(p.omap(&oid("b"), page(None, false, None, 10)), (Vec::new(), false));
        p.check();
        p.ok(|t| t.omap_set(C, oid("b"), entries(5..7)));
        assert_eq!(p.omap(&oid("b"), page(None, false, None, 10)).0, entries(5..7));
        p.check();
    }

    fn clear_then_set_in_one_transaction_leaves_the_new_keys(p) {
        p.ok(|t| t.touch(C, oid("a")).omap_set(C, oid("a"), entries(0..20)).omap_set_header(C, oid("a"), "old"));
        p.ok(|t| t.omap_set(C, oid("a"), entries(30..35)).omap_clear(C, oid("a")).omap_set(C, oid("a"), entries(10..12)));
        assert_eq!(p.omap(&oid("a"), page(None, false, None, 10)).0, entries(10..12));
        p.check();
    }

    fn a_range_is_removed_from_its_first_key_to_before_its_last(p) {
        p.ok(|t| t.touch(C, oid("a")).omap_set(C, oid("a"), entries(0..300)));
        p.ok(|t| t.omap_rm_range(C, oid("a"), key(10), key(20)));
        p.ok(|t| t.omap_rm_range(C, oid("a"), key(20), key(20)));
        p.ok(|t| t.omap_rm_range(C, oid("a"), key(250), key(240)));
        assert_eq!(p.omap(&oid("a"), page(None, false, None, 1000)).0.len(), 290);
        p.check();
        p.ok(|t| t.omap_rm_range(C, oid("a"), key(30), key(290)).omap_set(C, oid("a"), entries(100..101)));
        p.check();
        p.ok(|t| t.omap_rm_range(C, oid("a"), "", vec![0xff; 4096]));
        assert_eq!(p.omap(&oid("a"), page(None, false, None, 10)), (Vec::new(), false));
        p.check();
    }

    fn keys_of_any_bytes_keep_their_order(p) {
        let keys: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"a\xff", b"\xff", b"\xff\xff\xff"];
        let set: Vec<Entry> = keys.iter().rev().map(|k| (k.to_vec(), k.to_vec())).collect();
        p.ok(|t| t.touch(C, oid("a")).omap_set(C, oid("a"), set));
        assert_eq!(p.omap(&oid("a"), page(None, false, None, 10)).0.iter().map(|e| e.0.as_slice()).collect::<Vec<_>>(), keys);
        p.ok(|t| t.omap_rm_range(C, oid("a"), b"\0".to_vec(), b"a\0".to_vec()));
        p.check();
    }

    fn pages_are_bounded_below_above_and_in_length(p) {
        p.ok(|t| t.touch(C, oid("a")).omap_set(C, oid("a"), entries(0..100)).touch(C, oid("b")).omap_set(C, oid("b"), entries(0..100)));
        let a = oid("a");
        assert_eq!(p.omap(&a, page(Some(&key(10)), false, Some(&key(20)), 100)), (entries(10..20), false));
        assert_eq!(p.omap(&a, page(Some(&key(10)), true, Some(&key(20)), 100)), (entries(11..20), false));
        assert_eq!(p.omap(&a, page(Some(&key(10)), true, Some(&key(20)), 9)), (entries(11..20), false));
        assert_eq!(p.omap(&a, page(Some(&key(10)), true, Some(&key(20)), 8)), (entries(11..19), true));
        assert_eq!(p.omap(&a, page(None, false, None, 1)), (entries(0..1), true));
        assert_eq!(p.omap(&a, page(Some(&key(99)), true, None, 5)), (Vec::new(), false));
        assert_eq!(p.omap(&a, page(Some(&key(50)), false, Some(&key(40)), 5)), (Vec::new(), false));
        p.check();
    }

    fn a_clone_has_its_own_omap(p) {
        p.ok(|t| t.touch(C, oid("a")).omap_set(C, oid("a"), entries(0..30)).omap_set_header(C, oid("a"), "h"));
        p.ok(|t| t.touch(C, oid("b")).omap_set(C, oid("b"), entries(50..60)).clone_object(C, oid("a"), oid("b")));
        p.ok(|t| t.omap_rm_keys(C, oid("a"), vec![key(0)]).omap_set(C, oid("b"), vec![(key(1), b"b's".to_vec())]).omap_set_header(C, oid("a"), "g"));
        assert_eq!(p.omap(&oid("b"), page(None, false, None, 100)).0.len(), 30);
        p.check();
        p.ok(|t| t.remove(C, oid("a")));
        p.check();
    }

    fn an_object_made_again_does_not_inherit_keys(p) {
        p.ok(|t| t.touch(C, oid("a")).omap_set(C, oid("a"), entries(0..30)));
        p.ok(|t| t.remove(C, oid("a")).touch(C, oid("a")));
        assert_eq!(p.omap(&oid("a"), page(None, false, None, 100)), (Vec::new(), false));
        p.ok(|t| t.omap_set(C, oid("a"), entries(1..2)));
        p.check();
    }

    fn a_million_keys_are_paged_a_tenth_of_it_where_it_is_scaled_down(p) {
        // The model would copy the map for every transaction; keys follow a formula instead.
        let total: u32 = if p.subject.is_scaled_down() { 100_000 } else { 1_000_000 };
        p.ok(|t| t.touch(C, oid("big")));
        let value = |i: u32| i.to_le_bytes().to_vec();
        for start in (0..total).step_by(2000) {
            let mut t = lodestore::Transaction::new();
            t.omap_set(C, oid("big"), (start..start + 2000).map(|i| (key(i), value(i))).collect());
            p.subject.submit(t);
            if start % 40_000 == 0 {
                p.settle();
            }
        }
        p.settle();
        p.subject.remount();
        let mut next = 0;
        let mut lower = None;
        loop {
            let read = Read::Omap(C, oid("big"), OmapRange { after: lower.is_some(), lower: lower.clone(), upper: None, max: 7000 });
            let Ok(Answer::Entries(got, more)) = p.subject.query(read) else { panic!("no page") };
            for (k, v) in &got {
                assert_eq!((k, v), (&key(next), &value(next)));
                next += 1;
            }
            lower = got.last().map(|e| e.0.clone());
            if !more {
                break;
            }
            assert!(!got.is_empty());
        }
        assert_eq!(next, total);
        p.ok(|t| t.omap_clear(C, oid("big")));
        p.check();
    }
}
