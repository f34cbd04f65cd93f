//! Numbers from their text, exactly.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// A decimal number in billionths; what is finer is rounded up, so that nothing is measured for less than it is. None for what is no
/// number (`NaN`, `+Inf`), is below zero, or is beyond counting.
pub fn nanos(text: &str) -> Option<i128> {
    let text = text.trim();
    let text = text.strip_prefix('+').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0
        || !is_digits(whole)
        || !is_digits(fraction)
        || whole.len() + fraction.len() > 60
    {
        return None;
    }
    let digits: String = format!("{whole}{fraction}");
    // How many places the digits are to the left of billionths.
    let shift = i64::from(exponent) - i64::try_from(fraction.len()).ok()? + 9;
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    if shift >= 0 {
        let number: i128 = significant.parse().ok()?;
        let power = 10i128.checked_pow(u32::try_from(shift).ok()?)?;
        return number.checked_mul(power);
    }
    let cut = usize::try_from(-shift).ok()?;
    let (kept, lost) = match significant.len().checked_sub(cut) {
        Some(at) => significant.split_at(at),
        None => ("", significant),
    };
    let kept: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    let rest = lost.bytes().any(|byte| byte != b'0');
    kept.checked_add(i128::from(rest))
}

/// The fields of a JSON object, each as it is written: a number that becomes a float on the way would be another.
pub type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The number that a field is, or spells.
pub fn field_nanos(fields: &Fields<'_>, name: &str) -> Option<i128> {
    let written = fields.get(name)?.get();
    nanos(written.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(written))
}

/// What a field is, if it is of that kind.
pub fn field<'a, T: serde::Deserialize<'a>>(fields: &Fields<'a>, name: &str) -> Option<T> {
    serde_json::from_str(fields.get(name)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOS: i128 = 1_000_000_000;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for (text, expected) in [
            ("0", Some(0)),
            ("500", Some(500 * NANOS)),
            ("1.5", Some(1_500_000_000)),
            ("1e3", Some(1000 * NANOS)),
            ("1.25E+2", Some(125 * NANOS)),
            ("2.5e-1", Some(250_000_000)),
            ("0.0000000001", Some(1)),
            ("1.0000000001", Some(NANOS + 1)),
            ("0.1", Some(100_000_000)),
            ("+7", Some(7 * NANOS)),
            ("1e-40", Some(1)),
            ("0e99", Some(0)),
            ("1e30", None),
            ("1e999999999999", None),
            ("-1", None),
            ("NaN", None),
            ("+Inf", None),
            ("", None),
            (".", None),
            ("1_000", None),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
        let fields = "{\"a\": 9007199254740993.0, \"b\": \"12.5\", \"c\": null, \"d\": \"1\\n\", \"e\": 0.1}";
        let fields: Fields<'_> = serde_json::from_str(fields).unwrap();
        let read = ["a", "b", "c", "d", "e", "f"].map(|name| field_nanos(&fields, name));
        let (long, short) = (Some(9_007_199_254_740_993 * NANOS), Some(12_500_000_000));
        assert_eq!(read, [long, short, None, None, Some(100_000_000), None]);
    }
}
