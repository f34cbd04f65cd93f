//! The recount: what objects are charged follows when the rules that look at them change. Only the policies that changed are
//! asked; what others charge stays as the ledger has it.

use std::sync::Arc;

use ledger::{Charge, Receipt, Standing, State, SubjectId, Terms};
use rules::cel::{Budget, Known, Question, within};
use rules::{GroupResource, Line, MeasureError, Namespace, PolicyId, Subject, Verdict};
use serde_json::Value;

use crate::decide::standing;
use crate::engine::{Engine, NamespaceState};
use crate::measured::strip;
use crate::object::{Object, string_map};
use crate::policies::open_parts;

impl Engine {
    /// Measures every object in these places again, by the policies that moved, in their order; by all where none are named.
    pub(crate) fn recount(&mut self, places: &[(GroupResource, Arc<str>)], moved: Option<&[PolicyId]>) {
        for places in places.chunk_by(|(one, _), (next, _)| one == next) {
            let resource = &places[0].0;
            let all = places.iter().flat_map(|(resource, namespace)| self.objects_in(resource, namespace));
            let mut objects: Vec<_> = all.cloned().collect();
            if self.may_wait(resource) {
                self.step_aside(places);
                // Those who have something are counted first; those who stand in line come in the order in which they would have.
                objects.sort_by_key(|object| (!self.ledger.is_live(object.uid), object.born));
            }
            for object in objects {
                if self.projected_resources.contains(resource) {
                    self.mark_stale(object.key.clone());
                }
                match moved {
                    Some(moved) => self.recount_moved(&object, moved),
                    None => self.recount_one(&object),
                };
            }
        }
    }

    /// Takes those in these places who wait and have nothing out of their lines, until they are measured again: what rules that
    /// no longer hold would grant them, while others are counted, is not theirs.
    pub(crate) fn step_aside(&mut self, places: &[(GroupResource, Arc<str>)]) {
        for (resource, namespace) in
            places.iter().filter(|(resource, _)| self.may_wait(resource)).cloned().collect::<Vec<_>>()
        {
            let objects = self.objects_in(&resource, &namespace).map(|object| object.uid);
            let waiting: Vec<SubjectId> = objects.filter(|uid| self.ledger.is_waiting(*uid)).collect();
            self.leave_lines(waiting);
        }
    }

    /// Measures everything again that is charged, or would be.
    pub(crate) fn recount_all(&mut self) {
        let mut objects: Vec<_> = self.shelves.all().cloned().collect();
        objects.retain(|object| {
            let key = &object.key;
            self.rulebook.concerns(&key.resource, &key.namespace) || self.ledger.is_live(object.uid)
        });
        objects.sort_by_key(|object| object.born);
        for object in objects {
            self.recount_one(&object);
        }
    }

    /// Measures one object again. What it is charged follows; it is not refused.
    /// Whether it could be.
    pub(crate) fn recount_one(&mut self, object: &Object) -> bool {
        // An object that cannot be read keeps what it was charged.
        let Some(value) = self.seen(object) else { return false };
        // An object that a rule cannot measure keeps what it was charged; the audit names it.
        let Ok(mut verdict) = self.measure_stored(object, &value, None) else { return false };
        self.leave_to_slices(&mut verdict);
        self.leave_line(object.uid, &mut verdict);
        self.charge_measured(object, &verdict, Vec::new());
        true
    }

    /// The same by these policies alone.
    pub(crate) fn recount_moved(&mut self, object: &Object, moved: &[PolicyId]) -> bool {
        if self.is_projected(&object.key.resource) {
            return self.recount_one(object);
        }
        let Some(value) = self.seen(object) else { return false };
        let verdict = self.measure_stored(object, &value, Some(moved));
        self.charge_moved(object, verdict, moved)
    }

    /// The same within what is left of a budget; the object as rules see it, and expressions that are wanted of it, where that is
    /// too little.
    pub(crate) fn recount_within(
        &mut self,
        object: &Object,
        moved: &[PolicyId],
        known: &mut Option<Box<Known>>,
        budget: &mut Budget,
    ) -> Result<bool, (Value, Vec<Question>)> {
        let Some(value) = self.seen(object) else { return Ok(false) };
        let (verdict, put_off) = within(budget, known, &value, || self.measure_stored(object, &value, Some(moved)));
        match put_off {
            Some(wanted) => Err((value, wanted)),
            None => Ok(self.charge_ahead(object, verdict, moved)),
        }
    }

    /// Counts an object by shadows; of one that may wait what it has already.
    fn charge_ahead(&mut self, object: &Object, verdict: Result<Verdict, MeasureError>, shadows: &[PolicyId]) -> bool {
        let Ok(mut verdict) = verdict else { return false };
        self.leave_to_step(object.uid, &mut verdict);
        if verdict.lines.is_empty() && self.ledger.is_waiting(object.uid) {
            self.missed.push((object.uid, verdict.missed));
            return true;
        }
        self.charge_moved(object, Ok(verdict), shadows)
    }

    /// A stored object as rules see it; none where it cannot be read.
    fn seen(&self, object: &Object) -> Option<Value> {
        let mut value = object.read().ok()?;
        strip(&mut value, self.is_projected(&object.key.resource));
        Some(value)
    }

    fn measure_stored(&self, object: &Object, value: &Value, by: Option<&[PolicyId]>) -> Result<Verdict, MeasureError> {
        let key = &object.key;
        let subject = Subject::new(object.uid, &key.resource, &key.namespace, &key.name, value);
        let subject = subject.at(self.clock_ms).born(object.born);
        match by {
            Some(policies) => self.rulebook.measure_by(&subject, policies),
            None => self.knowing(object.uid, value, || self.rulebook.measure(&subject)),
        }
    }

    fn charge_moved(&mut self, object: &Object, verdict: Result<Verdict, MeasureError>, moved: &[PolicyId]) -> bool {
        let Ok(verdict) = verdict else { return false };
        match self.charged_by_others(object.uid, moved).filter(|_| verdict.wait.is_none()) {
            Some(kept) => self.charge_measured(object, &verdict, kept),
            None => return self.recount_one(object),
        }
        true
    }

    /// What an object is charged by other policies than these, as the ledger has it; of one that is held, what stays of it without
    /// that. None for one that waits: only all of its rules together say how it stands.
    fn charged_by_others(&self, subject: SubjectId, moved: &[PolicyId]) -> Option<Vec<Charge>> {
        let Some(view) = self.ledger.subject(subject) else { return Some(Vec::new()) };
        // What is left on retired accounts is nobody's.
        let is_others = |charge: &Charge| {
            let policy = self.policies.policy_of(&self.ledger, charge.account);
            policy.is_some_and(|policy| moved.binary_search(&policy).is_err())
        };
        let waits = matches!(view.state, State::Waiting(_));
        (!waits).then(|| view.into_charged().into_iter().filter(is_others).map(|one| one.on(Terms::Adopted)).collect())
    }

    fn charge_measured(&mut self, object: &Object, verdict: &Verdict, kept: Vec<Charge>) {
        if !verdict.missed.is_empty() {
            self.missed.push((object.uid, verdict.missed.clone()));
        }
        // In a slice whoever counts it takes note.
        if self.staging.is_some() {
            self.note_missed(&object.key, object.uid);
        }
        self.note_due(&object.key, verdict.until_ms);
        self.charge_again(object.uid, &verdict.lines, kept, &standing(verdict));
        self.name_subject(&object.key, object.uid);
    }

    fn charge_again(&mut self, subject: SubjectId, lines: &[Line], kept: Vec<Charge>, standing: &Standing) {
        let (mut charges, unopened) = self.policies.charges(&self.ledger, lines, Terms::Adopted);
        if !unopened.is_empty() {
            if let Err(error) = open_parts(&mut self.ledger, unopened) {
                tracing::error!(%error, "a part of an account could not be opened: a bug");
            }
            charges = self.policies.charges(&self.ledger, lines, Terms::Adopted).0;
        }
        charges.extend(kept);
        if self.ledger.is_held(subject) {
            return self.charge_under(subject, &charges);
        }
        if charges.is_empty() && !self.ledger.is_live(subject) {
            return;
        }
        let had = self.ledger.is_live(subject) && !self.ledger.is_waiting(subject);
        match self.ledger.decide(subject, &charges, standing) {
            Ok(plan) => {
                let receipt = self.ledger.apply(plan);
                self.note_receipt(&receipt);
                // Whoever waited, and is served because rules are others now, is told in the same step, as those are who are woken.
                let may_wait = self.subjects.get(&subject).is_some_and(|key| self.may_wait(&key.resource));
                if may_wait && !had && self.ledger.is_live(subject) && !self.ledger.is_waiting(subject) {
                    self.note_served(subject);
                }
            }
            // Adopting is never refused; a line of waiters can be full.
            Err(denied) => tracing::error!(%denied, "an object could not be counted again"),
        }
    }

    pub(crate) fn objects_in(
        &self,
        resource: &GroupResource,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &Arc<Object>> {
        self.shelves.within(resource, namespace)
    }

    /// Remembers what a step of the ledger touched: balances to publish, statuses to mend.
    pub(crate) fn note_receipt(&mut self, receipt: &Receipt) {
        self.touched.extend_from_slice(&receipt.touched);
        receipt.woken.iter().for_each(|subject| self.note_served(*subject));
    }

    fn note_served(&mut self, subject: SubjectId) {
        if let Some(key) = self.subjects.get(&subject).cloned() {
            self.note_standing(&key, subject);
            self.woken.push(key.clone());
            self.stale.mark_served(key);
            self.effects.stale_status = true;
        }
    }

    pub(crate) fn namespace_stored(&mut self, name: &Arc<str>, value: &Value) {
        let seen = namespace_seen(name, value);
        let terminating = value.pointer("/metadata/deletionTimestamp").is_some();
        let before = self.namespaces.insert(name.clone(), NamespaceState { seen: seen.clone(), terminating });
        if before.is_some_and(|before| before.seen == seen) {
            return;
        }
        self.namespace_moved(&seen, true);
    }

    pub(crate) fn namespace_removed(&mut self, name: &Arc<str>) {
        if let Some(state) = self.namespaces.remove(name) {
            self.namespace_moved(&state.seen, false);
        }
    }

    /// A namespace came under, or left, policies that select namespaces: its objects' charges follow.
    fn namespace_moved(&mut self, namespace: &Namespace, present: bool) {
        let is_staged = present && self.staging.is_some();
        let prepared = if is_staged { self.take_prepared_for(namespace) } else { Vec::new() };
        let mut places = Vec::new();
        let moved = self.rulebook.namespace_changed(namespace, present);
        for policy in moved.iter().copied() {
            if let Some(compiled) = self.rulebook.compiled(policy) {
                let resources = compiled.rules.iter().flat_map(|rule| rule.resources.iter().cloned());
                let looked_at = resources.map(|resource| (resource, namespace.name.clone())).collect::<Vec<_>>();
                match prepared.iter().any(|(one, _)| *one == policy) {
                    true => self.mark_all_stale(&looked_at),
                    false => places.extend(looked_at),
                }
            }
            if let Some(key) = self.policies.object(policy).cloned() {
                if present && self.keeping.contains(&key.resource) {
                    self.reached.push((key.clone(), namespace.name.clone()));
                }
                self.mark_stale(key);
            }
        }
        places.sort();
        places.dedup();
        self.recount(&places, Some(&moved));
        for (policy, left) in prepared {
            if let Some(name) = self.rulebook.name(policy).cloned() {
                self.count_left(&name, left);
            }
        }
        for policy in moved {
            self.close_part(policy, &namespace.name);
        }
    }
}

/// A namespace as selectors see it.
pub(crate) fn namespace_seen(name: &Arc<str>, value: &Value) -> Namespace {
    let (labels, annotations) = (string_map(value, "labels"), string_map(value, "annotations"));
    Namespace { name: name.clone(), labels, annotations }
}
