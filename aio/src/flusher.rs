//! Syncs of several files by blocking calls, different ones at the same time.

use std::sync::Arc;

use crossbeam_channel::bounded;
use threadpool::ThreadPool;

use crate::files::{FileSet, SyncCall, fdatasync, in_mask};
use crate::seam::{FILES_MAX, FileId, IoError};

/// Most threads a flusher adds to its caller's.
const HELPERS_MAX: usize = 3;

/// Carries out syncs. One file is synced by the caller; of several the others are synced by
/// helper threads, because two devices flush at the same time as fast as one does.
pub(crate) struct Flusher {
    files: FileSet,
    call: SyncCall,
    helpers: Option<ThreadPool>,
}

impl Flusher {
    pub(crate) fn new(files: FileSet) -> Self {
        Flusher::with_call(files, Arc::new(fdatasync))
    }

    /// With another call in the place of fdatasync.
    pub(crate) fn with_call(files: FileSet, call: SyncCall) -> Self {
        Flusher { files, call, helpers: None }
    }

    /// Makes the completed writes to the files of `mask` durable.
    pub(crate) fn flush(&mut self, mask: u64) -> Result<(), IoError> {
        let targets = self.files.sync_targets(mask);
        let mut rest = in_mask(targets);
        let Some(first) = rest.next() else { return Ok(()) };
        if targets == first.mask() {
            return self.files.sync(first, &self.call);
        }
        let (results, answers) = bounded(FILES_MAX);
        for file in rest {
            let (files, call, results) = (self.files.clone(), Arc::clone(&self.call), results.clone());
            self.helpers().execute(move || {
                // Nobody waits for the answer of a flusher that is gone.
                let _ = results.send((file, files.sync(file, &call)));
            });
        }
        drop(results);
        let mut all: Vec<(FileId, Result<(), IoError>)> = vec![(first, self.files.sync(first, &self.call))];
        all.extend(answers);
        assert_eq!(all.len(), targets.count_ones() as usize, "a sync was lost");
        all.sort_by_key(|a| a.0);
        all.into_iter().try_for_each(|(_, result)| result)
    }

    fn helpers(&mut self) -> &ThreadPool {
        self.helpers.get_or_insert_with(|| ThreadPool::with_name("lodestore-flush".into(), HELPERS_MAX))
    }
}
