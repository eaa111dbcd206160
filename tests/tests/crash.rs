//! Crash states of the real engine, and everything else that a disk can do to it.

use lodestore_tests::crash::{all_workloads, recovery_workloads, sampled_workloads};
use lodestore_tests::parallel::{budget, seed};

macro_rules! tests {
    ($($name:ident = $body:expr;)*) => {
        $(#[test]
        fn $name() {
            $body
        })*
    };
}

tests! {
    every_crash_of_every_short_workload_leaves_a_prefix_of_it = {
        let checked = all_workloads(1.0);
        println!("crash states: {} of all short workloads, {checked:?}", checked.states);
    };
    crashes_of_long_workloads_leave_a_prefix_of_them = {
        let (first, n) = (seed().unwrap_or(5_000_000), if seed().is_some() { 1 } else { budget("LODESTORE_WORKLOADS", 1500) });
        println!("seeds {first} to {} (replay one with LODESTORE_SEED)", first + n - 1);
        let checked = sampled_workloads(first, n);
        println!("crash states: {} of {n} long workloads, {checked:?}", checked.states);
    };
    crashes_during_recovery_and_its_recovery_end_in_the_same_states = {
        let checked = recovery_workloads(budget("LODESTORE_RECOVERIES", 400));
        println!("crash states: {} during recovery, {checked:?}", checked.during_recovery);
    };
}
