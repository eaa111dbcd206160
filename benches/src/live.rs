//! What others may see of a job while it runs, and how they stop it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What a job is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Stage {
    /// Nothing that takes long.
    Idle = 0,
    /// Writing objects; [`Live::done`] counts bytes.
    Filling = 1,
    /// Measuring; [`Live::done`] counts operations.
    Running = 2,
    /// Flushing what the run left, which counts.
    Settling = 3,
    /// Reading everything back; [`Live::done`] counts bytes.
    Verifying = 4,
}

/// Shared with whoever shows progress. Never waits.
#[derive(Debug, Default)]
pub struct Live {
    stage: AtomicU8,
    done: AtomicU64,
    bytes: AtomicU64,
    total: AtomicU64,
    stop: AtomicBool,
}

impl Live {
    /// What is being done.
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            1 => Stage::Filling,
            2 => Stage::Running,
            3 => Stage::Settling,
            4 => Stage::Verifying,
            _ => Stage::Idle,
        }
    }

    /// How much of this stage is done: bytes, or operations while running.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes read or written in this stage.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How much there is to do in this stage, in the unit of [`Live::done`]; 0 if unknown.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Asks the job to end soon. A run that is under way gives the result of what it did so far.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked for.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self, stage: Stage, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.stage.store(stage as u8, Ordering::Release);
    }

    pub(crate) fn add(&self, done: u64, bytes: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
