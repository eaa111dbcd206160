//! `lodestore mkfs`: makes a store.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use lodestore::{Ledger, MkfsOptions, Store};
use lodestore_benches::IoEngine;
use lodestore_benches::measure::device;
use serde_json::json;

use crate::failure::{EXIT_CODES, Failure, NO_DIRECT, code};
use crate::interrupt::Interrupt;
use crate::{output, progress, units};

/// Makes a store in an empty or new directory.
///
/// If it fails, nothing is left behind.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// Directory of the store.
    dir: PathBuf,
    /// Room for object data, over all fragment files; a block device brings its own size.
    #[arg(long, value_name = "SIZE", default_value = "16g", value_parser = units::size)]
    size: u64,
    /// File to make, or block device to OVERWRITE, as a fragment file; may be given several times.
    #[arg(long, value_name = "PATH")]
    data: Vec<PathBuf>,
    /// File to make, or block device to OVERWRITE, for the log.
    #[arg(long, value_name = "PATH")]
    log: Option<PathBuf>,
    /// Directory to make for the key-value store.
    #[arg(long, value_name = "PATH")]
    kv: Option<PathBuf>,
    /// How files are written: libaio, threads:N or sync.
    #[arg(long, value_name = "ENGINE", default_value = "libaio")]
    engine: IoEngine,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(a: &Args) -> Result<(), Failure> {
    let options = MkfsOptions {
        size: a.size,
        data: a.data.clone(),
        log: a.log.clone(),
        kv: a.kv.clone(),
        engine: a.engine,
        ..Default::default()
    };
    let interrupt = Interrupt::listen()?;
    let begin = Instant::now();
    let written = make(&a.dir, &options, &interrupt)?;
    let s = begin.elapsed().as_secs_f64();
    if a.json {
        return output::json(&json!({
            "dir": a.dir, "size": a.size, "engine": a.engine.to_string(), "seconds": s,
            "written": { "prewrite": written.prewrite, "other": written.mkfs },
        }));
    }
    output::text(&format!("made a store of {} in {} ({s:.1} s)\n", units::about(a.size), a.dir.display()))
}

/// Makes a store, showing progress. Everything made so far is removed on failure and on a signal.
pub fn make(dir: &Path, options: &MkfsOptions, interrupt: &Interrupt) -> Result<Ledger, Failure> {
    check_room(dir, options)?;
    check_direct(dir, options.engine)?;
    interrupt.remove_if_new(dir);
    options.data.iter().chain(&options.log).chain(&options.kv).for_each(|p| interrupt.remove_if_new(p));
    let bar = progress::bar();
    let (mut part, mut begin) = (String::new(), Instant::now());
    let result = Store::mkfs(dir, options, &mut |what, done, total| {
        if interrupt.live().stopped() {
            interrupt.leave();
        }
        if part != what {
            (part, begin) = (what.to_owned(), Instant::now());
        }
        progress::show_bytes(&bar, &format!("pre-writing {what}"), done, total, begin);
    });
    bar.finish_and_clear();
    if interrupt.live().stopped() {
        interrupt.leave();
    }
    interrupt.keep();
    Ok(result?)
}

/// The path itself, or the nearest directory above it that exists.
fn existing(path: &Path) -> &Path {
    let with_dot = |p| if p == Path::new("") { Path::new(".") } else { p };
    path.ancestors().map(with_dot).find(|p| p.exists()).unwrap_or(Path::new("/"))
}

/// Refuses libaio where the file system has no O_DIRECT, before anything is made.
fn check_direct(dir: &Path, engine: IoEngine) -> Result<(), Failure> {
    if engine != IoEngine::Libaio {
        return Ok(());
    }
    let open = |p: &Path| File::options().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(p);
    match tempfile::Builder::new().prefix(".lodestore-probe-").make_in(existing(dir), open) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            Err(Failure::other(format!("{}: {NO_DIRECT}", dir.display())))
        }
        // Whatever else is wrong here, making the store will say it better.
        _ => Ok(()),
    }
}

/// Refuses a store for which a file system has no room, before that file system is filled up to
/// find out.
fn check_room(dir: &Path, o: &MkfsOptions) -> Result<(), Failure> {
    let log = o.log_size.unwrap_or((o.size / 32).clamp(16 << 20, 512 << 20));
    let inside = [dir.to_owned()];
    let data = if o.data.is_empty() { &inside[..] } else { &o.data };
    let mut parts: Vec<(&Path, u64)> = data.iter().map(|p| (p.as_path(), o.size / data.len() as u64)).collect();
    parts.push((o.log.as_deref().unwrap_or(dir), log));
    let mut needed: BTreeMap<u64, (&Path, u64)> = BTreeMap::new();
    for (path, bytes) in parts {
        let Ok(m) = fs::metadata(existing(path)) else { continue };
        if !m.file_type().is_block_device() {
            let sum = &mut needed.entry(m.dev()).or_insert((path, 0)).1;
            *sum = sum.saturating_add(bytes);
        }
    }
    for (path, bytes) in needed.into_values() {
        if let Some(free) = device::free_bytes(path)
            && free < bytes
        {
            let (bytes, free) = (units::about(bytes), units::about(free));
            let sentence = format!(
                "no space: the store needs {bytes} on the file system of {}, {free} are free; choose a smaller size or another file system",
                path.display()
            );
            return Err(Failure { code: code::FAILURE, sentence });
        }
    }
    Ok(())
}
