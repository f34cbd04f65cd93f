//! Amounts and shares as plain decimals.

use quantity::{Amount, Decimal, Percent, Quantity};

fn amount(text: &str) -> Amount {
    Quantity::parse(text).expect("a quantity").amount()
}

#[test]
fn an_amount_is_written_digit_by_digit() {
    for (text, expected) in [
        ("0", "0"),
        ("375m", "0.375"),
        ("384Mi", "402653184"),
        ("1n", "0.000000001"),
        ("-1500m", "-1.5"),
        ("-1n", "-0.000000001"),
        ("1.000000001", "1.000000001"),
        ("9007199254740993", "9007199254740993"),
        ("100E", "100000000000000000000"),
    ] {
        assert_eq!(Decimal(amount(text)).to_string(), expected, "{text}");
    }
    let largest = Decimal(Amount::from_nanos(i128::MAX)).to_string();
    assert_eq!(largest, "170141183460469231731687303715.884105727");
    let smallest = Decimal(Amount::from_nanos(i128::MIN)).to_string();
    assert_eq!(smallest, "-170141183460469231731687303715.884105728");
}

#[test]
fn a_share_is_exact_to_more_digits_than_a_double_has() {
    for (part, whole, expected) in [
        ("875m", "2", "43.75"),
        ("3", "7", "42.857142857142857142"),
        ("1", "3", "33.333333333333333333"),
        ("5.375", "125m", "4300"),
        ("2", "2", "100"),
        ("1", "1000", "0.1"),
        ("1n", "1", "0.0000001"),
        ("0", "5", "0"),
        ("5", "0", "0"),
        ("-1", "5", "0"),
        ("1", "-5", "0"),
        ("300", "2", "15000"),
    ] {
        let percent = Percent { part: amount(part), whole: amount(whole) };
        assert_eq!(percent.to_string(), expected, "{part} of {whole}");
    }
    let (most, one) = (Amount::from_nanos(i128::MAX), Amount::from_nanos(1));
    assert_eq!(Percent { part: most, whole: most }.to_string(), "100");
    assert_eq!(Percent { part: most, whole: one }.to_string(), "17014118346046923173168730371588410572700");
    assert_eq!(Percent { part: one, whole: most }.to_string(), "0");
}
