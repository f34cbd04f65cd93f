//! Charges as callers give them, and lines as the ledger keeps them.
//!
//! A line is a charge packed into 24 bytes. The amount is kept as bytes because an aligned `i128` would cost a
//! third more memory for every live charge.

use std::cmp::Ordering;

use quantity::{Amount, Format};
use smallvec::SmallVec;

use crate::account::{AccountId, difference};
use crate::terms::Terms;

/// Most charges in one vector. The widest object known charges some dozens of accounts; the bound keeps one command
/// from turning into a long pause for everyone.
pub const CHARGES_MAX: usize = 4096;

/// Who consumes: the object's uid as 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubjectId(pub u128);

/// How much one subject takes from one account, how that number was written, and on which terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charge {
    pub account: AccountId,
    pub amount: Amount,
    pub format: Format,
    pub terms: Terms,
}

impl Charge {
    /// A charge that is enforced.
    pub fn new(account: AccountId, amount: Amount, format: Format) -> Charge {
        Charge { account, amount, format, terms: Terms::Enforced }
    }

    /// The same on other terms.
    pub fn on(self, terms: Terms) -> Charge {
        Charge { terms, ..self }
    }
}

/// Lines of one subject, sorted by account, each account once, no zero. Four fit without a heap block, which covers
/// the usual pod under one quota.
pub(crate) type Lines = SmallVec<[Line; 4]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    amount: [u8; 16],
    pub account: AccountId,
    /// The place of the subject in the account's roster, shifted by two, and below it the format, or that it goes along.
    place_and_format: u32,
}

const FORMAT_BITS: u32 = 2;
const FORMAT_MASK: u32 = 3;
/// In place of a format: the line goes along with others that are waited for.
const ALONG: u32 = 3;

/// One past the highest place that fits beside the format.
pub(crate) const PLACES: usize = 1 << (32 - FORMAT_BITS);

impl Line {
    pub fn new(account: AccountId, amount: Amount, format: Format) -> Line {
        Line { amount: amount.nanos().to_le_bytes(), account, place_and_format: u32::from(format.to_u8()) }
    }

    /// One that comes with what its subject waits for, and needs no room.
    pub fn along(account: AccountId, amount: Amount) -> Line {
        Line { place_and_format: ALONG, ..Line::new(account, amount, Format::default()) }
    }

    pub fn is_along(&self) -> bool {
        self.place_and_format & FORMAT_MASK == ALONG
    }

    pub fn amount(&self) -> Amount {
        Amount::from_nanos(i128::from_le_bytes(self.amount))
    }

    pub fn format(&self) -> Format {
        let byte = self.place_and_format.to_le_bytes()[0] & FORMAT_MASK.to_le_bytes()[0];
        Format::from_u8(byte).unwrap_or_default()
    }

    pub fn place(&self) -> usize {
        (self.place_and_format >> FORMAT_BITS) as usize
    }

    pub fn set_place(&mut self, place: usize) {
        let place = u32::try_from(place).ok().filter(|_| place < PLACES);
        let place = place.expect("the ledger holds more subjects than its own bound");
        self.place_and_format = (place << FORMAT_BITS) | (self.place_and_format & FORMAT_MASK);
    }

    pub fn charge(&self) -> Charge {
        Charge::new(self.account, self.amount(), self.format())
    }

    /// The same line, settled, and without a place in a roster.
    pub fn unplaced(&self) -> Line {
        Line::new(self.account, self.amount(), self.format())
    }

    /// The same as it is waited for.
    pub fn as_wanted(&self) -> Line {
        if self.is_along() { Line::along(self.account, self.amount()) } else { self.unplaced() }
    }

    pub fn says_the_same(&self, other: &Line) -> bool {
        self.account == other.account
            && self.amount == other.amount
            && self.place_and_format & FORMAT_MASK == other.place_and_format & FORMAT_MASK
    }
}

/// The amount on an account, zero when the lines do not name it.
pub(crate) fn amount_on(lines: &[Line], account: AccountId) -> Amount {
    lines.iter().find(|line| line.account == account).map_or(Amount::ZERO, Line::amount)
}

pub(crate) fn same_lines(left: &[Line], right: &[Line]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.says_the_same(right))
}

/// Whether a subject that has these lines has what it wants.
pub(crate) fn is_served(has: &[Line], wanted: &[Line]) -> bool {
    let same = |has: &Line, wanted: &Line| match wanted.is_along() {
        true => has.account == wanted.account && has.amount == wanted.amount,
        false => has.says_the_same(wanted),
    };
    has.len() == wanted.len() && has.iter().zip(wanted).all(|(has, wanted)| same(has, wanted))
}

pub(crate) fn charges(lines: &[Line]) -> Vec<Charge> {
    lines.iter().map(Line::charge).collect()
}

/// What a subject occupies while a hold stands over settled charges: the larger of the two on every account, because
/// either may turn out to be what stays.
pub(crate) fn larger_of(settled: &[Line], wanted: &[Line]) -> Lines {
    let mut larger = Lines::new();
    for (account, settled, wanted) in pairs(settled, wanted) {
        debug_assert!(wanted.is_none_or(|line| !line.amount().is_negative()), "a discount is not held");
        let line = match (settled, wanted) {
            (Some(settled), Some(wanted)) if settled.amount() > wanted.amount() => settled,
            (_, Some(wanted)) => wanted,
            (Some(settled), None) => settled,
            (None, None) => continue,
        };
        debug_assert_eq!(line.account, account);
        larger.push(line.unplaced());
    }
    larger
}

/// All lines of both; where both name an account, that of `over`.
pub(crate) fn overlaid(under: &[Line], over: &[Line]) -> Lines {
    pairs(under, over).filter_map(|(_, under, over)| over.or(under)).map(Line::unplaced).collect()
}

/// The lines on accounts that `others` do not name.
pub(crate) fn outside(lines: &[Line], others: &[Line]) -> Lines {
    let alone = pairs(lines, others).filter_map(|(_, line, other)| line.filter(|_| other.is_none()));
    alone.map(Line::unplaced).collect()
}

/// What a subject has of what it wants: on every account the smaller of the two.
pub(crate) fn smaller_of(occupied: &[Line], wanted: &[Line]) -> Lines {
    let both = pairs(occupied, wanted).filter_map(|(_, occupied, wanted)| occupied.zip(wanted));
    let smaller = both.map(|(occupied, wanted)| if occupied.amount() < wanted.amount() { occupied } else { wanted });
    smaller.map(Line::unplaced).collect()
}

/// What `wanted` takes beyond what is occupied, account by account, where it does and needs room for it.
pub(crate) fn needs<'a>(occupied: &'a [Line], wanted: &'a [Line]) -> impl Iterator<Item = (AccountId, Amount)> + 'a {
    growths(occupied, wanted).filter(|(line, _)| !line.is_along()).map(|(line, growth)| (line.account, growth))
}

/// What comes along with that.
pub(crate) fn along<'a>(occupied: &'a [Line], wanted: &'a [Line]) -> impl Iterator<Item = (AccountId, Amount)> + 'a {
    growths(occupied, wanted).filter(|(line, _)| line.is_along()).map(|(line, growth)| (line.account, growth))
}

fn growths<'a>(occupied: &'a [Line], wanted: &'a [Line]) -> impl Iterator<Item = (&'a Line, Amount)> + 'a {
    pairs(occupied, wanted).filter_map(|(_, occupied, wanted)| {
        let wanted = wanted?;
        let growth = difference(wanted.amount(), occupied.map_or(Amount::ZERO, Line::amount));
        (growth > Amount::ZERO).then_some((wanted, growth))
    })
}

/// Walks two sorted vectors together: every account of either, once, in order.
pub(crate) fn pairs<'a>(
    left: &'a [Line],
    right: &'a [Line],
) -> impl Iterator<Item = (AccountId, Option<&'a Line>, Option<&'a Line>)> {
    let (mut left, mut right) = (left, right);
    std::iter::from_fn(move || {
        let order = match (left.first(), right.first()) {
            (Some(left), Some(right)) => left.account.cmp(&right.account),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        let from_left = if order.is_le() { left.split_off_first() } else { None };
        let from_right = if order.is_ge() { right.split_off_first() } else { None };
        let account = from_left.or(from_right)?.account;
        Some((account, from_left, from_right))
    })
}
