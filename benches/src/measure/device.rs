//! Which block devices a store lies on, and what they wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of a sector in the kernel's statistics, whatever the device's own.
const SECTOR: u64 = 512;
/// Place of "sectors written" in a device's `stat`.
const SECTORS_WRITTEN: usize = 6;

/// The disks under a store; partitions count as their disk.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// Statistics file by name of the disk.
    disks: BTreeMap<String, PathBuf>,
    /// Whether some part lies on something that is no block device.
    unknown: bool,
}

impl Devices {
    /// Those of the store in `dir`, wherever links in it lead.
    pub fn of_store(dir: &Path) -> Self {
        let mut d = Devices::default();
        let mut seen = BTreeSet::new();
        let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
        for path in std::iter::once(dir.to_owned()).chain(entries) {
            let Ok(m) = fs::metadata(&path) else { continue };
            let dev = if m.file_type().is_block_device() { m.rdev() } else { m.dev() };
            if seen.insert(dev) {
                match disk(dev) {
                    Some((name, stat)) => drop(d.disks.insert(name, stat)),
                    None => d.unknown = true,
                }
            }
        }
        d
    }

    /// Bytes they wrote since the system started; `None` if that cannot be told of every part.
    pub fn written_bytes(&self) -> Option<u64> {
        if self.unknown || self.disks.is_empty() {
            return None;
        }
        let written = |stat: &PathBuf| {
            fs::read_to_string(stat).ok()?.split_whitespace().nth(SECTORS_WRITTEN)?.parse::<u64>().ok()
        };
        self.disks.values().map(|s| Some(written(s)? * SECTOR)).sum()
    }

    /// Their names; none where not every part lies on a disk that is known.
    pub fn names(&self) -> Vec<&str> {
        if self.unknown { Vec::new() } else { self.disks.keys().map(String::as_str).collect() }
    }

    /// Their names, joined by `+`; `None` as for [`Devices::written_bytes`].
    pub fn name(&self) -> Option<String> {
        let names = self.names();
        (!names.is_empty()).then(|| names.join("+"))
    }
}

/// Name and statistics of the disk with this device number.
fn disk(dev: u64) -> Option<(String, PathBuf)> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let mut dir = match fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) {
        Ok(dir) => dir,
        // File systems over several devices have numbers of their own: the mount says which.
        Err(_) => {
            fs::canonicalize(Path::new("/sys/class/block").join(mounted_from(major, minor)?.file_name()?)).ok()?
        }
    };
    if dir.join("partition").exists() {
        dir.pop();
    }
    let stat = dir.join("stat");
    stat.exists().then(|| (dir.file_name().unwrap_or_default().to_string_lossy().into_owned(), stat))
}

/// The device a file system was mounted from, by `/proc/self/mountinfo`.
fn mounted_from(major: u32, minor: u32) -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let number = format!("{major}:{minor}");
    let line = table.lines().find(|l| l.split(' ').nth(2) == Some(&number))?;
    let source = line.split(" - ").nth(1)?.split(' ').nth(1)?;
    let path = fs::canonicalize(source).ok()?;
    fs::metadata(&path).ok()?.file_type().is_block_device().then_some(path)
}

/// Writes what waits in the page cache for the file system of `dir`.
pub fn sync(dir: &Path) {
    // A file system that cannot has nothing waiting; what it writes later shows as `other`.
    if let Ok(f) = File::open(dir) {
        let _ = rustix::fs::syncfs(f);
    }
}

/// Free bytes of the file system that holds `path` or its nearest existing parent; `None` where
/// there is none, or where it has no limit of its own.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let existing =
        path.ancestors().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p }).find(|p| p.exists())?;
    let s = rustix::fs::statvfs(existing).ok()?;
    (s.f_blocks > 0).then(|| s.f_bavail.saturating_mul(s.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_in_memory_has_no_device() {
        let d = Devices::of_store(Path::new("/proc/self/task"));
        assert_eq!((d.written_bytes(), d.name()), (None, None));
    }

    #[test]
    fn free_space_is_that_of_the_nearest_existing_parent() {
        assert!(free_bytes(Path::new("does/not/exist")).is_some());
        assert_eq!(free_bytes(Path::new("/proc/none/of/it")), None, "/proc has no blocks");
    }
}
