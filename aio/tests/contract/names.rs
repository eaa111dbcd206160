//! Making and opening files.

use lodestore_aio::{BLOCK, Disk, Engine, FILES_MAX, FileDisk, FileDiskOptions, run};

use super::subject::{B, on_every_ring, pattern, read, write_op};

#[test]
fn a_created_file_has_its_length_and_can_be_opened_elsewhere() {
    on_every_ring(|s| {
        let f = s.disk.create("new", 16 * B).unwrap();
        assert_eq!(s.disk.len(f), 16 * B, "{}", s.name);
        run(&mut *s.ring(1), write_op(f, 3, pattern(3, 1))).unwrap();
        let mut again = s.reopened();
        let g = again.open("new").unwrap();
        assert_eq!((g.0, again.len(g)), (0, 16 * B));
        assert_eq!(read(&mut *again.ring(1).unwrap(), g, 3, 1), pattern(3, 1), "{}", s.name);
    });
}

#[test]
fn ids_are_dense_and_a_file_keeps_the_one_it_has() {
    on_every_ring(|s| {
        let a = s.disk.create("a", B).unwrap();
        let b = s.disk.create("b", B).unwrap();
        assert_eq!((a.0, b.0), (0, 1));
        assert_eq!((s.disk.open("b").unwrap(), s.disk.open("a").unwrap()), (b, a), "{}", s.name);
    });
}

#[test]
fn a_file_that_exists_is_not_made_and_one_that_does_not_is_not_opened() {
    on_every_ring(|s| {
        let f = s.file("a", 1);
        run(&mut *s.ring(1), write_op(f, 0, pattern(1, 1))).unwrap();
        let e = s.disk.create("a", 8 * B).unwrap_err();
        assert_eq!((e.what, e.file, e.errno), ("create", s.shown("a"), libc::EEXIST), "{}", s.name);
        assert_eq!(read(&mut *s.ring(1), f, 0, 1), pattern(1, 1), "{}: it is untouched", s.name);
        let e = s.disk.open("b").unwrap_err();
        assert_eq!((e.what, e.errno), ("open", libc::ENOENT), "{}", s.name);
    });
}

#[test]
fn more_files_than_a_mask_has_bits_are_refused() {
    on_every_ring(|s| {
        for i in 0..FILES_MAX {
            s.disk.create(&format!("f{i}"), 0).unwrap();
        }
        let e = s.disk.create("one-more", 0).unwrap_err();
        assert_eq!(e.errno, libc::EMFILE, "{}", s.name);
        let last = s.disk.open("f63").unwrap();
        let mut ring = s.ring(2);
        run(&mut *ring, lodestore_aio::IoOp::Sync { files: u64::MAX }).unwrap();
        assert_eq!(last.mask(), 1 << 63);
    });
}

#[test]
fn a_directory_is_not_a_file_and_a_failed_create_leaves_nothing() {
    on_every_ring(|s| {
        let Some(dir) = s.dir() else { return };
        std::fs::create_dir(dir.join("sub")).unwrap();
        assert_eq!(s.disk.open("sub").unwrap_err().errno, libc::EISDIR, "{}", s.name);
        assert!(s.disk.open("/dev/null").is_err(), "{}", s.name);
        // More than any file system can reserve.
        let e = s.disk.create("sub/huge", 1 << 62).unwrap_err();
        assert!(e.errno == libc::ENOSPC || e.errno == libc::EFBIG, "{}: {e}", s.name);
        assert!(std::fs::read_dir(dir.join("sub")).unwrap().next().is_none(), "{}", s.name);
        let absolute = dir.join("sub/abs");
        std::fs::write(&absolute, [5; BLOCK]).unwrap();
        let f = s.disk.open(absolute.to_str().unwrap()).unwrap();
        assert_eq!(read(&mut *s.ring(1), f, 0, 1), [5; BLOCK], "{}", s.name);
    });
}

#[test]
fn a_file_system_without_direct_io_says_so_and_serves_the_other_mode() {
    // procfs has regular files and no O_DIRECT; this one may be opened for writing by its owner.
    let options = FileDiskOptions::default();
    let e = FileDisk::new("/proc/self", options).open("comm").unwrap_err();
    assert!(e.is_direct_refused(), "{e}");
    assert_eq!(e.to_string(), "opening with O_DIRECT of /proc/self/comm: Invalid argument (os error 22)");
    let buffered = FileDiskOptions { engine: Engine::Sync, direct: false, ..options };
    assert!(FileDisk::new("/proc/self", buffered).open("comm").is_ok());
}
