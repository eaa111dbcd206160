//! Processes killed at any moment and at the engine's fail points, on a real directory; system calls
//! that fail; panics.

use lodestore_tests::failing::{self, INJECTIONS};
use lodestore_tests::kill::{Kills, child_if_asked, kill_repeatedly};
use lodestore_tests::panics;
use lodestore_tests::realstore::temp_dir;

/// Directories, and kills on each: each kill finds what the ones before it left.
const DIRECTORIES: u64 = 32;
const KILLS_EACH: u64 = 12;

/// Does nothing unless this process was started to be killed.
#[test]
fn child() {
    child_if_asked();
}

#[test]
fn whatever_was_acknowledged_survives_a_kill_whole_and_in_order() {
    let seed = std::env::var("LODESTORE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let run = |half: u64| {
        let mut sum = Kills::default();
        for d in (0..DIRECTORIES).filter(|d| d % 2 == half) {
            let dir = temp_dir();
            let k = kill_repeatedly(dir.path(), seed + d, KILLS_EACH, "child");
            sum.kills += k.kills;
            sum.at_points += k.at_points;
            sum.acked += k.acked;
            sum.survived += k.survived;
        }
        sum
    };
    let (a, b) = std::thread::scope(|s| {
        let other = s.spawn(|| run(1));
        (run(0), other.join().expect("the other half"))
    });
    let kills = a.kills + b.kills;
    println!(
        "kills: {kills} (seed {seed}; {} at fail points; {} transactions acknowledged before, {} more survived)",
        a.at_points + b.at_points,
        a.acked + b.acked,
        a.survived + b.survived
    );
    assert!(kills >= 300, "only {kills} children died at work");
    assert!(a.at_points + b.at_points > 0, "no child reached its fail point");
}

/// Does nothing unless this process was started to have its system calls fail.
#[test]
fn failing_child() {
    failing::child_if_asked();
}

#[test]
fn a_system_call_that_fails_stops_the_store_and_loses_nothing_acknowledged() {
    let (mut injected, mut stopped, mut refused) = (0, 0, 0);
    for what in INJECTIONS {
        let mut happened = 0;
        for n in [1, 2, 5, 12, 30] {
            let outcome = failing::inject(what, n, "failing_child");
            happened += u64::from(outcome.injected > 0);
            injected += outcome.injected;
            stopped += u64::from(outcome.stopped);
            refused += u64::from(outcome.refused);
        }
        assert!(happened > 1, "{what:?} tests nothing");
    }
    println!("injected errors: {injected} by strace ({stopped} stopped a store, {refused} refused a mount)");
}

#[test]
fn a_panic_in_the_engine_leaves_no_half_transaction() {
    let reached = panics::in_the_engine(9_000_000, 500);
    println!("panics: {} in the engine: {reached:?}", reached.values().sum::<u64>());
    let never: Vec<_> = reached.iter().filter(|(_, n)| **n == 0).collect();
    assert!(never.is_empty(), "fail points never reached: {never:?}");
}

#[test]
fn a_panic_in_the_stores_thread_answers_everybody_and_frees_the_directory() {
    let reached = panics::in_the_stores_thread(1);
    println!("panics: {} in a store's thread: {reached:?}", reached.values().sum::<u64>());
    let never: Vec<_> = reached.iter().filter(|(_, n)| **n == 0).collect();
    assert!(never.is_empty(), "fail points never reached: {never:?}");
}
