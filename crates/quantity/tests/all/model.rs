//! Quantities once more, slowly: big integers, fractions as fractions, no bounds but the documented ones. Written from
//! the rules and not from the crate, so that the two can disagree.

use num_bigint::BigInt;
use quantity::{EXPONENT_MAX, Format, ParseError, TEXT_BYTES_MAX};

pub struct Model {
    pub nanos: BigInt,
    pub format: Format,
    pub printed: String,
}

pub fn parse(text: &str) -> Result<Model, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ParseError::TooLong);
    }
    let (sign, written, fraction, suffix) = split(text).ok_or(ParseError::Format)?;
    let (base, exponent, mut format) = interpret(&suffix)?;
    let whole = written.trim_start_matches('0');
    let quick = quick(whole, &fraction, base, exponent);
    if !quick && written.is_empty() && fraction.is_empty() {
        return Err(ParseError::Numeric);
    }

    let digits: BigInt = format!("0{whole}{fraction}").parse().expect("digits");
    let mut numerator = digits * power(10, 9);
    let mut denominator = power(10, fraction.len());
    match (base, exponent) {
        (base, exponent) if exponent >= 0 => numerator *= power(base, magnitude(exponent)),
        (base, exponent) => denominator *= power(base, magnitude(exponent)),
    }
    let mut nanos: BigInt = (&numerator + &denominator - 1) / &denominator; // up: both are non-negative
    if format == Format::BinarySi {
        nanos = nanos.min(BigInt::from(i64::MAX) * power(10, 9));
        if nanos > BigInt::ZERO && nanos < power(10, 9) {
            format = Format::DecimalSi;
        }
    }
    if nanos >= power(10, 38) {
        return Err(ParseError::TooLarge);
    }
    let nanos = if sign == Some('-') { -nanos } else { nanos };
    let canonical = canonical(&nanos, format).ok_or(ParseError::Unprintable)?;
    let printed = if quick && repeats(whole, &fraction, base, exponent) { text.to_string() } else { canonical };
    Ok(Model { nanos, format, printed })
}

pub fn printable(nanos: &BigInt, format: Format) -> bool {
    nanos.magnitude() < power(10, 38).magnitude() && canonical(nanos, format).is_some()
}

/// `None` when Kubernetes runs out of suffixes.
pub fn canonical(nanos: &BigInt, format: Format) -> Option<String> {
    let zero = BigInt::ZERO;
    if *nanos == zero {
        return Some("0".into());
    }
    let unit = power(10, 9);
    if format == Format::BinarySi && nanos % &unit == zero {
        let mut units = nanos / &unit;
        if units <= BigInt::from(-1024) || units >= BigInt::from(1024) {
            let mut suffixes = BINARY.iter();
            let mut suffix = "";
            while &units % 1024 == zero {
                units /= 1024;
                suffix = suffixes.next()?.0;
            }
            return Some(format!("{units}{suffix}"));
        }
    }
    let (mut mantissa, mut exponent) = (nanos.clone(), -9);
    while &mantissa % 10 == zero {
        mantissa /= 10;
        exponent += 1;
    }
    while exponent % 3 != 0 {
        mantissa *= 10;
        exponent -= 1;
    }
    if format == Format::DecimalExponent {
        return Some(if exponent == 0 { mantissa.to_string() } else { format!("{mantissa}e{exponent}") });
    }
    let suffix = DECIMAL.iter().find(|(_, power)| *power == exponent)?.0;
    Some(format!("{mantissa}{suffix}"))
}

const DECIMAL: [(&str, i64); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, i64); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

fn interpret(suffix: &str) -> Result<(u32, i64, Format), ParseError> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(text, _)| *text == suffix) {
        return Ok((10, *exponent, Format::DecimalSi));
    }
    if let Some((_, exponent)) = BINARY.iter().find(|(text, _)| *text == suffix) {
        return Ok((2, *exponent, Format::BinarySi));
    }
    if suffix.len() > 1 && (suffix.starts_with('e') || suffix.starts_with('E')) {
        let exponent: i64 = suffix[1..].parse().map_err(|_| ParseError::Suffix)?;
        if !(-EXPONENT_MAX..=EXPONENT_MAX).contains(&exponent) {
            return Err(ParseError::Exponent);
        }
        return Ok((10, exponent, Format::DecimalExponent));
    }
    Err(ParseError::Suffix)
}

type Split = (Option<char>, String, String, String);

fn split(text: &str) -> Option<Split> {
    if text.is_empty() {
        return None;
    }
    let mut rest = text.chars().peekable();
    let sign = rest.next_if(|c| matches!(c, '+' | '-'));
    let mut run = |wanted: &dyn Fn(char) -> bool| -> String {
        let mut found = String::new();
        while let Some(c) = rest.next_if(|c| wanted(*c)) {
            found.push(c);
        }
        found
    };
    let digit = |c: char| c.is_ascii_digit();
    let whole = run(&digit);
    // At most one point: take the run of points and look at its length.
    let points = run(&|c| c == '.');
    let fraction = if points.len() == 1 { run(&digit) } else { String::new() };
    let letters = run(&|c| "eEinumkKMGTP".contains(c));
    let signs = run(&|c| matches!(c, '+' | '-'));
    let exponent = run(&digit);
    if points.len() > 1 || signs.len() > 1 || rest.next().is_some() {
        return None;
    }
    Some((sign, whole, fraction, letters + &signs + &exponent))
}

/// Upstream's 64-bit path, from the reference's words.
fn quick(whole: &str, fraction: &str, base: u32, exponent: i64) -> bool {
    let length = whole.len().max(1) + fraction.len();
    let length = i64::try_from(length).expect("short");
    if base == 2 {
        return fraction.is_empty() && 15 - length - exponent * 3 / 10 > 0;
    }
    length <= 18 && exponent - i64::try_from(fraction.len()).expect("short") >= -9
}

/// The cached-text rule, likewise.
fn repeats(whole: &str, fraction: &str, base: u32, exponent: i64) -> bool {
    let digits = format!("{}{fraction}", if whole.is_empty() { "0" } else { whole });
    if base == 2 {
        let number: BigInt = digits.parse().expect("digits");
        return number % 8 != BigInt::ZERO;
    }
    let scale = exponent - i64::try_from(fraction.len()).expect("short");
    scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
}

fn power(base: u32, exponent: usize) -> BigInt {
    BigInt::from(base).pow(u32::try_from(exponent).expect("small"))
}

fn magnitude(exponent: i64) -> usize {
    usize::try_from(exponent.unsigned_abs()).expect("small")
}
