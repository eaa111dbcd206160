//! The program from outside: sentences, exit codes, JSON, and what it leaves behind.
#![forbid(unsafe_code)]

#[path = "cli/damage.rs"]
mod damage;
#[path = "cli/parts.rs"]
mod parts;
#[path = "cli/places.rs"]
mod places;
#[path = "cli/room.rs"]
mod room;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lodestore::{MountOptions, Store, Transaction};
use lodestore_benches::{collection, object};
use serde_json::Value;
use tempfile::TempDir;

/// Objects small enough for a test.
const SMALL: [(&str, &str); 3] = [("--objects", "4"), ("--object-size", "256k"), ("--io-size", "4k")];
/// A run whose outcome counts, not its speed.
const SHORT: (&str, &str) = ("--ops", "200");
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory on a disk, in which the program runs.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target folder takes a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_lodestore"));
        c.current_dir(self.0.path()).stdin(Stdio::null());
        c
    }

    fn run(&self, args: &[&str]) -> Output {
        self.program().args(args).output().expect("the program starts")
    }

    /// A benchmark of small objects, short unless `args` say how long.
    fn small(&self, args: &[&str]) -> Command {
        let mut c = self.program();
        c.arg("bench").args(args);
        let length = if args.contains(&"--runtime") { None } else { Some(SHORT) };
        for (name, value) in SMALL.into_iter().chain(length) {
            if !args.contains(&name) {
                c.args([name, value]);
            }
        }
        c
    }

    fn bench(&self, args: &[&str]) -> Output {
        self.small(args).output().expect("the program starts")
    }

    fn bench_json(&self, args: &[&str]) -> Value {
        json(&self.bench(&[args, &["--json"]].concat()))
    }

    fn mkfs(&self, name: &str) {
        expect(&self.run(&["mkfs", name, "--size", "64m"]), 0, "");
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("it is there");
        entries.map(|e| e.expect("it can be read").file_name().to_string_lossy().into_owned()).collect()
    }
}

/// Everything below a directory: contents of files, targets of links.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let kind = fs::symlink_metadata(&path).expect("it is there").file_type();
        let contents = if kind.is_symlink() {
            fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
        } else if kind.is_dir() {
            all.append(&mut tree(&path));
            b"directory".to_vec()
        } else {
            fs::read(&path).expect("it can be read")
        };
        all.insert(path, contents);
    }
    all
}

/// Checks that a command is refused in a sentence, and changes nothing in the whole place.
#[track_caller]
fn refused(p: &Place, args: &[&str], code: i32, sentence: &str) {
    let before = tree(p.0.path());
    expect(&p.run(args), code, sentence);
    let after = tree(p.0.path());
    let names = |t: &BTreeMap<PathBuf, Vec<u8>>| t.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after));
    for (path, contents) in &before {
        assert!(after[path] == *contents, "{} was changed", path.display());
    }
}

fn stderr(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

fn stdout(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// Checks exit code and a part of the sentence; without one, standard error must be empty.
#[track_caller]
fn expect(o: &Output, code: i32, sentence: &str) {
    let said = stderr(o);
    assert_eq!(o.status.code(), Some(code), "{said}{}", stdout(o));
    match sentence {
        "" => assert_eq!(said, ""),
        s => assert!(said.contains(s), "{said:?} does not say {s:?}"),
    }
}

#[track_caller]
fn json(o: &Output) -> Value {
    expect(o, 0, "");
    serde_json::from_slice(&o.stdout).expect("one JSON object")
}

#[test]
fn sizes_and_words_that_make_no_sense_are_usage_errors() {
    let p = Place::new();
    let cases: [(&[&str], &str); 19] = [
        (&["mkfs", "s", "--size", "12q"], "'12q' is no size"),
        (&["mkfs", "s", "--size", "-1"], "'-1'"),
        (&["mkfs", "s", "--size", "1.5g"], "is no size"),
        (&["mkfs", "s", "--size", "17000000t"], "exbibytes"),
        (&["mkfs", "s", "--size", "1m"], "at least 16777216 are needed"),
        (&["mkfs", "s", "--log-size", "100k"], "is too small"),
        (&["mkfs", "s", "--engine", "uring"], "libaio, sync, threads:N"),
        (&["bench", "--io-size", "8m"], "do not fit into objects"),
        (&["bench", "--io-size", "0"], "I/O size is 0"),
        (&["bench", "--objects", "0"], "number of objects is 0"),
        (&["bench", "--depth", "1,x"], "'x' is no whole number"),
        (&["bench", "--depth", "5000"], "at most 4096"),
        (&["bench", "--depth", "2", "--threads", "4"], "each thread needs"),
        (&["bench", "--runtime", "10"], "'10' is no time"),
        (&["bench", "--ops", "0"], "operations is 0"),
        (&["bench", "--op", "mixed:101"], "is no operation"),
        (&["bench", "--overwrite", "maybe"], "auto, direct or deferred"),
        (&["bench", "--threads", "2", "--driver", "embedded"], "moved by one"),
        (&["bench", "--verify", "--io-size", "1000"], "multiples of 512"),
    ];
    for (args, sentence) in cases {
        expect(&p.run(args), 2, sentence);
    }
    assert_eq!(p.names(), [""; 0], "nothing was made");
}

#[test]
fn help_documents_every_exit_code() {
    let p = Place::new();
    for args in [&["--help"][..], &["bench", "--help"], &["fsck", "--help"]] {
        let o = p.run(args);
        expect(&o, 0, "");
        for line in
            ["0    all is well", "1    failure", "2    usage", "3    damage", "4    bench --verify", "130  interrupted"]
        {
            assert!(stdout(&o).contains(line), "{line}");
        }
    }
}

#[test]
fn what_is_no_store_is_not_taken_for_one() {
    let p = Place::new();
    fs::write(p.path("file"), "x").expect("room");
    fs::create_dir(p.path("empty")).expect("room");
    for command in ["stat", "fsck", "bench"] {
        expect(&p.run(&[command, "absent"]), 1, "No such file or directory");
        expect(&p.run(&[command, "file"]), 1, "is not a directory");
        expect(&p.run(&[command, "empty"]), 1, "it is not a lodestore store; make one with mkfs");
    }
    assert_eq!(fs::read_dir(p.path("empty")).expect("it is there").count(), 0, "nothing was changed");
    assert!(!p.path("absent").exists());
}

#[test]
fn mkfs_takes_only_what_is_empty_or_new() {
    let p = Place::new();
    p.mkfs("store");
    refused(&p, &["mkfs", "store"], 1, "holds a store");
    expect(&p.run(&["stat", "store"]), 0, "");
    fs::create_dir(p.path("full")).expect("room");
    fs::write(p.path("full/mine"), "x").expect("room");
    expect(&p.run(&["mkfs", "full"]), 1, "is not empty");
    fs::write(p.path("file"), "x").expect("room");
    for part in ["--data", "--log", "--kv"] {
        let found = if part == "--kv" { "exists" } else { "holds bytes of an unknown kind" };
        refused(&p, &["mkfs", "other", "--size", "64m", part, "file"], 1, found);
    }
    assert_eq!(fs::read(p.path("file")).expect("it is there"), b"x");
    assert_eq!(fs::read_dir(p.path("full")).expect("it is there").count(), 1);
    assert!(!p.path("other").exists(), "a failed mkfs leaves nothing");
}

#[test]
fn parts_of_a_store_may_lie_elsewhere() {
    let p = Place::new();
    let o = p.run(&["mkfs", "s", "--size", "64m", "--data", "a", "--data", "b", "--log", "l", "--kv", "k", "--json"]);
    assert_eq!(json(&o)["size"], 64 << 20);
    p.bench_json(&["s"]);
    let stat = json(&p.run(&["stat", "s", "--json"]));
    assert_eq!(stat["layout"]["data"], serde_json::json!([32 << 20, 32 << 20]));
    assert_eq!(stat["objects"], 5, "four, and the one that says what they hold");
}

#[test]
fn a_store_larger_than_its_file_system_is_refused_and_leaves_nothing() {
    let p = Place::new();
    expect(&p.run(&["mkfs", "s", "--size", "9000t"]), 1, "no space: the store needs 8.79 PiB");
    expect(&p.run(&["bench", "--objects", "90000000", "--object-size", "1g", "--depth", "1"]), 1, "no space");
    assert_eq!(p.names(), [""; 0]);
}

#[test]
fn a_store_in_use_is_left_alone() {
    let p = Place::new();
    p.mkfs("s");
    let store = Store::mount(&p.path("s"), &MountOptions::default()).expect("a fresh store");
    for args in [&["stat", "s"][..], &["fsck", "s"], &["bench", "s"], &["bench", "s", "--driver", "embedded"]] {
        expect(&p.run(args), 1, "is in use by another process");
    }
    store.umount().expect("the disk works");
    expect(&p.run(&["fsck", "s"]), 0, "");
}

#[test]
fn a_file_system_without_direct_io_is_named_and_threads_do_without() {
    let p = Place::new();
    let program = env!("CARGO_BIN_EXE_lodestore");
    // ramfs has no O_DIRECT; a namespace of our own may mount it.
    let script = format!(
        "mkdir m && mount -t ramfs none m || exit 99
         {program} mkfs m/s --size 16m; echo $?; ls m
         {program} mkfs m/s --size 16m --engine threads:2 >/dev/null; echo $?
         {program} bench m/s --engine threads:2 --objects 2 --object-size 64k --io-size 4k --ops 50 --verify >/dev/null; echo $?
         {program} stat m/s; echo $?"
    );
    let o = Command::new("unshare").args(["-rm", "sh", "-c", &script]).current_dir(p.0.path()).output();
    match o {
        Ok(o) if o.status.code() == Some(0) => {
            assert_eq!(stdout(&o), "1\n0\n0\n1\n", "{}", stderr(&o));
            let offers = stderr(&o).matches("refuses O_DIRECT: choose another one, or --engine threads:8").count();
            assert_eq!(offers, 2, "{}", stderr(&o));
        }
        _ => println!("not shown here, where no file system can be mounted in a namespace"),
    }
}

/// The keys that others read.
fn check_keys(run: &Value) {
    for key in ["iops", "mib_per_s", "cpu_us_per_op", "context_switches_per_op", "handoffs_per_op"] {
        assert!(run[key].is_number(), "{key} of {run}");
    }
    for key in ["mean", "p50", "p95", "p99", "p999", "max"] {
        assert!(run["latency_us"][key].is_number(), "latency_us.{key} of {run}");
    }
    for key in ["data", "log", "kv", "other", "total", "prewrite"] {
        assert!(run["amplification"].get(key).is_some(), "amplification.{key} of {run}");
    }
    for key in [
        "objects",
        "object_size",
        "io_size",
        "depth",
        "op",
        "pattern",
        "threads",
        "engine",
        "driver",
        "overwrite",
        "seed",
        "verify",
    ] {
        assert!(!run["config"][key].is_null(), "config.{key} of {run}");
    }
}

#[test]
fn one_run_is_one_object_with_every_key() {
    let p = Place::new();
    let run = p.bench_json(&[]);
    check_keys(&run);
    assert_eq!(run["ops"], 200);
    assert_eq!(run["amplification"]["data"], 1.0, "whole blocks are written once");
    assert!(
        run["amplification"]["log"].as_f64() > Some(0.0) && run["amplification"]["kv"].as_f64() > Some(0.0),
        "{run}"
    );
    assert_eq!(p.names(), [""; 0], "the temporary store is gone");
}

/// Bytes of a field.
fn bytes(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("a count of bytes, not {v}"))
}

#[test]
fn the_ledger_agrees_with_itself_however_it_is_summed() {
    let p = Place::new();
    for args in [&["--io-size", "4k"][..], &["--overwrite", "deferred"], &["--driver", "embedded", "--io-size", "16k"]]
    {
        let run = p.bench_json(args);
        let l = &run["ledger"];
        let by_op = l["by_op"].as_object().expect("an object of operations");
        for class in ["data_direct", "data_deferred", "log_payload", "log_metadata"] {
            let sum: u64 = by_op.values().map(|o| bytes(&o[class])).sum();
            assert_eq!(sum, bytes(&l["classes"][class]), "{class} of {l}");
        }
        assert_eq!(bytes(&by_op["write"]["ops"]), 200);
        assert_eq!(bytes(&by_op["write"]["user"]), bytes(&l["user"]["total"]));
        let families = l["kv_by_cf"].as_object().expect("an object of families");
        for (class, of) in [("kv_flush", "flush"), ("kv_compaction", "compaction")] {
            assert_eq!(families.values().map(|f| bytes(&f[of])).sum::<u64>(), bytes(&l["classes"][class]), "{l}");
        }
        assert_eq!((bytes(&l["log_in_sst"]), bytes(&l["classes"]["kv_log"])), (0, 0), "the store's log is its own");
        let log: u64 =
            ["payload", "metadata", "padding", "header"].iter().map(|c| bytes(&l["classes"][format!("log_{c}")])).sum();
        assert_eq!(log % 4096, 0, "the log is written in whole blocks");
        let last = run["series"].as_array().and_then(|s| s.last()).expect("one sample at least");
        assert_eq!((bytes(&last["log"]), bytes(&last["ops"])), (log, 200));
        assert_eq!(bytes(&last["kv_flush"]), bytes(&l["classes"]["kv_flush"]));
        for d in l["devices"].as_array().expect("a list of devices") {
            assert_eq!(d["chain"][0], d["name"]);
            assert_eq!(d["chain_bytes"][0], d["bytes"]);
        }
    }
}

#[test]
fn a_sweep_has_a_row_for_every_size_and_depth() {
    let p = Place::new();
    let all = p.bench_json(&["--io-size", "4k,16k", "--depth", "1,4"]);
    let runs = all["runs"].as_array().expect("a list");
    runs.iter().for_each(check_keys);
    let cells: Vec<_> = runs.iter().map(|r| (r["config"]["io_size"].as_u64(), r["config"]["depth"].as_u64())).collect();
    assert_eq!(cells, [(4096, 1), (4096, 4), (16384, 1), (16384, 4)].map(|(s, d)| (Some(s), Some(d))));
    let text = stdout(&p.bench(&["--io-size", "4k,16k", "--depth", "1,4"]));
    for title in ["bytes written per user byte", "throughput and cost"] {
        let rows = text.split(title).nth(1).expect("the table").lines().skip(3).take_while(|l| !l.is_empty()).count();
        assert_eq!(rows, 4, "{title}:\n{text}");
    }
}

#[test]
fn handoffs_are_counted_one_with_the_stores_thread_none_without() {
    let p = Place::new();
    for depth in ["1", "8"] {
        assert_eq!(p.bench_json(&["--depth", depth])["handoffs_per_op"], 1.0);
        assert_eq!(p.bench_json(&["--depth", depth, "--driver", "embedded"])["handoffs_per_op"], 0.0);
    }
}

#[test]
fn every_kind_of_operation_is_verified() {
    let p = Place::new();
    let cases: [&[&str]; 7] = [
        &["--op", "mixed:70", "--threads", "3", "--depth", "9"],
        &["--op", "read"],
        &["--pattern", "sequential", "--thinktime", "1ms", "--thinktime-blocks", "50"],
        &["--io-size", "512,3k,8k", "--depth", "1,32"],
        &["--overwrite", "deferred", "--driver", "embedded", "--op", "mixed:20"],
        &["--overwrite", "direct", "--engine", "threads:3"],
        &["--engine", "sync", "--depth", "4"],
    ];
    for args in cases {
        let all = p.bench_json(&[args, &["--verify"]].concat());
        assert_eq!(all["verified_bytes"], 4 * (256 << 10), "{args:?}");
    }
}

#[test]
fn objects_of_an_earlier_run_with_the_same_options_are_kept() {
    let p = Place::new();
    p.mkfs("s");
    let filled = |args: &[&str]| p.bench_json(&[&["s"], args].concat())["filled_bytes"].as_u64().expect("a number") > 0;
    assert!(filled(&[]));
    assert!(!filled(&["--op", "read", "--depth", "2"]));
    assert!(filled(&["--verify"]), "contents were not verifiable");
    assert!(!filled(&["--verify"]), "the versions are learned");
    assert!(!filled(&[]));
    assert!(filled(&["--verify"]), "overwritten with contents that are not verifiable");
    assert!(filled(&["--seed", "2"]));
    assert!(filled(&["--objects", "3", "--seed", "2"]));
    assert_eq!(json(&p.run(&["stat", "s", "--json"]))["objects"], 4, "others were removed");
    expect(&p.run(&["fsck", "s", "--deep"]), 0, "");
}

#[test]
fn another_hands_write_is_a_mismatch_that_names_object_and_offset() {
    let p = Place::new();
    p.mkfs("s");
    p.bench_json(&["s", "--verify"]);
    let store = Store::mount(&p.path("s"), &MountOptions::default()).expect("it was unmounted");
    let mut t = Transaction::new();
    t.write(collection(), object(2), 40_960, vec![7; 4096]);
    store.apply(t).expect("room");
    store.umount().expect("the disk works");
    let o = p.bench(&["s", "--verify"]);
    expect(&o, 4, "verification failed");
    assert!(stderr(&o).contains("bench-00000002 offset 40960"), "{}", stderr(&o));
}

/// Overwrites the beginning of the data space.
fn rot(store: &Path) {
    let mut f = File::options().write(true).open(store.join("data.0")).expect("it is there");
    f.seek(SeekFrom::Start(0))
        .and_then(|_| f.write_all(&[0x5a; 2 << 20]))
        .and_then(|()| f.sync_all())
        .expect("the disk works");
}

#[test]
fn damage_is_named_by_fsck_with_3_and_by_verification_with_4() {
    let p = Place::new();
    p.mkfs("s");
    p.bench_json(&["s", "--verify"]);
    rot(&p.path("s"));
    expect(&p.run(&["fsck", "s"]), 0, "");
    let o = p.run(&["fsck", "s", "--deep"]);
    expect(&o, 3, "");
    assert!(stdout(&o).contains("bench-0000000") && stdout(&o).contains("offset"), "{}", stdout(&o));
    let o = p.run(&["fsck", "s", "--deep", "--repair", "--json"]);
    assert_eq!(o.status.code(), Some(3), "lost contents cannot be mended");
    let report: Value = serde_json::from_slice(&o.stdout).expect("one JSON object");
    assert_eq!((&report["clean"], &report["repaired"]), (&Value::from(false), &Value::from(0)));
    let o = p.bench(&["s", "--verify"]);
    expect(&o, 4, "is damaged: block at byte");
    assert!(stderr(&o).contains("bench-0000000"), "{}", stderr(&o));
}

#[test]
fn a_store_that_was_killed_mounts_and_says_what_it_replayed() {
    let p = Place::new();
    p.mkfs("s");
    p.bench_json(&["s"]);
    let mut child = p.small(&["s", "--runtime", "60s"]).stdout(Stdio::null()).spawn().expect("it starts");
    // However far it is by then: every moment must do.
    thread::sleep(Duration::from_secs(2));
    child.kill().and_then(|()| child.wait()).expect("it was running");
    let stat = json(&p.run(&["stat", "s", "--json"]));
    assert_eq!(stat["counters"]["allocator_rebuilds"], 1, "{stat}");
    assert!(stat["mount_ms"].is_number());
    expect(&p.run(&["fsck", "s", "--deep"]), 0, "");
}

#[test]
fn nothing_but_results_goes_into_a_pipe() {
    let p = Place::new();
    let o = p.bench(&[]);
    expect(&o, 0, "");
    assert!(!stdout(&o).contains('\r') && !stdout(&o).contains('\x1b'), "{:?}", stdout(&o));
    let first = stdout(&p.run(&["mkfs", "s", "--size", "64m"]));
    assert!(first.starts_with("made a store of 64.0 MiB"), "{first}");
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let p = Place::new();
    let mut child = p.small(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    expect(&child.wait_with_output().expect("it ends"), 0, "");
    assert_eq!(p.names(), [""; 0]);
}

/// Waits until `ready`; kills the child if that never comes.
fn wait_for(child: &mut Child, ready: impl Fn() -> bool) {
    let begin = Instant::now();
    while !ready() {
        if begin.elapsed() > PATIENCE {
            child.kill().expect("it was running");
            panic!("it never came so far");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupted_bench_removes_its_store_and_gives_what_it_has() {
    let p = Place::new();
    for signal in ["-INT", "-TERM"] {
        let mut child = p
            .small(&["--runtime", "1h", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let made = || p.names().iter().any(|n| p.path(n).join("superblock").metadata().is_ok_and(|m| m.len() > 0));
        wait_for(&mut child, made);
        // Into the run, or as far as it is: it must end at any moment.
        thread::sleep(Duration::from_secs(2));
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill is there");
        assert!(sent.success());
        let o = child.wait_with_output().expect("it ends");
        expect(&o, 130, "interrupted");
        assert_eq!(p.names(), [""; 0], "the temporary store is gone");
    }
}

#[test]
fn an_interrupted_mkfs_leaves_nothing() {
    let p = Place::new();
    fs::create_dir(p.path("empty")).expect("room");
    for dir in ["new", "empty"] {
        let mut child = p
            .program()
            .args(["mkfs", dir, "--size", "1g"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        wait_for(&mut child, || p.path(dir).join("data.0").exists());
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
        let o = child.wait_with_output().expect("it ends");
        if o.status.success() {
            println!("it was complete before it was interrupted");
            fs::remove_dir_all(p.path(dir)).expect("it is there");
            continue;
        }
        expect(&o, 130, "");
    }
    assert!(!p.path("new").exists());
    assert!(fs::read_dir(p.path("empty")).map_or(0, Iterator::count) == 0);
}
