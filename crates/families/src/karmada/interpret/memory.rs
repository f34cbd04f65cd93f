//! Sizes of memory as Flink and the Java world write them: a number and a unit, every step of which is 1024.

use quantity::{Amount, Format, Quantity};

/// Words for units, with the power of two they stand for.
const UNITS: [(&[&str], u32); 6] = [
    (&["b", "bytes"], 0),
    (&["k", "kb", "kibibytes"], 10),
    (&["m", "mb", "mebibytes"], 20),
    (&["g", "gb", "gibibytes"], 30),
    (&["t", "tb", "tebibytes"], 40),
    (&["p", "pb", "pebibytes"], 50),
];

/// The bytes of a size; a bare number is of the default unit, given as a power of two. `None` for anything else.
pub fn bytes(text: &str, default_unit: u32) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim().to_ascii_lowercase();
    let power = match unit.is_empty() {
        true => default_unit,
        false => UNITS.iter().find(|(words, _)| words.contains(&&*unit)).map(|(_, power)| *power)?,
    };
    number.checked_mul(1 << power)
}

/// Flink's own reading first; what that does not know, such as `2Gi`, is Kubernetes'.
pub fn flink(text: &str) -> Result<Quantity, String> {
    if let Some(bytes) = bytes(text, 0) {
        return Ok(quantity(bytes));
    }
    let why =
        "use a number with b, k, m, g or t (each 1024 times the one before), or a Kubernetes quantity such as 2Gi";
    let text = text.trim();
    let quantity = Quantity::parse(text).ok().filter(|_| text.starts_with(|first: char| first.is_ascii_digit()));
    quantity.ok_or_else(|| format!("memory is {text:?}: {why}"))
}

pub fn quantity(bytes: u64) -> Quantity {
    Quantity::new(Amount::from_nanos(i128::from(bytes) * 1_000_000_000), Format::BinarySi)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flink_counts_in_steps_of_1024() {
        for (text, expected) in [
            ("2048m", "2Gi"),
            ("2g", "2Gi"),
            ("2 GB", "2Gi"),
            ("2097152k", "2Gi"),
            ("2147483648", "2Gi"),
            ("2147483648b", "2Gi"),
            ("2Gi", "2Gi"),
            ("2048Mi", "2Gi"),
            ("1tebibytes", "1Ti"),
        ] {
            assert_eq!(flink(text).unwrap().canonical().to_string(), expected, "{text}");
        }
        for text in ["", "m", "1.5g", "-1g", "99999999999999999999g", "20000000t", "2x", "2 g g", "２g"] {
            assert!(flink(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_of_the_default_unit() {
        assert_eq!(bytes("512", 20), Some(512 << 20));
        assert_eq!(bytes("512", 0), Some(512));
        assert_eq!(bytes("1g", 20), Some(1 << 30));
    }
}
