//! Identity of objects that the engine makes itself. It reads no clock and no source of chance, so the same commands make
//! the same objects.

use families::marked_uid;
use ledger::SubjectId;

/// A uid made from a text (FNV-1a).
pub fn named_uid(text: &[u8]) -> SubjectId {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    marked_uid(text.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME)))
}

pub(crate) use kinds::time::text as moment;
