//! The ledger as tables: bytes by class, by type of operation and by device.

use lodestore_benches::Report;
use lodestore_benches::measure::ledger::{DeviceBytes, LedgerReport};

use super::{finish, table};
use crate::units;

/// What follows the table of amplification: of one run every byte; of several, the classes side by
/// side. Nothing where the store does not count.
pub fn ledger(reports: &[Report]) -> String {
    let ledgers: Vec<&LedgerReport> = reports.iter().filter_map(|r| r.ledger.as_ref()).collect();
    match ledgers[..] {
        [] => String::new(),
        [one] if one.user.total == 0 => String::new(),
        [one] => format!("\nevery byte\n{}{}{}", classes(one), operations(one), devices(one)),
        _ => format!("\nevery byte, per user byte\n{}", side_by_side(reports)),
    }
}

fn per_user(bytes: f64, user: u64) -> String {
    if user == 0 { "-".to_owned() } else { format!("{:.4}", bytes / user as f64) }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// Classes with bytes, and what file systems added where it is known.
fn rows(l: &LedgerReport) -> Vec<(String, f64)> {
    let mut rows: Vec<(String, f64)> =
        l.classes.list().into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (words(name), n as f64)).collect();
    rows.extend(l.fs_share.map(|n| ("file system and others".to_owned(), n as f64)));
    rows
}

fn classes(l: &LedgerReport) -> String {
    let mut t = table(&["class", "bytes", "per user byte", "share"]);
    let rows = rows(l);
    let all: f64 = rows.iter().map(|(_, n)| n).sum();
    let mut row = |name: &str, n: f64| {
        let share = format!("{:.2} %", 100.0 * n / all.max(1.0));
        t.add_row(vec![name.to_owned(), signed(n), per_user(n, l.user.total), share]);
    };
    rows.iter().for_each(|(name, n)| row(name, *n));
    row("all", all);
    finish(&t)
}

/// Only where there is more than one type: else the table above says it.
fn operations(l: &LedgerReport) -> String {
    if l.by_op.len() < 2 {
        return String::new();
    }
    let mut t = table(&["operation", "number", "user", "data direct", "data deferred", "log payload", "log metadata"]);
    for (name, o) in &l.by_op {
        let mut row = vec![words(name)];
        row.extend(
            [o.ops, o.user, o.data_direct, o.data_deferred, o.log_payload, o.log_metadata].map(units::thousands),
        );
        t.add_row(row);
    }
    format!("\n{}", finish(&t))
}

/// The two reconciliations: with the kernel's account of the process, and with every device's own.
fn devices(l: &LedgerReport) -> String {
    let mut out = String::new();
    let issued = l.classes.total();
    if let Some(n) = l.process_bytes {
        out += &format!(
            "\nissued {}, by the kernel's account of this process {} ({})\n",
            units::thousands(issued),
            units::thousands(n),
            difference(issued, n)
        );
    }
    if l.devices.len() > 1 {
        let mut t = table(&["device", "under it", "holds", "bytes", "issued", "file system"]);
        t.add_rows(l.devices.iter().map(device));
        out += &format!("\n{}", finish(&t));
    }
    out
}

fn device(d: &DeviceBytes) -> Vec<String> {
    let known = |n: Option<String>| n.unwrap_or_else(|| "-".to_owned());
    vec![
        d.name.clone(),
        d.chain[1..].join(" "),
        d.classes.join(" "),
        units::thousands(d.bytes),
        known(d.counted.map(units::thousands)),
        known(d.counted.map(|n| signed(d.bytes as f64 - n as f64))),
    ]
}

fn difference(counted: u64, kernel: u64) -> String {
    format!("{:+.2} %", 100.0 * (kernel as f64 - counted as f64) / counted.max(1) as f64)
}

fn signed(n: f64) -> String {
    let sign = if n < 0.0 { "-" } else { "" };
    sign.to_owned() + &units::thousands(n.abs() as u64)
}

fn side_by_side(reports: &[Report]) -> String {
    let runs: Vec<(&Report, &LedgerReport)> = reports.iter().filter_map(|r| Some((r, r.ledger.as_ref()?))).collect();
    let heads: Vec<String> =
        runs.iter().map(|(r, _)| format!("{} qd{}", units::exact(r.config.io_size), r.config.depth)).collect();
    let mut header = vec!["class"];
    header.extend(heads.iter().map(String::as_str));
    let mut t = table(&header);
    let by_run: Vec<Vec<(String, f64)>> = runs.iter().map(|(_, l)| rows(l)).collect();
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in by_run.iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        let mut row = vec![name.clone()];
        for ((_, l), rows) in runs.iter().zip(&by_run) {
            let n = rows.iter().find(|(n, _)| n == name).map_or(0.0, |(_, n)| *n);
            row.push(per_user(n, l.user.total));
        }
        t.add_row(row);
    }
    finish(&t)
}
