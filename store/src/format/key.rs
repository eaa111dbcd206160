//! Keys of the column families. Integers are big-endian so that keys sort as numbers do.

use super::damaged;
use crate::error::Error;
use crate::types::{CollectionId, ObjectId};

/// First byte of a collection's key in `Meta`.
pub const COLLECTION: u8 = b'C';
/// First byte of a part of the allocator's snapshot in `Meta`.
pub const SNAPSHOT: u8 = b'A';
/// Key of the next object number in `Meta`.
pub const NEXT_ID: &[u8] = b"N";
/// Key of the number of pre-written blocks in `Meta`.
pub const PREWRITTEN: &[u8] = b"W";

/// Key of the store's identity in `Meta`.
pub const UUID: &[u8] = b"U";

/// Ends an escaped string: sorts below an escaped zero and below every other byte.
const END: [u8; 2] = [0x00, 0x01];
/// Stands for a zero byte inside an escaped string.
const ZERO: [u8; 2] = [0x00, 0xff];

/// `C` pool:u64 seed:u32.
pub fn collection(c: CollectionId) -> Vec<u8> {
    let mut k = Vec::with_capacity(13);
    k.push(COLLECTION);
    k.extend_from_slice(&c.pool.to_be_bytes());
    k.extend_from_slice(&c.seed.to_be_bytes());
    k
}

/// Reverses [`collection`].
pub fn parse_collection(key: &[u8]) -> Result<CollectionId, Error> {
    match key {
        [COLLECTION, rest @ ..] if rest.len() == 12 => {
            Ok(CollectionId { pool: be64(&rest[..8]), seed: be32(&rest[8..]) })
        }
        _ => Err(damaged("collection key", key.escape_ascii())),
    }
}

/// `A` part:u32.
pub fn snapshot(part: u32) -> Vec<u8> {
    let mut k = vec![SNAPSHOT];
    k.extend_from_slice(&part.to_be_bytes());
    k
}

/// pool:u64 reversed-hash:u32 nspace key name (each escaped) snap:u64.
///
/// The collection is not part of it: a collection is a range of its pool, so splitting one moves
/// no key.
pub fn onode(c: CollectionId, o: &ObjectId) -> Vec<u8> {
    let mut k = Vec::with_capacity(12 + o.nspace.len() + o.key.len() + o.name.len() + 16);
    k.extend_from_slice(&c.pool.to_be_bytes());
    k.extend_from_slice(&o.hash.reverse_bits().to_be_bytes());
    for part in [&o.nspace, &o.key, &o.name] {
        escape(part, &mut k);
    }
    k.extend_from_slice(&o.snap.to_be_bytes());
    k
}

/// Reverses [`onode`]: the pool and the object.
pub fn parse_onode(key: &[u8]) -> Result<(u64, ObjectId), Error> {
    let bad = || damaged("onode key", key.escape_ascii());
    if key.len() < 20 {
        return Err(bad());
    }
    let (head, mut rest) = key.split_at(12);
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for part in &mut parts {
        rest = unescape(rest, part).ok_or_else(bad)?;
    }
    let snap = <[u8; 8]>::try_from(rest).map_err(|_| bad())?;
    let [nspace, locator, name] = parts;
    Ok((
        be64(&head[..8]),
        ObjectId { hash: be32(&head[8..]).reverse_bits(), nspace, key: locator, name, snap: u64::from_be_bytes(snap) },
    ))
}

/// The range of onode keys that collection `c` covers with `bits` bits: from, to (excluded).
pub fn collection_range(c: CollectionId, bits: u8) -> (Vec<u8>, Vec<u8>) {
    let mask = mask(bits);
    let first = u64::from((c.seed & mask).reverse_bits());
    let end = first + (1u64 << (32 - u32::from(bits)));
    let at = |pool: u64, hash: u64| {
        let mut k = pool.to_be_bytes().to_vec();
        k.extend_from_slice(&(hash as u32).to_be_bytes());
        k
    };
    let to = if end > u64::from(u32::MAX) { (c.pool + 1).to_be_bytes().to_vec() } else { at(c.pool, end) };
    (at(c.pool, first), to)
}

/// The low `bits` bits of a hash.
pub fn mask(bits: u8) -> u32 {
    ((1u64 << bits) - 1) as u32
}

/// Whether an object with `hash` is one of collection `c`, which has `bits` bits.
pub fn belongs(c: CollectionId, bits: u8, hash: u32) -> bool {
    (hash ^ c.seed) & mask(bits) == 0
}

/// object number:u64 chunk:u32.
pub fn extent(nid: u64, chunk: u32) -> Vec<u8> {
    let mut k = Vec::with_capacity(12);
    k.extend_from_slice(&nid.to_be_bytes());
    k.extend_from_slice(&chunk.to_be_bytes());
    k
}

/// Reverses [`extent`].
pub fn parse_extent(key: &[u8]) -> Result<(u64, u32), Error> {
    if key.len() != 12 {
        return Err(damaged("extent key", key.escape_ascii()));
    }
    Ok((be64(&key[..8]), be32(&key[8..])))
}

/// omap number:u64 0.
pub fn omap_header(id: u64) -> Vec<u8> {
    let mut k = id.to_be_bytes().to_vec();
    k.push(0);
    k
}

/// omap number:u64 1 key.
pub fn omap(id: u64, key: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(9 + key.len());
    k.extend_from_slice(&id.to_be_bytes());
    k.push(1);
    k.extend_from_slice(key);
    k
}

/// First key behind every key of omap `id` (not its header).
pub fn omap_end(id: u64) -> Vec<u8> {
    let mut k = id.to_be_bytes().to_vec();
    k.push(2);
    k
}

/// Reverses [`omap`]: the caller's key, `None` for a header.
pub fn parse_omap(key: &[u8]) -> Result<(u64, Option<&[u8]>), Error> {
    match key.get(8) {
        Some(0) if key.len() == 9 => Ok((be64(&key[..8]), None)),
        Some(1) => Ok((be64(&key[..8]), Some(&key[9..]))),
        _ => Err(damaged("omap key", key.escape_ascii())),
    }
}

/// region:u64.
pub fn shared(region: u64) -> Vec<u8> {
    region.to_be_bytes().to_vec()
}

/// Reverses [`shared`].
pub fn parse_shared(key: &[u8]) -> Result<u64, Error> {
    let bytes = <[u8; 8]>::try_from(key).map_err(|_| damaged("shared key", key.escape_ascii()))?;
    Ok(u64::from_be_bytes(bytes))
}

fn be64(b: &[u8]) -> u64 {
    u64::from_be_bytes(b.try_into().expect("8 bytes"))
}

fn be32(b: &[u8]) -> u32 {
    u32::from_be_bytes(b.try_into().expect("4 bytes"))
}

fn escape(s: &[u8], out: &mut Vec<u8>) {
    for &b in s {
        if b == 0 { out.extend_from_slice(&ZERO) } else { out.push(b) }
    }
    out.extend_from_slice(&END);
}

/// Undoes [`escape`] at the front of `s`; returns what follows.
fn unescape<'a>(s: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut i = 0;
    while i + 1 < s.len() {
        match [s[i], s[i + 1]] {
            END => return Some(&s[i + 2..]),
            ZERO => {
                out.push(0);
                i += 2;
            }
            [0, _] => return None,
            [b, _] => {
                out.push(b);
                i += 1;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn onode_keys_sort_as_objects_do_and_come_back() {
        let mut objects = Vec::new();
        for hash in [0, 1, 0x8000_0000, u32::MAX] {
            for name in [&b""[..], b"a", b"a\0", b"a\0b", b"a\x01", b"b", b"\xff\xff"] {
                for nspace in [&b""[..], b"n"] {
                    let mut o = ObjectId::new(name).with_hash(hash);
                    o.nspace = nspace.to_vec();
                    objects.push(o.clone());
                    o.snap = 4;
                    o.key = b"k\0".to_vec();
                    objects.push(o);
                }
            }
        }
        let c = CollectionId::new(7, 0);
        objects.sort();
        let keys: Vec<_> = objects.iter().map(|o| onode(c, o)).collect();
        assert!(keys.is_sorted());
        for (o, k) in objects.iter().zip(&keys) {
            assert_eq!(parse_onode(k).unwrap(), (7, o.clone()));
        }
    }

    #[test]
    fn a_collection_covers_exactly_the_hashes_with_its_low_bits() {
        for (seed, bits) in [(0u32, 0u8), (0, 1), (1, 1), (2, 2), (3, 2), (5, 3), (0xffff_ffff, 32)] {
            let c = CollectionId::new(3, seed);
            let (from, to) = collection_range(c, bits);
            for hash in [0u32, 1, 2, 3, 5, 6, 0x8000_0001, 0xffff_fffe, 0xffff_ffff] {
                let k = onode(c, &ObjectId::new("x").with_hash(hash));
                let inside = from <= k && k < to;
                assert_eq!(inside, hash & mask(bits) == seed & mask(bits), "seed {seed} bits {bits} hash {hash:x}");
            }
        }
    }

    #[test]
    fn golden_bytes_of_keys() {
        let c = CollectionId::new(0x0102, 3);
        assert_eq!(collection(c), b"C\0\0\0\0\0\0\x01\x02\0\0\0\x03");
        assert_eq!(parse_collection(&collection(c)).unwrap(), c);
        let mut o = ObjectId::new("a\0b").with_hash(1);
        (o.nspace, o.snap) = (b"n".to_vec(), 5);
        assert_eq!(onode(c, &o), b"\0\0\0\0\0\0\x01\x02\x80\0\0\0n\0\x01\0\x01a\0\xffb\0\x01\0\0\0\0\0\0\0\x05");
        assert_eq!(extent(1, 2), b"\0\0\0\0\0\0\0\x01\0\0\0\x02");
        assert_eq!(omap(1, b"k"), b"\0\0\0\0\0\0\0\x01\x01k");
        assert_eq!(omap_header(1), b"\0\0\0\0\0\0\0\x01\0");
        assert_eq!(shared(1), b"\0\0\0\0\0\0\0\x01");
        assert_eq!(snapshot(1), b"A\0\0\0\x01");
    }
}
