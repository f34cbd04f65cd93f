//! Accounts that get another name, or what others had, and accounts that go: at once, or a part at a time where many are charged on
//! one.

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use smallvec::SmallVec;

use crate::account::{AccountId, AccountKey};
use crate::answer::{Outcome, Receipt};
use crate::charge::{Line, Lines, SubjectId, larger_of, needs, overlaid, same_lines};
use crate::error::LedgerError;
use crate::ledger::{Ledger, Step, check_key, hash_of, unchanged};
use crate::subjects::Pending;

impl Ledger {
    /// Gives an account another key. Everything charged on it stays as it is: this costs the same however much that is.
    pub fn rename(&mut self, account: AccountId, key: AccountKey) -> Result<(), LedgerError> {
        check_key(&key)?;
        let entry = self.get(account).ok_or(LedgerError::UnknownAccount { account })?;
        if entry.key == key {
            return Ok(());
        }
        if let Some(account) = self.account(&key) {
            return Err(LedgerError::AlreadyOpen { account, key });
        }
        let before = entry.key.clone();
        self.unindex_account(account, &before);
        let hash = hash_of(&key);
        self.known_mut(account).key = key;
        self.index_account(account, hash);
        self.begin();
        self.changes.account(account);
        Ok(())
    }

    /// Closes an account: charges, holds and needs on it vanish, what subjects have elsewhere stays. A subject that
    /// is left with nothing is gone; a waiter that is left with no need has what it asked for.
    pub fn close(&mut self, account: AccountId) -> Result<Receipt, LedgerError> {
        let entry = self.get(account).ok_or(LedgerError::UnknownAccount { account })?;
        let waiters: Vec<u32> =
            entry.queue.iter().flat_map(|queue| queue.iter()).map(|(_, waiter)| waiter.slot).collect();
        let mut occupants = entry.roster.clone();
        let along: Vec<SubjectId> = entry.along.iter().copied().collect();
        let along = along.into_iter().filter_map(|subject| self.subjects.find(subject));
        occupants.extend(along);
        occupants.sort_unstable();
        occupants.dedup();
        if !waiters.is_empty() {
            let known: HashSet<u32, FixedState> = waiters.iter().copied().collect();
            occupants.retain(|slot| !known.contains(slot));
        }
        let mut step = self.begin();
        step.touched.push(account);
        // Whoever waits for it comes in the order of service, because it may be served by this.
        for slot in occupants.into_iter().chain(waiters) {
            self.forget(slot, |gone, _| gone == account, &mut step);
        }
        self.remove_account(account);
        self.wake(&mut step);
        Ok(step.receipt(Outcome::Closed))
    }

    /// Closes an account a part at a time: at most `max` of those who have something on it let go of that, and it is closed when
    /// nobody is left. What they have on accounts `with` it goes along: those are going as well. Where somebody waits for it
    /// all of it goes at once: they are served in their order.
    pub fn sweep(
        &mut self,
        account: AccountId,
        with: impl Fn(&AccountKey) -> bool,
        max: usize,
    ) -> Result<Receipt, LedgerError> {
        let entry = self.get(account).ok_or(LedgerError::UnknownAccount { account })?;
        if entry.queue.is_some() || !entry.along.is_empty() {
            return self.close(account);
        }
        let swept: Vec<u32> = entry.roster.iter().rev().take(max).copied().collect();
        if swept.is_empty() && !entry.roster.is_empty() {
            return Ok(unchanged(Outcome::Swept { left: entry.roster.len() }, self.sequence));
        }
        let mut step = self.begin();
        step.touched.push(account);
        for slot in swept {
            self.forget(slot, |gone, key| gone == account || with(key), &mut step);
        }
        let left = self.known(account).roster.len();
        if left == 0 {
            self.remove_account(account);
        }
        self.wake(&mut step);
        Ok(step.receipt(if left == 0 { Outcome::Closed } else { Outcome::Swept { left } }))
    }

    /// What a subject has on some accounts it has on others from now on, in place of what it had there: those `to` names for
    /// them. Of one that holds something the hold alone, where `with_charged` is not set; else whoever waits stands in line there
    /// as well, in its place. Never refused.
    pub fn carry(
        &mut self,
        subject: SubjectId,
        to: impl Fn(AccountId) -> Option<AccountId>,
        with_charged: bool,
    ) -> Receipt {
        let Some(slot) = self.subjects.find(subject) else { return unchanged(Outcome::Granted, self.sequence) };
        let known = self.subjects.get(slot);
        let is_on = |line: &&Line| to(line.account).is_some_and(|to| self.is_open(to));
        let carried = |lines: &[Line]| -> Lines {
            let rest: Lines = lines.iter().filter(|line| !is_on(line)).map(Line::unplaced).collect();
            let named =
                lines.iter().filter_map(|line| Some((to(line.account)?, line))).filter(|(to, _)| self.is_open(*to));
            let mut named: Lines = named.map(|(to, line)| Line::new(to, line.amount(), line.format())).collect();
            named.sort_by_key(|line| line.account);
            self.cut_to_type(&known.lines, overlaid(&rest, &named))
        };
        let (lines, pending) = match known.pending.as_deref() {
            None if with_charged => (carried(&known.lines), None),
            Some(Pending::Hold { expires_at_ms, wanted, settled }) => {
                let settled = if with_charged { carried(settled) } else { settled.clone() };
                let (expires_at_ms, wanted) = (*expires_at_ms, carried(wanted));
                (larger_of(&settled, &wanted), Some(Pending::Hold { expires_at_ms, wanted, settled }))
            }
            Some(Pending::Wait { wait, wanted: asked }) if with_charged => {
                let on_others = |line: &Line| match to(line.account).filter(|to| self.is_open(*to)) {
                    Some(to) if line.is_along() => Line::along(to, line.amount()),
                    Some(to) => Line::new(to, line.amount(), line.format()),
                    None => line.as_wanted(),
                };
                let mut wanted: Lines = asked.iter().map(on_others).collect();
                wanted.sort_by_key(|line| line.account);
                wanted.dedup_by_key(|line| line.account);
                if same_lines(asked, &wanted) && same_lines(&known.lines, &carried(&known.lines)) {
                    return unchanged(known.outcome(), known.sequence);
                }
                (carried(&known.lines), Some(Pending::Wait { wait: wait.clone(), wanted }))
            }
            None | Some(Pending::Wait { .. }) => return unchanged(known.outcome(), known.sequence),
        };
        let waits = matches!(pending, Some(Pending::Wait { .. }));
        if !waits && same_lines(&known.lines, &lines) {
            return unchanged(known.outcome(), known.sequence);
        }
        let outcome = pending.as_ref().map_or(Outcome::Granted, Pending::outcome);
        let mut step = self.begin();
        self.replace(slot, lines, pending.map(Box::new), &mut step);
        self.wake(&mut step);
        step.receipt(outcome)
    }

    fn remove_account(&mut self, account: AccountId) {
        let entry = self.accounts[account.at()].take().expect("the account was open a moment ago");
        self.vacant.insert(account.0);
        while let Some(None) = self.accounts.last() {
            self.accounts.pop();
            self.vacant.pop_last();
        }
        self.unindex_account(account, &entry.key);
        self.changes.account(account);
    }

    fn unindex_account(&mut self, account: AccountId, key: &AccountKey) {
        if let Ok(found) = self.keys.find_entry(hash_of(key), |index| *index == account.0) {
            found.remove();
        }
        if let Some(accounts) = self.by_policy.get_mut(&*key.policy) {
            accounts.remove(&account.0);
            if accounts.is_empty() {
                self.by_policy.remove(&*key.policy);
            }
        }
    }

    /// Takes accounts out of all that a subject has, holds and waits for. A waiter that needs no more is served; else
    /// its other accounts are looked at again.
    fn forget(&mut self, slot: u32, is_gone: impl Fn(AccountId, &AccountKey) -> bool, step: &mut Step) {
        let without = |lines: &[Line]| -> Lines {
            let is_left = |line: &&Line| !is_gone(line.account, &self.known(line.account).key);
            lines.iter().filter(is_left).map(Line::unplaced).collect()
        };
        let subject = self.subjects.get(slot);
        let lines = without(&subject.lines);
        let pending = match subject.pending.as_deref() {
            None => None,
            Some(Pending::Hold { expires_at_ms, wanted, settled }) => Some(Pending::Hold {
                expires_at_ms: *expires_at_ms,
                wanted: without(wanted),
                settled: without(settled),
            }),
            Some(Pending::Wait { wait, wanted }) => {
                let is_left = |line: &&Line| !is_gone(line.account, &self.known(line.account).key);
                let wanted: Lines = wanted.iter().filter(is_left).map(Line::as_wanted).collect();
                let needed: SmallVec<[AccountId; 4]> = needs(&lines, &wanted).map(|(account, _)| account).collect();
                if needed.is_empty() {
                    let lines = overlaid(&lines, &wanted);
                    step.woken.push(subject.id());
                    self.replace(slot, lines, None, step);
                    return;
                }
                step.freed.extend(needed);
                Some(Pending::Wait { wait: wait.clone(), wanted })
            }
        };
        self.replace(slot, lines, pending.map(Box::new), step);
    }
}
