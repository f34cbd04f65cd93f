//! What becomes of a hold but for time and its object: it is dropped, or what is under it is counted again. And holds that nobody
//! asked for: what is kept back.

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

    /// Holds this for a subject that is stored nowhere, in place of what it held: room that is taken already, though by no object of
    /// its own. Never refused for want of room; with nothing to hold the subject is gone. One that has something, or waits, is
    /// left as it is.
    pub fn keep_back(&mut self, subject: SubjectId, charges: &[Charge], expires_at_ms: i64) -> Result<Receipt, Denied> {
        let taken: Vec<Charge> = charges.iter().map(|charge| charge.on(Terms::Adopted)).collect();
        let wanted = Wanted::of(self, &taken, &Standing::Stored)?;
        let slot = self.subjects.find(subject);
        let known = slot.map(|slot| self.subjects.get(slot));
        if let Some(known) = known
            && !matches!(known.pending.as_deref(), Some(Pending::Hold { settled, .. }) if settled.is_empty())
        {
            return Ok(unchanged(known.outcome(), known.sequence));
        }
        let lines = self.cut_to_type(known.map_or(&[][..], |known| &known.lines), wanted.adopted);
        let had = known.map_or(&[][..], |known| &known.lines);
        let until = known.and_then(|known| match known.pending.as_deref() {
            Some(Pending::Hold { expires_at_ms, .. }) => Some(*expires_at_ms),
            _ => None,
        });
        if same_lines(had, &lines) && (lines.is_empty() || until == Some(expires_at_ms)) {
            let outcome = known.map_or(Outcome::Released, |known| known.outcome());
            return Ok(unchanged(outcome, known.map_or(self.sequence, |known| known.sequence)));
        }
        let mut step = self.begin();
        let slot = slot.unwrap_or_else(|| self.subjects.insert(subject, step.sequence));
        let (outcome, pending) = match lines.is_empty() {
            true => (Outcome::Released, None),
            false => {
                let pending = Pending::Hold { expires_at_ms, wanted: lines.clone(), settled: Lines::new() };
                (Outcome::Held { expires_at_ms }, Some(Box::new(pending)))
            }
        };
        self.replace(slot, lines, pending, &mut step);
        self.wake(&mut step);
        Ok(step.receipt(outcome))
    }
}
