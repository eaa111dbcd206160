//! The one place that calls `bincode`: variable-length little-endian integers, a hard limit on
//! what a length field may claim, and no trailing bytes.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{BorrowDecode, Encode};

use super::damaged;
use crate::error::Error;

/// Most bytes one encoded value may have or claim: a log record is never larger.
pub const VALUE_LEN_MAX: usize = 64 << 20;

type Config = Configuration<LittleEndian, Varint, Limit<VALUE_LEN_MAX>>;

fn config() -> Config {
    bincode::config::standard().with_limit::<VALUE_LEN_MAX>()
}

/// Appends `value` to `out`.
pub fn encode(value: &impl Encode, out: &mut Vec<u8>) {
    // Encoding fails only when the writer does, and a vector does not.
    bincode::encode_into_std_write(value, out, config()).expect("a vector takes every byte");
}

/// Decodes a value from the front of `bytes` and returns it with what follows it.
pub fn decode_front<'a, T: BorrowDecode<'a, ()>>(what: &str, bytes: &'a [u8]) -> Result<(T, &'a [u8]), Error> {
    let (value, used) = bincode::borrow_decode_from_slice(bytes, config()).map_err(|e| damaged(what, e))?;
    Ok((value, &bytes[used..]))
}

/// Decodes a value that takes up all of `bytes`.
pub fn decode<'a, T: BorrowDecode<'a, ()>>(what: &str, bytes: &'a [u8]) -> Result<T, Error> {
    match decode_front(what, bytes)? {
        (value, []) => Ok(value),
        (_, rest) => Err(damaged(what, format_args!("{} bytes too many", rest.len()))),
    }
}
