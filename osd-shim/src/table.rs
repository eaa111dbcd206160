//! Results as tables: where the bytes went, then how fast it was, one row a run.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use lodestore_benches::{Report, Side};

mod ledger;

use crate::{flash_table, units};

/// A rule under the header, nothing else.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Both tables with a line above that says what was asked for.
pub fn results(reports: &[Report], place: &str) -> String {
    let Some(first) = reports.first() else { return String::new() };
    let mut out = heading(first, place);
    if reports.iter().any(|r| r.amplification.total.is_some()) {
        out += &format!("\nbytes written per user byte\n{}", bytes(reports));
    }
    out += &ledger::ledger(reports);
    out += &flash_table::flash(reports);
    out + &format!("\nthroughput and cost\n{}", speed(reports))
}

fn heading(r: &Report, place: &str) -> String {
    let c = &r.config;
    let clients = if c.threads == 1 { "1 client".to_owned() } else { format!("{} clients", c.threads) };
    let how_long = match (c.ops, c.runtime_s) {
        (Some(n), _) => format!("{} operations", units::thousands(n)),
        (None, s) => format!("{} s", s.unwrap_or_default()),
    };
    let think = match c.thinktime_us > 0.0 {
        true => format!(", {} us of thought every {}", c.thinktime_us, c.thinktime_blocks),
        false => String::new(),
    };
    format!(
        "{} {} on {} objects of {}: {how_long}, {clients}{think}\n{place}: engine {}, driver {}, overwrites {}, device {}\n",
        c.pattern,
        c.op,
        units::thousands(c.objects),
        units::exact(c.object_size),
        c.engine,
        c.driver,
        c.overwrite,
        c.device.as_deref().unwrap_or("unknown"),
    )
}

pub(crate) fn table(header: &[&str]) -> Table {
    let mut t = Table::new();
    t.load_style(STYLE).set_header(header.iter().map(|h| Cell::new(h).set_alignment(CellAlignment::Right)));
    for c in t.column_iter_mut() {
        c.set_cell_alignment(CellAlignment::Right);
        c.set_padding((1, 1));
    }
    t
}

pub(crate) fn finish(t: &Table) -> String {
    t.trim_fmt() + "\n"
}

fn bytes(reports: &[Report]) -> String {
    let mut t =
        table(&["io", "depth", "data", "log", "kv", "other", "total", "│", "pre-written", "other of this process"]);
    for r in reports {
        let a = &r.amplification;
        let cell = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.3}"));
        let mut row = vec![units::exact(r.config.io_size), r.config.depth.to_string()];
        row.extend([a.data, a.log, a.kv, a.other, a.total].map(cell));
        row.push("│".into());
        row.extend([a.prewrite, a.other_of_process].map(cell));
        t.add_row(row);
    }
    finish(&t)
}

fn speed(reports: &[Report]) -> String {
    let mut t = table(&[
        "io",
        "depth",
        "IOPS",
        "MiB/s",
        "│",
        "mean us",
        "p50",
        "p95",
        "p99",
        "p99.9",
        "max",
        "│",
        "CPU us/op",
        "switches/op",
        "hand-offs/op",
    ]);
    for r in reports {
        let (l, io) = (&r.latency_us, units::exact(r.config.io_size));
        let mut row = vec![
            io.clone(),
            r.config.depth.to_string(),
            units::thousands(r.iops.round() as u64),
            format!("{:.1}", r.mib_per_s),
            "│".into(),
        ];
        row.extend([l.mean, l.p50, l.p95, l.p99, l.p999, l.max].map(microseconds));
        row.push("│".into());
        row.extend([
            format!("{:.1}", r.cpu_us_per_op),
            format!("{:.2}", r.context_switches_per_op),
            format!("{:.2}", r.handoffs_per_op),
        ]);
        t.add_row(row);
        for (name, s) in [("reads", r.reads), ("writes", r.writes)] {
            if let Some(s) = s {
                t.add_row(side(name, &s));
            }
        }
    }
    finish(&t)
}

/// Reads or writes of the mixed run in the row above.
fn side(name: &str, s: &Side) -> Vec<String> {
    let l = &s.latency_us;
    let mut row =
        vec![name.to_owned(), String::new(), units::thousands(s.iops.round() as u64), String::new(), "│".into()];
    row.extend([l.mean, l.p50, l.p95, l.p99, l.p999, l.max].map(microseconds));
    row.extend(["│".into(), String::new(), String::new(), String::new()]);
    row
}

/// Three figures at least: tenths only where they say something.
fn microseconds(us: f64) -> String {
    if us < 100.0 { format!("{us:.1}") } else { units::thousands(us.round() as u64) }
}
