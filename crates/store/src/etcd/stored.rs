//! What stands under the key of a row: the value, the value packed, or in how many parts it is stored.
//!
//! Objects are JSON that says much twice. Packed they take half the room in etcd's file, and half of what it has to do with
//! every byte of them: receive it, log it, copy it into its pages, send it to the other members.

use std::borrow::Cow;

use bytes::Bytes;
use lz4_flex::block::{compress_into, decompress, get_maximum_output_size};

use crate::batch::VALUE_BYTES_MAX;

const WHOLE: u8 = 0;
const PARTS: u8 = 1;
/// The length as four bytes, and the value as a block of LZ4.
const PACKED: u8 = 2;

const PACKED_HEAD_BYTES: usize = 1 + size_of::<u32>();

/// What is shorter is hardly worth it.
const PACKED_BYTES_MIN: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    Whole(Cow<'a, [u8]>),
    Parts(u32),
}

/// Packed, unless that saves nothing: what is encrypted is as long as before.
pub fn encode(value: &[u8]) -> Bytes {
    pack(value).unwrap_or_else(|| [&[WHOLE], value].concat().into())
}

pub fn encode_parts(count: u32) -> Bytes {
    [&[PARTS], count.to_be_bytes().as_slice()].concat().into()
}

fn pack(value: &[u8]) -> Option<Bytes> {
    if value.len() < PACKED_BYTES_MIN {
        return None;
    }
    let mut packed = vec![0; PACKED_HEAD_BYTES + get_maximum_output_size(value.len())];
    packed[0] = PACKED;
    packed[1..PACKED_HEAD_BYTES].copy_from_slice(&u32::try_from(value.len()).ok()?.to_be_bytes());
    let length = PACKED_HEAD_BYTES + compress_into(value, &mut packed[PACKED_HEAD_BYTES..]).ok()?;
    (length <= value.len()).then(|| Bytes::copy_from_slice(&packed[..length]))
}

/// `None` for what no release has written.
pub fn decode(stored: &[u8]) -> Option<Stored<'_>> {
    match stored.split_first()? {
        (&WHOLE, value) => Some(Stored::Whole(Cow::Borrowed(value))),
        (&PARTS, count) => Some(Stored::Parts(u32::from_be_bytes(count.try_into().ok()?))),
        (&PACKED, packed) => {
            let (length, block) = packed.split_first_chunk()?;
            // As long as it says, and no longer than a row may be.
            let length =
                usize::try_from(u32::from_be_bytes(*length)).ok().filter(|&length| length <= VALUE_BYTES_MAX)?;
            let value = decompress(block, length).ok().filter(|value| value.len() == length)?;
            Some(Stored::Whole(Cow::Owned(value)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_as_it_was() {
        let object = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","managedFields":[{"f:spec":{}}]}}"#;
        let noise: Vec<u8> = (0..3000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
        for value in [b"".as_slice(), b"short", object.repeat(30).as_bytes(), &noise, &[0; 300_000]] {
            let stored = encode(value);
            assert!(stored.len() <= value.len() + 1, "{} of {}", stored.len(), value.len());
            assert_eq!(decode(&stored), Some(Stored::Whole(Cow::Borrowed(value))));
        }
        assert!(encode(object.repeat(30).as_bytes()).len() * 3 < object.len() * 30);
        assert_eq!(decode(&encode_parts(7)), Some(Stored::Parts(7)));
    }

    #[test]
    fn what_is_damaged_is_no_value() {
        let stored = encode(&[b'x'; 1000]);
        assert_eq!(stored[0], PACKED);
        for end in 0..stored.len() {
            assert_eq!(decode(&stored[..end]), None, "{end}");
        }
        let with = |at: usize, byte: u8| {
            let mut damaged = stored.to_vec();
            damaged[at] = byte;
            damaged
        };
        // Another kind; longer and shorter than it is; longer than anything.
        for damaged in [with(0, 3), with(4, stored[4] + 1), with(4, stored[4] - 1), with(1, 0xff)] {
            assert_eq!(decode(&damaged), None);
        }
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[PARTS, 1]), None);
    }
}
