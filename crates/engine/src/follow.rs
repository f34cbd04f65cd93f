//! What follows from a write, in its own commit: objects that families shape, keep in step with balances, or made for others.
//!
//! There is one worklist. Whatever is stored or deleted in a step, and every part of a policy whose balance moved, is a cause;
//! families say which objects each concerns ([`families::Family::affected`]) and what each of those must be
//! ([`families::Family::must_be`]); what is not so is written, which is a cause again. What is too much for one step is done in
//! the next ones.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use families::{Affected, COMPANIONS_MAX, Cause, Change, Must, PolicyObject, Refusal, companion_uid, holds};
use rules::GroupResource;
use serde_json::Value;

use crate::command::Refused;
use crate::engine::Engine;
use crate::object::{Draft, Object, ObjectKey};
use crate::step_view::StepView;

/// Statuses of woken objects that are written in the step that woke them. Those beyond it follow in a moment.
const WOKEN_SHOWN_MAX: usize = 64;

/// As how many objects one policy counts that is compiled again when those that are behind follow.
const JUDGED_AS: usize = 8;

/// How much follows a write in its own step. What is beyond it follows in the next ones.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of objects: a commit is bounded, and a pool may keep a long quota in each of a thousand namespaces.
    pub bytes: usize,
    /// Objects that are made, so that a pool over ten thousand namespaces does not stall admissions.
    pub made: usize,
    /// Objects that are looked at, whether they change or not.
    pub looked: usize,
    /// Policies in namespaces that are compiled again because of what one write means to them: a tier may have thousands of
    /// organizations. The others are behind, which nobody whom they limit can tell.
    pub judged: usize,
    /// Objects that are looked at when those that are behind follow; and those who were served in a step.
    pub caught_up: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { bytes: 16 * 1024 * 1024, made: 256, looked: 1024, judged: 64, caught_up: 256 }
    }
}

/// Rounds in one step. Nodes lead to pools, those to claims, those to quotas, and that is all; more is a circle.
pub(crate) const ROUNDS_MAX: usize = 8;

/// An object that was written or deleted in this step.
pub(crate) struct Changed {
    pub before: Option<Arc<Object>>,
    pub after: Option<Arc<Object>>,
    /// What it is after it as a tree, where that is at hand.
    pub tree: Option<Arc<Value>>,
}

/// Objects to be looked at: in this round, and in the next because of what this one did. So an object that follows many others
/// is looked at when all of them have been.
#[derive(Default)]
pub(crate) struct Work {
    now: BTreeSet<ObjectKey>,
    pub next: BTreeSet<ObjectKey>,
    pub rounds: usize,
    /// Where the batch was when it began.
    begun: usize,
    made: usize,
    looked: usize,
}

impl Work {
    pub fn pop(&mut self) -> Option<ObjectKey> {
        if self.now.is_empty() {
            self.now = std::mem::take(&mut self.next);
            self.rounds += 1;
        }
        self.now.pop_first()
    }
}

impl Engine {
    /// The draft as its families will have it, whoever wrote it.
    pub(crate) fn shape(&self, key: &ObjectKey, draft: Draft, now_ms: i64) -> Result<Draft, Refused> {
        if !self.shaped.contains(&key.resource) {
            return Ok(draft);
        }
        match self.must_be(key, draft.tree(), &self.view(now_ms.max(self.clock_ms))) {
            Ok(Must::Be(value)) => Draft::new(value).map_err(|error| Refused::Bug(error.to_string())),
            Ok(Must::AsItIs | Must::Gone) => Ok(draft),
            Err((family, refusal)) => Err(Refused::Said { family, refusal }),
        }
    }

    /// What an object must be; null is one that is not there. A refusal comes with the place of its family.
    pub(crate) fn must_be(
        &self,
        key: &ObjectKey,
        value: Cow<'_, Value>,
        view: &StepView<'_>,
    ) -> Result<Must, (usize, Refusal)> {
        let ObjectKey { resource, namespace, name } = key;
        let (mut value, mut changed) = (value, false);
        for (place, family) in self.families.iter().enumerate() {
            let manifest = family.manifest();
            if !holds(manifest.shaped, resource) && !holds(manifest.projected, resource) {
                continue;
            }
            let object = PolicyObject { resource, namespace, name, object: &value, in_force: None };
            match family.must_be(&object, view).map_err(|refusal| (place, refusal))? {
                Must::AsItIs => {}
                Must::Gone => return Ok(Must::Gone),
                Must::Be(new) => (value, changed) = (Cow::Owned(new), true),
            }
        }
        Ok(if changed { Must::Be(value.into_owned()) } else { Must::AsItIs })
    }

    /// Does all that follows from this step. `moved_from` is how many accounts had been touched before it.
    pub(crate) fn follow(&mut self, moved_from: usize, now_ms: i64) {
        let mut work = Work { begun: self.written_bytes, ..Work::default() };
        let (mut moved_from, mut served) = (moved_from, 0);
        loop {
            // Whoever was served may have to look otherwise than whoever waits.
            let first: Vec<ObjectKey> = self.woken.get(served..).unwrap_or_default().to_vec();
            for (at, key) in (served..).zip(first) {
                match at < self.bounds.caught_up {
                    true => drop(work.next.insert(key)),
                    false => self.put_behind(key),
                }
            }
            served = self.woken.len();
            self.gather(&mut moved_from, &mut work);
            let Some(key) = work.pop() else { break };
            let missing = self.stored(&key).is_none();
            let is_enough = self.written_bytes - work.begun >= self.bounds.bytes || work.looked == self.bounds.looked;
            if is_enough || (missing && work.made == self.bounds.made) {
                self.put_behind(key);
                continue;
            }
            work.looked += 1;
            if work.rounds > ROUNDS_MAX {
                tracing::error!(%key, "objects follow each other in a circle: a bug");
                self.put_behind(key);
                continue;
            }
            self.conform(&key);
            work.made += usize::from(missing && self.stored(&key).is_some());
        }
        for key in std::mem::take(&mut self.woken).into_iter().take(WOKEN_SHOWN_MAX) {
            if let Some(was_written) = self.stale.take(&key) {
                self.take_back(&key, was_written);
                self.publish_one(&key, now_ms);
            }
        }
    }

    /// Adds what the causes that came up since the last time concern.
    fn gather(&mut self, moved_from: &mut usize, work: &mut Work) {
        while let Some(changed) = self.changed.pop() {
            let of = changed.before.as_ref().map(|before| before.uid);
            let companions = of.into_iter().flat_map(|of| (0..COMPANIONS_MAX).map(move |n| companion_uid(of, n)));
            // Whoever waits for the sake of what has gone is looked at in the same step.
            let owned = of.filter(|_| changed.after.is_none()).map_or(&[][..], |of| self.owned.of(of)).iter().copied();
            work.next.extend(companions.chain(owned).filter_map(|uid| self.subjects.get(&uid).cloned()));
            self.gather_written(&changed, work);
        }
        let mut moved = std::mem::take(&mut self.reached);
        for account in self.touched.get(*moved_from..).unwrap_or_default() {
            let part = self.ledger.key(*account).map(|key| key.bucket.clone()).filter(|part| !part.is_empty());
            let policy = part.as_ref().and_then(|_| self.policies.owner(&self.ledger, *account));
            moved.extend(policy.filter(|policy| self.keeping.contains(&policy.resource)).cloned().zip(part));
        }
        *moved_from = self.touched.len();
        moved.sort();
        moved.dedup();
        for (policy, part) in moved {
            let cause = Cause::Moved { policy: &policy.resource, name: &policy.name, part: &part };
            let family = self.families.of_policy(&policy.resource);
            let affected = family.map_or_else(Vec::new, |family| family.affected(&cause, &self.view(self.clock_ms)));
            self.add(affected, work);
        }
    }

    fn gather_written(&mut self, changed: &Changed, work: &mut Work) {
        let affected = self.affected_by(changed, &self.view(self.clock_ms));
        self.add(affected, work);
    }

    /// Which objects a written or deleted one concerns.
    pub(crate) fn affected_by(&self, changed: &Changed, view: &StepView<'_>) -> Vec<Affected> {
        let Some(key) = changed.before.as_ref().or(changed.after.as_ref()).map(|object| &object.key) else {
            return Vec::new();
        };
        if !self.watched.contains(&key.resource) {
            return Vec::new();
        }
        let (resource, namespace, name) = (&key.resource, &*key.namespace, &*key.name);
        let watches = |family: &&Arc<dyn families::Family>| {
            holds(family.manifest().watched, resource) && family.may_concern(resource, namespace, view)
        };
        let watching: Vec<_> = self.families.iter().filter(watches).collect();
        if watching.is_empty() {
            return Vec::new();
        }
        let old = changed.before.as_ref().map_or_else(|| Arc::new(Value::Null), |object| self.tree_of(object));
        let new = changed.after.as_ref().map(|object| match &changed.tree {
            Some(tree) => tree.clone(),
            None => self.tree_of(object),
        });
        let change = Change { resource, namespace, name, old: &old, new: new.as_deref(), origin: &self.origin };
        watching.iter().flat_map(|family| family.affected(&Cause::Written(&change), view)).collect()
    }

    fn add(&mut self, affected: Vec<Affected>, work: &mut Work) {
        for one in affected {
            match one {
                Affected::Object(place) => drop(work.next.insert(place.into())),
                Affected::Status(place) => self.mark_stale(place.into()),
                Affected::Companion(companion) => {
                    tracing::error!(name = companion.name, "a companion is made only for what is refused: a bug");
                }
            }
        }
    }

    /// Sees to it that one object is as it must be now. Nobody asked for it: it is charged, and never refused.
    pub(crate) fn conform(&mut self, key: &ObjectKey) {
        let stored = self.stored(key).cloned();
        if let Some(policy) = stored.as_ref().filter(|_| self.behind.take_outdated(key)) {
            self.judge_again(policy);
        }
        let before = stored.as_ref().map_or_else(|| Arc::new(Value::Null), |stored| self.tree_of(stored));
        match self.must_be(key, Cow::Borrowed(&before), &self.view(self.clock_ms)) {
            Ok(Must::AsItIs) => {}
            Ok(Must::Gone) => {
                if let Some(stored) = stored {
                    self.delete(stored, None);
                }
            }
            Ok(Must::Be(mut value)) => {
                if stored.is_none() && !self.complete(key, &mut value) {
                    return;
                }
                if stored.is_some() && value.get("spec") != before.get("spec") {
                    count_generation(&mut value);
                }
                self.impose(key, value, stored);
            }
            Err((_, refusal)) => {
                tracing::error!(%key, why = refusal.message, "an object cannot follow what it depends on");
            }
        }
    }
}

/// One more state of the object's spec.
pub(crate) fn count_generation(object: &mut Value) {
    if let Some(generation) = object.pointer_mut("/metadata/generation")
        && let Some(number) = generation.as_i64()
    {
        *generation = number.saturating_add(1).into();
    }
}

impl Engine {
    /// Leaves an object to the next steps, because this one has written enough.
    pub(crate) fn put_behind(&mut self, key: ObjectKey) {
        match self.limiting.contains(&key.resource) {
            true => self.behind.leave_kept(key),
            false => self.behind.leave(key),
        }
        self.effects.stale_status = true;
    }

    /// At a start: an earlier one may have ended between a step and those that had to follow. What is as it should be is not
    /// written.
    pub(crate) fn put_all_behind(&mut self) {
        let shaped: Vec<ObjectKey> = self.shaped.iter().flat_map(|resource| self.keys_of(resource)).collect();
        self.kept().into_iter().for_each(|key| self.behind.leave_kept(key));
        self.unmade().into_iter().for_each(|key| self.put_behind(key));
        for key in shaped {
            // What limits other objects and was left by the last step is not told from the rest: all of it comes first.
            match self.policy_resources.contains(&key.resource) || self.limiting.contains(&key.resource) {
                true => self.put_behind(key),
                false => self.behind.insert(key),
            }
        }
        self.effects.stale_status |= !self.behind.is_empty();
    }

    /// All that policies keep, whether it is there or not.
    fn kept(&self) -> Vec<ObjectKey> {
        let mut kept = Vec::new();
        for policy in self.keeping.iter().flat_map(|resource| self.keys_of(resource)) {
            let (Some(stored), Some(family)) = (self.stored(&policy), self.families.of_policy(&policy.resource)) else {
                continue;
            };
            let value = stored.value();
            let ObjectKey { resource, namespace, name } = &policy;
            let change = Change { resource, namespace, name, old: &value, new: Some(&value), origin: &self.own };
            let affected = family.affected(&Cause::Written(&change), &self.view(self.clock_ms));
            kept.extend(affected.into_iter().filter_map(|one| match one {
                Affected::Object(place) => Some(ObjectKey::from(place)),
                Affected::Status(_) | Affected::Companion(_) => None,
            }));
        }
        kept
    }

    /// What others have made and is not there. Whether it has to be is found out when it follows.
    fn unmade(&self) -> Vec<ObjectKey> {
        let view = self.view(self.clock_ms);
        let mut unmade = Vec::new();
        for family in self.families.iter() {
            for key in family.manifest().making.iter().flat_map(|makers| self.keys_of(&makers.resource())) {
                let Some(stored) = self.stored(&key) else { continue };
                let value = stored.value();
                let ObjectKey { resource, namespace, name } = &key;
                let change = Change { resource, namespace, name, old: &value, new: Some(&value), origin: &self.own };
                let affected = family.affected(&Cause::Written(&change), &view).into_iter();
                unmade.extend(affected.filter_map(|one| match one {
                    Affected::Object(place) => Some(ObjectKey::from(place)).filter(|key| self.stored(key).is_none()),
                    Affected::Status(_) | Affected::Companion(_) => None,
                }));
            }
        }
        unmade.sort();
        unmade.dedup();
        unmade
    }

    fn keys_of(&self, resource: &GroupResource) -> Vec<ObjectKey> {
        let shelf = self.shelves.of(resource).into_iter();
        shelf.flat_map(|shelf| shelf.values()).map(|object| object.key.clone()).collect()
    }

    /// Lets some of those that are behind follow.
    pub(crate) fn catch_up(&mut self, now_ms: i64) {
        let (begun, moved_from) = (self.written_bytes, self.touched.len());
        let mut left = self.bounds.caught_up;
        while left > 0 {
            if self.written_bytes - begun >= self.bounds.bytes || self.allowance == 0 {
                break;
            }
            let Some(key) = self.behind.pop_first() else { break };
            // A policy that is compiled again takes as long as several others.
            left = left.saturating_sub(if self.behind.is_outdated(&key) { JUDGED_AS } else { 1 });
            self.conform(&key);
        }
        self.follow(moved_from, now_ms);
        self.effects.stale_status |= !self.behind.is_empty();
    }
}
