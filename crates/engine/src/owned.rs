//! Whom objects that may wait are owned by. Whoever stands in line for the sake of another object is looked at in the step in which
//! that goes, so that nobody is served for what is no more; owners are found by uid, however many others are stored.

use std::collections::HashMap;

use ledger::SubjectId;
use serde_json::Value;
use smallvec::SmallVec;

use crate::object::Object;

type Uids = SmallVec<[SubjectId; 1]>;

#[derive(Default)]
pub(crate) struct Owned {
    by_owner: HashMap<SubjectId, Uids>,
    owners: HashMap<SubjectId, Uids>,
}

impl Owned {
    /// The objects that one owns.
    pub fn of(&self, owner: SubjectId) -> &[SubjectId] {
        self.by_owner.get(&owner).map_or(&[], |owned| owned)
    }

    /// Takes note of whom a stored object is owned by.
    pub fn note(&mut self, object: SubjectId, value: &Value) {
        self.set(object, owners(value));
    }

    /// The same at a start, where most are owned by nobody.
    pub fn take_up(&mut self, object: &Object) {
        const OWNERS: &[u8] = b"\"ownerReferences\"";
        if object.json.windows(OWNERS.len()).any(|some| some == OWNERS) {
            self.note(object.uid, &object.value());
        }
    }

    pub fn forget(&mut self, object: SubjectId) {
        self.set(object, Uids::new());
    }

    fn set(&mut self, object: SubjectId, now: Uids) {
        let before = self.owners.remove(&object).unwrap_or_default();
        for owner in before.iter().filter(|owner| !now.contains(owner)) {
            if let Some(owned) = self.by_owner.get_mut(owner) {
                owned.retain(|one| *one != object);
                if owned.is_empty() {
                    self.by_owner.remove(owner);
                }
            }
        }
        for owner in now.iter().filter(|owner| !before.contains(owner)) {
            self.by_owner.entry(*owner).or_default().push(object);
        }
        if !now.is_empty() {
            self.owners.insert(object, now);
        }
    }
}

fn owners(value: &Value) -> Uids {
    let listed = value.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let mut uids: Uids = listed.filter_map(|one| kinds::uid::parse(one["uid"].as_str()?)).collect();
    uids.sort_unstable();
    uids.dedup();
    uids
}
