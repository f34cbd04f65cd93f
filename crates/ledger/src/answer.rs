//! What the ledger says: receipts when something happened, denials with every number a person needs.

use std::fmt;

use quantity::{Amount, Format, Quantity};
use smallvec::SmallVec;

use crate::account::{AccountId, AccountKey, Limit};
use crate::charge::SubjectId;

/// Proof of one step of the ledger.
#[must_use = "a receipt names the subjects that were woken"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The step's number: gapless, never reused. A call that changed nothing repeats the number of the step that
    /// made things so.
    pub sequence: u64,
    pub outcome: Outcome,
    /// False when everything was already as asked.
    pub changed: bool,
    /// Waiting subjects that this step granted, in the order of service.
    pub woken: Vec<SubjectId>,
    /// Accounts whose balance moved, sorted.
    pub touched: SmallVec<[AccountId; 4]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The charges stand.
    Granted,
    /// The charges stand until then.
    Held {
        expires_at_ms: i64,
    },
    /// In line; nothing is held.
    Queued,
    /// The subject is gone, or never was.
    Released,
    /// A hold became a charge.
    Settled,
    /// These holds ran out.
    Expired {
        subjects: Vec<SubjectId>,
    },
    LimitSet,
    Closed,
    /// So many still have something on the account that is being closed.
    Swept {
        left: usize,
    },
    /// All parts of a step at once; these of its subjects are in line.
    Step {
        queued: Vec<SubjectId>,
    },
}

/// The answer no, from every account that gave it, ordered by account key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Denied {
    pub lines: Vec<Refusal>,
}

/// One account's no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub account: AccountId,
    pub key: AccountKey,
    pub limit: Limit,
    pub used: Amount,
    pub held: Amount,
    /// How much more of this account was asked for.
    pub requested: Amount,
    pub format: Format,
    pub reason: Reason,
}

/// Why an account says no. Where several hold, the first of this list is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// More charges in one vector than [`crate::CHARGES_MAX`]; no account was looked at.
    TooManyCharges,
    /// No such account is open.
    UnknownAccount,
    /// A charge below zero would make room out of nothing.
    Negative,
    /// Used and held would rise above the limit.
    OverLimit,
    /// The sum leaves the number type.
    Overflow,
    /// The ledger or the account's line of waiters is at its bound.
    Full,
}

impl Denied {
    /// All that refuse, ordered by account key; of several words of one account the first stands.
    pub(crate) fn of(mut lines: Vec<Refusal>) -> Denied {
        lines.sort_by(|left, right| left.key.cmp(&right.key).then(left.account.cmp(&right.account)));
        lines.dedup_by_key(|line| line.account);
        Denied { lines }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("denied: ")?;
        for (index, line) in self.lines.iter().enumerate() {
            if index > 0 {
                out.write_str("; ")?;
            }
            line.fmt(out)?;
        }
        Ok(())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |amount: Amount| Quantity::new(amount, self.format);
        write!(out, "{}: requested {}", self.key, show(self.requested))?;
        match self.reason {
            Reason::TooManyCharges => return write!(out, ", more than {} charges at once", crate::CHARGES_MAX),
            Reason::UnknownAccount => return out.write_str(", no such account"),
            Reason::Negative => return out.write_str(", which is below zero"),
            Reason::Full => return out.write_str(", no place is left to remember it"),
            Reason::OverLimit | Reason::Overflow => {}
        }
        write!(out, ", used {}", show(self.used))?;
        if !self.held.is_zero() {
            write!(out, ", held {}", show(self.held))?;
        }
        match (self.reason, self.limit.amount()) {
            (Reason::OverLimit, Some(limit)) => write!(out, ", limit {}", show(limit)),
            _ => out.write_str(", which is more than can be counted"),
        }
    }
}
