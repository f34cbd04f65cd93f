//! Objects that a family has a say in ([`families::Family::derive`]): what they must be is stored in the place of what was
//! written, and when what they depend on changes, they follow in the same commit.

use std::collections::BTreeSet;
use std::sync::Arc;

use families::{Change, Family, PolicyObject};
use ledger::Terms;
use serde_json::Value;
use store::Batch;

use super::command::Refused;
use super::engine::Engine;
use super::event::Publication;
use super::keep::FOLLOWED_BYTES_MAX;
use super::object::{Draft, Object, ObjectKey};

/// How far one change leads to others. Nodes lead to pools, and that is all; more would be a circle.
const ROUNDS_MAX: usize = 4;

impl Engine {
    /// The draft as its families will have it.
    pub(super) fn derive(&self, key: &ObjectKey, draft: Draft, now_ms: i64) -> Result<Draft, Refused> {
        if !self.derived.contains(&key.resource) {
            return Ok(draft);
        }
        match self.derived_value(key, draft.tree(), now_ms.max(self.clock_ms)) {
            Ok(None) => Ok(draft),
            Ok(Some(value)) => Draft::new(value).map_err(|error| Refused::Bug(error.to_string())),
            Err(why) => Err(self.said_no(key, why)),
        }
    }

    /// The object as its families will have it, when that is not as it is.
    fn derived_value(&self, key: &ObjectKey, mut value: Value, now_ms: i64) -> Result<Option<Value>, String> {
        let near = self.near(now_ms);
        let mut changed = false;
        for family in self.families.iter().filter(|family| family.derived().contains(&key.resource)) {
            let object =
                PolicyObject { resource: &key.resource, namespace: &key.namespace, name: &key.name, object: &value };
            if let Some(derived) = family.derive(&object, &near)? {
                value = derived;
                changed = true;
            }
        }
        Ok(changed.then_some(value))
    }

    /// Lets everything follow that depends on a change.
    pub(super) fn lead(
        &mut self,
        before: Option<&Object>,
        after: Option<&Object>,
        batch: &mut Batch,
        out: &mut Publication,
    ) {
        let begun = batch.bytes();
        let mut waiting = BTreeSet::new();
        self.gather(before, after, &mut waiting);
        for _ in 0..ROUNDS_MAX {
            if waiting.is_empty() {
                return;
            }
            for key in std::mem::take(&mut waiting) {
                if batch.bytes() - begun >= FOLLOWED_BYTES_MAX {
                    self.put_behind(key, out);
                    continue;
                }
                let Some((before, after)) = self.rewrite(&key, batch, out) else { continue };
                self.gather(Some(&before), Some(&after), &mut waiting);
            }
        }
        if !waiting.is_empty() {
            tracing::error!(?waiting, "objects follow each other in a circle: a bug");
        }
    }

    /// Lets one object follow that was left to a later step, and what follows it in its turn.
    pub(super) fn follow_up(&mut self, key: &ObjectKey, batch: &mut Batch, out: &mut Publication) {
        if let Some((before, after)) = self.rewrite(key, batch, out) {
            self.lead(Some(&before), Some(&after), batch, out);
        }
    }

    /// Adds what follows a change of this object.
    fn gather(&self, before: Option<&Object>, after: Option<&Object>, waiting: &mut BTreeSet<ObjectKey>) {
        let Some(key) = before.or(after).map(|object| &object.key).filter(|key| self.leading.contains(&key.resource))
        else {
            return;
        };
        let near = self.near(self.clock_ms);
        let (resource, namespace, name) = (&key.resource, &*key.namespace, &*key.name);
        let leads = |family: &&Arc<dyn Family>| family.may_lead(resource, namespace, &near);
        let leading: Vec<&Arc<dyn Family>> = self.families.iter().filter(leads).collect();
        if leading.is_empty() {
            return;
        }
        let old = before.map_or(Value::Null, Object::value);
        let new = after.map(Object::value);
        for family in leading {
            let change = Change { resource, namespace, name, old: &old, new: new.as_ref() };
            let followers = family.followers(&change, &near).into_iter();
            waiting.extend(followers.map(|one| ObjectKey {
                resource: one.resource,
                namespace: one.namespace,
                name: one.name,
            }));
        }
    }

    /// Writes a derived object as it has to be now; what it was and is, when that made a difference.
    fn rewrite(
        &mut self,
        key: &ObjectKey,
        batch: &mut Batch,
        out: &mut Publication,
    ) -> Option<(Arc<Object>, Arc<Object>)> {
        let stored = self.stored(key)?.clone();
        let value = stored.value();
        let spec = value.get("spec").cloned();
        let mut value = match self.derived_value(key, value, self.clock_ms) {
            Ok(value) => value?,
            Err(why) => {
                tracing::error!(%key, why, "an object cannot follow what it depends on");
                return None;
            }
        };
        if value.get("spec") != spec.as_ref()
            && let Some(generation) = value.pointer_mut("/metadata/generation")
            && let Some(number) = generation.as_i64()
        {
            *generation = number.saturating_add(1).into();
        }
        let after = self.replace(stored.clone(), value, batch, out)?;
        Some((stored, after))
    }

    /// Stores another state of an object on nobody's request: charged, never refused.
    pub(super) fn replace(
        &mut self,
        stored: Arc<Object>,
        value: Value,
        batch: &mut Batch,
        out: &mut Publication,
    ) -> Option<Arc<Object>> {
        let key = stored.key.clone();
        let prepared = Draft::new(value).map_err(|error| Refused::Bug(error.to_string())).and_then(|draft| {
            let compiled = self.compile(&key, &draft.value)?;
            let ruling = self.decide(&key, &draft, Some(Terms::Adopted), false)?;
            Ok((draft, compiled, ruling))
        });
        match prepared {
            Ok((draft, compiled, ruling)) => {
                self.note_due(&key, ruling.until_ms);
                self.apply(ruling, out);
                let object = self.store(draft, &key, Some(stored), batch, out);
                Some(self.settle(object, compiled, None, out).object)
            }
            Err(refused) => {
                tracing::error!(%key, ?refused, "an object cannot follow what it depends on");
                None
            }
        }
    }
}
