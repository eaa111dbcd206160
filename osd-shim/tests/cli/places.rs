//! Where mkfs makes its files, and what it refuses to write on.

use super::*;

#[test]
fn one_place_for_two_parts_is_refused_under_any_name() {
    let p = Place::new();
    fs::write(p.path("f"), "").expect("room");
    fs::hard_link(p.path("f"), p.path("hard")).expect("same file system");
    std::os::unix::fs::symlink("f", p.path("soft")).expect("room");
    let cases: [&[&str]; 7] = [
        &["--data", "new", "--data", "new"],
        &["--data", "new", "--log", "./new"],
        &["--data", "f", "--log", "hard", "--force"],
        &["--data", "f", "--data", "soft", "--force"],
        &["--log", "k", "--kv", "k"],
        &["--kv", "s"],
        &["--data", "s"],
    ];
    for places in cases {
        refused(&p, &[&["mkfs", "s", "--size", "64m"], places].concat(), 2, "are one and the same");
    }
    refused(&p, &["mkfs", "s", "--size", "64m", "--data", "s/log"], 2, "the store itself needs this name");
    refused(&p, &["mkfs", "s", "--size", "64m", "--data", "none/d"], 1, "there is no directory none");
}

#[test]
fn what_a_file_holds_is_named_and_only_force_overwrites_it() {
    let p = Place::new();
    p.mkfs("old");
    fs::create_dir(p.path("d")).expect("room");
    let mut ext4 = vec![0; 1 << 20];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    fs::write(p.path("ext4"), ext4).expect("room");
    fs::write(p.path("zeros"), [0; 8192]).expect("room");
    let cases = [
        ("ext4", "ext4 holds an ext2, ext3 or ext4 file system"),
        ("zeros", "zeros exists"),
        ("old/data.0", "holds 'data.0' of the lodestore store"),
        ("old/log", "holds 'log' of the lodestore store"),
        ("d", "is neither a file nor a block device"),
    ];
    for (path, sentence) in cases {
        refused(&p, &["mkfs", "s", "--size", "64m", "--data", path], 1, sentence);
        refused(&p, &["mkfs", "s", "--size", "64m", "--log", path], 1, sentence);
    }
    expect(&p.run(&["mkfs", "s", "--size", "64m", "--data", "ext4", "--log", "zeros", "--force"]), 0, "");
    expect(&p.bench(&["s", "--verify"]), 0, "");
    let store = Store::mount(&p.path("old"), &MountOptions::default()).expect("it was made");
    expect(
        &p.run(&["mkfs", "t", "--size", "64m", "--data", "old/data.0", "--force"]),
        1,
        "is in use by another process",
    );
    store.umount().expect("the disk works");
}

#[test]
fn a_failed_or_interrupted_mkfs_removes_the_directories_it_made_and_no_others() {
    let p = Place::new();
    fs::create_dir_all(p.path("a/mine")).expect("room");
    // Room enough by the size, but no directory for RocksDB: a name that is too long.
    let long = "k".repeat(300);
    let o = p.run(&["mkfs", "a/b/c/s", "--size", "64m", "--kv", &long]);
    expect(&o, 1, "name too long");
    assert_eq!(tree(p.0.path()).len(), 2, "a and a/mine");
    let mut child = p
        .program()
        .args(["mkfs", "a/b/c/s", "--size", "2g", "--kv", "x/y/kv"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    wait_for(&mut child, || p.path("a/b/c/s/superblock").exists());
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    let o = child.wait_with_output().expect("it ends");
    if o.status.success() {
        return println!("it was complete before it was interrupted");
    }
    expect(&o, 130, "");
    assert_eq!(tree(p.0.path()).len(), 2, "a and a/mine");
}

#[test]
fn two_at_once_make_one_store() {
    let p = Place::new();
    let start = || {
        let mut c = p.program();
        c.args(["mkfs", "s", "--size", "64m"]).stdout(Stdio::null()).stderr(Stdio::piped());
        c.spawn().expect("it starts")
    };
    let children: Vec<Child> = (0..4).map(|_| start()).collect();
    let ended: Vec<Output> = children.into_iter().map(|c| c.wait_with_output().expect("it ends")).collect();
    assert_eq!(ended.iter().filter(|o| o.status.success()).count(), 1, "{ended:?}");
    assert!(ended.iter().all(|o| matches!(o.status.code(), Some(0 | 1))), "{ended:?}");
    expect(&p.run(&["fsck", "s"]), 0, "");
}

/// A loop device over a file, for as long as it lives.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let o = Command::new("losetup").args(["-f", "--show"]).arg(file).output().ok()?;
        o.status.success().then(|| Loop(stdout(&o).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_block_device_brings_its_size_and_is_not_overwritten_unasked() {
    let p = Place::new();
    File::create(p.path("image")).and_then(|f| f.set_len(40 << 20)).expect("room");
    let mut f = File::options().write(true).open(p.path("image")).expect("it was made");
    f.write_all(b"XFSB").expect("room");
    let Some(device) = Loop::over(&p.path("image")) else {
        return println!("not shown here, where no loop device can be set up");
    };
    let dev = device.0.as_str();
    refused(&p, &["mkfs", "s", "--data", dev], 1, "holds an XFS file system; nothing was changed");
    let made = json(&p.run(&["mkfs", "s", "--size", "1t", "--data", dev, "--force", "--json"]));
    // A block is the label's.
    assert_eq!(made["size"], (40 << 20) - 4096);
    refused(&p, &["mkfs", "t", "--data", dev], 1, "holds 'data.0' of the lodestore store");
    let store = Store::mount(&p.path("s"), &MountOptions::default()).expect("it was made");
    expect(&p.run(&["mkfs", "t", "--data", dev, "--force"]), 1, "is in use");
    store.umount().expect("the disk works");
    expect(&p.run(&["fsck", "s"]), 0, "");
}
