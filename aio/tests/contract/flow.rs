//! Requests in, completions out.

use std::time::Duration;

use bytes::Bytes;
use lodestore_aio::{BLOCK, Io, IoOp, Wait, run};

use super::subject::{B, finish, frozen, on_every_ring, pattern, push, read, read_op, write_op};

#[test]
fn what_is_written_is_read_back() {
    on_every_ring(|s| {
        let (a, b) = (s.file("a", 16), s.file("b", 16));
        let mut ring = s.ring(8);
        run(&mut *ring, write_op(a, 2, pattern(1, 3))).unwrap();
        run(&mut *ring, write_op(b, 2, pattern(2, 1))).unwrap();
        assert_eq!(read(&mut *ring, a, 2, 3), pattern(1, 3), "{}", s.name);
        assert_eq!(read(&mut *ring, b, 2, 1), pattern(2, 1), "{}", s.name);
        assert_eq!(read(&mut *ring, b, 3, 1), vec![0; BLOCK], "{}", s.name);
        assert_eq!(ring.file_name(a), s.shown("a"));
    });
}

#[test]
fn a_whole_depth_of_requests_is_in_flight_at_once_and_each_completes_once() {
    on_every_ring(|s| {
        const DEPTH: usize = 64;
        let f = s.file("a", DEPTH);
        let mut ring = s.ring(DEPTH);
        assert_eq!(ring.capacity(), DEPTH);
        for round in 0..3 {
            for i in 0..DEPTH as u64 {
                push(&mut *ring, i, write_op(f, i, pattern(i + round, 1)));
            }
            assert_eq!(ring.in_flight(), DEPTH);
            let done = finish(&mut *ring);
            assert!(done.iter().all(|d| d.result.is_ok() && d.buf.is_none()));
            assert!(done.iter().map(|d| d.token).eq(0..DEPTH as u64), "{}", s.name);
            for i in 0..DEPTH as u64 {
                push(&mut *ring, i, read_op(f, i, 1));
            }
            for d in finish(&mut *ring) {
                assert_eq!(d.buf.unwrap()[..], pattern(d.token + round, 1)[..], "{}", s.name);
            }
        }
    });
}

#[test]
fn a_request_beyond_the_capacity_is_handed_back_whole() {
    on_every_ring(|s| {
        let f = s.file("a", 8);
        let mut ring = s.ring(2);
        push(&mut *ring, 1, write_op(f, 0, pattern(1, 1)));
        push(&mut *ring, 2, read_op(f, 1, 1));
        let Err(Io { token, op }) = ring.push(Io { token: 3, op: write_op(f, 2, pattern(3, 1)) }) else {
            panic!("{}: it is full", s.name)
        };
        assert!(token == 3 && matches!(&op, IoOp::Write { data, .. } if data[..] == pattern(3, 1)[..]));
        // Full until reaped, not until complete.
        ring.submit().unwrap();
        assert!(ring.push(Io { token: 3, op: read_op(f, 2, 1) }).is_err(), "{}", s.name);
        let mut done = Vec::new();
        ring.reap(Wait::For(1), &mut done).unwrap();
        push(&mut *ring, token, op);
        finish(&mut *ring);
        assert_eq!(read(&mut *ring, f, 2, 1), pattern(3, 1));
    });
}

#[test]
fn reaping_waits_for_at_least_what_is_asked_and_never_for_more_than_there_is() {
    on_every_ring(|s| {
        let f = s.file("a", 16);
        let mut ring = s.ring(16);
        let mut done = Vec::new();
        ring.reap(Wait::For(5), &mut done).unwrap();
        ring.reap(Wait::No, &mut done).unwrap();
        assert!(done.is_empty(), "{}: an idle ring has nothing", s.name);
        for i in 0..10 {
            push(&mut *ring, i, write_op(f, i, pattern(i, 1)));
        }
        ring.submit().unwrap();
        ring.reap(Wait::For(4), &mut done).unwrap();
        assert!(done.len() >= 4, "{}", s.name);
        assert_eq!(ring.in_flight(), 10 - done.len());
        ring.reap(Wait::For(1000), &mut done).unwrap();
        assert_eq!((done.len(), ring.in_flight()), (10, 0), "{}", s.name);
    });
}

#[test]
fn a_wait_submits_what_it_waits_for() {
    on_every_ring(|s| {
        let f = s.file("a", 4);
        let mut ring = s.ring(4);
        push(&mut *ring, 1, write_op(f, 0, pattern(1, 1)));
        push(&mut *ring, 2, IoOp::Sync { files: f.mask() });
        let mut done = Vec::new();
        ring.reap(Wait::For(2), &mut done).unwrap();
        assert_eq!(done.len(), 2, "{}", s.name);
    });
}

#[test]
fn looking_without_waiting_finds_everything_in_the_end() {
    on_every_ring(|s| {
        let f = s.file("a", 8);
        let mut ring = s.ring(9);
        for i in 0..8 {
            push(&mut *ring, i, write_op(f, i, pattern(i, 1)));
        }
        push(&mut *ring, 8, IoOp::Sync { files: f.mask() });
        ring.submit().unwrap();
        let mut done = Vec::new();
        while ring.in_flight() > 0 {
            ring.reap(Wait::No, &mut done).unwrap();
            std::thread::yield_now();
        }
        assert_eq!(done.len(), 9, "{}", s.name);
    });
}

#[test]
fn syncs_of_one_several_and_no_files_and_durable_writes_succeed() {
    on_every_ring(|s| {
        let (a, b) = (s.file("a", 8), s.file("b", 8));
        let mut ring = s.ring(16);
        push(&mut *ring, 1, write_op(a, 0, pattern(1, 1)));
        push(&mut *ring, 2, write_op(b, 0, pattern(2, 1)));
        push(&mut *ring, 3, IoOp::Sync { files: a.mask() });
        push(&mut *ring, 4, IoOp::Sync { files: a.mask() | b.mask() });
        push(&mut *ring, 5, IoOp::Sync { files: 0 });
        push(&mut *ring, 6, IoOp::Write { file: a, offset: 3 * B, data: frozen(pattern(6, 2)), dsync: true });
        let done = finish(&mut *ring);
        assert_eq!(done.len(), 6);
        assert!(done.iter().all(|d| d.result.is_ok()), "{}: {done:?}", s.name);
        run(&mut *ring, IoOp::Sync { files: a.mask() | b.mask() }).unwrap();
        assert_eq!(read(&mut *ring, a, 3, 2), pattern(6, 2));
    });
}

#[test]
fn the_eventfd_announces_completions_and_foreign_signals() {
    on_every_ring(|s| {
        let f = s.file("a", 8);
        let mut ring = s.ring(8);
        let Some(waker) = ring.waker() else {
            return assert!(ring.event_fd().is_none(), "{}: both or neither", s.name);
        };
        assert_eq!(ring.event_fd(), Some(waker.raw()));
        assert!(!waker.wait(Some(Duration::ZERO)), "{}: nothing has happened", s.name);
        for round in 0..20 {
            push(&mut *ring, 1, write_op(f, 0, pattern(round, 1)));
            push(&mut *ring, 2, read_op(f, 1, 1));
            push(&mut *ring, 3, IoOp::Sync { files: f.mask() });
            ring.submit().unwrap();
            // The loop of every driver: wait, drain, reap.
            let mut done = Vec::new();
            while done.len() < 3 {
                assert!(waker.wait(Some(Duration::from_secs(60))), "{}: a completion was not announced", s.name);
                waker.drain();
                ring.reap(Wait::No, &mut done).unwrap();
            }
        }
        waker.drain();
        let other = waker.clone();
        std::thread::spawn(move || other.signal()).join().unwrap();
        assert!(waker.wait(None) && waker.drain() && !waker.drain(), "{}", s.name);
        drop(ring);
        waker.signal();
    });
}

#[test]
fn a_wait_does_not_swallow_a_foreign_signal() {
    on_every_ring(|s| {
        let f = s.file("a", 8);
        let mut ring = s.ring(8);
        let Some(waker) = ring.waker() else { return };
        waker.signal();
        push(&mut *ring, 1, IoOp::Sync { files: f.mask() });
        finish(&mut *ring);
        assert!(waker.drain(), "{}", s.name);
    });
}

#[test]
fn buffers_belong_to_the_ring_until_completion_and_come_back_intact() {
    on_every_ring(|s| {
        let f = s.file("a", 64);
        let mut ring = s.ring(32);
        let whole: Bytes = frozen(pattern(9, 16));
        for i in 0..16usize {
            // Slices of one shared buffer, whose other handle is dropped while they are written.
            let data = whole.slice(i * BLOCK..(i + 1) * BLOCK);
            push(&mut *ring, i as u64, IoOp::Write { file: f, offset: (i as u64 * 2) * B, data, dsync: false });
        }
        ring.submit().unwrap();
        drop(whole);
        finish(&mut *ring);
        for i in 0..16u64 {
            push(&mut *ring, i, read_op(f, i * 2, 1));
        }
        let all = pattern(9, 16);
        for d in finish(&mut *ring) {
            let i = d.token as usize;
            assert_eq!(d.buf.unwrap()[..], all[i * BLOCK..(i + 1) * BLOCK], "{}", s.name);
        }
    });
}

#[test]
fn a_ring_dropped_with_requests_in_flight_has_written_what_was_submitted() {
    on_every_ring(|s| {
        // Enough that they are still under way when the ring is dropped.
        let f = s.file("a", 64 * 16);
        let mut ring = s.ring(64);
        for i in 0..64 {
            push(&mut *ring, i, write_op(f, i * 16, pattern(i, 16)));
        }
        ring.submit().unwrap();
        drop(ring);
        let mut ring = s.ring(1);
        for i in (0..64).rev() {
            assert!(read(&mut *ring, f, i * 16, 16) == pattern(i, 16), "{}: write {i}", s.name);
        }
    });
}
