//! The ledger as durable rows: a small codec of its own, so that a row is as short as what it says.
//!
//! | row | key | value |
//! |---|---|---|
//! | account | `a`, index as 4 bytes big-endian | version, format, limit, policy, resource, bucket |
//! | meta | `m` | version, last sequence, one past the highest account index |
//! | subject | `s`, id as 16 bytes big-endian | version, state, sequence, … |
//!
//! Integers are LEB128, signed ones zigzag; texts are length and bytes; lines are a count and, for each, the
//! account shifted by two with the format below, and the amount in nanos. Sums are not stored: they are the lines
//! added up.

use quantity::{Amount, Format};

use crate::account::{Account, AccountId, Limit};
use crate::charge::{Line, Lines, SubjectId};
use crate::ledger::Ledger;
use crate::subjects::{Pending, Subject};
use crate::terms::{Discipline, Position, Wait};

/// The first byte of every value.
pub const ROW_VERSION: u8 = 1;

pub(crate) const ACCOUNT: u8 = b'a';
pub(crate) const META: u8 = b'm';
pub(crate) const SUBJECT: u8 = b's';

/// One durable row to write or delete. The bytes are only lent: the next row reuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    pub kind: RowKind,
    /// Begins with a byte that tells the kind, so all rows may live in one table.
    pub key: &'a [u8],
    /// `None` deletes the row.
    pub value: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    Meta,
    Account,
    Subject,
}

impl Ledger {
    /// Hands over every row that changed since the last call, each once, in key order within its kind.
    pub fn drain_changes(&mut self, write: &mut dyn FnMut(Row<'_>)) {
        if self.changes.is_empty() {
            return;
        }
        let (accounts, subjects) = self.changes.take();
        let mut value = Vec::with_capacity(128);
        for account in &accounts {
            let key = account_key(*account);
            value.clear();
            let value = self.get(*account).map(|entry| {
                encode_account(entry, &mut value);
                &value[..]
            });
            write(Row { kind: RowKind::Account, key: &key, value });
        }
        for subject in &subjects {
            let key = subject_key(*subject);
            value.clear();
            let value = self.subjects.find(*subject).map(|slot| {
                encode_subject(self.subjects.get(slot), &mut value);
                &value[..]
            });
            write(Row { kind: RowKind::Subject, key: &key, value });
        }
        value.clear();
        value.push(ROW_VERSION);
        put_unsigned(&mut value, self.sequence.into());
        put_unsigned(&mut value, self.accounts.len() as u128);
        write(Row { kind: RowKind::Meta, key: &[META], value: Some(&value) });
        self.changes.recycle(accounts, subjects);
    }

    /// Whether there is anything to drain.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }
}

pub(crate) fn account_key(account: AccountId) -> [u8; 5] {
    let mut key = [ACCOUNT; 5];
    key[1..].copy_from_slice(&account.0.to_be_bytes());
    key
}

pub(crate) fn subject_key(subject: SubjectId) -> [u8; 17] {
    let mut key = [SUBJECT; 17];
    key[1..].copy_from_slice(&subject.0.to_be_bytes());
    key
}

const UNLIMITED: u8 = 0;
const ENFORCED: u8 = 1;
const OBSERVED: u8 = 2;
/// Set beside the kind of limit where subjects may be charged less than nothing.
const DISCOUNTS: u8 = 0x10;

fn encode_account(account: &Account, out: &mut Vec<u8>) {
    out.push(ROW_VERSION);
    out.push(account.format.to_u8());
    let limit = match account.limit {
        Limit::Unlimited => UNLIMITED,
        Limit::Enforced(_) => ENFORCED,
        Limit::Observed(_) => OBSERVED,
    };
    out.push(if account.discounts { limit | DISCOUNTS } else { limit });
    if let Some(amount) = account.limit.amount() {
        put_amount(out, amount);
    }
    put_text(out, &account.key.policy);
    put_text(out, &account.key.resource);
    put_text(out, &account.key.bucket);
}

const CHARGED: u8 = 0;
const HELD: u8 = 1;
const WAITING: u8 = 2;
/// Waiting for more than it has.
const WAITING_WITH: u8 = 3;
/// Stands where a line that is waited for has its format: it goes along.
const ALONG: u8 = 3;
const GREEDY: u8 = 0;
const ORDERED: u8 = 1;

fn encode_subject(subject: &Subject, out: &mut Vec<u8>) {
    out.push(ROW_VERSION);
    match subject.pending.as_deref() {
        None => {
            out.push(CHARGED);
            put_unsigned(out, subject.sequence.into());
            put_lines(out, &subject.lines);
        }
        Some(Pending::Hold { expires_at_ms, wanted, settled }) => {
            out.push(HELD);
            put_unsigned(out, subject.sequence.into());
            put_signed(out, *expires_at_ms);
            put_lines(out, wanted);
            put_lines(out, settled);
        }
        Some(Pending::Wait { wait: Wait { discipline, position }, wanted }) => {
            out.push(if subject.lines.is_empty() { WAITING } else { WAITING_WITH });
            put_unsigned(out, subject.sequence.into());
            out.push(match discipline {
                Discipline::Greedy => GREEDY,
                Discipline::Ordered => ORDERED,
            });
            put_signed(out, position.priority);
            put_signed(out, position.arrived);
            put_text(out, &position.tie);
            put_lines(out, wanted);
            if !subject.lines.is_empty() {
                put_lines(out, &subject.lines);
            }
        }
    }
}

fn put_lines(out: &mut Vec<u8>, lines: &[Line]) {
    put_unsigned(out, lines.len() as u128);
    for line in lines {
        put_unsigned(
            out,
            u128::from(line.account.0) << 2 | u128::from(if line.is_along() { ALONG } else { line.format().to_u8() }),
        );
        // A discount is written as two's complement: long, and rare.
        put_unsigned(out, u128::from_le_bytes(line.amount().nanos().to_le_bytes()));
    }
}

/// Limits in rows are never negative: those below zero are refused.
fn put_amount(out: &mut Vec<u8>, amount: Amount) {
    put_unsigned(out, amount.nanos().unsigned_abs());
}

fn put_unsigned(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn put_signed(out: &mut Vec<u8>, value: i64) {
    let zigzag = (value << 1) ^ (value >> 63);
    put_unsigned(out, u64::from_le_bytes(zigzag.to_le_bytes()).into());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_unsigned(out, text.len() as u128);
    out.extend_from_slice(text.as_bytes());
}

/// What a subject row says.
pub(crate) struct SubjectRow {
    pub sequence: u64,
    pub lines: Lines,
    pub pending: Option<Pending>,
}

/// Reads one value front to back; every answer is bounded by the bytes that are really there.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

pub(crate) type Fault = &'static str;

impl<'a> Reader<'a> {
    pub fn new(value: &'a [u8]) -> Reader<'a> {
        Reader { rest: value }
    }

    pub fn end(&self) -> Result<(), Fault> {
        if self.rest.is_empty() { Ok(()) } else { Err("bytes are left over") }
    }

    pub fn byte(&mut self) -> Result<u8, Fault> {
        let (first, rest) = self.rest.split_first().ok_or("it ends too early")?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn unsigned(&mut self) -> Result<u128, Fault> {
        let mut value = 0u128;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            let fits = shift < 128 && (bits << shift) >> shift == bits;
            if !fits {
                return Err("a number is too large");
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // One number has one spelling, so equal ledgers have equal rows.
                return if byte == 0 && shift > 0 { Err("a number is padded") } else { Ok(value) };
            }
        }
        Err("a number is too large")
    }

    pub fn u64(&mut self) -> Result<u64, Fault> {
        u64::try_from(self.unsigned()?).map_err(|_| "a number is too large")
    }

    pub fn signed(&mut self) -> Result<i64, Fault> {
        let zigzag = self.u64()?;
        let magnitude = i64::try_from(zigzag >> 1).map_err(|_| "a number is too large")?;
        Ok(if zigzag & 1 == 0 { magnitude } else { !magnitude })
    }

    pub fn amount(&mut self) -> Result<Amount, Fault> {
        let nanos = i128::try_from(self.unsigned()?).map_err(|_| "an amount is too large")?;
        Ok(Amount::from_nanos(nanos))
    }

    pub fn format(&mut self) -> Result<Format, Fault> {
        Format::from_u8(self.byte()?).ok_or("a format is unknown")
    }

    pub fn text(&mut self, bytes_max: usize) -> Result<&'a str, Fault> {
        let length = usize::try_from(self.unsigned()?).map_err(|_| "a text is too long")?;
        if length > bytes_max {
            return Err("a text is too long");
        }
        let (text, rest) = self.rest.split_at_checked(length).ok_or("it ends too early")?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| "a text is not UTF-8")
    }

    /// A limit, and whether discounts are allowed beside it.
    pub fn limit(&mut self) -> Result<(Limit, bool), Fault> {
        let kind = self.byte()?;
        let limit = match kind & !DISCOUNTS {
            UNLIMITED => Limit::Unlimited,
            ENFORCED => Limit::Enforced(self.amount()?),
            OBSERVED => Limit::Observed(self.amount()?),
            _ => return Err("a limit is of an unknown kind"),
        };
        Ok((limit, kind & DISCOUNTS != 0))
    }

    pub fn lines(&mut self) -> Result<Lines, Fault> {
        let lines = self.wanted()?;
        if lines.iter().any(Line::is_along) { Err("a format is unknown") } else { Ok(lines) }
    }

    fn wanted(&mut self) -> Result<Lines, Fault> {
        let count = usize::try_from(self.unsigned()?).map_err(|_| "there are too many lines")?;
        // What is adopted may have any number of them; a line takes two bytes at least.
        if count > self.rest.len() / 2 {
            return Err("there are too many lines");
        }
        let mut lines = Lines::new();
        for _ in 0..count {
            let packed = self.unsigned()?;
            let format = (packed & 3).to_le_bytes()[0];
            let account = u32::try_from(packed >> 2).map_err(|_| "an account index is too large")?;
            let amount = Amount::from_nanos(i128::from_le_bytes(self.unsigned()?.to_le_bytes()));
            if amount.is_zero() {
                return Err("a line is zero");
            }
            if lines.last().is_some_and(|last: &Line| last.account.0 >= account) {
                return Err("lines are out of order");
            }
            let account = AccountId(account);
            lines.push(match Format::from_u8(format) {
                Some(format) => Line::new(account, amount, format),
                None if format == ALONG => Line::along(account, amount),
                None => return Err("a format is unknown"),
            });
        }
        Ok(lines)
    }

    pub fn subject(&mut self) -> Result<SubjectRow, Fault> {
        let state = self.byte()?;
        let sequence = self.u64()?;
        match state {
            CHARGED => Ok(SubjectRow { sequence, lines: self.lines()?, pending: None }),
            HELD => {
                let expires_at_ms = self.signed()?;
                let (wanted, settled) = (self.lines()?, self.lines()?);
                if wanted.iter().any(|line| line.amount().is_negative()) {
                    return Err("a discount is held");
                }
                let lines = crate::charge::larger_of(&settled, &wanted);
                Ok(SubjectRow { sequence, lines, pending: Some(Pending::Hold { expires_at_ms, wanted, settled }) })
            }
            WAITING | WAITING_WITH => {
                let discipline = match self.byte()? {
                    GREEDY => Discipline::Greedy,
                    ORDERED => Discipline::Ordered,
                    _ => return Err("a discipline is unknown"),
                };
                let (priority, arrived) = (self.signed()?, self.signed()?);
                let tie = self.text(self.rest.len())?.into();
                let wait = Wait { discipline, position: Position { priority, arrived, tie } };
                let wanted = self.wanted()?;
                let lines = if state == WAITING_WITH { self.lines()? } else { Lines::new() };
                if state == WAITING_WITH && lines.is_empty() {
                    return Err("it has nothing while it waits, and says otherwise");
                }
                Ok(SubjectRow { sequence, lines, pending: Some(Pending::Wait { wait, wanted }) })
            }
            _ => Err("a state is unknown"),
        }
    }
}
