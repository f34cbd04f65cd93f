//! The engine as families see it while one step is decided: objects, rules and ledger, consistent to the last charge.

use std::sync::Arc;

use families::{BalanceLine, Balances, Near, SubjectLine, World};
use ledger::{Explanation, State, SubjectId};
use rules::GroupResource;
use serde_json::Value;

use super::engine::Engine;
use super::object::ObjectKey;

/// Objects looked at to name those that are charged. Publishing a status must not take longer than a group of writes;
/// sums are exact whatever is named.
const LOOKED_AT_MAX: usize = 10_000;

pub(super) struct EngineView<'a> {
    engine: &'a Engine,
    now_ms: i64,
}

impl Engine {
    pub(super) fn near(&self, now_ms: i64) -> EngineView<'_> {
        EngineView { engine: self, now_ms }
    }
}

impl World for EngineView<'_> {
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        self.engine.objects_in(resource, &namespace.into()).map(|object| Arc::new(object.value())).collect()
    }

    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = ObjectKey::new(resource.clone(), namespace, name);
        self.engine.stored(&key).map(|object| Arc::new(object.value()))
    }
}

impl Balances for EngineView<'_> {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        let ledger = &self.engine.ledger;
        let mut lines: Vec<BalanceLine> = self
            .engine
            .policies
            .accounts(policy)
            .into_iter()
            .filter_map(|id| {
                let key = ledger.key(id)?.clone();
                Some(BalanceLine { resource: key.resource, bucket: key.bucket, balance: ledger.balance(id)? })
            })
            .collect();
        lines.sort_by(|a, b| (&a.resource, &a.bucket).cmp(&(&b.resource, &b.bucket)));
        lines
    }

    fn near(&self) -> Option<&dyn Near> {
        Some(self)
    }
}

impl Near for EngineView<'_> {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn charged(&self, policy: &str, max: usize) -> Vec<SubjectLine> {
        let Engine { rulebook, ledger, policies, .. } = self.engine;
        let Some(id) = rulebook.id(policy) else { return Vec::new() };
        let mut places = rulebook.places(id);
        places.sort_by(|(resource, at), (other, other_at)| (at, resource).cmp(&(other_at, other)));
        let objects = places.iter().flat_map(|(resource, at)| self.engine.objects_in(resource, at));
        let mut found = Vec::new();
        for object in objects.take(LOOKED_AT_MAX) {
            let Some(view) = ledger.subject(object.uid) else { continue };
            if matches!(view.state, State::Waiting { .. }) {
                continue;
            }
            for charge in view.charges.iter().filter(|charge| policies.owns(id, charge.account)) {
                let Some(key) = ledger.key(charge.account).filter(|key| key.bucket.is_empty()) else { continue };
                found.push(SubjectLine {
                    uid: object.uid,
                    resource: object.key.resource.clone(),
                    namespace: object.key.namespace.clone(),
                    name: object.key.name.clone(),
                    account: key.resource.clone(),
                    amount: charge.amount,
                    format: charge.format,
                });
            }
            if found.len() >= max {
                break;
            }
        }
        found
    }

    fn waiting(&self, policy: &str, max: usize) -> Vec<SubjectLine> {
        let Engine { ledger, policies, subjects, .. } = self.engine;
        let mut found = Vec::new();
        for account in policies.accounts(policy) {
            let Some(key) = ledger.key(account).filter(|key| key.bucket.is_empty()) else { continue };
            for uid in ledger.waiting_for(account).into_iter().take(max) {
                let (Some(object), Some(view)) = (subjects.get(&uid), ledger.subject(uid)) else { continue };
                let Some(charge) = view.charges.iter().find(|charge| charge.account == account) else { continue };
                found.push(SubjectLine {
                    uid,
                    resource: object.resource.clone(),
                    namespace: object.namespace.clone(),
                    name: object.name.clone(),
                    account: key.resource.clone(),
                    amount: charge.amount,
                    format: charge.format,
                });
            }
        }
        found
    }

    fn namespaces(&self, policy: &str) -> Vec<Arc<str>> {
        let Some(id) = self.engine.rulebook.id(policy) else { return Vec::new() };
        let places = self.engine.rulebook.places(id).into_iter();
        let mut namespaces: Vec<_> = places.map(|(_, at)| at).filter(|at| !at.is_empty()).collect();
        namespaces.sort();
        namespaces.dedup();
        namespaces
    }

    fn explain(&self, subject: SubjectId) -> Explanation {
        self.engine.ledger.explain(subject)
    }
}
