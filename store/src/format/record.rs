//! The body of a log record: everything one transaction changes.

use bincode::{BorrowDecode, Encode};
use bytes::Bytes;
use lodestore_kv::{Cf, KvOp};

use super::{BLOCK_LEN, codec, damaged};
use crate::error::Error;

const VERSION: u8 = 1;

/// Blocks written direct by the transaction. On replay a record above the acknowledged LSN is
/// believed only if what lies there has this checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, BorrowDecode)]
pub struct DataRef {
    /// First block.
    pub place: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// crc32c of the little-endian crc32c values of the blocks: each block is summed once only.
    pub crc: u32,
}

/// Blocks whose new contents are in the record and are written in place after the acknowledgement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deferred {
    /// First block.
    pub place: u64,
    /// Contents, whole blocks.
    pub data: Bytes,
}

/// A decoded record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Changes of metadata, in order.
    pub ops: Vec<KvOp>,
    /// Blocks written direct.
    pub data: Vec<DataRef>,
    /// Blocks to be written in place.
    pub deferred: Vec<Deferred>,
}

#[derive(Encode, BorrowDecode)]
enum WireOp<'a> {
    Put(u8, &'a [u8], &'a [u8]),
    Delete(u8, &'a [u8]),
    DeleteRange(u8, &'a [u8], &'a [u8]),
}

#[derive(Encode, BorrowDecode)]
struct Wire<'a> {
    ops: Vec<WireOp<'a>>,
    data: Vec<DataRef>,
    /// First block and number of blocks; the contents follow the encoded part, in this order.
    deferred: Vec<(u64, u32)>,
}

/// The part of a record before the deferred contents; `deferred` is first block and number of
/// blocks of each run of them.
pub fn encode_head(ops: &[KvOp], data: &[DataRef], deferred: &[(u64, u32)]) -> Vec<u8> {
    let ops = ops.iter().map(|op| match op {
        KvOp::Put { cf, key, value } => WireOp::Put(*cf as u8, key, value),
        KvOp::Delete { cf, key } => WireOp::Delete(*cf as u8, key),
        KvOp::DeleteRange { cf, from, to } => WireOp::DeleteRange(*cf as u8, from, to),
    });
    let wire = Wire { ops: ops.collect(), data: data.to_vec(), deferred: deferred.to_vec() };
    let mut out = Vec::with_capacity(512);
    out.push(VERSION);
    codec::encode(&wire, &mut out);
    out
}

/// Decodes a record; deferred contents share the body's memory.
pub fn decode(body: &Bytes) -> Result<Record, Error> {
    let head = match &body[..] {
        [VERSION, rest @ ..] => rest,
        [v, ..] => return Err(damaged("log record", format_args!("version {v} is not known here"))),
        [] => return Err(damaged("log record", "empty")),
    };
    let (wire, contents) = codec::decode_front::<Wire>("log record", head)?;
    let family = |n: u8| {
        Cf::from_u8(n).ok_or_else(|| damaged("log record", format_args!("column family {n} is not known here")))
    };
    let mut ops = Vec::with_capacity(wire.ops.len());
    for op in wire.ops {
        ops.push(match op {
            WireOp::Put(cf, key, value) => KvOp::Put { cf: family(cf)?, key: key.to_vec(), value: value.to_vec() },
            WireOp::Delete(cf, key) => KvOp::Delete { cf: family(cf)?, key: key.to_vec() },
            WireOp::DeleteRange(cf, from, to) => {
                KvOp::DeleteRange { cf: family(cf)?, from: from.to_vec(), to: to.to_vec() }
            }
        });
    }
    let mut at = body.len() - contents.len();
    let mut deferred = Vec::with_capacity(wire.deferred.len());
    for (place, blocks) in wire.deferred {
        let len = blocks as usize * BLOCK_LEN as usize;
        if len > body.len() - at {
            return Err(damaged("log record", "deferred contents cut short"));
        }
        deferred.push(Deferred { place, data: body.slice(at..at + len) });
        at += len;
    }
    if at != body.len() {
        return Err(damaged("log record", "bytes behind the deferred contents"));
    }
    Ok(Record { ops, data: wire.data, deferred })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_its_bytes_are_fixed() {
        let ops = vec![
            KvOp::Put { cf: Cf::Extent, key: vec![1, 2], value: vec![3] },
            KvOp::Delete { cf: Cf::Onode, key: vec![4] },
            KvOp::DeleteRange { cf: Cf::Omap, from: vec![5], to: vec![6] },
        ];
        let data = vec![DataRef { place: 7, blocks: 2, crc: 0x0102_0304 }];
        let deferred = vec![Deferred { place: 300, data: Bytes::from(vec![9; 8192]) }];
        let head = encode_head(&ops, &data, &[(300, 2)]);
        let golden =
            [1, 3, 0, 2, 2, 1, 2, 1, 3, 1, 1, 1, 4, 2, 3, 1, 5, 1, 6, 1, 7, 2, 0xfc, 4, 3, 2, 1, 1, 0xfb, 0x2c, 1, 2];
        assert_eq!(head, golden);
        let body = Bytes::from([&head[..], &deferred[0].data].concat());
        assert_eq!(decode(&body).unwrap(), Record { ops, data, deferred });
        for n in 0..body.len() {
            assert!(decode(&body.slice(..n)).is_err(), "cut at {n}");
        }
    }
}
