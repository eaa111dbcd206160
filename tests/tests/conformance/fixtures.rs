//! Stores of every format that was ever written, and of one that is not known yet.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lodestore::Error;
use lodestore_tests::check::{self, Dump};
use lodestore_tests::fixture::{self, C, FIXTURES, oid};
use lodestore_tests::model::{ErrKind, Model};
use lodestore_tests::realstore;
use lodestore_tests::subject::{pattern, txn};

/// Mounts, compares everything with `model`, and unmounts again.
fn compare(dir: &Path, name: &str, model: &Model) {
    let store = realstore::mount(dir).unwrap_or_else(|e| panic!("{name} does not mount: {e}"));
    let mut query = |r| store.query(r).wait().map_err(|e| ErrKind::from(&e));
    let got = Dump::take(&mut query).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(got.difference(&Dump::of(model)), None, "{name}");
    check::space(&mut query, model).unwrap_or_else(|e| panic!("{name}: {e}"));
    store.umount().unwrap_or_else(|e| panic!("{name} does not unmount: {e}"));
}

#[test]
fn every_fixture_holds_what_was_put_into_it_and_goes_on_working() {
    for name in FIXTURES {
        let tmp = realstore::temp_dir();
        let dir = fixture::unpack(name, tmp.path());
        let mut model = fixture::model();
        compare(&dir, name, &model);
        assert_eq!(realstore::fsck(&dir), [""; 0], "{name}");
        // Those whose hash stayed in the collection when it was split.
        let t = txn(|t| t.write(C, oid("part"), 100, pattern(1, 50_000)).remove(C, oid("omap")));
        model.apply(&t).expect("the transaction applies");
        let store = realstore::mount(&dir).unwrap_or_else(|e| panic!("{name} does not mount: {e}"));
        store.apply(t).unwrap_or_else(|e| panic!("{name} takes nothing new: {e}"));
        store.umount().unwrap_or_else(|e| panic!("{name} does not unmount: {e}"));
        compare(&dir, name, &model);
        assert_eq!(realstore::fsck(&dir), [""; 0], "{name}");
    }
}

#[test]
fn a_fixture_of_the_present_format_is_kept() {
    for how in ["closed", "crashed"] {
        let name = format!("v{}-{how}", fixture::version());
        assert!(FIXTURES.contains(&name.as_str()), "no fixture '{name}': make it with tests/fixtures/make");
    }
}

/// Contents of the files of a store that nothing may change when it is refused; the file `lock` is
/// made by whoever looks.
fn contents(dir: &Path, kv: bool) -> BTreeMap<String, u32> {
    let mut all = BTreeMap::new();
    for sub in if kv { &["", "kv"][..] } else { &[""] } {
        for e in fs::read_dir(dir.join(sub)).expect("it can be read") {
            let e = e.expect("it can be read");
            let name = format!("{sub}/{}", e.file_name().display());
            if e.path().is_file() && name != "/lock" {
                all.insert(name, crc32c::crc32c(&fs::read(e.path()).expect("it can be read")));
            }
        }
    }
    all
}

#[test]
fn a_store_of_a_newer_format_is_refused_and_nothing_is_changed() {
    let tmp = realstore::temp_dir();
    let dir = fixture::unpack(FIXTURES[1], tmp.path());
    let patch = |file: &str, edits: &[(u64, &[u8])]| {
        let f = fs::File::options().write(true).open(dir.join(file)).expect("it is there");
        edits.iter().for_each(|(at, bytes)| f.write_all_at(bytes, *at).expect("it can be written"));
    };
    let refused = |kv: bool, sentence: &str| {
        let before = contents(&dir, kv);
        match realstore::mount(&dir).map(drop) {
            Err(e @ (Error::Mount(_) | Error::Wal(_))) => assert!(e.to_string().contains(sentence), "{e}"),
            other => panic!("a newer store: {other:?}"),
        }
        assert_eq!(contents(&dir, kv), before, "{sentence}");
    };
    // The log of a newer format: its header is whole, only newer. Both slots.
    let log = fs::read(dir.join("log")).expect("it is there");
    for slot in [0, 4096] {
        let mut header = log[slot..slot + 108].to_vec();
        header[8..10].copy_from_slice(&0x7fffu16.to_le_bytes());
        let crc = crc32c::crc32c(&header[..104]);
        header[104..].copy_from_slice(&crc.to_le_bytes());
        patch("log", &[(slot as u64, &header)]);
    }
    refused(false, "newer program");
    // With a superblock of a newer format not even the key-value store is opened.
    patch("superblock", &[(8, &0x7fff_ffffu32.to_le_bytes())]);
    refused(true, "newer program");
}
