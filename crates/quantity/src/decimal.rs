//! Plain decimals, for readers that know no suffixes (metrics): every digit comes from integer arithmetic.

use std::fmt;

use crate::amount::{Amount, NANOS_PER_UNIT};

/// An amount as a plain decimal: `0.375`, `402653184`. Exact, without trailing zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal(pub Amount);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.nanos();
        let (magnitude, unit) = (nanos.unsigned_abs(), NANOS_PER_UNIT.unsigned_abs());
        let sign = if nanos < 0 { "-" } else { "" };
        write!(f, "{sign}{}", magnitude / unit)?;
        let fraction = format!("{:09}", magnitude % unit);
        write_fraction(f, &fraction)
    }
}

/// How many hundredths of `whole` a part is. Nothing is a share of nothing: it is 0 unless both are above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent {
    pub part: Amount,
    pub whole: Amount,
}

/// Digits of a quotient behind its point, two of which become whole hundredths. One more than a double can tell apart,
/// so that whoever reads the text into one gets the nearest there is.
const QUOTIENT_DIGITS: usize = 20;

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (part, whole) = (self.part.nanos(), self.whole.nanos());
        if part <= 0 || whole <= 0 {
            return f.write_str("0");
        }
        let (part, whole) = (part.unsigned_abs(), whole.unsigned_abs());
        let mut rest = part % whole;
        let mut digits = String::with_capacity(QUOTIENT_DIGITS);
        for _ in 0..QUOTIENT_DIGITS {
            let digit;
            (digit, rest) = tenfold(rest, whole);
            digits.push(char::from(b'0' + digit));
        }
        let (hundredths, fraction) = digits.split_at(2);
        match part / whole {
            0 if hundredths == "00" => f.write_str("0")?,
            0 => f.write_str(hundredths.trim_start_matches('0'))?,
            times => write!(f, "{times}{hundredths}")?,
        }
        write_fraction(f, fraction)
    }
}

/// Ten times `rest` divided by `whole`, and what is left. By addition, because ten times the largest amount does not
/// fit; two remainders always do, as no amount uses the highest bit.
fn tenfold(rest: u128, whole: u128) -> (u8, u128) {
    let (mut digit, mut sum) = (0, 0);
    for _ in 0..10 {
        sum += rest;
        if sum >= whole {
            sum -= whole;
            digit += 1;
        }
    }
    (digit, sum)
}

fn write_fraction(f: &mut fmt::Formatter<'_>, digits: &str) -> fmt::Result {
    match digits.trim_end_matches('0') {
        "" => Ok(()),
        digits => write!(f, ".{digits}"),
    }
}
