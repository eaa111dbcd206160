//! Crash states of the real engine, and everything else that a disk can do to it.

use lodestore_tests::crash::{all_workloads, recovery_workloads, sampled_workloads};
use lodestore_tests::faults;
use lodestore_tests::parallel::{budget, seed};
use lodestore_tests::repair;

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
        let (first, n) = (seed().unwrap_or(5_000_000), if seed().is_some() { 1 } else { budget("LODESTORE_WORKLOADS", 3000) });
        println!("seeds {first} to {} (replay one with LODESTORE_SEED)", first + n - 1);
        let checked = sampled_workloads(first, n);
        println!("crash states: {} of {n} long workloads, {checked:?}", checked.states);
    };
    crashes_during_recovery_and_its_recovery_end_in_the_same_states = {
        let checked = recovery_workloads(budget("LODESTORE_RECOVERIES", 1200));
        println!("crash states: {} during recovery, {checked:?}", checked.during_recovery);
    };
    a_power_failure_while_mounting_after_a_kill_loses_nothing_acknowledged = {
        let (first, n) = (seed().unwrap_or(7_000_000), if seed().is_some() { 1 } else { budget("LODESTORE_KILLED", 4000) });
        println!("seeds {first} to {} (replay one with LODESTORE_SEED)", first + n - 1);
        let k = lodestore_tests::killed::then_power_fails(first, n);
        println!("killed, then power failed: {k:?}");
        if n > 1 {
            assert!(k.unflushed * 4 > k.cases && k.interrupted * 4 > k.cases, "most cases test nothing: {k:?}");
        }
    };
    damaged_data_is_never_returned_and_is_named_by_reads_and_fsck = {
        let d = faults::damaged_data(budget("LODESTORE_DAMAGES", 10_500));
        println!("damage cases: {}, of which {} hit an object", d.cases, d.hit);
        assert!(d.hit * 3 > d.cases, "most cases hit nothing");
    };
    damage_inside_the_log_is_refused_and_nothing_is_shortened = {
        let (sectors, refused) = faults::damaged_log();
        println!("damaged sectors of the log: {sectors}, mounts refused: {refused}");
        assert!(refused > 0);
    };
    a_failure_of_a_write_or_sync_stops_writing_and_loses_nothing_acknowledged = {
        println!("fatal faults: {}", faults::fatal_faults());
    };
    a_failure_while_mounting_is_reported_and_the_next_mount_works = {
        println!("faults while mounting: {}", faults::faults_while_mounting());
    };
    a_failed_read_fails_one_request_only = {
        println!("failed reads: {}", faults::failed_reads());
    };
    a_slow_disk_of_depth_one_does_not_deadlock = faults::slow_disk_of_depth_one();
    mkfs_on_a_full_disk_says_so = faults::mkfs_on_a_full_disk();
    whatever_fsck_can_mend_is_mended_and_the_rest_is_left_as_it_is = {
        let r = repair::everything();
        println!("crash states: {} in the middle of a repair, {r:?}", r.crash_states);
    };
}
