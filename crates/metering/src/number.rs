//! Numbers from their text, exactly.

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

/// The number that a JSON value is, or spells.
pub fn json_nanos(value: &serde_json::Value) -> Option<i128> {
    match value {
        serde_json::Value::Number(number) => nanos(&number.to_string()),
        serde_json::Value::String(text) => nanos(text),
        _ => None,
    }
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
        assert_eq!(json_nanos(&serde_json::json!(12.5)), Some(12_500_000_000));
        assert_eq!(json_nanos(&serde_json::json!("12.5")), Some(12_500_000_000));
        assert_eq!(json_nanos(&serde_json::json!(null)), None);
    }
}
