//! Parts that are missing, another's, or of another moment: each is named, and nothing is changed.

use super::*;

/// Runs the three commands that mount a store; all must refuse it in the same way.
#[track_caller]
fn none_mounts(p: &Place, code: i32, sentence: &str) {
    for command in ["stat", "fsck", "bench"] {
        refused(p, &[command, "s"], code, sentence);
    }
}

/// Puts another file or directory in the place of one for the time of a check.
fn replaced(p: &Place, part: &str, by: Option<&str>, check: impl FnOnce()) {
    fs::rename(p.path(part), p.path("aside")).expect("same file system");
    if let Some(by) = by {
        std::os::unix::fs::symlink(p.path(by), p.path(part)).expect("room");
    }
    check();
    if by.is_some() {
        fs::remove_file(p.path(part)).expect("a link");
    }
    fs::rename(p.path("aside"), p.path(part)).expect("same file system");
}

#[test]
fn a_part_of_another_store_is_refused_and_says_whose_it_is() {
    let p = Place::new();
    p.mkfs("s");
    p.mkfs("other");
    expect(&p.run(&["mkfs", "large", "--size", "80m"]), 0, "");
    let uuid = |s: &str| json(&p.run(&["stat", s, "--json"]))["uuid"].as_str().expect("a uuid").to_owned();
    let (other, large) = (uuid("other"), uuid("large"));
    for (part, by, code, sentence) in [
        ("s/data.0", "other/data.0", 1, other.as_str()),
        ("s/data.0", "other/log", 3, "it was shortened, or is another file"),
        ("s/log", "other/log", 1, &other),
        ("s/log", "large/data.0", 1, "is not a log"),
        ("s/kv", "other/kv", 1, &other),
    ] {
        replaced(&p, part, Some(by), || none_mounts(&p, code, sentence));
    }
    // One that is larger has its label elsewhere, one that is smaller says whose it is all the same.
    replaced(&p, "s/data.0", Some("large/data.0"), || none_mounts(&p, 3, "has no label behind its data"));
    replaced(&p, "large/data.0", Some("other/data.0"), || refused(&p, &["stat", "large"], 1, &other));
    replaced(&p, "s/superblock", Some("large/superblock"), || none_mounts(&p, 1, &large));
    expect(&p.run(&["fsck", "s", "--deep"]), 0, "");
}

#[test]
fn fragment_files_that_changed_places_are_refused() {
    let p = Place::new();
    expect(&p.run(&["mkfs", "s", "--size", "64m", "--data", "a", "--data", "b"]), 0, "");
    replaced(&p, "s/data.0", Some("b"), || none_mounts(&p, 1, "are one and the same"));
    fs::rename(p.path("a"), p.path("c")).and_then(|()| fs::rename(p.path("b"), p.path("a"))).expect("same file system");
    fs::rename(p.path("c"), p.path("b")).expect("same file system");
    none_mounts(&p, 1, "is 'data.1' of this store, not 'data.0'");
}

#[test]
fn a_missing_part_is_named() {
    let p = Place::new();
    p.mkfs("s");
    for (part, sentence) in [
        ("s/data.0", "s/data.0 is missing"),
        ("s/log", "s/log is missing"),
        ("s/kv", "there is none in s/kv"),
        ("s/superblock", "it is not a lodestore store"),
    ] {
        replaced(&p, part, None, || none_mounts(&p, 1, sentence));
    }
    expect(&p.run(&["stat", "s"]), 0, "");
}

#[test]
fn parts_of_an_earlier_moment_are_refused() {
    let p = Place::new();
    p.mkfs("s");
    p.bench_json(&["s"]);
    let copy = |from: &str, to: &str| {
        let done = Command::new("cp").arg("-a").args([p.path(from), p.path(to)]).status().expect("cp is there");
        assert!(done.success());
    };
    copy("s/kv", "kv.old");
    copy("s/log", "log.old");
    copy("s/data.0", "data.old");
    p.bench_json(&["s"]);
    replaced(&p, "s/kv", Some("kv.old"), || {
        expect(&p.run(&["stat", "s"]), 3, "they are of different moments");
    });
    replaced(&p, "s/log", Some("log.old"), || {
        expect(&p.run(&["stat", "s"]), 3, "the log was closed at LSN 203, the key-value store at 403");
    });
    replaced(&p, "s/data.0", Some("data.old"), || {
        expect(&p.run(&["stat", "s"]), 3, "was closed at LSN 203, the key-value store at 403");
    });
    expect(&p.run(&["fsck", "s", "--deep"]), 0, "");
}

#[test]
fn a_newer_store_is_refused_before_anything_else_is_looked_at() {
    let p = Place::new();
    p.mkfs("s");
    let mut b = fs::read(p.path("s/superblock")).expect("it is there");
    b[8] = 99;
    fs::write(p.path("s/superblock"), b).expect("room");
    fs::remove_dir_all(p.path("s/kv")).expect("it is there");
    none_mounts(&p, 1, "s/superblock: the store has format 99");
}

#[test]
fn what_an_interrupted_mkfs_left_is_no_store() {
    let p = Place::new();
    p.mkfs("s");
    fs::write(p.path("s/superblock"), [0; 4096]).expect("room");
    none_mounts(&p, 1, "mkfs did not finish");
    fs::write(p.path("s/superblock"), "").expect("room");
    none_mounts(&p, 1, "mkfs did not finish");
    refused(&p, &["mkfs", "s"], 1, "holds what an interrupted mkfs left behind");
}
