//! What is held, and what decides it.
//!
//! An update is stored only on the very version that it was reviewed on, and a create only where nothing is. So a hold rests on
//! a *base*: that version, or 0. The first sight of its object in a later version decides it: either the object is what was held
//! for, or somebody else was first, and what was held for cannot be stored any more. A sight at or before the base says nothing.
//! Several reviews of one object may rest on several bases; the engine holds the larger of all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use engine::ObjectKey;
use ledger::SubjectId;
use rules::GroupResource;
use serde::{Deserialize, Serialize};
use store::{Batch, Table};

/// What stands before the uid in the key of a row.
const ROW: &[u8] = b"hold/";

/// Reviews of one object whose end is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub key: ObjectKey,
    pub bases: BTreeSet<u64>,
    /// When the last of them was granted.
    pub since_ms: i64,
    /// When it was last looked for, and whether it was not there; not stored.
    pub looked_ms: i64,
    pub was_missed: bool,
}

/// As it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    group: String,
    resource: String,
    namespace: String,
    name: String,
    bases: BTreeSet<u64>,
    since_ms: i64,
}

/// All that is held, by the object's uid.
#[derive(Debug, Default)]
pub struct Holds {
    held: HashMap<SubjectId, Held>,
    /// Of which the store has not been told.
    changed: BTreeSet<SubjectId>,
}

impl Holds {
    pub fn get(&self, uid: SubjectId) -> Option<&Held> {
        self.held.get(&uid)
    }

    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn uids(&self) -> Vec<SubjectId> {
        self.held.keys().copied().collect()
    }

    /// Takes note of a grant.
    pub fn add(&mut self, uid: SubjectId, key: ObjectKey, base: u64, now_ms: i64) {
        let new = || Held {
            key: key.clone(),
            bases: BTreeSet::new(),
            since_ms: now_ms,
            looked_ms: now_ms,
            was_missed: false,
        };
        let held = self.held.entry(uid).or_insert_with(new);
        // A name that was generated anew is where it is looked for.
        held.key = key;
        held.bases.insert(base);
        (held.since_ms, held.looked_ms, held.was_missed) = (now_ms, now_ms, false);
        self.changed.insert(uid);
    }

    /// The object was seen in this version; whether something may still be stored of what is held for it.
    pub fn seen(&mut self, uid: SubjectId, version: u64) -> bool {
        let Some(held) = self.held.get_mut(&uid) else { return false };
        let before = held.bases.len();
        held.bases.retain(|base| *base >= version);
        let (left, is_changed) = (held.bases.len(), held.bases.len() != before);
        if left == 0 {
            self.held.remove(&uid);
        }
        if is_changed {
            self.changed.insert(uid);
        }
        left > 0
    }

    /// It was looked for, and is not there; whether that was so before.
    pub fn missed(&mut self, uid: SubjectId) -> bool {
        self.held.get_mut(&uid).is_some_and(|held| std::mem::replace(&mut held.was_missed, true))
    }

    /// Nothing is held for it any more.
    pub fn remove(&mut self, uid: SubjectId) {
        if self.held.remove(&uid).is_some() {
            self.changed.insert(uid);
        }
    }

    /// Those that were neither granted nor looked for since `before_ms`; from now on they are being looked for. Whoever has waited
    /// longest in its namespace is first, and the namespaces take turns: nobody's refused writes keep those of others held.
    pub fn overdue(&mut self, before_ms: i64, now_ms: i64, max: usize) -> Vec<(SubjectId, ObjectKey, i64)> {
        let mut waiting: BTreeMap<Arc<str>, Vec<(i64, SubjectId)>> = BTreeMap::new();
        // A clock that was set back says nothing of how long ago it was.
        for (uid, held) in self.held.iter().filter(|(_, held)| held.looked_ms <= before_ms || held.looked_ms > now_ms) {
            waiting.entry(held.key.namespace.clone()).or_default().push((held.looked_ms, *uid));
        }
        let mut turns: Vec<(usize, i64, SubjectId)> = Vec::new();
        for mut of_one in waiting.into_values() {
            of_one.sort_unstable();
            turns.extend(of_one.into_iter().enumerate().map(|(turn, (looked_ms, uid))| (turn, looked_ms, uid)));
        }
        turns.sort_unstable();
        let mut due = Vec::with_capacity(turns.len().min(max));
        for (_, _, uid) in turns.into_iter().take(max) {
            if let Some(held) = self.held.get_mut(&uid) {
                held.looked_ms = now_ms;
                due.push((uid, held.key.clone(), held.since_ms));
            }
        }
        due
    }

    /// A start knows nothing of the clock of whoever granted them: they are waited for from now on.
    pub fn begin(&mut self, now_ms: i64) {
        for held in self.held.values_mut() {
            (held.since_ms, held.looked_ms) = (now_ms, now_ms);
        }
    }

    /// Rows of what changed since the last time.
    pub fn save(&mut self, batch: &mut Batch) {
        for uid in std::mem::take(&mut self.changed) {
            let row = [ROW, &uid.0.to_be_bytes()].concat();
            match self.held.get(&uid) {
                None => batch.delete(Table::META, &row),
                Some(Held { key, bases, since_ms, .. }) => {
                    let stored = Stored {
                        group: key.resource.group.to_string(),
                        resource: key.resource.resource.to_string(),
                        namespace: key.namespace.to_string(),
                        name: key.name.to_string(),
                        bases: bases.clone(),
                        since_ms: *since_ms,
                    };
                    let value = serde_json::to_vec(&stored).expect("names and numbers are JSON");
                    batch.put(Table::META, &row, &value);
                }
            }
        }
    }

    /// Takes up a row that [`Holds::save`] wrote; whether it is one, and can be read.
    pub fn load(&mut self, row: &[u8], value: &[u8]) -> Option<Result<(), serde_json::Error>> {
        let uid = SubjectId(u128::from_be_bytes(row.strip_prefix(ROW)?.try_into().ok()?));
        let stored = match serde_json::from_slice::<Stored>(value) {
            Ok(stored) => stored,
            Err(error) => return Some(Err(error)),
        };
        let Stored { group, resource, namespace, name, bases, since_ms } = stored;
        let key = ObjectKey::new(GroupResource::new(&group, &resource), &namespace, &name);
        self.held.insert(uid, Held { key, bases, since_ms, looked_ms: since_ms, was_missed: false });
        Some(Ok(()))
    }
}
