//! Reference counts of blocks that clones share, kept by region of the data space so that a count
//! is found from a block's place alone and survives the death of whoever shared it first.

use std::collections::BTreeMap;

use super::chunk::{get_varint, put_varint};
use super::damaged;
use crate::error::Error;

/// Blocks in a region: 1 MiB of data.
pub const REGION_BLOCKS: u64 = 256;

const VERSION: u8 = 1;

/// Counts of one region. Only counts of two and more are kept: a block that is not here has one
/// owner at most.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Region {
    /// By block within the region.
    pub counts: BTreeMap<u8, u32>,
}

/// The region of a block and its index there.
pub fn locate(place: u64) -> (u64, u8) {
    (place / REGION_BLOCKS, (place % REGION_BLOCKS) as u8)
}

impl Region {
    /// Version, then for each run of blocks with the same count: first u8, length - 1 u8, count varint.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let mut entries = self.counts.iter().peekable();
        while let Some((&first, &count)) = entries.next() {
            let mut last = first;
            while entries.next_if(|&(&b, &c)| u16::from(b) == u16::from(last) + 1 && c == count).is_some() {
                last += 1;
            }
            out.push(first);
            out.push(last - first);
            put_varint(u64::from(count), &mut out);
        }
        out
    }

    /// Reverses [`Region::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let bad = |why: &str| damaged("reference counts", why);
        let mut rest = match bytes {
            [VERSION, rest @ ..] => rest,
            [v, ..] => return Err(damaged("reference counts", format_args!("version {v} is not known here"))),
            [] => return Err(bad("empty")),
        };
        let mut region = Region::default();
        while let [first, extra, tail @ ..] = rest {
            let (count, tail) = get_varint(tail).ok_or_else(|| bad("count cut short"))?;
            let count = u32::try_from(count).ok().filter(|c| *c >= 2).ok_or_else(|| bad("count out of range"))?;
            let last = first.checked_add(*extra).ok_or_else(|| bad("run too long"))?;
            for b in *first..=last {
                if region.counts.insert(b, count).is_some() {
                    return Err(bad("block counted twice"));
                }
            }
            rest = tail;
        }
        if rest.is_empty() { Ok(region) } else { Err(bad("cut short")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_reference_counts() {
        let mut r = Region::default();
        r.counts.extend([(0, 2), (1, 2), (2, 300), (255, 2)]);
        let bytes = r.encode();
        assert_eq!(bytes, [1, 0, 1, 2, 2, 0, 0xac, 0x02, 255, 0, 2]);
        assert_eq!(Region::decode(&bytes).unwrap(), r);
        for n in 1..bytes.len() {
            let _ = Region::decode(&bytes[..n]);
        }
        assert!(Region::decode(&[1, 0, 0, 1]).is_err(), "a count of one is never stored");
    }
}
