//! Limits: what is at the edge is taken, one more is refused whole.

use lodestore::{LOCATOR_LEN_MAX, NAME_LEN_MAX, OMAP_KEY_LEN_MAX, OMAP_VALUE_LEN_MAX, OPS_MAX, ObjectId};

use super::cases;
use crate::model::ErrKind;
use crate::subject::{C, oid};

cases! {
    fn the_longest_name_is_taken_and_one_byte_more_refused(p) {
        p.ok(|t| t.write(C, oid(vec![b'n'; NAME_LEN_MAX]), 0, "x"));
        p.refused(ErrKind::TooLarge, |t| t.write(C, oid(vec![b'n'; NAME_LEN_MAX + 1]), 0, "x"));
        p.check();
    }

    fn the_longest_namespace_and_locator_key_are_taken(p) {
        let long = |n: usize, k: usize| ObjectId { nspace: vec![0; n], key: vec![0xff; k], ..oid("a") };
        p.ok(|t| t.write(C, long(LOCATOR_LEN_MAX, LOCATOR_LEN_MAX), 0, "x"));
        p.refused(ErrKind::TooLarge, |t| t.touch(C, long(LOCATOR_LEN_MAX + 1, 0)));
        p.refused(ErrKind::TooLarge, |t| t.touch(C, long(0, LOCATOR_LEN_MAX + 1)));
        p.check();
    }

    fn the_longest_omap_key_and_value_are_taken(p) {
        p.ok(|t| t.touch(C, oid("a")));
        p.ok(|t| t.omap_set(C, oid("a"), vec![(vec![b'k'; OMAP_KEY_LEN_MAX], b"v".to_vec())]));
        p.refused(ErrKind::TooLarge, |t| t.omap_set(C, oid("a"), vec![(vec![b'k'; OMAP_KEY_LEN_MAX + 1], b"v".to_vec())]));
        p.refused(ErrKind::TooLarge, |t| t.omap_set(C, oid("a"), vec![(b"k".to_vec(), vec![1; OMAP_VALUE_LEN_MAX + 1])]));
        p.refused(ErrKind::TooLarge, |t| t.omap_set_header(C, oid("a"), vec![1; OMAP_VALUE_LEN_MAX + 1]));
        p.ok(|t| t.omap_set(C, oid("a"), vec![(b"k".to_vec(), vec![1; OMAP_VALUE_LEN_MAX])]));
        p.ok(|t| t.omap_set_header(C, oid("a"), vec![2; OMAP_VALUE_LEN_MAX]));
        p.check();
    }

    fn a_transaction_has_a_largest_number_of_operations(p) {
        p.ok(|t| {
            for i in 0..OPS_MAX {
                t.touch(C, oid(vec![b'o', (i % 10) as u8]));
            }
            t
        });
        p.refused(ErrKind::TooLarge, |t| {
            for _ in 0..=OPS_MAX {
                t.touch(C, oid("p"));
            }
            t
        });
        p.check();
    }

    fn a_transaction_too_large_for_the_log_is_refused_whole(p) {
        p.ok(|t| t.touch(C, oid("a")));
        // 64 values of 1 MiB are more than half of any segment that a test makes.
        p.subject_refuses(ErrKind::TooLarge, |t| {
            t.touch(C, oid("b"));
            for i in 0..64u8 {
                t.omap_set(C, oid("a"), vec![(vec![i], vec![1; OMAP_VALUE_LEN_MAX])]);
            }
            t
        });
        p.check();
    }
}
