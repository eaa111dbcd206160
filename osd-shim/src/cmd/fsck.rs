//! `lodestore fsck`: checks a store.

use std::path::PathBuf;
use std::time::Instant;

use lodestore::{Error, FsckReport, MountOptions, Store};
use lodestore_benches::IoEngine;
use lodestore_kv::KvError;
use lodestore_wal::WalError;
use serde_json::json;

use crate::failure::{EXIT_CODES, Failure, code};
use crate::{output, units};

/// Checks a store that is not in use: metadata against itself and against the allocator.
///
/// Mounts the store first, so a log left by a crash is replayed.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// Directory of the store.
    dir: PathBuf,
    /// Read every block and compare it with its checksum.
    #[arg(long)]
    deep: bool,
    /// Mend what can be mended without guessing.
    #[arg(long)]
    repair: bool,
    /// How files are read: libaio, threads:N or sync.
    #[arg(long, value_name = "ENGINE", default_value = "libaio")]
    engine: IoEngine,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(a: &Args) -> Result<(), Failure> {
    let begin = Instant::now();
    let options = MountOptions { engine: a.engine, ..Default::default() };
    let report = Store::fsck(&a.dir, &options, a.deep, a.repair).map_err(not_checked)?;
    let s = begin.elapsed().as_secs_f64();
    let printed = if a.json { print_json(a, &report, s) } else { print_text(a, &report, s) };
    match report.repaired < report.errors.len() as u64 {
        // Also when nobody reads to the end: a script must not take the store for sound.
        true => Err(Failure { code: code::DAMAGE, ..printed.err().unwrap_or(Failure::silent(code::DAMAGE)) }),
        false => printed,
    }
}

/// A store that is too damaged to be mounted is damaged, not in the way.
fn not_checked(e: Error) -> Failure {
    let damaged = match &e {
        Error::Metadata(_) | Error::Damaged { .. } => true,
        Error::Wal(w) => matches!(**w, WalError::Damaged { .. }),
        Error::Kv(k) => matches!(k, KvError::Damaged { .. }),
        _ => false,
    };
    let f = Failure::from(e);
    if damaged { Failure { code: code::DAMAGE, ..f } } else { f }
}

fn print_json(a: &Args, r: &FsckReport, seconds: f64) -> Result<(), Failure> {
    let errors: Vec<_> =
        r.errors.iter().map(|e| json!({ "what": e.to_string(), "repairable": e.is_repairable() })).collect();
    output::json(&json!({
        "dir": a.dir,
        "deep": a.deep,
        "clean": r.errors.is_empty(),
        "errors": errors,
        "repaired": r.repaired,
        "objects": r.objects,
        "blocks": r.blocks,
        "blocks_read": r.blocks_read,
        "omap_keys": r.omap_keys,
        "seconds": seconds,
    }))
}

fn print_text(a: &Args, r: &FsckReport, seconds: f64) -> Result<(), Failure> {
    let mut out = String::new();
    for e in &r.errors {
        let advice = if e.is_repairable() && !a.repair { " (--repair mends it)" } else { "" };
        out += &format!("{e}{advice}\n");
    }
    let read = match a.deep {
        true => format!(", {} blocks read and compared", units::thousands(r.blocks_read)),
        false => String::new(),
    };
    let seen = format!(
        "{} objects, {} blocks, {} omap keys{read} ({seconds:.1} s)",
        units::thousands(r.objects),
        units::thousands(r.blocks),
        units::thousands(r.omap_keys)
    );
    let found = match (r.errors.len(), r.repaired) {
        (0, _) => "clean".to_owned(),
        (n, 0) => format!("{n} findings"),
        (n, repaired) => format!("{n} findings, {repaired} repaired"),
    };
    output::text(&format!("{out}{}: {found}; {seen}\n", a.dir.display()))
}
