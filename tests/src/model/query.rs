//! What every read answers.

use std::ops::Bound;

use bytes::Bytes;
use lodestore::{Answer, ObjectStat, OmapRange, PAGE_MAX, Read, StatFs};

use super::{BLOCK, ErrKind, Model, Object};

impl Model {
    /// Answers a read. Of the space, only what the contract fixes is filled in: `allocated`,
    /// `stored` and `objects`.
    pub fn query(&self, read: &Read) -> Result<Answer, ErrKind> {
        let object = |c, oid| -> Result<&Object, ErrKind> {
            let coll = self.collections.get(c).ok_or(ErrKind::NoCollection)?;
            coll.objects.get(oid).map(|o| &**o).ok_or(ErrKind::NoObject)
        };
        Ok(match read {
            Read::Stat(c, oid) => {
                let o = object(c, oid)?;
                Answer::Stat(ObjectStat {
                    size: o.size,
                    mapped: o.blocks.len() as u64 * BLOCK,
                    attrs: o.attrs.len(),
                    hint: o.hint,
                })
            }
            Read::Data(c, oid, ranges) => {
                let o = object(c, oid)?;
                Answer::Data(ranges.iter().map(|(offset, len)| Bytes::from(o.read(*offset, *len))).collect())
            }
            Read::Extents(c, oid, offset, len) => Answer::Extents(object(c, oid)?.extents(*offset, *len)),
            Read::Attr(c, oid, name) => Answer::Attr(object(c, oid)?.attrs.get(name).cloned().ok_or(ErrKind::NoAttr)?),
            Read::Attrs(c, oid) => {
                let attrs = object(c, oid)?.attrs.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                Answer::Entries(attrs, false)
            }
            Read::OmapHeader(c, oid) => Answer::Attr(object(c, oid)?.header.clone()),
            Read::OmapValues(c, oid, keys) => {
                let omap = &object(c, oid)?.omap;
                Answer::Entries(
                    keys.iter().filter_map(|k| omap.get(k).map(|v| (k.clone(), v.clone()))).collect(),
                    false,
                )
            }
            Read::Omap(c, oid, range) => omap_page(object(c, oid)?, range),
            Read::List(c, start, end, max) => {
                let coll = self.collections.get(c).ok_or(ErrKind::NoCollection)?;
                let from = start.as_ref().map_or(Bound::Unbounded, Bound::Included);
                let mut rest = coll
                    .objects
                    .range::<lodestore::ObjectId, _>((from, Bound::Unbounded))
                    .map(|(o, _)| o)
                    .take_while(|o| end.as_ref().is_none_or(|e| *o < e));
                let page = rest.by_ref().take((*max).min(PAGE_MAX)).cloned().collect();
                Answer::Objects(page, rest.next().cloned())
            }
            Read::Collections => {
                Answer::Collections(self.collections.iter().map(|(c, coll)| (*c, coll.bits)).collect())
            }
            Read::StatFs => Answer::Space(StatFs {
                allocated: self.allocated(),
                stored: self.stored(),
                objects: self.objects().count() as u64,
                ..StatFs::default()
            }),
        })
    }
}

fn omap_page(object: &Object, range: &OmapRange) -> Answer {
    let lower = match (&range.lower, range.after) {
        (None, _) => Bound::Unbounded,
        (Some(k), false) => Bound::Included(k.as_slice()),
        (Some(k), true) => Bound::Excluded(k.as_slice()),
    };
    let mut rest = object
        .omap
        .range::<[u8], _>((lower, Bound::Unbounded))
        .take_while(|(k, _)| range.upper.as_ref().is_none_or(|u| *k < u));
    let page = rest.by_ref().take(range.max.min(PAGE_MAX)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let more = rest.next().is_some();
    Answer::Entries(page, more)
}
