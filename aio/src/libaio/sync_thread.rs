//! The helper thread of `SyncMode::Thread`.

use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::event::EventFd;
use crate::flusher::Flusher;
use crate::seam::IoError;

/// One thread that carries out syncs in the order they are given, and signals the ring's eventfd
/// after each.
pub(crate) struct SyncThread {
    /// Slot and files. `None` only while being dropped.
    jobs: Option<Sender<(u32, u64)>>,
    answers: Receiver<(u32, Result<(), IoError>)>,
    thread: Option<JoinHandle<()>>,
    in_flight: usize,
}

impl SyncThread {
    pub(crate) fn start(mut flusher: Flusher, event: EventFd) -> std::io::Result<Self> {
        let (jobs, todo) = unbounded::<(u32, u64)>();
        let (results, answers) = unbounded();
        let thread = std::thread::Builder::new().name("lodestore-sync".into()).spawn(move || {
            for (slot, files) in todo {
                if results.send((slot, flusher.flush(files))).is_err() {
                    return;
                }
                event.signal();
            }
        })?;
        Ok(SyncThread { jobs: Some(jobs), answers, thread: Some(thread), in_flight: 0 })
    }

    pub(crate) fn give(&mut self, slot: u32, files: u64) {
        self.in_flight += 1;
        self.jobs.as_ref().expect("not dropped").send((slot, files)).expect("the thread lives as long as this");
    }

    pub(crate) fn take(&mut self) -> Option<(u32, Result<(), IoError>)> {
        let answer = self.answers.try_recv().ok()?;
        self.in_flight -= 1;
        Some(answer)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed; there is nothing to add while dropping.
            let _ = thread.join();
        }
    }
}
