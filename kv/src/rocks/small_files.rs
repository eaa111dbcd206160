//! Bytes written to the manifest and the options files, by watching their sizes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Clone, Copy)]
struct Seen {
    before_bytes: u64,
    now_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<String, Seen>,
    gone_bytes: u64,
}

/// Exact but for what was appended to a manifest between the last look and its replacement.
#[derive(Debug)]
pub(super) struct SmallFiles {
    dir: PathBuf,
    state: Mutex<State>,
}

impl SmallFiles {
    /// What is there now does not count.
    pub(super) fn before_opening(dir: &Path) -> SmallFiles {
        let files = sizes(dir).map(|(name, bytes)| (name, Seen { before_bytes: bytes, now_bytes: bytes })).collect();
        SmallFiles { dir: dir.to_owned(), state: Mutex::new(State { files, gone_bytes: 0 }) }
    }

    /// Looks at the files and gives the bytes written to them so far.
    pub(super) fn look(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now: HashMap<String, u64> = sizes(&self.dir).collect();
        let State { files, gone_bytes } = &mut *state;
        files.retain(|name, seen| {
            let there = now.contains_key(name);
            if !there {
                *gone_bytes += seen.now_bytes - seen.before_bytes;
            }
            there
        });
        for (name, bytes) in now {
            let seen = files.entry(name).or_insert(Seen { before_bytes: 0, now_bytes: 0 });
            seen.now_bytes = seen.now_bytes.max(bytes);
        }
        *gone_bytes + files.values().map(|s| s.now_bytes - s.before_bytes).sum::<u64>()
    }
}

/// An unreadable folder has no small files: this feeds a statistic, and RocksDB itself will report
/// the folder.
fn sizes(dir: &Path) -> impl Iterator<Item = (String, u64)> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let small = name.starts_with("MANIFEST-") || name.starts_with("OPTIONS-");
        small.then(|| Some((name, entry.metadata().ok()?.len())))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn growth_is_counted_and_kept_when_a_file_goes() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: usize| fs::write(dir.path().join(name), vec![0; bytes]).unwrap();
        file("MANIFEST-000001", 100);
        file("000002.sst", 5000);
        let small = SmallFiles::before_opening(dir.path());
        assert_eq!(small.look(), 0);
        file("MANIFEST-000001", 130);
        file("OPTIONS-000003", 7);
        assert_eq!(small.look(), 37);
        fs::remove_file(dir.path().join("MANIFEST-000001")).unwrap();
        file("MANIFEST-000004", 3);
        assert_eq!(small.look(), 40);
        assert_eq!(small.look(), 40);
    }
}
