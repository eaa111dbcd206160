//! Bytes: writes, zeros, truncation, holes, block edges, reads.

use lodestore::{Answer, OBJECT_LEN_MAX, Read};

use super::cases;
use crate::model::ErrKind;
use crate::subject::{C, oid, pattern};

const B: usize = 4096;

cases! {
    fn what_is_written_is_read(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 100_000)));
        assert_eq!(p.read(&oid("a"), 0, 100_000), pattern(1, 100_000));
        assert_eq!(p.read(&oid("a"), 4095, 3), pattern(1, 100_000)[4095..4098]);
        p.check();
    }

    fn a_zero_length_write_makes_but_does_not_extend(p) {
        p.ok(|t| t.write(C, oid("a"), 5000, Vec::new()));
        assert_eq!(p.size(&oid("a")), 0);
        p.ok(|t| t.write(C, oid("b"), 0, "abc").write(C, oid("b"), 5000, Vec::new()));
        assert_eq!(p.size(&oid("b")), 3);
        p.check();
    }

    fn a_zero_length_zero_makes_but_does_not_extend(p) {
        p.ok(|t| t.zero(C, oid("a"), 5000, 0));
        assert_eq!(p.size(&oid("a")), 0);
        p.check();
    }

    fn a_zero_past_the_end_extends(p) {
        p.ok(|t| t.write(C, oid("a"), 0, "abc").zero(C, oid("a"), 10_000, 1));
        assert_eq!(p.size(&oid("a")), 10_001);
        p.ok(|t| t.zero(C, oid("b"), 0, 1 << 30));
        assert_eq!(p.size(&oid("b")), 1 << 30);
        p.ok(|t| t.truncate(C, oid("b"), 100));
        p.check();
    }

    fn a_zero_inside_reads_as_zeros_and_frees_whole_blocks(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 10 * B)));
        p.ok(|t| t.zero(C, oid("a"), 100, 3 * B as u64));
        let bytes = p.read(&oid("a"), 0, 10 * B as u64);
        assert!(bytes[100..100 + 3 * B].iter().all(|b| *b == 0));
        assert_eq!(bytes[..100], pattern(1, 100));
        assert_eq!(p.statfs().allocated, 8 * B as u64);
        p.check();
        p.ok(|t| t.zero(C, oid("a"), 0, 20 * B as u64));
        assert_eq!(p.statfs().allocated, 0);
        p.check();
    }

    fn truncating_up_adds_a_hole(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 100)).truncate(C, oid("a"), 50_000));
        assert!(p.read(&oid("a"), 100, 60_000).iter().all(|b| *b == 0));
        assert_eq!(p.statfs().allocated, B as u64);
        p.check();
    }

    fn truncating_down_and_up_inside_a_block_reads_zeros_behind_the_cut(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 2 * B)));
        p.ok(|t| t.truncate(C, oid("a"), 5000));
        p.ok(|t| t.truncate(C, oid("a"), 6000));
        assert!(p.read(&oid("a"), 5000, 1000).iter().all(|b| *b == 0));
        p.check();
        p.ok(|t| t.truncate(C, oid("a"), 10).truncate(C, oid("a"), 20));
        p.ok(|t| t.write(C, oid("a"), 30, "x"));
        assert_eq!(p.read(&oid("a"), 10, 20), vec![0; 20]);
        p.check();
    }

    fn truncating_at_every_edge_of_a_block(p) {
        for size in [0, 1, B - 1, B, B + 1, 2 * B - 1, 2 * B, 2 * B + 1, 3 * B] {
            p.ok(|t| t.write(C, oid("a"), 0, pattern(size as u64, 3 * B)));
            p.ok(|t| t.truncate(C, oid("a"), size as u64));
            assert_eq!(p.read(&oid("a"), 0, 4 * B as u64), pattern(size as u64, 3 * B)[..size]);
            p.ok(|t| t.truncate(C, oid("a"), 3 * B as u64));
            assert!(p.read(&oid("a"), size as u64, 3 * B as u64).iter().all(|b| *b == 0));
        }
        p.check();
    }

    fn truncating_to_the_present_size_changes_nothing(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 5000)).truncate(C, oid("a"), 5000));
        p.ok(|t| t.truncate(C, oid("a"), 5000));
        p.check();
    }

    fn four_thousand_writes_of_three_bytes_leave_holes(p) {
        for i in 0..4000u64 {
            p.later(|t| t.write(C, oid("a"), i << 16, pattern(i, 3)));
            if i % 200 == 0 {
                p.settle();
            }
        }
        p.settle();
        assert_eq!(p.size(&oid("a")), (3999 << 16) + 3);
        assert_eq!(p.statfs().allocated, 4000 * B as u64);
        assert_eq!(p.read(&oid("a"), (1234 << 16) - 5, 10), [vec![0; 5], pattern(1234, 3), vec![0; 2]].concat());
        p.check();
    }

    fn unaligned_four_mebibyte_writes(p) {
        for (i, offset) in [1u64, 4095, 2_000_001, 511].into_iter().enumerate() {
            p.ok(|t| t.write(C, oid("a"), offset, pattern(i as u64, 4 << 20)));
            assert_eq!(p.read(&oid("a"), offset, 4 << 20), pattern(i as u64, 4 << 20));
        }
        p.check();
    }

    fn writes_of_a_block_and_one_byte_more_or_less(p) {
        for offset in [0, 1, B - 1, B, B + 1, 3 * B - 1, 3 * B] {
            for len in [1, B - 1, B, B + 1, 2 * B - 1, 2 * B, 2 * B + 1] {
                p.ok(|t| t.write(C, oid("a"), offset as u64, pattern((offset * 7 + len) as u64, len)));
            }
            p.compare();
        }
        p.check();
    }

    fn an_append_fills_the_block_of_a_deferred_write(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 1000)));
        p.ok(|t| t.write(C, oid("a"), 500, pattern(2, 400)));
        p.ok(|t| t.write(C, oid("a"), 1000, pattern(3, B - 1000)));
        p.ok(|t| t.write(C, oid("a"), B as u64, pattern(4, 10)));
        p.check();
    }

    fn appends_of_every_size_make_one_whole(p) {
        let all = pattern(9, 60_000);
        let mut at = 0;
        for step in 0.. {
            let n = (1 + step * 37 % 1500).min(all.len() - at);
            if n == 0 {
                break;
            }
            p.later(|t| t.write(C, oid("a"), at as u64, all[at..at + n].to_vec()));
            at += n;
        }
        p.settle();
        assert_eq!(p.read(&oid("a"), 0, 100_000), all);
        p.check();
    }

    fn a_big_overwrite_goes_over_pending_deferred_writes(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 64 * B)));
        for i in 0..60u64 {
            p.later(|t| t.write(C, oid("a"), i * 4000 + 17, pattern(100 + i, 50)));
        }
        p.later(|t| t.write(C, oid("a"), 0, pattern(2, 64 * B)));
        p.later(|t| t.write(C, oid("a"), 10_000, pattern(3, 7)));
        p.settle();
        p.compare();
        p.check();
    }

    fn a_deferred_write_over_another_one_wins(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 4 * B)));
        for i in 0..50u64 {
            p.later(|t| t.write(C, oid("a"), 4000 + i, pattern(i, 200)));
        }
        p.settle();
        p.check();
    }

    fn a_zero_and_a_truncate_go_over_pending_deferred_writes(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 8 * B)));
        p.later(|t| t.write(C, oid("a"), 100, pattern(2, 100)));
        p.later(|t| t.write(C, oid("a"), 5 * B as u64 + 100, pattern(2, 100)));
        p.later(|t| t.zero(C, oid("a"), 0, B as u64));
        p.later(|t| t.truncate(C, oid("a"), 5 * B as u64 + 150));
        p.later(|t| t.truncate(C, oid("a"), 8 * B as u64));
        p.later(|t| t.write(C, oid("a"), 50, pattern(3, 10)));
        p.settle();
        p.check();
    }

    fn a_removed_object_leaves_its_pending_deferred_writes_nowhere(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 8 * B)));
        p.later(|t| t.write(C, oid("a"), 100, pattern(2, 3000)));
        p.later(|t| t.remove(C, oid("a")));
        for i in 0..10u64 {
            p.later(|t| t.write(C, oid(format!("n{i}")), 0, pattern(3 + i, 8 * B)));
        }
        p.settle();
        p.check();
    }

    fn space_used_again_never_shows_its_old_bytes(p) {
        let marker = vec![0x5a; 1 << 20];
        for round in 0..20u64 {
            p.ok(|t| t.write(C, oid("secret"), 0, marker.clone()));
            p.ok(|t| t.remove(C, oid("secret")));
            p.ok(|t| {
                for i in 0..64u64 {
                    t.write(C, oid(format!("o{i}")), round * 8192 + i, vec![1; 1 + i as usize]);
                }
                t
            });
        }
        for i in 0..64u64 {
            let bytes = p.read(&oid(format!("o{i}")), 0, 1 << 20);
            assert!(!bytes.contains(&0x5a), "bytes of another object");
        }
        p.check();
    }

    fn reads_past_the_end_are_short(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 5000)));
        assert_eq!(p.read(&oid("a"), 4990, 100).len(), 10);
        assert_eq!(p.read(&oid("a"), 5000, 100).len(), 0);
        assert_eq!(p.read(&oid("a"), 1 << 30, 100).len(), 0);
        assert_eq!(p.read(&oid("a"), 0, 0).len(), 0);
        assert_eq!(p.read(&oid("a"), 0, 1 << 39).len(), 5000);
        p.check();
    }

    fn many_ranges_are_read_at_once(p) {
        p.ok(|t| t.write(C, oid("a"), 0, pattern(1, 50_000)).zero(C, oid("a"), 10_000, 20_000));
        let ranges = vec![(49_000, 5000), (0, 1), (9_999, 10_002), (4096, 4096), (4096, 4096), (60_000, 1), (0, 0)];
        let Ok(Answer::Data(parts)) = p.ask(Read::Data(C, oid("a"), ranges.clone())) else { panic!("no data") };
        assert_eq!(parts.len(), ranges.len());
        let Ok(Answer::Data(none)) = p.ask(Read::Data(C, oid("a"), Vec::new())) else { panic!("no data") };
        assert!(none.is_empty());
        p.check();
    }

    fn extents_are_whole_blocks_merged_and_cut_at_the_end(p) {
        p.ok(|t| t.write(C, oid("a"), 3 * B as u64 + 5, pattern(1, 10)).write(C, oid("a"), 8 * B as u64, pattern(2, 2 * B + 100)));
        let (b, end) = (B as u64, 10 * B as u64 + 100);
        assert_eq!(p.ask(Read::Extents(C, oid("a"), 0, 1 << 20)), Ok(Answer::Extents(vec![(3 * b, b), (8 * b, end - 8 * b)])));
        p.ok(|t| t.truncate(C, oid("a"), 9 * b).truncate(C, oid("a"), 1 << 20));
        assert_eq!(p.ask(Read::Extents(C, oid("a"), 0, 1 << 20)), Ok(Answer::Extents(vec![(3 * b, b), (8 * b, b)])));
        p.check();
    }

    fn offsets_that_overflow_are_refused(p) {
        p.ok(|t| t.write(C, oid("a"), 0, "abc"));
        p.refused(ErrKind::Invalid, |t| t.write(C, oid("a"), u64::MAX, "abc"));
        p.refused(ErrKind::Invalid, |t| t.zero(C, oid("a"), u64::MAX, u64::MAX));
        p.refused(ErrKind::Invalid, |t| t.zero(C, oid("a"), 1, u64::MAX));
        p.refused(ErrKind::TooLarge, |t| t.truncate(C, oid("a"), u64::MAX));
        p.refused(ErrKind::Invalid, |t| t.clone_range(C, oid("a"), oid("b"), 0, 3, u64::MAX));
        p.check();
    }

    fn an_object_has_a_largest_size(p) {
        p.ok(|t| t.touch(C, oid("a")));
        p.refused(ErrKind::TooLarge, |t| t.truncate(C, oid("a"), OBJECT_LEN_MAX + 1));
        p.refused(ErrKind::TooLarge, |t| t.write(C, oid("a"), OBJECT_LEN_MAX - 2, "abc"));
        p.ok(|t| t.write(C, oid("a"), OBJECT_LEN_MAX - 3, "abc"));
        assert_eq!(p.read(&oid("a"), OBJECT_LEN_MAX - 5, 10), b"\0\0abc");
        assert_eq!(p.statfs().allocated, B as u64);
        p.ok(|t| t.remove(C, oid("a")));
        p.check();
    }

    fn sixty_six_thousand_extents_in_one_object(p) {
        for i in 0..132u64 {
            p.later(|t| {
                for j in 0..500 {
                    let n = i * 500 + j;
                    t.write(C, oid("a"), n * 2 * B as u64, pattern(n, B));
                }
                t
            });
            p.settle();
        }
        let Ok(Answer::Extents(extents)) = p.ask(Read::Extents(C, oid("a"), 0, 1 << 30)) else { panic!("no extents") };
        assert_eq!(extents.len(), 66_000);
        p.ok(|t| t.clone_object(C, oid("a"), oid("b")).write(C, oid("a"), 1000, pattern(7, 10_000)));
        p.check();
        p.ok(|t| t.remove(C, oid("a")));
        p.check();
    }
}
