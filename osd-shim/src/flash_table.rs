//! What the runs cost the flash, as a table: host bytes, flash bytes and their quotient by class.

use lodestore_benches::Report;
use lodestore_benches::flash::{FlashModel, FlashReport};

use crate::table::{finish, table};
use crate::units;

/// The table with what has to be known about its figures; empty without any.
pub fn flash(reports: &[Report]) -> String {
    let with_flash = || reports.iter().filter_map(|r| Some((r, r.flash.as_ref()?)));
    let Some((_, first)) = with_flash().next() else { return String::new() };
    let mut t = table(&["io", "depth", "class", "host", "flash", "WA", "│", "flash per user byte"]);
    let mut lines: Vec<String> = Vec::new();
    for (r, f) in with_flash() {
        let row = [units::exact(r.config.io_size), r.config.depth.to_string()];
        let cell = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.3}"));
        for (class, b) in &f.by_class {
            let sizes = [units::about(b.host), units::about(b.media), format!("{:.3}", b.wa)];
            t.add_row(row.iter().cloned().chain([(*class).to_owned()]).chain(sizes).chain(["│".into(), String::new()]));
        }
        if f.host_bytes > 0 {
            let media = f.media_bytes.map_or_else(|| "-".to_owned(), units::about);
            let sizes = [units::about(f.host_bytes), media, cell(f.wa), "│".into(), cell(f.per_user_byte)];
            t.add_row(row.iter().cloned().chain(["total".to_owned()]).chain(sizes));
        }
        // The same remark on every row is made once.
        lines.extend(remarks(f).into_iter().filter(|l| !lines.contains(l)).collect::<Vec<_>>());
    }
    let what = match &first.model {
        Some(m) => described(m),
        None => "by the drive's own counters, which other writers share".to_owned(),
    };
    let rows = if t.is_empty() { String::new() } else { finish(&t) };
    let remarks: String = lines.iter().map(|l| format!("{l}\n")).collect();
    format!("\nbytes written to flash, {what}\n{rows}{remarks}")
}

fn described(m: &FlashModel) -> String {
    format!(
        "by a model of a full drive of {} with {}% more flash, erase blocks of {}{}{}",
        units::about(m.drive_bytes),
        // As it was asked for, not as it is stored.
        (m.over_provisioning * 1e4).round() / 100.0,
        units::exact(m.block_bytes),
        if m.streams { ", streams by class" } else { "" },
        if m.trim { ", trim" } else { "" },
    )
}

/// What a reader must know before the figure is believed.
fn remarks(f: &FlashReport) -> Vec<String> {
    let mut out = Vec::new();
    match &f.model {
        Some(m) if !m.steady => {
            let changing = match m.wa_quarters {
                Some((a, b)) if m.drives_written >= 1.0 => {
                    format!("WA was {a:.2} in the third quarter of the run and {b:.2} in the last")
                }
                _ => format!(
                    "the drive had been written {:.2} times when the second half of the run began, and it takes once",
                    m.drives_written
                ),
            };
            let longer =
                m.steady_after_s.map_or_else(String::new, |s| format!("; about {s:.0} s would do at this rate"));
            out.push(format!("not the steady state, a longer run may give more: {changing}{longer}"));
        }
        Some(_) => {}
        None => out.extend(f.note.clone()),
    }
    out
}
