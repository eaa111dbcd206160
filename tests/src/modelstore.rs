//! The model as a [`Subject`], so that the cases themselves are checked by something that cannot
//! crash: a case that fails here is a wrong case.

use lodestore::{Answer, Read, Transaction};

use crate::model::{ErrKind, Model};
use crate::subject::Subject;

/// A model with an end of space.
pub struct ModelStore {
    model: Model,
    space: u64,
    results: Vec<Result<(), ErrKind>>,
}

impl ModelStore {
    /// An empty store with room for `space` bytes.
    pub fn new(space: u64) -> Self {
        ModelStore { model: Model::new(), space, results: Vec::new() }
    }

    fn apply_bounded(&mut self, t: &Transaction) -> Result<(), ErrKind> {
        let mut next = self.model.clone();
        next.apply(t)?;
        if t.user_bytes() > self.space {
            return Err(ErrKind::TooLarge);
        }
        // Only writes need blocks; whatever else grows shares them.
        if next.allocated() > self.space {
            return Err(ErrKind::NoSpace);
        }
        self.model = next;
        Ok(())
    }
}

impl Subject for ModelStore {
    fn submit(&mut self, t: Transaction) {
        let result = self.apply_bounded(&t);
        self.results.push(result);
    }

    fn settle(&mut self) -> Vec<Result<(), ErrKind>> {
        std::mem::take(&mut self.results)
    }

    fn query(&mut self, read: Read) -> Result<Answer, ErrKind> {
        let answer = self.model.query(&read);
        match answer {
            Ok(Answer::Space(mut s)) => {
                s.total = self.space;
                s.available = self.space - s.allocated;
                s.omap = self
                    .model
                    .objects()
                    .flat_map(|(_, _, o)| o.omap.iter().map(|(k, v)| (k.len() + v.len()) as u64))
                    .sum();
                Ok(Answer::Space(s))
            }
            other => other,
        }
    }

    fn remount(&mut self) {}

    fn fsck(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn is_scaled_down(&self) -> bool {
        true
    }
}
