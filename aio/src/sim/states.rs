//! What a power failure may leave.
//!
//! Each write that is not durable may be there whole, not at all, or torn: each of its 512-byte
//! sectors on its own. Where several such writes cover one sector, it holds what one of them put
//! there or what was durable before; a whole older write with the newer one missing is the same as
//! a disk that never received the newer one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::disk::SimDisk;
use super::image::{Image, mix, page_hash};
use super::medium::Medium;
use crate::seam::BLOCK;

/// What a disk writes in one piece, in bytes.
pub(crate) const SECTOR: usize = 512;

const SECTORS: usize = BLOCK / SECTOR;

/// How many states to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// With at most this many writes not durable, each subset of them is a state.
    pub exhaustive_bits: u32,
    /// With more: none, all, and this many random subsets.
    pub subset_samples: usize,
    /// So many random torn states besides.
    pub torn_samples: usize,
    /// Of the random choices.
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { exhaustive_bits: 8, subset_samples: 64, torn_samples: 8, seed: 0 }
    }
}

/// The disks that a power failure may leave, each once; every one is a fresh disk on which all is
/// durable, with a seed of its own.
pub struct States {
    files: Vec<(Arc<str>, Image)>,
    pages: Vec<Page>,
    /// First sector of each write that is not durable, in order of submission.
    first_sectors: Vec<u64>,
    limits: Limits,
    /// Number of the next candidate.
    next: usize,
    candidates: usize,
    seen: HashSet<u64>,
    rng: SmallRng,
    seed: u64,
}

/// A page that may be in more than one state.
struct Page {
    file: usize,
    index: u64,
    base: Bytes,
    base_hash: u64,
    /// What writes put there, in order: the write's number, the bytes, their hash.
    versions: Vec<(usize, Bytes, u64)>,
}

/// How much of a write is there.
#[derive(Clone, Copy)]
enum Presence {
    Absent,
    Whole,
    /// The sectors before this one.
    First(u64),
    /// The sectors from this one on.
    From(u64),
    /// Each sector as a hash of its number and this decides.
    Scattered(u64),
}

impl Presence {
    /// Whether a sector, counted from the start of the write, is there.
    fn has(self, sector: u64) -> bool {
        match self {
            Presence::Absent => false,
            Presence::Whole => true,
            Presence::First(n) => sector < n,
            Presence::From(n) => sector >= n,
            Presence::Scattered(salt) => mix(salt ^ sector.wrapping_mul(0x9e37_79b9_7f4a_7c15)) & 1 == 1,
        }
    }

    fn is_torn(self) -> bool {
        !matches!(self, Presence::Absent | Presence::Whole)
    }
}

impl States {
    pub(crate) fn new(medium: &Medium, limits: &Limits, salt: u64) -> Self {
        let seed = mix(limits.seed ^ mix(salt));
        let ids = pending_ids(medium);
        let n = ids.len();
        let subsets = if n <= limits.exhaustive_bits as usize { 1 << n } else { 2 + limits.subset_samples };
        let torn = if n == 0 { 0 } else { limits.torn_samples };
        let (pages, first_sectors) = pages_of(medium, &ids);
        States {
            files: medium.files.iter().map(|f| (Arc::clone(&f.name), f.durable.clone())).collect(),
            pages,
            first_sectors,
            limits: *limits,
            next: 0,
            candidates: subsets + torn,
            seen: HashSet::new(),
            rng: SmallRng::seed_from_u64(seed),
            seed,
        }
    }

    /// One random state: torn as often as not.
    pub(crate) fn random(medium: &Medium, seed: u64) -> SimDisk {
        let limits = Limits { exhaustive_bits: 0, subset_samples: 0, torn_samples: 0, seed };
        let mut states = States::new(medium, &limits, 0);
        let n = states.first_sectors.len();
        let presence = if n > 0 && states.rng.random() { states.torn() } else { states.random_subset(n) };
        let (_, changes) = states.resolve(&presence);
        states.build(&changes)
    }

    /// How many there are, without building them.
    pub fn count_distinct(mut self) -> u64 {
        let mut n = 0;
        while self.next_changes().is_some() {
            n += 1;
        }
        n
    }

    /// The pages, by number, in which the next new state differs from what is durable.
    fn next_changes(&mut self) -> Option<Vec<(usize, Bytes)>> {
        while self.next < self.candidates {
            let presence = self.candidate(self.next);
            self.next += 1;
            let (hash, changes) = self.resolve(&presence);
            if self.seen.insert(hash) {
                return Some(changes);
            }
        }
        None
    }

    fn candidate(&mut self, i: usize) -> Vec<Presence> {
        let n = self.first_sectors.len();
        let exhaustive = n <= self.limits.exhaustive_bits as usize;
        let subsets = if exhaustive { 1 << n } else { 2 + self.limits.subset_samples };
        match i {
            _ if i >= subsets => self.torn(),
            _ if exhaustive => (0..n).map(|w| whole(i >> w & 1 == 1)).collect(),
            0 => vec![Presence::Absent; n],
            1 => vec![Presence::Whole; n],
            _ => self.random_subset(n),
        }
    }

    /// A prefix, all but one, one alone, or any: the shapes that bugs are sensitive to.
    fn random_subset(&mut self, n: usize) -> Vec<Presence> {
        if n == 0 {
            return Vec::new();
        }
        let one = self.rng.random_range(0..n);
        match self.rng.random_range(0..6) {
            0 => (0..n).map(|w| whole(w < one)).collect(),
            1 => (0..n).map(|w| whole(w != one)).collect(),
            2 => (0..n).map(|w| whole(w == one)).collect(),
            _ => (0..n).map(|_| whole(self.rng.random())).collect(),
        }
    }

    /// One write torn among whole and missing ones, or all scattered.
    fn torn(&mut self) -> Vec<Presence> {
        let n = self.first_sectors.len();
        if self.rng.random_range(0..3) == 0 {
            return (0..n).map(|_| Presence::Scattered(self.rng.random())).collect();
        }
        let mut presence = self.random_subset(n);
        let victim = self.rng.random_range(0..n);
        let length = self.sectors_of(victim);
        let cut = self.rng.random_range(1..length);
        presence[victim] = match self.rng.random_range(0..3) {
            0 => Presence::First(cut),
            1 => Presence::From(cut),
            _ => Presence::Scattered(self.rng.random()),
        };
        presence
    }

    /// Sectors from the first to the last of a write.
    fn sectors_of(&self, write: usize) -> u64 {
        let mine = |p: &&Page| p.versions.iter().any(|v| v.0 == write);
        let last = self.pages.iter().filter(mine).map(|p| p.index).max().expect("a write has pages");
        (last + 1) * SECTORS as u64 - self.first_sectors[write]
    }

    /// The state's identity, and the pages in which it differs from what is durable.
    fn resolve(&self, presence: &[Presence]) -> (u64, Vec<(usize, Bytes)>) {
        let mut hash = 0u64;
        let mut changes = Vec::with_capacity(self.pages.len());
        for (i, p) in self.pages.iter().enumerate() {
            let (content, content_hash) = if p.versions.iter().any(|v| presence[v.0].is_torn()) {
                let content = self.torn_page(p, presence);
                let h = page_hash(place(p.file, p.index), &content);
                (Some(content), h)
            } else {
                let newest = p.versions.iter().rev().find(|v| matches!(presence[v.0], Presence::Whole));
                newest.map_or((None, p.base_hash), |v| (Some(v.1.clone()), v.2))
            };
            hash = hash.wrapping_add(content_hash);
            if content_hash != p.base_hash
                && let Some(content) = content
            {
                changes.push((i, content));
            }
        }
        (hash, changes)
    }

    fn torn_page(&self, page: &Page, presence: &[Presence]) -> Bytes {
        let mut content = page.base.to_vec();
        for (write, bytes, _) in &page.versions {
            let first = page.index * SECTORS as u64 - self.first_sectors[*write];
            for s in 0..SECTORS {
                if presence[*write].has(first + s as u64) {
                    content[s * SECTOR..(s + 1) * SECTOR].copy_from_slice(&bytes[s * SECTOR..(s + 1) * SECTOR]);
                }
            }
        }
        content.into()
    }

    fn build(&self, changes: &[(usize, Bytes)]) -> SimDisk {
        let mut files = self.files.clone();
        for (i, content) in changes {
            let p = &self.pages[*i];
            files[p.file].1.set_page(p.index, content.clone());
        }
        SimDisk::with_files(files, mix(self.seed ^ self.next as u64))
    }
}

impl Iterator for States {
    type Item = SimDisk;

    fn next(&mut self) -> Option<SimDisk> {
        let changes = self.next_changes()?;
        Some(self.build(&changes))
    }
}

fn whole(present: bool) -> Presence {
    if present { Presence::Whole } else { Presence::Absent }
}

fn place(file: usize, index: u64) -> u64 {
    (file as u64) << 48 | index
}

fn pending_ids(medium: &Medium) -> Vec<u64> {
    let mut ids: Vec<u64> = medium.files.iter().flat_map(|f| f.pending.iter().map(|p| p.id)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The pages that pending writes cover, and the first sector of each write in `ids`.
fn pages_of(medium: &Medium, ids: &[u64]) -> (Vec<Page>, Vec<u64>) {
    let mut pages: Vec<Page> = Vec::new();
    let mut first_sectors = vec![u64::MAX; ids.len()];
    for (file, f) in medium.files.iter().enumerate() {
        let mut known: HashMap<u64, usize> = HashMap::with_capacity(f.pending.len());
        for p in &f.pending {
            let write = ids.binary_search(&p.id).expect("collected from the same writes");
            first_sectors[write] = first_sectors[write].min(p.offset / SECTOR as u64);
            for at in (0..p.data.len()).step_by(BLOCK) {
                let index = (p.offset + at as u64) / BLOCK as u64;
                let i = *known.entry(index).or_insert_with(|| {
                    let base = f.durable.page(index);
                    let base_hash = page_hash(place(file, index), &base);
                    pages.push(Page { file, index, base, base_hash, versions: Vec::new() });
                    pages.len() - 1
                });
                let content = p.data.slice(at..at + BLOCK);
                let hash = page_hash(place(file, index), &content);
                pages[i].versions.push((write, content, hash));
            }
        }
    }
    (pages, first_sectors)
}
