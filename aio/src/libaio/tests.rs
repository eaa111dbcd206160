//! The libaio ring on a kernel that misbehaves as a real one may.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use super::*;
use crate::buf::AlignedBuf;
use crate::file_disk::{FileDisk, FileDiskOptions};
use crate::seam::{BLOCK, Disk};

const FILE_BLOCKS: usize = 16;

/// What happened, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Taken { opcode: u16, offset: i64, len: u64 },
    Waited,
    Fdatasync,
}

/// What a completion will look like.
#[derive(Clone, Copy)]
enum Outcome {
    Whole,
    Short(usize),
    Error(i32),
}

#[derive(Default)]
struct World {
    bytes: Vec<u8>,
    /// Taken from the back: completions come in reverse.
    outstanding: Vec<iocb>,
    submits: VecDeque<Result<usize, i32>>,
    outcomes: VecDeque<Outcome>,
    interruptions: usize,
    /// Events given per call.
    batch: usize,
    seen: Vec<Seen>,
    event_calls: usize,
    fdsyncs: Vec<RawFd>,
    destroyed: bool,
}

#[derive(Clone)]
struct FakeKernel(Arc<Mutex<World>>);

impl Kernel for FakeKernel {
    unsafe fn submit(&mut self, iocbs: &mut [iocb], order: &[u32]) -> Result<usize, i32> {
        let mut w = self.0.lock().unwrap();
        let n = w.submits.pop_front().unwrap_or(Ok(order.len()))?.min(order.len());
        for &i in &order[..n] {
            let cb = iocbs[i as usize];
            assert!(cb.aio_flags == IOCB_FLAG_RESFD && cb.aio_resfd > 0, "every iocb signals the eventfd");
            w.seen.push(Seen::Taken { opcode: cb.aio_lio_opcode, offset: cb.aio_offset, len: cb.aio_nbytes });
            w.outstanding.push(cb);
        }
        Ok(n)
    }

    fn events(&mut self, min: usize, events: &mut [io_event]) -> Result<usize, i32> {
        let mut w = self.0.lock().unwrap();
        w.event_calls += 1;
        if w.interruptions > 0 {
            w.interruptions -= 1;
            return Err(libc::EINTR);
        }
        assert!(min <= w.outstanding.len(), "this would wait for ever");
        w.seen.push(Seen::Waited);
        let n = w.outstanding.len().min(events.len()).min(min.max(w.batch));
        for event in &mut events[..n] {
            let cb = w.outstanding.pop().unwrap();
            *event = io_event { data: cb.aio_data, obj: 0, res: w.carry_out(&cb), res2: 0 };
        }
        Ok(n)
    }

    fn may_have_events(&self) -> bool {
        !self.0.lock().unwrap().outstanding.is_empty()
    }

    fn destroy(&mut self) -> Result<(), i32> {
        let mut w = self.0.lock().unwrap();
        assert!(w.outstanding.is_empty(), "destroyed with requests in flight");
        w.destroyed = true;
        Ok(())
    }
}

impl World {
    fn carry_out(&mut self, cb: &iocb) -> i64 {
        let n = match self.outcomes.pop_front().unwrap_or(Outcome::Whole) {
            Outcome::Whole => cb.aio_nbytes as usize,
            Outcome::Short(n) => n,
            Outcome::Error(errno) => return -i64::from(errno),
        };
        let offset = cb.aio_offset as usize;
        let memory = std::ptr::with_exposed_provenance_mut::<u8>(cb.aio_buf as usize);
        match cb.aio_lio_opcode {
            IOCB_CMD_PREAD => {
                let n = n.min(self.bytes.len().saturating_sub(offset));
                // SAFETY: the ring owns `aio_nbytes` >= n bytes at the address until the event.
                unsafe { std::ptr::copy_nonoverlapping(self.bytes[offset..].as_ptr(), memory, n) };
                n as i64
            }
            IOCB_CMD_PWRITE => {
                // SAFETY: as above.
                let data = unsafe { std::slice::from_raw_parts(memory, n) };
                self.bytes[offset..offset + n].copy_from_slice(data);
                n as i64
            }
            IOCB_CMD_FDSYNC => {
                self.fdsyncs.push(cb.aio_fildes as RawFd);
                0
            }
            other => panic!("opcode {other}"),
        }
    }
}

struct Bench {
    world: Arc<Mutex<World>>,
    ring: LibaioRing<FakeKernel>,
    _dir: tempfile::TempDir,
}

fn initial_bytes() -> Vec<u8> {
    (0..FILE_BLOCKS * BLOCK).map(|i| (i / 7) as u8).collect()
}

/// A ring over `files` files; the fake kernel sees them all as the same bytes.
fn bench_of(files: usize, depth: usize, mode: SyncMode) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = FileDisk::new(dir.path(), FileDiskOptions { direct: false, ..FileDiskOptions::default() });
    for i in 0..files {
        disk.create(&format!("f{i}"), BLOCK as u64).unwrap();
    }
    let world = Arc::new(Mutex::new(World { bytes: initial_bytes(), batch: usize::MAX, ..World::default() }));
    let log = Arc::clone(&world);
    let call = move |_| {
        log.lock().unwrap().seen.push(Seen::Fdatasync);
        Ok(())
    };
    let flusher = Flusher::with_call(disk.file_set(), Arc::new(call));
    let ring = LibaioRing::with_kernel(FakeKernel(Arc::clone(&world)), disk.file_set(), depth, mode, flusher).unwrap();
    Bench { world, ring, _dir: dir }
}

fn bench() -> Bench {
    bench_of(1, 8, SyncMode::Blocking)
}

impl Bench {
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn write(&mut self, token: u64, block: usize, blocks: usize) {
        let data = AlignedBuf::copy_of(&vec![token as u8 | 0x80; blocks * BLOCK]).freeze();
        self.push(token, IoOp::Write { file: FileId(0), offset: (block * BLOCK) as u64, data, dsync: false });
    }

    fn read(&mut self, token: u64, block: usize, blocks: usize) {
        self.push(
            token,
            IoOp::Read { file: FileId(0), offset: (block * BLOCK) as u64, buf: AlignedBuf::zeroed(blocks * BLOCK) },
        );
    }

    fn push(&mut self, token: u64, op: IoOp) {
        self.ring.push(Io { token, op }).expect("there is room");
    }

    /// Submits, waits for everything, sorted by token.
    fn finish(&mut self) -> Vec<Done> {
        self.ring.submit().unwrap();
        self.reap_all()
    }

    fn reap_all(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        self.ring.reap(Wait::For(usize::MAX), &mut done).unwrap();
        assert_eq!(self.ring.in_flight(), 0);
        done.sort_by_key(|d| d.token);
        done
    }

    fn has_written(&self, token: u64, block: usize, blocks: usize) -> bool {
        self.world().bytes[block * BLOCK..(block + blocks) * BLOCK].iter().all(|&b| b == token as u8 | 0x80)
    }
}

fn taken(opcode: u16, block: usize, blocks: usize) -> Seen {
    Seen::Taken { opcode, offset: (block * BLOCK) as i64, len: (blocks * BLOCK) as u64 }
}

#[test]
fn a_partial_submission_goes_on_with_the_rest_in_order() {
    let mut b = bench();
    b.world().submits = [Ok(2), Ok(1)].into();
    for i in 0..6 {
        b.write(i, i as usize, 1);
    }
    let done = b.finish();
    assert!(done.iter().all(|d| d.result.is_ok()));
    let expected: Vec<Seen> = (0..6).map(|i| taken(IOCB_CMD_PWRITE, i, 1)).collect();
    assert_eq!(b.world().seen[..6], expected[..]);
    assert!((0..6).all(|i| b.has_written(i, i as usize, 1)));
}

#[test]
fn eagain_with_requests_in_flight_takes_events_and_tries_again() {
    let mut b = bench();
    b.world().submits = [Ok(1), Err(libc::EAGAIN), Err(libc::EAGAIN), Ok(1)].into();
    b.world().batch = 1;
    for i in 0..4 {
        b.write(i, i as usize, 1);
    }
    let done = b.finish();
    assert_eq!(done.iter().map(|d| d.token).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(b.world().seen[..3], [taken(IOCB_CMD_PWRITE, 0, 1), Seen::Waited, taken(IOCB_CMD_PWRITE, 1, 1)]);
}

#[test]
fn eagain_and_eintr_with_nothing_in_flight_are_tried_again_but_not_for_ever() {
    let mut b = bench();
    b.world().submits = [Err(libc::EAGAIN), Err(libc::EINTR), Ok(0)].into();
    b.write(1, 0, 1);
    assert!(b.finish()[0].result.is_ok());

    b.world().submits = vec![Err(libc::EAGAIN); SUBMIT_TRIES_MAX].into();
    b.write(2, 0, 1);
    let e = b.ring.submit().unwrap_err();
    assert_eq!((e.what, e.errno), ("submit", libc::EAGAIN));
}

#[test]
fn an_interrupted_wait_goes_on() {
    let mut b = bench();
    b.world().interruptions = 50;
    b.write(1, 0, 1);
    assert!(b.finish()[0].result.is_ok());
}

#[test]
fn a_short_write_is_resumed_at_the_last_whole_block() {
    let mut b = bench();
    b.world().outcomes = [Outcome::Short(BLOCK + 1000), Outcome::Short(BLOCK)].into();
    b.write(1, 2, 4);
    assert!(b.finish()[0].result.is_ok());
    let w = |block, blocks| taken(IOCB_CMD_PWRITE, block, blocks);
    assert_eq!(b.world().seen, [w(2, 4), Seen::Waited, w(3, 3), Seen::Waited, w(4, 2), Seen::Waited]);
    assert!(b.has_written(1, 2, 4));
}

#[test]
fn a_short_read_is_resumed_and_gives_every_byte() {
    let mut b = bench();
    b.world().outcomes = [Outcome::Short(512), Outcome::Short(2 * BLOCK), Outcome::Error(libc::EINTR)].into();
    b.read(1, 1, 4);
    let done = b.finish();
    assert!(done[0].result.is_ok());
    assert_eq!(done[0].buf.as_ref().unwrap()[..], b.world().bytes[BLOCK..5 * BLOCK]);
}

#[test]
fn a_read_past_the_end_is_enodata_and_gives_the_buffer_back() {
    let mut b = bench();
    b.read(1, FILE_BLOCKS - 1, 2);
    let done = b.finish();
    let e = done[0].result.clone().unwrap_err();
    assert_eq!((e.what, e.file.ends_with("/f0"), e.errno, e.len), ("read", true, libc::ENODATA, 2 * BLOCK as u64));
    assert_eq!(done[0].buf.as_ref().map(|b| b.len()), Some(2 * BLOCK));
}

#[test]
fn a_negative_result_is_the_error_of_its_request_only() {
    let mut b = bench();
    b.world().outcomes = [Outcome::Error(libc::EIO)].into();
    b.write(1, 3, 2);
    b.write(2, 8, 1);
    let done = b.finish();
    // Completions come in reverse, so the first outcome is that of the last request.
    assert!(done[0].result.is_ok());
    let e = done[1].result.clone().unwrap_err();
    assert_eq!((e.what, e.offset, e.len, e.errno), ("write", 8 * BLOCK as u64, BLOCK as u64, libc::EIO));
}

#[test]
fn a_request_the_kernel_refuses_fails_alone_and_the_rest_goes_on() {
    let mut b = bench();
    b.world().submits = [Ok(1), Err(libc::EBADF)].into();
    for i in 0..3 {
        b.write(i, i as usize, 1);
    }
    b.ring.submit().unwrap();
    assert!(b.ring.waker().unwrap().drain(), "a completion that the kernel does not make is signalled");
    let errors: Vec<Option<i32>> = b.reap_all().into_iter().map(|d| d.result.err().map(|e| e.errno)).collect();
    assert_eq!(errors, [None, Some(libc::EBADF), None]);
}

#[test]
fn completions_out_of_order_reach_their_own_requests() {
    let mut b = bench();
    for i in 0..8 {
        b.read(i, i as usize, 1);
    }
    for d in b.finish() {
        let block = d.token as usize;
        assert_eq!(d.buf.unwrap()[..], b.world().bytes[block * BLOCK..(block + 1) * BLOCK]);
    }
}

#[test]
fn a_blocking_sync_runs_where_it_stands_in_the_queue() {
    let mut b = bench();
    b.write(1, 0, 1);
    b.write(2, 1, 1);
    b.push(3, IoOp::Sync { files: 1 });
    b.write(4, 2, 1);
    b.ring.submit().unwrap();
    let w = |block| taken(IOCB_CMD_PWRITE, block, 1);
    assert_eq!(b.world().seen, [w(0), w(1), Seen::Fdatasync, w(2)]);
    assert_eq!(b.reap_all().len(), 4);
}

#[test]
fn an_aio_sync_asks_for_each_file_and_completes_once() {
    // More parts than there are spare iocbs: some have to wait for others.
    let mut b = bench_of(60, 3, SyncMode::Aio);
    for token in 0..3 {
        b.push(token, IoOp::Sync { files: (1 << 60) - 1 });
    }
    let done = b.finish();
    assert_eq!(done.len(), 3);
    assert!(done.iter().all(|d| d.result.is_ok()));
    let mut fds = std::mem::take(&mut b.world().fdsyncs);
    assert_eq!(fds.len(), 180);
    fds.sort_unstable();
    fds.dedup();
    assert_eq!(fds.len(), 60);
    assert_eq!(b.ring.spare.len(), FILES_MAX, "spare iocbs come back");
}

#[test]
fn an_aio_sync_of_which_one_part_fails_fails_with_that_file() {
    let mut b = bench_of(3, 2, SyncMode::Aio);
    b.world().outcomes = [Outcome::Whole, Outcome::Error(libc::EIO)].into();
    b.push(1, IoOp::Sync { files: 0b111 });
    let e = b.finish().remove(0).result.unwrap_err();
    assert_eq!((e.what, e.file.ends_with("/f1"), e.errno), ("sync", true, libc::EIO));
}

#[test]
fn a_look_without_waiting_makes_no_system_call_while_nothing_can_be_complete() {
    let mut b = bench();
    let mut done = Vec::new();
    for _ in 0..10 {
        b.ring.reap(Wait::No, &mut done).unwrap();
    }
    assert_eq!(b.world().event_calls, 0);
    b.write(1, 0, 1);
    b.ring.submit().unwrap();
    b.ring.reap(Wait::No, &mut done).unwrap();
    assert_eq!((done.len(), b.world().event_calls), (1, 1));
}

#[test]
fn waiting_for_one_takes_no_more_calls_than_one() {
    let mut b = bench();
    b.world().batch = 1;
    for i in 0..3 {
        b.write(i, i as usize, 1);
    }
    let mut done = Vec::new();
    b.ring.reap(Wait::For(2), &mut done).unwrap();
    assert!(done.len() >= 2, "what was not submitted is submitted by a wait");
}

#[test]
fn dropping_the_ring_waits_for_everything_in_flight() {
    let mut b = bench();
    b.read(1, 0, 4);
    b.write(2, 8, 1);
    b.ring.submit().unwrap();
    b.write(3, 9, 1);
    b.world().interruptions = 3;
    b.world().batch = 1;
    let world = Arc::clone(&b.world);
    drop(b);
    let w = world.lock().unwrap();
    assert!(w.destroyed && w.outstanding.is_empty());
    assert_eq!(
        w.bytes[9 * BLOCK..10 * BLOCK],
        initial_bytes()[9 * BLOCK..10 * BLOCK],
        "what was never submitted is not written"
    );
}

#[test]
fn nothing_is_allocated_for_a_request_in_steady_state() {
    let mut b = bench();
    let capacities = |r: &LibaioRing<FakeKernel>| {
        (
            r.slots.capacity(),
            r.free.capacity(),
            r.queue.capacity(),
            r.staged.capacity(),
            r.ready.capacity(),
            r.events.capacity(),
        )
    };
    let before = capacities(&b.ring);
    for round in 0..100 {
        for i in 0..8 {
            b.write(round * 8 + i, i as usize, 1);
        }
        assert_eq!(b.finish().len(), 8);
    }
    assert_eq!(capacities(&b.ring), before, "every list has its final size from the start");
}
