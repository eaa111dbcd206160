//! Objects as a whole: making, removing and renaming them, attributes, omap.

use super::*;

impl Planner<'_> {
    pub(super) fn create(&mut self, c: CollectionId, oid: &ObjectId) -> Result<(), Stop> {
        let k = self.key(c, oid)?;
        if self.load(&k)?.is_some() {
            return Err(Error::ObjectExists(c, oid.clone()).into());
        }
        self.open(c, oid).map(drop)
    }

    pub(super) fn remove(&mut self, c: CollectionId, oid: &ObjectId) -> Result<(), Stop> {
        let k = self.existing(c, oid)?;
        self.empty(&k)?;
        self.set_onode(k, None);
        self.objects -= 1;
        Ok(())
    }

    /// Drops data and omap of an object that exists.
    pub(super) fn empty(&mut self, k: &[u8]) -> Result<(), Stop> {
        let o = self.onode_mut(k);
        let (nid, size, omap) = (o.nid, o.size, o.omap);
        o.size = 0;
        o.omap = 0;
        self.punch(nid, 0, size.div_ceil(BLOCK_LEN))?;
        self.drop_omap(omap);
        Ok(())
    }

    /// Changes the onode of an object that must exist.
    pub(super) fn edit(
        &mut self,
        c: CollectionId,
        oid: &ObjectId,
        change: impl FnOnce(&mut Onode),
    ) -> Result<(), Stop> {
        let k = self.existing(c, oid)?;
        change(self.onode_mut(&k));
        Ok(())
    }

    pub(super) fn set_attr(&mut self, c: CollectionId, oid: &ObjectId, name: &[u8], value: &[u8]) -> Result<(), Stop> {
        limit("length of an attribute name", name.len() as u64, ATTR_NAME_LEN_MAX as u64)?;
        limit("length of an attribute", value.len() as u64, ATTR_LEN_MAX as u64)?;
        let k = self.existing(c, oid)?;
        let o = self.onode_mut(&k);
        o.attrs.insert(name.to_vec(), value.to_vec());
        let all: usize = o.attrs.iter().map(|(k, v)| k.len() + v.len()).sum();
        limit("length of all attributes of an object", all as u64, ATTRS_LEN_MAX as u64)?;
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        c: CollectionId,
        from: &ObjectId,
        to_c: CollectionId,
        to: &ObjectId,
        must_exist: bool,
    ) -> Result<(), Stop> {
        let from_key = self.key(c, from)?;
        if self.load(&from_key)?.is_none() {
            // The target's collection and name are checked all the same.
            self.key(to_c, to)?;
            return if must_exist { Err(Error::NoObject(c, from.clone()).into()) } else { Ok(()) };
        }
        let to_key = self.key(to_c, to)?;
        if self.load(&to_key)?.is_some() {
            return Err(Error::ObjectExists(to_c, to.clone()).into());
        }
        let o = self.onode(&from_key).clone();
        self.set_onode(from_key, None);
        self.set_onode(to_key, Some(o));
        Ok(())
    }

    /// The omap number of an object that must exist; made if it has none.
    fn omap_id(&mut self, c: CollectionId, oid: &ObjectId) -> Result<u64, Stop> {
        let k = self.existing(c, oid)?;
        if self.onode(&k).omap == 0 {
            let id = self.new_id();
            self.onode_mut(&k).omap = id;
        }
        Ok(self.onode(&k).omap)
    }

    pub(super) fn omap_set(
        &mut self,
        c: CollectionId,
        oid: &ObjectId,
        entries: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), Stop> {
        for (k, v) in entries {
            limit("length of an omap key", k.len() as u64, OMAP_KEY_LEN_MAX as u64)?;
            limit("length of an omap value", v.len() as u64, OMAP_VALUE_LEN_MAX as u64)?;
        }
        let id = self.omap_id(c, oid)?;
        self.ops.extend(entries.iter().map(|(k, v)| KvOp::Put {
            cf: Cf::Omap,
            key: key::omap(id, k),
            value: small::encode_bytes(v),
        }));
        Ok(())
    }

    pub(super) fn omap_rm_keys(&mut self, c: CollectionId, oid: &ObjectId, keys: &[Vec<u8>]) -> Result<(), Stop> {
        let k = self.existing(c, oid)?;
        let id = self.onode(&k).omap;
        if id != 0 {
            self.ops.extend(keys.iter().map(|k| KvOp::Delete { cf: Cf::Omap, key: key::omap(id, k) }));
        }
        Ok(())
    }

    pub(super) fn omap_rm_range(
        &mut self,
        c: CollectionId,
        oid: &ObjectId,
        first: &[u8],
        last: &[u8],
    ) -> Result<(), Stop> {
        let k = self.existing(c, oid)?;
        let id = self.onode(&k).omap;
        if id != 0 && first < last {
            self.ops.push(KvOp::DeleteRange { cf: Cf::Omap, from: key::omap(id, first), to: key::omap(id, last) });
        }
        Ok(())
    }

    pub(super) fn omap_clear(&mut self, c: CollectionId, oid: &ObjectId) -> Result<(), Stop> {
        let k = self.existing(c, oid)?;
        if bugs::enabled(Bug::ForgetOmapClear) {
            return Ok(());
        }
        let id = std::mem::take(&mut self.onode_mut(&k).omap);
        self.drop_omap(id);
        Ok(())
    }

    /// Removes header and keys of an omap nobody refers to any more.
    fn drop_omap(&mut self, id: u64) {
        if id != 0 {
            self.ops.push(KvOp::DeleteRange { cf: Cf::Omap, from: key::omap_header(id), to: key::omap_end(id) });
        }
    }

    pub(super) fn omap_set_header(&mut self, c: CollectionId, oid: &ObjectId, header: &[u8]) -> Result<(), Stop> {
        limit("length of an omap header", header.len() as u64, OMAP_VALUE_LEN_MAX as u64)?;
        let id = self.omap_id(c, oid)?;
        self.ops.push(KvOp::Put { cf: Cf::Omap, key: key::omap_header(id), value: small::encode_bytes(header) });
        Ok(())
    }

    /// Everything in an omap, with this transaction's changes.
    pub(super) fn omap_entries(&mut self, id: u64) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Stop> {
        let (from, to) = (key::omap_header(id), key::omap_end(id));
        let mut all = BTreeMap::new();
        for entry in self.meta.kv().iter(Cf::Omap, &from, &to) {
            let (k, v) = entry?;
            all.insert(k, v);
        }
        for op in &self.ops {
            match op {
                KvOp::Put { cf: Cf::Omap, key, value } if (&from..&to).contains(&key) => {
                    all.insert(key.clone(), value.clone());
                }
                KvOp::Delete { cf: Cf::Omap, key } => {
                    all.remove(key);
                }
                KvOp::DeleteRange { cf: Cf::Omap, from, to } => all.retain(|k, _| k < from || k >= to),
                _ => {}
            }
        }
        Ok(all)
    }
}
