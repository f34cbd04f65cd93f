//! What is foretold: the policies that come into force with a write, found out before it is decided, so that what they count can be
//! counted before it, too.
//!
//! It is the same worklist as in the step ([`crate::follow`]), over objects as they are going to be and over balances as they are, and
//! nothing is changed by it. Only what says what limits is followed. Where the step turns out otherwise, because a balance moved or because
//! something else was written meanwhile, it is the step that holds: what was foretold only says what is counted early.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use families::{Affected, Change, Must};
use rules::{Compiled, GroupResource};
use serde_json::Value;

use crate::engine::{Derived, Engine};
use crate::follow::{Changed, ROUNDS_MAX, Work};
use crate::object::{Draft, Object, ObjectKey};
use crate::shelves::Shelves;

/// Objects that are looked at, in the step in which nothing is decided yet.
const FORETOLD_MAX: usize = 64;

/// Objects as they are going to be.
pub(crate) struct Ahead {
    pub shelves: Shelves,
    written: BTreeSet<ObjectKey>,
    /// What families made of them.
    pub derived: RefCell<HashMap<String, Derived>>,
}

impl Ahead {
    pub fn wrote(&self, key: &ObjectKey) -> bool {
        self.written.contains(key)
    }

    pub fn writes_in(&self, resource: &GroupResource, namespace: &str) -> bool {
        self.written.iter().any(|key| key.resource == *resource && *key.namespace == *namespace)
    }

    fn write(&mut self, key: &ObjectKey, object: Option<Arc<Object>>) {
        match object {
            Some(object) => self.shelves.put(object),
            None => self.shelves.remove(key),
        }
        self.written.insert(key.clone());
    }
}

/// Policies as they are going to be, in the order in which they come into force.
type Foretold = Vec<(ObjectKey, Compiled)>;

impl Engine {
    /// The policies that come into force with a write: the written one, where it is one, and those that follow from it. `after` is
    /// none for what is deleted.
    pub(crate) fn foretold(
        &self,
        key: &ObjectKey,
        before: Option<&Arc<Object>>,
        after: Option<&Draft>,
        compiled: Option<&Compiled>,
    ) -> Foretold {
        let mut foretold: Foretold = compiled.map(|compiled| (key.clone(), compiled.clone())).into_iter().collect();
        if !self.governing.contains(&key.resource) {
            return foretold;
        }
        let after = match after.map(|draft| Draft::new(draft.tree().into_owned())) {
            None => None,
            Some(Ok(draft)) => Some(draft),
            Some(Err(_)) => return foretold,
        };
        let mut ahead = Ahead { shelves: self.shelves.clone(), written: BTreeSet::new(), derived: RefCell::default() };
        let (mut work, mut looked_at) = (Work::default(), 0);
        let mut changed = vec![self.write_ahead(key, before.cloned(), after, &mut ahead, &mut foretold)];
        loop {
            while let Some(changed) = changed.pop() {
                let affected = self.affected_by(&changed, &self.view_ahead(&ahead)).into_iter();
                let objects = affected.filter_map(|one| match one {
                    Affected::Object(place) => Some(ObjectKey::from(place)),
                    Affected::Status(_) | Affected::Companion(_) => None,
                });
                work.next.extend(objects.filter(|key| self.says_what_limits(&key.resource)));
            }
            let Some(key) = work.pop() else { break };
            looked_at += 1;
            if looked_at > FORETOLD_MAX || work.rounds > ROUNDS_MAX {
                break;
            }
            changed.extend(self.conform_ahead(&key, &mut ahead, &mut foretold));
        }
        foretold
    }

    fn says_what_limits(&self, resource: &GroupResource) -> bool {
        self.policy_resources.contains(resource) || self.limiting.contains(resource)
    }

    /// What an object must be among those that are going to be there; none where it is that.
    fn conform_ahead(&self, key: &ObjectKey, ahead: &mut Ahead, foretold: &mut Foretold) -> Option<Changed> {
        let before = ahead.shelves.get(key).cloned();
        let value = before.as_ref().map_or_else(|| Arc::new(Value::Null), |stored| stored.tree());
        let after = match self.must_be(key, Cow::Borrowed(&value), &self.view_ahead(ahead)) {
            Ok(Must::AsItIs) | Err(_) => return None,
            Ok(Must::Gone) if before.is_none() => return None,
            Ok(Must::Gone) => None,
            Ok(Must::Be(mut value)) => {
                if before.is_none() && !self.complete(key, &mut value) {
                    return None;
                }
                Some(Draft::new(value).ok()?)
            }
        };
        if let Some(after) = &after
            && let Ok(Some(compiled)) = self.compile_in(key, &after.value, &self.view_ahead(ahead))
        {
            foretold.push((key.clone(), compiled));
        }
        Some(self.write_ahead(key, before, after, ahead, foretold))
    }

    fn write_ahead(
        &self,
        key: &ObjectKey,
        before: Option<Arc<Object>>,
        after: Option<Draft>,
        ahead: &mut Ahead,
        foretold: &mut Foretold,
    ) -> Changed {
        let tree = after.as_ref().map(|draft| Arc::new(draft.value.clone()));
        let after = after.map(|draft| Arc::new(draft.preview(key.clone(), None)));
        ahead.write(key, after.clone());
        if self.meaning.contains(&key.resource) {
            let old = before.as_ref().map_or_else(|| Arc::new(Value::Null), |before| before.tree());
            let ObjectKey { resource, namespace, name } = key;
            let new = tree.as_deref();
            let change = Change { resource, namespace, name, old: &old, new, origin: &self.origin };
            for policy in self.meant_by(resource, Some(&change)).now {
                if let Ok(Some(compiled)) = self.compile_in(&policy.key, &policy.tree(), &self.view_ahead(ahead)) {
                    foretold.push((policy.key.clone(), compiled));
                }
            }
        }
        Changed { before, after, tree }
    }
}
