//! What becomes of a hold but for time and its object: it is dropped, or what is under it is counted again.

use crate::answer::{Denied, Outcome, Receipt};
use crate::charge::{Charge, Line, Lines, SubjectId, larger_of, same_lines};
use crate::ledger::{Ledger, unchanged};
use crate::subjects::Pending;
use crate::terms::{Standing, Terms};
use crate::wanted::Wanted;

impl Ledger {
    /// Whether a subject holds something.
    pub fn is_held(&self, subject: SubjectId) -> bool {
        let pending = self.subjects.find(subject).and_then(|slot| self.subjects.get(slot).pending.as_deref());
        matches!(pending, Some(Pending::Hold { .. }))
    }

    /// Everybody who holds something, the next to expire first.
    pub fn held(&self) -> impl Iterator<Item = SubjectId> {
        self.expiries.iter().map(|(_, subject)| *subject)
    }

    /// Lets go of what a subject holds before its time has come; what was settled before stays. Where nothing is held nothing
    /// changes.
    pub fn drop_hold(&mut self, subject: SubjectId) -> Receipt {
        let held = self.subjects.find(subject).filter(|_| self.is_held(subject));
        let Some(slot) = held else { return unchanged(Outcome::Released, self.sequence) };
        let settled: Lines = self.subjects.get(slot).settled().iter().map(Line::unplaced).collect();
        let mut step = self.begin();
        self.replace(slot, settled, None, &mut step);
        self.wake(&mut step);
        step.receipt(Outcome::Released)
    }

    /// Counts what is stored of a subject again, whatever it holds besides: that stays, and the larger of the two is occupied.
    /// Never refused for want of room. Of whom holds nothing, nothing changes.
    pub fn adopt_under(&mut self, subject: SubjectId, charges: &[Charge]) -> Result<Receipt, Denied> {
        let adopted: Vec<Charge> = charges.iter().map(|charge| charge.on(Terms::Adopted)).collect();
        let wanted = Wanted::of(self, &adopted, &Standing::Stored)?;
        let Some(slot) = self.subjects.find(subject) else {
            return Ok(unchanged(Outcome::Granted, self.sequence));
        };
        let known = self.subjects.get(slot);
        let Some(Pending::Hold { expires_at_ms, wanted: held, settled }) = known.pending.as_deref() else {
            return Ok(unchanged(known.outcome(), known.sequence));
        };
        let adopted = self.cut_to_type(&known.lines, wanted.adopted);
        if same_lines(settled, &adopted) {
            return Ok(unchanged(known.outcome(), known.sequence));
        }
        let (expires_at_ms, lines) = (*expires_at_ms, larger_of(&adopted, held));
        let pending = Pending::Hold { expires_at_ms, wanted: held.clone(), settled: adopted };
        let mut step = self.begin();
        self.replace(slot, lines, Some(Box::new(pending)), &mut step);
        self.wake(&mut step);
        Ok(step.receipt(Outcome::Held { expires_at_ms }))
    }
}
