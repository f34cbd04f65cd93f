//! Explaining: why a subject is where it is, without changing anything.

use quantity::{Amount, Format};

use crate::account::{AccountId, AccountKey, Balance};
use crate::charge::{Line, SubjectId};
use crate::ledger::{Ledger, State};
use crate::subjects::Pending;
use crate::terms::{Discipline, Place};

/// Most names given of those ahead; the count beside them is complete.
pub const AHEAD_NAMED_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// `None` when the ledger does not know the subject.
    pub state: Option<State>,
    /// By account key.
    pub lines: Vec<ExplainedLine>,
}

/// One account's part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedLine {
    pub account: AccountId,
    pub key: AccountKey,
    /// What the subject has of it, holds of it, or waits for.
    pub amount: Amount,
    pub format: Format,
    pub balance: Balance,
    /// For a waiter: how much is missing, if this account lacks room.
    pub missing: Option<Amount>,
    /// For an ordered waiter: the best-placed one ahead of it that exhausts this account.
    pub blocked_by: Option<SubjectId>,
    /// For a waiter: how many are ahead of it here, and the first of them.
    pub ahead: usize,
    pub ahead_first: Vec<SubjectId>,
}

impl Explanation {
    /// The accounts for which a waiter waits.
    pub fn blocking(&self) -> impl Iterator<Item = &ExplainedLine> {
        self.lines.iter().filter(|line| line.missing.is_some() || line.blocked_by.is_some())
    }
}

impl Ledger {
    pub fn explain(&self, subject: SubjectId) -> Explanation {
        let Some(slot) = self.subjects.find(subject) else {
            return Explanation { state: None, lines: Vec::new() };
        };
        let known = self.subjects.get(slot);
        let state = self.subject(subject).map(|view| view.state);
        let mut lines: Vec<ExplainedLine> = match known.pending.as_deref() {
            None => known.lines.iter().map(|line| self.explain_line(line)).collect(),
            Some(Pending::Hold { wanted, .. }) => wanted.iter().map(|line| self.explain_line(line)).collect(),
            Some(Pending::Wait { discipline, position, wanted }) => {
                let place = Place::new(position, subject);
                wanted.iter().map(|line| self.explain_waiting(line, &place, *discipline)).collect()
            }
        };
        lines.sort_by(|left, right| left.key.cmp(&right.key));
        Explanation { state, lines }
    }

    fn explain_line(&self, line: &Line) -> ExplainedLine {
        let entry = self.known(line.account);
        ExplainedLine {
            account: line.account,
            key: entry.key.clone(),
            amount: line.amount(),
            format: line.format(),
            balance: entry.balance(line.account),
            missing: None,
            blocked_by: None,
            ahead: 0,
            ahead_first: Vec::new(),
        }
    }

    fn explain_waiting(&self, line: &Line, place: &Place, discipline: Discipline) -> ExplainedLine {
        let mut explained = self.explain_line(line);
        let room = self.known(line.account).room();
        if line.amount() > room {
            // While over a lowered limit the excess is missing, too; beyond the number type it cannot be told.
            explained.missing = Some(line.amount().checked_sub(room).unwrap_or(line.amount()));
        }
        let Some(queue) = self.queue(line.account) else { return explained };
        for (ahead, waiter) in queue.ahead_of(place) {
            explained.ahead += 1;
            if explained.ahead_first.len() < AHEAD_NAMED_MAX {
                explained.ahead_first.push(ahead.subject);
            }
            let exhausts = waiter.discipline == Discipline::Ordered && waiter.need > room;
            if discipline == Discipline::Ordered && exhausts && explained.blocked_by.is_none() {
                explained.blocked_by = Some(ahead.subject);
            }
        }
        explained
    }
}
