//! A disk in memory: every request completes at once; writes can be recorded, failed and undone.

use std::os::fd::RawFd;

use lodestore_aio::{Done, FileId, Io, IoError, IoOp, Ring, Wait};

pub const FILE: FileId = FileId(3);

/// One file.
#[derive(Default)]
pub struct MemRing {
    pub data: Vec<u8>,
    /// Writes that still succeed; then everything fails.
    pub writes_left: Option<usize>,
    /// The file after each write, if wanted.
    pub history: Option<Vec<Vec<u8>>>,
    pub in_flight_max: usize,
    done: Vec<(u64, IoOp)>,
}

impl Clone for MemRing {
    fn clone(&self) -> MemRing {
        assert!(self.done.is_empty());
        MemRing::of(self.data.clone())
    }
}

impl MemRing {
    pub fn new(len: usize) -> MemRing {
        MemRing { data: vec![0xee; len], ..MemRing::default() }
    }

    pub fn of(data: Vec<u8>) -> MemRing {
        MemRing { data, ..MemRing::default() }
    }

    fn run(&mut self, token: u64, op: IoOp) -> Done {
        let error =
            |what, offset, len: usize, errno| IoError { what, file: "log".into(), offset, len: len as u64, errno };
        let (buf, result) = match op {
            IoOp::Read { file, offset, mut buf } => {
                assert_eq!(file, FILE);
                assert!(lodestore_aio::is_aligned(&buf));
                let at = offset as usize;
                match self.data.get(at..at + buf.len()) {
                    Some(src) => buf.copy_from_slice(src),
                    None => {
                        let e = error("read", offset, buf.len(), libc::EIO);
                        return Done { token, buf: Some(buf), result: Err(e) };
                    }
                }
                (Some(buf), Ok(()))
            }
            IoOp::Write { file, offset, data, .. } => {
                assert_eq!(file, FILE);
                assert!(lodestore_aio::is_aligned(&data) && offset % 4096 == 0);
                let result = match &mut self.writes_left {
                    Some(0) => Err(error("write", offset, data.len(), libc::EIO)),
                    left => {
                        if let Some(n) = left {
                            *n -= 1;
                        }
                        self.data[offset as usize..][..data.len()].copy_from_slice(&data);
                        if let Some(history) = &mut self.history {
                            history.push(self.data.clone());
                        }
                        Ok(())
                    }
                };
                (None, result)
            }
            IoOp::Sync { files } => {
                assert_eq!(files, FILE.mask());
                (None, Ok(()))
            }
        };
        Done { token, buf, result }
    }
}

impl Ring for MemRing {
    fn capacity(&self) -> usize {
        5
    }
    fn in_flight(&self) -> usize {
        self.done.len()
    }
    fn push(&mut self, io: Io) -> Result<(), Io> {
        if self.done.len() == self.capacity() {
            return Err(io);
        }
        self.done.push((io.token, io.op));
        self.in_flight_max = self.in_flight_max.max(self.done.len());
        Ok(())
    }
    fn submit(&mut self) -> Result<(), IoError> {
        Ok(())
    }
    fn reap(&mut self, _: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        // Newest first: nobody may rely on the order.
        for (token, op) in std::mem::take(&mut self.done).into_iter().rev() {
            let d = self.run(token, op);
            done.push(d);
        }
        Ok(())
    }
    fn event_fd(&self) -> Option<RawFd> {
        None
    }
    fn file_name(&self, _: FileId) -> String {
        "log".into()
    }
}
