//! The number inside a quantity, and the only number an account knows.

use std::fmt;

use crate::print;
use crate::quantity::Format;

/// An exact number of nano-units.
///
/// Nano is the finest grain a Kubernetes quantity has, so an integer of them loses nothing; 128 bits reach 1.7e29
/// units, ten billion times the largest value a binary suffix may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(i128);

pub(crate) const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

impl Amount {
    pub const ZERO: Amount = Amount(0);

    pub const fn from_nanos(nanos: i128) -> Amount {
        Amount(nanos)
    }

    pub const fn from_units(units: i64) -> Amount {
        // Cannot overflow: 2^63 * 10^9 is far below 2^127.
        Amount(units as i128 * NANOS_PER_UNIT)
    }

    pub const fn from_millis(millis: i64) -> Amount {
        Amount(millis as i128 * NANOS_PER_MILLI)
    }

    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// The amount as a whole number, if it is one and fits.
    pub fn to_units(self) -> Option<i64> {
        if self.0 % NANOS_PER_UNIT == 0 { i64::try_from(self.0 / NANOS_PER_UNIT).ok() } else { None }
    }

    pub const fn checked_add(self, other: Amount) -> Option<Amount> {
        match self.0.checked_add(other.0) {
            Some(nanos) => Some(Amount(nanos)),
            None => None,
        }
    }

    pub const fn checked_sub(self, other: Amount) -> Option<Amount> {
        match self.0.checked_sub(other.0) {
            Some(nanos) => Some(Amount(nanos)),
            None => None,
        }
    }

    pub const fn checked_mul(self, times: i64) -> Option<Amount> {
        match self.0.checked_mul(times as i128) {
            Some(nanos) => Some(Amount(nanos)),
            None => None,
        }
    }

    pub const fn checked_neg(self) -> Option<Amount> {
        match self.0.checked_neg() {
            Some(nanos) => Some(Amount(nanos)),
            None => None,
        }
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Away from zero to the next thousandth, as the API server does with every ResourceList it decodes.
    /// `None` only within one step of the end of the range, which no parsed quantity reaches.
    pub const fn round_up_milli(self) -> Option<Amount> {
        self.round_up(NANOS_PER_MILLI)
    }

    /// Away from zero to the next whole unit (storage counts whole bytes).
    pub const fn round_up_units(self) -> Option<Amount> {
        self.round_up(NANOS_PER_UNIT)
    }

    const fn round_up(self, step: i128) -> Option<Amount> {
        let rest = self.0 % step; // carries the sign of the amount
        if rest == 0 {
            return Some(self);
        }
        let toward_zero = self.0 - rest;
        let away = if rest > 0 { toward_zero.checked_add(step) } else { toward_zero.checked_sub(step) };
        match away {
            Some(nanos) => Some(Amount(nanos)),
            None => None,
        }
    }
}

/// Canonical DecimalSI text: `1500m`, `2`, `10k`.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print::write_canonical(f, *self, Format::DecimalSi)
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Amount({self})")
    }
}
