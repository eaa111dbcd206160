//! Values of one field: a version byte and the field.

use super::damaged;
use crate::error::Error;

const VERSION: u8 = 1;

/// A version byte and a little-endian u64.
pub fn encode_u64(v: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&v.to_le_bytes());
    out
}

/// Reverses [`encode_u64`].
pub fn decode_u64(what: &str, bytes: &[u8]) -> Result<u64, Error> {
    match bytes {
        [VERSION, rest @ ..] if rest.len() == 8 => Ok(u64::from_le_bytes(rest.try_into().expect("8 bytes"))),
        _ => Err(damaged(what, "not nine bytes of version 1")),
    }
}

/// A collection's value: version byte, number of hash bits.
pub fn encode_bits(bits: u8) -> Vec<u8> {
    vec![VERSION, bits]
}

/// Reverses [`encode_bits`].
pub fn decode_bits(bytes: &[u8]) -> Result<u8, Error> {
    match bytes {
        [VERSION, bits @ 0..=32] => Ok(*bits),
        _ => Err(damaged("collection", "not two bytes of version 1 with at most 32 bits")),
    }
}

/// An omap value or header: version byte, the caller's bytes.
pub fn encode_bytes(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + value.len());
    out.push(VERSION);
    out.extend_from_slice(value);
    out
}

/// Reverses [`encode_bytes`].
pub fn decode_bytes(mut bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
    match bytes.first() {
        Some(&VERSION) => {
            bytes.remove(0);
            Ok(bytes)
        }
        _ => Err(damaged("omap value", "version is not known here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_small_values() {
        assert_eq!(encode_u64(0x0102_0304), [1, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(decode_u64("n", &encode_u64(7)).unwrap(), 7);
        assert_eq!(encode_bits(3), [1, 3]);
        assert_eq!(decode_bits(&[1, 32]).unwrap(), 32);
        assert!(decode_bits(&[1, 33]).is_err() && decode_bits(&[2, 3]).is_err());
        assert_eq!(encode_bytes(b"ab"), [1, b'a', b'b']);
        assert_eq!(decode_bytes(vec![1]).unwrap(), b"");
        assert!(decode_bytes(vec![]).is_err() && decode_bytes(vec![2, 0]).is_err());
        assert!(decode_u64("n", &[1, 2]).is_err());
    }
}
