//! Unmounting: everything pending is written, the allocator's state is kept, the log is closed.

use lodestore_kv::{Cf, KvOp};

use super::mkfs::write_labels;
use super::{Engine, Event};
use crate::error::Error;
use crate::format::snapshot::{self, Head, PART_RUNS};
use crate::format::{BLOCK_LEN, key};

impl Engine {
    /// Completes what was submitted, writes everything that waits, and closes the store. Returns
    /// the events of transactions and reads that were still under way, too.
    pub fn umount(mut self) -> (Vec<Event>, Result<(), Error>) {
        let mut events = Vec::new();
        let result = self.quiesce(&mut events);
        events.append(&mut self.events);
        // The mark at the end of the log is the last thing written.
        let result = result.and_then(|()| Ok(self.wal.close(&mut *self.ring)?));
        (events, result)
    }

    /// Leaves everything as the next mount wants to find it.
    fn quiesce(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        self.settle(events)?;
        // With the log trimmed to its end, nothing in limbo is needed any more.
        let space = self.statfs();
        assert!(space.limbo == 0 && self.deferred.is_settled(), "the log is trimmed to its end");
        // Before the snapshot, so that no label is ever older than it.
        if let Some(uuid) = self.label_uuid {
            let files = self.data.iter().map(|d| (d.file, d.blocks * BLOCK_LEN));
            write_labels(&mut *self.ring, files, uuid, self.wal.last_durable())?;
        }
        self.write_snapshot()?;
        self.kv.flush()?;
        fail::fail_point!("umount::before_clean_mark");
        Ok(())
    }

    /// Drives the engine until nothing is queued, in flight, waiting to be applied or in limbo.
    pub fn settle(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        self.more_to_come = false;
        loop {
            if let Some(reason) = &self.poison {
                return Err(Error::Poisoned(reason.clone()));
            }
            let quiet = self.queue.is_empty() && self.unapplied.is_empty() && self.groups.iter().all(|g| g.is_empty());
            if quiet && !self.is_trimming() {
                if self.applied > self.wal.trim_durable() {
                    self.request_trim();
                } else if self.io_in_flight() == 0 && self.prewriting.is_none() && self.reads.is_empty() {
                    events.extend(self.events());
                    return Ok(());
                }
            }
            self.poll(true);
            events.extend(self.events());
            while let Some(job) = self.take_job() {
                let done = job.run();
                self.job_done(done);
            }
        }
    }

    fn write_snapshot(&mut self) -> Result<(), Error> {
        let runs = self.alloc.used_runs();
        let used = runs.iter().map(|r| r.blocks).sum();
        let mut at = 0;
        let gaps: Vec<(u64, u64)> = runs
            .iter()
            .map(|r| {
                let gap = r.place - at;
                at = r.place + r.blocks;
                (gap, r.blocks)
            })
            .collect();
        let parts: Vec<_> = gaps.chunks(PART_RUNS).map(snapshot::encode_runs).collect();
        let head = Head {
            lsn: self.wal.last_durable(),
            parts: parts.len() as u32,
            objects: self.objects,
            stored: self.stored,
            used,
        };
        let put = |part: usize, value: Vec<u8>| KvOp::Put { cf: Cf::Meta, key: key::snapshot(part as u32), value };
        let mut ops = vec![put(0, head.encode())];
        // Those of an earlier, larger snapshot.
        ops.push(KvOp::DeleteRange { cf: Cf::Meta, from: key::snapshot(head.parts + 1), to: key::snapshot(u32::MAX) });
        ops.extend(parts.into_iter().enumerate().map(|(i, value)| put(i + 1, value)));
        Ok(self.kv.write(&ops, self.wal.last_durable())?)
    }
}
