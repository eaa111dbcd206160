//! Progress bars on standard error; nothing at all where that is no terminal.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lodestore_benches::{Live, Stage};

use crate::units;

/// Between two looks at what is going on.
const TICK: Duration = Duration::from_millis(200);
/// Columns of the gauge.
const GAUGE: usize = 30;

/// A line, hidden where there is no terminal.
pub fn bar() -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(ProgressStyle::with_template("{msg}").expect("a constant template"));
    bar
}

/// Shows everything by one call: several would be drawn, or not, each on its own.
fn show(bar: &ProgressBar, what: &str, done: u64, total: u64, figures: &str) {
    let full = (done as f64 / total.max(1) as f64 * GAUGE as f64).min(GAUGE as f64) as usize;
    let (full, rest) = ("━".repeat(full), "─".repeat(GAUGE - full));
    bar.set_message(format!("{what:>22} \x1b[36m{full}\x1b[0m{rest} {figures}"));
}

/// Shows a part of a whole, in bytes.
pub fn show_bytes(bar: &ProgressBar, what: &str, done: u64, total: u64, begin: Instant) {
    let s = begin.elapsed().as_secs_f64();
    let rate = if s > 0.05 { format!("  {}/s", units::about((done as f64 / s) as u64)) } else { String::new() };
    show(bar, what, done, total, &format!("{} of {}{rate}", units::about(done), units::about(total)));
}

/// What a run is called, and how long it takes if time is what ends it.
#[derive(Clone, Default)]
pub struct Title {
    pub name: String,
    pub runtime: Option<Duration>,
}

/// Draws what `live` says until dropped.
pub struct Watch {
    done: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Watch {
    /// Begins to draw; without a terminal there is no thread that could disturb a measurement.
    pub fn start(live: &Arc<Live>, title: Title) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let (live, finished) = (live.clone(), done.clone());
        let thread = io::stderr().is_terminal().then(|| thread::spawn(move || watch(&live, &title, &finished)));
        Watch { done, thread }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            t.thread().unpark();
            // It only draws: whatever became of it, the result counts.
            let _ = t.join();
        }
    }
}

fn watch(live: &Live, title: &Title, finished: &AtomicBool) {
    let bar = bar();
    let (mut stage, mut begin, mut last) = (Stage::Idle, Instant::now(), (0, Instant::now()));
    while !finished.load(Ordering::Relaxed) {
        if live.stage() != stage {
            (stage, begin) = (live.stage(), Instant::now());
            last = (0, begin);
        }
        let (done, total) = (live.done(), live.total());
        match stage {
            Stage::Filling => show_bytes(&bar, "filling", done, total, begin),
            Stage::Verifying => show_bytes(&bar, "verifying", done, total, begin),
            // A rate needs a time: the first look has none.
            Stage::Running if last.1.elapsed() > TICK / 2 => {
                let iops = done.saturating_sub(last.0) as f64 / last.1.elapsed().as_secs_f64();
                let bytes_each = live.bytes() as f64 / done.max(1) as f64;
                last = (done, Instant::now());
                show_run(&bar, title, (done, total), begin.elapsed(), (iops, iops * bytes_each));
            }
            Stage::Settling => bar.set_message(format!("{:>22} flushing what is left", title.name)),
            Stage::Running | Stage::Idle => {}
        }
        thread::park_timeout(TICK);
    }
    bar.finish_and_clear();
}

/// Shows a run: how far it is, by time or by operations, and how fast.
fn show_run(bar: &ProgressBar, title: &Title, ops: (u64, u64), elapsed: Duration, (iops, bytes): (f64, f64)) {
    let speed = format!("{:>9} IOPS  {}/s", units::thousands(iops as u64), units::about(bytes as u64));
    let (at, of, left) = match title.runtime {
        Some(t) => {
            let left = format!("{:.0} s of {:.0} s", elapsed.min(t).as_secs_f64(), t.as_secs_f64());
            (elapsed.as_millis() as u64, t.as_millis() as u64, left)
        }
        None => (ops.0, ops.1, format!("{} of {} operations", units::thousands(ops.0), units::thousands(ops.1))),
    };
    show(bar, &title.name, at, of, &format!("{left}  {speed}"));
}
