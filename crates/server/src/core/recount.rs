//! The recount: what objects are charged follows when the rules that look at them change.

use std::sync::Arc;

use ledger::{Receipt, Standing, SubjectId, Terms};
use rules::{GroupResource, Line, Namespace, Subject};
use serde_json::Value;

use super::decide::standing;
use super::engine::{Engine, NamespaceState};
use super::event::Publication;
use super::measured::strip;
use super::object::string_map;
use super::policies::open_parts;

impl Engine {
    /// Measures every object in these places again.
    pub(super) fn recount(&mut self, places: &[(GroupResource, Arc<str>)], out: &mut Publication) {
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
                    self.mark_stale(object.key.clone(), out);
                }
                self.recount_one(&object, out);
            }
        }
    }

    /// Measures everything again that is charged, or would be.
    pub(super) fn recount_all(&mut self, out: &mut Publication) {
        let mut objects: Vec<_> = self.shelves.values().flat_map(|shelf| shelf.values()).cloned().collect();
        objects.retain(|object| {
            let key = &object.key;
            self.rulebook.concerns(&key.resource, &key.namespace) || self.ledger.is_live(object.uid)
        });
        objects.sort_by_key(|object| object.born);
        for object in objects {
            self.recount_one(&object, out);
        }
    }

    /// Measures one object again. What it is charged follows; it is not refused.
    pub(super) fn recount_one(&mut self, object: &super::Object, out: &mut Publication) {
        // An object that cannot be read keeps what it was charged.
        let (key, Ok(mut value)) = (&object.key, object.read()) else { return };
        strip(&mut value, self.projected_resources.contains(&key.resource));
        let subject = Subject::new(object.uid, &key.resource, &key.namespace, &key.name, &value);
        let subject = subject.at(self.clock_ms).born(object.born);
        // An object that a rule cannot measure keeps what it was charged; the audit names it.
        let Ok(verdict) = self.rulebook.measure(&subject) else { return };
        self.note_due(key, verdict.until_ms);
        self.charge_again(object.uid, &verdict.lines, &standing(&verdict), out);
        self.name_subject(key, object.uid);
    }

    fn charge_again(&mut self, subject: SubjectId, lines: &[Line], standing: &Standing, out: &mut Publication) {
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
                self.note_receipt(&receipt, out);
            }
            // Adopting is never refused; a line of waiters can be full.
            Err(denied) => tracing::error!(%denied, "an object could not be counted again"),
        }
    }

    pub(super) fn objects_in(
        &self,
        resource: &GroupResource,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &Arc<super::Object>> {
        let from = (namespace.clone(), Arc::from(""));
        let namespace = namespace.clone();
        self.shelves
            .get(resource)
            .into_iter()
            .flat_map(move |shelf| shelf.range(from.clone()..))
            .map(|(_, object)| object)
            .take_while(move |object| object.key.namespace == namespace)
    }

    /// Remembers what a step of the ledger touched: balances to publish, statuses to mend.
    pub(super) fn note_receipt(&mut self, receipt: &Receipt, out: &mut Publication) {
        self.touched.extend_from_slice(&receipt.touched);
        for subject in &receipt.woken {
            if let Some(key) = self.subjects.get(subject).cloned() {
                self.woken.push(key.clone());
                self.mark_stale(key, out);
            }
        }
    }

    pub(super) fn namespace_stored(&mut self, name: &Arc<str>, value: &Value, out: &mut Publication) {
        let seen = Namespace {
            name: name.clone(),
            labels: string_map(value, "labels"),
            annotations: string_map(value, "annotations"),
        };
        let terminating = value.pointer("/metadata/deletionTimestamp").is_some();
        let before = self.namespaces.insert(name.clone(), NamespaceState { seen: seen.clone(), terminating });
        if before.is_some_and(|before| before.seen == seen) {
            return;
        }
        self.namespace_moved(&seen, true, out);
    }

    pub(super) fn namespace_removed(&mut self, name: &Arc<str>, out: &mut Publication) {
        if let Some(state) = self.namespaces.remove(name) {
            self.namespace_moved(&state.seen, false, out);
        }
    }

    /// A namespace came under, or left, policies that select namespaces: its objects' charges follow.
    fn namespace_moved(&mut self, namespace: &Namespace, present: bool, out: &mut Publication) {
        let mut places = Vec::new();
        let moved = self.rulebook.namespace_changed(namespace, present);
        for policy in moved.iter().copied() {
            if let Some(compiled) = self.rulebook.compiled(policy) {
                let resources = compiled.rules.iter().flat_map(|rule| rule.resources.iter().cloned());
                places.extend(resources.map(|resource| (resource, namespace.name.clone())));
            }
            if let Some(key) = self.policies.object(policy).cloned() {
                if present && self.keeping.contains(&key.resource) {
                    self.reached.push((key.clone(), namespace.name.clone()));
                }
                self.mark_stale(key, out);
            }
        }
        places.sort();
        places.dedup();
        self.recount(&places, out);
        for policy in moved {
            self.close_part(policy, &namespace.name, out);
        }
    }
}
