//! Stores that are absent, present, in use, damaged or failing.

use super::support::*;
use lodestore_kv::{Cf, Kv, KvError, KvOp, RocksConfig, RocksKv};
use std::fs;
use std::path::{Path, PathBuf};

/// A closed store with one table in onode; the folder it is in, too.
fn closed_store() -> (tempfile::TempDir, PathBuf, RocksConfig) {
    let dir = tempfile::tempdir().unwrap();
    let (cfg, path) = (config(dir.path()), dir.path().join("kv"));
    let kv = RocksKv::create(&path, &cfg).unwrap();
    let ops: Vec<KvOp> = (0..1000).map(|n| put(Cf::Onode, format!("{n:05}"), vec![n as u8; 100])).collect();
    kv.write(&ops, 1).unwrap();
    kv.flush().unwrap();
    drop(kv);
    (dir, path, cfg)
}

fn files(path: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| wanted(p.file_name().unwrap().to_str().unwrap()))
        .collect();
    found.sort();
    found
}

/// Does something to a file.
type Damage = fn(&Path);

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 0x40;
    fs::write(file, bytes).unwrap();
}

#[test]
fn opening_what_is_not_there_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cfg = config(dir.path());
    let absent = dir.path().join("absent");
    let e = RocksKv::open(&absent, &cfg).unwrap_err();
    assert!(matches!(e, KvError::Missing { .. }), "{e}");
    assert!(!absent.exists());
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let e = RocksKv::open(&empty, &cfg).unwrap_err();
    assert!(matches!(e, KvError::Missing { .. }), "{e}");
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
}

#[test]
fn creating_over_a_store_changes_nothing() {
    let (_dir, path, cfg) = closed_store();
    let before = files(&path, |_| true);
    let e = RocksKv::create(&path, &cfg).unwrap_err();
    assert!(matches!(&e, KvError::Missing { reason } if reason.contains("already")), "{e}");
    assert_eq!(files(&path, |_| true), before);
    assert_eq!(RocksKv::open(&path, &cfg).unwrap().marker(Cf::Onode).unwrap(), 1);
}

#[test]
fn a_store_is_opened_once_at_a_time() {
    let (_dir, path, cfg) = closed_store();
    let first = RocksKv::open(&path, &cfg).unwrap();
    let e = RocksKv::open(&path, &cfg).unwrap_err();
    assert!(matches!(e, KvError::InUse { .. }), "{e}");
    first.write(&[put(Cf::Meta, "a", "1")], 2).unwrap();
    drop(first);
    RocksKv::open(&path, &cfg).unwrap();
}

#[test]
fn damaged_current_manifest_or_missing_table_is_said_when_opening() {
    let starts = |with: &'static str| move |name: &str| name.starts_with(with);
    let damages: [(&str, Damage); 7] = [
        ("CURRENT", |f| flip(f, 3)),
        ("CURRENT", |f| fs::write(f, "").unwrap()),
        ("CURRENT", |f| fs::remove_file(f).unwrap()),
        ("MANIFEST", |f| flip(f, 20)),
        ("MANIFEST", |f| fs::remove_file(f).unwrap()),
        ("sst", |f| fs::remove_file(f).unwrap()),
        ("sst", |f| {
            let len = fs::metadata(f).unwrap().len();
            fs::File::options().write(true).open(f).unwrap().set_len(len / 2).unwrap();
        }),
    ];
    for (n, (name, damage)) in damages.into_iter().enumerate() {
        let (_dir, path, cfg) = closed_store();
        let found = if name == "sst" { files(&path, |f| f.ends_with(".sst")) } else { files(&path, starts(name)) };
        damage(found.last().unwrap());
        let e = RocksKv::open(&path, &cfg).unwrap_err();
        assert!(matches!(e, KvError::Damaged { .. }), "damage {n} of {name}: {e}");
    }
}

#[test]
fn flipped_bits_of_a_table_are_an_error_never_a_wrong_value() {
    let size = {
        let (_dir, path, _) = closed_store();
        fs::metadata(&files(&path, |f| f.ends_with(".sst"))[0]).unwrap().len() as usize
    };
    let mut seen = 0;
    for at in (0..size).step_by(size / 40) {
        let (_dir, path, cfg) = closed_store();
        flip(&files(&path, |f| f.ends_with(".sst"))[0], at);
        let kv = match RocksKv::open(&path, &cfg) {
            Ok(kv) => kv,
            Err(e) => {
                assert!(matches!(e, KvError::Damaged { .. }), "byte {at}: {e}");
                seen += 1;
                continue;
            }
        };
        let mut damaged = false;
        let mut count = 0;
        for entry in kv.iter(Cf::Onode, b"", END) {
            match entry {
                Ok((k, v)) => {
                    assert_eq!((k, v), (format!("{count:05}").into_bytes(), vec![count as u8; 100]));
                    count += 1;
                }
                Err(e) => {
                    assert!(matches!(e, KvError::Damaged { .. }), "byte {at}: {e}");
                    damaged = true;
                }
            }
        }
        // Bits that no iterator reads (filters, properties, padding) may stay unseen here.
        assert!(damaged || count == 1000, "byte {at}: ended after {count} entries without an error");
        for n in 0..1000 {
            match kv.get(Cf::Onode, format!("{n:05}").as_bytes()) {
                Ok(value) => assert_eq!(value, Some(vec![n as u8; 100]), "byte {at}"),
                Err(e) => damaged |= matches!(e, KvError::Damaged { .. }),
            }
        }
        seen += usize::from(damaged);
    }
    assert!(seen >= 30, "only {seen} of 40 were noticed");
}

#[test]
fn a_failed_flush_stops_the_store_and_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (cfg, path) = (config(dir.path()), dir.path().join("kv"));
    let kv = RocksKv::create(&path, &cfg).unwrap();
    kv.write(&[put(Cf::Meta, "a", "1")], 1).unwrap();
    fs::remove_dir_all(&path).unwrap();
    let e = kv.flush().unwrap_err();
    assert!(matches!(e, KvError::Failed { .. }), "{e}");
    let e = kv.write(&[put(Cf::Meta, "a", "2")], 2).unwrap_err();
    assert!(matches!(e, KvError::Failed { .. }), "{e}");
    assert!(matches!(kv.flush(), Err(KvError::Failed { .. })));
    assert_eq!(kv.get(Cf::Meta, b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_failure_in_the_background_stops_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv");
    let cfg = RocksConfig {
        write_buffer_bytes: [64 << 10; 5],
        min_write_buffer_number_to_merge: [1, 2, 1, 2, 1],
        ..config(dir.path())
    };
    let kv = RocksKv::create(&path, &cfg).unwrap();
    fs::remove_dir_all(&path).unwrap();
    // Memtables fill up, their flush fails, and a write must say so before long.
    let e = (1..100_000)
        .find_map(|lsn| kv.write(&[put(Cf::Extent, format!("{lsn}"), [7; 1000])], lsn).err())
        .expect("writes went on after the background failed");
    assert!(matches!(&e, KvError::Failed { reason, .. } if reason.contains("No such file")), "{e}");
    assert!(matches!(kv.flush(), Err(KvError::Failed { .. })));
}

#[test]
fn a_path_that_is_a_file_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    let e = RocksKv::create(&path, &config(dir.path())).unwrap_err();
    assert!(matches!(&e, KvError::Failed { reason, .. } if reason.contains("file")), "{e}");
}

#[test]
fn a_file_system_without_o_direct_is_named_with_the_way_out() {
    // Not every machine has one; where the shared memory's refuses O_DIRECT, it will do.
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() || takes_direct_io(shm) {
        println!("no file system here refuses O_DIRECT: only the buffered mode is tested");
    } else {
        let dir = tempfile::tempdir_in(shm).unwrap();
        let e = RocksKv::create(&dir.path().join("kv"), &RocksConfig::default()).unwrap_err();
        assert!(matches!(&e, KvError::Failed { reason, .. } if reason.contains("direct_reads")), "{e}");
    }
    let dir = tempfile::tempdir().unwrap();
    let cfg = RocksConfig { direct_reads: false, direct_flush: false, ..RocksConfig::default() };
    let kv = RocksKv::create(&dir.path().join("kv"), &cfg).unwrap();
    kv.write(&[put(Cf::Meta, "a", "1")], 1).unwrap();
    kv.flush().unwrap();
    assert_eq!(keys(&kv, Cf::Meta), ["a"]);
}
