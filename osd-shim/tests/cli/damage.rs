//! Damage has one exit code, whichever command meets it and when.

use super::*;

#[track_caller]
fn all_say(p: &Place, sentence: &str) {
    for command in ["stat", "fsck", "bench"] {
        expect(&p.run(&[command, "s"]), 3, sentence);
    }
}

fn flip(path: &Path, at: usize) {
    let mut b = fs::read(path).expect("it is there");
    b[at] ^= 1;
    fs::write(path, b).expect("room");
}

#[test]
fn a_damaged_or_shortened_store_ends_every_command_with_3() {
    let p = Place::new();
    p.mkfs("s");
    p.bench_json(&["s"]);
    flip(&p.path("s/superblock"), 100);
    all_say(&p, "s/superblock is damaged");
    flip(&p.path("s/superblock"), 100);
    let manifest = |n: &String| n.starts_with("MANIFEST-");
    let names = fs::read_dir(p.path("s/kv")).expect("it is there").flatten();
    let name = names.map(|e| e.file_name().to_string_lossy().into_owned()).find(manifest).expect("RocksDB has one");
    flip(&p.path("s/kv").join(&name), 30);
    all_say(&p, "key-value store is damaged");
    flip(&p.path("s/kv").join(&name), 30);
    expect(&p.run(&["stat", "s"]), 0, "");
    for slot in [0, 4096] {
        flip(&p.path("s/log"), slot + 50);
    }
    all_say(&p, "s/log is damaged at offset 0");
    for slot in [0, 4096] {
        flip(&p.path("s/log"), slot + 50);
    }
    expect(&p.run(&["stat", "s"]), 0, "");
    File::options().write(true).open(p.path("s/log")).and_then(|f| f.set_len(1 << 20)).expect("it can be cut");
    all_say(&p, "s/log has 1048576 bytes");
}

#[test]
fn a_fresh_store_was_not_in_a_crash() {
    let p = Place::new();
    p.mkfs("s");
    let o = p.run(&["stat", "s"]);
    expect(&o, 0, "");
    assert!(stdout(&o).contains("mounted clean"), "{}", stdout(&o));
    assert_eq!(json(&p.run(&["stat", "s", "--json"]))["counters"]["allocator_rebuilds"], 0);
}

#[test]
fn fsck_names_object_and_bytes_once_for_a_whole_range() {
    let p = Place::new();
    p.mkfs("s");
    p.bench_json(&["s", "--op", "read"]);
    rot(&p.path("s"));
    let o = p.run(&["fsck", "s", "--deep"]);
    expect(&o, 3, "");
    let text = stdout(&o);
    assert!(text.contains("bench-00000000 bytes 0 to 262144: 64 blocks; the first: block at data.0 offset"), "{text}");
    assert!(text.contains("not to be mended without a guess"), "{text}");
    assert!(text.contains("s: 4 findings"), "{text}");
    let o = p.run(&["fsck", "s", "--deep", "--json"]);
    let report: Value = serde_json::from_slice(&o.stdout).expect("one JSON object");
    let first = &report["errors"][0];
    assert_eq!(report["errors"].as_array().map(Vec::len), Some(256), "one for each block");
    assert_eq!((&first["kind"], &first["repairable"]), (&Value::from("data"), &Value::from(false)));
    assert!(first["object"].as_str().is_some_and(|o| o.contains("bench-0000000")), "{first}");
    assert!(first["offset"].is_u64());
}

#[test]
fn a_clone_too_large_for_the_log_says_how_to_make_room_and_a_larger_log_takes_it() {
    let p = Place::new();
    for (args, fits) in
        [(&["mkfs", "s", "--size", "64m"][..], false), (&["mkfs", "t", "--size", "64m", "--log-size", "40m"], true)]
    {
        expect(&p.run(args), 0, "");
        let store = Store::mount(&p.path(args[1]), &MountOptions::default()).expect("it was made");
        let c = collection();
        let mut t = Transaction::new();
        t.make_collection(c, 0).touch(c, object(0));
        store.apply(t).expect("room");
        // Three MiB of omap, while a segment of the smaller log has two.
        for i in 0..48u8 {
            let mut t = Transaction::new();
            t.omap_set(c, object(0), vec![(vec![i], vec![i; 64 << 10])]);
            store.apply(t).expect("room");
        }
        let mut t = Transaction::new();
        t.clone_object(c, object(0), object(1));
        match store.apply(t) {
            Ok(_) => assert!(fits),
            Err(e) => {
                assert!(!fits && e.to_string().contains("mkfs --log-size"), "{e}");
                assert!(!store.exists(c, &object(1)).expect("it can be asked"), "nothing was changed");
            }
        }
        store.umount().expect("the disk works");
        expect(&p.run(&["fsck", args[1], "--deep"]), 0, "");
    }
}
