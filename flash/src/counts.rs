//! What was written, by class.

use crate::class::{CLASSES, Class};

/// Bytes of one class, or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes {
    /// Written by the host.
    pub host: u64,
    /// Written to the cells: whole pages of the host's, and the same pages again each time garbage
    /// collection moved them.
    pub media: u64,
}

impl Bytes {
    /// Media bytes per host byte; `None` where the host wrote nothing.
    pub fn amplification(&self) -> Option<f64> {
        (self.host > 0).then(|| self.media as f64 / self.host as f64)
    }
}

/// Counters of a drive, by class. A page that garbage collection moves counts for the class that
/// wrote it last, whoever made the collection necessary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub(crate) by_class: [Bytes; CLASSES.len()],
    /// Blocks erased.
    pub erases: u64,
}

impl Counts {
    /// Those of one class.
    pub fn of(&self, class: Class) -> Bytes {
        self.by_class[class.index()]
    }

    /// The sum over all classes.
    pub fn total(&self) -> Bytes {
        self.by_class
            .iter()
            .fold(Bytes::default(), |sum, b| Bytes { host: sum.host + b.host, media: sum.media + b.media })
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut by_class = self.by_class;
        for (b, e) in by_class.iter_mut().zip(&earlier.by_class) {
            *b = Bytes { host: b.host - e.host, media: b.media - e.media };
        }
        Counts { by_class, erases: self.erases - earlier.erases }
    }
}
