//! The ring over the kernel's asynchronous I/O.
//!
//! Everything is allocated when the ring is made: a slot for each request that may be in flight,
//! with its iocb. A slot owns the request's buffer until the kernel's event for it has been taken,
//! so the kernel never writes to memory that is somebody else's again.

mod kernel;
mod sync_thread;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use libaio_sys::{IOCB_CMD_FDSYNC, IOCB_CMD_PREAD, IOCB_CMD_PWRITE, IOCB_FLAG_RESFD, RWF_DSYNC, io_event, iocb};

use crate::buf::AlignedBuf;
use crate::engine::SyncMode;
use crate::event::EventFd;
use crate::files::{FileSet, in_mask};
use crate::flusher::Flusher;
use crate::seam::{Done, FILES_MAX, FileId, Io, IoError, IoOp, Ring, Wait};
use crate::transfer::{Direction, Step, Transfer};
use kernel::{Kernel, LinuxKernel};
use sync_thread::SyncThread;

/// Failed submissions in a row before the ring gives up, where nothing in flight could be waited
/// for instead.
const SUBMIT_TRIES_MAX: usize = 1000;

/// Pause after such a failed submission: somebody else holds the kernel's resources.
const SUBMIT_PAUSE: Duration = Duration::from_micros(100);

/// Requests go to the kernel by io_submit, all that are queued in one call.
pub(crate) struct LibaioRing<K: Kernel = LinuxKernel> {
    kernel: K,
    files: FileSet,
    flush: Flush,
    event: EventFd,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// One per slot, then spare ones for syncs of several files. Slot `i` owns iocb `i`.
    iocbs: Vec<iocb>,
    /// What each iocb is for.
    uses: Vec<Use>,
    spare: Vec<u32>,
    /// Slots pushed and not yet looked at by `submit`, oldest first.
    queue: VecDeque<u32>,
    /// iocbs to be handed to the kernel, oldest first.
    staged: Vec<u32>,
    /// iocbs the kernel has.
    in_kernel: usize,
    in_flight: usize,
    handoffs: u64,
    /// Complete, not yet reaped.
    ready: Vec<Done>,
    events: Vec<io_event>,
}

/// How syncs are carried out; see [`SyncMode`].
enum Flush {
    Blocking(Flusher),
    Aio,
    Thread(SyncThread),
}

/// What an iocb is for: the slot it serves and, for a part of a sync, its file and
/// [`crate::open_file::OpenFile::sync_mark`].
#[derive(Clone, Copy)]
struct Use {
    slot: u32,
    file: FileId,
    mark: u64,
}

struct Slot {
    token: u64,
    held: Held,
}

/// A request, with its buffer.
enum Held {
    Nothing,
    Read {
        file: FileId,
        offset: u64,
        buf: AlignedBuf,
        transfer: Transfer,
    },
    Write {
        file: FileId,
        offset: u64,
        data: Bytes,
        dsync: bool,
        transfer: Transfer,
    },
    Sync {
        files: u64,
    },
    /// A sync by the kernel: files not yet asked for, and how many are being synced.
    Parts {
        rest: u64,
        out: usize,
        error: Option<IoError>,
    },
}

impl LibaioRing<LinuxKernel> {
    /// A ring over `files` for `depth` requests.
    pub(crate) fn new(files: FileSet, depth: usize, mode: SyncMode) -> io::Result<Self> {
        let kernel = LinuxKernel::new(depth + FILES_MAX).map_err(io::Error::from_raw_os_error)?;
        let flusher = Flusher::new(files.clone());
        LibaioRing::with_kernel(kernel, files, depth, mode, flusher)
    }
}

impl<K: Kernel> LibaioRing<K> {
    fn with_kernel(kernel: K, files: FileSet, depth: usize, mode: SyncMode, flusher: Flusher) -> io::Result<Self> {
        let event = EventFd::new()?;
        let all = depth + FILES_MAX;
        let flush = match mode {
            SyncMode::Blocking => Flush::Blocking(flusher),
            SyncMode::Aio => Flush::Aio,
            SyncMode::Thread => Flush::Thread(SyncThread::start(flusher, event.clone())?),
        };
        Ok(LibaioRing {
            kernel,
            files,
            flush,
            slots: (0..depth).map(|_| Slot { token: 0, held: Held::Nothing }).collect(),
            free: (0..depth as u32).rev().collect(),
            iocbs: (0..all as u64)
                .map(|i| iocb {
                    aio_data: i,
                    aio_flags: IOCB_FLAG_RESFD,
                    aio_resfd: event.raw() as u32,
                    ..iocb::default()
                })
                .collect(),
            uses: (0..all as u32).map(|slot| Use { slot, file: FileId(0), mark: 0 }).collect(),
            spare: (depth as u32..all as u32).collect(),
            queue: VecDeque::with_capacity(depth),
            staged: Vec::with_capacity(all),
            in_kernel: 0,
            in_flight: 0,
            handoffs: 0,
            ready: Vec::with_capacity(depth),
            events: vec![io_event::default(); all],
            event,
        })
    }

    /// Points a slot's iocb at what is left of its transfer and stages it.
    fn stage_transfer(&mut self, slot: u32) {
        let s = &mut self.slots[slot as usize];
        let cb = &mut self.iocbs[slot as usize];
        let (opcode, flags, file, offset, address, len, start) = match &mut s.held {
            Held::Read { file, offset, buf, transfer } => {
                (IOCB_CMD_PREAD, 0, *file, *offset, buf.as_mut_ptr().expose_provenance(), buf.len(), transfer.start())
            }
            Held::Write { file, offset, data, dsync, transfer } => {
                let flags = if *dsync { RWF_DSYNC } else { 0 };
                (
                    IOCB_CMD_PWRITE,
                    flags,
                    *file,
                    *offset,
                    data.as_ptr().expose_provenance(),
                    data.len(),
                    transfer.start(),
                )
            }
            Held::Nothing | Held::Sync { .. } | Held::Parts { .. } => unreachable!("slot {slot} holds no transfer"),
        };
        cb.aio_lio_opcode = opcode;
        cb.aio_rw_flags = flags;
        cb.aio_fildes = self.files.get(file).fd() as u32;
        cb.aio_buf = (address + start) as u64;
        cb.aio_nbytes = (len - start) as u64;
        cb.aio_offset = (offset + start as u64) as i64;
        self.staged.push(slot);
    }

    /// Carries out, or stages, the sync in a slot.
    fn start_sync(&mut self, slot: u32) -> Result<(), IoError> {
        let Held::Sync { files } = self.slots[slot as usize].held else { unreachable!("slot {slot} holds no sync") };
        match &mut self.flush {
            Flush::Blocking(_) => {
                // What was queued before it is in the device's hands while this thread waits.
                self.submit_staged()?;
                let Flush::Blocking(flusher) = &mut self.flush else { unreachable!("the mode never changes") };
                let result = flusher.flush(files);
                self.complete(slot, result);
            }
            Flush::Thread(thread) => {
                thread.give(slot, files);
                self.handoffs += 2;
                self.submit_staged()?;
            }
            Flush::Aio => {
                let rest = self.files.sync_targets(files);
                self.slots[slot as usize].held = Held::Parts { rest, out: 0, error: None };
                if rest == 0 {
                    self.complete(slot, Ok(()));
                    return Ok(());
                }
                self.stage_part(slot, slot);
                for _ in 1..rest.count_ones() {
                    // Without a spare iocb the part follows when another one completes.
                    let Some(i) = self.spare.pop() else { break };
                    self.stage_part(slot, i);
                }
            }
        }
        Ok(())
    }

    /// Stages the fdatasync of the next file of a sync in the given iocb.
    fn stage_part(&mut self, slot: u32, i: u32) {
        let Held::Parts { rest, out, .. } = &mut self.slots[slot as usize].held else {
            unreachable!("slot {slot} holds no sync")
        };
        let file = in_mask(*rest).next().expect("a file is left");
        *rest &= !file.mask();
        *out += 1;
        let f = self.files.get(file);
        self.uses[i as usize] = Use { slot, file, mark: f.sync_mark() };
        let (event, fd) = (self.event.raw() as u32, f.fd() as u32);
        let data = u64::from(i);
        self.iocbs[i as usize] = iocb {
            aio_data: data,
            aio_lio_opcode: IOCB_CMD_FDSYNC,
            aio_fildes: fd,
            aio_flags: IOCB_FLAG_RESFD,
            aio_resfd: event,
            ..iocb::default()
        };
        self.files.count_sync();
        self.staged.push(i);
    }

    /// Hands everything staged to the kernel.
    ///
    /// A partial submission goes on with the rest. EAGAIN means that the kernel lacks room: events
    /// are taken, which makes some, or, where nothing of ours is in flight, it is tried again a
    /// bounded number of times. Any other error is that of the first request.
    fn submit_staged(&mut self) -> Result<(), IoError> {
        let (mut at, mut tries) = (0, 0);
        while at < self.staged.len() {
            // SAFETY: each staged iocb points into a buffer its slot owns until `finish`, which
            // runs when the event has been taken; a read's buffer is not touched meanwhile.
            let taken = unsafe { self.kernel.submit(&mut self.iocbs, &self.staged[at..]) };
            match taken {
                Ok(n) if n > 0 => {
                    at += n;
                    self.in_kernel += n;
                    tries = 0;
                }
                Ok(_) | Err(libc::EAGAIN) if self.in_kernel > 0 => {
                    self.take_events(1)?;
                }
                Ok(_) | Err(libc::EAGAIN | libc::EINTR) => {
                    tries += 1;
                    if tries == SUBMIT_TRIES_MAX {
                        self.staged.drain(..at);
                        let file = self.files.name(FileId(0));
                        return Err(IoError {
                            what: "submit",
                            file,
                            offset: 0,
                            len: 0,
                            errno: taken.err().unwrap_or(libc::EAGAIN),
                        });
                    }
                    std::thread::sleep(SUBMIT_PAUSE);
                }
                Err(errno) => {
                    let first = self.staged[at];
                    at += 1;
                    self.finish(first, -i64::from(errno));
                }
            }
        }
        self.staged.clear();
        Ok(())
    }

    /// Takes the events there are, waiting for at least `min`.
    fn take_events(&mut self, min: usize) -> Result<(), IoError> {
        debug_assert!(min <= self.in_kernel, "waiting for more than there is");
        let mut events = std::mem::take(&mut self.events);
        let taken = loop {
            match self.kernel.events(min, &mut events) {
                // A wait ends when the device answers, however many signals arrive meanwhile.
                Err(libc::EINTR) if min > 0 => {}
                Err(libc::EINTR) => break Ok(0),
                other => break other,
            }
        };
        let result = taken.map(|n| {
            self.in_kernel -= n;
            for event in &events[..n] {
                self.finish(event.data as u32, event.res);
            }
        });
        self.events = events;
        result.map_err(|errno| IoError {
            what: "io_getevents",
            file: self.files.name(FileId(0)),
            offset: 0,
            len: 0,
            errno,
        })
    }

    /// The kernel is done with an iocb: complete the request, or stage what is left of it.
    fn finish(&mut self, i: u32, result: i64) {
        let slot = self.uses[i as usize].slot;
        let (step, error) = match &mut self.slots[slot as usize].held {
            Held::Read { file, offset, buf, transfer } => (transfer.step(result), ("read", *file, *offset, buf.len())),
            Held::Write { file, offset, data, transfer, .. } => {
                (transfer.step(result), ("write", *file, *offset, data.len()))
            }
            Held::Parts { .. } => return self.finish_part(slot, i, result),
            Held::Nothing | Held::Sync { .. } => panic!("the kernel completed iocb {i}, which it was not given"),
        };
        match step {
            Step::Done => self.complete(slot, Ok(())),
            Step::Resume => self.stage_transfer(slot),
            Step::Failed(errno) => {
                let (what, file, offset, len) = error;
                let error = self.files.transfer_error(what, file, offset, len, errno);
                self.complete(slot, Err(error));
            }
        }
    }

    fn finish_part(&mut self, slot: u32, i: u32, result: i64) {
        let Use { file, mark, .. } = self.uses[i as usize];
        let failure = (result < 0).then(|| self.files.sync_error(file, i32::try_from(-result).unwrap_or(libc::EIO)));
        if failure.is_none() {
            self.files.get(file).sync_done(mark);
        }
        let Held::Parts { rest, out, error } = &mut self.slots[slot as usize].held else {
            unreachable!("slot {slot} holds no sync")
        };
        *out -= 1;
        if error.is_none() {
            *error = failure;
        }
        if *rest != 0 {
            return self.stage_part(slot, i);
        }
        let finished = (*out == 0).then(|| error.take().map_or(Ok(()), Err));
        if i as usize >= self.slots.len() {
            self.spare.push(i);
        }
        if let Some(result) = finished {
            self.complete(slot, result);
        }
    }

    /// Frees a slot and makes its completion.
    fn complete(&mut self, slot: u32, result: Result<(), IoError>) {
        let s = &mut self.slots[slot as usize];
        let token = s.token;
        let buf = match std::mem::replace(&mut s.held, Held::Nothing) {
            Held::Read { buf, .. } => Some(buf),
            Held::Write { file, offset, data, .. } => {
                if result.is_ok() {
                    self.files.get(file).wrote(offset..offset + data.len() as u64);
                }
                None
            }
            Held::Sync { .. } | Held::Parts { .. } => None,
            Held::Nothing => unreachable!("slot {slot} completes twice"),
        };
        self.free.push(slot);
        self.ready.push(Done { token, buf, result });
    }

    fn take_from_thread(&mut self) {
        while let Flush::Thread(thread) = &mut self.flush
            && let Some((slot, result)) = thread.take()
        {
            self.complete(slot, result);
        }
    }

    fn thread_in_flight(&self) -> usize {
        match &self.flush {
            Flush::Thread(thread) => thread.in_flight(),
            Flush::Blocking(_) | Flush::Aio => 0,
        }
    }

    /// Makes at least `n` completions ready.
    fn wait_for(&mut self, n: usize) -> Result<(), IoError> {
        let mut drained = false;
        while self.ready.len() < n {
            if self.thread_in_flight() == 0 {
                assert!(self.in_kernel > 0, "a request is nowhere");
                self.take_events((n - self.ready.len()).min(self.in_kernel))?;
            } else {
                // Kernel and thread both signal the eventfd after their completion is there, so
                // one that is missed by the look just taken ends the wait.
                self.event.wait(None);
                drained |= self.event.drain();
                self.take_what_is_there()?;
            }
            self.submit_staged()?;
        }
        if drained {
            // Among what was drained may have been a foreign signal, meant for the loop outside.
            self.event.signal();
        }
        Ok(())
    }

    fn take_what_is_there(&mut self) -> Result<(), IoError> {
        self.take_from_thread();
        if self.in_kernel > 0 && self.kernel.may_have_events() {
            self.take_events(0)?;
        }
        Ok(())
    }
}

impl<K: Kernel> Ring for LibaioRing<K> {
    fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn handoffs(&self) -> u64 {
        self.handoffs
    }

    fn push(&mut self, io: Io) -> Result<(), Io> {
        self.files.assert_legal(&io.op);
        if self.in_flight == self.slots.len() {
            return Err(io);
        }
        let slot = self.free.pop().expect("as many slots as requests");
        let held = match io.op {
            IoOp::Read { file, offset, buf } => {
                let transfer = Transfer::new(Direction::Read, buf.len());
                Held::Read { file, offset, buf, transfer }
            }
            IoOp::Write { file, offset, data, dsync } => {
                let transfer = Transfer::new(Direction::Write, data.len());
                Held::Write { file, offset, data, dsync, transfer }
            }
            IoOp::Sync { files } => Held::Sync { files },
        };
        self.slots[slot as usize] = Slot { token: io.token, held };
        self.queue.push_back(slot);
        self.in_flight += 1;
        Ok(())
    }

    fn submit(&mut self) -> Result<(), IoError> {
        while let Some(slot) = self.queue.pop_front() {
            match self.slots[slot as usize].held {
                Held::Sync { .. } => self.start_sync(slot)?,
                _ => self.stage_transfer(slot),
            }
        }
        self.submit_staged()?;
        if !self.ready.is_empty() {
            // Completions made here, not by the kernel: a sync, or a request that was refused.
            self.event.signal();
        }
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        self.take_what_is_there()?;
        self.submit_staged()?;
        if let Wait::For(n) = wait {
            let n = n.min(self.in_flight);
            if n > self.in_flight - self.queue.len() {
                self.submit()?;
            }
            self.wait_for(n)?;
        }
        self.in_flight -= self.ready.len();
        done.append(&mut self.ready);
        Ok(())
    }

    fn waker(&self) -> Option<EventFd> {
        Some(self.event.clone())
    }

    fn file_name(&self, file: FileId) -> String {
        self.files.name(file)
    }
}

impl<K: Kernel> Drop for LibaioRing<K> {
    fn drop(&mut self) {
        // The kernel writes to the buffers of reads until their events are there.
        while self.in_kernel > 0 {
            match self.kernel.events(1, &mut self.events) {
                Ok(n) => self.in_kernel -= n,
                Err(libc::EINTR) => {}
                Err(_) => break,
            }
        }
        // Destroying the context waits, too. If neither works, memory is the smaller loss.
        if self.kernel.destroy().is_err() && self.in_kernel > 0 {
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}
