//! Sums of any number of amounts, whatever their order: what a step takes and gives back is only compared with the number
//! type at its end.

use quantity::Amount;

use crate::account::AMOUNT_MAX;

const HALF_BITS: u32 = 64;
const LOW_HALF: i128 = (1 << HALF_BITS) - 1;

/// The two halves of amounts added up apart. Either has room for more additions than a machine can do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wide {
    high: i128,
    low: i128,
}

impl Wide {
    pub fn add(&mut self, amount: Amount) {
        self.high += amount.nanos() >> HALF_BITS;
        self.low += amount.nanos() & LOW_HALF;
    }

    pub fn sub(&mut self, amount: Amount) {
        self.high -= amount.nanos() >> HALF_BITS;
        self.low -= amount.nanos() & LOW_HALF;
    }

    pub fn plus(mut self, amount: Amount) -> Wide {
        self.add(amount);
        self
    }

    pub fn minus(mut self, amount: Amount) -> Wide {
        self.sub(amount);
        self
    }

    pub fn is_positive(self) -> bool {
        self.halves() > (0, 0)
    }

    pub fn exceeds(self, amount: Amount) -> bool {
        self.minus(amount).is_positive()
    }

    /// The same number where amounts reach that far, else the last amount in its direction.
    pub fn nearest(self) -> Amount {
        let (high, low) = self.halves();
        match i64::try_from(high) {
            Ok(high) => Amount::from_nanos((i128::from(high) << HALF_BITS) | low),
            Err(_) if high > 0 => AMOUNT_MAX,
            Err(_) => Amount::from_nanos(i128::MIN),
        }
    }

    /// One number has one pair, and pairs are ordered as numbers are.
    fn halves(self) -> (i128, i128) {
        (self.high + (self.low >> HALF_BITS), self.low & LOW_HALF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_in_any_order() {
        let ends = [i128::MIN, i128::MIN + 1, -(1 << 64), -1, 0, 1, (1 << 64) - 1, 1 << 64, i128::MAX - 1, i128::MAX];
        let ends = ends.map(Amount::from_nanos);
        for one in ends {
            assert_eq!(Wide::default().plus(one).nearest(), one);
            for two in ends {
                let both = Wide::default().plus(one).plus(two);
                let exact = one.checked_add(two);
                let end = if one.is_negative() { Amount::from_nanos(i128::MIN) } else { AMOUNT_MAX };
                assert_eq!(both.nearest(), exact.unwrap_or(end), "{one:?} {two:?}");
                assert_eq!(both.minus(one).nearest(), two);
                assert_eq!(both.plus(one).plus(two).minus(one).minus(two).minus(two).nearest(), one);
                assert_eq!(Wide::default().plus(one).exceeds(two), one > two, "{one:?} {two:?}");
            }
        }
    }
}
