//! What every operation does, and when it is refused.

use std::sync::Arc;

use lodestore::{
    ATTR_LEN_MAX, ATTR_NAME_LEN_MAX, ATTRS_LEN_MAX, CollectionId, LOCATOR_LEN_MAX, NAME_LEN_MAX, OBJECT_LEN_MAX,
    OMAP_KEY_LEN_MAX, OMAP_VALUE_LEN_MAX, OPS_MAX, ObjectId, Op, Transaction, WRITE_LEN_MAX,
};

use super::{Collection, ErrKind, Model, Object, low_bits};

fn at_most(len: usize, max: usize) -> Result<(), ErrKind> {
    if len > max { Err(ErrKind::TooLarge) } else { Ok(()) }
}

fn range(offset: u64, len: u64) -> Result<(), ErrKind> {
    match offset.checked_add(len) {
        None => Err(ErrKind::Invalid),
        Some(end) if end > OBJECT_LEN_MAX => Err(ErrKind::TooLarge),
        Some(_) => Ok(()),
    }
}

fn name(oid: &ObjectId) -> Result<(), ErrKind> {
    at_most(oid.name.len(), NAME_LEN_MAX)?;
    at_most(oid.nspace.len(), LOCATOR_LEN_MAX)?;
    at_most(oid.key.len(), LOCATOR_LEN_MAX)
}

/// Limits of one operation's own arguments.
fn limits(op: &Op) -> Result<(), ErrKind> {
    match op {
        Op::Write { offset, data, .. } => {
            at_most(data.len(), WRITE_LEN_MAX)?;
            range(*offset, data.len() as u64)
        }
        Op::Zero { offset, len, .. } => range(*offset, *len),
        Op::Truncate { size, .. } => range(*size, 0),
        Op::SetAttr { name, value, .. } => {
            at_most(name.len(), ATTR_NAME_LEN_MAX)?;
            at_most(value.len(), ATTR_LEN_MAX)
        }
        Op::CloneRange { from_offset, len, to_offset, .. } => {
            range(*from_offset, *len)?;
            range(*to_offset, *len)
        }
        Op::OmapSet { entries, .. } => entries.iter().try_for_each(|(k, v)| {
            at_most(k.len(), OMAP_KEY_LEN_MAX)?;
            at_most(v.len(), OMAP_VALUE_LEN_MAX)
        }),
        Op::OmapSetHeader { header, .. } => at_most(header.len(), OMAP_VALUE_LEN_MAX),
        _ => Ok(()),
    }
}

/// Limits of a whole transaction.
pub fn size(t: &Transaction) -> Result<(), ErrKind> {
    at_most(t.ops().len(), OPS_MAX)
}

fn collection(m: &mut Model, c: CollectionId) -> Result<&mut Collection, ErrKind> {
    m.collections.get_mut(&c).map(Arc::make_mut).ok_or(ErrKind::NoCollection)
}

/// The collection, when `oid` may be in it.
fn home<'a>(m: &'a mut Model, c: CollectionId, oid: &ObjectId) -> Result<&'a mut Collection, ErrKind> {
    let coll = collection(m, c)?;
    name(oid)?;
    if low_bits(oid.hash, coll.bits) == low_bits(c.seed, coll.bits) { Ok(coll) } else { Err(ErrKind::Invalid) }
}

fn existing<'a>(m: &'a mut Model, c: CollectionId, oid: &ObjectId) -> Result<&'a mut Object, ErrKind> {
    home(m, c, oid)?.objects.get_mut(oid).map(Arc::make_mut).ok_or(ErrKind::NoObject)
}

fn made<'a>(m: &'a mut Model, c: CollectionId, oid: &ObjectId) -> Result<&'a mut Object, ErrKind> {
    Ok(Arc::make_mut(home(m, c, oid)?.objects.entry(oid.clone()).or_default()))
}

/// Applies one operation; may leave `m` half changed when it refuses, the caller drops it then.
pub fn op(m: &mut Model, c: CollectionId, op: &Op) -> Result<(), ErrKind> {
    if let Op::MakeCollection { bits } = op {
        return make_collection(m, c, *bits);
    }
    collection(m, c)?;
    limits(op)?;
    match op {
        Op::Touch(oid) => {
            made(m, c, oid)?;
        }
        Op::Create(oid) => {
            if home(m, c, oid)?.objects.contains_key(oid) {
                return Err(ErrKind::ObjectExists);
            }
            made(m, c, oid)?;
        }
        Op::Write { oid, offset, data } => made(m, c, oid)?.write(*offset, data),
        Op::Zero { oid, offset, len } => made(m, c, oid)?.zero(*offset, *len),
        Op::Truncate { oid, size } => existing(m, c, oid)?.truncate(*size),
        Op::Remove(oid) => {
            existing(m, c, oid)?;
            collection(m, c)?.objects.remove(oid);
        }
        Op::SetAttr { oid, name, value } => {
            let object = existing(m, c, oid)?;
            object.attrs.insert(name.clone(), value.clone());
            at_most(object.attrs_len(), ATTRS_LEN_MAX)?;
        }
        Op::RmAttr { oid, name } => {
            existing(m, c, oid)?.attrs.remove(name);
        }
        Op::RmAttrs(oid) => existing(m, c, oid)?.attrs.clear(),
        Op::Clone { from, to } => {
            let source = existing(m, c, from)?.clone();
            if from == to {
                return Err(ErrKind::Invalid);
            }
            let target = made(m, c, to)?;
            *target = source;
        }
        Op::CloneRange { from, to, from_offset, len, to_offset } => {
            let source = existing(m, c, from)?.clone();
            let len = (*len).min(source.size.saturating_sub(*from_offset));
            if from == to && from_offset.abs_diff(*to_offset) < len {
                return Err(ErrKind::Invalid);
            }
            made(m, c, to)?.clone_range(&source, *from_offset, len, *to_offset);
        }
        Op::OmapSet { oid, entries } => {
            Arc::make_mut(&mut existing(m, c, oid)?.omap).extend(entries.iter().cloned());
        }
        Op::OmapRmKeys { oid, keys } => {
            let omap = Arc::make_mut(&mut existing(m, c, oid)?.omap);
            keys.iter().for_each(|k| drop(omap.remove(k)));
        }
        Op::OmapRmRange { oid, first, last } => {
            Arc::make_mut(&mut existing(m, c, oid)?.omap).retain(|k, _| k < first || k >= last);
        }
        Op::OmapClear(oid) => {
            let object = existing(m, c, oid)?;
            object.omap = Arc::default();
            object.header.clear();
        }
        Op::OmapSetHeader { oid, header } => existing(m, c, oid)?.header = header.clone(),
        Op::RemoveCollection => {
            if !collection(m, c)?.objects.is_empty() {
                return Err(ErrKind::NotEmpty);
            }
            m.collections.remove(&c);
        }
        Op::Split { bits, to } => split(m, c, *bits, *to)?,
        Op::Merge { bits, to } => merge(m, c, *bits, *to)?,
        Op::Rename { from, to_collection, to, must_exist } => rename(m, c, from, *to_collection, to, *must_exist)?,
        Op::Hint { oid, hint } => made(m, c, oid)?.hint = *hint,
        Op::MakeCollection { .. } => unreachable!("handled above"),
    }
    Ok(())
}

fn make_collection(m: &mut Model, c: CollectionId, bits: u8) -> Result<(), ErrKind> {
    at_most(bits.into(), 32)?;
    if low_bits(c.seed, bits) != c.seed || c.pool == u64::MAX {
        return Err(ErrKind::Invalid);
    }
    let overlaps = |(other, coll): (&CollectionId, &Arc<Collection>)| {
        let common = bits.min(coll.bits);
        other.pool == c.pool && low_bits(other.seed, common) == low_bits(c.seed, common)
    };
    if m.collections.iter().any(overlaps) {
        return Err(ErrKind::CollectionExists);
    }
    m.collections.insert(c, Arc::new(Collection { bits, ..Collection::default() }));
    Ok(())
}

/// Whether two collections of `bits` bits are the two halves of one with a bit less.
fn siblings(a: CollectionId, b: CollectionId, bits: u8) -> bool {
    (1..=32).contains(&bits) && a.pool == b.pool && a.seed ^ b.seed == 1 << (bits - 1)
}

fn split(m: &mut Model, c: CollectionId, bits: u8, to: CollectionId) -> Result<(), ErrKind> {
    let old = collection(m, c)?.bits;
    if m.collections.contains_key(&to) {
        return Err(ErrKind::CollectionExists);
    }
    if bits != old + 1 || !siblings(c, to, bits) {
        return Err(ErrKind::Invalid);
    }
    let source = collection(m, c)?;
    source.bits = bits;
    let all = std::mem::take(&mut source.objects);
    let (moved, kept) = all.into_iter().partition(|(o, _)| low_bits(o.hash, bits) == to.seed);
    source.objects = kept;
    m.collections.insert(to, Arc::new(Collection { bits, objects: moved }));
    Ok(())
}

fn merge(m: &mut Model, c: CollectionId, bits: u8, to: CollectionId) -> Result<(), ErrKind> {
    let old = collection(m, c)?.bits;
    let same = collection(m, to)?.bits == old;
    if !same || bits.checked_add(1) != Some(old) || !siblings(c, to, old) || low_bits(to.seed, bits) != to.seed {
        return Err(ErrKind::Invalid);
    }
    let objects = std::mem::take(&mut collection(m, c)?.objects);
    m.collections.remove(&c);
    let target = collection(m, to)?;
    target.bits = bits;
    target.objects.extend(objects);
    Ok(())
}

fn rename(
    m: &mut Model,
    c: CollectionId,
    from: &ObjectId,
    to_collection: CollectionId,
    to: &ObjectId,
    must_exist: bool,
) -> Result<(), ErrKind> {
    let object = home(m, c, from)?.objects.get(from).cloned();
    let taken = home(m, to_collection, to)?.objects.contains_key(to);
    let Some(object) = object else {
        return if must_exist { Err(ErrKind::NoObject) } else { Ok(()) };
    };
    if taken {
        return Err(ErrKind::ObjectExists);
    }
    collection(m, c)?.objects.remove(from);
    collection(m, to_collection)?.objects.insert(to.clone(), object);
    Ok(())
}
