//! Runs numbered pieces of work on two threads, which is what the smallest machine has.

use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that share the work.
pub const THREADS: usize = 2;

/// The seed of a random test: `LODESTORE_SEED`, or a fixed one so that every run is the same.
pub fn seed() -> Option<u64> {
    std::env::var("LODESTORE_SEED").ok().map(|s| s.parse().expect("LODESTORE_SEED is a number"))
}

/// A budget from the environment, or its default.
pub fn budget(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |s| s.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Calls `work` with 0 to `n - 1` on [`THREADS`] threads and gives each result to `gather`, in
/// order of the numbers. A panic of any piece ends the run with that panic.
pub fn run<T: Send>(n: u64, work: impl Fn(u64) -> T + Sync, mut gather: impl FnMut(u64, T)) {
    let next = AtomicU64::new(0);
    let mut results: Vec<(u64, T)> = Vec::new();
    std::thread::scope(|s| {
        let worker = || {
            let mut mine = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    return mine;
                }
                // A panic anywhere ends the work everywhere.
                let guard = Stop { next: &next, n };
                mine.push((i, work(i)));
                std::mem::forget(guard);
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| s.spawn(worker)).collect();
        for t in threads {
            match t.join() {
                Ok(mine) => results.extend(mine),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().for_each(|(i, r)| gather(i, r));
}

struct Stop<'a> {
    next: &'a AtomicU64,
    n: u64,
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.next.store(self.n, Ordering::Relaxed);
    }
}
