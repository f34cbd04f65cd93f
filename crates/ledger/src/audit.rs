//! The auditor: counts everything again from the subjects alone and compares.
//!
//! It shares no sums with the rest. A difference is a bug, never something to repair.

use std::collections::BTreeMap;

use quantity::Amount;

use crate::account::{Account, AccountId};
use crate::charge::{Line, amount_on, larger_of, same_lines};
use crate::error::AuditError;
use crate::ledger::Ledger;
use crate::subjects::{Pending, Subject};
use crate::terms::{Place, Wait};

#[derive(Default)]
struct Recount {
    used: Amount,
    held: Amount,
    subjects: usize,
    waiting: usize,
}

fn wrong<T>(what: String) -> Result<T, AuditError> {
    Err(AuditError { what })
}

impl Ledger {
    /// Recounts from scratch: sums, rosters, lines of waiters, expiries, and that nobody waits who would fit.
    pub fn audit(&self) -> Result<(), AuditError> {
        let mut recounts: Vec<Recount> = Vec::new();
        recounts.resize_with(self.accounts.len(), Recount::default);
        let mut holds = 0;
        for slot in self.subjects.slots() {
            let subject = self.subjects.get(slot);
            if subject.sequence == 0 {
                continue;
            }
            self.audit_subject(slot, subject, &mut recounts)?;
            holds += usize::from(matches!(subject.pending.as_deref(), Some(Pending::Hold { .. })));
        }
        if holds != self.expiries.len() {
            return wrong(format!("{} expiries for {holds} holds", self.expiries.len()));
        }
        let mut open = 0;
        for (index, (entry, recount)) in self.accounts.iter().zip(&recounts).enumerate() {
            let account = AccountId(u32::try_from(index).unwrap_or(u32::MAX));
            match entry {
                Some(entry) => {
                    open += 1;
                    self.audit_account(account, entry, recount)?;
                }
                None if recount.subjects + recount.waiting > 0 => {
                    return wrong(format!("closed account {index} still has lines"));
                }
                None if !self.vacant.contains(&account.0) => {
                    return wrong(format!("closed account {index} is not among the vacant"));
                }
                None => {}
            }
        }
        if self.by_policy.values().map(|accounts| accounts.len()).sum::<usize>() != open {
            return wrong(format!("{open} accounts are open, and their policies name another number of them"));
        }
        if open != self.keys.len() || open + self.vacant.len() != self.accounts.len() {
            return wrong(format!("{open} accounts are open, {} keys are known", self.keys.len()));
        }
        let waited_for: Vec<AccountId> =
            (0u32..).map(AccountId).take(self.accounts.len()).filter(|id| self.queue(*id).is_some()).collect();
        match self.grantable(&waited_for).first() {
            Some(slot) => wrong(format!("subject {:032x} waits although it fits", self.subjects.get(*slot).id().0)),
            None => Ok(()),
        }
    }

    fn audit_subject(&self, slot: u32, subject: &Subject, recounts: &mut [Recount]) -> Result<(), AuditError> {
        let id = subject.id();
        let name = || format!("subject {:032x}", id.0);
        if self.subjects.find(id) != Some(slot) {
            return wrong(format!("{} is not found where it is", name()));
        }
        if subject.sequence > self.sequence {
            return wrong(format!("{} is of a step that was not taken", name()));
        }
        let sorted = |lines: &[Line]| lines.is_sorted_by(|left, right| left.account < right.account);
        let positive = |lines: &[Line]| lines.iter().all(|line| line.amount() > Amount::ZERO);
        let allowed = |line: &Line| {
            let entry = self.get(line.account);
            !line.amount().is_zero() && entry.is_none_or(|entry| entry.may_be_charged(line.amount()))
        };
        if !sorted(&subject.lines) || !subject.lines.iter().all(allowed) {
            return wrong(format!("{} has lines out of shape", name()));
        }
        let settled: &[Line] = subject.settled();
        for line in &subject.lines {
            let Some(recount) = recounts.get_mut(line.account.at()) else {
                return wrong(format!("{} charges an account that never was", name()));
            };
            let used = amount_on(settled, line.account);
            let held = line.amount().checked_sub(used).filter(|held| !held.is_negative());
            let sums = held.and_then(|held| recount.used.checked_add(used).zip(recount.held.checked_add(held)));
            let Some((used, held)) = sums else { return wrong(format!("{} does not add up", name())) };
            (recount.used, recount.held) = (used, held);
            recount.subjects += 1;
            let place = self.get(line.account).and_then(|entry| entry.roster.get(line.place()));
            if place != Some(&slot) {
                return wrong(format!("{} is not at its place in a roster", name()));
            }
        }
        match subject.pending.as_deref() {
            None if subject.lines.is_empty() => wrong(format!("{} has nothing", name())),
            None => Ok(()),
            Some(Pending::Hold { expires_at_ms, wanted, settled }) => {
                let larger = larger_of(settled, wanted);
                if !self.expiries.contains(&(*expires_at_ms, id)) || !same_lines(&larger, &subject.lines) {
                    return wrong(format!("{} is held in a wrong way", name()));
                }
                Ok(())
            }
            Some(Pending::Wait { wait, wanted }) => {
                let place = Place::new(&wait.position, id);
                let mut waits = false;
                for line in wanted {
                    let need = line.amount().checked_sub(amount_on(&subject.lines, line.account));
                    let Some(need) = need.filter(|need| !need.is_negative()) else {
                        return wrong(format!("{} waits for less than it has", name()));
                    };
                    let knows = self.get(line.account).is_some_and(|entry| entry.along.contains(&id));
                    if line.is_along() && !knows {
                        return wrong(format!("{} goes along to an account that does not know", name()));
                    }
                    let found = self.queue(line.account).and_then(|queue| queue.get(&place));
                    let fits = match found {
                        None => need.is_zero() || line.is_along(),
                        Some(one) => {
                            let asks = !need.is_zero() && !line.is_along();
                            asks && one.slot == slot && one.need == need && one.discipline == wait.discipline
                        }
                    };
                    let Some(recount) = recounts.get_mut(line.account.at()).filter(|_| fits) else {
                        return wrong(format!("{} is not in a line it stands in", name()));
                    };
                    recount.waiting += usize::from(found.is_some());
                    waits |= found.is_some();
                }
                if !waits || !sorted(wanted) || !positive(wanted) {
                    return wrong(format!("{} waits in a wrong way", name()));
                }
                Ok(())
            }
        }
    }

    fn audit_account(&self, account: AccountId, entry: &Account, recount: &Recount) -> Result<(), AuditError> {
        if self.account(&entry.key) != Some(account)
            || !self.by_policy.get(&*entry.key.policy).is_some_and(|accounts| accounts.contains(&account.0))
        {
            return wrong(format!("{} is not found by its key", entry.key));
        }
        if (entry.used, entry.held) != (recount.used, recount.held) {
            return wrong(format!(
                "{}: used {} and held {}, but the lines add up to {} and {}",
                entry.key, entry.used, entry.held, recount.used, recount.held
            ));
        }
        let balance = entry.balance(account);
        if (balance.subjects, balance.waiting) != (recount.subjects, recount.waiting) {
            return wrong(format!("{}: its roster or line has entries without a subject", entry.key));
        }
        Ok(())
    }

    /// A number for everything the ledger says, independent of the way it got there: two ledgers that answer the
    /// same have the same digest, whatever indexes and slots they use.
    pub fn digest(&self) -> u64 {
        let mut total = Digest::of(|digest| digest.number(self.sequence.into()));
        for (key, balance) in self.balances() {
            total = total.wrapping_add(Digest::of(|digest| {
                digest.text(&key.to_string());
                digest.text(&format!("{:?}{:?}", balance.limit, balance.format));
                digest.number(u128::from_le_bytes(balance.used.nanos().to_le_bytes()));
                digest.number(u128::from_le_bytes(balance.held.nanos().to_le_bytes()));
                digest.number(balance.waiting as u128);
            }));
        }
        for subject in self.subjects.iter() {
            total = total.wrapping_add(Digest::of(|digest| self.digest_subject(subject, digest)));
        }
        total
    }

    fn digest_subject(&self, subject: &Subject, digest: &mut Digest) {
        digest.number(subject.id().0);
        digest.number(subject.sequence.into());
        let by_key = |lines: &[Line]| -> BTreeMap<String, String> {
            let along = |line: &Line| if line.is_along() { " along" } else { "" };
            let show = |line: &Line| format!("{} {:?}{}", line.amount().nanos(), line.format(), along(line));
            lines.iter().map(|line| (self.known(line.account).key.to_string(), show(line))).collect()
        };
        digest.text(&format!("{:?}", by_key(&subject.lines)));
        match subject.pending.as_deref() {
            None => {}
            Some(Pending::Hold { expires_at_ms, wanted, settled }) => {
                digest.text(&format!("hold {expires_at_ms} {:?} {:?}", by_key(wanted), by_key(settled)));
            }
            Some(Pending::Wait { wait: Wait { discipline, position }, wanted }) => {
                digest.text(&format!("wait {discipline:?} {position:?} {:?}", by_key(wanted)));
            }
        }
    }
}

/// FNV-1a with a final mix: the same on every machine and release, which a library's hasher does not promise.
struct Digest(u64);

impl Digest {
    fn of(fill: impl FnOnce(&mut Digest)) -> u64 {
        let mut digest = Digest(0xcbf2_9ce4_8422_2325);
        fill(&mut digest);
        let mixed = (digest.0 ^ (digest.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn number(&mut self, number: u128) {
        self.bytes(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u128);
        self.bytes(text.as_bytes());
    }
}
