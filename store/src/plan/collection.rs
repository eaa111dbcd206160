//! Collections: each is a range of its pool's hash space, so that a split or a merge changes two
//! small values and moves no object.

use super::*;

impl Planner<'_> {
    fn bits_of(&self, c: CollectionId) -> Result<u8, Stop> {
        Ok(*self.collections().get(&c).ok_or(Error::NoCollection(c))?)
    }

    fn set_collection(&mut self, c: CollectionId, bits: Option<u8>) {
        let all = self.collections.get_or_insert_with(|| self.meta.collections().clone());
        let key = key::collection(c);
        self.ops.push(match bits {
            Some(bits) => {
                all.insert(c, bits);
                KvOp::Put { cf: Cf::Meta, key, value: small::encode_bits(bits) }
            }
            None => {
                all.remove(&c);
                KvOp::Delete { cf: Cf::Meta, key }
            }
        });
    }

    pub(super) fn make_collection(&mut self, c: CollectionId, bits: u8) -> Result<(), Stop> {
        limit("number of hash bits", u64::from(bits), 32)?;
        if c.seed & !key::mask(bits) != 0 || c.pool == u64::MAX {
            return Err(Error::Invalid(format!(
                "collection {c}: its seed has more than {bits} bits, or its pool is the last number"
            ))
            .into());
        }
        let pool = CollectionId::new(c.pool, 0)..=CollectionId::new(c.pool, u32::MAX);
        for (other, other_bits) in self.collections().range(pool) {
            if (other.seed ^ c.seed) & key::mask(bits.min(*other_bits)) == 0 {
                return Err(Error::CollectionExists(c).into());
            }
        }
        self.set_collection(c, Some(bits));
        Ok(())
    }

    pub(super) fn remove_collection(&mut self, c: CollectionId) -> Result<(), Stop> {
        let bits = self.bits_of(c)?;
        if !self.env.drained {
            return Err(Stop::Drain);
        }
        let (from, to) = key::collection_range(c, bits);
        for entry in self.meta.kv().iter(Cf::Onode, &from, &to) {
            let (k, _) = entry?;
            if self.onodes.get(&k) != Some(&None) {
                return Err(Error::NotEmpty(c).into());
            }
        }
        if self.onodes.range(from..to).any(|(_, o)| o.is_some()) {
            return Err(Error::NotEmpty(c).into());
        }
        self.set_collection(c, None);
        Ok(())
    }

    pub(super) fn split(&mut self, c: CollectionId, bits: u8, to: CollectionId) -> Result<(), Stop> {
        let old = self.bits_of(c)?;
        if self.collections().contains_key(&to) {
            return Err(Error::CollectionExists(to).into());
        }
        if bits != old + 1 {
            return Err(Error::Invalid(format!(
                "collection {c} has {old} bits: a split gives it {}, not {bits}",
                old + 1
            ))
            .into());
        }
        siblings(c, to, bits)?;
        self.set_collection(c, Some(bits));
        self.set_collection(to, Some(bits));
        Ok(())
    }

    pub(super) fn merge(&mut self, c: CollectionId, bits: u8, to: CollectionId) -> Result<(), Stop> {
        let (a, b) = (self.bits_of(c)?, self.bits_of(to)?);
        if a != b || u16::from(bits) + 1 != u16::from(a) {
            let why = format!(
                "collections {c} and {to} have {a} and {b} bits: a merge needs the same number, and gives one less"
            );
            return Err(Error::Invalid(why).into());
        }
        siblings(c, to, a)?;
        if to.seed & !key::mask(bits) != 0 {
            return Err(Error::Invalid(format!(
                "collection {to}: its seed has more than {bits} bits; merge it into {c} instead"
            ))
            .into());
        }
        self.set_collection(c, None);
        self.set_collection(to, Some(bits));
        Ok(())
    }
}

/// Refuses two collections that are not the two halves of one with `bits - 1` bits.
fn siblings(a: CollectionId, b: CollectionId, bits: u8) -> Result<(), Error> {
    if a.pool == b.pool && (1..=32).contains(&bits) && a.seed ^ b.seed == 1 << (bits - 1) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "collections {a} and {b} are not the two halves of one: their seeds must differ in bit {} only",
        bits - 1
    )))
}
