//! `lodestore mkfs`: makes a store.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use lodestore::{Layout, MkfsOptions, MkfsReport, Store};
use lodestore_benches::IoEngine;
use lodestore_benches::measure::device;
use serde_json::json;

use crate::failure::{EXIT_CODES, Failure, NO_DIRECT, code};
use crate::interrupt::Interrupt;
use crate::{output, progress, units};

/// Makes a store in an empty or new directory.
///
/// If it fails or is interrupted, nothing is left behind (but a block device may be overwritten in
/// part). What a device or file holds is never overwritten without --force.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// Directory of the store.
    dir: PathBuf,
    /// Room for object data, over all fragment files; a block device brings its own size.
    #[arg(long, value_name = "SIZE", default_value = "16g", value_parser = units::size)]
    size: u64,
    /// File to make, or block device to use, as a fragment file; may be given several times.
    #[arg(long, value_name = "PATH")]
    data: Vec<PathBuf>,
    /// File to make, or block device to use, for the log.
    #[arg(long, value_name = "PATH")]
    log: Option<PathBuf>,
    /// Size of the log; without it 1/32 of --size, 16m to 512m. A transaction fits into an eighth.
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    log_size: Option<u64>,
    /// Directory to make for the key-value store.
    #[arg(long, value_name = "PATH")]
    kv: Option<PathBuf>,
    /// Overwrite block devices that hold something, and replace files that exist.
    #[arg(long)]
    force: bool,
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
        log_size: a.log_size,
        force: a.force,
        engine: a.engine,
        ..Default::default()
    };
    let interrupt = Interrupt::listen()?;
    let begin = Instant::now();
    let MkfsReport { layout, written } = make(&a.dir, &options, &interrupt)?;
    let s = begin.elapsed().as_secs_f64();
    let size: u64 = layout.data.iter().sum();
    if a.json {
        return output::json(&json!({
            "dir": a.dir.to_string_lossy(),
            "size": size,
            "data": layout.data,
            "log": layout.log,
            "segment": layout.segment,
            "prewritten": layout.prewrite,
            "engine": a.engine.to_string(),
            "seconds": s,
            "written": { "prewrite": written.prewrite, "other": written.mkfs },
        }));
    }
    output::text(&format!(
        "made a store of {} in {}, with a log of {} ({s:.1} s)\n",
        units::about(size),
        a.dir.display(),
        units::about(layout.log)
    ))
}

/// Makes a store, showing progress. Everything made so far is removed on failure and on a signal.
pub fn make(dir: &Path, options: &MkfsOptions, interrupt: &Interrupt) -> Result<MkfsReport, Failure> {
    let layout = options.check(dir)?;
    check_room(dir, options, &layout)?;
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
fn check_room(dir: &Path, o: &MkfsOptions, layout: &Layout) -> Result<(), Failure> {
    let data = layout.data.iter().enumerate().map(|(n, len)| (o.data.get(n).map_or(dir, PathBuf::as_path), *len));
    let parts: Vec<(&Path, u64)> = data.chain([(o.log.as_deref().unwrap_or(dir), layout.log)]).collect();
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
                "no space: the store needs {bytes} on the file system of {}, {free} are free; choose a smaller --size or another file system",
                path.display()
            );
            return Err(Failure { code: code::FAILURE, sentence });
        }
    }
    Ok(())
}
