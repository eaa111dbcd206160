//! `lodestore bench`: measures a store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lodestore::{EngineConfig, MountOptions, Policy};
use lodestore_benches::{
    BenchError, Driver, Filled, Found, IoEngine, Job, JobOptions, Live, Mix, Pattern, Report, Until, Verified, Workload,
};
use serde_json::{Value, json};

use crate::failure::{EXIT_CODES, Failure, code};
use crate::flash_args::FlashArgs;
use crate::interrupt::Interrupt;
use crate::progress::{Title, Watch};
use crate::temporary::Temporary;
use crate::{output, table, units};

/// Measures a store: latency, throughput, and every byte written.
///
/// Fills the objects first, so that every write is an overwrite; objects left by an earlier run
/// with the same number, size and seed are kept. Bytes are counted from the first operation to the
/// end of a flush of everything behind the last one.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// Store to measure; without it, a temporary one in the current directory.
    dir: Option<PathBuf>,
    /// Number of objects.
    #[arg(long, value_name = "N", default_value = "256", value_parser = units::count)]
    objects: u64,
    /// Size of each object.
    #[arg(long, value_name = "SIZE", default_value = "4m", value_parser = units::size)]
    object_size: u64,
    /// Size of each operation; a list gives a row for each.
    #[arg(long, value_name = "SIZE,…", default_value = "128k", value_delimiter = ',', value_parser = units::size)]
    io_size: Vec<u64>,
    /// Operations in flight, over all threads; a list gives a row for each.
    #[arg(long, value_name = "N,…", default_value = "16", value_delimiter = ',', value_parser = units::count)]
    depth: Vec<u64>,
    /// write, read, or mixed:N with N percent of reads.
    #[arg(long, value_name = "OP", default_value = "write")]
    op: Mix,
    /// random or sequential.
    #[arg(long, value_name = "PATTERN", default_value = "random")]
    pattern: Pattern,
    /// How long each row is measured.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time)]
    runtime: Duration,
    /// Measure so many operations instead.
    #[arg(long, value_name = "N", conflicts_with = "runtime", value_parser = units::count)]
    ops: Option<u64>,
    /// Client threads.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count)]
    threads: u64,
    /// Pause, as fio's option of this name: what is in flight is completed, then the thread sleeps.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::time)]
    thinktime: Duration,
    /// Operations between two pauses.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count)]
    thinktime_blocks: u64,
    /// How files are read and written: libaio, threads:N or sync.
    #[arg(long, value_name = "ENGINE", default_value = "libaio")]
    engine: IoEngine,
    /// Who moves the engine: thread (the store's own; operations are handed over) or embedded (the
    /// client itself).
    #[arg(long, value_name = "DRIVER", default_value = "thread")]
    driver: Driver,
    /// How overwrites reach the medium: auto, direct or deferred.
    #[arg(long, value_name = "POLICY", default_value = "auto")]
    overwrite: Policy,
    /// Most object data kept in memory.
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = units::size)]
    data_cache: u64,
    /// Most decoded metadata kept in memory.
    #[arg(long, value_name = "SIZE", default_value = "128m", value_parser = units::size)]
    meta_cache: u64,
    /// Seed of contents and order.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count)]
    seed: u64,
    /// Compare everything that is read with what was written, at the end all of it after a remount.
    #[arg(long)]
    verify: bool,
    /// Print one JSON object instead of tables; of a list, an object with `runs`.
    #[arg(long)]
    json: bool,
    // Last: its heading goes for everything behind it.
    #[command(flatten)]
    flash: FlashArgs,
}

impl Args {
    /// One workload a row.
    fn runs(&self) -> Result<Vec<Workload>, Failure> {
        let mut runs = Vec::new();
        for io_size in &self.io_size {
            for depth in &self.depth {
                let w = Workload {
                    objects: self.objects,
                    object_size: self.object_size,
                    io_size: *io_size,
                    depth: usize::try_from(*depth).unwrap_or(usize::MAX),
                    op: self.op,
                    pattern: self.pattern,
                    until: self.ops.map_or(Until::Time(self.runtime), Until::Ops),
                    threads: usize::try_from(self.threads).unwrap_or(usize::MAX),
                    thinktime: self.thinktime,
                    thinktime_blocks: self.thinktime_blocks,
                    seed: self.seed,
                    verify: self.verify,
                };
                w.check()?;
                runs.push(w);
            }
        }
        if self.driver == Driver::Embedded && self.threads > 1 {
            return Err(Failure::usage(format!(
                "{} threads with --driver embedded: the engine is moved by one",
                self.threads
            )));
        }
        Ok(runs)
    }

    fn options(&self, runs: &[Workload]) -> JobOptions {
        let default = EngineConfig::default();
        let in_flight = runs.iter().map(|w| (w.io_size + (4 << 10)).saturating_mul(w.depth as u64)).max().unwrap_or(0);
        let config = EngineConfig {
            policy: self.overwrite,
            data_cache_bytes: self.data_cache,
            meta_cache_bytes: self.meta_cache,
            submitted_bytes_max: default.submitted_bytes_max.max(in_flight),
            ..default
        };
        JobOptions {
            mount: MountOptions { engine: self.engine, config, ..Default::default() },
            driver: self.driver,
            flash: self.flash.options(),
        }
    }
}

/// Everything there is to print.
struct Results {
    filled: Filled,
    reports: Vec<Report>,
    verified: Option<Verified>,
}

/// Runs the command.
pub fn run(a: &Args) -> Result<(), Failure> {
    let runs = a.runs()?;
    let interrupt = Interrupt::listen()?;
    let temporary = match &a.dir {
        Some(_) => None,
        None => Some(Temporary::make(&runs, a.engine, &interrupt)?),
    };
    let dir = a.dir.as_deref().or(temporary.as_ref().map(Temporary::path)).expect("given or made");
    let measured = measure(a, dir, &runs, interrupt.live());
    // What went wrong first is what counts.
    let removed = temporary.map_or(Ok(()), Temporary::remove);
    let results = measured?;
    removed?;
    if a.json {
        print_json(&results)?
    } else {
        print_text(a, &results)?
    }
    match interrupt.live().stopped() {
        true => Err(Failure { code: code::INTERRUPTED, sentence: "interrupted: these are the results so far".into() }),
        false => Ok(()),
    }
}

fn measure(a: &Args, dir: &Path, runs: &[Workload], live: &std::sync::Arc<Live>) -> Result<Results, Failure> {
    let watch = Watch::start(live, Title::default());
    let (mut job, filled) = Job::prepare(dir, a.options(runs), runs, live)?;
    drop(watch);
    let measured = rows(a, &mut job, runs, live);
    let finished = job.finish();
    let (reports, verified) = measured?;
    finished?;
    Ok(Results { filled, reports, verified })
}

fn rows(
    a: &Args,
    job: &mut Job,
    runs: &[Workload],
    live: &std::sync::Arc<Live>,
) -> Result<(Vec<Report>, Option<Verified>), Failure> {
    let mut reports = Vec::new();
    for (i, w) in runs.iter().enumerate() {
        let row = if runs.len() > 1 { format!("{}/{} ", i + 1, runs.len()) } else { String::new() };
        let name = format!("{row}{} {} depth {}", w.op, units::exact(w.io_size), w.depth);
        let runtime = a.ops.is_none().then_some(a.runtime);
        let _watch = Watch::start(live, Title { name, runtime });
        match job.run(w, live) {
            Ok(report) => reports.push(report),
            Err(BenchError::Stopped) if !reports.is_empty() => break,
            Err(e) => return Err(e.into()),
        }
        if live.stopped() {
            break;
        }
    }
    let mut verified = None;
    if a.verify && !live.stopped() {
        let _watch = Watch::start(live, Title::default());
        verified = runs.first().map(|w| job.verify(w, live)).transpose()?;
    }
    Ok((reports, verified))
}

fn print_json(r: &Results) -> Result<(), Failure> {
    let mut runs = Vec::new();
    for report in &r.reports {
        runs.push(serde_json::to_value(report).map_err(|e| Failure::other(format!("making JSON: {e}")))?);
    }
    let mut all = match runs.len() {
        1 => runs.remove(0),
        _ => json!({ "runs": runs }),
    };
    if let Value::Object(o) = &mut all {
        o.insert("filled_bytes".into(), r.filled.bytes.into());
        if let Some(v) = r.verified {
            o.insert("verified_bytes".into(), v.bytes.into());
        }
    }
    output::json(&all)
}

fn print_text(a: &Args, r: &Results) -> Result<(), Failure> {
    let place = a.dir.as_ref().map_or_else(|| "temporary store".to_owned(), |d| d.display().to_string());
    let mut out = table::results(&r.reports, &place);
    out += &match r.filled.bytes {
        0 => "\nobjects: kept from an earlier run\n".to_owned(),
        n => {
            let why = match r.filled.found {
                Found::Unverifiable => "; those of an earlier run without --verify could not be compared",
                Found::Same | Found::Other => "",
            };
            format!("\nobjects: {} filled in {:.1} s{why}\n", units::about(n), r.filled.elapsed.as_secs_f64())
        }
    };
    if let Some(v) = r.verified {
        out += &format!(
            "verified: {} read after a remount, all as written ({:.1} s)\n",
            units::about(v.bytes),
            v.elapsed.as_secs_f64()
        );
    }
    output::text(&out)
}
