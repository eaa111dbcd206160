//! Deliberate bugs, each of which a named test must notice: a test that cannot fail proves nothing.

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};

use lodestore::bugs::BUGS;
use lodestore_tests::gauntlet::{CHECK_ENV, CHECKS, run_if_asked};

/// The bug, and the test that must notice it.
const NOTICED: &[(&str, &str)] = &[
    ("ack-before-flush", "every_crash_of_every_short_workload_leaves_a_prefix_of_it"),
    ("reuse-freed-early", "crashes_of_long_workloads_leave_a_prefix_of_them"),
    ("replay-without-checksum-rule", "every_crash_of_every_short_workload_leaves_a_prefix_of_it"),
    ("apply-before-durable", "every_crash_of_every_short_workload_leaves_a_prefix_of_it"),
    ("refcount-off-by-one", "removing_either_side_leaves_the_other_whole"),
    ("skip-read-checksum", "damaged_data_is_never_returned_and_is_named_by_reads_and_fsck"),
    ("deferred-not-replayed", "every_crash_of_every_short_workload_leaves_a_prefix_of_it"),
    ("trim-too-far", "crashes_of_long_workloads_leave_a_prefix_of_them"),
    ("forget-omap-clear", "clear_takes_header_and_keys_and_leaves_other_objects_alone"),
    ("deferred-before-durable", "every_crash_of_every_short_workload_leaves_a_prefix_of_it"),
    ("overwrite-shared", "an_overwrite_after_a_clone_changes_one_side_only"),
    ("truncate-keeps-tail", "truncating_down_and_up_inside_a_block_reads_zeros_behind_the_cut"),
    ("believe-unflushed-log", "a_power_failure_while_mounting_after_a_kill_loses_nothing_acknowledged"),
];

/// Does nothing unless this process was started to run one check.
#[test]
fn child() {
    run_if_asked();
}

fn run(check: &str, bug: Option<&str>) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its binary"));
    command
        .args(["--exact", "child", "--nocapture"])
        .env(CHECK_ENV, check)
        .env("RUST_BACKTRACE", "0")
        .env_remove("LODESTORE_SEED");
    match bug {
        Some(bug) => command.env("LODESTORE_BUG", bug),
        None => command.env_remove("LODESTORE_BUG"),
    };
    command.stdin(Stdio::null()).output().expect("the test binary can be started again")
}

fn text(o: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr))
}

#[test]
fn every_deliberate_bug_is_noticed_by_its_test() {
    let known: Vec<&str> = BUGS.iter().map(|(_, name)| *name).collect();
    let listed: Vec<&str> = NOTICED.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, known, "every bug of the engine has its test here");
    assert!(known.len() >= 10);
    // A name that is no bug's must be refused, or a misspelt one would pass for a noticed one.
    assert!(text(&run(CHECKS[5].0, Some("no-such-bug"))).contains("no bug is called"));

    let mut sound: BTreeMap<&str, bool> = BTreeMap::new();
    let mut missed = Vec::new();
    for (bug, check) in NOTICED {
        if !*sound.entry(check).or_insert_with(|| run(check, None).status.success()) {
            panic!("{check} fails without any bug: {}", text(&run(check, None)));
        }
        let o = run(check, Some(bug));
        let said = text(&o);
        let how = said
            .lines()
            .skip_while(|l| !l.contains("panicked at"))
            .nth(1)
            .unwrap_or("")
            .chars()
            .take(200)
            .collect::<String>();
        match o.status.success() {
            true => missed.push(*bug),
            false => println!("{bug}: noticed by {check}: {how}"),
        }
    }
    assert!(missed.is_empty(), "bugs that nobody noticed: {missed:?}");
    println!("deliberate bugs: {}, each noticed", NOTICED.len());
}
