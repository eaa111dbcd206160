//! The one value this crate itself keeps in the store: the marker.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 8 | LSN, little-endian |

use crate::traits::{Cf, KvError};

/// Version of the marker's value.
const MARKER_VERSION: u8 = 1;

/// Length of the marker's value in bytes.
pub(crate) const MARKER_LEN: usize = 9;

/// Packs the value kept under [`crate::MARKER_KEY`].
pub(crate) fn encode_marker(lsn: u64) -> [u8; MARKER_LEN] {
    let mut value = [0; MARKER_LEN];
    value[0] = MARKER_VERSION;
    value[1..].copy_from_slice(&lsn.to_le_bytes());
    value
}

/// Unpacks it; a family that was never written has none and stands at LSN 0.
pub(crate) fn decode_marker(cf: Cf, value: Option<&[u8]>) -> Result<u64, KvError> {
    match value {
        None => Ok(0),
        Some([MARKER_VERSION, lsn @ ..]) if lsn.len() == 8 => {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(lsn);
            Ok(u64::from_le_bytes(bytes))
        }
        Some(other) => Err(KvError::Damaged {
            reason: format!(
                "marker of family {}: expected {MARKER_LEN} bytes of version {MARKER_VERSION}, \
                 got {} bytes starting with {:?}",
                cf.name(),
                other.len(),
                other.first()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_has_its_golden_bytes() {
        assert_eq!(encode_marker(0x0102_0304_0506_0708), [1, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(decode_marker(Cf::Omap, Some(&encode_marker(u64::MAX))), Ok(u64::MAX));
        assert_eq!(decode_marker(Cf::Omap, None), Ok(0));
    }

    #[test]
    fn marker_of_another_version_or_length_is_damage() {
        for bytes in [&[2, 0, 0, 0, 0, 0, 0, 0, 0][..], &[1, 0][..], &[][..]] {
            let got = decode_marker(Cf::Meta, Some(bytes));
            assert!(matches!(got, Err(KvError::Damaged { .. })), "{got:?}");
        }
    }
}
