//! Amounts with units, exact: `8`, `500m`, `32GiB` and `32Gi` mean what the definition's unit makes of them.
//!
//! A number without a suffix is in the definition's unit (`4096` under GiB is 4096 GiB). Whatever is no whole number of the
//! smallest part (a byte, a thousandth of a core, one piece) is refused and not rounded, or a sum would drift by what many roundings lose.

use quantity::{Amount, Format, Quantity};

/// What a unit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many bytes each.
    Bytes(u64),
    Cores,
    Millicores,
    /// Pieces of anything.
    Pieces,
}

const NANOS: i128 = 1_000_000_000;

const BYTES: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
];

impl Unit {
    /// The unit of this name; what is no measure is counted in pieces.
    pub fn named(name: &str) -> Unit {
        if let Some((_, each)) = BYTES.iter().find(|(known, _)| *known == name) {
            return Unit::Bytes(*each);
        }
        match name.to_ascii_lowercase().as_str() {
            "byte" | "bytes" => Unit::Bytes(1),
            "core" | "cores" | "cpu" | "cpus" | "vcpu" | "vcpus" => Unit::Cores,
            "m" | "millicore" | "millicores" => Unit::Millicores,
            _ => Unit::Pieces,
        }
    }

    /// Reads an amount that is not below zero; or says what is wrong with it.
    pub fn read(self, text: &str) -> Result<Amount, String> {
        let text = text.trim();
        let text = text.strip_prefix('+').unwrap_or(text);
        let number_end = text.bytes().position(|byte| !(byte.is_ascii_digit() || byte == b'.')).unwrap_or(text.len());
        let (number, rest) = text.split_at(number_end);
        let suffix = rest.trim_start();
        if text.starts_with('-') {
            return Err("must be greater than or equal to 0".into());
        }
        // A quantity's own reader takes a sign alone for nothing.
        if !number.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err("is no number".into());
        }
        // A space may stand before a unit, and not within a number.
        if suffix.len() < rest.len() && !suffix.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err("is no number with a unit".into());
        }
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.trim_end_matches('0').len());
        let small = [("n", 9), ("u", 6), ("m", 3)].iter().find(|(known, _)| *known == suffix).map_or(0, |(_, by)| *by);
        // What the quantity's own reader rounds would look exact.
        if decimals + small > 9 || suffix.contains("e-") || suffix.contains("E-") {
            return Err("is more precise than can be counted".into());
        }
        let amount = self.scaled(number, suffix)?;
        if amount.nanos() % self.part() != 0 {
            return Err(format!("is no whole number of {}", self.parts_name()));
        }
        Ok(amount)
    }

    fn scaled(self, number: &str, suffix: &str) -> Result<Amount, String> {
        let plain = |text: &str| -> Result<Amount, String> {
            Ok(Quantity::parse(text).map_err(|error| error.to_string())?.amount())
        };
        let too_much = || "is more than can be counted".to_owned();
        let times = |amount: Amount, factor: u64| {
            let nanos = amount.nanos().checked_mul(i128::from(factor)).ok_or_else(too_much)?;
            Ok(Amount::from_nanos(nanos))
        };
        // `Gi` is `GiB`: the quantity's own reader takes what is beyond 64 bits for the largest that is not.
        let is_named =
            |known: &str| known == suffix || (suffix.ends_with('i') && known.strip_suffix('B') == Some(suffix));
        let bytes = BYTES.iter().find(|(known, _)| is_named(known)).map(|(_, each)| *each);
        // `1E3` is a thousand, and `1Ei` so many bytes.
        let is_exponent = suffix.starts_with(['e', 'E'])
            && suffix.as_bytes().get(1).is_some_and(|byte| byte.is_ascii_digit() || b"+-".contains(byte));
        let is_bare = suffix.is_empty() || is_exponent;
        match self {
            Unit::Bytes(each) if is_bare => times(plain(&format!("{number}{suffix}"))?, each),
            Unit::Bytes(_) => match bytes {
                Some(each) => times(plain(number)?, each),
                None => plain(&format!("{number}{suffix}")),
            },
            _ if suffix.ends_with('i') => {
                Err(format!("suffix {suffix:?} is for bytes, and not for {}", self.parts_name()))
            }
            _ if bytes.is_some() => Err(format!("is a number of bytes, and not of {}", self.parts_name())),
            Unit::Cores | Unit::Pieces => plain(&format!("{number}{suffix}")),
            Unit::Millicores if suffix == "m" => plain(&format!("{number}m")),
            Unit::Millicores => {
                let thousandths = plain(&format!("{number}{suffix}"))?;
                match thousandths.nanos() % 1000 {
                    0 => Ok(Amount::from_nanos(thousandths.nanos() / 1000)),
                    _ => Err(format!("is no whole number of {}", self.parts_name())),
                }
            }
        }
    }

    /// So many billionths of this unit, as a meter counts them; what is no whole part is taken for one. None beyond counting.
    pub fn measured(self, nanos: i128) -> Option<Amount> {
        let nanos = match self {
            Unit::Bytes(each) => nanos.checked_mul(i128::from(each))?,
            Unit::Millicores => nanos.checked_add(999)? / 1000,
            Unit::Cores | Unit::Pieces => nanos,
        };
        let parts = nanos.checked_add(self.part() - 1)? / self.part();
        Some(Amount::from_nanos(parts * self.part()))
    }

    /// The amount as a number of this unit, to be read again as the same.
    pub fn show(self, amount: Amount) -> String {
        let (nanos, each) = match self {
            Unit::Bytes(each) => (amount.nanos(), i128::from(each)),
            Unit::Millicores => (amount.nanos().saturating_mul(1000), 1),
            Unit::Cores | Unit::Pieces => (amount.nanos(), 1),
        };
        match nanos % each {
            0 => decimal(nanos / each),
            _ => format!("{}B", decimal(nanos)),
        }
    }

    /// The amount as a decimal number of this unit and nothing else, every digit of it.
    pub fn exact(self, amount: Amount) -> String {
        let (nanos, each) = match self {
            Unit::Bytes(each) => (amount.nanos(), u128::from(each)),
            Unit::Millicores => return decimal(amount.nanos().saturating_mul(1000)),
            Unit::Cores | Unit::Pieces => return decimal(amount.nanos()),
        };
        let bytes = nanos.unsigned_abs() / NANOS.unsigned_abs();
        let (sign, mut rest) = (if nanos < 0 { "-" } else { "" }, bytes % each);
        let mut text = format!("{sign}{}", bytes / each);
        // Units are powers of two and of ten, so that this ends.
        while rest > 0 {
            if !text.contains('.') {
                text.push('.');
            }
            rest *= 10;
            text.push_str(&(rest / each).to_string());
            rest %= each;
        }
        text
    }

    /// How sums are printed by those who do not know the unit.
    pub fn format(self) -> Format {
        if matches!(self, Unit::Bytes(each) if each.is_power_of_two()) { Format::BinarySi } else { Format::DecimalSi }
    }

    fn part(self) -> i128 {
        match self {
            Unit::Bytes(_) | Unit::Pieces => NANOS,
            Unit::Cores | Unit::Millicores => NANOS / 1000,
        }
    }

    fn parts_name(self) -> &'static str {
        match self {
            Unit::Bytes(_) => "bytes",
            Unit::Cores | Unit::Millicores => "millicores",
            Unit::Pieces => "pieces",
        }
    }
}

/// Billionths as a decimal number.
fn decimal(nanos: i128) -> String {
    let (sign, magnitude) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (whole, rest) = (magnitude / NANOS.unsigned_abs(), magnitude % NANOS.unsigned_abs());
    let text = format!("{sign}{whole}.{rest:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_amounts_mean_under_units() {
        for (unit, text, expected) in [
            ("cores", "8", Ok("8")),
            ("cores", "500m", Ok("0.5")),
            ("cores", "1.5", Ok("1.5")),
            ("cores", "1k", Ok("1000")),
            ("cores", "0.0005", Err("is no whole number of millicores")),
            ("cores", "0.9999999999", Err("is more precise than can be counted")),
            ("cores", "9999999999e-10", Err("is more precise than can be counted")),
            ("cores", "999999.9999n", Err("is more precise than can be counted")),
            ("cores", "999.9999u", Err("is more precise than can be counted")),
            ("cores", "1000000.000n", Ok("0.001")),
            ("cores", "1.500m", Err("is no whole number of millicores")),
            ("cores", "1GiB", Err("is a number of bytes, and not of millicores")),
            ("cores", "1Ki", Err("suffix \"Ki\" is for bytes, and not for millicores")),
            ("cores", "-1", Err("must be greater than or equal to 0")),
            ("millicores", "500", Ok("500")),
            ("millicores", "500m", Ok("500")),
            ("GiB", "4096", Ok("4096")),
            ("GiB", "32GiB", Ok("32")),
            ("GiB", "32Gi", Ok("32")),
            ("GiB", "32 GiB", Ok("32")),
            ("GiB", "34359738368B", Ok("32")),
            ("GiB", "1.5", Ok("1.5")),
            ("GiB", "1GB", Ok("1000000000B")),
            ("GiB", "1Mi", Ok("1048576B")),
            ("GiB", "0.5B", Err("is no whole number of bytes")),
            ("bytes", "1e3", Ok("1000")),
            ("GB", "2Gi", Ok("2.147483648")),
            ("GiB", "100Ei", Ok("107374182400")),
            ("GiB", "1EiB", Ok("1073741824")),
            ("GB", "1EB", Ok("1000000000")),
            ("B", "1E3", Ok("1000")),
            ("GB", "1B", Ok("0.000000001")),
            ("TB", "1B", Ok("1B")),
            ("count", "3", Ok("3")),
            ("count", "2k", Ok("2000")),
            ("count", "1.5", Err("is no whole number of pieces")),
            ("count", "1MB", Err("is a number of bytes, and not of pieces")),
            ("projects", "10", Ok("10")),
            ("count", "0", Ok("0")),
        ] {
            let unit = Unit::named(unit);
            let shown = unit.read(text).map(|amount| unit.show(amount));
            assert_eq!(shown.as_deref().map_err(String::as_str), expected, "{unit:?} {text}");
            if let Ok(shown) = shown {
                assert_eq!(unit.read(&shown), unit.read(text), "{unit:?} {shown} is read as it was meant");
            }
        }
        for text in
            ["", "x", "1x", "1..2", "+", "é", "1e99", "99999999999999999999999999999999EiB", "1 2", "1 e3", "1 +2", "٣"]
        {
            assert!(Unit::named("GiB").read(text).is_err(), "{text}");
            assert!(Unit::named("count").read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_digit_is_told_to_who_wants_a_number() {
        for (unit, text, expected) in [
            ("GiB", "32Gi", "32"),
            ("GiB", "1Mi", "0.0009765625"),
            ("GB", "1Mi", "0.001048576"),
            ("EiB", "1B", "0.000000000000000000867361737988403547205962240695953369140625"),
            ("cores", "500m", "0.5"),
            ("millicores", "500m", "500"),
            ("count", "0", "0"),
        ] {
            let unit = Unit::named(unit);
            let amount = unit.read(text).unwrap();
            assert_eq!(unit.exact(amount), expected);
            let below = Amount::ZERO.checked_sub(amount).unwrap();
            assert_eq!(unit.exact(below).trim_start_matches('-'), expected);
        }
    }
}
