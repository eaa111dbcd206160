//! Attributes.

use lodestore::{ATTR_LEN_MAX, ATTR_NAME_LEN_MAX, ATTRS_LEN_MAX, Answer, Read};

use super::cases;
use crate::model::ErrKind;
use crate::subject::{C, oid, pattern};

cases! {
    fn an_attribute_is_set_replaced_and_removed(p) {
        p.ok(|t| t.touch(C, oid("a")).set_attr(C, oid("a"), "k", "1"));
        p.ok(|t| t.set_attr(C, oid("a"), "k", "22").set_attr(C, oid("a"), "", "empty name").set_attr(C, oid("a"), "e", ""));
        assert_eq!(p.ask(Read::Attr(C, oid("a"), b"k".to_vec())), Ok(Answer::Attr(b"22".to_vec())));
        assert_eq!(p.ask(Read::Attr(C, oid("a"), b"e".to_vec())), Ok(Answer::Attr(Vec::new())));
        p.check();
        p.ok(|t| t.rm_attr(C, oid("a"), "k"));
        assert_eq!(p.ask(Read::Attr(C, oid("a"), b"k".to_vec())), Err(ErrKind::NoAttr));
        p.check();
    }

    fn no_object_and_no_attribute_are_different_errors(p) {
        p.ok(|t| t.touch(C, oid("a")));
        assert_eq!(p.ask(Read::Attr(C, oid("a"), b"k".to_vec())), Err(ErrKind::NoAttr));
        assert_eq!(p.ask(Read::Attr(C, oid("b"), b"k".to_vec())), Err(ErrKind::NoObject));
        p.check();
    }

    fn removing_an_absent_attribute_is_fine(p) {
        p.ok(|t| t.touch(C, oid("a")).rm_attr(C, oid("a"), "k").rm_attrs(C, oid("a")));
        p.check();
    }

    fn all_attributes_come_in_order_and_go_at_once(p) {
        p.ok(|t| {
            t.touch(C, oid("a"));
            for i in (0..100u32).rev() {
                t.set_attr(C, oid("a"), format!("{i:03}"), pattern(u64::from(i), i as usize));
            }
            t
        });
        let Ok(Answer::Entries(all, false)) = p.ask(Read::Attrs(C, oid("a"))) else { panic!("no attributes") };
        assert!(all.len() == 100 && all.is_sorted());
        p.check();
        p.ok(|t| t.rm_attrs(C, oid("a")));
        p.check();
    }

    fn attribute_limits_hold_at_the_byte(p) {
        let small = |n: usize| vec![b'n'; n];
        p.ok(|t| t.touch(C, oid("a")).set_attr(C, oid("a"), small(ATTR_NAME_LEN_MAX), "v"));
        p.refused(ErrKind::TooLarge, |t| t.set_attr(C, oid("a"), small(ATTR_NAME_LEN_MAX + 1), "v"));
        p.ok(|t| t.set_attr(C, oid("a"), "big", vec![1; ATTR_LEN_MAX]));
        p.refused(ErrKind::TooLarge, |t| t.set_attr(C, oid("a"), "big", vec![1; ATTR_LEN_MAX + 1]));
        p.check();
    }

    fn all_attributes_together_have_a_limit(p) {
        p.ok(|t| t.touch(C, oid("a")));
        let chunk = ATTR_LEN_MAX - 1;
        for name in ["1", "2", "3"] {
            p.ok(|t| t.set_attr(C, oid("a"), name, vec![1; chunk]));
        }
        assert_eq!(ATTRS_LEN_MAX, 4 * ATTR_LEN_MAX);
        p.refused(ErrKind::TooLarge, |t| t.set_attr(C, oid("a"), "44", vec![1; chunk]));
        p.ok(|t| t.set_attr(C, oid("a"), "4", vec![1; chunk]));
        p.ok(|t| t.rm_attr(C, oid("a"), "1").set_attr(C, oid("a"), "5", "small"));
        p.check();
    }
}
