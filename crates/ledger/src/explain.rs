//! Explaining: why a subject is where it is, without changing anything.

use quantity::{Amount, Format};

use crate::account::{AccountId, AccountKey, Balance, difference};
use crate::charge::{Line, SubjectId, amount_on, outside};
use crate::ledger::{Ledger, State};
use crate::queue::Waiter;
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
    /// What it is charged of that, whatever becomes of the rest.
    pub has: Amount,
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
    /// Whether the subject is charged anything on an account of this policy.
    pub fn has_of(&self, policy: &str) -> bool {
        self.lines.iter().any(|line| !line.has.is_zero() && &*line.key.policy == policy)
    }

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
            None => known.lines.iter().map(|line| self.explain_line(line, &known.lines)).collect(),
            Some(Pending::Hold { wanted, settled, .. }) => {
                wanted.iter().map(|line| self.explain_line(line, settled)).collect()
            }
            Some(Pending::Wait { wait, wanted }) => {
                let place = Place::new(&wait.position, subject);
                let at_once = outside(&known.lines, wanted);
                let at_once = at_once.iter().map(|line| self.explain_line(line, &known.lines));
                let waited_for =
                    wanted.iter().map(|line| self.explain_waiting(line, &known.lines, &place, wait.discipline));
                at_once.chain(waited_for).collect()
            }
        };
        lines.sort_by(|left, right| left.key.cmp(&right.key));
        Explanation { state, lines }
    }

    /// The accounts for which a waiter waits, by key. Nobody is counted: in a long line this is much cheaper than to
    /// explain.
    pub fn blocking(&self, subject: SubjectId) -> Vec<ExplainedLine> {
        let Some(known) = self.subjects.find(subject).map(|slot| self.subjects.get(slot)) else { return Vec::new() };
        let Some(Pending::Wait { wait, wanted }) = known.pending.as_deref() else { return Vec::new() };
        let place = Place::new(&wait.position, subject);
        let mut lines: Vec<ExplainedLine> = Vec::new();
        for line in wanted {
            let need = need_of(&known.lines, line);
            if need.is_zero() || line.is_along() {
                continue;
            }
            let room = self.known(line.account).room();
            let missing = missing(need, room);
            let first = match (self.queue(line.account), wait.discipline) {
                (Some(queue), Discipline::Ordered) => {
                    queue.ordered.range(..&place).find(|(_, one)| exhausts(one, room))
                }
                _ => None,
            };
            let blocked_by = first.map(|(ahead, _)| ahead.subject);
            if missing.is_some() || blocked_by.is_some() {
                lines.push(ExplainedLine { missing, blocked_by, ..self.explain_line(line, &known.lines) });
            }
        }
        lines.sort_by(|left, right| left.key.cmp(&right.key));
        lines
    }

    fn explain_line(&self, line: &Line, charged: &[Line]) -> ExplainedLine {
        let entry = self.known(line.account);
        ExplainedLine {
            account: line.account,
            key: entry.key.clone(),
            amount: line.amount(),
            has: amount_on(charged, line.account),
            format: line.format(),
            balance: entry.balance(line.account),
            missing: None,
            blocked_by: None,
            ahead: 0,
            ahead_first: Vec::new(),
        }
    }

    fn explain_waiting(&self, line: &Line, has: &[Line], place: &Place, discipline: Discipline) -> ExplainedLine {
        let (mut explained, need) = (self.explain_line(line, has), need_of(has, line));
        if need.is_zero() || line.is_along() {
            return explained;
        }
        let room = self.known(line.account).room();
        explained.missing = missing(need, room);
        let Some(queue) = self.queue(line.account) else { return explained };
        for (ahead, waiter) in queue.ahead_of(place) {
            explained.ahead += 1;
            if explained.ahead_first.len() < AHEAD_NAMED_MAX {
                explained.ahead_first.push(ahead.subject);
            }
            if discipline == Discipline::Ordered && explained.blocked_by.is_none() && exhausts(waiter, room) {
                explained.blocked_by = Some(ahead.subject);
            }
        }
        explained
    }
}

/// How much more a waiter wants of an account than it has.
fn need_of(occupied: &[Line], wanted: &Line) -> Amount {
    difference(wanted.amount(), amount_on(occupied, wanted.account))
}

/// How much an account lacks of a need. While over a lowered limit the excess is missing, too; beyond the number type it
/// cannot be told.
fn missing(need: Amount, room: Amount) -> Option<Amount> {
    (need > room).then(|| need.checked_sub(room).unwrap_or(need))
}

/// Whether a waiter keeps those behind it from an account.
fn exhausts(waiter: &Waiter, room: Amount) -> bool {
    waiter.discipline == Discipline::Ordered && waiter.need > room
}
