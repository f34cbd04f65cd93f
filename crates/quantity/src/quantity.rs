//! A quantity as an API object carries it: amount, format, and the sender's own spelling.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::amount::Amount;
use crate::parse::{self, ParseError};
use crate::print;

/// The family of suffixes a quantity is printed with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Format {
    /// `n u m k M G T P E`
    #[default]
    DecimalSi = 0,
    /// `Ki Mi Gi Ti Pi Ei`
    BinarySi = 1,
    /// `e3`, `e-6`
    DecimalExponent = 2,
}

impl Format {
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    pub const fn from_u8(byte: u8) -> Option<Format> {
        match byte {
            0 => Some(Format::DecimalSi),
            1 => Some(Format::BinarySi),
            2 => Some(Format::DecimalExponent),
            _ => None,
        }
    }
}

/// A Kubernetes quantity.
///
/// Two quantities are equal when their amounts are, however they are written; that is also how Kubernetes decides
/// whether an update changed anything. `Display` repeats the sender's spelling where Kubernetes does (`01`, `1.500`)
/// and is canonical otherwise.
#[derive(Clone, Default)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    /// The spelling to repeat. Absent when it would equal the canonical text, so most quantities own no memory.
    text: Option<Box<str>>,
}

impl Quantity {
    pub const ZERO: Quantity = Quantity::new(Amount::ZERO, Format::DecimalSi);

    pub const fn new(amount: Amount, format: Format) -> Quantity {
        Quantity { amount, format, text: None }
    }

    /// Reads a quantity as `resource.ParseQuantity` does. Bounded: refuses before it computes.
    pub fn parse(text: &str) -> Result<Quantity, ParseError> {
        let parsed = parse::parse(text)?;
        let mut quantity = Quantity::new(parsed.amount, parsed.format);
        if parsed.keeps_text && !quantity.prints_as(text) {
            quantity.text = Some(text.into());
        }
        Ok(quantity)
    }

    pub fn amount(&self) -> Amount {
        self.amount
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.amount.is_zero()
    }

    /// The sender's spelling, where it is kept and differs from the canonical text.
    pub fn kept_text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The same quantity without the sender's spelling: what it prints as after any arithmetic.
    pub fn canonical(&self) -> Quantity {
        Quantity::new(self.amount, self.format)
    }

    /// The sum, in this quantity's format unless this one is zero: then in the other's.
    ///
    /// `None` when the sum is outside the range that can be printed and read back.
    pub fn checked_add(&self, other: &Quantity) -> Option<Quantity> {
        Quantity::checked(self.amount.checked_add(other.amount)?, self.format_with(other))
    }

    /// The difference; formats and range as for [`Quantity::checked_add`].
    pub fn checked_sub(&self, other: &Quantity) -> Option<Quantity> {
        Quantity::checked(self.amount.checked_sub(other.amount)?, self.format_with(other))
    }

    /// The product with a whole number, in this quantity's format.
    pub fn checked_mul(&self, times: i64) -> Option<Quantity> {
        Quantity::checked(self.amount.checked_mul(times)?, self.format)
    }

    /// What the API server makes of every entry of a ResourceList: rounded away from zero to a thousandth. The
    /// sender's spelling survives when nothing changes.
    pub fn round_up_milli(self) -> Quantity {
        let rounded = self.amount.round_up_milli();
        self.rounded_to(rounded)
    }

    /// The same to whole units.
    pub fn round_up_units(self) -> Quantity {
        let rounded = self.amount.round_up_units();
        self.rounded_to(rounded)
    }

    /// `None` can only come from an amount at the very end of the 128-bit range, which parsing and arithmetic of
    /// quantities both refuse; it stays as it is.
    fn rounded_to(self, rounded: Option<Amount>) -> Quantity {
        match rounded {
            Some(amount) if amount != self.amount => Quantity::new(amount, self.format),
            _ => self,
        }
    }

    fn format_with(&self, other: &Quantity) -> Format {
        if self.amount.is_zero() { other.format } else { self.format }
    }

    fn checked(amount: Amount, format: Format) -> Option<Quantity> {
        parse::is_printable(amount, format).then(|| Quantity::new(amount, format))
    }

    fn prints_as(&self, text: &str) -> bool {
        let mut rest = Rest(text);
        print::write_canonical(&mut rest, self.amount, self.format).is_ok() && rest.0.is_empty()
    }
}

/// Compares what is written with an expected text, so that the comparison needs no buffer.
struct Rest<'a>(&'a str);

impl fmt::Write for Rest<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(piece).ok_or(fmt::Error)?;
        Ok(())
    }
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Quantity, ParseError> {
        Quantity::parse(text)
    }
}

impl From<Amount> for Quantity {
    fn from(amount: Amount) -> Quantity {
        Quantity::new(amount, Format::DecimalSi)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => print::write_canonical(f, self.amount, self.format),
        }
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantity({self}, {:?})", self.format)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.amount == other.amount
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.amount.cmp(&other.amount)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.amount.hash(state);
    }
}
