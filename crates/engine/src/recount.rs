//! The recount: what objects are charged follows when the rules that look at them change.

use std::sync::Arc;

use ledger::{Receipt, Standing, SubjectId, Terms};
use rules::{GroupResource, Line, Namespace, Subject};
use serde_json::Value;

use crate::decide::standing;
use crate::engine::{Engine, NamespaceState};
use crate::measured::strip;
use crate::object::{Object, string_map};
use crate::policies::open_parts;

impl Engine {
    /// Measures every object in these places again.
    pub(crate) fn recount(&mut self, places: &[(GroupResource, Arc<str>)]) {
        for places in places.chunk_by(|(one, _), (next, _)| one == next) {
            let resource = &places[0].0;
            let all = places.iter().flat_map(|(resource, namespace)| self.objects_in(resource, namespace));
            let mut objects: Vec<_> = all.cloned().collect();
            if self.may_wait(resource) {
                // Those who stand in line come in the order in which they would have come.
                objects.sort_by_key(|object| object.born);
            }
            for object in objects {
                if self.projected_resources.contains(resource) {
                    self.mark_stale(object.key.clone());
                }
                self.recount_one(&object);
            }
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
        let (key, Ok(mut value)) = (&object.key, object.read()) else { return false };
        strip(&mut value, self.projected_resources.contains(&key.resource));
        let subject = Subject::new(object.uid, &key.resource, &key.namespace, &key.name, &value);
        let subject = subject.at(self.clock_ms).born(object.born);
        // An object that a rule cannot measure keeps what it was charged; the audit names it.
        let Ok(verdict) = self.rulebook.measure(&subject) else { return false };
        self.note_due(key, verdict.until_ms);
        self.charge_again(object.uid, &verdict.lines, &standing(&verdict));
        self.name_subject(key, object.uid);
        true
    }

    fn charge_again(&mut self, subject: SubjectId, lines: &[Line], standing: &Standing) {
        let (mut charges, unopened) = self.policies.charges(&self.ledger, lines, Terms::Adopted);
        if !unopened.is_empty() {
            if let Err(error) = open_parts(&mut self.ledger, unopened) {
                tracing::error!(%error, "a part of an account could not be opened: a bug");
            }
            charges = self.policies.charges(&self.ledger, lines, Terms::Adopted).0;
        }
        if charges.is_empty() && !self.ledger.is_live(subject) {
            return;
        }
        match self.ledger.decide(subject, &charges, standing) {
            Ok(plan) => {
                let receipt = self.ledger.apply(plan);
                self.note_receipt(&receipt);
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
        for subject in &receipt.woken {
            if let Some(key) = self.subjects.get(subject).cloned() {
                self.woken.push(key.clone());
                self.mark_stale(key);
            }
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
            if let Some(compiled) = self.rulebook.compiled(policy).filter(|_| !prepared.contains(&policy)) {
                let resources = compiled.rules.iter().flat_map(|rule| rule.resources.iter().cloned());
                places.extend(resources.map(|resource| (resource, namespace.name.clone())));
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
        self.recount(&places);
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
