//! Numbers as commands and objects carry them: whole ones, and vCPUs as decimals. No float is computed with.

use quantity::{Amount, Decimal, Quantity};
use serde_json::{Number, Value};

/// The largest number that every JSON client reads as it was written.
pub const NUMBER_MAX: i64 = (1 << 53) - 1;

/// A whole number from zero on.
pub fn whole(value: &Value) -> Result<i64, String> {
    let number = value.as_i64().filter(|number| (0..=NUMBER_MAX).contains(number));
    number.ok_or_else(|| format!("{} is not a whole number from 0 to {NUMBER_MAX}", short(value)))
}

/// What was written instead of a number, as far as it is told.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(64) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// A decimal from zero on, as a number or as text: `0.5`, `"0.5"`. Its digits are read as they are written, and no more than
/// nine of them may follow the point.
pub fn decimal(value: &Value) -> Result<Amount, String> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        other => return Err(format!("{} is not a decimal number", short(other))),
    };
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    let is_short = !text.is_empty() && text.len() <= 40 && text.chars().all(plain);
    if !is_short || places(&text).is_none_or(|places| places > 9) {
        return Err(format!("{} is not a decimal number with at most nine digits behind its point", short(value)));
    }
    let amount = Quantity::parse(&text).map_err(|_| format!("{} is not a decimal number", short(value)))?.amount();
    if amount.is_negative() || amount > Amount::from_units(NUMBER_MAX) {
        return Err(format!("{} is not a number from 0 to {NUMBER_MAX}", short(value)));
    }
    Ok(amount)
}

/// How many digits follow the point of a decimal, however it is written: nine of `1e-9`, one of `25e-1`. What is finer than amounts are
/// would be rounded, and a limit then be more than it says.
fn places(text: &str) -> Option<i64> {
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let fraction = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let exponent: i64 = exponent.parse().ok()?;
    i64::try_from(fraction).ok()?.checked_sub(exponent)
}

/// An amount as a JSON number, in as few digits as it takes.
pub fn shown(amount: Amount) -> Value {
    match amount.to_units() {
        Some(units) => Value::from(units),
        None => text(amount).parse::<Number>().map_or(Value::Null, Value::Number),
    }
}

/// An amount as a plain decimal.
pub fn text(amount: Amount) -> String {
    Decimal(amount).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decimals_are_read_digit_by_digit() {
        for (value, nanos) in [
            (json!(0.1), 100_000_000),
            (json!("0.1"), 100_000_000),
            (json!(3), 3_000_000_000),
            (json!(1e-9), 1),
            (json!("0.000000001"), 1),
            (json!("25e-1"), 2_500_000_000),
            (json!("1.5e3"), 1_500_000_000_000),
            (json!(0), 0),
        ] {
            assert_eq!(decimal(&value).map(Amount::nanos), Ok(nanos), "{value}");
        }
        for wrong in [
            json!(-1),
            json!("1Gi"),
            json!("500m"),
            json!("0.0000000001"),
            json!("1e-10"),
            json!(1e-10),
            json!("1.5e-9"),
            json!("1e"),
            json!("1e-99999999999999999999"),
            json!(null),
            json!(true),
            json!("NaN"),
            json!(""),
            json!("1e99"),
            json!(1e300),
            json!(i64::MAX),
        ] {
            assert!(decimal(&wrong).is_err(), "{wrong}");
        }
        let sum = decimal(&json!(0.1)).unwrap().checked_add(decimal(&json!(0.2)).unwrap()).unwrap();
        assert_eq!(shown(sum), json!(0.3));
        assert_eq!(shown(Amount::from_units(7)), json!(7));
    }

    #[test]
    fn whole_numbers_are_whole() {
        assert_eq!(whole(&json!(0)), Ok(0));
        assert_eq!(whole(&json!(NUMBER_MAX)), Ok(NUMBER_MAX));
        for wrong in [json!(-1), json!(1.5), json!("1"), json!(null), json!(u64::MAX), json!(1u64 << 53)] {
            assert!(whole(&wrong).is_err(), "{wrong}");
        }
    }
}
