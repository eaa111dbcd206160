//! Which block devices a store lies on, what is under them, and what they wrote.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::journal;

/// Bytes of a sector in the kernel's statistics, whatever the device's own.
const SECTOR: u64 = 512;
/// Place of "sectors written" in a device's `stat`.
const SECTORS_WRITTEN: usize = 6;

/// A part of a store that may lie on a device of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Fragment files.
    Data,
    /// The log.
    Log,
    /// The key-value store.
    Kv,
}

impl Part {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Part::Data => "data",
            Part::Log => "log",
            Part::Kv => "kv",
        }
    }

    /// The part that an entry of a store's directory belongs to.
    fn of(entry: &Path) -> Option<Part> {
        match entry.file_name()?.to_str()? {
            "log" => Some(Part::Log),
            "kv" => Some(Part::Kv),
            name if name.starts_with("data.") => Some(Part::Data),
            _ => None,
        }
    }
}

/// A block device that a store lies on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its name, and those of the devices under it, down to physical ones: a partition's disk, the
    /// device of a loop device's file, the members of a RAID or of a mapped device.
    pub chain: Vec<String>,
    /// What of the store lies on it.
    pub parts: Vec<Part>,
    /// Whether a file system lies between it and the store.
    has_file_system: bool,
}

impl Device {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.chain[0]
    }

    /// What the file system on it says it wrote to its journal since it was mounted; `None` where it
    /// does not, or where there is none.
    pub fn journal_bytes(&self) -> Option<u64> {
        self.has_file_system.then(|| journal::written_bytes(self.name())).flatten()
    }
}

/// The devices under a store.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    all: Vec<Device>,
    /// Whether some part lies on something that is no block device.
    unknown: bool,
}

impl Devices {
    /// Those of the store in `dir`, wherever links in it lead.
    pub fn of_store(dir: &Path) -> Self {
        let mut d = Devices::default();
        // By device number: what lies there.
        let mut found: BTreeMap<u64, (Vec<Part>, bool)> = BTreeMap::new();
        let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
        for path in std::iter::once(dir.to_owned()).chain(entries) {
            let Ok(m) = fs::metadata(&path) else { continue };
            let whole = m.file_type().is_block_device();
            let (parts, has_file_system) = found.entry(if whole { m.rdev() } else { m.dev() }).or_default();
            *has_file_system |= !whole;
            parts.extend(Part::of(&path).filter(|_| path != dir));
        }
        for (dev, (mut parts, has_file_system)) in found {
            parts.sort_unstable();
            parts.dedup();
            match directory(dev) {
                Some(sys) => d.all.push(Device { chain: chain(&sys), parts, has_file_system }),
                None => d.unknown = true,
            }
        }
        d
    }

    /// All of them; `None` if that cannot be told of every part of the store.
    pub fn all(&self) -> Option<&[Device]> {
        (!self.unknown && !self.all.is_empty()).then_some(&self.all[..])
    }

    /// Their names; none where not every part lies on a disk that is known.
    pub fn names(&self) -> Vec<&str> {
        self.all().into_iter().flatten().map(Device::name).collect()
    }

    /// Bytes that each of them and each device under them wrote since the system started, by name;
    /// `None` as for [`Devices::all`].
    pub fn written_bytes(&self) -> Option<BTreeMap<String, u64>> {
        let names = self.all()?.iter().flat_map(|d| &d.chain);
        names.map(|name| Some((name.clone(), written_bytes(name)?))).collect()
    }

    /// Their names, joined by `+`; `None` as for [`Devices::all`].
    pub fn name(&self) -> Option<String> {
        let names = self.names();
        (!names.is_empty()).then(|| names.join("+"))
    }
}

/// Bytes that the block device called `name` wrote since the system started.
pub fn written_bytes(name: &str) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/sys/class/block").join(name).join("stat")).ok()?;
    Some(stat.split_whitespace().nth(SECTORS_WRITTEN)?.parse::<u64>().ok()? * SECTOR)
}

/// The directory in `/sys` of the block device with this number.
fn directory(dev: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok().or_else(|| {
        // File systems over several devices have numbers of their own: the mount says which.
        fs::canonicalize(Path::new("/sys/class/block").join(mounted_from(major, minor)?.file_name()?)).ok()
    })
}

/// Names of the device with directory `sys` and of every device under it.
fn chain(sys: &Path) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut next = vec![sys.to_owned()];
    while let Some(sys) = next.pop() {
        let name = sys.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !names.contains(&name) {
            names.push(name);
            next.extend(below(&sys));
        }
    }
    names
}

/// The devices on which the one with directory `sys` lies.
fn below(sys: &Path) -> Vec<PathBuf> {
    if sys.join("partition").exists() {
        return sys.parent().map(Path::to_owned).into_iter().collect();
    }
    if let Ok(file) = fs::read_to_string(sys.join("loop/backing_file")) {
        let Ok(m) = fs::metadata(file.trim_end()) else { return Vec::new() };
        return directory(if m.file_type().is_block_device() { m.rdev() } else { m.dev() }).into_iter().collect();
    }
    let mut members: Vec<PathBuf> = fs::read_dir(sys.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|e| fs::canonicalize(e.path()))
        .collect();
    members.sort_unstable_by(|a, b| b.cmp(a));
    members
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

/// Writes what waits in the page cache for the file systems of `dir` and of what it links to.
pub fn sync(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let mut done = Vec::new();
    for path in std::iter::once(dir.to_owned()).chain(entries) {
        // A file system that cannot has nothing waiting; what it writes later shows as `other`. A
        // device without one is not opened: it is the store's, and exclusively so.
        let Ok(m) = fs::metadata(&path) else { continue };
        if m.file_type().is_block_device() || done.contains(&m.dev()) {
            continue;
        }
        done.push(m.dev());
        if let Ok(f) = File::open(&path) {
            let _ = rustix::fs::syncfs(f);
        }
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
    use std::os::unix::fs::symlink;

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

    /// A tree like that of `/sys`: a partition on a RAID of two disks, one of them mapped.
    #[test]
    fn a_chain_leads_through_partitions_raids_and_mapped_devices_to_the_disks() {
        let dir = tempfile::tempdir().unwrap();
        let make = |p: &str| {
            let p = fs::canonicalize(dir.path()).unwrap().join(p);
            fs::create_dir_all(&p).unwrap();
            p
        };
        let (sda, sdb, dm, part) = (make("sda"), make("sdb"), make("dm-0"), make("md0/md0p1"));
        fs::write(part.join("partition"), "1\n").unwrap();
        let slave = |of: &Path, to: &Path| {
            fs::create_dir_all(of.join("slaves")).unwrap();
            symlink(to, of.join("slaves").join(to.file_name().unwrap())).unwrap();
        };
        slave(&dm, &sdb);
        slave(part.parent().unwrap(), &sda);
        slave(part.parent().unwrap(), &dm);
        assert_eq!(chain(&part), ["md0p1", "md0", "dm-0", "sdb", "sda"]);
        assert_eq!(chain(&sda), ["sda"]);
    }
}
