//! Deciding: reads only, and holds every refusal.
//!
//! A decision covers the whole charge vector. It compares what the subject would occupy with what it occupies, asks
//! each account only about growth, and either names every account that says no or returns a plan that cannot fail.

use quantity::Amount;

use crate::account::{AccountId, Balance, Limit, difference, sum};
use crate::answer::{Denied, Outcome, Reason, Receipt};
use crate::books::Books;
use crate::charge::{
    Charge, Line, Lines, SubjectId, amount_on, larger_of, needs, outside, overlaid, same_lines, smaller_of,
};
use crate::ledger::Ledger;
use crate::queue::WAITERS_MAX;
use crate::subjects::{Pending, SUBJECTS_MAX, Subject};
use crate::terms::{Discipline, Place, Standing};
use crate::wanted::Wanted;

/// A decision that said yes, or said wait. Good for the ledger it was made on, until that takes another step.
#[must_use = "a plan changes nothing until it is applied"]
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) decided_at: u64,
    pub(crate) subject: SubjectId,
    pub(crate) slot: Option<u32>,
    pub(crate) verdict: Verdict,
}

#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// Everything is as asked already.
    Unchanged { outcome: Outcome, sequence: u64 },
    /// Occupy these lines, all settled.
    Charge { lines: Lines },
    /// Occupy these lines, of which the pending hold says what is settled.
    Hold { lines: Lines, pending: Box<Pending> },
    /// Occupy these lines and stand in line for more.
    Queue { lines: Lines, pending: Box<Pending> },
    /// Let go of everything. Only a step of several parts plans this.
    Release,
}

impl Verdict {
    /// What the subject would occupy where something changes.
    pub fn lines(&self) -> &[Line] {
        match self {
            Verdict::Charge { lines } | Verdict::Hold { lines, .. } | Verdict::Queue { lines, .. } => lines,
            Verdict::Unchanged { .. } | Verdict::Release => &[],
        }
    }

    pub fn outcome(&self) -> Outcome {
        match self {
            Verdict::Unchanged { outcome, .. } => outcome.clone(),
            Verdict::Charge { .. } => Outcome::Granted,
            Verdict::Hold { pending, .. } | Verdict::Queue { pending, .. } => pending.outcome(),
            Verdict::Release => Outcome::Released,
        }
    }
}

impl Plan {
    /// Whether applying it would put the subject in line instead of granting.
    pub fn queues(&self) -> bool {
        matches!(self.verdict, Verdict::Queue { .. } | Verdict::Unchanged { outcome: Outcome::Queued, .. })
    }

    /// Whether applying it would change nothing.
    pub fn is_unchanged(&self) -> bool {
        matches!(self.verdict, Verdict::Unchanged { .. })
    }
}

impl Ledger {
    /// Decides for a subject's whole charge vector. Changes nothing.
    pub fn decide(&self, subject: SubjectId, charges: &[Charge], standing: &Standing) -> Result<Plan, Denied> {
        let wanted = Wanted::of(self, charges, standing)?;
        let slot = self.subjects.find(subject);
        let current = slot.map(|slot| self.subjects.get(slot));
        let verdict = match self.as_asked(current, &wanted, standing) {
            Some(verdict) => verdict,
            None => self.judge(subject, current, wanted, standing)?,
        };
        Ok(Plan { decided_at: self.sequence, subject, slot, verdict })
    }

    /// Decides and applies.
    pub fn charge(&mut self, subject: SubjectId, charges: &[Charge], standing: &Standing) -> Result<Receipt, Denied> {
        let plan = self.decide(subject, charges, standing)?;
        Ok(self.apply(plan))
    }

    /// The balances of the named accounts if this were charged now, whatever its terms: by a new subject, or in place of
    /// what a known one has. Changes nothing.
    pub fn what_if(&self, subject: Option<SubjectId>, charges: &[Charge]) -> Result<Vec<Balance>, Denied> {
        let wanted = Wanted::all_enforced(self, charges)?;
        let current = subject.and_then(|subject| self.subjects.find(subject)).map(|slot| self.subjects.get(slot));
        let occupied = current.map_or(&[][..], |current| &current.lines);
        self.check_growth(occupied, &wanted)?;
        let settled = current.map(Subject::settled);
        let mut after = Vec::with_capacity(wanted.len());
        for line in &wanted {
            let mut balance = self.known(line.account).balance(line.account);
            let occupied = amount_on(occupied, line.account);
            let used = settled.map_or(Amount::ZERO, |settled| amount_on(settled, line.account));
            if sum(balance.used, balance.held).is_zero() {
                balance.format = line.format();
            }
            balance.used = sum(difference(balance.used, used), line.amount());
            balance.held = difference(balance.held, difference(occupied, used));
            balance.subjects += usize::from(occupied.is_zero());
            after.push(balance);
        }
        Ok(after)
    }

    /// The verdict when the subject already is what is asked, so that a repeated request is answered as the first.
    #[inline(always)]
    pub(crate) fn as_asked(&self, current: Option<&Subject>, wanted: &Wanted, standing: &Standing) -> Option<Verdict> {
        let Some(current) = current else {
            // Nothing asked for a subject that has nothing.
            let nothing = Verdict::Unchanged { outcome: Outcome::Granted, sequence: self.sequence };
            return wanted.is_empty().then_some(nothing);
        };
        let same = match (current.pending.as_deref(), standing) {
            (None, _) => wanted.is(&current.lines),
            (Some(Pending::Hold { expires_at_ms: now, wanted: held, .. }), Standing::Held { expires_at_ms }) => {
                now == expires_at_ms && wanted.is(held)
            }
            (Some(Pending::Wait { wait: now, wanted: needs }), Standing::MayWait(wait)) => {
                let at_once = || same_lines(&outside(&current.lines, needs), &wanted.at_once());
                now == wait && same_lines(needs, &wanted.in_line) && at_once()
            }
            _ => false,
        };
        same.then(|| Verdict::Unchanged { outcome: current.outcome(), sequence: current.sequence })
    }

    #[inline(always)]
    fn judge(
        &self,
        subject: SubjectId,
        current: Option<&Subject>,
        wanted: Wanted,
        standing: &Standing,
    ) -> Result<Verdict, Denied> {
        if current.is_none() && self.subjects.len() >= SUBJECTS_MAX {
            return Err(self.refused_by(wanted.all().iter().map(|line| (line.charge(), Reason::Full))));
        }
        let occupied = current.map_or(&[][..], |current| &current.lines);
        if let Standing::Held { expires_at_ms } = standing {
            let settled: Lines =
                current.map_or_else(Lines::new, |current| current.settled().iter().map(Line::unplaced).collect());
            let lines = larger_of(&settled, &wanted.enforced);
            self.check_growth(occupied, &lines)?;
            let pending = Pending::Hold { expires_at_ms: *expires_at_ms, wanted: wanted.enforced, settled };
            return Ok(Verdict::Hold { lines, pending: Box::new(pending) });
        }
        self.check_growth(occupied, &wanted.enforced)?;
        if wanted.adopted.is_empty() && wanted.in_line.is_empty() {
            return Ok(Verdict::Charge { lines: wanted.enforced });
        }
        let Wanted { enforced, adopted, in_line } = wanted;
        let mut lines = enforced;
        if !adopted.is_empty() {
            // What is there already cannot be refused, nor may the end of the number type on one account keep it from being
            // counted on the others: that account is full up to its last unit, and refuses whoever comes next.
            lines = overlaid(&lines, &self.cut_to_type(occupied, adopted));
        }
        let Some(wait) = standing.wait().filter(|_| !in_line.is_empty()) else {
            return Ok(Verdict::Charge { lines });
        };
        let place = Place::new(&wait.position, subject);
        let may_pass = wait.discipline == Discipline::Greedy || !self.is_behind(occupied, &in_line, &place);
        match self.check_growth(occupied, &in_line) {
            Ok(()) if may_pass => return Ok(Verdict::Charge { lines: overlaid(&lines, &in_line) }),
            // No release makes these fit, so waiting would be forever.
            Err(denied) if denied.lines.iter().any(|line| line.reason == Reason::Overflow) => return Err(denied),
            Ok(()) | Err(_) => {}
        }
        self.check_queues(occupied, &in_line)?;
        lines = overlaid(&lines, &smaller_of(occupied, &in_line));
        let pending = Pending::Wait { wait: wait.clone(), wanted: in_line };
        Ok(Verdict::Queue { lines, pending: Box::new(pending) })
    }

    /// Asks every account about the growth on it, and collects every no.
    fn check_growth(&self, occupied: &[Line], wanted: &[Line]) -> Result<(), Denied> {
        let grown = || needs(occupied, wanted).filter(|(account, growth)| *growth > self.known(*account).room());
        if grown().next().is_none() {
            return Ok(());
        }
        let told = grown().map(|(account, growth)| {
            let reason = match self.known(account).limit {
                Limit::Enforced(_) => Reason::OverLimit,
                Limit::Unlimited | Limit::Observed(_) => Reason::Overflow,
            };
            let format = wanted.iter().find(|line| line.account == account).map(Line::format);
            (Charge::new(account, growth, format.unwrap_or_default()), reason)
        });
        Err(self.refused_by(told))
    }

    /// The lines with no growth beyond what the number type still holds.
    pub(crate) fn cut_to_type(&self, occupied: &[Line], mut wanted: Lines) -> Lines {
        for line in &mut wanted {
            let had = amount_on(occupied, line.account);
            let room = self.known(line.account).room_of_type();
            if difference(line.amount(), had) > room {
                *line = Line::new(line.account, sum(had, room), line.format());
            }
        }
        wanted.retain(|line| !line.amount().is_zero());
        wanted
    }

    /// Whether a better-placed ordered waiter exhausts an account on which this one wants to grow.
    fn is_behind(&self, occupied: &[Line], wanted: &[Line], place: &Place) -> bool {
        wanted.iter().any(|line| {
            let account = self.known(line.account);
            let grows = !line.is_along() && line.amount() > amount_on(occupied, line.account);
            let queue = account.queue.as_deref().filter(|_| grows);
            let is_other = |ahead: SubjectId| ahead != place.subject;
            queue.is_some_and(|queue| queue.ordered_need_ahead_of(place, is_other) > account.room())
        })
    }

    /// Whether the lines of waiters have a place left.
    fn check_queues(&self, occupied: &[Line], wanted: &[Line]) -> Result<(), Denied> {
        let is_full = |account| self.queue(account).is_some_and(|queue| queue.len() >= WAITERS_MAX);
        if !needs(occupied, wanted).any(|(account, _)| is_full(account)) {
            return Ok(());
        }
        let full = wanted.iter().filter(|line| is_full(line.account));
        Err(self.refused_by(full.map(|line| (line.charge(), Reason::Full))))
    }

    /// The account of an id, for callers that hold one from elsewhere.
    pub fn is_open(&self, account: AccountId) -> bool {
        self.get(account).is_some()
    }
}
