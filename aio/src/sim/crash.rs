//! Recording what happens on a disk, to enumerate what a power failure at each moment may leave.

use std::sync::Arc;

use bytes::Bytes;

use super::medium::Medium;
use super::states::{Limits, States};

/// Events between two copies of the medium. Going to a point costs at most that many replays.
const CHECKPOINT_EVENTS: usize = 32;

/// Something that happened on a recorded disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A file was made, durably.
    Created {
        /// Its name.
        file: Arc<str>,
        /// Its length in bytes.
        len: u64,
    },
    /// A write is under way: from now on any of its sectors may be on the medium.
    WriteSubmitted {
        /// Ascending in order of submission.
        id: u64,
        /// Name of the file.
        file: Arc<str>,
        /// Byte offset.
        offset: u64,
        /// What is written.
        data: Bytes,
    },
    /// A write completed. It stays volatile.
    WriteCompleted {
        /// Which.
        id: u64,
    },
    /// A write completed with an error. Its sectors may still be on the medium.
    WriteFailed {
        /// Which.
        id: u64,
    },
    /// A sync of this file (or a durable write) made these writes durable.
    Synced {
        /// Name of the file.
        file: Arc<str>,
        /// The writes, ascending.
        ids: Vec<u64>,
    },
    /// The test said so.
    Mark(u64),
    /// The test damaged the medium.
    Damaged,
}

/// Writes down events as they happen.
pub(crate) struct Recorder {
    events: Vec<Event>,
    checkpoints: Vec<(usize, Medium)>,
}

/// The events between `start_recording` and `stop_recording`.
///
/// Point 0 is the moment before the first event, point `n` the one after the `n`-th.
#[derive(Clone, Debug)]
pub struct Recording {
    events: Vec<Event>,
    /// Numbers of events and the medium after so many, ascending; the first is (0, base).
    checkpoints: Vec<(usize, Medium)>,
}

impl Recorder {
    pub(crate) fn new(base: &Medium) -> Self {
        Recorder { events: Vec::new(), checkpoints: vec![(0, base.clone())] }
    }

    /// Notes an event that has been applied to `medium`.
    pub(crate) fn note(&mut self, event: Event, medium: &Medium) {
        self.events.push(event);
        if self.events.len().is_multiple_of(CHECKPOINT_EVENTS) {
            self.checkpoints.push((self.events.len(), medium.clone()));
        }
    }

    /// Notes a change that no event describes.
    pub(crate) fn damaged(&mut self, medium: &Medium) {
        self.events.push(Event::Damaged);
        self.checkpoints.push((self.events.len(), medium.clone()));
    }

    pub(crate) fn finish(self) -> Recording {
        Recording { events: self.events, checkpoints: self.checkpoints }
    }
}

impl Recording {
    /// How many crash points there are: one more than events.
    pub fn points(&self) -> usize {
        self.events.len() + 1
    }

    /// What happened, in order. Point `n` lies behind `events()[n - 1]`.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The marks that had been made at a point, in order.
    pub fn marks_before(&self, point: usize) -> Vec<u64> {
        let mark = |e: &Event| if let Event::Mark(m) = e { Some(*m) } else { None };
        self.events[..point].iter().filter_map(mark).collect()
    }

    /// Whether the next event leaves the legal states as they are (a completion, a mark): a check
    /// of this point's states finds nothing that a check of the next point's does not, if what is
    /// promised only grows with marks. False for the last point.
    pub fn same_as_next(&self, point: usize) -> bool {
        matches!(
            self.events.get(point),
            Some(Event::WriteCompleted { .. } | Event::WriteFailed { .. } | Event::Mark(_))
        )
    }

    /// Every disk that a power failure at `point` may leave, each once, within `limits`.
    pub fn states(&self, point: usize, limits: &Limits) -> States {
        States::new(&self.medium(point), limits, point as u64)
    }

    /// How many disks `states` yields in all, at the points whose states are not
    /// [those of the next](Recording::same_as_next).
    pub fn count_states(&self, limits: &Limits) -> u64 {
        (0..self.points()).filter(|&p| !self.same_as_next(p)).map(|p| self.states(p, limits).count_distinct()).sum()
    }

    fn medium(&self, point: usize) -> Medium {
        assert!(point < self.points(), "point {point} of {}", self.points());
        let i = self.checkpoints.partition_point(|(at, _)| *at <= point) - 1;
        let (at, medium) = &self.checkpoints[i];
        let mut medium = medium.clone();
        for event in &self.events[*at..point] {
            apply(event, &mut medium);
        }
        medium
    }
}

fn apply(event: &Event, medium: &mut Medium) {
    let place = |m: &Medium, file: &str| m.position(file).expect("the file was made before");
    match event {
        Event::Created { file, len } => medium.create(file, *len),
        Event::WriteSubmitted { id, file, offset, data } => {
            let f = place(medium, file);
            medium.files[f].submitted(*id, *offset, data.clone());
        }
        Event::Synced { file, ids } => {
            let f = place(medium, file);
            medium.files[f].synced(ids);
        }
        // Completed or not, failed or not: until it is durable, a write may be there or not.
        Event::WriteCompleted { .. } | Event::WriteFailed { .. } | Event::Mark(_) => {}
        Event::Damaged => unreachable!("a checkpoint stands behind each damage"),
    }
}
