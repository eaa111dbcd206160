//! Requests that fail, and those that must not be made.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lodestore_aio::{AlignedBuf, BLOCK, FileId, Io, IoOp, run};

use super::subject::{B, finish, frozen, on_every_ring, pattern, push, read_op, write_op};

#[test]
fn a_read_past_the_end_of_a_shortened_file_is_an_error_that_names_it() {
    on_every_ring(|s| {
        let f = s.file("a", 8);
        s.shorten("a", 4 * B);
        assert_eq!(s.disk.len(f), 4 * B);
        let mut ring = s.ring(4);
        push(&mut *ring, 1, read_op(f, 3, 1));
        push(&mut *ring, 2, read_op(f, 3, 2));
        push(&mut *ring, 3, read_op(f, 6, 1));
        let done = finish(&mut *ring);
        assert!(done[0].result.is_ok(), "{}", s.name);
        for d in &done[1..] {
            let e = d.result.clone().unwrap_err();
            assert!(e.to_string().contains(&format!("read of {} (", s.shown("a"))), "{e}");
            assert_eq!((e.what, e.file, e.errno), ("read", s.shown("a"), libc::ENODATA), "{}", s.name);
            assert!(d.buf.is_some(), "{}: the buffer comes back", s.name);
        }
    });
}

#[test]
fn a_read_that_ends_inside_a_block_is_an_error_too() {
    on_every_ring(|s| {
        let f = s.file("a", 8);
        s.shorten("a", 2 * B + 512);
        let mut ring = s.ring(1);
        let e = run(&mut *ring, read_op(f, 1, 2)).unwrap_err();
        assert_eq!(e.errno, libc::ENODATA, "{}", s.name);
        assert!(run(&mut *ring, read_op(f, 0, 2)).is_ok(), "{}", s.name);
    });
}

#[test]
fn requests_that_are_not_aligned_panic_when_pushed() {
    on_every_ring(|s| {
        let f = s.file("a", 8);
        let mut ring = s.ring(4);
        let skewed = frozen(pattern(1, 2)).slice(512..512 + BLOCK);
        let bad: Vec<IoOp> = vec![
            IoOp::Write { file: f, offset: 512, data: frozen(pattern(1, 1)), dsync: false },
            IoOp::Write { file: f, offset: 0, data: frozen([1; 512]), dsync: false },
            IoOp::Write { file: f, offset: 0, data: skewed, dsync: false },
            IoOp::Write { file: f, offset: 0, data: frozen([]), dsync: false },
            IoOp::Read { file: f, offset: 1, buf: AlignedBuf::zeroed(BLOCK) },
            IoOp::Read { file: f, offset: 0, buf: AlignedBuf::zeroed(100) },
            IoOp::Read { file: f, offset: i64::MAX as u64 / B * B, buf: AlignedBuf::zeroed(BLOCK) },
            read_op(FileId(1), 0, 1),
            IoOp::Sync { files: 0b10 },
        ];
        for op in bad {
            let what = format!("{op:?}").chars().take(80).collect::<String>();
            let pushed = catch_unwind(AssertUnwindSafe(|| ring.push(Io { token: 1, op }).is_ok()));
            assert!(pushed.is_err(), "{}: {what}", s.name);
        }
        assert_eq!(ring.in_flight(), 0);
        run(&mut *ring, write_op(f, 0, pattern(1, 1))).unwrap();
    });
}
