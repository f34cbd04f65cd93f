//! Which rows must be written: collected while stepping, handed over once a group.

use crate::account::AccountId;
use crate::charge::SubjectId;

/// Marks kept before repeated ones are squeezed out. A ledger that nobody drains (a simulation, a test) stays as
/// small as what it changed.
const MARKS_BEFORE_SQUEEZE: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    accounts: Vec<AccountId>,
    subjects: Vec<SubjectId>,
    squeeze_at: usize,
}

impl Changes {
    pub fn account(&mut self, account: AccountId) {
        if self.accounts.last() != Some(&account) {
            self.accounts.push(account);
        }
    }

    pub fn subject(&mut self, subject: SubjectId) {
        self.subjects.push(subject);
        if self.subjects.len() > self.squeeze_at.max(MARKS_BEFORE_SQUEEZE) {
            self.squeeze();
            self.squeeze_at = self.subjects.len() * 2;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty() && self.subjects.is_empty()
    }

    /// Takes the marks, sorted and each once.
    pub fn take(&mut self) -> (Vec<AccountId>, Vec<SubjectId>) {
        self.squeeze();
        self.squeeze_at = 0;
        (std::mem::take(&mut self.accounts), std::mem::take(&mut self.subjects))
    }

    /// Gives the emptied lists back, so that the next group needs no new ones.
    pub fn recycle(&mut self, mut accounts: Vec<AccountId>, mut subjects: Vec<SubjectId>) {
        accounts.clear();
        subjects.clear();
        (self.accounts, self.subjects) = (accounts, subjects);
    }

    fn squeeze(&mut self) {
        self.accounts.sort_unstable();
        self.accounts.dedup();
        self.subjects.sort_unstable();
        self.subjects.dedup();
    }
}
