//! Planning a step of several parts: what all of them together would leave, without changing anything.
//!
//! A planner reads a ledger and keeps, for each account, what the parts so far take and give back. The sums are wide, so
//! that they do not depend on the order of the parts; only [`Planner::decide`] compares them with limits and with the
//! number type.

use std::cell::OnceCell;
use std::collections::{BTreeMap, btree_set};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quantity::{Amount, Format};

use crate::account::{
    ACCOUNTS_MAX, AMOUNT_MAX, Account, AccountId, AccountKey, Balance, Limit, difference, room_of_type, sum,
};
use crate::answer::{Denied, Outcome};
use crate::books::Books;
use crate::charge::{Charge, Line, Lines, SubjectId, larger_of, needs, overlaid, pairs, smaller_of};
use crate::decide::Verdict;
use crate::error::LedgerError;
use crate::in_line::Served;
use crate::ledger::{Ledger, Share, SubjectView, check_key, check_limit, settled_of, view_of};
use crate::subjects::{Pending, Subject};
use crate::terms::Standing;
use crate::wanted::Wanted;
use crate::wide::Wide;

/// Most subjects and accounts of one step together: as many as can wait for one account. It bounds what one command
/// keeps in memory; whoever plans has a bound of its own far below.
pub const STEP_PARTS_MAX: usize = 1 << 20;

/// A step that is being planned. Dropping it leaves no trace.
#[derive(Clone, Debug)]
pub struct Planner<'a> {
    pub(crate) ledger: &'a Ledger,
    /// Accounts that the step opens or changes, with their sums as they are now and nobody named.
    pub(crate) settings: BTreeMap<AccountId, Account>,
    opened: HashMap<AccountKey, AccountId, FixedState>,
    vacant: btree_set::Iter<'a, u32>,
    /// In the order in which their subjects were first named.
    pub(crate) parts: Vec<Part>,
    by_subject: HashMap<SubjectId, usize, FixedState>,
    pub(crate) tallies: BTreeMap<AccountId, Tally>,
    /// What becomes of charges in line, worked out when somebody looks.
    served: OnceCell<Served>,
}

/// What is asked for one subject.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub subject: SubjectId,
    pub slot: Option<u32>,
    pub ask: Ask,
}

#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// Cannot be charged, whatever anybody has.
    Faulty(Denied),
    /// It is so already.
    Unchanged(Verdict),
    Charge {
        wanted: Box<Wanted>,
        standing: Standing,
    },
    Release,
}

/// What the parts of a step do to one account, charges that wait left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    used: Wide,
    held: Wide,
    /// Net growth of all that may be refused: what is given back counts against it.
    pub enforced: Wide,
    /// Growth of what is adopted, before it is cut to the number type.
    pub adopted: Wide,
    /// All growth, nothing given back.
    pub gross: Wide,
    subjects: i64,
    waiting: i64,
}

impl Ledger {
    /// Begins to plan a step of several parts.
    pub fn plan(&self) -> Planner<'_> {
        Planner {
            ledger: self,
            settings: BTreeMap::new(),
            opened: HashMap::default(),
            vacant: self.vacant.iter(),
            parts: Vec::new(),
            by_subject: HashMap::default(),
            tallies: BTreeMap::new(),
            served: OnceCell::new(),
        }
    }
}

impl Books for Planner<'_> {
    fn entry(&self, account: AccountId) -> Option<&Account> {
        self.settings.get(&account).or_else(|| self.ledger.get(account))
    }
}

impl Planner<'_> {
    /// Opens an account and returns the id that it will have; of one that is open, its id, and nothing changes.
    pub fn open(&mut self, key: AccountKey, limit: Limit) -> Result<AccountId, LedgerError> {
        check_key(&key)?;
        check_limit(limit)?;
        if let Some(account) = self.account(&key) {
            return Ok(account);
        }
        if self.ledger.accounts_open() + self.opened.len() >= ACCOUNTS_MAX {
            return Err(LedgerError::TooManyAccounts);
        }
        self.check_size()?;
        let account = match self.vacant.next() {
            Some(index) => AccountId(*index),
            None => {
                let beyond = self.opened.len() - self.ledger.vacant.len();
                let index = u32::try_from(self.ledger.accounts.len() + beyond);
                AccountId(index.expect("accounts are bounded far below"))
            }
        };
        self.settings.insert(account, Account::new(key.clone(), limit, Format::default()));
        self.opened.insert(key, account);
        Ok(account)
    }

    /// Changes a limit. The whole step is held against it, whatever was planned before.
    pub fn set_limit(&mut self, account: AccountId, limit: Limit) -> Result<(), LedgerError> {
        check_limit(limit)?;
        self.setting(account)?.limit = limit;
        Ok(())
    }

    /// Lets subjects be charged less than nothing on an account, by charges that are planned after this.
    pub fn allow_discounts(&mut self, account: AccountId) -> Result<(), LedgerError> {
        self.setting(account)?.discounts = true;
        Ok(())
    }

    /// Charges a subject as [`Ledger::decide`] would. Of several words on one subject the last one counts.
    pub fn charge(&mut self, subject: SubjectId, charges: &[Charge], standing: &Standing) -> Result<(), LedgerError> {
        let ask = match Wanted::of(self, charges, standing) {
            Err(denied) => Ask::Faulty(denied),
            Ok(wanted) => match self.ledger.as_asked(self.current(subject), &wanted, standing) {
                Some(verdict) => Ask::Unchanged(verdict),
                None => Ask::Charge { wanted: Box::new(wanted), standing: standing.clone() },
            },
        };
        self.ask(subject, ask)
    }

    /// Lets go of everything a subject has, holds or waits for. Releasing what is not there is fine.
    pub fn release(&mut self, subject: SubjectId) -> Result<(), LedgerError> {
        let nothing = Verdict::Unchanged { outcome: Outcome::Released, sequence: self.ledger.sequence };
        let ask = if self.ledger.is_live(subject) { Ask::Release } else { Ask::Unchanged(nothing) };
        self.ask(subject, ask)
    }

    pub fn account(&self, key: &AccountKey) -> Option<AccountId> {
        self.ledger.account(key).or_else(|| self.opened.get(key).copied())
    }

    pub fn key(&self, account: AccountId) -> Option<&AccountKey> {
        self.entry(account).map(|entry| &entry.key)
    }

    /// The account as the parts so far would leave it, before anybody else is woken. Limits do not hold it back: whether
    /// they allow it, [`Planner::decide`] says.
    pub fn balance(&self, account: AccountId) -> Option<Balance> {
        let entry = self.entry(account)?;
        let mut balance = match self.ledger.get(account) {
            Some(now) => now.balance(account),
            None => entry.balance(account),
        };
        balance.limit = entry.limit;
        balance.format = self.format_on(account);
        (balance.used, balance.held) = self.sums(account);
        let tally = self.tallies.get(&account).copied().unwrap_or_default();
        let served = self.served().on(account);
        balance.used = Wide::default().plus(balance.used).plus(served.taken).nearest();
        balance.subjects = moved(balance.subjects, tally.subjects + served.subjects - self.cut_off(account, &tally));
        balance.waiting = moved(balance.waiting, tally.waiting + served.waiting);
        Some(balance)
    }

    /// The subject as the parts so far would leave it, before anybody else is woken.
    pub fn subject(&self, subject: SubjectId) -> Option<SubjectView> {
        let Some(index) = self.by_subject.get(&subject) else { return self.ledger.subject(subject) };
        let mut after = Subject::new(subject, self.ledger.sequence + 1);
        match self.verdict(*index) {
            Verdict::Unchanged { .. } => return self.ledger.subject(subject),
            Verdict::Release => return None,
            Verdict::Charge { lines } => after.lines = lines,
            Verdict::Hold { lines, pending } | Verdict::Queue { lines, pending } => {
                (after.lines, after.pending) = (lines, Some(pending));
            }
        }
        let is_nothing = after.lines.is_empty() && !matches!(after.pending.as_deref(), Some(Pending::Wait { .. }));
        (!is_nothing).then(|| view_of(&after))
    }

    fn ask(&mut self, subject: SubjectId, ask: Ask) -> Result<(), LedgerError> {
        let known = self.by_subject.get(&subject).copied();
        if known.is_none() {
            self.check_size()?;
        }
        let part = Part { subject, slot: self.ledger.subjects.find(subject), ask };
        self.served.take();
        self.count(&part, Wide::add, Wide::sub, 1);
        match known {
            Some(index) => {
                let before = std::mem::replace(&mut self.parts[index], part);
                self.count(&before, Wide::sub, Wide::add, -1);
            }
            None => {
                self.by_subject.insert(subject, self.parts.len());
                self.parts.push(part);
            }
        }
        Ok(())
    }

    fn setting(&mut self, account: AccountId) -> Result<&mut Account, LedgerError> {
        if !self.settings.contains_key(&account) {
            let entry = self.ledger.get(account).ok_or(LedgerError::UnknownAccount { account })?.without_names();
            self.check_size()?;
            self.settings.insert(account, entry);
        }
        self.served.take();
        self.settings.get_mut(&account).ok_or(LedgerError::UnknownAccount { account })
    }

    fn check_size(&self) -> Result<(), LedgerError> {
        match self.parts.len() + self.settings.len() >= STEP_PARTS_MAX {
            true => Err(LedgerError::StepTooLarge),
            false => Ok(()),
        }
    }

    pub(crate) fn current(&self, subject: SubjectId) -> Option<&Subject> {
        self.ledger.subjects.find(subject).map(|slot| self.ledger.subjects.get(slot))
    }

    /// What a subject occupies before the step.
    pub(crate) fn occupied(&self, part: &Part) -> &[Line] {
        part.slot.map_or(&[][..], |slot| &self.ledger.subjects.get(slot).lines)
    }

    /// Whether a subject leaves the lines of waiters it may stand in.
    pub(crate) fn leaves(&self, subject: SubjectId) -> bool {
        let ask = self.by_subject.get(&subject).map(|index| &self.parts[*index].ask);
        matches!(ask, Some(Ask::Charge { .. } | Ask::Release))
    }

    /// Adds what a part does to the accounts, or takes it back.
    fn count(&mut self, part: &Part, plus: fn(&mut Wide, Amount), minus: fn(&mut Wide, Amount), sign: i64) {
        let Some((lines, hold)) = self.certain(part) else { return };
        let adopted = match &part.ask {
            Ask::Charge { wanted, .. } => &wanted.adopted[..],
            _ => &[],
        };
        let current = part.slot.map(|slot| self.ledger.subjects.get(slot));
        let pending = current.and_then(|current| current.pending.as_deref());
        let (old_settled, new_settled) = (settled_of(pending), settled_of(hold.as_ref()));
        let occupied = current.map_or(&[][..], |current| &current.lines);
        for (account, old, new) in pairs(occupied, &lines) {
            let (before, after) = (Share::of(account, old, old_settled), Share::of(account, new, new_settled));
            let tally = self.tallies.entry(account).or_default();
            plus(&mut tally.used, after.used);
            minus(&mut tally.used, before.used);
            plus(&mut tally.held, after.held);
            minus(&mut tally.held, before.held);
            let (had, has) = (old.map_or(Amount::ZERO, Line::amount), new.map_or(Amount::ZERO, Line::amount));
            if has > had {
                plus(&mut tally.gross, has);
                minus(&mut tally.gross, had);
            }
            let is_adopted = has > had && adopted.iter().any(|line| line.account == account);
            let growth = if is_adopted { &mut tally.adopted } else { &mut tally.enforced };
            plus(growth, has);
            minus(growth, had);
            tally.subjects += sign * (i64::from(new.is_some()) - i64::from(old.is_some()));
        }
        if let Some(Pending::Wait { wanted, .. }) = pending {
            for (account, _) in needs(occupied, wanted) {
                self.tallies.entry(account).or_default().waiting -= sign;
            }
        }
    }

    /// What a subject would occupy whatever becomes of its charges in line, and its hold if it is one; none where
    /// nothing changes.
    pub(crate) fn certain(&self, part: &Part) -> Option<(Lines, Option<Pending>)> {
        match &part.ask {
            Ask::Faulty(_) | Ask::Unchanged(_) => None,
            Ask::Release => Some((Lines::new(), None)),
            Ask::Charge { wanted, standing: Standing::Held { expires_at_ms } } => {
                let current = part.slot.map(|slot| self.ledger.subjects.get(slot));
                let settled = current.map_or(&[][..], |current| current.settled());
                let lines = larger_of(settled, &wanted.enforced);
                let settled: Lines = settled.iter().map(Line::unplaced).collect();
                let wanted = wanted.enforced.clone();
                Some((lines, Some(Pending::Hold { expires_at_ms: *expires_at_ms, wanted, settled })))
            }
            Ask::Charge { wanted, .. } => {
                let kept = smaller_of(self.occupied(part), &wanted.in_line);
                Some((overlaid(&wanted.at_once(), &kept), None))
            }
        }
    }

    /// How much of what is adopted on an account is counted: all, or as far as the number type goes.
    pub(crate) fn adopted(&self, account: AccountId, tally: &Tally) -> Amount {
        let occupied = self.known_entry(account).occupied();
        let given_back = if tally.enforced.is_positive() { Wide::default() } else { tally.enforced };
        let room = room_of_type(given_back.plus(occupied).nearest());
        if tally.adopted.exceeds(room) { room } else { tally.adopted.nearest() }
    }

    /// Used and held after the step, before anybody in line is served. What cannot be counted is refused, and until then
    /// shown as the most that can be.
    fn sums(&self, account: AccountId) -> (Amount, Amount) {
        let entry = self.known_entry(account);
        let Some(tally) = self.tallies.get(&account) else { return (entry.used, entry.held) };
        let cut = tally.adopted.minus(self.adopted(account, tally)).nearest();
        let held = tally.held.plus(entry.held).nearest();
        let used = tally.used.plus(entry.used).minus(cut);
        let used_max = difference(AMOUNT_MAX, held);
        (if used.exceeds(used_max) { used_max } else { used.nearest() }, held)
    }

    /// What is left for those in line.
    pub(crate) fn room(&self, account: AccountId) -> Amount {
        let (used, held) = self.sums(account);
        self.known_entry(account).limit.room_over(sum(used, held))
    }

    pub(crate) fn served(&self) -> &Served {
        self.served.get_or_init(|| self.serve())
    }

    /// How an account's sums are printed after the step: as before, or if there was nothing, as the first of the step's
    /// charges on it.
    fn format_on(&self, account: AccountId) -> Format {
        let entry = self.known_entry(account);
        let is_empty = entry.used.is_zero() && entry.held.is_zero();
        let on_account =
            |index: usize| self.verdict(index).lines().iter().find(|line| line.account == account).copied();
        let first = || (0..self.parts.len()).find_map(on_account);
        let first = if is_empty && self.is_named(account) { first() } else { None };
        first.map_or(entry.format, |line| line.format())
    }

    fn is_named(&self, account: AccountId) -> bool {
        self.tallies.contains_key(&account) || !self.served().on(account).taken.is_zero()
    }
}

fn moved(count: usize, by: i64) -> usize {
    let by = isize::try_from(by).expect("a step has fewer parts than that");
    count.checked_add_signed(by).expect("no more leaves an account than is there")
}
