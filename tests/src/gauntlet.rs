//! Checks by name, small enough to be run once for each deliberate bug. Each is a part of a test
//! of the same name, with a smaller budget.

use lodestore::Policy;

use crate::cases;
use crate::simstore::SimStore;
use crate::subject::Pair;
use crate::{crash, faults, killed, random};

/// Names the check that this process is to run.
pub const CHECK_ENV: &str = "LODESTORE_CHECK";

/// A check; panics when something is wrong.
pub type Check = fn();

fn case(case: cases::Case) {
    for policy in [Policy::Auto, Policy::Direct, Policy::Deferred] {
        case(&mut Pair::new(&mut SimStore::fresh(24 << 20, 32 << 20, policy)));
    }
}

/// Every check, by the name of the test it is a part of.
pub const CHECKS: &[(&str, Check)] = &[
    ("every_crash_of_every_short_workload_leaves_a_prefix_of_it", || _ = crash::all_workloads(0.1)),
    ("crashes_of_long_workloads_leave_a_prefix_of_them", || _ = crash::sampled_workloads(5_000_000, 1500)),
    ("crashes_during_recovery_and_its_recovery_end_in_the_same_states", || _ = crash::recovery_workloads(300)),
    ("a_power_failure_while_mounting_after_a_kill_loses_nothing_acknowledged", || {
        _ = killed::then_power_fails(7_000_000, 3000)
    }),
    ("damaged_data_is_never_returned_and_is_named_by_reads_and_fsck", || _ = faults::damaged_data(600)),
    ("random_sequences_agree_with_the_model", || {
        crate::parallel::run(600, |i| random::sequence(1_000_000 + i), |_, _| ())
    }),
    ("removing_either_side_leaves_the_other_whole", || {
        case(cases::clones::removing_either_side_leaves_the_other_whole)
    }),
    ("an_overwrite_after_a_clone_changes_one_side_only", || {
        case(cases::clones::an_overwrite_after_a_clone_changes_one_side_only)
    }),
    ("clear_takes_header_and_keys_and_leaves_other_objects_alone", || {
        case(cases::omap::clear_takes_header_and_keys_and_leaves_other_objects_alone)
    }),
    ("truncating_down_and_up_inside_a_block_reads_zeros_behind_the_cut", || {
        case(cases::data::truncating_down_and_up_inside_a_block_reads_zeros_behind_the_cut)
    }),
];

/// Runs the check that the environment names, if it names one.
pub fn run_if_asked() {
    let Ok(name) = std::env::var(CHECK_ENV) else { return };
    let (_, check) = CHECKS.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no check is called '{name}'"));
    check();
}
