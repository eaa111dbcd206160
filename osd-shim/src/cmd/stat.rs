//! `lodestore stat`: what a store holds and how its last mount went.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lodestore::format::superblock::{self, Superblock, uuid_text};
use lodestore::{Counters, MountOptions, Stats, Store};
use lodestore_benches::IoEngine;
use lodestore_benches::measure::process;
use lodestore_kv::CFS;
use serde_json::{Map, Value, json};

use crate::failure::{EXIT_CODES, Failure, code};
use crate::{output, units};

/// Shows the space and counters of a store that is not in use.
///
/// Mounts the store, so a log left by a crash is replayed.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// Directory of the store.
    dir: PathBuf,
    /// How files are read: libaio, threads:N or sync.
    #[arg(long, value_name = "ENGINE", default_value = "libaio")]
    engine: IoEngine,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

struct Found {
    superblock: Superblock,
    stats: Stats,
    mount_ms: f64,
    rss: Option<u64>,
}

/// Runs the command.
pub fn run(a: &Args) -> Result<(), Failure> {
    let begin = Instant::now();
    let store = Store::mount(&a.dir, &MountOptions { engine: a.engine, ..Default::default() })?;
    let mount_ms = (begin.elapsed().as_secs_f64() * 1e5).round() / 100.0;
    let stats = store.stats()?;
    let rss = process::memory().map(|(now, _)| now);
    let unmounted = store.umount();
    let poisoned = stats.poisoned.clone();
    if poisoned.is_none() {
        unmounted?;
    }
    let found = Found { superblock: superblock(&a.dir)?, stats, mount_ms, rss };
    let printed = if a.json { print_json(a, &found) } else { print_text(a, &found) };
    match poisoned {
        // What makes a store read-only as soon as it is mounted is damage to its metadata.
        Some(reason) => Err(Failure { code: code::DAMAGE, sentence: format!("the store is read-only: {reason}") }),
        None => printed,
    }
}

fn superblock(dir: &Path) -> Result<Superblock, Failure> {
    let path = dir.join(superblock::FILE);
    let bytes = fs::read(&path).map_err(|e| Failure::other(format!("{}: {e}", path.display())))?;
    Ok(Superblock::decode(&bytes, &path.display().to_string())?)
}

/// Names and values, in the order of the definition.
fn counters(c: &Counters) -> Vec<(&'static str, u64)> {
    macro_rules! list {
        ($($name:ident)*) => {{
            let Counters { $($name),* } = *c;
            vec![$((stringify!($name), $name)),*]
        }};
    }
    list!(commits refused enospc_refused batches group_commits syncs log_wraps log_full_waits space_waits lookups_elsewhere
        allocator_wraps cow_copies blocks_fetched deferred_applied deferred_coalesced deferred_dropped kv_flushes
        trims cache_hits reads_retried damaged_blocks records_replayed records_cut torn_tails_cut deferred_replayed
        allocator_rebuilds)
}

fn print_json(a: &Args, f: &Found) -> Result<(), Failure> {
    let s = &f.stats.space;
    let families: Map<String, Value> = CFS
        .iter()
        .zip(&f.stats.kv.by_cf)
        .map(|(cf, c)| {
            (cf.name().to_owned(), json!({ "table_bytes": c.table_bytes, "memtable_bytes": c.memtable_bytes }))
        })
        .collect();
    let counters: Map<String, Value> =
        counters(&f.stats.counters).into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
    output::json(&json!({
        "dir": a.dir.to_string_lossy(),
        "uuid": uuid_text(&f.superblock.uuid),
        "layout": { "data": f.superblock.layout.data, "log": f.superblock.layout.log, "segment": f.superblock.layout.segment },
        "space": {
            "total": s.total, "available": s.available, "allocated": s.allocated, "stored": s.stored,
            "limbo": s.limbo, "prewritten": s.prewritten, "omap": s.omap, "metadata": s.metadata,
        },
        "objects": s.objects,
        "kv": families,
        "mount_ms": f.mount_ms,
        "rss": f.rss,
        "counters": counters,
        "poisoned": f.stats.poisoned.as_deref(),
    }))
}

fn print_text(a: &Args, f: &Found) -> Result<(), Failure> {
    let (s, c, l) = (&f.stats.space, &f.stats.counters, &f.superblock.layout);
    let percent = |n: u64| 100.0 * n as f64 / s.total.max(1) as f64;
    let mut out = format!("{}  {}\n\n", a.dir.display(), uuid_text(&f.superblock.uuid));
    let mut row =
        |name: &str, bytes: u64, note: String| out += &format!("  {name:<12} {:>10}  {note}\n", units::about(bytes));
    row("total", s.total, format!("{} fragment file(s), log of {}", l.data.len(), units::about(l.log)));
    row("allocated", s.allocated, format!("{:.1} %", percent(s.allocated)));
    row("stored", s.stored, format!("{} objects", units::thousands(s.objects)));
    row("available", s.available, format!("{:.1} %", percent(s.available)));
    row("limbo", s.limbo, "freed, waits for a trim of the log".into());
    row("pre-written", s.prewritten, format!("{:.1} %", percent(s.prewritten)));
    row("metadata", s.metadata, "tables and memtables".into());
    row("omap", s.omap, "tables and memtables".into());
    let how = if c.records_replayed > 0 || c.allocator_rebuilds > 0 { "after a crash" } else { "clean" };
    out += &format!("\nmounted {how} in {:.1} ms", f.mount_ms);
    for (name, n) in counters(c).into_iter().filter(|(_, n)| *n > 0) {
        out += &format!(", {name} {}", units::thousands(n));
    }
    output::text(&(out + "\n"))
}
