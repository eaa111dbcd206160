//! Batches, lookups, iterators and markers.

use super::support::*;
use lodestore_kv::{CFS, Cached, Cf, KvOp, RANGE_DELETE_SINGLES_MAX, RANGE_DELETE_SKIPS_MAX};

#[test]
fn a_batch_sets_values_and_the_markers_of_the_families_it_touches() {
    on_both(|kv| {
        assert_eq!(markers(kv), [0; 5]);
        kv.write(&[put(Cf::Onode, "a", "1"), put(Cf::Omap, "b", "2"), delete(Cf::Shared, "x")], 7).unwrap();
        assert_eq!(markers(kv), [0, 7, 0, 7, 7]);
        assert_eq!(kv.get(Cf::Onode, b"a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(kv.get(Cf::Omap, b"a").unwrap(), None);
        kv.write(&[delete_range(Cf::Extent, "a", "b")], u64::MAX).unwrap();
        assert_eq!(markers(kv), [0, 7, u64::MAX, 7, 7]);
        kv.write(&[], 9).unwrap();
        assert_eq!(markers(kv), [0, 7, u64::MAX, 7, 7]);
    });
}

#[test]
fn operations_of_a_batch_apply_in_order() {
    on_both(|kv| {
        kv.write(&[put(Cf::Omap, "k1", "old"), put(Cf::Omap, "k9", "old")], 1).unwrap();
        kv.write(
            &[
                put(Cf::Omap, "k2", "gone"),
                put(Cf::Omap, "k3", "gone"),
                delete_range(Cf::Omap, "k1", "k4"),
                put(Cf::Omap, "k2", "kept"),
                put(Cf::Omap, "k4", "first"),
                put(Cf::Omap, "k4", "second"),
                put(Cf::Omap, "k5", "gone"),
                delete(Cf::Omap, "k5"),
                delete(Cf::Omap, "k6"),
                put(Cf::Omap, "k6", "kept"),
                put(Cf::Extent, "k2", "another family"),
            ],
            2,
        )
        .unwrap();
        assert_eq!(keys(kv, Cf::Omap), ["k2", "k4", "k6", "k9"]);
        assert_eq!(kv.get(Cf::Omap, b"k2").unwrap().as_deref(), Some(&b"kept"[..]));
        assert_eq!(kv.get(Cf::Omap, b"k4").unwrap().as_deref(), Some(&b"second"[..]));
        assert_eq!(keys(kv, Cf::Extent), ["k2"]);
    });
}

#[test]
fn range_deletes_of_every_size_remove_exactly_their_range() {
    let limit = RANGE_DELETE_SINGLES_MAX;
    for in_store in [0, 1, limit - 1, limit, limit + 1, 5 * limit] {
        for in_batch in [0, 1, limit, limit + 1] {
            on_both(|kv| {
                let key = |n: usize| format!("k{n:06}");
                let mut ops: Vec<KvOp> = (0..in_store).map(|n| put(Cf::Omap, key(2 * n), "s")).collect();
                ops.extend([put(Cf::Omap, "j", "before"), put(Cf::Omap, "l", "after")]);
                kv.write(&ops, 1).unwrap();
                if in_store % 2 == 1 {
                    kv.flush().unwrap();
                }
                let mut ops: Vec<KvOp> = (0..in_batch).map(|n| put(Cf::Omap, key(2 * n + 1), "b")).collect();
                ops.push(delete_range(Cf::Omap, "k", "l"));
                ops.push(put(Cf::Omap, key(3), "again"));
                kv.write(&ops, 2).unwrap();
                assert_eq!(keys(kv, Cf::Omap), ["j", "k000003", "l"], "{in_store} {in_batch}");
                assert_eq!(kv.get(Cf::Omap, b"k000001").unwrap(), None);
                kv.flush().unwrap();
                assert_eq!(keys(kv, Cf::Omap), ["j", "k000003", "l"]);
            });
        }
    }
}

#[test]
fn a_range_emptied_again_and_again_stays_empty() {
    on_both(|kv| {
        let rounds = 3 * RANGE_DELETE_SKIPS_MAX as usize / 100;
        for round in 0..rounds {
            let mut ops: Vec<KvOp> = (0..100).map(|n| put(Cf::Omap, format!("k{round:03}{n:03}"), "v")).collect();
            kv.write(&ops, 2 * round as u64 + 1).unwrap();
            ops = vec![delete_range(Cf::Omap, "k", "l")];
            kv.write(&ops, 2 * round as u64 + 2).unwrap();
            assert_eq!(keys(kv, Cf::Omap), [""; 0]);
        }
    });
}

#[test]
fn range_deletes_spare_the_marker_and_ignore_empty_ranges() {
    on_both(|kv| {
        kv.write(&[put(Cf::Meta, "a", "1"), put(Cf::Meta, "b", "1")], 1).unwrap();
        let nothing = [("b", "a"), ("a", "a"), ("", ""), ("a", "")];
        let ops: Vec<KvOp> = nothing.iter().map(|(f, t)| delete_range(Cf::Meta, *f, *t)).collect();
        kv.write(&ops, 2).unwrap();
        assert_eq!((keys(kv, Cf::Meta).len(), kv.marker(Cf::Meta).unwrap()), (2, 2));
        kv.write(&[delete_range(Cf::Meta, "", "b")], 3).unwrap();
        assert_eq!(keys(kv, Cf::Meta), ["b"]);
        assert_eq!(kv.marker(Cf::Meta).unwrap(), 3);
    });
}

#[test]
fn iterators_keep_within_their_bounds_and_show_no_marker() {
    on_both(|kv| {
        let ops: Vec<KvOp> = (0..100).map(|n| put(Cf::Extent, format!("{n:02}"), vec![n; n as usize])).collect();
        kv.write(&ops, 1).unwrap();
        for flushed in [false, true] {
            if flushed {
                kv.flush().unwrap();
            }
            assert_eq!(keys(kv, Cf::Extent).len(), 100);
            let got = range(kv, Cf::Extent, b"10", b"12");
            assert_eq!(got, [(b"10".to_vec(), vec![10; 10]), (b"11".to_vec(), vec![11; 11])]);
            for (lower, upper) in [("5", "5"), ("6", "5"), ("", ""), ("99a", "zz"), ("", "\0")] {
                assert_eq!(range(kv, Cf::Extent, lower.as_bytes(), upper.as_bytes()), [], "{lower}..{upper}");
            }
            let scanned: Entries = kv.scan(Cf::Extent, b"", END).collect::<Result<_, _>>().unwrap();
            assert_eq!(scanned, range(kv, Cf::Extent, b"", END));
            assert_eq!(range(kv, Cf::Omap, b"", END), []);
        }
    });
}

#[test]
fn an_iterator_shows_the_store_as_it_was_when_made() {
    on_both(|kv| {
        kv.write(&[put(Cf::Onode, "a", "1"), put(Cf::Onode, "b", "1")], 1).unwrap();
        let iter = kv.iter(Cf::Onode, b"", END);
        kv.write(&[put(Cf::Onode, "a", "2"), delete(Cf::Onode, "b"), put(Cf::Onode, "c", "2")], 2).unwrap();
        kv.flush().unwrap();
        let got: Entries = iter.collect::<Result<_, _>>().unwrap();
        assert_eq!(got, [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"1".to_vec())]);
    });
}

#[test]
fn empty_and_large_values_and_long_keys_come_back() {
    on_both(|kv| {
        let long = vec![b'k'; 8 << 10];
        let large: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
        for cf in CFS {
            kv.write(&[put(cf, "empty", ""), put(cf, long.clone(), "long"), put(cf, "large", large.clone())], 1)
                .unwrap();
        }
        for flushed in [false, true] {
            if flushed {
                kv.flush().unwrap();
            }
            for cf in CFS {
                assert_eq!(kv.get(cf, b"empty").unwrap().as_deref(), Some(&b""[..]));
                assert_eq!(kv.get(cf, &long).unwrap().as_deref(), Some(&b"long"[..]));
                assert_eq!(kv.get(cf, &long[1..]).unwrap(), None);
                assert!(kv.get(cf, b"large").unwrap().as_ref() == Some(&large));
                let sizes: Vec<usize> = range(kv, cf, b"", END).iter().map(|(_, v)| v.len()).collect();
                assert_eq!(sizes, [0, 4, 1 << 20]);
            }
        }
    });
}

#[test]
fn a_lookup_in_memory_knows_what_was_just_written_or_deleted() {
    on_both(|kv| {
        kv.write(&[put(Cf::Onode, "a", "1"), put(Cf::Onode, "b", "1")], 1).unwrap();
        kv.flush().unwrap();
        kv.write(&[put(Cf::Onode, "a", "2"), delete(Cf::Onode, "b")], 2).unwrap();
        assert_eq!(kv.get_cached(Cf::Onode, b"a").unwrap(), Cached::Known(Some(b"2".to_vec())));
        assert_eq!(kv.get_cached(Cf::Onode, b"b").unwrap(), Cached::Known(None));
        assert_eq!(kv.get_cached(Cf::Extent, b"never written").unwrap(), Cached::Known(None));
    });
}

#[test]
#[should_panic(expected = "the empty key is the marker's")]
fn an_empty_key_is_refused_by_the_memory_store() {
    let _panics = lodestore_kv::Kv::write(&lodestore_kv::MemKv::new(), &[put(Cf::Meta, "", "v")], 1);
}

#[test]
fn threads_may_read_and_flush_while_one_writes() {
    on_both(|kv| {
        std::thread::scope(|s| {
            s.spawn(|| {
                for lsn in 1..=500u64 {
                    let v = lsn.to_le_bytes();
                    kv.write(&[put(Cf::Meta, "k", v), put(Cf::Extent, "k", v)], lsn).unwrap();
                }
            });
            s.spawn(|| (0..5).for_each(|_| kv.flush().unwrap()));
            s.spawn(|| {
                let mut before = 0;
                while before < 500 {
                    let now = kv.marker(Cf::Extent).unwrap();
                    assert!(now >= before);
                    before = now;
                    assert_eq!(kv.get(Cf::Meta, b"k").unwrap().map(|v| v.len()).unwrap_or(8), 8);
                }
            });
        });
    });
}
