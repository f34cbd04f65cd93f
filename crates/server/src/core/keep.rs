//! Objects that policies keep in step: the ResourceQuota of a pool in each of its namespaces. They are rewritten in the
//! step that moved the policy's balances, so that what one claim gave back cannot be used by its namespace and by the
//! next claim at once; and whoever writes them otherwise is overruled in the same step.

use std::sync::Arc;

use families::Projected;
use rules::policy_name;
use serde_json::Value;
use store::Batch;

use super::engine::Engine;
use super::event::Publication;
use super::object::{Draft, ObjectKey};

/// Statuses of woken objects that are written in the step that woke them. Those beyond it follow in a moment.
const WOKEN_SHOWN_MAX: usize = 64;

impl Engine {
    /// The draft with the spec that a policy keeps there, if one does.
    pub(super) fn overruled(&self, key: &ObjectKey, draft: Draft) -> Draft {
        if self.queueing.is_empty() || !self.policy_resources.contains(&key.resource) {
            return draft;
        }
        match self.kept_spec(key) {
            Some(spec) if draft.value.get("spec") != Some(&spec) => with(draft, "spec", spec),
            _ => draft,
        }
    }

    /// The draft of an object that may wait, with its status as it is now that the ledger has decided.
    pub(super) fn standing(&self, key: &ObjectKey, draft: Draft, now_ms: i64) -> Draft {
        let Some(family) = self.families.of_projected(&key.resource).filter(|_| self.may_wait(&key.resource)) else {
            return draft;
        };
        let mut value = draft.value.clone();
        match family.project(&key.resource, &mut value, &self.near(now_ms)) {
            Projected::Unchanged => draft,
            Projected::Changed => with(draft, "status", value["status"].take()),
        }
    }

    /// After a step: writes what policies keep where their balances moved, and the statuses of those that were woken.
    /// `moved_from` is how many accounts had been touched before, `written` what the step was about.
    pub(super) fn follow(
        &mut self,
        moved_from: usize,
        written: Option<&ObjectKey>,
        now_ms: i64,
        batch: &mut Batch,
        out: &mut Publication,
    ) {
        if self.queueing.is_empty() {
            return;
        }
        let mut kept = self.kept_by(written);
        for account in self.touched.get(moved_from..).unwrap_or_default() {
            let Some(bucket) = self.ledger.key(*account).map(|key| key.bucket.clone()).filter(|part| !part.is_empty())
            else {
                continue;
            };
            if let Some(policy) = self.policies.owner(*account) {
                kept.extend(self.kept_in(policy, &bucket));
            }
        }
        kept.sort();
        kept.dedup();
        for key in kept {
            self.keep(&key, batch, out);
        }
        let woken = std::mem::take(&mut self.woken);
        for key in woken.into_iter().take(WOKEN_SHOWN_MAX) {
            if self.stale.remove(&key) {
                self.publish_one(&key, now_ms, batch, out);
            }
        }
    }

    /// Everything a policy keeps, when it is the policy that was written.
    fn kept_by(&self, written: Option<&ObjectKey>) -> Vec<ObjectKey> {
        let Some(policy) = written.filter(|key| self.queueing.contains(&key.resource)) else { return Vec::new() };
        let name = policy_name(&policy.resource, &policy.namespace, &policy.name);
        let places = self.rulebook.id(&name).map_or_else(Vec::new, |id| self.rulebook.places(id));
        places.iter().filter_map(|(_, namespace)| self.kept_in(policy, namespace)).collect()
    }

    fn kept_in(&self, policy: &ObjectKey, namespace: &Arc<str>) -> Option<ObjectKey> {
        if !self.queueing.contains(&policy.resource) {
            return None;
        }
        let family = self.families.of_policy(&policy.resource)?;
        let kept = family.kept(&policy.resource, &policy.name, namespace)?;
        Some(ObjectKey { resource: kept.resource, namespace: kept.namespace, name: kept.name })
    }

    pub(super) fn kept_spec(&self, key: &ObjectKey) -> Option<Value> {
        let near = self.near(0);
        self.families.iter().find_map(|family| family.keep(&key.resource, &key.namespace, &key.name, &near))
    }

    pub(super) fn keep(&mut self, key: &ObjectKey, batch: &mut Batch, out: &mut Publication) {
        let (Some(stored), Some(spec)) = (self.stored(key).cloned(), self.kept_spec(key)) else { return };
        let mut value = stored.value();
        if value.get("spec") == Some(&spec) {
            return;
        }
        value["spec"] = spec;
        let compiled = match self.compile(key, &value) {
            Ok(compiled) => compiled,
            Err(refused) => return tracing::error!(%key, ?refused, "what a policy keeps does not compile"),
        };
        match Draft::new(value) {
            Ok(draft) => {
                let object = self.store(draft, key, Some(stored), batch, out);
                self.settle(object, compiled, None, out);
            }
            Err(error) => tracing::error!(%key, %error, "what a policy keeps could not be written"),
        }
    }
}

/// The draft with one field exchanged. What it is made from was a draft already, so that it can be made again.
fn with(draft: Draft, field: &str, value: Value) -> Draft {
    let mut tree = draft.tree();
    tree[field] = value;
    Draft::new(tree).unwrap_or(draft)
}
