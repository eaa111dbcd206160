//! Random sequences against the model, with remounts and crashes inside.

use lodestore_tests::parallel::{budget, run, seed};
use lodestore_tests::random::{OPERATIONS, Totals, sequence};

/// Seed of the first sequence, unless `LODESTORE_SEED` replays one.
const FIRST_SEED: u64 = 1_000_000;

#[test]
fn random_sequences_agree_with_the_model() {
    if let Some(seed) = seed() {
        println!("sequence {seed}: {:?}", sequence(seed));
        return;
    }
    let n = budget("LODESTORE_SEQUENCES", 20_000);
    println!("seeds {FIRST_SEED} to {} (replay one with LODESTORE_SEED)", FIRST_SEED + n - 1);
    let mut all = Totals::default();
    run(n, |i| sequence(FIRST_SEED + i), |_, t| all.add(&t));
    println!("sequences: {} of {OPERATIONS} operations", all.sequences);
    println!("{all:?}");
    let c = all.counters;
    let dangerous = [
        ("torn tails cut", c.torn_tails_cut),
        ("records cut for missing data", c.records_cut),
        ("records replayed", c.records_replayed),
        ("deferred blocks replayed", c.deferred_replayed),
        ("deferred blocks applied", c.deferred_applied),
        ("deferred blocks coalesced", c.deferred_coalesced),
        ("deferred blocks dropped", c.deferred_dropped),
        ("group commits", c.group_commits),
        ("log wraps", c.log_wraps),
        ("waits for room in the log", c.log_full_waits),
        ("waits for space", c.space_waits),
        ("allocator wraps", c.allocator_wraps),
        ("refusals for lack of space", c.enospc_refused),
        ("copies on write", c.cow_copies),
        ("blocks fetched", c.blocks_fetched),
        ("lookups elsewhere", c.lookups_elsewhere),
        ("flushes of the key-value store", c.kv_flushes),
        ("log trims", c.trims),
        ("allocator rebuilds", c.allocator_rebuilds),
    ];
    let never: Vec<_> = dangerous.iter().filter(|(_, n)| *n == 0).map(|(what, _)| what).collect();
    assert!(never.is_empty(), "paths never taken: {never:?}");
    assert_eq!(c.damaged_blocks, 0, "blocks that did not match their checksum");
}

#[test]
fn the_same_seed_gives_the_same_answers_and_the_same_disk() {
    let hashes = || {
        let mut all = Vec::new();
        run(100, |i| sequence(77_000 + i).hash, |_, hash| all.push(hash));
        all
    };
    assert_eq!(hashes(), hashes());
}
