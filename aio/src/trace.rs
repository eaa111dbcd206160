//! A disk that tells of every write that completes: where, how long, and for what.
//!
//! It stands before another disk and hands everything through, so that without it nothing is
//! looked at, let alone recorded.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::event::EventFd;
use crate::seam::{Disk, Done, FileId, Io, IoError, IoOp, Ring, Wait};

/// A write that completed without error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The token of the request.
    pub token: u64,
    /// The number that [`WriteSink::opened`] gave to the file.
    pub file: u16,
    /// Byte offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Who wants to know of writes. Called by the thread that uses the ring.
pub trait WriteSink: Send + Sync {
    /// A file or block device of `len` bytes was made or opened, perhaps again; gives it a number.
    fn opened(&self, name: &str, len: u64) -> u16;

    /// These writes were seen to be complete, at one look.
    fn written(&self, writes: &[Written]);
}

/// Tells a [`WriteSink`] of every write to the disk behind it.
pub struct TraceDisk<D> {
    disk: D,
    sink: Arc<dyn WriteSink>,
    /// The sink's number of each file, by [`FileId`].
    numbers: Vec<u16>,
}

impl<D: Disk> TraceDisk<D> {
    /// Stands before `disk`, of which no file is open yet.
    pub fn new(disk: D, sink: Arc<dyn WriteSink>) -> Self {
        TraceDisk { disk, sink, numbers: Vec::new() }
    }

    fn opened(&mut self, name: &str, file: FileId) -> FileId {
        let number = self.sink.opened(name, self.disk.len(file));
        let n = usize::from(file.0);
        // Ids are dense; a file opened again keeps its own.
        self.numbers.resize(self.numbers.len().max(n + 1), number);
        self.numbers[n] = number;
        file
    }
}

impl<D: Disk> Disk for TraceDisk<D> {
    fn create(&mut self, name: &str, len: u64) -> Result<FileId, IoError> {
        let file = self.disk.create(name, len)?;
        Ok(self.opened(name, file))
    }

    fn open(&mut self, name: &str) -> Result<FileId, IoError> {
        let file = self.disk.open(name)?;
        Ok(self.opened(name, file))
    }

    fn len(&self, file: FileId) -> u64 {
        self.disk.len(file)
    }

    fn ring(&self, depth: usize) -> Result<Box<dyn Ring>, IoError> {
        let ring = self.disk.ring(depth)?;
        let capacity = ring.capacity();
        Ok(Box::new(TraceRing {
            ring,
            sink: self.sink.clone(),
            numbers: self.numbers.clone(),
            slots: vec![Slot::default(); capacity],
            free: (0..capacity as u32).rev().collect(),
            written: Vec::with_capacity(capacity),
        }))
    }
}

/// A request in flight.
#[derive(Clone, Copy, Default)]
struct Slot {
    token: u64,
    /// `None` for a read or a sync.
    write: Option<Written>,
}

struct TraceRing {
    ring: Box<dyn Ring>,
    sink: Arc<dyn WriteSink>,
    numbers: Vec<u16>,
    /// By number, which is the token of the request to the ring behind: the caller's tokens need
    /// not differ.
    slots: Vec<Slot>,
    free: Vec<u32>,
    written: Vec<Written>,
}

impl Ring for TraceRing {
    fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    fn in_flight(&self) -> usize {
        self.ring.in_flight()
    }

    fn push(&mut self, io: Io) -> Result<(), Io> {
        let Some(&slot) = self.free.last() else { return Err(io) };
        let Io { token, op } = io;
        let write = match &op {
            IoOp::Write { file, offset, data, .. } => Some(Written {
                token,
                file: self.numbers[usize::from(file.0)],
                offset: *offset,
                len: data.len() as u64,
            }),
            IoOp::Read { .. } | IoOp::Sync { .. } => None,
        };
        self.slots[slot as usize] = Slot { token, write };
        self.ring.push(Io { token: slot.into(), op }).map_err(|refused| Io { token, ..refused })?;
        self.free.pop();
        Ok(())
    }

    fn submit(&mut self) -> Result<(), IoError> {
        self.ring.submit()
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        let already = done.len();
        let result = self.ring.reap(wait, done);
        // What came before an error of the ring itself did complete.
        for d in &mut done[already..] {
            let slot = d.token as u32;
            let Slot { token, write } = self.slots[slot as usize];
            self.free.push(slot);
            d.token = token;
            self.written.extend(write.filter(|_| d.result.is_ok()));
        }
        if !self.written.is_empty() {
            self.sink.written(&self.written);
            self.written.clear();
        }
        result
    }

    fn event_fd(&self) -> Option<RawFd> {
        self.ring.event_fd()
    }

    fn waker(&self) -> Option<EventFd> {
        self.ring.waker()
    }

    fn handoffs(&self) -> u64 {
        self.ring.handoffs()
    }

    fn file_name(&self, file: FileId) -> String {
        self.ring.file_name(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::AlignedBuf;
    use crate::seam::BLOCK;
    use crate::sim::{OpKind, SimDisk};
    use std::sync::Mutex;

    #[derive(Default)]
    struct Kept {
        files: Mutex<Vec<(String, u64)>>,
        writes: Mutex<Vec<Written>>,
    }

    impl WriteSink for Kept {
        fn opened(&self, name: &str, len: u64) -> u16 {
            let mut files = self.files.lock().unwrap();
            files.push((name.to_owned(), len));
            files.len() as u16 + 99
        }

        fn written(&self, writes: &[Written]) {
            self.writes.lock().unwrap().extend(writes);
        }
    }

    const B: u64 = BLOCK as u64;

    fn write(file: FileId, block: u64, blocks: usize) -> IoOp {
        IoOp::Write { file, offset: block * B, data: AlignedBuf::zeroed(blocks * BLOCK).freeze(), dsync: false }
    }

    fn finish(ring: &mut dyn Ring) -> Vec<Done> {
        ring.submit().unwrap();
        let mut done = Vec::new();
        while ring.in_flight() > 0 {
            ring.reap(Wait::For(1), &mut done).unwrap();
        }
        done.sort_by_key(|d| d.token);
        done
    }

    #[test]
    fn completed_writes_are_told_with_their_tokens_and_nothing_else_is() {
        let kept = Arc::new(Kept::default());
        let mut disk = TraceDisk::new(SimDisk::new(1), kept.clone());
        let (a, b) = (disk.create("a", 8 * B).unwrap(), disk.create("b", 4 * B).unwrap());
        assert_eq!(*kept.files.lock().unwrap(), [("a".into(), 8 * B), ("b".into(), 4 * B)]);
        let mut ring = disk.ring(8).unwrap();
        let ops = [
            (7, write(a, 1, 2)),
            (7, write(b, 3, 1)),
            (8, IoOp::Read { file: a, offset: 0, buf: AlignedBuf::zeroed(BLOCK) }),
            (9, IoOp::Sync { files: a.mask() }),
        ];
        for (token, op) in ops {
            assert!(ring.push(Io { token, op }).is_ok());
        }
        let done = finish(&mut *ring);
        assert!(done.iter().map(|d| d.token).eq([7, 7, 8, 9]));
        let mut writes = std::mem::take(&mut *kept.writes.lock().unwrap());
        writes.sort_by_key(|w| w.file);
        let expected =
            [(100, B, 2 * B), (101, 3 * B, B)].map(|(file, offset, len)| Written { token: 7, file, offset, len });
        assert_eq!(writes, expected);
    }

    #[test]
    fn a_failed_write_is_not_told() {
        let kept = Arc::new(Kept::default());
        let sim = SimDisk::new(1);
        sim.fail_nth(OpKind::Write, |_| true, 2, libc::EIO);
        let mut disk = TraceDisk::new(sim, kept.clone());
        let a = disk.create("a", 2 * B).unwrap();
        let mut ring = disk.ring(2).unwrap();
        assert!(ring.push(Io { token: 1, op: write(a, 0, 1) }).is_ok());
        assert!(ring.push(Io { token: 2, op: write(a, 1, 1) }).is_ok());
        let refused = ring.push(Io { token: 3, op: write(a, 1, 1) }).unwrap_err();
        assert_eq!(refused.token, 3);
        let done = finish(&mut *ring);
        // The simulated disk carries requests out in an order of its own.
        let complete: Vec<u64> = done.iter().filter(|d| d.result.is_ok()).map(|d| d.token).collect();
        let told: Vec<u64> = kept.writes.lock().unwrap().iter().map(|w| w.token).collect();
        assert!(complete.len() == 1 && told == complete, "{told:?} were told of {complete:?}");
    }
}
