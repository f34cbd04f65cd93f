//! Applying: carries out what a decision said, and can no longer refuse.

use crate::answer::{Outcome, Receipt};
use crate::charge::{Line, Lines, SubjectId};
use crate::decide::{Plan, Verdict};
use crate::decide_all::StepPlan;
use crate::error::LedgerError;
use crate::ledger::{Ledger, Step, unchanged};
use crate::subjects::Pending;

impl Ledger {
    /// Carries out a plan.
    ///
    /// # Panics
    /// If the ledger took another step since the plan was decided. Applying it then could break a limit, and a
    /// stopped ledger is better than a wrong one. [`Ledger::charge`] cannot get there.
    pub fn apply(&mut self, plan: Plan) -> Receipt {
        assert_eq!(plan.decided_at, self.sequence, "a plan is applied to the ledger it was decided on, or not at all");
        let (lines, pending, outcome) = match plan.verdict {
            Verdict::Unchanged { outcome, sequence } => return unchanged(outcome, sequence),
            Verdict::Charge { lines } => (lines, None, Outcome::Granted),
            Verdict::Hold { lines, pending } | Verdict::Queue { lines, pending } => {
                let outcome = pending.outcome();
                (lines, Some(pending), outcome)
            }
            // Taken out like the others, so that nothing is left of the verdict to be dropped.
            released @ Verdict::Release => (Lines::from(released.lines()), None, Outcome::Released),
        };
        let mut step = self.begin();
        self.carry_out(plan.subject, plan.slot, lines, pending, &mut step);
        self.wake(&mut step);
        step.receipt(outcome)
    }

    /// Carries out all parts of a step under one number, then wakes who waits. A step of one subject alone is what
    /// [`Ledger::apply`] would have made of it.
    ///
    /// # Panics
    /// As [`Ledger::apply`] does.
    pub fn apply_all(&mut self, plan: StepPlan) -> Receipt {
        assert_eq!(plan.decided_at, self.sequence, "a plan is applied to the ledger it was decided on, or not at all");
        let alone = plan.only_part().map(|part| part.verdict.outcome());
        let waiting: Vec<SubjectId> = plan.parts.iter().filter(|part| part.queues()).map(|part| part.subject).collect();
        if plan.is_unchanged() {
            return match (plan.only_part().map(|part| &part.verdict), alone) {
                (Some(Verdict::Unchanged { sequence, .. }), Some(outcome)) => unchanged(outcome, *sequence),
                _ => unchanged(Outcome::Step { queued: waiting }, self.sequence),
            };
        }
        let mut step = self.begin();
        for (account, entry) in plan.opened {
            let placed = self.place_account(entry.key, entry.limit);
            assert_eq!(placed, account, "an account gets the id that it was planned with");
            self.known_mut(account).discounts = entry.discounts;
            self.changes.account(account);
            step.touched.push(account);
        }
        for (account, limit, discounts) in plan.settings {
            self.known_mut(account).discounts = discounts;
            self.change_limit(account, limit, &mut step);
            self.changes.account(account);
        }
        let changed = plan.parts.iter().filter(|part| !part.is_unchanged());
        for slot in changed.filter_map(|part| part.slot).filter(|_| plan.gives_back_first) {
            self.replace(slot, Lines::new(), None, &mut step);
        }
        for part in plan.parts {
            let slot = if plan.gives_back_first { self.subjects.find(part.subject) } else { part.slot };
            let (lines, pending) = match part.verdict {
                Verdict::Unchanged { .. } => continue,
                Verdict::Charge { lines } => (lines, None),
                Verdict::Hold { lines, pending } | Verdict::Queue { lines, pending } => (lines, Some(pending)),
                Verdict::Release if slot.is_none() => continue,
                Verdict::Release => (Lines::new(), None),
            };
            self.carry_out(part.subject, slot, lines, pending, &mut step);
        }
        for (account, format) in plan.formats {
            let entry = self.known_mut(account);
            if entry.format != format {
                entry.format = format;
                self.changes.account(account);
            }
        }
        self.wake(&mut step);
        let queued = || waiting.into_iter().filter(|subject| self.is_waiting(*subject)).collect();
        let outcome = alone.unwrap_or_else(|| Outcome::Step { queued: queued() });
        step.receipt(outcome)
    }

    /// Exchanges what a subject has. Inlined: it is on the path of every single decision.
    #[inline(always)]
    fn carry_out(
        &mut self,
        subject: SubjectId,
        slot: Option<u32>,
        lines: Lines,
        pending: Option<Box<Pending>>,
        step: &mut Step,
    ) {
        if let Some(Pending::Wait { wanted, .. }) = pending.as_deref() {
            step.touched.extend(wanted.iter().map(|line| line.account));
        }
        let slot = slot.unwrap_or_else(|| self.subjects.insert(subject, step.sequence));
        self.replace(slot, lines, pending, step);
    }

    /// Lets go of everything a subject has, holds or waits for. Releasing what is not there is fine.
    pub fn release(&mut self, subject: SubjectId) -> Receipt {
        let Some(slot) = self.subjects.find(subject) else {
            return unchanged(Outcome::Released, self.sequence);
        };
        let mut step = self.begin();
        self.replace(slot, Lines::new(), None, &mut step);
        self.wake(&mut step);
        step.receipt(Outcome::Released)
    }

    /// Turns a hold into a charge, because the object was seen. Settling what is charged already changes nothing.
    pub fn settle(&mut self, subject: SubjectId) -> Result<Receipt, LedgerError> {
        let slot = self.subjects.find(subject).ok_or(LedgerError::UnknownSubject { subject })?;
        let known = self.subjects.get(slot);
        let wanted: Lines = match known.pending.as_deref() {
            None => return Ok(unchanged(Outcome::Settled, known.sequence)),
            Some(Pending::Wait { .. }) => return Err(LedgerError::NothingHeld { subject }),
            Some(Pending::Hold { wanted, .. }) => wanted.clone(),
        };
        let mut step = self.begin();
        self.replace(slot, wanted, None, &mut step);
        self.wake(&mut step);
        Ok(step.receipt(Outcome::Settled))
    }

    /// Drops every hold whose time has come, in one step. What was settled before a hold stays.
    pub fn expire(&mut self, now_ms: i64) -> Receipt {
        if self.next_expiry_ms().is_none_or(|first| first > now_ms) {
            return unchanged(Outcome::Expired { subjects: Vec::new() }, self.sequence);
        }
        let mut step = self.begin();
        let mut expired = Vec::new();
        while let Some((at, subject)) = self.expiries.first().copied() {
            if at > now_ms {
                break;
            }
            let slot = self.subjects.find(subject).expect("an expiry names a live subject");
            let settled: Lines = self.subjects.get(slot).settled().iter().map(Line::unplaced).collect();
            self.replace(slot, settled, None, &mut step);
            expired.push(subject);
        }
        self.wake(&mut step);
        step.receipt(Outcome::Expired { subjects: expired })
    }
}
