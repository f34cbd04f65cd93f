//! Canonical text: no fraction, and the largest suffix that loses nothing.

use std::fmt;

use crate::amount::{Amount, NANOS_PER_UNIT};
use crate::quantity::Format;

/// Decimal suffixes from nano upwards, one for each factor of a thousand.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Writes `amount` the way Kubernetes does when it has no text of the sender to repeat.
///
/// Where Kubernetes would run out of suffixes and drop the magnitude, this stays at the last one (`1000E`), so the
/// text always stands for the value.
pub(crate) fn write_canonical(f: &mut impl fmt::Write, amount: Amount, format: Format) -> fmt::Result {
    let nanos = amount.nanos();
    if nanos == 0 {
        return f.write_str("0");
    }
    if nanos < 0 {
        f.write_str("-")?;
    }
    let magnitude = nanos.unsigned_abs();
    match format {
        Format::BinarySi if prints_as_binary(nanos) => write_binary(f, magnitude / NANOS_PER_UNIT.unsigned_abs()),
        Format::DecimalExponent => write_exponent(f, magnitude),
        Format::BinarySi | Format::DecimalSi => {
            let (mantissa, step) = strip(magnitude, 1000, DECIMAL_SUFFIXES.len() - 1);
            write!(f, "{mantissa}{}", DECIMAL_SUFFIXES[step])
        }
    }
}

/// A binary quantity is only worth a binary suffix when it is whole and at least one Ki.
fn prints_as_binary(nanos: i128) -> bool {
    nanos % NANOS_PER_UNIT == 0 && (nanos / NANOS_PER_UNIT).unsigned_abs() >= 1024
}

fn write_binary(f: &mut impl fmt::Write, units: u128) -> fmt::Result {
    let (mantissa, step) = strip(units, 1024, BINARY_SUFFIXES.len() - 1);
    write!(f, "{mantissa}{}", BINARY_SUFFIXES[step])
}

fn write_exponent(f: &mut impl fmt::Write, magnitude: u128) -> fmt::Result {
    // u128 has 39 digits, so thirteen divisions by a thousand exhaust it.
    let (mantissa, step) = strip(magnitude, 1000, 13);
    match step {
        0 => write!(f, "{mantissa}e-9"),
        1 => write!(f, "{mantissa}e-6"),
        2 => write!(f, "{mantissa}e-3"),
        3 => write!(f, "{mantissa}"),
        _ => write!(f, "{mantissa}e{}", (step - 3) * 3),
    }
}

/// Divides by `base` while nothing is lost, at most `steps_max` times; the mantissa and how often it was divided.
fn strip(value: u128, base: u64, steps_max: usize) -> (u128, usize) {
    let mut step = 0;
    let mut wide = value;
    // Division of 128-bit numbers is slow; nearly every amount leaves this loop after a step or two.
    while u64::try_from(wide).is_err() && step < steps_max && wide.is_multiple_of(u128::from(base)) {
        wide /= u128::from(base);
        step += 1;
    }
    if let Ok(mut narrow) = u64::try_from(wide) {
        while narrow != 0 && step < steps_max && narrow.is_multiple_of(base) {
            narrow /= base;
            step += 1;
        }
        wide = u128::from(narrow);
    }
    (wide, step)
}
