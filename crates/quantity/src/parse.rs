//! Reading a quantity: the grammar of `resource.ParseQuantity`, with its costs bounded beforehand.
//!
//! The upstream parser has a quick path for numbers that fit 64 bits and a slow one over arbitrary decimals. Which of
//! the two a text takes is visible from outside, because only the quick one keeps the sender's spelling. So the split
//! is reproduced here as a rule about text ([`takes_quick_path`]), while the value has a single, exact computation.

use std::fmt;

use crate::amount::{Amount, NANOS_PER_UNIT};
use crate::quantity::Format;

/// The longest text read. The largest honest quantity needs 31 characters; the rest is room for zeros and signs.
pub const TEXT_BYTES_MAX: usize = 64;

/// The largest exponent read, either sign. Beyond ±60 every non-zero value is either refused as too large or rounds up
/// to one nano-unit; Kubernetes builds the power of ten first, and for a large exponent never comes back.
pub const EXPONENT_MAX: i64 = 60;

/// 128 bits end near 1.7e29 units; stopping at a round number before that keeps rounding up always possible.
const NANOS_END: u128 = 10u128.pow(38);
/// 1000E. Kubernetes has no decimal suffix beyond E and prints a multiple of this without any: 1000E becomes "1".
const DECIMAL_SI_NANOS_LOST: u128 = 10u128.pow(30);
/// 1024Ei, for the same reason.
const BINARY_SI_NANOS_LOST: u128 = (1u128 << 70) * NANOS_PER_UNIT.unsigned_abs();
/// A value written with a binary suffix is capped, not refused, at 2^63-1 units. That is upstream's rule.
const BINARY_CAP_NANOS: u128 = i64::MAX.unsigned_abs() as u128 * NANOS_PER_UNIT.unsigned_abs();

/// Why a text is no quantity. The first three speak Kubernetes' words, the others are refusals of our own
/// (docs/quantities.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    Format,
    Numeric,
    Suffix,
    /// More than [`TEXT_BYTES_MAX`] bytes.
    TooLong,
    /// An exponent beyond ±[`EXPONENT_MAX`].
    Exponent,
    /// A value Kubernetes would print as another one: a multiple of 1000E.
    Unprintable,
    /// 1e29 or more.
    TooLarge,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Format => f.write_str(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            ParseError::Numeric => f.write_str("unable to parse numeric part of quantity"),
            ParseError::Suffix => f.write_str("unable to parse quantity's suffix"),
            ParseError::TooLong => write!(f, "quantities must be no longer than {TEXT_BYTES_MAX} bytes"),
            ParseError::Exponent => {
                write!(f, "the exponent of a quantity must be between -{EXPONENT_MAX} and {EXPONENT_MAX}")
            }
            ParseError::Unprintable => f.write_str("quantity cannot be written back: there is no suffix beyond E"),
            ParseError::TooLarge => f.write_str("quantity too large: must be below 1e29"),
        }
    }
}

impl std::error::Error for ParseError {}

pub(crate) struct Parsed {
    pub amount: Amount,
    pub format: Format,
    pub keeps_text: bool,
}

pub(crate) fn parse(text: &str) -> Result<Parsed, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Format);
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(ParseError::TooLong);
    }
    let parts = split(text)?;
    let scale = Scale::of(parts.suffix)?;
    if !parts.has_digits && !takes_quick_path(&parts, scale) {
        return Err(ParseError::Numeric); // upstream's decimals need a digit, its integers do not
    }
    let magnitude = match scale {
        Scale::Decimal(exponent) | Scale::Exponent(exponent) => decimal_nanos(&parts, exponent),
        Scale::Binary(shift) => Some(binary_nanos(&parts, shift)),
    };
    let magnitude = magnitude.filter(|nanos| *nanos < NANOS_END).ok_or(ParseError::TooLarge)?;
    let mut format = scale.format();
    if format == Format::BinarySi && magnitude != 0 && magnitude < NANOS_PER_UNIT.unsigned_abs() {
        format = Format::DecimalSi; // a fraction has no binary spelling
    }
    let nanos = i128::try_from(magnitude).map_err(|_| ParseError::TooLarge)?;
    let amount = Amount::from_nanos(if parts.negative { -nanos } else { nanos });
    if !is_printable(amount, format) {
        return Err(ParseError::Unprintable);
    }
    Ok(Parsed { amount, format, keeps_text: keeps_text(&parts, scale) })
}

/// Whether the value is in range and Kubernetes could print it in this format without losing it.
pub(crate) fn is_printable(amount: Amount, format: Format) -> bool {
    let magnitude = amount.nanos().unsigned_abs();
    let lost = match format {
        Format::DecimalSi => magnitude != 0 && magnitude.is_multiple_of(DECIMAL_SI_NANOS_LOST),
        Format::BinarySi => magnitude != 0 && magnitude.is_multiple_of(BINARY_SI_NANOS_LOST),
        Format::DecimalExponent => false,
    };
    magnitude < NANOS_END && !lost
}

struct Parts<'a> {
    negative: bool,
    /// Whether there is a digit at all in front of the suffix, be it a leading zero.
    has_digits: bool,
    /// Digits before the point, leading zeros gone. May be empty.
    whole: &'a [u8],
    /// Digits after the point. May be empty.
    fraction: &'a [u8],
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, ParseError> {
    let bytes = text.as_bytes();
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let whole_start = end_of(bytes, sign, |byte| byte == b'0');
    let whole_end = end_of(bytes, whole_start, |byte| byte.is_ascii_digit());
    let mut fraction = whole_end..whole_end;
    if bytes.get(whole_end) == Some(&b'.') {
        fraction = whole_end + 1..end_of(bytes, whole_end + 1, |byte| byte.is_ascii_digit());
    }
    let letters_end = end_of(bytes, fraction.end, |byte| b"eEinumkKMGTP".contains(&byte));
    let exponent_sign = usize::from(matches!(bytes.get(letters_end), Some(b'+' | b'-')));
    if end_of(bytes, letters_end + exponent_sign, |byte| byte.is_ascii_digit()) != bytes.len() {
        return Err(ParseError::Format);
    }
    Ok(Parts {
        negative: bytes.first() == Some(&b'-'),
        has_digits: whole_end > sign || !fraction.is_empty(),
        whole: &bytes[whole_start..whole_end],
        suffix: &text[fraction.end..],
        fraction: &bytes[fraction],
    })
}

/// The end of the run of bytes from `start` on that satisfy `wanted`.
fn end_of(bytes: &[u8], start: usize, wanted: impl Fn(u8) -> bool) -> usize {
    start + bytes[start..].iter().take_while(|byte| wanted(**byte)).count()
}

/// What a suffix multiplies by: a power of ten, or a power of two.
#[derive(Clone, Copy)]
enum Scale {
    Decimal(i32),
    Binary(u32),
    Exponent(i32),
}

impl Scale {
    fn of(suffix: &str) -> Result<Scale, ParseError> {
        Ok(match suffix {
            "n" => Scale::Decimal(-9),
            "u" => Scale::Decimal(-6),
            "m" => Scale::Decimal(-3),
            "" => Scale::Decimal(0),
            "k" => Scale::Decimal(3),
            "M" => Scale::Decimal(6),
            "G" => Scale::Decimal(9),
            "T" => Scale::Decimal(12),
            "P" => Scale::Decimal(15),
            "E" => Scale::Decimal(18),
            "Ki" => Scale::Binary(10),
            "Mi" => Scale::Binary(20),
            "Gi" => Scale::Binary(30),
            "Ti" => Scale::Binary(40),
            "Pi" => Scale::Binary(50),
            "Ei" => Scale::Binary(60),
            _ => {
                let digits = suffix.strip_prefix(['e', 'E']).ok_or(ParseError::Suffix)?;
                let exponent: i64 = digits.parse().map_err(|_| ParseError::Suffix)?;
                if !(-EXPONENT_MAX..=EXPONENT_MAX).contains(&exponent) {
                    return Err(ParseError::Exponent);
                }
                Scale::Exponent(i32::try_from(exponent).map_err(|_| ParseError::Exponent)?)
            }
        })
    }

    fn format(self) -> Format {
        match self {
            Scale::Decimal(_) => Format::DecimalSi,
            Scale::Binary(_) => Format::BinarySi,
            Scale::Exponent(_) => Format::DecimalExponent,
        }
    }
}

/// Digits times a power of ten, in nano-units, rounded up. `None` when it does not fit 128 bits.
fn decimal_nanos(parts: &Parts<'_>, exponent: i32) -> Option<u128> {
    let digits = || parts.whole.iter().chain(parts.fraction).copied();
    let count = parts.whole.len() + parts.fraction.len();
    // How far the decimal point of the nano count lies behind the last digit (negative: in front of it).
    let shift = last_digit_exponent(parts, exponent) + 9;
    if shift >= 0 {
        let mantissa = number(digits())?;
        if mantissa == 0 {
            return Some(0);
        }
        return mantissa.checked_mul(10u128.checked_pow(u32::try_from(shift).ok()?)?);
    }
    let dropped = usize::try_from(-shift).ok()?;
    let kept = count.saturating_sub(dropped);
    let whole = number(digits().take(kept))?;
    let rest = digits().skip(kept).any(|digit| digit != b'0');
    whole.checked_add(u128::from(rest))
}

/// Digits times a power of two, in nano-units, rounded up and capped.
fn binary_nanos(parts: &Parts<'_>, shift: u32) -> u128 {
    // Digits that overflow 128 bits, or a product that does, are beyond the cap anyway.
    let whole = number(parts.whole.iter().copied())
        .and_then(|whole| whole.checked_mul(1 << shift))
        .and_then(|units| units.checked_mul(NANOS_PER_UNIT.unsigned_abs()));
    let Some(whole) = whole else { return BINARY_CAP_NANOS };

    // The fraction, digit by digit from the right: each step computes floor((digit * unit + rest) / 10), which equals
    // flooring once at the end, and remembers whether anything fell off. `unit` is below 2^90, so nothing overflows.
    let unit = (1u128 << shift) * NANOS_PER_UNIT.unsigned_abs();
    let mut fraction = 0u128;
    let mut inexact = false;
    for digit in parts.fraction.iter().rev() {
        let sum = u128::from(digit - b'0') * unit + fraction;
        inexact |= !sum.is_multiple_of(10);
        fraction = sum / 10;
    }
    match whole.checked_add(fraction + u128::from(inexact)) {
        Some(nanos) => nanos.min(BINARY_CAP_NANOS),
        None => BINARY_CAP_NANOS,
    }
}

fn number(digits: impl Iterator<Item = u8>) -> Option<u128> {
    digits.into_iter().try_fold(0u128, |sum, digit| sum.checked_mul(10)?.checked_add(u128::from(digit - b'0')))
}

/// Whether upstream's 64-bit path takes this text. Visible from outside in two ways: only that path keeps the sender's
/// spelling, and only that path reads a number without digits as zero.
fn takes_quick_path(parts: &Parts<'_>, scale: Scale) -> bool {
    // An empty whole part counts as the digit 0 upstream.
    let whole_digits = parts.whole.len().max(1);
    match scale {
        Scale::Decimal(exponent) | Scale::Exponent(exponent) => {
            whole_digits + parts.fraction.len() <= 18 && last_digit_exponent(parts, exponent) >= -9
        }
        // Three bits hold about one decimal digit; fifteen digits are what upstream trusts 64 bits with here.
        Scale::Binary(shift) => parts.fraction.is_empty() && whole_digits + shift as usize * 3 / 10 < 15,
    }
}

/// Whether the text is repeated when the quantity is printed: the quick path took it and found nothing to tidy up.
/// It looks only at the digits, so spellings like `01`, `+1` and `1.500` pass.
fn keeps_text(parts: &Parts<'_>, scale: Scale) -> bool {
    if parts.whole.is_empty() || !takes_quick_path(parts, scale) {
        return false;
    }
    match scale {
        Scale::Decimal(exponent) | Scale::Exponent(exponent) => {
            let mut tail = parts.whole.iter().chain(parts.fraction).rev();
            let ends_in_zeros = (0..3).all(|_| tail.next() == Some(&b'0'));
            last_digit_exponent(parts, exponent) % 3 == 0 && !ends_in_zeros
        }
        Scale::Binary(_) => number(parts.whole.iter().copied()).is_some_and(|digits| digits % 8 != 0),
    }
}

/// The power of ten that the last digit stands for.
fn last_digit_exponent(parts: &Parts<'_>, exponent: i32) -> i64 {
    // The text is at most TEXT_BYTES_MAX long, so the cast loses nothing.
    i64::from(exponent) - parts.fraction.len() as i64
}
