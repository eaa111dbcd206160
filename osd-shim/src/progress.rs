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
/// Steps of a bar whose unit is time.
const STEPS: u64 = 1000;

/// A bar, hidden where there is no terminal.
pub fn bar() -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(STEPS), target);
    bar.set_style(
        ProgressStyle::with_template("{prefix:>22} {bar:30.cyan} {msg}")
            .expect("a constant template")
            .progress_chars("━╸─"),
    );
    bar
}

/// Shows a part of a whole, in bytes.
pub fn show_bytes(bar: &ProgressBar, what: &str, done: u64, total: u64, begin: Instant) {
    let rate = (done as f64 / begin.elapsed().as_secs_f64().max(0.001)) as u64;
    bar.set_length(total.max(1));
    bar.set_position(done);
    bar.set_prefix(what.to_owned());
    bar.set_message(format!("{} of {}  {}/s", units::about(done), units::about(total), units::about(rate)));
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
        let (done, total, now) = (live.done(), live.total(), Instant::now());
        match stage {
            Stage::Filling => show_bytes(&bar, "filling", done, total, begin),
            Stage::Verifying => show_bytes(&bar, "verifying", done, total, begin),
            Stage::Running => {
                let since = now.duration_since(last.1).as_secs_f64().max(0.001);
                let (iops, bytes) =
                    (done.saturating_sub(last.0) as f64 / since, live.bytes() as f64 / done.max(1) as f64);
                last = (done, now);
                let elapsed = begin.elapsed();
                let (at, of, left) = match title.runtime {
                    Some(t) => (
                        elapsed.min(t).as_millis() as u64,
                        t.as_millis() as u64,
                        format!("{:.0} s of {:.0} s", elapsed.as_secs_f64(), t.as_secs_f64()),
                    ),
                    None => (done, total, format!("{} of {} ops", units::thousands(done), units::thousands(total))),
                };
                bar.set_length(of.max(1));
                bar.set_position(at);
                bar.set_prefix(title.name.clone());
                bar.set_message(format!(
                    "{left}  {} IOPS  {}/s",
                    units::thousands(iops as u64),
                    units::about((iops * bytes) as u64)
                ));
            }
            Stage::Settling => bar.set_message("flushing what is left"),
            Stage::Idle => bar.tick(),
        }
        thread::park_timeout(TICK);
    }
    bar.finish_and_clear();
}
