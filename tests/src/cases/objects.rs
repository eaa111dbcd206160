//! Objects as such: making, removing, naming, and what a transaction is.

use lodestore::{AllocHint, Answer, ObjectId, Read, SNAP_HEAD};

use super::cases;
use crate::model::ErrKind;
use crate::subject::{C, oid, pattern};

cases! {
    fn touch_makes_an_empty_object(p) {
        p.ok(|t| t.touch(C, oid("a")));
        assert_eq!(p.size(&oid("a")), 0);
        assert!(p.read(&oid("a"), 0, 100).is_empty());
        p.check();
    }

    fn touch_of_an_existing_object_changes_nothing(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 5000)));
        p.ok(|t| t.touch(C, oid("a")));
        assert_eq!(p.read(&oid("a"), 0, 9000), pattern(1, 5000));
        p.check();
    }

    fn create_refuses_an_object_that_is_there(p) {
        p.ok(|t| t.create(C, oid("a")));
        p.refused(ErrKind::ObjectExists, |t| t.create(C, oid("a")));
        p.ok(|t| t.remove(C, oid("a")).create(C, oid("a")));
        p.check();
    }

    fn remove_takes_data_attributes_and_omap(p) {
        p.ok(|t| {
            t.write(C, oid("a"), 0, pattern(1, 70_000)).set_attr(C, oid("a"), "k", "v");
            t.omap_set(C, oid("a"), vec![(b"k".to_vec(), b"v".to_vec())]).omap_set_header(C, oid("a"), "h");
            t
        });
        p.ok(|t| t.remove(C, oid("a")));
        assert!(!p.exists(&oid("a")));
        assert_eq!(p.statfs().allocated, 0);
        p.ok(|t| t.touch(C, oid("a")));
        assert_eq!(p.ask(Read::OmapHeader(C, oid("a"))), Ok(Answer::Attr(Vec::new())));
        assert_eq!(p.ask(Read::Attrs(C, oid("a"))), Ok(Answer::Entries(Vec::new(), false)));
        p.check();
    }

    fn remove_and_write_in_one_transaction_leaves_only_the_new_bytes(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 20_000)).set_attr(C, oid("a"), "k", "v"));
        p.ok(|t| t.remove(C, oid("a")).write(C, oid("a"), 6000, pattern(2, 10)));
        let bytes = p.read(&oid("a"), 0, 20_000);
        assert_eq!(bytes.len(), 6010);
        assert!(bytes[..6000].iter().all(|b| *b == 0));
        p.check();
    }

    fn operations_on_an_absent_object_say_so(p) {
        let a = || oid("absent");
        p.ok(|t| t.touch(C, oid("b")));
        p.refused(ErrKind::NoObject, |t| t.remove(C, a()));
        p.refused(ErrKind::NoObject, |t| t.truncate(C, a(), 10));
        p.refused(ErrKind::NoObject, |t| t.set_attr(C, a(), "k", "v"));
        p.refused(ErrKind::NoObject, |t| t.rm_attr(C, a(), "k"));
        p.refused(ErrKind::NoObject, |t| t.rm_attrs(C, a()));
        p.refused(ErrKind::NoObject, |t| t.omap_set(C, a(), vec![(b"k".to_vec(), b"v".to_vec())]));
        p.refused(ErrKind::NoObject, |t| t.omap_rm_keys(C, a(), vec![b"k".to_vec()]));
        p.refused(ErrKind::NoObject, |t| t.omap_rm_range(C, a(), "a", "z"));
        p.refused(ErrKind::NoObject, |t| t.omap_clear(C, a()));
        p.refused(ErrKind::NoObject, |t| t.omap_set_header(C, a(), "h"));
        p.refused(ErrKind::NoObject, |t| t.clone_object(C, a(), oid("b")));
        p.refused(ErrKind::NoObject, |t| t.clone_range(C, a(), oid("b"), 0, 10, 0));
        p.refused(ErrKind::NoObject, |t| t.rename(C, a(), C, oid("c")));
        for read in [
            Read::Stat(C, a()),
            Read::Data(C, a(), vec![(0, 1)]),
            Read::Extents(C, a(), 0, 1),
            Read::Attr(C, a(), b"k".to_vec()),
            Read::Attrs(C, a()),
            Read::OmapHeader(C, a()),
            Read::OmapValues(C, a(), vec![b"k".to_vec()]),
            Read::Omap(C, a(), lodestore::OmapRange { max: 1, ..Default::default() }),
        ] {
            assert_eq!(p.ask(read), Err(ErrKind::NoObject));
        }
        p.check();
    }

    fn operations_that_make_an_absent_object_make_it(p) {
        p.ok(|t| t.touch(C, oid("touch")));
        p.ok(|t| t.create(C, oid("create")));
        p.ok(|t| t.write(C, oid("write"), 3, "x"));
        p.ok(|t| t.zero(C, oid("zero"), 3, 4));
        p.ok(|t| t.hint(C, oid("hint"), AllocHint::default()));
        p.ok(|t| t.clone_object(C, oid("write"), oid("clone")));
        p.ok(|t| t.clone_range(C, oid("write"), oid("clone range"), 0, 4, 0));
        assert_eq!(p.list(C, None, None, 100).0.len(), 7);
        p.check();
    }

    fn two_hundred_fifty_six_one_byte_names(p) {
        for b in 0..=255u8 {
            p.later(|t| t.write(C, oid([b]), 0, vec![b; 10]));
        }
        p.settle();
        for b in 0..=255u8 {
            assert_eq!(p.read(&oid([b]), 0, 100), vec![b; 10]);
        }
        assert_eq!(p.list(C, None, None, 1000).0.len(), 256);
        p.check();
    }

    fn names_of_four_kibibytes_may_differ_in_their_last_byte_only(p) {
        for b in 0..4u8 {
            let mut name = vec![b'n'; 4095];
            name.push(b);
            p.ok(|t| t.write(C, ObjectId::new(name.clone()).with_hash(7), 0, vec![b + 1; 100]).set_attr(C, ObjectId::new(name).with_hash(7), "b", [b]));
        }
        assert_eq!(p.list(C, None, None, 10).0.len(), 4);
        p.check();
    }

    fn namespace_locator_key_and_snapshot_tell_objects_apart(p) {
        let base = oid("same");
        let all = [
            base.clone(),
            ObjectId { nspace: b"n".to_vec(), ..base.clone() },
            ObjectId { key: b"n".to_vec(), ..base.clone() },
            ObjectId { nspace: b"n".to_vec(), key: b"k".to_vec(), ..base.clone() },
            ObjectId { snap: 0, ..base.clone() },
            ObjectId { snap: 1, ..base.clone() },
            ObjectId { snap: SNAP_HEAD - 1, ..base.clone() },
            ObjectId { snap: u64::MAX, ..base },
        ];
        for (i, o) in all.iter().enumerate() {
            p.ok(|t| t.write(C, o.clone(), 0, vec![i as u8 + 1; 50]));
        }
        let mut sorted = all.to_vec();
        sorted.sort();
        assert_eq!(p.list(C, None, None, 100).0, sorted);
        p.check();
    }

    fn names_are_bytes_and_never_paths(p) {
        let names: [&[u8]; 10] = [b"", b"/", b"../../etc/passwd", b"a\0b", b"a\0", b"a", b"\xff\xfe", b"a\xff", b"%2f", b"\0\0\0\0"];
        for (i, name) in names.iter().enumerate() {
            p.ok(|t| t.write(C, oid(*name).with_hash(5), 0, vec![i as u8 + 1; 30]));
        }
        assert_eq!(p.list(C, None, None, 100).0.len(), 10);
        p.check();
    }

    fn objects_of_equal_hash_are_listed_by_name(p) {
        for i in (0..40u32).rev() {
            p.later(|t| t.touch(C, oid(format!("{i:02}")).with_hash(0xdead_beef)));
        }
        p.settle();
        let (names, _) = p.list(C, None, None, 100);
        assert!(names.iter().map(|o| o.name.clone()).is_sorted());
        assert_eq!(names.len(), 40);
        p.check();
    }

    fn a_hash_of_all_ones_is_listed_last(p) {
        for hash in [u32::MAX, 0, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1] {
            p.ok(|t| t.write(C, oid("x").with_hash(hash), 0, "data").write(C, oid("y").with_hash(hash), 0, "more"));
        }
        let (all, _) = p.list(C, None, None, 100);
        assert_eq!(all.len(), 10);
        assert_eq!(all[9], oid("y").with_hash(u32::MAX));
        let (last, next) = p.list(C, Some(oid("x").with_hash(u32::MAX)), None, 100);
        assert_eq!((last.len(), next), (2, None));
        p.ok(|t| t.remove(C, oid("y").with_hash(u32::MAX)));
        p.check();
    }

    fn a_later_operation_sees_the_earlier_ones_of_its_transaction(p) {
        p.ok(|t| {
            t.write(C, oid("a"), 0, pattern(1, 10_000)).truncate(C, oid("a"), 5000).write(C, oid("a"), 4000, pattern(2, 500));
            t.zero(C, oid("a"), 100, 200).clone_object(C, oid("a"), oid("b")).write(C, oid("a"), 0, pattern(3, 8192));
            t.set_attr(C, oid("b"), "k", "1").set_attr(C, oid("b"), "k", "2").rm_attr(C, oid("b"), "none");
            t.omap_set(C, oid("b"), vec![(b"x".to_vec(), b"1".to_vec()), (b"y".to_vec(), b"1".to_vec())]);
            t.omap_rm_keys(C, oid("b"), vec![b"x".to_vec()]).omap_set(C, oid("b"), vec![(b"x".to_vec(), b"2".to_vec())]);
            t.rename(C, oid("b"), C, oid("c")).touch(C, oid("b"));
            t
        });
        assert_eq!(p.ask(Read::Attr(C, oid("c"), b"k".to_vec())), Ok(Answer::Attr(b"2".to_vec())));
        assert_eq!(p.size(&oid("c")), 5000);
        p.check();
    }

    fn a_refused_transaction_changes_nothing(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 9000)).set_attr(C, oid("a"), "k", "v"));
        p.refused(ErrKind::NoObject, |t| {
            t.write(C, oid("a"), 0, pattern(2, 9000)).set_attr(C, oid("a"), "k", "w").touch(C, oid("b"));
            t.omap_set(C, oid("a"), vec![(b"k".to_vec(), b"v".to_vec())]).clone_object(C, oid("a"), oid("c")).remove(C, oid("none"));
            t
        });
        assert_eq!(p.read(&oid("a"), 0, 10_000), pattern(1, 9000));
        p.check();
    }

    fn an_empty_transaction_is_acknowledged_after_those_before_it(p) {
        p.later(|t| t.write(C, oid("a"), 0, pattern(1, 9000)));
        p.later(|t| t);
        p.settle();
        p.check();
    }

    fn transactions_in_flight_on_one_object_apply_in_order(p) {
        for i in 0..200u64 {
            p.later(|t| t.write(C, oid("a"), i * 777 % 20_000, pattern(i, 1 + (i as usize * 311) % 5000)));
        }
        p.settle();
        p.check();
    }

    fn a_read_reflects_what_was_submitted_before_it(p) {
        for i in 0..20u64 {
            p.later(|t| t.write(C, oid("a"), 0, pattern(i, 4096 + i as usize)).set_attr(C, oid("a"), "i", i.to_le_bytes()));
            assert_eq!(p.read(&oid("a"), 0, 10), pattern(i, 10));
            p.ask(Read::Attr(C, oid("a"), b"i".to_vec())).expect("the attribute was set");
        }
        p.settle();
        p.check();
    }

    fn a_hint_is_remembered(p) {
        let hint = AllocHint { object_size: 4 << 20, write_size: 128 << 10, flags: 5 };
        p.ok(|t| t.hint(C, oid("a"), hint));
        p.ok(|t| t.write(C, oid("a"), 0, "x"));
        let Ok(Answer::Stat(stat)) = p.ask(Read::Stat(C, oid("a"))) else { panic!("no stat") };
        assert_eq!(stat.hint, hint);
        p.check();
    }

    fn every_kind_of_change_survives_a_remount(p) {
        let (a, b, d) = (oid("a"), oid("b"), oid("d"));
        let c2 = lodestore::CollectionId::new(2, 0);
        let kv = |k: &str, v: &str| (k.as_bytes().to_vec(), v.as_bytes().to_vec());
        type Step<'s> = Box<dyn Fn(&mut lodestore::Transaction) -> &mut lodestore::Transaction + 's>;
        let steps: Vec<Step<'_>> = vec![
            Box::new(|t| t.touch(C, a.clone())),
            Box::new(|t| t.write(C, a.clone(), 100, pattern(1, 30_000))),
            Box::new(|t| t.write(C, a.clone(), 5000, pattern(2, 3))),
            Box::new(|t| t.zero(C, a.clone(), 4000, 9000)),
            Box::new(|t| t.truncate(C, a.clone(), 20_001)),
            Box::new(|t| t.truncate(C, a.clone(), 40_000)),
            Box::new(|t| t.set_attr(C, a.clone(), "k", "v").set_attr(C, a.clone(), "l", "w")),
            Box::new(|t| t.rm_attr(C, a.clone(), "k")),
            Box::new(|t| t.omap_set(C, a.clone(), vec![kv("1", "one"), kv("2", "two"), kv("3", "three"), kv("4", "four")])),
            Box::new(|t| t.omap_set_header(C, a.clone(), "header")),
            Box::new(|t| t.omap_rm_keys(C, a.clone(), vec![b"1".to_vec()])),
            Box::new(|t| t.omap_rm_range(C, a.clone(), "2", "4")),
            Box::new(|t| t.clone_object(C, a.clone(), b.clone())),
            Box::new(|t| t.clone_range(C, a.clone(), d.clone(), 4096, 8192, 8192)),
            Box::new(|t| t.write(C, a.clone(), 0, pattern(3, 4096))),
            Box::new(|t| t.omap_clear(C, b.clone())),
            Box::new(|t| t.rm_attrs(C, b.clone())),
            Box::new(|t| t.rename(C, b.clone(), C, oid("e"))),
            Box::new(|t| t.hint(C, d.clone(), AllocHint { object_size: 1, write_size: 2, flags: 3 })),
            Box::new(|t| t.make_collection(c2, 1)),
            Box::new(|t| t.rename(C, d.clone(), c2, oid("d").with_hash(2))),
            Box::new(|t| t.split(c2, 2, lodestore::CollectionId::new(2, 2))),
            Box::new(|t| t.merge(lodestore::CollectionId::new(2, 2), 1, c2)),
            Box::new(|t| t.remove(c2, oid("d").with_hash(2))),
            Box::new(|t| t.remove_collection(c2)),
            Box::new(|t| t.remove(C, a.clone())),
        ];
        for step in &steps {
            p.ok(|t| step(t));
            p.subject.remount();
            p.compare();
        }
        p.check();
    }
}
