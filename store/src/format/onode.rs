//! An object's metadata, apart from where its data lies.

use std::collections::BTreeMap;

use bincode::{BorrowDecode, Encode};

use super::{codec, damaged};
use crate::error::Error;
use crate::types::AllocHint;

const VERSION: u8 = 1;

/// What the store keeps of an object under its name. Small and of fixed cost: an overwrite inside
/// the object does not change it. Data is found by `nid`, omap by `omap`: so neither moves when the
/// object is renamed, and clearing an omap means forgetting a number.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, BorrowDecode)]
pub struct Onode {
    /// Object number: the key of its extent map. Never reused.
    pub nid: u64,
    /// Logical size in bytes.
    pub size: u64,
    /// Omap number, 0 while it has none. Never reused.
    pub omap: u64,
    /// Expected object size, expected write size, flags.
    pub hint: (u64, u64, u32),
    /// Attributes in order of their names.
    pub attrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Onode {
    /// A fresh, empty object.
    pub fn new(nid: u64) -> Self {
        Onode { nid, ..Default::default() }
    }

    /// The hint as callers see it.
    pub fn hint(&self) -> AllocHint {
        AllocHint { object_size: self.hint.0, write_size: self.hint.1, flags: self.hint.2 }
    }

    /// Approximate bytes in memory.
    pub fn weight(&self) -> u64 {
        96 + self.attrs.iter().map(|(k, v)| 64 + k.len() as u64 + v.len() as u64).sum::<u64>()
    }

    /// Version byte, then the fields.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.push(VERSION);
        codec::encode(self, &mut out);
        out
    }

    /// Reverses [`Onode::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        match bytes {
            [VERSION, rest @ ..] => codec::decode("onode", rest),
            [v, ..] => Err(damaged("onode", format_args!("version {v} is not known here"))),
            [] => Err(damaged("onode", "empty")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_an_onode() {
        let mut o = Onode { nid: 7, size: 4096, omap: 9, hint: (1, 2, 3), attrs: BTreeMap::new() };
        o.attrs.insert(b"a".to_vec(), b"xy".to_vec());
        let bytes = o.encode();
        assert_eq!(bytes, [1, 7, 0xfb, 0, 0x10, 9, 1, 2, 3, 1, 1, b'a', 2, b'x', b'y']);
        assert_eq!(Onode::decode(&bytes).unwrap(), o);
    }

    #[test]
    fn cut_or_foreign_bytes_are_refused() {
        let bytes = Onode { nid: 1 << 40, ..Default::default() }.encode();
        for n in 0..bytes.len() {
            assert!(Onode::decode(&bytes[..n]).is_err());
        }
        assert!(Onode::decode(&[2, 0]).is_err());
        // A length that claims 2^62 bytes must not be believed.
        assert!(Onode::decode(&[1, 0, 0, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0x40]).is_err());
    }
}
