//! `lodestore fsck`: checks a store.

use std::path::PathBuf;
use std::time::Instant;

use lodestore::{FsckError, FsckReport, MountOptions, Store};
use lodestore_benches::IoEngine;
use serde_json::{Value, json};

use crate::failure::{EXIT_CODES, Failure, code};
use crate::{output, units};

/// Unit of damage.
const BLOCK: u64 = lodestore::format::BLOCK_LEN;

/// Checks a store that is not in use: metadata against itself and against the allocator.
///
/// Mounts the store first, so a log left by a crash is replayed. Every finding names the object and
/// the bytes of it that are concerned.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// Directory of the store.
    dir: PathBuf,
    /// Read every block and compare it with its checksum.
    #[arg(long)]
    deep: bool,
    /// Mend what needs no guess: reference counts, marks of free space, totals, keys that belong to
    /// nothing. Damaged contents and metadata are reported only.
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
    let report = Store::fsck(&a.dir, &options, a.deep, a.repair)?;
    let s = begin.elapsed().as_secs_f64();
    let printed = if a.json { print_json(a, &report, s) } else { print_text(a, &report, s) };
    match report.repaired < report.errors.len() as u64 {
        // Also when nobody reads to the end: a script must not take the store for sound.
        true => Err(Failure { code: code::DAMAGE, ..printed.err().unwrap_or(Failure::silent(code::DAMAGE)) }),
        false => printed,
    }
}

fn print_json(a: &Args, r: &FsckReport, seconds: f64) -> Result<(), Failure> {
    let errors: Vec<_> = r.errors.iter().map(|e| finding(e, was_repaired(e, r))).collect();
    output::json(&json!({
        "dir": a.dir.to_string_lossy(),
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

/// Whether a finding is among those that were mended: all that can be are, or none.
fn was_repaired(e: &FsckError, r: &FsckReport) -> bool {
    e.is_repairable() && r.repaired > 0
}

fn finding(e: &FsckError, repaired: bool) -> Value {
    let (kind, at) = match e {
        FsckError::Data { oid, offset, .. } => ("data", Some((oid, *offset))),
        FsckError::Metadata { .. } => ("metadata", None),
        FsckError::DoubleUse { oid, offset, .. } => ("double_use", Some((oid, *offset))),
        FsckError::UsedButFree { oid, offset } => ("used_but_free", Some((oid, *offset))),
        FsckError::Leaked { .. } => ("leaked", None),
        FsckError::RefCount { .. } => ("reference_count", None),
        FsckError::Stray { .. } => ("stray_key", None),
        FsckError::Totals { .. } => ("totals", None),
    };
    json!({
        "kind": kind,
        "what": e.to_string(),
        "object": at.map(|(oid, _)| oid.to_string()),
        "offset": at.map(|(_, offset)| offset),
        "repairable": e.is_repairable(),
        "repaired": repaired,
    })
}

/// One line a finding; damaged blocks of one object that follow each other are one finding.
fn lines(a: &Args, r: &FsckReport) -> Vec<String> {
    let mut lines = Vec::new();
    let mut errors = r.errors.iter().peekable();
    while let Some(e) = errors.next() {
        let FsckError::Data { oid, offset, why } = e else {
            let outcome = match (e.is_repairable(), a.repair) {
                (false, _) => "",
                (true, false) => " (--repair mends it)",
                (true, true) if was_repaired(e, r) => " (mended)",
                (true, true) => " (not mended, because of the others)",
            };
            lines.push(format!("{e}{outcome}"));
            continue;
        };
        let mut end = offset + BLOCK;
        let follows = |e: &&FsckError, end: u64| matches!(e, FsckError::Data { oid: o, offset, .. } if o == oid && *offset == end);
        while errors.next_if(|e| follows(e, end)).is_some() {
            end += BLOCK;
        }
        lines.push(match (end - offset) / BLOCK {
            1 => format!("object {oid} bytes {offset} to {end}: {why}"),
            n => format!("object {oid} bytes {offset} to {end}: {n} blocks; the first: {why}"),
        });
    }
    lines
}

fn print_text(a: &Args, r: &FsckReport, seconds: f64) -> Result<(), Failure> {
    let lines = lines(a, r);
    let mut out: String = lines.iter().map(|l| format!("{l}\n")).collect();
    if r.errors.iter().any(|e| !e.is_repairable()) {
        out += "not to be mended without a guess: write these objects anew from another copy, or remove them\n";
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
    let findings = if lines.len() == 1 { "1 finding".to_owned() } else { format!("{} findings", lines.len()) };
    let found = match (lines.len(), r.repaired) {
        (0, _) => "clean".to_owned(),
        (_, 0) => findings,
        (_, repaired) => format!("{findings}, {repaired} mended"),
    };
    output::text(&format!("{out}{}: {found}; {seen}\n", a.dir.display()))
}
