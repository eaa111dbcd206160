//! Objects and the room for them: what is refused, kept, and filled again.

use super::*;

#[test]
fn a_bench_too_large_for_its_store_is_refused_before_it_fills_it() {
    let p = Place::new();
    p.mkfs("s");
    p.bench_json(&["s"]);
    let allocated = || json(&p.run(&["stat", "s", "--json"]))["space"]["allocated"].clone();
    let before = allocated();
    let o = p.run(&["bench", "s", "--objects", "100", "--object-size", "1m"]);
    expect(&o, 1, "no space: 102 MiB are needed (2.00 MiB of it for overwrites in flight)");
    assert!(stderr(&o).contains("the store has room for 64.0 MiB"), "{}", stderr(&o));
    assert!(stderr(&o).contains("at most 62 such objects"), "{}", stderr(&o));
    assert_eq!(allocated(), before);
    assert_eq!(p.bench_json(&["s"])["filled_bytes"], 0, "the objects of before are there");
    // As many as it says do fit.
    let o = p.run(&["bench", "s", "--objects", "62", "--object-size", "1m", "--ops", "300", "--json"]);
    assert_eq!(json(&o)["ops"], 300);
}

#[test]
fn objects_whose_contents_are_known_are_kept_and_others_are_refilled_with_a_reason() {
    let p = Place::new();
    p.mkfs("s");
    let filled = |args: &[&str]| p.bench_json(&[&["s"], args].concat())["filled_bytes"].as_u64().expect("a number");
    assert!(filled(&["--verify", "--io-size", "512"]) > 0);
    assert_eq!(filled(&["--verify", "--io-size", "512"]), 0);
    assert_eq!(filled(&["--verify", "--io-size", "8k"]), 0, "smaller units are units of larger operations, too");
    assert_eq!(filled(&["--op", "read"]), 0);
    assert_eq!(filled(&["--verify"]), 0, "reading left them known");
    assert_eq!(filled(&[]), 0);
    let text = stdout(&p.bench(&["s", "--verify"]));
    assert!(text.contains("those of an earlier run without --verify could not be compared"), "{text}");
    assert_eq!(filled(&["--verify"]), 0);
}
