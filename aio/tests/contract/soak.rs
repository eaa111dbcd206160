//! Random requests against a plain array of bytes.

use lodestore_aio::{BLOCK, FileId, IoOp, Wait};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::subject::{on_every_ring, push, read_op, seed, write_op};

const BLOCKS: usize = 128;
const DEPTH: usize = 24;
const OPS: u64 = 3000;

#[derive(Clone, Copy)]
struct Busy {
    token: u64,
    file: usize,
    block: usize,
    blocks: usize,
    write: bool,
}

#[test]
fn random_requests_agree_with_an_array_of_bytes() {
    let seed = seed();
    on_every_ring(|s| {
        let mut rng = StdRng::seed_from_u64(seed);
        let files: Vec<FileId> = ["a", "b"].iter().map(|n| s.file(n, BLOCKS)).collect();
        let mut model = vec![vec![0u8; BLOCKS * BLOCK]; 2];
        let mut ring = s.ring(DEPTH);
        let mut busy: Vec<Busy> = Vec::new();
        let mut done = Vec::new();
        let mut next = 0;
        let mut reads = 0;
        while next < OPS || ring.in_flight() > 0 {
            while next < OPS && ring.in_flight() < DEPTH && rng.random_range(0..8) > 0 {
                let (file, block) = (rng.random_range(0..2), rng.random_range(0..BLOCKS));
                let blocks = rng.random_range(1..=8).min(BLOCKS - block);
                let write = rng.random();
                if rng.random_range(0..20) == 0 {
                    push(&mut *ring, u64::MAX, IoOp::Sync { files: rng.random_range(0..4) });
                    continue;
                }
                // Like the engine: nothing overlaps a write in flight.
                if busy.iter().any(|b| {
                    b.file == file && b.block < block + blocks && block < b.block + b.blocks && (b.write || write)
                }) {
                    continue;
                }
                let token = next;
                next += 1;
                busy.push(Busy { token, file, block, blocks, write });
                if write {
                    let data: Vec<u8> = (0..blocks * BLOCK).map(|i| (token as usize * 7 + i / 512) as u8).collect();
                    model[file][block * BLOCK..(block + blocks) * BLOCK].copy_from_slice(&data);
                    let mut op = write_op(files[file], block as u64, data);
                    if let IoOp::Write { dsync, .. } = &mut op {
                        *dsync = rng.random_range(0..16) == 0;
                    }
                    push(&mut *ring, token, op);
                } else {
                    push(&mut *ring, token, read_op(files[file], block as u64, blocks));
                }
            }
            if rng.random() {
                ring.submit().unwrap();
            }
            let wait = if rng.random() { Wait::No } else { Wait::For(rng.random_range(0..4)) };
            ring.reap(wait, &mut done).unwrap();
            for d in done.drain(..) {
                d.result.unwrap();
                let Some(i) = busy.iter().position(|b| b.token == d.token) else {
                    assert_eq!(d.token, u64::MAX);
                    continue;
                };
                let Busy { file, block, blocks, write, .. } = busy.swap_remove(i);
                assert_eq!(write, d.buf.is_none());
                if let Some(buf) = d.buf {
                    reads += 1;
                    assert!(
                        buf[..] == model[file][block * BLOCK..(block + blocks) * BLOCK],
                        "{}: read of {block}+{blocks}",
                        s.name
                    );
                }
            }
        }
        assert!(busy.is_empty() && reads > OPS / 4, "{}: {reads} reads", s.name);
    });
}
