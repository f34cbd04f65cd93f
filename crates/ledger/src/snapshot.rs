//! The ledger as it was at one step, for whoever wants to look at all of it without holding it up.
//!
//! Taking one costs a little for each account and nothing for a subject: subjects are shared in chunks, and a chunk is
//! copied when the ledger changes it while the snapshot lives.

use std::collections::BTreeMap;
use std::sync::Arc;

use quantity::Amount;

use crate::account::{AccountId, AccountKey, Balance};
use crate::charge::{SubjectId, charges, needs};
use crate::ledger::{Ledger, SubjectView, view_of};
use crate::subjects::{Pending, Subject};
use crate::terms::{Discipline, Place};

/// What a waiter lacks, account by account.
type Needs = Vec<(AccountId, Amount)>;

pub struct Snapshot {
    sequence: u64,
    /// By id; none where an account was closed.
    accounts: Vec<Option<Open>>,
    subjects: Vec<Arc<Vec<Subject>>>,
}

struct Open {
    key: AccountKey,
    balance: Balance,
    room: Amount,
}

impl Ledger {
    pub fn snapshot(&self) -> Snapshot {
        let ids = (0u32..).map(AccountId);
        let accounts = ids.zip(&self.accounts).map(|(id, entry)| {
            let entry = entry.as_ref()?;
            Some(Open { key: entry.key.clone(), balance: entry.balance(id), room: entry.room() })
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
        self.accounts.get(account.at())?.as_ref().map(|open| &open.key)
    }

    /// Every open account, by id.
    pub fn balances(&self) -> impl Iterator<Item = (&AccountKey, &Balance)> {
        self.accounts.iter().flatten().map(|open| (&open.key, &open.balance))
    }

    /// Every live subject, in no meaningful order. What it occupies comes with it: what it is charged or holds, or has
    /// while it waits for more.
    pub fn subjects(&self) -> impl Iterator<Item = (SubjectId, SubjectView, Vec<crate::Charge>)> {
        self.live().map(|subject| (subject.id(), view_of(subject), charges(&subject.lines)))
    }

    /// Whoever stands in a line although there is room for all that it needs, and nobody ahead who comes first.
    pub fn fitting(&self) -> Vec<SubjectId> {
        let mut waiters: Vec<(Place, Discipline, Needs)> = Vec::new();
        for subject in self.live() {
            if let Some(Pending::Wait { wait, wanted }) = subject.pending.as_deref() {
                let needs = needs(&subject.lines, wanted).collect();
                waiters.push((Place::new(&wait.position, subject.id()), wait.discipline, needs));
            }
        }
        waiters.sort_by(|(left, ..), (right, ..)| left.cmp(right));
        // The largest need of those in order who are ahead: with less room than that, nobody in order may pass.
        let mut ahead: BTreeMap<AccountId, Amount> = BTreeMap::new();
        let mut fitting = Vec::new();
        for (place, discipline, needs) in waiters {
            let ordered = discipline == Discipline::Ordered;
            let fits = needs.iter().all(|(account, need)| {
                let room = self.accounts.get(account.at()).and_then(Option::as_ref).map(|open| open.room);
                let first = ahead.get(account).copied().filter(|_| ordered).unwrap_or_default();
                room.is_some_and(|room| (*need).max(first) <= room)
            });
            if fits {
                fitting.push(place.subject);
            }
            for (account, need) in needs.into_iter().filter(|_| ordered) {
                let most = ahead.entry(account).or_default();
                *most = need.max(*most);
            }
        }
        fitting
    }

    fn live(&self) -> impl Iterator<Item = &Subject> {
        self.subjects.iter().flat_map(|chunk| chunk.iter()).filter(|subject| subject.sequence != 0)
    }
}

#[cfg(test)]
mod tests {
    use quantity::Format;

    use super::*;
    use crate::{Charge, Limit, Position, Standing, Terms, Wait};

    #[test]
    fn whoever_waits_although_it_fits_is_found() {
        let mut ledger = Ledger::new();
        let account = ledger.open(AccountKey::new("pool", "pods", ""), Limit::Enforced(Amount::from_units(2))).unwrap();
        let mut ask = |subject: u128, units: i64, discipline| {
            let charge = Charge::new(account, Amount::from_units(units), Format::DecimalSi).on(Terms::InLine);
            let arrived = i64::try_from(subject).unwrap();
            let wait = Wait { discipline, position: Position { priority: 0, arrived, tie: "".into() } };
            let _ = ledger.charge(SubjectId(subject), &[charge], &Standing::MayWait(wait)).unwrap();
        };
        ask(1, 9, Discipline::Ordered);
        ask(2, 1, Discipline::Ordered);
        ask(3, 3, Discipline::Greedy);
        ask(4, 4, Discipline::Ordered);
        assert_eq!(ledger.snapshot().fitting(), []);
        // Limits that nobody was woken for.
        for (limit, fitting) in [(3, vec![3]), (8, vec![3]), (9, vec![1, 2, 3, 4])] {
            ledger.get_mut(account).unwrap().limit = Limit::Enforced(Amount::from_units(limit));
            let found: Vec<u128> = ledger.snapshot().fitting().iter().map(|subject| subject.0).collect();
            assert_eq!(found, fitting, "{limit}");
        }
    }
}
