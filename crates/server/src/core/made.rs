//! Identity of objects that the engine makes itself. It reads no clock and no source of chance, so the same commands make
//! the same objects.

use ledger::SubjectId;

/// The n-th uid made from another: found again without an index.
pub(super) fn uid_from(of: SubjectId, number: usize) -> SubjectId {
    const SALT: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834;
    marked(of.0.rotate_left(64) ^ SALT.wrapping_mul(number as u128 + 1))
}

/// A uid made from a text (FNV-1a).
pub(super) fn named_uid(text: &[u8]) -> SubjectId {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    marked(text.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME)))
}

/// Version 5 says that a uid was made from a name and is not a random one.
fn marked(bits: u128) -> SubjectId {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0x3 << 62;
    SubjectId((bits & !VERSION & !VARIANT) | (0x5 << 76) | (0x2 << 62))
}

pub(super) use kinds::time::text as moment;
