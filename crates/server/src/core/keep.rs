//! Objects that policies keep in step: the ResourceQuota of a pool in each of its namespaces. They are rewritten in the
//! step that moved the policy's balances, so that what one claim gave back cannot be used by its namespace and by the
//! next claim at once; and whoever writes them otherwise is overruled in the same step.

use std::sync::Arc;

use families::Projected;
use ledger::{SubjectId, Terms};
use rules::{GroupResource, policy_name};
use serde_json::Value;
use store::Batch;

use super::command::Refused;
use super::engine::Engine;
use super::event::Publication;
use super::made::{moment, named_uid};
use super::object::{Draft, Object, ObjectKey};

/// Statuses of woken objects that are written in the step that woke them. Those beyond it follow in a moment.
const WOKEN_SHOWN_MAX: usize = 64;

/// Bytes of objects that follow a write in its own step. A commit is bounded, and a pool may keep a long quota in each of a
/// thousand namespaces: the others follow in the next steps, as many bytes each, and as many objects looked at.
pub(super) const FOLLOWED_BYTES_MAX: usize = 16 * 1024 * 1024;
const CAUGHT_UP_MAX: usize = 256;

/// Objects made in one step, so that a pool over ten thousand namespaces does not stall admissions. The others follow in a
/// moment, as many a step.
const MADE_MAX: usize = 256;

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
        kept.append(&mut self.unmade);
        for account in self.touched.get(moved_from..).unwrap_or_default() {
            let Some(bucket) = self.ledger.key(*account).map(|key| key.bucket.clone()).filter(|part| !part.is_empty())
            else {
                continue;
            };
            if let Some(policy) = self.policies.owner(&self.ledger, *account) {
                kept.extend(self.kept_in(policy, &bucket));
            }
        }
        kept.sort();
        kept.dedup();
        let (begun, mut made) = (batch.bytes(), 0);
        for key in kept {
            let missing = self.stored(&key).is_none();
            let enough = batch.bytes() - begun >= FOLLOWED_BYTES_MAX;
            if missing && (enough || made == MADE_MAX) {
                self.unmade.push(key);
                continue;
            }
            if enough {
                self.put_behind(key, out);
                continue;
            }
            self.keep(&key, batch, out);
            made += usize::from(missing && self.stored(&key).is_some());
        }
        // The rest is made with the statuses.
        out.stale_status |= !self.unmade.is_empty();
        let woken = std::mem::take(&mut self.woken);
        for key in woken.into_iter().take(WOKEN_SHOWN_MAX) {
            if self.stale.remove(&key) {
                self.publish_one(&key, now_ms, batch, out);
            }
        }
    }

    /// What policies keep, and is not there: what was still to be made when the process ended.
    pub(super) fn find_unmade(&self) -> Vec<ObjectKey> {
        let policies = self.queueing.iter().filter_map(|resource| self.shelves.get(resource));
        let kept = policies.flat_map(|shelf| shelf.values()).flat_map(|policy| self.kept_by(Some(&policy.key)));
        kept.filter(|key| self.stored(key).is_none()).collect()
    }

    /// Whether a write of this object may be about what policies keep.
    pub(super) fn may_be_kept(&self, key: &ObjectKey) -> bool {
        !self.queueing.is_empty()
            && (key.resource.is("", "namespaces") || self.policy_resources.contains(&key.resource))
    }

    /// Everything to look at because of what was written: all that a policy keeps, what policies keep in a namespace, or
    /// what is kept itself.
    fn kept_by(&self, written: Option<&ObjectKey>) -> Vec<ObjectKey> {
        let Some(written) = written else { return Vec::new() };
        if written.resource.is("", "namespaces") {
            let policies = self.queueing.iter().filter_map(|resource| self.shelves.get(resource));
            let policies = policies.flat_map(|shelf| shelf.values());
            return policies.filter_map(|policy| self.kept_in(&policy.key, &written.name)).collect();
        }
        if !self.queueing.contains(&written.resource) {
            return vec![written.clone()];
        }
        let policy = written;
        let name = policy_name(&policy.resource, &policy.namespace, &policy.name);
        let namespaces = self.rulebook.id(&name).map_or_else(Vec::new, |id| self.rulebook.namespaces_of(id));
        namespaces.iter().filter_map(|namespace| self.kept_in(policy, namespace)).collect()
    }

    pub(super) fn kept_in(&self, policy: &ObjectKey, namespace: &Arc<str>) -> Option<ObjectKey> {
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
        let Some(stored) = self.stored(key).cloned() else { return self.provide(key, batch, out) };
        let Some(spec) = self.kept_spec(key) else { return };
        let mut value = stored.value();
        if value.get("spec") == Some(&spec) {
            return;
        }
        value["spec"] = spec;
        self.put_kept(key, value, Some(stored), batch, out);
    }

    /// Writes what a policy keeps, on nobody's request: whoever counts it is charged, and nobody refuses. One that cannot
    /// be compiled is written as well, and refuses all it would look at: there is no moment without limit.
    fn put_kept(
        &mut self,
        key: &ObjectKey,
        value: Value,
        stored: Option<Arc<Object>>,
        batch: &mut Batch,
        out: &mut Publication,
    ) {
        let decided = Draft::new(value).map_err(|error| Refused::Bug(error.to_string())).and_then(|draft| {
            let ruling = self.decide(key, &draft, Some(Terms::Adopted), false)?;
            Ok((ruling, draft))
        });
        match decided {
            Ok((ruling, draft)) => {
                let compiled = self.compile_or_deny(key, &draft.value);
                self.note_due(key, ruling.until_ms);
                self.apply(ruling, out);
                let object = self.store(draft, key, stored, batch, out);
                self.settle(object, compiled, None, out);
            }
            Err(refused) => tracing::error!(%key, ?refused, "what a policy keeps could not be written"),
        }
    }
}

impl Engine {
    /// Leaves an object to the next steps, because this one has written enough.
    pub(super) fn put_behind(&mut self, key: ObjectKey, out: &mut Publication) {
        self.behind.insert(key);
        out.stale_status = true;
    }

    /// At a start: an earlier one may have ended between a step and those that had to follow. What is as it should be is not
    /// written.
    pub(super) fn put_all_behind(&mut self, out: &mut Publication) {
        let policies: Vec<ObjectKey> = self.queueing.iter().flat_map(|resource| self.keys_of(resource)).collect();
        let kept = policies.iter().flat_map(|policy| self.kept_by(Some(policy)));
        let kept = kept.filter(|key| self.stored(key).is_some());
        let derived = self.derived.iter().flat_map(|resource| self.keys_of(resource));
        let all: Vec<ObjectKey> = kept.chain(derived).collect();
        for key in all {
            self.put_behind(key, out);
        }
    }

    fn keys_of(&self, resource: &GroupResource) -> Vec<ObjectKey> {
        let shelf = self.shelves.get(resource).into_iter();
        shelf.flat_map(|shelf| shelf.values()).map(|object| object.key.clone()).collect()
    }

    /// Lets some of those that are behind follow.
    pub(super) fn catch_up(&mut self, batch: &mut Batch, out: &mut Publication) {
        let begun = batch.bytes();
        for _ in 0..CAUGHT_UP_MAX {
            if batch.bytes() - begun >= FOLLOWED_BYTES_MAX {
                break;
            }
            let Some(key) = self.behind.pop_first() else { return };
            if self.derived.contains(&key.resource) {
                self.follow_up(&key, batch, out);
            } else {
                self.keep(&key, batch, out);
            }
        }
        out.stale_status |= !self.behind.is_empty();
    }

    /// Makes what a policy keeps where it is missing.
    fn provide(&mut self, key: &ObjectKey, batch: &mut Batch, out: &mut Publication) {
        if self.namespaces.get(&key.namespace).is_none_or(|namespace| namespace.terminating) {
            return;
        }
        let near = self.near(self.clock_ms);
        let provided =
            self.families.iter().find_map(|family| family.provide(&key.resource, &key.namespace, &key.name, &near));
        let Some(mut value) = provided else { return };
        if !key.fits_a_row() {
            return tracing::error!(%key, "what a policy keeps has too long a name");
        }
        let uid = self.unused_uid(key);
        value["metadata"]["uid"] = Value::String(uuid::Uuid::from_u128(uid.0).hyphenated().to_string());
        value["metadata"]["creationTimestamp"] = Value::String(moment(self.clock_ms));
        self.put_kept(key, value, None, batch, out);
    }

    /// A uid for an object that nobody asked for. The engine has no source of chance: it is made from what is unique, the
    /// object's place and the revision.
    fn unused_uid(&self, key: &ObjectKey) -> SubjectId {
        let mut text = key.row();
        text.extend_from_slice(&self.revision.to_le_bytes());
        loop {
            let uid = named_uid(&text);
            if !self.ledger.is_live(uid) && !self.subjects.contains_key(&uid) {
                return uid;
            }
            text.push(0);
        }
    }
}

/// The draft with one field exchanged. What it is made from was a draft already, so that it can be made again.
fn with(draft: Draft, field: &str, value: Value) -> Draft {
    let mut tree = draft.tree();
    tree[field] = value;
    Draft::new(tree).unwrap_or(draft)
}
