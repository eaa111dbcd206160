//! The check of a whole store: metadata against itself, against the allocator, and, on request,
//! every block of data against its checksum.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use lodestore_aio::{AlignedBuf, IoOp, run};
use lodestore_kv::{Cf, KvOp};

use super::{Engine, mount};
use crate::error::Error;
use crate::format::chunk::{CHUNK_BLOCKS, Chunk};
use crate::format::onode::Onode;
use crate::format::shared::{self, Region};
use crate::format::{BLOCK_LEN, key};
use crate::types::ObjectId;

/// Something wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FsckError {
    /// Data that does not match its checksum, or cannot be read.
    Data {
        /// The object.
        oid: ObjectId,
        /// Offset of the block in the object.
        offset: u64,
        /// Where it is stored, and what is wrong.
        why: String,
    },
    /// An object or extent map that cannot be decoded or makes no sense.
    Metadata {
        /// What it belongs to.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// A block with more owners than it may have.
    DoubleUse {
        /// The second owner.
        oid: ObjectId,
        /// Offset in it.
        offset: u64,
        /// Where it is stored.
        place: String,
    },
    /// A block in use that the allocator would give away.
    UsedButFree {
        /// Its owner.
        oid: ObjectId,
        /// Offset in it.
        offset: u64,
    },
    /// Blocks that nobody uses and the allocator would never give away.
    Leaked {
        /// How many.
        blocks: u64,
    },
    /// A reference count that is not the number of owners.
    RefCount {
        /// Where the block is stored.
        place: String,
        /// Recorded owners.
        recorded: u32,
        /// Owners found.
        found: u32,
    },
    /// A key that belongs to nothing.
    Stray {
        /// Column family and key.
        key: String,
    },
    /// Totals that are not what was found.
    Totals {
        /// Which.
        what: &'static str,
        /// Recorded.
        recorded: u64,
        /// Found.
        found: u64,
    },
}

impl FsckError {
    /// Whether `--repair` can mend it without guessing.
    pub fn is_repairable(&self) -> bool {
        !matches!(self, FsckError::Data { .. } | FsckError::Metadata { .. } | FsckError::DoubleUse { .. })
    }
}

impl fmt::Display for FsckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FsckError::Data { oid, offset, why } => write!(f, "object {oid} offset {offset}: {why}"),
            FsckError::Metadata { what, why } => write!(f, "{what}: {why}"),
            FsckError::DoubleUse { oid, offset, place } => {
                write!(f, "object {oid} offset {offset}: block at {place} belongs to another object too")
            }
            FsckError::UsedButFree { oid, offset } => {
                write!(f, "object {oid} offset {offset}: its block is marked free")
            }
            FsckError::Leaked { blocks } => write!(f, "{blocks} blocks are marked used and belong to nothing"),
            FsckError::RefCount { place, recorded, found } => {
                write!(f, "block at {place}: reference count {recorded}, {found} owners found")
            }
            FsckError::Stray { key } => write!(f, "stray key {key}"),
            FsckError::Totals { what, recorded, found } => {
                write!(f, "number of {what}: {recorded} recorded, {found} found")
            }
        }
    }
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsckReport {
    /// Objects seen.
    pub objects: u64,
    /// Mapped blocks seen, shared ones for each owner.
    pub blocks: u64,
    /// Blocks read and compared.
    pub blocks_read: u64,
    /// Omap keys seen.
    pub omap_keys: u64,
    /// Everything wrong, in order of discovery.
    pub errors: Vec<FsckError>,
    /// How many of them were mended.
    pub repaired: u64,
}

#[derive(Default)]
struct Found {
    report: FsckReport,
    /// Object number to name and size.
    names: HashMap<u64, (ObjectId, u64)>,
    /// Whether an object or an extent map could not be decoded: then nobody knows what belongs to
    /// nothing, nor how many owners a block has.
    unreadable: bool,
    omaps: HashSet<u64>,
    /// Owners of blocks that may be shared.
    owners: BTreeMap<u64, u32>,
    repairs: Vec<KvOp>,
}

impl Engine {
    /// Checks the store; nothing may be under way. With `repair`, mends what needs no guess, and
    /// makes it durable.
    pub fn fsck(&mut self, deep: bool, repair: bool) -> Result<FsckReport, Error> {
        let mut events = Vec::new();
        if let Some(reason) = self.poison.clone().filter(|_| repair) {
            return Err(Error::Poisoned(reason));
        }
        if self.poison.is_none() {
            self.settle(&mut events)?;
        }
        let mut f = Found::default();
        self.check_onodes(&mut f)?;
        self.check_extents(&mut f, deep)?;
        self.check_counts(&mut f)?;
        self.check_omap(&mut f)?;
        self.check_totals(&mut f)?;
        if repair && !f.report.errors.is_empty() {
            self.repair(&mut f)?;
        }
        Ok(f.report)
    }

    fn check_onodes(&mut self, f: &mut Found) -> Result<(), Error> {
        let ranges: Vec<_> = self.meta.collections().iter().map(|(c, bits)| key::collection_range(*c, *bits)).collect();
        for entry in self.kv.scan(Cf::Onode, &[0], &[0xff; 16]) {
            let (k, v) = entry?;
            let what = || format!("onode {}", k.escape_ascii());
            let oid = match key::parse_onode(&k) {
                Ok((_, oid)) => oid,
                Err(e) => {
                    f.error(FsckError::Metadata { what: what(), why: e.to_string() });
                    f.unreadable = true;
                    continue;
                }
            };
            f.report.objects += 1;
            if !ranges.iter().any(|(from, to)| *from <= k && k < *to) {
                f.error(FsckError::Metadata { what: format!("object {oid}"), why: "belongs to no collection".into() });
            }
            match Onode::decode(&v) {
                Err(e) => {
                    f.error(FsckError::Metadata { what: format!("object {oid}"), why: e.to_string() });
                    f.unreadable = true;
                }
                Ok(o) => {
                    let twice = f.names.contains_key(&o.nid) || (o.omap != 0 && !f.omaps.insert(o.omap));
                    if twice || o.nid.max(o.omap) >= self.meta.ids().1.max(self.meta.ids().0) {
                        let why = format!(
                            "object number {} or omap number {} is used twice or was never given out",
                            o.nid, o.omap
                        );
                        f.error(FsckError::Metadata { what: format!("object {oid}"), why });
                    }
                    f.names.insert(o.nid, (oid, o.size));
                }
            }
        }
        Ok(())
    }

    fn check_extents(&mut self, f: &mut Found, deep: bool) -> Result<(), Error> {
        let usable = self.alloc.usable();
        let mut seen = vec![0u64; usable.div_ceil(64) as usize];
        // Of those, the ones whose owner does not know of any other.
        let mut sole = seen.clone();
        let kv = self.kv.clone();
        for entry in kv.scan(Cf::Extent, &key::extent(0, 0), &key::extent(u64::MAX, u32::MAX)) {
            let (k, v) = entry?;
            let (nid, index) = key::parse_extent(&k)?;
            let Some((oid, size)) = f.names.get(&nid).cloned() else {
                f.stray(Cf::Extent, k);
                continue;
            };
            let chunk = match Chunk::decode(&v) {
                Ok(c) => c,
                Err(e) => {
                    f.error(FsckError::Metadata {
                        what: format!("object {oid} extent map chunk {index}"),
                        why: e.to_string(),
                    });
                    f.unreadable = true;
                    continue;
                }
            };
            for (i, slot) in chunk.slots.iter().enumerate() {
                let Some(slot) = slot else { continue };
                let offset = (u64::from(index) * CHUNK_BLOCKS as u64 + i as u64) * BLOCK_LEN;
                f.report.blocks += 1;
                let what = || format!("object {oid} offset {offset}");
                if slot.place >= usable {
                    f.error(FsckError::Metadata {
                        what: what(),
                        why: format!("block {} is beyond the space", slot.place),
                    });
                    continue;
                }
                if offset >= size {
                    f.error(FsckError::Metadata {
                        what: what(),
                        why: format!("lies behind the object's end at {size}"),
                    });
                }
                let (word, bit) = ((slot.place / 64) as usize, 1u64 << (slot.place % 64));
                let again = seen[word] & bit != 0;
                seen[word] |= bit;
                if slot.shared {
                    *f.owners.entry(slot.place).or_insert(0) += 1;
                }
                if !slot.shared {
                    sole[word] |= bit;
                }
                if again && sole[word] & bit != 0 {
                    f.error(FsckError::DoubleUse { oid: oid.clone(), offset, place: self.place_name(slot.place) });
                }
                if self.alloc.is_free(slot.place) {
                    f.error(FsckError::UsedButFree { oid: oid.clone(), offset });
                }
                if deep {
                    f.report.blocks_read += 1;
                    if let Err(why) = self.check_block(slot.place, slot.crc) {
                        f.error(FsckError::Data { oid: oid.clone(), offset, why });
                    }
                }
            }
        }
        let used: u64 = seen.iter().map(|w| u64::from(w.count_ones())).sum();
        let mut missing = 0;
        for (word, bits) in seen.iter().enumerate() {
            for b in (0..64).filter(|b| bits >> b & 1 == 1) {
                missing += u64::from(self.alloc.is_free(word as u64 * 64 + b));
            }
        }
        let marked = usable - self.alloc.free_blocks() - self.limbo.blocks();
        let leaked = (marked + missing).saturating_sub(used);
        if leaked > 0 {
            f.error(FsckError::Leaked { blocks: leaked });
        }
        Ok(())
    }

    fn check_block(&mut self, place: u64, crc: u32) -> Result<(), String> {
        let (file, offset, _) = self.locate(place);
        let buf = AlignedBuf::zeroed(BLOCK_LEN as usize);
        let buf = run(&mut *self.ring, IoOp::Read { file, offset, buf }).map_err(|e| e.to_string())?;
        let got = crc32c::crc32c(&buf.expect("a read returns its buffer"));
        if got == crc {
            return Ok(());
        }
        Err(format!("block at {} has checksum {got:08x}, expected {crc:08x}", self.place_name(place)))
    }

    fn check_counts(&mut self, f: &mut Found) -> Result<(), Error> {
        let mut recorded: BTreeMap<u64, Region> = BTreeMap::new();
        for entry in self.kv.iter(Cf::Shared, &[0], &[0xff; 9]) {
            let (k, v) = entry?;
            match (key::parse_shared(&k), Region::decode(&v)) {
                (Ok(region), Ok(r)) => drop(recorded.insert(region, r)),
                (Err(e), _) | (_, Err(e)) => f.error(FsckError::Metadata {
                    what: format!("reference counts {}", k.escape_ascii()),
                    why: e.to_string(),
                }),
            }
        }
        let mut right: BTreeMap<u64, Region> = BTreeMap::new();
        for (place, n) in f.owners.iter().filter(|(_, n)| **n >= 2) {
            let (region, i) = shared::locate(*place);
            right.entry(region).or_default().counts.insert(i, *n);
        }
        let regions: std::collections::BTreeSet<u64> = recorded.keys().chain(right.keys()).copied().collect();
        for region in regions {
            let empty = Region::default();
            let (have, want) = (recorded.get(&region).unwrap_or(&empty), right.get(&region).unwrap_or(&empty));
            if have == want {
                continue;
            }
            for i in 0..=u8::MAX {
                let count = |r: &Region| r.counts.get(&i).copied().unwrap_or(1);
                let (a, b) = (count(have), count(want));
                if a != b {
                    let place = region * shared::REGION_BLOCKS + u64::from(i);
                    let place =
                        if place < self.alloc.total() { self.place_name(place) } else { format!("block {place}") };
                    f.error(FsckError::RefCount { place, recorded: a, found: b });
                }
            }
            let key = key::shared(region);
            f.repairs.push(match want.counts.is_empty() {
                false => KvOp::Put { cf: Cf::Shared, key, value: want.encode() },
                true => KvOp::Delete { cf: Cf::Shared, key },
            });
        }
        Ok(())
    }

    fn check_omap(&mut self, f: &mut Found) -> Result<(), Error> {
        let kv = self.kv.clone();
        for entry in kv.scan(Cf::Omap, &[0], &[0xff; 9]) {
            let (k, v) = entry?;
            match key::parse_omap(&k) {
                Ok((id, _)) if !f.omaps.contains(&id) => f.stray(Cf::Omap, k),
                Ok((_, user)) => {
                    f.report.omap_keys += u64::from(user.is_some());
                    if let Err(e) = crate::format::small::decode_bytes(v) {
                        f.error(FsckError::Metadata {
                            what: format!("omap key {}", k.escape_ascii()),
                            why: e.to_string(),
                        });
                    }
                }
                Err(e) => f.error(FsckError::Metadata { what: "omap".into(), why: e.to_string() }),
            }
        }
        Ok(())
    }

    fn check_totals(&mut self, f: &mut Found) -> Result<(), Error> {
        for (what, recorded, found) in
            [("objects", self.objects, f.report.objects), ("mapped blocks", self.stored, f.report.blocks)]
        {
            if recorded != found {
                f.error(FsckError::Totals { what, recorded, found });
            }
        }
        Ok(())
    }

    /// Writes the right reference counts, removes stray keys, and builds allocator and totals anew.
    fn repair(&mut self, f: &mut Found) -> Result<(), Error> {
        let double = |e: &FsckError| matches!(e, FsckError::DoubleUse { .. });
        if f.unreadable || f.report.errors.iter().any(double) {
            // Whose the blocks are is a guess, and so is every count of their owners.
            return Ok(());
        }
        let ops = std::mem::take(&mut f.repairs);
        self.kv.write(&ops, self.applied)?;
        self.kv.flush()?;
        let (space, damage) = mount::rebuild(&*self.kv, self.alloc.total(), self.alloc.usable())?;
        if let Some(e) = damage {
            return Err(e);
        }
        (self.alloc, self.stored, self.objects) = (space.alloc, space.stored, space.objects);
        f.report.repaired = f.report.errors.iter().filter(|e| e.is_repairable()).count() as u64;
        Ok(())
    }
}

impl Found {
    fn error(&mut self, e: FsckError) {
        self.report.errors.push(e);
    }

    fn stray(&mut self, cf: Cf, k: Vec<u8>) {
        if self.unreadable {
            let (what, why) =
                (format!("{} {}", cf.name(), k.escape_ascii()), "may belong to an object that cannot be read");
            return self.error(FsckError::Metadata { what, why: why.into() });
        }
        self.error(FsckError::Stray { key: format!("{} {}", cf.name(), k.escape_ascii()) });
        self.repairs.push(KvOp::Delete { cf, key: k });
    }
}
