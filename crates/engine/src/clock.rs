//! Time in the engine: it comes in with commands and never goes back. Where a rule says that its answer changes at some
//! moment, the object is measured again when that moment has come, in the first commit after it; and a policy that means
//! something else from some moment on is compiled again.

use rules::Subject;
use rules::cel::STEP_COST_MAX;

use crate::engine::Engine;
use crate::follow::Changed;
use crate::measured::strip;
use crate::object::ObjectKey;

impl Engine {
    /// Begins a step, and takes note of the time. What became due by it is measured again before anything else is decided.
    pub(crate) fn advance(&mut self, now_ms: i64) {
        self.allowance = STEP_COST_MAX;
        if std::mem::take(&mut self.is_restored) && now_ms < self.clock_ms {
            // The clock by which policies were judged before this start was ahead.
            self.clock_ms = now_ms;
            self.clock_unsaved = true;
            self.judge_all();
            self.find_due();
        }
        self.clock_ms = self.clock_ms.max(now_ms);
        if self.staging.is_some() {
            self.forsake();
        }
        // A hold that is over moves balances and serves others as a release does.
        let moved_from = self.touched.len();
        if self.ledger.next_expiry_ms().is_some_and(|at| at <= self.clock_ms) {
            let receipt = self.ledger.expire(self.clock_ms);
            self.note_receipt(&receipt);
        }
        let is_due = self.moments.next_ms().is_some_and(|at| at <= self.clock_ms);
        if !is_due && self.touched.len() == moved_from {
            return;
        }
        // By this time all of it was judged: a start with an earlier one must judge again.
        self.clock_unsaved |= is_due;
        while let Some(key) = self.moments.pop(self.clock_ms) {
            if let Some(object) = self.stored(&key).cloned() {
                if self.policy_resources.contains(&key.resource) {
                    self.judge_again(&object);
                }
                // Others have nothing new to say, and their expressions may take long.
                let text = std::str::from_utf8(&object.json).unwrap_or_default();
                let moved = self.rulebook.changing_with_time(&key.resource, &key.namespace, text);
                self.recount_moved(&object, &moved);
                self.changed.push(Changed { before: Some(object.clone()), after: Some(object), tree: None });
            }
        }
        self.follow(moved_from, self.clock_ms);
    }

    pub(crate) fn next_due_ms(&self) -> Option<i64> {
        self.moments.next_ms().into_iter().chain(self.ledger.next_expiry_ms()).min()
    }

    /// Takes note of when an object has to be measured again. One whose moment has passed was judged by the time as it is: that is
    /// stored, so that a start by an earlier clock judges it again.
    pub(crate) fn note_due(&mut self, key: &ObjectKey, until_ms: Option<i64>) {
        match until_ms {
            Some(at) if at > self.clock_ms => self.moments.note(key, at),
            Some(_) => self.clock_unsaved = true,
            None => {}
        }
    }

    /// The same for a policy that means something else from then on. By when it was judged is stored, so that a start does not
    /// judge it by another time.
    pub(crate) fn note_moment(&mut self, policy: &ObjectKey, until_ms: Option<i64>) {
        self.clock_unsaved |= until_ms.is_some();
        self.note_due(policy, until_ms);
    }

    fn judge_all(&mut self) {
        let shelves = self.policy_resources.iter().filter_map(|resource| self.shelves.of(resource));
        let policies: Vec<_> = shelves.flat_map(|shelf| shelf.values()).cloned().collect();
        policies.iter().for_each(|policy| self.judge_again(policy));
    }

    /// Finds all that changes with time. The clock of the last start was ahead: it may have let go of what is to be waited for by
    /// the time that is told now.
    fn find_due(&mut self) {
        let mut due = Vec::new();
        for object in self.shelves.all() {
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
            due.extend(until.map(|_| key.clone()));
        }
        due.iter().for_each(|key| self.moments.note(key, i64::MIN));
    }
}
