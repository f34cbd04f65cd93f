//! Time in the engine: it comes in with commands and never goes back. Where a rule says that its answer changes at some
//! moment, the object is measured again when that moment has come, in the first commit after it; and a policy that means
//! something else from some moment on is compiled again.

use rules::Subject;
use store::Batch;

use super::engine::Engine;
use super::event::Publication;
use super::follow::Changed;
use super::measured::strip;
use super::object::ObjectKey;

impl Engine {
    /// Takes note of the time. What became due by it is measured again before anything else is decided.
    pub(super) fn advance(&mut self, now_ms: i64, batch: &mut Batch, out: &mut Publication) {
        if std::mem::take(&mut self.is_restored) && now_ms < self.clock_ms {
            // The clock by which policies were judged before this start was ahead.
            self.clock_ms = now_ms;
            self.clock_unsaved = true;
            self.judge_all(out);
        }
        self.clock_ms = self.clock_ms.max(now_ms);
        let moved_from = self.touched.len();
        if self.ledger.next_expiry_ms().is_some_and(|at| at <= self.clock_ms) {
            let receipt = self.ledger.expire(self.clock_ms);
            self.note_receipt(&receipt, out);
        }
        if self.due.first().is_none_or(|(at, _)| self.clock_ms < *at) {
            return;
        }
        while let Some((at, key)) = self.due.pop_first() {
            if self.clock_ms < at {
                self.due.insert((at, key));
                break;
            }
            if let Some(object) = self.stored(&key).cloned() {
                if self.policy_resources.contains(&key.resource) {
                    self.clock_unsaved = true;
                    self.judge_again(&object, out);
                }
                self.recount_one(&object, out);
                self.changed.push(Changed { before: Some(object.clone()), after: Some(object) });
            }
        }
        self.follow(moved_from, self.clock_ms, batch, out);
    }

    pub(super) fn next_due_ms(&self) -> Option<i64> {
        self.due.first().map(|(at, _)| *at).into_iter().chain(self.ledger.next_expiry_ms()).min()
    }

    pub(super) fn note_due(&mut self, key: &ObjectKey, until_ms: Option<i64>) {
        if let Some(at) = until_ms {
            self.due.insert((at, key.clone()));
        }
    }

    /// The same for a policy that means something else from then on. By when it was judged is stored, so that a start does not
    /// judge it by another time.
    pub(super) fn note_moment(&mut self, policy: &ObjectKey, until_ms: Option<i64>) {
        self.clock_unsaved |= until_ms.is_some();
        self.note_due(policy, until_ms);
    }

    fn judge_all(&mut self, out: &mut Publication) {
        let shelves = self.policy_resources.iter().filter_map(|resource| self.shelves.get(resource));
        let policies: Vec<_> = shelves.flat_map(|shelf| shelf.values()).cloned().collect();
        policies.iter().for_each(|policy| self.judge_again(policy, out));
    }

    /// After a start: finds what becomes due, or was. Another machine's clock, or this one before it was set right, may have let
    /// go of what is to be waited for by the time that the first command tells: so all of it is measured then.
    pub(super) fn find_due(&mut self) {
        let mut due = Vec::new();
        for object in self.shelves.values().flat_map(|shelf| shelf.values()) {
            let key = &object.key;
            // An object that cannot be read as text has no rule that says so either.
            let text = std::str::from_utf8(&object.json).unwrap_or_default();
            if !self.rulebook.may_change_with_time(&key.resource, &key.namespace, text) {
                continue;
            }
            let mut value = object.value();
            strip(&mut value, self.projected_resources.contains(&key.resource));
            let subject = Subject::new(object.uid, &key.resource, &key.namespace, &key.name, &value);
            let until = self.rulebook.measure(&subject).ok().and_then(|verdict| verdict.until_ms);
            due.extend(until.map(|_| (i64::MIN, key.clone())));
        }
        self.due.extend(due);
    }
}
