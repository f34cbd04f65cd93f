//! The ledger itself: its tables, its accounts, and the one primitive through which every sum moves.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use quantity::{Amount, Format};
use smallvec::SmallVec;

use crate::account::{
    ACCOUNTS_MAX, Account, AccountId, AccountKey, Balance, KEY_TEXT_BYTES_MAX, Limit, difference, sum,
};
use crate::answer::{Outcome, Receipt};
use crate::changes::Changes;
use crate::charge::{Charge, Line, Lines, SubjectId, amount_on, charges, needs, outside, pairs};
use crate::error::LedgerError;
use crate::queue::Waiter;
use crate::subjects::{Pending, Subject, Subjects};
use crate::terms::{Discipline, Place, Terms, Wait};

/// Accounts, live subjects and who waits. See the crate's head for the rules it keeps.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub(crate) accounts: Vec<Option<Account>>,
    /// Indexes of closed accounts. The lowest is taken first, so that a restarted ledger gives the same ids as one
    /// that never stopped.
    pub(crate) vacant: BTreeSet<u32>,
    pub(crate) keys: HashTable<u32>,
    /// The open accounts of every policy, buckets included: whoever needs all of them asks here, so that nobody keeps
    /// a list of its own that could miss one.
    pub(crate) by_policy: HashMap<Arc<str>, BTreeSet<u32>, FixedState>,
    pub(crate) subjects: Subjects,
    pub(crate) expiries: BTreeSet<(i64, SubjectId)>,
    pub(crate) sequence: u64,
    pub(crate) changes: Changes,
}

/// A subject as the ledger knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectView {
    /// What is charged, held or waited for; in line is what it waits for.
    pub charges: Vec<Charge>,
    /// What stays charged if a hold expires, and what is charged while it waits; empty for whom is simply charged.
    pub settled: Vec<Charge>,
    pub state: State,
    /// The step that made it so.
    pub sequence: u64,
}

impl SubjectView {
    /// What it is charged now; nothing of what it holds or waits for beyond that.
    pub fn into_charged(self) -> Vec<Charge> {
        match self.state {
            State::Charged => self.charges,
            State::Held { .. } | State::Waiting(_) => self.settled,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Charged,
    Held { expires_at_ms: i64 },
    Waiting(Wait),
}

/// What one step does, gathered on the way.
#[derive(Debug)]
pub(crate) struct Step {
    pub sequence: u64,
    pub touched: SmallVec<[AccountId; 4]>,
    /// Accounts on which somebody waiting might fit now.
    pub freed: SmallVec<[AccountId; 4]>,
    pub woken: Vec<SubjectId>,
}

impl Step {
    pub fn receipt(mut self, outcome: Outcome) -> Receipt {
        if !self.touched.is_sorted_by(|left, right| left < right) {
            self.touched.sort_unstable();
            self.touched.dedup();
        }
        Receipt { sequence: self.sequence, outcome, changed: true, woken: self.woken, touched: self.touched }
    }
}

impl Ledger {
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// The number of the last step.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    pub fn accounts_open(&self) -> usize {
        self.accounts.len() - self.vacant.len()
    }

    pub fn subjects_live(&self) -> usize {
        self.subjects.len()
    }

    /// Opens an account. It starts at zero; who already consumes is adopted afterwards.
    pub fn open(&mut self, key: AccountKey, limit: Limit) -> Result<AccountId, LedgerError> {
        check_key(&key)?;
        check_limit(limit)?;
        if let Some(account) = self.account(&key) {
            return Err(LedgerError::AlreadyOpen { account, key });
        }
        if self.accounts_open() >= ACCOUNTS_MAX {
            return Err(LedgerError::TooManyAccounts);
        }
        let account = self.place_account(key, limit);
        self.begin();
        self.changes.account(account);
        Ok(account)
    }

    pub fn account(&self, key: &AccountKey) -> Option<AccountId> {
        let same = |index: &u32| self.key(AccountId(*index)) == Some(key);
        self.keys.find(hash_of(key), same).copied().map(AccountId)
    }

    pub fn key(&self, account: AccountId) -> Option<&AccountKey> {
        self.get(account).map(|account| &account.key)
    }

    pub fn balance(&self, account: AccountId) -> Option<Balance> {
        self.get(account).map(|entry| entry.balance(account))
    }

    /// Every open account, by id.
    pub fn balances(&self) -> impl Iterator<Item = (&AccountKey, Balance)> {
        let ids = (0u32..).map(AccountId);
        ids.zip(&self.accounts).filter_map(|(id, entry)| entry.as_ref().map(|entry| (&entry.key, entry.balance(id))))
    }

    /// Every open account of a policy, buckets included, by id.
    pub fn accounts_of(&self, policy: &str) -> impl Iterator<Item = AccountId> {
        self.by_policy.get(policy).into_iter().flatten().copied().map(AccountId)
    }

    /// Who has a charge or a hold on an account, oldest step first.
    pub fn subjects_of(&self, account: AccountId) -> Vec<SubjectId> {
        let Some(entry) = self.get(account) else { return Vec::new() };
        let mut found: Vec<(u64, SubjectId)> = Vec::with_capacity(entry.roster.len());
        found.extend(entry.roster.iter().map(|slot| self.subjects.get(*slot)).map(|s| (s.sequence, s.id())));
        found.sort_unstable();
        found.into_iter().map(|(_, subject)| subject).collect()
    }

    /// Who waits for an account, in the order of service.
    pub fn waiting_for(&self, account: AccountId) -> Vec<SubjectId> {
        let queue = self.get(account).and_then(|entry| entry.queue.as_deref());
        queue.map_or_else(Vec::new, |queue| queue.iter().map(|(place, _)| place.subject).collect())
    }

    /// Everybody whose charge on an account waits for something: for more of it, or for what it comes along with.
    pub fn asking_for(&self, account: AccountId) -> impl Iterator<Item = SubjectId> {
        let entry = self.get(account).into_iter();
        entry.flat_map(|entry| {
            let queue = entry.queue.as_deref().into_iter().flat_map(|queue| queue.iter());
            queue.map(|(place, _)| place.subject).chain(entry.along.iter().copied())
        })
    }

    /// The first of those who wait for an account.
    pub fn first_waiting_for(&self, account: AccountId, max: usize) -> Vec<SubjectId> {
        let queue = self.get(account).and_then(|entry| entry.queue.as_deref());
        queue.map_or_else(Vec::new, |queue| queue.iter().take(max).map(|(place, _)| place.subject).collect())
    }

    /// Whether a subject stands in line; cheaper than looking at it.
    pub fn is_waiting(&self, subject: SubjectId) -> bool {
        let pending = self.subjects.find(subject).and_then(|slot| self.subjects.get(slot).pending.as_deref());
        matches!(pending, Some(Pending::Wait { .. }))
    }

    /// Whether the ledger knows the subject at all; cheaper than looking at it.
    pub fn is_live(&self, subject: SubjectId) -> bool {
        self.subjects.find(subject).is_some()
    }

    pub fn subject(&self, subject: SubjectId) -> Option<SubjectView> {
        Some(view_of(self.subjects.get(self.subjects.find(subject)?)))
    }

    /// When the next hold runs out.
    pub fn next_expiry_ms(&self) -> Option<i64> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Changes a limit. Lowering it evicts nobody; raising it wakes who waits.
    pub fn set_limit(&mut self, account: AccountId, limit: Limit) -> Result<Receipt, LedgerError> {
        check_limit(limit)?;
        let sequence = self.sequence;
        let entry = self.get(account).ok_or(LedgerError::UnknownAccount { account })?;
        if entry.limit == limit {
            return Ok(unchanged(Outcome::LimitSet, sequence));
        }
        let mut step = self.begin();
        self.change_limit(account, limit, &mut step);
        self.changes.account(account);
        self.wake(&mut step);
        Ok(step.receipt(Outcome::LimitSet))
    }

    /// Serves whoever waits for these accounts and may have what it wants: after its place in their lines came from elsewhere.
    pub fn serve(&mut self, accounts: &[AccountId]) -> Receipt {
        let waited_for: SmallVec<[AccountId; 4]> =
            accounts.iter().copied().filter(|account| self.queue(*account).is_some()).collect();
        if self.grantable(&waited_for).is_empty() {
            return unchanged(Outcome::LimitSet, self.sequence);
        }
        let mut step = self.begin();
        step.freed = waited_for;
        self.wake(&mut step);
        step.receipt(Outcome::LimitSet)
    }

    /// The limit alone; nobody is woken yet.
    pub(crate) fn change_limit(&mut self, account: AccountId, limit: Limit, step: &mut Step) {
        let entry = self.known_mut(account);
        if entry.limit == limit {
            return;
        }
        let room_before = entry.room();
        entry.limit = limit;
        if entry.room() > room_before {
            step.freed.push(account);
        }
        step.touched.push(account);
    }

    /// Lets subjects be charged less than nothing on an account: its sum is then what some take less what others give
    /// back. It is not taken back while the account is open; a sum below zero is for whoever shows it to call zero.
    pub fn allow_discounts(&mut self, account: AccountId) -> Result<(), LedgerError> {
        let entry = self.get_mut(account).ok_or(LedgerError::UnknownAccount { account })?;
        if !entry.discounts {
            entry.discounts = true;
            self.changes.account(account);
        }
        Ok(())
    }

    /// Gives the next step its number.
    pub(crate) fn begin(&mut self) -> Step {
        self.sequence = self.sequence.checked_add(1).expect("a step a nanosecond ends in 584 years");
        Step { sequence: self.sequence, touched: SmallVec::new(), freed: SmallVec::new(), woken: Vec::new() }
    }

    pub(crate) fn get(&self, account: AccountId) -> Option<&Account> {
        self.accounts.get(account.at())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, account: AccountId) -> Option<&mut Account> {
        self.accounts.get_mut(account.at())?.as_mut()
    }

    /// An account that a line or a plan names, and that is therefore open.
    pub(crate) fn known(&self, account: AccountId) -> &Account {
        self.get(account).expect("a line names an account that is not open")
    }

    pub(crate) fn known_mut(&mut self, account: AccountId) -> &mut Account {
        self.get_mut(account).expect("a line names an account that is not open")
    }

    pub(crate) fn place_account(&mut self, key: AccountKey, limit: Limit) -> AccountId {
        let hash = hash_of(&key);
        let entry = Some(Account::new(key, limit, Format::default()));
        let index = match self.vacant.pop_first() {
            Some(index) => {
                self.accounts[AccountId(index).at()] = entry;
                index
            }
            None => {
                self.accounts.push(entry);
                u32::try_from(self.accounts.len() - 1).expect("accounts are bounded far below")
            }
        };
        self.index_account(AccountId(index), hash);
        AccountId(index)
    }

    pub(crate) fn index_account(&mut self, account: AccountId, hash: u64) {
        let accounts = &self.accounts;
        let rehash = |index: &u32| accounts[AccountId(*index).at()].as_ref().map_or(0, |entry| hash_of(&entry.key));
        self.keys.insert_unique(hash, account.0, rehash);
        if let Some(policy) = self.key(account).map(|key| key.policy.clone()) {
            self.by_policy.entry(policy).or_default().insert(account.0);
        }
    }

    /// The one primitive: everything a subject has is exchanged for `lines`. All sums move here and only here, by
    /// exactly the difference between the old lines and the new, so they stay the sum of the lines.
    pub(crate) fn replace(&mut self, slot: u32, lines: Lines, pending: Option<Box<Pending>>, step: &mut Step) {
        let subject = self.subjects.get(slot);
        let id = subject.id();
        let (old_lines, old_pending) = match subject.lines.is_empty() && subject.pending.is_none() {
            true => (Lines::new(), None),
            false => self.subjects.get_mut(slot).take(),
        };
        self.leave_pending(id, old_pending.as_deref(), step);

        let new_settled = settled_of(pending.as_deref());
        let old_settled = settled_of(old_pending.as_deref());
        let mut placed = Lines::new();
        for (account, old, new) in pairs(&old_lines, &lines) {
            let (before, after) = (Share::of(account, old, old_settled), Share::of(account, new, new_settled));
            let place = self.move_sums(account, slot, old, new, (before, after), step);
            if let Some(line) = new {
                let mut line = *line;
                line.set_place(place);
                placed.push(line);
            }
        }

        self.changes.subject(id);
        let waits = matches!(pending.as_deref(), Some(Pending::Wait { .. }));
        if placed.is_empty() && !waits {
            self.subjects.remove(slot);
            return;
        }
        self.enter_pending(slot, id, &placed, pending.as_deref());
        let subject = self.subjects.get_mut(slot);
        subject.lines = placed;
        subject.pending = pending;
        subject.sequence = step.sequence;
    }

    /// Moves one account from one line of a subject to the next, and returns the subject's place in its roster.
    fn move_sums(
        &mut self,
        account: AccountId,
        slot: u32,
        old: Option<&Line>,
        new: Option<&Line>,
        (before, after): (Share, Share),
        step: &mut Step,
    ) -> usize {
        let entry = self.accounts[account.at()].as_mut().expect("a line names an account that is not open");
        // Kubernetes prints a sum in the format of what lifted it from zero.
        if let Some(line) = new
            && entry.used.is_zero()
            && entry.held.is_zero()
            && entry.format != line.format()
        {
            entry.format = line.format();
            self.changes.account(account);
        }
        if before != after {
            let blocks = entry.may_block();
            entry.used = sum(difference(entry.used, before.used), after.used);
            if before.held != after.held {
                entry.held = sum(difference(entry.held, before.held), after.held);
            }
            step.touched.push(account);
            if blocks && sum(after.used, after.held) < sum(before.used, before.held) {
                step.freed.push(account);
            }
        }
        match (old, new) {
            (Some(old), Some(_)) => old.place(),
            (Some(old), None) => {
                let place = old.place();
                entry.roster.swap_remove(place);
                if let Some(moved) = entry.roster.get(place) {
                    let moved = self.subjects.get_mut(*moved);
                    let line = moved.lines.iter_mut().find(|line| line.account == account);
                    line.expect("a roster names subjects that have a line").set_place(place);
                }
                0
            }
            (None, _) => {
                entry.roster.push(slot);
                entry.roster.len() - 1
            }
        }
    }

    /// Takes a subject out of the lines it stands in, or its hold out of the list of expiries.
    fn leave_pending(&mut self, id: SubjectId, pending: Option<&Pending>, step: &mut Step) {
        match pending {
            None => {}
            Some(Pending::Hold { expires_at_ms, .. }) => {
                self.expiries.remove(&(*expires_at_ms, id));
            }
            Some(Pending::Wait { wait, wanted }) => {
                let place = Place::new(&wait.position, id);
                for line in wanted {
                    let entry = self.known_mut(line.account);
                    if line.is_along() {
                        entry.along.remove(&id);
                        continue;
                    }
                    let blocks = entry.may_block();
                    let Some(queue) = entry.queue.as_mut() else { continue };
                    if !queue.remove(&place) {
                        continue;
                    }
                    if queue.is_empty() {
                        entry.queue = None;
                    }
                    step.touched.push(line.account);
                    // Whoever stood behind it in order may be next.
                    if wait.discipline == Discipline::Ordered && blocks {
                        step.freed.push(line.account);
                    }
                }
            }
        }
    }

    /// The lines are what the subject has meanwhile.
    pub(crate) fn enter_pending(&mut self, slot: u32, id: SubjectId, lines: &[Line], pending: Option<&Pending>) {
        match pending {
            None => {}
            Some(Pending::Hold { expires_at_ms, .. }) => {
                self.expiries.insert((*expires_at_ms, id));
            }
            Some(Pending::Wait { wait, wanted }) => {
                let place = Place::new(&wait.position, id);
                for (account, need) in needs(lines, wanted) {
                    let waiter = Waiter { slot, need, discipline: wait.discipline };
                    self.known_mut(account).queue.get_or_insert_default().insert(place.clone(), waiter);
                }
                for line in wanted.iter().filter(|line| line.is_along()) {
                    self.known_mut(line.account).along.insert(id);
                }
            }
        }
    }
}

pub(crate) fn view_of(subject: &Subject) -> SubjectView {
    let sequence = subject.sequence;
    match subject.pending.as_deref() {
        None => SubjectView { charges: charges(&subject.lines), settled: vec![], state: State::Charged, sequence },
        Some(Pending::Hold { expires_at_ms, wanted, settled }) => {
            let state = State::Held { expires_at_ms: *expires_at_ms };
            SubjectView { charges: charges(wanted), settled: charges(settled), state, sequence }
        }
        Some(Pending::Wait { wait, wanted }) => {
            let mut all = charges(&outside(&subject.lines, wanted));
            let terms = |line: &Line| if line.is_along() { Terms::Along } else { Terms::InLine };
            all.extend(wanted.iter().map(|line| line.charge().on(terms(line))));
            all.sort_by_key(|charge| charge.account);
            let state = State::Waiting(wait.clone());
            SubjectView { charges: all, settled: charges(&subject.lines), state, sequence }
        }
    }
}

/// How a line counts: what is settled as used, the rest as held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub used: Amount,
    pub held: Amount,
}

impl Share {
    pub fn of(account: AccountId, line: Option<&Line>, settled: Option<&Lines>) -> Share {
        let occupied = line.map_or(Amount::ZERO, Line::amount);
        match settled {
            None => Share { used: occupied, held: Amount::ZERO },
            Some(settled) => {
                let used = amount_on(settled, account);
                Share { used, held: difference(occupied, used) }
            }
        }
    }
}

/// The settled part of a held subject; `None` where all lines count as used.
pub(crate) fn settled_of(pending: Option<&Pending>) -> Option<&Lines> {
    match pending {
        Some(Pending::Hold { settled, .. }) => Some(settled),
        Some(Pending::Wait { .. }) | None => None,
    }
}

pub(crate) fn unchanged(outcome: Outcome, sequence: u64) -> Receipt {
    Receipt { sequence, outcome, changed: false, woken: Vec::new(), touched: SmallVec::new() }
}

pub(crate) fn hash_of(key: &AccountKey) -> u64 {
    FixedState::with_seed(0).hash_one(key)
}

pub(crate) fn check_key(key: &AccountKey) -> Result<(), LedgerError> {
    let longest = key.policy.len().max(key.resource.len()).max(key.bucket.len());
    match longest > KEY_TEXT_BYTES_MAX {
        true => Err(LedgerError::KeyTooLong { bytes: longest }),
        false => Ok(()),
    }
}

pub(crate) fn check_limit(limit: Limit) -> Result<(), LedgerError> {
    match limit.amount() {
        Some(amount) if amount.is_negative() => Err(LedgerError::NegativeLimit),
        _ => Ok(()),
    }
}
