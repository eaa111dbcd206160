//! The drive against theory, and against itself.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{CLASSES, Class, Counts, Drive, FlashError, Geometry, theory};

const PAGE: u64 = 4096;

/// A drive of `blocks` times the pages of a block for the host.
fn drive(blocks: u64, pages_per_block: u64, over_provisioning: f64, streams: bool) -> Drive {
    let geometry = Geometry { page_bytes: PAGE, block_bytes: pages_per_block * PAGE, over_provisioning, streams };
    Drive::new(geometry, blocks * geometry.block_bytes).unwrap()
}

fn fill(d: &mut Drive) {
    d.precondition(Class::Data, 0, d.capacity()).unwrap();
}

/// Counts while `pages` pages are written that `next` chooses.
fn write(d: &mut Drive, pages: u64, mut next: impl FnMut() -> (Class, u64)) -> Counts {
    let before = d.counts();
    for _ in 0..pages {
        let (class, page) = next();
        d.write(class, page * PAGE, PAGE).unwrap();
    }
    d.counts().since(&before)
}

/// Amplification of uniform random writes after as many as bring about the steady state.
fn uniform(d: &mut Drive, seed: u64) -> f64 {
    let pages = d.capacity() / PAGE;
    let mut rng = SmallRng::seed_from_u64(seed);
    fill(d);
    let mut next = || (Class::Data, rng.random_range(0..pages));
    write(d, 4 * pages, &mut next);
    write(d, 4 * pages, &mut next).total().amplification().unwrap()
}

/// Theory has infinitely many blocks, all of them full; here they are a thousand and more, of which
/// one is half full on average and one is kept free. That is taken into account below, but only
/// to the half of a block, and half a block is 0.7 % of the 70 that are spare at the least
/// over-provisioning. What is measured is a mean over many thousands of collections, good to some
/// thousandths. Hence 1 %.
#[test]
fn uniform_random_writes_cost_what_theory_says() {
    let shapes = [(16, 0.28), (64, 0.07), (64, 0.15), (64, 0.28), (64, 0.5), (256, 0.07), (256, 0.28), (512, 0.3)];
    for (seed, (pages_per_block, over_provisioning)) in (7..).zip(shapes) {
        let mut d = drive(1000, pages_per_block, over_provisioning, false);
        let usable = d.media_capacity() as f64 / d.geometry().block_bytes as f64 - 1.5;
        let expected = theory::greedy(1000.0 / usable, pages_per_block as u32);
        let limit = theory::large_blocks(1000.0 / usable);
        let measured = uniform(&mut d, seed);
        let off = measured / expected - 1.0;
        println!(
            "seed {seed}, {pages_per_block} pages a block, {over_provisioning} spare: {measured:.3}, by theory \
             {expected:.3} ({:+.2} %), for large blocks {limit:.3}",
            off * 100.0
        );
        assert!(off.abs() < 0.01, "{measured} and not {expected}");
        d.check().unwrap();
    }
}

/// Xiang and Kurkoski (2012), abstract: 2.35 by simulation with 30 % over-provisioning. Theirs is
/// a drive of its own size, so the last digit may differ by one.
#[test]
fn a_published_simulation_is_met() {
    let measured = uniform(&mut drive(1000, 256, 0.3, false), 1);
    assert!((measured - 2.35).abs() <= 0.015, "{measured}");
}

#[test]
fn preconditioning_counts_nothing() {
    let mut d = drive(100, 64, 0.07, false);
    for _ in 0..3 {
        fill(&mut d);
    }
    assert_eq!(d.counts(), Counts::default());
    d.check().unwrap();
}

#[test]
fn sequential_overwrites_cost_nothing_beside_themselves() {
    for streams in [false, true] {
        let mut d = drive(100, 64, 0.07, streams);
        fill(&mut d);
        for _ in 0..5 {
            d.write(Class::Data, 0, d.capacity()).unwrap();
        }
        let total = d.counts().total();
        assert_eq!((total.host, total.media), (5 * d.capacity(), 5 * d.capacity()));
        d.check().unwrap();
    }
}

/// A log that is written round and round beside data overwritten at random: the pages of a log
/// block die together, unless data pages lie between them.
fn log_beside_data(streams: bool) -> Counts {
    let mut d = drive(400, 64, 0.1, streams);
    let pages = d.capacity() / PAGE;
    let log = pages / 10;
    d.write(Class::Log, 0, log * PAGE).unwrap();
    d.write(Class::Data, log * PAGE, (pages - log) * PAGE).unwrap();
    let (mut rng, mut n) = (SmallRng::seed_from_u64(3), 0);
    let mut next = || {
        n += 1;
        match n % 2 {
            0 => (Class::Log, n / 2 % log),
            _ => (Class::Data, rng.random_range(log..pages)),
        }
    };
    write(&mut d, 6 * pages, &mut next);
    let counts = write(&mut d, 6 * pages, &mut next);
    d.check().unwrap();
    counts
}

#[test]
fn streams_let_a_log_die_in_whole_blocks() {
    let (mixed, apart) = (log_beside_data(false), log_beside_data(true));
    let wa = |c: &Counts, class| c.of(class).amplification().unwrap();
    println!("log {:.3} and {:.3}", wa(&mixed, Class::Log), wa(&apart, Class::Log));
    println!("data {:.3} and {:.3}", wa(&mixed, Class::Data), wa(&apart, Class::Data));
    assert_eq!(mixed.total().host, apart.total().host);
    // With streams, at most the block that the log's end has just entered is collected too early.
    assert!(wa(&apart, Class::Log) < 1.01);
    assert!(wa(&apart, Class::Data) < wa(&mixed, Class::Data));
    assert!(apart.total().media < mixed.total().media);
}

/// Random writes, partial ones among them, trims and growth, with a check of everything now and
/// then.
fn anything(seed: u64, streams: bool) -> Counts {
    let mut d = drive(60, 16, 0.2, streams);
    let mut rng = SmallRng::seed_from_u64(seed);
    for step in 0..3000 {
        let capacity = d.capacity();
        let offset = rng.random_range(0..capacity);
        let len = rng.random_range(0..=(capacity - offset).min(300_000));
        match rng.random_range(0..100) {
            0 => d.grow(rng.random_range(0..100_000)).unwrap(),
            1..5 => d.trim(offset, len).unwrap(),
            n => d.write(CLASSES[n % CLASSES.len()], offset, len).unwrap(),
        }
        if step % 100 == 0 {
            d.check().unwrap();
        }
    }
    d.counts()
}

#[test]
fn the_mapping_stays_one_to_one_whatever_is_written() {
    for seed in 0..20 {
        for streams in [false, true] {
            let counts = anything(seed, streams);
            println!("seed {seed}: {counts:?}");
            assert!(counts.erases > 0 && counts.total().media > counts.total().host);
            assert_eq!(counts, anything(seed, streams), "the same writes give the same counts");
        }
    }
}

#[test]
fn whole_pages_are_written_for_parts_of_them() {
    let mut d = drive(100, 64, 0.07, false);
    d.write(Class::KvLog, PAGE - 1, 2).unwrap();
    d.write(Class::KvLog, 0, 0).unwrap();
    let b = d.counts().of(Class::KvLog);
    assert_eq!((b.host, b.media), (2, 2 * PAGE));
    assert_eq!(d.counts().of(Class::Log).amplification(), None);
}

#[test]
fn trimmed_pages_are_not_moved() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut random_half = |trim: bool| {
        let mut d = drive(200, 64, 0.07, false);
        let pages = d.capacity() / PAGE;
        fill(&mut d);
        if trim {
            d.trim(d.capacity() / 2, d.capacity() / 2).unwrap();
        }
        let mut next = || (Class::Data, rng.random_range(0..pages / 2));
        write(&mut d, 4 * pages, &mut next);
        write(&mut d, 4 * pages, &mut next).total().amplification().unwrap()
    };
    // Half of the addresses in use: as if over-provisioned by 114 %.
    let expected = theory::greedy(1.0 / 2.14, 64);
    let (full, trimmed) = (random_half(false), random_half(true));
    println!("{full:.3} full, {trimmed:.3} trimmed, by theory {expected:.3}");
    assert!(full > 1.5 * trimmed && (trimmed / expected - 1.0).abs() < 0.02);
}

#[test]
fn what_makes_no_drive_is_refused() {
    let good = Geometry::default();
    for bad in [
        Geometry { page_bytes: 0, ..good },
        Geometry { page_bytes: 5000, ..good },
        Geometry { block_bytes: 4096, ..good },
        Geometry { block_bytes: (4 << 20) + 1, ..good },
        Geometry { over_provisioning: 0.0, ..good },
        Geometry { over_provisioning: f64::NAN, ..good },
        Geometry { block_bytes: 1 << 30, ..good },
    ] {
        assert!(matches!(Drive::new(bad, 8 << 30), Err(FlashError::Geometry(_))), "{bad:?}");
    }
    let too_large = Drive::new(Geometry { page_bytes: 512, ..good }, 4 << 40).unwrap_err().to_string();
    assert!(too_large.contains("larger pages"), "{too_large}");
}

#[test]
fn writes_beside_the_drive_change_nothing() {
    let mut d = drive(100, 64, 0.07, false);
    let capacity = d.capacity();
    for (offset, len) in [(capacity, 1), (0, capacity + 1), (u64::MAX, 2)] {
        let error = FlashError::OutOfRange { offset, len, capacity };
        assert_eq!(d.write(Class::Data, offset, len), Err(error.clone()));
        assert_eq!(d.trim(offset, len), Err(error));
    }
    assert_eq!(d.counts(), Counts::default());
}
