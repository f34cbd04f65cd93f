//! Accounts: one limited number each, addressed by what limits it.
//!
//! An account is found by its key (which policy, which resource, which bucket) and used by its id, a dense index
//! that is persisted with it, so that a compiled rule can hold a `u32` instead of three strings.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use quantity::{Amount, Format};

use crate::charge::SubjectId;
use crate::queue::Queue;

/// Longest policy, resource or bucket text of a key, in bytes. Kubernetes names end at 253; a key may join a
/// namespace, a kind and a name.
pub const KEY_TEXT_BYTES_MAX: usize = 1024;

/// Most accounts open at once. Each costs about 250 bytes, so this is a quarter of a terabyte: a bound on ids, not
/// on use.
pub const ACCOUNTS_MAX: usize = 1 << 30;

pub(crate) const AMOUNT_MAX: Amount = Amount::from_nanos(i128::MAX);

/// What one subject can be charged at most where discounts are allowed, in either direction: beyond any amount that is
/// meant, and so little that the charges of all subjects together stay within the number type in any order.
pub const CHARGE_MAX: Amount = Amount::from_nanos(1 << 96);
const DISCOUNT_MAX: Amount = Amount::from_nanos(-CHARGE_MAX.nanos());

/// What an account is: the number that one policy object keeps for one resource, apart for each bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey {
    pub policy: Arc<str>,
    pub resource: Arc<str>,
    /// Empty when the policy keeps one number for the resource.
    pub bucket: Arc<str>,
}

impl AccountKey {
    pub fn new(policy: &str, resource: &str, bucket: &str) -> AccountKey {
        AccountKey { policy: policy.into(), resource: resource.into(), bucket: bucket.into() }
    }
}

impl fmt::Display for AccountKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "quota {:?} {}", self.policy, self.resource)?;
        if !self.bucket.is_empty() {
            write!(out, " of {:?}", self.bucket)?;
        }
        Ok(())
    }
}

/// The dense, persisted index of an account. The index of a closed account is given to a later one, so an id is
/// only good for as long as the account is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub(crate) u32);

impl AccountId {
    pub const fn from_index(index: u32) -> AccountId {
        AccountId(index)
    }

    pub const fn index(self) -> u32 {
        self.0
    }

    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// How far an account may rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Counted, never refused.
    Unlimited,
    /// No decision lets used and held rise above this.
    Enforced(Amount),
    /// Being over is allowed and shown.
    Observed(Amount),
}

impl Limit {
    /// The number to show, if there is one.
    pub fn amount(self) -> Option<Amount> {
        match self {
            Limit::Unlimited => None,
            Limit::Enforced(amount) | Limit::Observed(amount) => Some(amount),
        }
    }
}

impl Limit {
    /// The largest growth over what is occupied.
    pub(crate) fn room_over(self, occupied: Amount) -> Amount {
        match self {
            // Discounts can leave more room than the number type has.
            Limit::Enforced(limit) => {
                limit.checked_sub(occupied).map_or(AMOUNT_MAX, |room| room.min(room_of_type(occupied)))
            }
            Limit::Unlimited | Limit::Observed(_) => room_of_type(occupied),
        }
    }
}

pub(crate) fn room_of_type(occupied: Amount) -> Amount {
    difference(AMOUNT_MAX, occupied.max(Amount::ZERO))
}

/// An account as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    pub account: AccountId,
    pub limit: Limit,
    /// The sum of the charges of live subjects.
    pub used: Amount,
    /// What holds add to that until they settle or expire.
    pub held: Amount,
    /// How many subjects wait for more of this account.
    pub waiting: usize,
    /// How to print the sums: the format of the charge that lifted them from zero.
    pub format: Format,
    /// How many subjects have a charge or a hold here.
    pub subjects: usize,
}

impl Balance {
    /// What is left below the limit; `None` without a limit, zero while over it.
    pub fn available(&self) -> Option<Amount> {
        let left = self.limit.amount()?.checked_sub(self.used)?.checked_sub(self.held)?;
        Some(left.max(Amount::ZERO))
    }
}

/// The account as the ledger keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub key: AccountKey,
    pub limit: Limit,
    pub used: Amount,
    pub held: Amount,
    pub format: Format,
    /// Whether subjects may be charged less than nothing here, and so discount what others are charged.
    pub discounts: bool,
    /// The slots of the subjects with a line here, in no meaningful order. It makes closing an account cost what
    /// the account holds, instead of a walk over everything.
    pub roster: Vec<u32>,
    /// Boxed, because hardly any account has waiters.
    pub queue: Option<Box<Queue>>,
    /// Who will have a line here once it is served elsewhere: when the account closes, that is no longer so.
    pub along: BTreeSet<SubjectId>,
}

impl Account {
    pub fn new(key: AccountKey, limit: Limit, format: Format) -> Account {
        let (used, held) = (Amount::ZERO, Amount::ZERO);
        Account {
            key,
            limit,
            used,
            held,
            format,
            discounts: false,
            roster: Vec::new(),
            queue: None,
            along: BTreeSet::new(),
        }
    }

    /// The same account with nobody named.
    pub fn without_names(&self) -> Account {
        let Account { limit, used, held, format, discounts, .. } = *self;
        Account { used, held, discounts, ..Account::new(self.key.clone(), limit, format) }
    }

    /// Used and held together: what counts against the limit.
    pub fn occupied(&self) -> Amount {
        sum(self.used, self.held)
    }

    /// The largest growth this account grants now. Negative while over a lowered limit. Without an enforced limit
    /// it is what the number type still has room for, so overflow is one more way of not fitting.
    pub fn room(&self) -> Amount {
        self.limit.room_over(self.occupied())
    }

    /// Whether anybody may wait for room here. Where there is enough for everyone in line, all wait for something else, and what is
    /// let go is no reason to look at them.
    pub fn may_block(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.largest > self.room())
    }

    /// What is left before the number type ends: the only bound on a charge that must not be refused.
    pub fn room_of_type(&self) -> Amount {
        room_of_type(self.occupied())
    }

    /// Whether a subject's line may say this at all, whatever the limit.
    pub fn may_be_charged(&self, amount: Amount) -> bool {
        match self.discounts {
            true => self.cut(amount) == amount,
            false => !amount.is_negative(),
        }
    }

    /// The nearest amount that may be charged.
    pub fn cut(&self, amount: Amount) -> Amount {
        match self.discounts {
            true => amount.min(CHARGE_MAX).max(DISCOUNT_MAX),
            false => amount,
        }
    }

    pub fn balance(&self, account: AccountId) -> Balance {
        Balance {
            account,
            limit: self.limit,
            used: self.used,
            held: self.held,
            waiting: self.queue.as_ref().map_or(0, |queue| queue.len()),
            format: self.format,
            subjects: self.roster.len(),
        }
    }
}

/// Addition of amounts that a decision already found to fit. A failure is a bug in the ledger, and a stopped ledger
/// is better than a wrong one.
pub(crate) fn sum(left: Amount, right: Amount) -> Amount {
    left.checked_add(right).expect("the decision admitted a sum that the number type cannot hold")
}

/// Subtraction under the same rule.
pub(crate) fn difference(left: Amount, right: Amount) -> Amount {
    left.checked_sub(right).expect("the decision admitted a difference that the number type cannot hold")
}
