//! Parts of the engine on their own, and whole transactions on a real disk.
//!
//! Figures of parts are CPU time. Those named `durable` wait for the disk under the target folder.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lodestore::format::chunk::{CHUNK_BLOCKS, Chunk, Slot};
use lodestore::format::onode::Onode;
use lodestore::{
    CollectionId, Engine, Event, MkfsOptions, MountGuard, MountOptions, ObjectId, Store, Transaction, mount_engine,
};
use lodestore_aio::{AlignedBuf, BLOCK, Disk, FileDisk, FileDiskOptions, IoOp, SimDisk, run};
use lodestore_kv::{Cf, Kv, KvOp, RocksConfig, RocksKv};
use lodestore_wal::{LogGeometry, Reader, Writer};
use tempfile::TempDir;

const OBJECTS: u64 = 64;
const OBJECT_LEN: u64 = 1 << 20;
const LOG_LEN: u64 = 16 << 20;
const UUID: [u8; 16] = *b"a log to measure";

/// A directory on a disk: the system's temporary one may be memory.
fn on_disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target folder takes a directory")
}

fn aligned(len: usize) -> Bytes {
    let mut b = AlignedBuf::zeroed(len);
    b.iter_mut().enumerate().for_each(|(i, x)| *x = (i * 31) as u8);
    b.freeze()
}

fn checksum(c: &mut Criterion) {
    let mut g = c.benchmark_group("checksum");
    for len in [BLOCK, 128 << 10] {
        let data = aligned(len);
        g.throughput(Throughput::Bytes(len as u64));
        g.bench_function(format!("{}k in blocks", len >> 10), |b| {
            b.iter(|| data.chunks_exact(BLOCK).map(|x| crc32c::crc32c(black_box(x))).fold(0, |a, b| a ^ b));
        });
    }
}

fn formats(c: &mut Criterion) {
    let mut onode = Onode { nid: 1 << 20, size: 4 << 20, ..Default::default() };
    onode.attrs.insert(b"_".to_vec(), vec![7; 250]);
    onode.attrs.insert(b"snapset".to_vec(), vec![7; 35]);
    let mut chunk = Chunk::default();
    for (i, slot) in chunk.slots.iter_mut().enumerate() {
        *slot = Some(Slot { place: (1 << 20) + i as u64, crc: i as u32, shared: false });
    }
    assert_eq!(chunk.slots.len(), CHUNK_BLOCKS);
    let (onode_bytes, chunk_bytes) = (onode.encode(), chunk.encode());
    let mut g = c.benchmark_group("format");
    g.bench_function("onode encode", |b| b.iter(|| black_box(&onode).encode()));
    g.bench_function("onode decode", |b| b.iter(|| Onode::decode(black_box(&onode_bytes)).expect("what was encoded")));
    g.bench_function("chunk encode", |b| b.iter(|| black_box(&chunk).encode()));
    g.bench_function("chunk decode", |b| b.iter(|| Chunk::decode(black_box(&chunk_bytes)).expect("what was encoded")));
}

/// A fresh log on `disk`, with the ring it is on.
fn log(disk: &mut dyn Disk) -> (Writer, Box<dyn lodestore_aio::Ring>) {
    let file = disk.create("log", LOG_LEN).expect("room for a log");
    let mut ring = disk.ring(8).expect("a ring");
    let geometry = LogGeometry { segment_len: 1 << 20 };
    lodestore_wal::format(&mut *ring, file, LOG_LEN, geometry, UUID, &mut |_, _| ()).expect("a log");
    let mut reader = Reader::open(&mut *ring, file, UUID).expect("the log");
    while reader.next(&mut *ring).expect("an empty log").is_some() {}
    (reader.restart(&mut *ring, 1).expect("a writer"), ring)
}

fn log_append(c: &mut Criterion) {
    let record = vec![7u8; 200];
    let mut g = c.benchmark_group("log append");
    for records in [1u64, 16] {
        g.throughput(Throughput::Elements(records));
        let (mut wal, _ring) = log(&mut SimDisk::new(1));
        let mut acked = 0;
        g.bench_function(format!("{records} records of 200 bytes, sealed"), |b| {
            b.iter(|| {
                for _ in 0..records {
                    wal.append(&[&record]).expect("room: everything before is trimmed");
                }
                let batch = wal.seal(acked).expect("there are records");
                acked = wal.durable();
                wal.trim(acked);
                batch
            });
        });
        let dir = on_disk();
        let (mut wal, mut ring) = log(&mut FileDisk::new(dir.path(), FileDiskOptions::default()));
        let mut acked = 0;
        g.bench_function(format!("{records} records of 200 bytes, durable"), |b| {
            b.iter(|| {
                for _ in 0..records {
                    wal.append(&[&record]).expect("room: everything before is trimmed");
                }
                let batch = wal.seal(acked).expect("there are records");
                let op = IoOp::Write { file: batch.file, offset: batch.offset, data: batch.data, dsync: false };
                run(&mut *ring, op).expect("the disk works");
                run(&mut *ring, IoOp::Sync { files: batch.file.mask() }).expect("the disk works");
                acked = wal.durable();
                wal.trim(acked);
            });
        });
    }
}

fn kv(c: &mut Criterion) {
    const KEYS: u64 = 100_000;
    let dir = on_disk();
    let kv = Arc::new(RocksKv::create(&dir.path().join("kv"), &RocksConfig::default()).expect("a key-value store"));
    let put = |n: u64| KvOp::Put { cf: Cf::Extent, key: (n % KEYS).to_be_bytes().to_vec(), value: vec![7; 170] };
    for first in (0..KEYS).step_by(1000) {
        kv.write(&(first..first + 1000).map(put).collect::<Vec<_>>(), first + 1).expect("it works");
    }
    kv.flush().expect("it works");
    let mut g = c.benchmark_group("kv");
    let mut n = 0u64;
    let mut scattered = move || {
        n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
        n >> 20
    };
    g.bench_function("get from the block cache", |b| {
        b.iter(|| {
            kv.get(Cf::Extent, &(scattered() % KEYS).to_be_bytes()).expect("it works").expect("every key is there")
        });
    });
    let mut lsn = KEYS;
    for puts in [1u64, 16] {
        g.throughput(Throughput::Elements(puts));
        g.bench_function(format!("batch of {puts} puts of 170 bytes"), |b| {
            b.iter(|| {
                lsn += 1;
                let ops: Vec<KvOp> = (0..puts).map(|_| put(scattered())).collect();
                kv.write(&ops, lsn).expect("it works");
            });
        });
    }
}

/// An engine in this thread, on a real disk.
struct Embedded {
    engine: Engine,
    _guard: MountGuard,
    _dir: TempDir,
    next: u64,
}

impl Embedded {
    fn new() -> Self {
        let dir = on_disk();
        let path: &Path = &dir.path().join("store");
        let size = 16 * OBJECTS * OBJECT_LEN;
        let options = MkfsOptions { size, prewrite: Some(size), ..Default::default() };
        Store::mkfs(path, &options, &mut |_, _, _| ()).expect("room for a store");
        let (engine, guard) = mount_engine(path, &MountOptions::default()).expect("a fresh store");
        let mut e = Embedded { engine, _guard: guard, _dir: dir, next: 0 };
        let mut t = Transaction::new();
        t.make_collection(collection(), 0);
        e.engine.submit(0, t);
        e.wait(1);
        for n in 0..OBJECTS {
            let mut t = Transaction::new();
            t.write(collection(), object(n), 0, aligned(OBJECT_LEN as usize));
            e.engine.submit(0, t);
            e.wait(1);
        }
        e
    }

    /// An overwrite of a place that follows no pattern.
    fn overwrite(&mut self, data: &Bytes) -> Transaction {
        self.next = self.next.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let (n, at) = (self.next >> 33, self.next >> 12);
        let offset = at % (OBJECT_LEN / data.len() as u64) * data.len() as u64;
        let mut t = Transaction::new();
        t.write(collection(), object(n % OBJECTS), offset, data.clone());
        t
    }

    /// Waits for so many transactions.
    fn wait(&mut self, mut left: usize) {
        while left > 0 {
            self.engine.poll(true);
            for e in self.engine.events() {
                let Event::Committed { result, .. } = e else { unreachable!("nothing is read") };
                result.expect("the disk works");
                left -= 1;
            }
            while let Some(job) = self.engine.take_job() {
                let done = job.run();
                self.engine.job_done(done);
            }
        }
    }
}

fn collection() -> CollectionId {
    CollectionId::new(1, 0)
}

fn object(n: u64) -> ObjectId {
    ObjectId::new(format!("object-{n}"))
}

fn transactions(c: &mut Criterion) {
    let mut e = Embedded::new();
    let mut g = c.benchmark_group("plan");
    for len in [BLOCK, 128 << 10] {
        let data = aligned(len);
        // Planned in full, then refused by its last operation: no I/O, and the plan is undone.
        g.bench_function(format!("overwrite of {}k, refused at the end", len >> 10), |b| {
            b.iter(|| {
                let mut t = e.overwrite(&data);
                t.remove(collection(), object(OBJECTS));
                e.engine.submit(0, t);
                e.engine.poll(false);
                let refused =
                    e.engine.events().filter(|e| matches!(e, Event::Committed { result: Err(_), .. })).count();
                assert_eq!(refused, 1, "answered at once");
            });
        });
    }
    g.finish();
    let mut g = c.benchmark_group("transaction");
    for (len, depth) in [(BLOCK, 1), (BLOCK, 16), (128 << 10, 1), (128 << 10, 16)] {
        let data = aligned(len);
        g.throughput(Throughput::Elements(depth));
        g.bench_function(format!("overwrites of {}k, {depth} at a time, durable", len >> 10), |b| {
            b.iter(|| {
                for token in 0..depth {
                    let t = e.overwrite(&data);
                    e.engine.submit(token, t);
                }
                e.wait(depth as usize);
            });
        });
    }
    g.finish();
    let (_, closed) = e.engine.umount();
    closed.expect("the disk works");
}

criterion_group! {
    name = engine;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = checksum, formats, log_append, kv, transactions
}
criterion_main!(engine);
