//! Which objects a policy counts, by name: for policies whose status names them. A quota over five of a hundred thousand
//! objects finds the five without looking at the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ledger::{SubjectId, SubjectView};
use rules::{GroupResource, PolicyId};
use smallvec::SmallVec;

use crate::engine::Engine;
use crate::object::ObjectKey;

/// Where an object stands among those that one policy counts: by namespace, resource and name.
type Place = (Arc<str>, GroupResource, Arc<str>);

type Policies = SmallVec<[PolicyId; 2]>;

#[derive(Default)]
pub(crate) struct CountedObjects {
    of_policy: BTreeMap<PolicyId, BTreeMap<Place, SubjectId>>,
    of_subject: HashMap<SubjectId, (ObjectKey, Policies)>,
}

impl CountedObjects {
    /// The objects that a policy counts, in order.
    pub fn of(&self, policy: PolicyId) -> impl Iterator<Item = (SubjectId, &ObjectKey)> {
        let all = self.of_policy.get(&policy).into_iter().flat_map(BTreeMap::values);
        all.filter_map(|uid| self.key(*uid).map(|key| (*uid, key)))
    }

    pub fn key(&self, subject: SubjectId) -> Option<&ObjectKey> {
        self.of_subject.get(&subject).map(|(key, _)| key)
    }

    /// Takes note of the policies that count an object from now on.
    fn set(&mut self, key: &ObjectKey, subject: SubjectId, policies: Policies) {
        let before = self.of_subject.get(&subject).map(|(_, policies)| policies.clone()).unwrap_or_default();
        if before == policies {
            return;
        }
        let place = || (key.namespace.clone(), key.resource.clone(), key.name.clone());
        for policy in before.iter().filter(|policy| !policies.contains(policy)) {
            if let Some(places) = self.of_policy.get_mut(policy) {
                places.remove(&place());
            }
        }
        for policy in policies.iter().filter(|policy| !before.contains(policy)) {
            self.of_policy.entry(*policy).or_default().insert(place(), subject);
        }
        match policies.is_empty() {
            true => drop(self.of_subject.remove(&subject)),
            false => drop(self.of_subject.insert(subject, (key.clone(), policies))),
        }
    }

    /// How many objects a policy counts.
    pub fn count(&self, policy: PolicyId) -> usize {
        self.of_policy.get(&policy).map_or(0, BTreeMap::len)
    }

    pub fn forget(&mut self, policy: PolicyId) {
        self.forget_some(policy, usize::MAX);
        self.of_policy.remove(&policy);
    }

    /// Forgets that a policy counts some of its objects; how many.
    pub fn forget_some(&mut self, policy: PolicyId, max: usize) -> usize {
        for forgotten in 0..max {
            let first = self.of_policy.get_mut(&policy).and_then(BTreeMap::pop_first);
            let Some((_, subject)) = first else { return forgotten };
            if let Some((_, policies)) = self.of_subject.get_mut(&subject) {
                policies.retain(|known| *known != policy);
                if policies.is_empty() {
                    self.of_subject.remove(&subject);
                }
            }
        }
        max
    }
}

impl Engine {
    /// Looks again at which policies count an object. To be called after each change of what it is charged.
    pub(crate) fn name_subject(&mut self, key: &ObjectKey, uid: SubjectId) {
        let is_known = self.counted.of_subject.contains_key(&uid);
        if self.naming.is_empty() || !(is_known || self.rulebook.concerns(&key.resource, &key.namespace)) {
            return;
        }
        let mut policies = Policies::new();
        for charge in self.ledger.subject(uid).map_or_else(Vec::new, SubjectView::into_charged) {
            let policy = self.policies.policy_of(&self.ledger, charge.account);
            policies.extend(policy.filter(|policy| !policies.contains(policy) && self.is_naming(*policy)));
        }
        policies.sort_unstable();
        self.counted.set(key, uid, policies);
    }

    fn is_naming(&self, policy: PolicyId) -> bool {
        self.policies.object(policy).is_some_and(|object| self.naming.contains(&object.resource))
    }

    /// Names everything that is counted, after a start.
    pub(crate) fn name_all(&mut self) {
        if !self.policies.ids().any(|policy| self.is_naming(policy)) {
            return;
        }
        for object in self.shelves.all().cloned().collect::<Vec<_>>() {
            self.name_subject(&object.key, object.uid);
        }
    }
}
