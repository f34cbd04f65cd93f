//! The ledger as it was at one step, for whoever wants to look at all of it without holding it up.
//!
//! Taking one costs a little for each account and nothing for a subject: subjects are shared in chunks, and a chunk is
//! copied when the ledger changes it while the snapshot lives.

use std::sync::Arc;

use crate::account::{AccountId, AccountKey, Balance};
use crate::charge::{SubjectId, charges};
use crate::ledger::{Ledger, SubjectView, view_of};
use crate::subjects::Subject;

pub struct Snapshot {
    sequence: u64,
    /// By id; none where an account was closed.
    accounts: Vec<Option<(AccountKey, Balance)>>,
    subjects: Vec<Arc<Vec<Subject>>>,
}

impl Ledger {
    pub fn snapshot(&self) -> Snapshot {
        let ids = (0u32..).map(AccountId);
        let accounts = ids.zip(&self.accounts).map(|(id, entry)| {
            let entry = entry.as_ref()?;
            Some((entry.key.clone(), entry.balance(id)))
        });
        Snapshot { sequence: self.sequence, accounts: accounts.collect(), subjects: self.subjects.chunks() }
    }
}

impl Snapshot {
    /// The number of the last step that it shows.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    pub fn key(&self, account: AccountId) -> Option<&AccountKey> {
        self.accounts.get(account.at())?.as_ref().map(|(key, _)| key)
    }

    /// Every open account, by id.
    pub fn balances(&self) -> impl Iterator<Item = (&AccountKey, &Balance)> {
        self.accounts.iter().flatten().map(|(key, balance)| (key, balance))
    }

    /// Every live subject, in no meaningful order. What it occupies comes with it: what it is charged or holds, which
    /// for one that waits is nothing.
    pub fn subjects(&self) -> impl Iterator<Item = (SubjectId, SubjectView, Vec<crate::Charge>)> {
        let live = self.subjects.iter().flat_map(|chunk| chunk.iter()).filter(|subject| subject.sequence != 0);
        live.map(|subject| (subject.id(), view_of(subject), charges(&subject.lines)))
    }
}
