//! The state machine: objects, namespaces, rules and the ledger, changed one command at a time.
//!
//! [`Engine::step`] is a decide-then-apply ladder: every refusal comes first, most specific first; after the ledger
//! said yes nothing can fail, and object and charge go into the same batch.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use families::{Change, Families, Family, Origin, Parsed, Record, Refusal};
use kinds::fields::at;
use ledger::{AccountId, Ledger, SubjectId};
use rules::cel::{Foresight, Known, Question};
use rules::{Compiled, GroupResource, Namespace, Rulebook};
use serde_json::Value;
use smallvec::SmallVec;

use crate::behind::Behind;
use crate::command::{Postponed, Refused, Written};
use crate::counted::CountedObjects;
use crate::effects::{Effect, Effects, EventKind};
use crate::follow::{Bounds, Changed};
use crate::moments::Moments;
use crate::object::{Draft, Object, ObjectKey};
use crate::owned::Owned;
use crate::policies::Policies;
use crate::retire::Retired;
use crate::room::Room;
use crate::shelves::Shelves;
use crate::staging::{Missed, Staging};
use crate::stale::Stale;
use crate::trees::{Gathered, Trees};

/// The one owner of objects and ledger.
pub struct Engine {
    pub(crate) families: Families,
    pub(crate) policy_resources: HashSet<GroupResource>,
    /// Those that nobody makes but a step.
    pub(crate) made: HashSet<GroupResource>,
    pub(crate) projected_resources: HashSet<GroupResource>,
    /// Resources whose objects decide what policies mean.
    pub(crate) meaning: HashSet<GroupResource>,
    /// Resources whose writes may bring other policies into force than what is written.
    pub(crate) governing: HashSet<GroupResource>,
    /// What was found out for the write at hand, by object.
    pub(crate) known: HashMap<SubjectId, Box<Known>>,
    /// Resources in whose objects families have a say, those whose writes may concern others, and policies that keep others.
    pub(crate) shaped: HashSet<GroupResource>,
    pub(crate) told: HashSet<GroupResource>,
    pub(crate) watched: HashSet<GroupResource>,
    pub(crate) keeping: HashSet<GroupResource>,
    /// Resources that say what limits, and are no policies.
    pub(crate) limiting: HashSet<GroupResource>,
    /// Resources whose writes families write down.
    pub(crate) recorded: HashSet<GroupResource>,
    /// Resources besides these about whose writes families are asked; and whether some family is about every write.
    pub(crate) checked: HashSet<GroupResource>,
    pub(crate) checks_everything: bool,
    pub(crate) shelves: Shelves,
    pub(crate) namespaces: BTreeMap<Arc<str>, NamespaceState>,
    pub(crate) rulebook: Rulebook,
    pub(crate) ledger: Ledger,
    pub(crate) policies: Policies,
    pub(crate) revision: u64,
    /// Projected objects whose status is behind the ledger, or what a user wrote.
    pub(crate) stale: Stale,
    /// Accounts that changed in this group.
    pub(crate) touched: Vec<AccountId>,
    /// Where each subject that may wait is stored, so that its status can be mended when it wakes.
    pub(crate) subjects: HashMap<SubjectId, ObjectKey>,
    /// What was written in this step, until what follows from it is known; and where policies came to look.
    pub(crate) changed: Vec<Changed>,
    pub(crate) reached: Vec<(ObjectKey, Arc<str>)>,
    /// Objects that have to be looked at in the next steps, because they were too many for one.
    pub(crate) behind: Behind,
    /// Objects that companions were made for.
    pub(crate) companioned: HashMap<SubjectId, ObjectKey>,
    /// Of objects that may wait: who owns them.
    pub(crate) owned: Owned,
    /// Objects that were granted in this step what they waited for.
    pub(crate) woken: Vec<ObjectKey>,
    /// Policies whose status names what they count, and what that is.
    pub(crate) naming: HashSet<GroupResource>,
    pub(crate) counted: CountedObjects,
    /// What is counted before a write that would count too much, and how much that is; whether the write at hand is being prepared
    /// for that; and what is left of policies that are gone.
    pub(crate) staging: Option<Box<Staging>>,
    /// Objects of the write at hand that could not be measured by what is prepared.
    pub(crate) missed: Vec<(SubjectId, Missed)>,
    pub(crate) at_once_max: usize,
    pub(crate) prepares: bool,
    pub(crate) tickets: u64,
    pub(crate) retired: Retired,
    pub(crate) names_given: u64,
    /// Policies, claims, and what is changed again and again, as trees; and what families made of all objects in a namespace.
    pub(crate) trees: RefCell<Trees>,
    pub(crate) gathered: RefCell<Gathered>,
    /// What families made of many objects.
    pub(crate) derived: RefCell<HashMap<String, Derived>>,
    /// The latest time a command told.
    pub(crate) clock_ms: i64,
    /// Whether that is what the store said, and no command yet; and whether the store is to be told.
    pub(crate) is_restored: bool,
    pub(crate) clock_unsaved: bool,
    /// When objects and policies mean something else.
    pub(crate) moments: Moments,
    /// Custom resources whose definition is being removed, or was: what is created now would be left behind.
    pub(crate) leaving: HashSet<GroupResource>,
    /// What measures now, and whether the store has been told.
    pub(crate) measuring: u64,
    pub(crate) measuring_unsaved: bool,
    pub(crate) room: Room,
    pub(crate) bounds: Bounds,
    /// What the write at hand knows of the expressions it will be asked about.
    pub(crate) foresight: Foresight,
    /// What expressions may still take in this step, on this thread.
    pub(crate) allowance: u64,
    /// The expressions it should have known of, on what, and the write itself, on its way back.
    pub(crate) wanted: Vec<Question>,
    pub(crate) wanted_of: Value,
    pub(crate) postponed: Option<Box<Postponed>>,
    /// What is told to whoever stores: objects of the steps since it was last taken, and how many bytes they are; and the rest.
    pub(crate) writes: Vec<Effect>,
    /// Of the write at hand; and of what nobody asked for.
    pub(crate) origin: Origin,
    pub(crate) own: Origin,
    pub(crate) written_bytes: usize,
    /// What is written down besides, with its moment.
    pub(crate) records: Vec<(i64, Record)>,
    pub(crate) effects: Effects,
}

/// What a family made of objects, and by what it can be told whether it still holds.
pub(crate) struct Derived {
    pub changed: SmallVec<[u64; 4]>,
    pub sequence: (u64, usize),
    pub made: Parsed,
}

pub(crate) struct NamespaceState {
    pub seen: Namespace,
    pub terminating: bool,
}

impl Engine {
    /// The number of the last write.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn shelves(&self) -> &Shelves {
        &self.shelves
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Says how much follows a write in its own step, from now on: little, for whoever wants to see what happens then.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Says what there is room for, from now on.
    pub fn set_room(&mut self, room: Room) {
        self.room = room;
    }

    /// How many objects may be counted again in the step of a write; one that counts more is prepared first.
    pub fn count_at_once(&mut self, max: usize) {
        self.at_once_max = max;
    }

    /// The objects that were written since the last time, in order.
    pub fn take_writes(&mut self) -> std::vec::Drain<'_, Effect> {
        self.written_bytes = 0;
        self.writes.drain(..)
    }

    /// Asks the families whether the state as it is lets an object be written so, or deleted. What is in a namespace that is
    /// being removed goes without asking.
    pub(crate) fn check(
        &self,
        key: &ObjectKey,
        old: Option<&Object>,
        new: Option<&Value>,
        now_ms: i64,
    ) -> Result<(), Refused> {
        if !self.checks_everything && !self.is_projected(&key.resource) && !self.checked.contains(&key.resource) {
            return Ok(());
        }
        let removed = self.namespaces.get(&key.namespace).is_some_and(|namespace| namespace.terminating);
        let leaves = new.is_none_or(|new| at(new, &["metadata", "deletionTimestamp"]).is_some());
        let mut old_value = None;
        for (place, family) in self.families.iter().enumerate() {
            let manifest = family.manifest();
            if !manifest.checks(&key.resource) && (!manifest.projects(&key.resource) || (leaves && removed)) {
                continue;
            }
            let old: &Value =
                old_value.get_or_insert_with(|| old.map_or_else(|| Arc::new(Value::Null), |old| self.tree_of(old)));
            let change = Change {
                resource: &key.resource,
                namespace: &key.namespace,
                name: &key.name,
                old,
                new,
                origin: &self.origin,
            };
            let checked = family.check(&change, &self.view(now_ms.max(self.clock_ms)));
            checked.map_err(|refusal| Refused::Said { family: place, refusal })?;
        }
        Ok(())
    }

    /// A refusal in plain words, on behalf of the family that the object is of.
    pub(crate) fn refusal(&self, key: &ObjectKey, why: String) -> Refused {
        let is_of = |family: &Arc<dyn Family>| family.manifest().projects(&key.resource);
        let family = self.families.iter().position(is_of).unwrap_or_default();
        Refused::Said { family, refusal: Refusal::forbidden(why) }
    }

    /// Whether objects of this resource may stand in a line.
    pub(crate) fn may_wait(&self, resource: &GroupResource) -> bool {
        self.projected_resources.contains(resource) && !self.policy_resources.contains(resource)
    }

    /// Gives the object its revision and writes it.
    pub(crate) fn store(
        &mut self,
        draft: Draft,
        key: &ObjectKey,
        previous: Option<Arc<Object>>,
    ) -> (Arc<Object>, Value) {
        self.revision += 1;
        let born = previous.as_ref().map_or(self.revision, |previous| previous.born);
        let (object, value) = draft.finish(key.clone(), self.revision, born);
        let object = Arc::new(object);
        self.gathered.get_mut().forget(key);
        self.shelves.put(object.clone());
        let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
        self.tell(kind, object.clone(), previous);
        (object, value)
    }

    fn tell(&mut self, kind: EventKind, object: Arc<Object>, previous: Option<Arc<Object>>) {
        self.written_bytes += object.json.len();
        self.record(kind, &object, previous.as_deref());
        self.writes.push(Effect { kind, object, previous, origin: self.origin.clone() });
    }

    /// What else a stored object means: a policy is installed, a namespace is shown to selectors again.
    /// `status_at` is set when only the status was written.
    pub(crate) fn settle(
        &mut self,
        object: Arc<Object>,
        value: &Value,
        compiled: Option<Compiled>,
        status_at: Option<i64>,
    ) -> Written {
        let key = &object.key;
        self.name_subject(key, object.uid);
        if key.resource.is("", "namespaces") {
            self.namespace_stored(&key.name, value);
        }
        self.note_leaving(key, value);
        if self.is_projected(&key.resource) {
            self.subjects.insert(object.uid, key.clone());
            if self.may_wait(&key.resource) {
                self.owned.note(object.uid, value);
            }
            match status_at {
                Some(now_ms) if !self.told.contains(&key.resource) => self.status_written(key, now_ms),
                _ => self.mark_stale(key.clone()),
            }
        }
        if let Some(compiled) = compiled {
            self.install(key, compiled);
        }
        Written { object, sequence: self.ledger.sequence() }
    }

    pub(crate) fn delete(&mut self, stored: Arc<Object>, last: Option<Draft>) -> Written {
        let key = stored.key.clone();
        self.revision += 1;
        self.release(&stored);
        self.name_subject(&key, stored.uid);
        let draft = last.or_else(|| Draft::new(stored.value()).ok());
        let object = match draft {
            Some(draft) => Arc::new(draft.finish(key.clone(), self.revision, stored.born).0),
            None => stored.clone(),
        };
        self.gathered.get_mut().forget(&key);
        self.trees.get_mut().forget(&key);
        self.shelves.remove(&key);
        self.companioned.remove(&stored.uid);
        self.moments.forget(&key);
        self.changed.push(Changed { before: Some(stored.clone()), after: None, tree: None });
        self.tell(EventKind::Deleted, object.clone(), Some(stored.clone()));
        if key.resource.is("", "namespaces") {
            self.namespace_removed(&key.name);
        }
        if let Some(defined) = defined_by(&key) {
            self.leaving.insert(defined);
        }
        if self.is_projected(&key.resource) {
            self.subjects.remove(&object.uid);
            self.owned.forget(object.uid);
            if self.stale.take(&key) == Some(true) {
                self.effects.status_written.push((key.clone(), false));
            }
        }
        if self.policy_resources.contains(&key.resource) {
            self.uninstall(&key);
        }
        if self.meaning.contains(&key.resource) {
            self.recompile_after(&key, Some(&stored), None);
        }
        Written { object, sequence: self.ledger.sequence() }
    }

    /// Takes note of whether a definition is on its way out.
    pub(crate) fn note_leaving(&mut self, key: &ObjectKey, value: &Value) {
        let Some(defined) = defined_by(key) else { return };
        if value.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
            self.leaving.insert(defined);
        } else {
            self.leaving.remove(&defined);
        }
    }

    pub(crate) fn is_projected(&self, resource: &GroupResource) -> bool {
        self.projected_resources.contains(resource)
    }

    pub(crate) fn stored(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.shelves.get(key)
    }
}

/// The resource that a CustomResourceDefinition defines, as its name says.
fn defined_by(key: &ObjectKey) -> Option<GroupResource> {
    if !key.resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        return None;
    }
    let (plural, group) = key.name.split_once('.')?;
    // No definition decides about what is built in, whatever it is called.
    let is_builtin = kinds::builtin().iter().any(|one| one.group == group && one.plural == plural);
    (!is_builtin).then(|| GroupResource::new(group, plural))
}
