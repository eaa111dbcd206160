//! What the kernel counts of this process.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of every thread this process has or had, in user and kernel mode.
pub fn cpu() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs() as u32)
}

/// Bytes this process caused to be sent to storage (`write_bytes` of `/proc/self/io`): direct
/// writes when issued, buffered ones when a page becomes dirty. `None` where the kernel does not
/// count.
pub fn written_bytes() -> Option<u64> {
    number_after(&fs::read_to_string("/proc/self/io").ok()?, "write_bytes:")
}

/// Memory of this process now and at its most, in bytes.
pub fn memory() -> Option<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some((number_after(&status, "VmRSS:")? << 10, number_after(&status, "VmHWM:")? << 10))
}

/// Voluntary context switches of the calling thread since it began.
pub fn switches_of_this_thread() -> u64 {
    fs::read_to_string("/proc/thread-self/status").map_or(0, |s| voluntary(&s))
}

/// Voluntary context switches by thread.
#[derive(Debug, Default)]
pub struct Switches(HashMap<String, u64>);

impl Switches {
    /// Of every thread there is.
    pub fn now() -> Self {
        let mut by_thread = HashMap::new();
        for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            // A thread may end while it is being looked at.
            if let Ok(status) = fs::read_to_string(task.path().join("status")) {
                by_thread.insert(task.file_name().to_string_lossy().into_owned(), voluntary(&status));
            }
        }
        Switches(by_thread)
    }

    /// Of all threads that are still there, since `earlier`.
    pub fn since(&self, earlier: &Switches) -> u64 {
        self.0.iter().map(|(task, n)| n.saturating_sub(earlier.0.get(task).copied().unwrap_or(0))).sum()
    }
}

fn voluntary(status: &str) -> u64 {
    number_after(status, "\nvoluntary_ctxt_switches:").unwrap_or(0)
}

fn number_after(text: &str, label: &str) -> Option<u64> {
    let (_, rest) = text.split_once(label)?;
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_their_labels() {
        let status = "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(number_after(status, "VmRSS:"), Some(1024));
        assert_eq!(voluntary(status), 7);
        assert_eq!(number_after(status, "VmSwap:"), None);
    }

    #[test]
    fn a_thread_that_sleeps_is_counted() {
        let before = switches_of_this_thread();
        std::thread::sleep(Duration::from_millis(2));
        assert!(switches_of_this_thread() > before);
        assert!(cpu() > Duration::ZERO);
        assert!(memory().is_some_and(|(now, most)| now > 0 && most >= now));
    }
}
