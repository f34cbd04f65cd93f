//! Applying: carries out what a decision said, and can no longer refuse.

use crate::answer::{Outcome, Receipt};
use crate::charge::{Line, Lines, SubjectId};
use crate::decide::{Plan, Verdict};
use crate::error::LedgerError;
use crate::ledger::{Ledger, unchanged};
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
            Verdict::Hold { lines, pending } => {
                let outcome = match *pending {
                    Pending::Hold { expires_at_ms, .. } => Outcome::Held { expires_at_ms },
                    Pending::Wait { .. } => Outcome::Queued,
                };
                (lines, Some(pending), outcome)
            }
            Verdict::Queue { lines, pending } => (lines, Some(pending), Outcome::Queued),
        };
        let mut step = self.begin();
        if let (Outcome::Queued, Some(Pending::Wait { wanted, .. })) = (&outcome, pending.as_deref()) {
            step.touched.extend(wanted.iter().map(|line| line.account));
        }
        let slot = plan.slot.unwrap_or_else(|| self.subjects.insert(plan.subject, step.sequence));
        self.replace(slot, lines, pending, &mut step);
        self.wake(&mut step);
        step.receipt(outcome)
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
