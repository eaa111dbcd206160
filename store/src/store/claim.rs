//! What mkfs may write on. Every place it was given is looked at before anything is made.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::dir::{KV_DIR, LOCK_FILE, MkfsOptions, device_len, place};
use super::probe;
use crate::engine::{LOG_FILE, data_file};
use crate::error::Error;
use crate::format::superblock::{self, DATA_FILES_MAX};

/// What two names of one place have in common.
#[derive(PartialEq, Eq)]
enum Identity {
    Device(u64),
    File(u64, u64),
    /// Nothing is there yet; the path without links.
    Absent(PathBuf),
}

/// Refuses places that cannot or must not be written on.
pub(super) fn check(dir: &Path, o: &MkfsOptions) -> Result<(), Error> {
    let mut places: Vec<(&str, &Path, Identity)> = vec![("the directory", dir, identity(dir)?)];
    let data = o.data.iter().map(|p| ("--data", p));
    let log = o.log.iter().map(|p| ("--log", p));
    let kv = o.kv.iter().map(|p| ("--kv", p));
    for (what, path) in data.chain(log).chain(kv) {
        let id = identity(path)?;
        if let Some((other, at, _)) = places.iter().find(|(_, _, known)| *known == id) {
            return Err(Error::Invalid(format!(
                "{what} {} and {other} {} are one and the same; nothing was changed, give each part a place of its own",
                path.display(),
                at.display()
            )));
        }
        if is_own_name(&resolved(dir)?, &id) {
            return Err(Error::Invalid(format!(
                "{what} {}: the store itself needs this name; nothing was changed, choose another",
                path.display()
            )));
        }
        places.push((what, path, id));
    }
    for p in o.data.iter().chain(&o.log) {
        check_target(p, o.force)?;
    }
    match &o.kv {
        Some(p) if fs::symlink_metadata(p).is_ok() => Err(Error::Mount(format!(
            "{} exists; nothing was changed, the key-value store needs a directory of its own that does not",
            p.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses a directory with anything in it but what mkfs ignores; `locked`: but for the lock, too.
pub(super) fn check_empty(dir: &Path, locked: bool) -> Result<(), Error> {
    let ignored = |name: &OsString| name == "lost+found" || locked && name == LOCK_FILE;
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| place("open", dir, e))? {
        names.push(entry.map_err(|e| place("open", dir, e))?.file_name());
    }
    names.retain(|n| !ignored(n));
    names.sort();
    let Some(first) = names.first() else { return Ok(()) };
    if !locked {
        refuse_locked(dir)?;
    }
    let is_there = |n: &str| names.iter().any(|x| x == n);
    let what = match fs::metadata(dir.join(superblock::FILE)) {
        Ok(m) if m.len() > 0 => "holds a store",
        _ if is_there(LOCK_FILE) && is_there(&data_file(0)) => "holds what an interrupted mkfs left behind",
        _ => "is not empty",
    };
    Err(Error::Mount(format!(
        "directory {} {what} (it has '{}'); nothing was changed, choose an empty or a new one",
        dir.display(),
        first.display()
    )))
}

/// Refuses a directory whose lock another process holds.
fn refuse_locked(dir: &Path) -> Result<(), Error> {
    let in_use = || Error::Mount(format!("store {} is in use by another process; nothing was changed", dir.display()));
    match File::open(dir.join(LOCK_FILE)).map(|f| f.try_lock_shared()) {
        Ok(Err(TryLockError::WouldBlock)) => Err(in_use()),
        _ => Ok(()),
    }
}

/// Refuses a file or device that is in use, or holds something and may not be overwritten.
fn check_target(path: &Path, force: bool) -> Result<(), Error> {
    let Ok(m) = fs::metadata(path) else {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return match parent.is_dir() {
            true => Ok(()),
            false => Err(Error::Mount(format!(
                "{} cannot be made: there is no directory {}; nothing was changed",
                path.display(),
                parent.display()
            ))),
        };
    };
    let is_device = m.file_type().is_block_device();
    if !is_device && !m.is_file() {
        return Err(Error::Mount(format!(
            "{} is neither a file nor a block device; nothing was changed",
            path.display()
        )));
    }
    // On a block device this refuses one that is mounted or in use, which no force overcomes.
    let exclusive = if is_device { libc::O_EXCL } else { 0 };
    let file = File::options().read(true).custom_flags(exclusive).open(path).map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => Error::Mount(format!(
            "{} is in use: it is mounted, or a part of another store or device; nothing was changed",
            path.display()
        )),
        _ => place("open", path, e),
    })?;
    if !is_device && let Some(parent) = resolved(path)?.parent() {
        // It may be a part of the store that lies beside it.
        refuse_locked(parent)?;
    }
    let len = if is_device { device_len(path)? } else { m.len() };
    match probe::holds(&file, len).map_err(|e| place("read", path, e))? {
        _ if force => Ok(()),
        Some(what) => Err(Error::Mount(format!(
            "{} holds {what}; nothing was changed, choose another or overwrite it with --force",
            path.display()
        ))),
        None if is_device => Ok(()),
        None => Err(Error::Mount(format!(
            "{} exists; nothing was changed, choose a name that does not, or replace it with --force",
            path.display()
        ))),
    }
}

fn identity(path: &Path) -> Result<Identity, Error> {
    match fs::metadata(path) {
        Ok(m) if m.file_type().is_block_device() => Ok(Identity::Device(m.rdev())),
        Ok(m) => Ok(Identity::File(m.dev(), m.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Identity::Absent(resolved(path)?)),
        Err(e) => Err(place("open", path, e)),
    }
}

/// The path without links, as far as it exists.
fn resolved(path: &Path) -> Result<PathBuf, Error> {
    let path = std::path::absolute(path).map_err(|e| place("read", path, e))?;
    let existing = path.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let rest = path.strip_prefix(existing).unwrap_or(&path);
    let base = fs::canonicalize(existing).map_err(|e| place("open", existing, e))?;
    // Joining nothing would add a separator.
    Ok(if rest.as_os_str().is_empty() { base } else { base.join(rest) })
}

/// Whether an absent path is one that mkfs makes in the directory by itself.
fn is_own_name(dir: &Path, id: &Identity) -> bool {
    let Identity::Absent(path) = id else { return false };
    let Ok(name) = path.strip_prefix(dir) else { return false };
    [LOCK_FILE, KV_DIR, LOG_FILE, superblock::FILE].iter().any(|n| name.starts_with(n))
        || (0..DATA_FILES_MAX).any(|n| name.starts_with(data_file(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_under_two_names_has_one_identity() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |n: &str| tmp.path().join(n);
        fs::create_dir(at("d")).unwrap();
        std::os::unix::fs::symlink("d", at("link")).unwrap();
        assert!(identity(&at("d")).unwrap() == identity(&at("link")).unwrap());
        assert!(identity(&at("d/new/file")).unwrap() == identity(&at("link/./new/file")).unwrap());
        fs::write(at("f"), "x").unwrap();
        fs::hard_link(at("f"), at("g")).unwrap();
        assert!(identity(&at("f")).unwrap() == identity(&at("g")).unwrap());
        assert!(identity(&at("f")).unwrap() != identity(&at("d")).unwrap());
    }
}
