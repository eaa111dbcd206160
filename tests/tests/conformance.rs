//! Every line of the contract as a test: on the simulated disk (once for each overwrite policy), on
//! a real directory (once for each engine and driver), and on the model itself, which keeps the cases
//! honest.

use lodestore::Policy;
use lodestore_aio::Engine;
use lodestore_tests::cases;
use lodestore_tests::modelstore::ModelStore;
use lodestore_tests::realstore::{Driver, RealStore, Setup, io_engine};
use lodestore_tests::simstore::SimStore;
use lodestore_tests::subject::{Pair, Subject};

#[path = "conformance/fixtures.rs"]
mod fixtures;

const BIG: &str = "sixty_six_thousand_extents_in_one_object";

/// Room for data: most cases need little, and tests of a full store should fill it soon. The
/// largest object of any case has 66,000 blocks.
fn space(case: &str) -> u64 {
    if case == BIG { 320 << 20 } else { 24 << 20 }
}

/// Room for the log: a record, at most half of a segment, must take the largest omap value, and
/// the extent maps of a clone of that object.
fn log(case: &str) -> u64 {
    if case == BIG { 128 << 20 } else { 32 << 20 }
}

/// Simulated ones for each policy, and real ones for each engine and driver.
const STORES: usize = 7;

/// The log is written with zeros when a store is made, so those of real stores are smaller where the
/// case has no use for more.
fn real_log(case: &str) -> u64 {
    let large = case == BIG || case.starts_with("the_longest") || case.starts_with("a_transaction");
    if large { log(case) } else { 8 << 20 }
}

/// A store on real files, moved by `engine`.
fn real(case: &str, engine: Engine, driver: Driver) -> RealStore {
    RealStore::new(Setup { driver, ..Setup::new(space(case), real_log(case), engine) })
}

fn run(mut subject: impl Subject, case: cases::Case) {
    case(&mut Pair::new(&mut subject));
}

macro_rules! conformance {
    ($($module:ident { $($case:ident)* })*) => {
        conformance!(@on model, |case| ModelStore::new(space(case)), $($module { $($case)* })*);
        conformance!(@on simulated_auto, |case| SimStore::fresh(space(case), log(case), Policy::Auto), $($module { $($case)* })*);
        conformance!(@on simulated_direct, |case| SimStore::fresh(space(case), log(case), Policy::Direct), $($module { $($case)* })*);
        conformance!(@on simulated_deferred, |case| SimStore::fresh(space(case), log(case), Policy::Deferred), $($module { $($case)* })*);
        conformance!(@on real, |case| RealStore::fresh(space(case), real_log(case)), $($module { $($case)* })*);
        conformance!(@on threads, |case| real(case, Engine::Threads(4), Driver::Thread), $($module { $($case)* })*);
        conformance!(@on sync, |case| real(case, Engine::Sync, Driver::Thread), $($module { $($case)* })*);
        conformance!(@on embedded, |case| real(case, io_engine(), Driver::Embedded), $($module { $($case)* })*);

        #[test]
        fn no_case_is_forgotten() {
            let here: Vec<String> = vec![$($(concat!(stringify!($module), "::", stringify!($case)).to_owned()),*),*];
            let all: Vec<String> = cases::all().into_iter().map(|(name, _)| name).collect();
            assert_eq!(here, all);
            println!("conformance cases: {}, each on {STORES} stores and on the model", all.len());
        }
    };
    (@on $store:ident, $make:expr, $($module:ident { $($case:ident)* })*) => {
        mod $store {
            use super::*;
            $(mod $module {
                use super::*;
                $(#[test]
                fn $case() {
                    let make: fn(&str) -> _ = $make;
                    run(make(stringify!($case)), cases::$module::$case);
                })*
            })*
        }
    };
}

mod handle {
    use lodestore::{Read, Transaction};
    use lodestore_tests::check::Dump;
    use lodestore_tests::model::{ErrKind, Model};
    use lodestore_tests::realstore;
    use lodestore_tests::subject::{C, oid, pattern, txn};

    #[test]
    fn futures_that_are_dropped_take_nothing_back_and_hold_nothing_up() {
        let dir = realstore::temp_dir();
        realstore::mkfs(dir.path(), 24 << 20, 4 << 20);
        let store = realstore::mount(dir.path()).expect("a fresh store mounts");
        let mut model = Model::new();
        let mut submit = |t: Transaction| {
            model.apply(&t).expect("the transaction applies");
            store.submit(t)
        };
        drop(submit(txn(|t| t.make_collection(C, 0))));
        for i in 0..300u64 {
            let t = txn(|t| t.write(C, oid([(i % 7) as u8]), i * 50, pattern(i, 6000)));
            let commit = submit(t);
            // Some are waited for, most are not.
            if i % 50 == 0 {
                commit.wait().expect("the transaction applies");
            }
            drop(store.query(Read::Data(C, oid([(i % 7) as u8]), vec![(0, 1 << 20)])));
        }
        submit(Transaction::new()).wait().expect("an empty transaction applies");
        let query = |s: &lodestore::Store, r| s.query(r).wait().map_err(|e| ErrKind::from(&e));
        let got = Dump::take(&mut |r| query(&store, r)).expect("the store reads");
        assert_eq!(got.difference(&Dump::of(&model)), None);
        store.umount().expect("the store unmounts");
        assert!(realstore::fsck(dir.path()).is_empty());
    }

    #[test]
    fn threads_that_share_a_store_each_see_their_own_order() {
        let dir = realstore::temp_dir();
        realstore::mkfs(dir.path(), 24 << 20, 4 << 20);
        let store = realstore::mount(dir.path()).expect("a fresh store mounts");
        store.apply(txn(|t| t.make_collection(C, 0))).expect("the collection is made");
        std::thread::scope(|s| {
            for thread in 0..4u64 {
                let store = store.clone();
                s.spawn(move || {
                    let mine = oid(format!("thread {thread}"));
                    for i in 0..100u64 {
                        let data = pattern(thread * 1000 + i, 5000);
                        let commit = store.submit(txn(|t| t.write(C, mine.clone(), i * 13, data.clone())));
                        assert_eq!(store.read(C, &mine, i * 13, 5000).expect("it was written"), data);
                        commit.wait().expect("the transaction applies");
                    }
                });
            }
        });
        let left = store.clone();
        store.umount().expect("the store unmounts");
        assert!(matches!(left.apply(Transaction::new()), Err(lodestore::Error::Unmounted)));
        assert!(realstore::fsck(dir.path()).is_empty());
    }
}

mod ledger {
    use lodestore_tests::ledger;

    #[test]
    fn data_operations_write_what_is_derived() {
        ledger::data_operations_write_what_is_derived();
    }

    #[test]
    fn metadata_operations_write_what_is_derived() {
        ledger::metadata_operations_write_what_is_derived();
    }

    #[test]
    fn deferred_overwrites_and_shared_batches_write_what_is_derived() {
        ledger::deferred_overwrites_and_shared_batches_write_what_is_derived();
    }

    #[test]
    fn bytes_of_a_mixed_transaction_go_to_the_operations_that_wrote_them() {
        ledger::bytes_of_a_mixed_transaction_go_to_the_operations_that_wrote_them();
    }

    #[test]
    fn replay_and_mkfs_write_what_is_derived() {
        ledger::replay_and_mkfs_write_what_is_derived();
    }
}

conformance! {
    attrs {
        an_attribute_is_set_replaced_and_removed
        no_object_and_no_attribute_are_different_errors
        removing_an_absent_attribute_is_fine
        all_attributes_come_in_order_and_go_at_once
        attribute_limits_hold_at_the_byte
        all_attributes_together_have_a_limit
    }
    clones {
        a_clone_shares_every_block
        an_overwrite_after_a_clone_changes_one_side_only
        a_hole_after_a_clone_is_in_one_side_only
        a_tail_after_a_clone_is_on_one_side_only
        a_truncate_after_a_clone_cuts_one_side_only
        removing_either_side_leaves_the_other_whole
        many_clones_go_in_any_order
        a_clone_of_a_clone_shares_with_both
        a_clone_replaces_data_attributes_and_omap
        a_clone_over_a_sharing_object_keeps_the_count_right
        a_clone_onto_itself_is_refused
        a_deferred_write_then_a_clone_then_another_deferred_write
        write_clone_and_write_in_one_transaction
        an_aligned_range_is_shared
        an_unaligned_range_is_copied
        a_range_takes_its_holes_along
        a_range_is_cut_at_the_end_of_its_source
        a_range_over_the_tail_of_a_longer_object_keeps_the_rest
        a_range_within_one_object_may_not_overlap
        clones_of_an_aged_object_with_single_block_extents
    }
    collections {
        operations_on_a_missing_collection_say_so
        a_collection_is_made_listed_and_removed
        a_collection_that_is_there_or_overlaps_one_is_refused
        an_object_whose_hash_belongs_elsewhere_is_refused
        a_collection_with_objects_is_not_removed
        a_collection_is_removed_while_its_removes_are_pending
        a_refused_removal_in_flight_leaves_the_collection
        listing_is_in_order_of_the_reversed_hash_and_pages_join
        a_listing_starts_at_its_start_and_stops_before_its_end
        listings_do_not_run_into_other_collections
        a_split_moves_names_only
        a_merge_undoes_a_split
        nonsense_splits_and_merges_are_refused
        a_split_sees_the_writes_in_flight_before_it
    }
    data {
        what_is_written_is_read
        a_zero_length_write_makes_but_does_not_extend
        a_zero_length_zero_makes_but_does_not_extend
        a_zero_past_the_end_extends
        a_zero_inside_reads_as_zeros_and_frees_whole_blocks
        truncating_up_adds_a_hole
        truncating_down_and_up_inside_a_block_reads_zeros_behind_the_cut
        truncating_at_every_edge_of_a_block
        truncating_to_the_present_size_changes_nothing
        four_thousand_writes_of_three_bytes_leave_holes
        unaligned_four_mebibyte_writes
        writes_of_a_block_and_one_byte_more_or_less
        an_append_fills_the_block_of_a_deferred_write
        appends_of_every_size_make_one_whole
        a_big_overwrite_goes_over_pending_deferred_writes
        a_deferred_write_over_another_one_wins
        a_zero_and_a_truncate_go_over_pending_deferred_writes
        a_removed_object_leaves_its_pending_deferred_writes_nowhere
        space_used_again_never_shows_its_old_bytes
        reads_past_the_end_are_short
        many_ranges_are_read_at_once
        extents_are_whole_blocks_merged_and_cut_at_the_end
        offsets_that_overflow_are_refused
        an_object_has_a_largest_size
        sixty_six_thousand_extents_in_one_object
    }
    limits {
        the_longest_name_is_taken_and_one_byte_more_refused
        the_longest_namespace_and_locator_key_are_taken
        the_longest_omap_key_and_value_are_taken
        a_transaction_has_a_largest_number_of_operations
        a_transaction_too_large_for_the_log_is_refused_whole
    }
    objects {
        touch_makes_an_empty_object
        touch_of_an_existing_object_changes_nothing
        create_refuses_an_object_that_is_there
        remove_takes_data_attributes_and_omap
        remove_and_write_in_one_transaction_leaves_only_the_new_bytes
        operations_on_an_absent_object_say_so
        operations_that_make_an_absent_object_make_it
        two_hundred_fifty_six_one_byte_names
        names_of_four_kibibytes_may_differ_in_their_last_byte_only
        namespace_locator_key_and_snapshot_tell_objects_apart
        names_are_bytes_and_never_paths
        objects_of_equal_hash_are_listed_by_name
        a_hash_of_all_ones_is_listed_last
        a_later_operation_sees_the_earlier_ones_of_its_transaction
        a_refused_transaction_changes_nothing
        an_empty_transaction_is_acknowledged_after_those_before_it
        transactions_in_flight_on_one_object_apply_in_order
        a_read_reflects_what_was_submitted_before_it
        a_hint_is_remembered
        every_kind_of_change_survives_a_remount
    }
    omap {
        keys_are_set_replaced_and_removed
        values_are_answered_for_the_keys_that_exist
        the_header_is_apart_from_the_keys
        clear_takes_header_and_keys_and_leaves_other_objects_alone
        clear_then_set_in_one_transaction_leaves_the_new_keys
        a_range_is_removed_from_its_first_key_to_before_its_last
        keys_of_any_bytes_keep_their_order
        pages_are_bounded_below_above_and_in_length
        a_clone_has_its_own_omap
        an_object_made_again_does_not_inherit_keys
        a_million_keys_are_paged_a_tenth_of_it_where_it_is_scaled_down
    }
    renames {
        a_rename_moves_data_attributes_and_omap
        a_rename_into_another_collection
        a_rename_onto_an_object_is_refused_unless_it_was_removed_before
        a_try_rename_of_an_absent_object_changes_nothing
        renames_chain_within_a_transaction
        the_transaction_of_a_rename_may_make_the_source_again
        there_and_back_in_one_transaction
        a_rename_with_deferred_writes_pending
        renames_around_a_ring_of_objects
    }
    space {
        space_is_exact_after_every_kind_of_change
        a_full_store_refuses_whole_and_goes_on_reading
        delete_then_write_works_without_a_restart
        delete_then_write_works_with_both_in_flight
        a_full_store_mounts
        removing_everything_gives_everything_back
        a_clone_needs_no_space_until_it_is_written
        the_space_of_omaps_is_reported_apart
    }
}
