//! What must hold for any bytes whatever. The fuzz target and the bounded tests both call this.

use num_bigint::BigInt;
use quantity::{Format, Quantity};

use super::model;

/// Bytes as text, split at the first comma into two quantities: each is compared with the model, and so is what
/// becomes of them together.
pub fn check_bytes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.split_once(',') {
        None => {
            check_text(text);
        }
        Some((left, right)) => {
            if let (Some(left), Some(right)) = (check_text(left), check_text(right)) {
                check_pair(&left, &right);
            }
        }
    }
}

pub fn check_text(text: &str) -> Option<Quantity> {
    let parsed = Quantity::parse(text);
    let expected = match model::parse(text) {
        Ok(expected) => expected,
        Err(refusal) => {
            assert_eq!(parsed, Err(refusal), "{text:?}");
            return None;
        }
    };
    let quantity = parsed.unwrap_or_else(|error| panic!("{text:?} refused: {error}"));
    assert_eq!(BigInt::from(quantity.amount().nanos()), expected.nanos, "{text:?}");
    assert_eq!(quantity.format(), expected.format, "{text:?}");
    assert_eq!(quantity.to_string(), expected.printed, "{text:?}");
    check_print(&quantity);
    check_rounding(&quantity);
    Some(quantity)
}

/// What is printed is read back as the same amount and printed the same again: every text of ours is one we accept.
/// (The format may become DecimalSI on the way: 512 as a binary quantity is written without a suffix.)
fn check_print(quantity: &Quantity) {
    let nanos = BigInt::from(quantity.amount().nanos());
    let canonical = quantity.canonical().to_string();
    assert_eq!(Some(&canonical), model::canonical(&nanos, quantity.format()).as_ref());
    for text in [quantity.to_string(), canonical] {
        let again = Quantity::parse(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(&again, quantity, "{text:?} read back");
        assert_eq!(model::canonical(&nanos, again.format()), Some(again.canonical().to_string()));
    }
}

fn check_rounding(quantity: &Quantity) {
    let nanos = BigInt::from(quantity.amount().nanos());
    for (rounded, step) in
        [(quantity.clone().round_up_milli(), 1_000_000), (quantity.clone().round_up_units(), 1_000_000_000)]
    {
        let result = BigInt::from(rounded.amount().nanos());
        assert_eq!(&result % step, BigInt::ZERO);
        let grown = result.magnitude() - nanos.magnitude();
        assert!(BigInt::from(grown) < BigInt::from(step), "{quantity} rounded to {rounded}");
        if result == nanos {
            assert_eq!(rounded.to_string(), quantity.to_string(), "text survives when nothing changes");
        }
    }
}

pub fn check_pair(left: &Quantity, right: &Quantity) {
    let (a, b) = (BigInt::from(left.amount().nanos()), BigInt::from(right.amount().nanos()));
    assert_eq!(left.cmp(right), a.cmp(&b));
    let format = if left.is_zero() { right.format() } else { left.format() };
    check_result(left.checked_add(right), &(&a + &b), format);
    check_result(left.checked_sub(right), &(&a - &b), format);
    if let Some(times) = right.amount().to_units() {
        check_result(left.checked_mul(times), &(&a * times), left.format());
    }
}

fn check_result(result: Option<Quantity>, expected: &BigInt, format: Format) {
    match result {
        Some(result) => {
            assert_eq!(&BigInt::from(result.amount().nanos()), expected);
            assert_eq!(result.format(), format);
            assert_eq!(Some(result.to_string()), model::canonical(expected, format));
        }
        None => assert!(!model::printable(expected, format), "{expected} nanos refused"),
    }
}
