//! Moments at which something has to be looked at again: each object and each policy has one at the most, the next. They are
//! facts that a start is told.

use std::collections::{BTreeSet, HashMap};

use crate::effects::Fact;
use crate::object::ObjectKey;

#[derive(Default)]
pub(crate) struct Moments {
    by_time: BTreeSet<(i64, ObjectKey)>,
    of: HashMap<ObjectKey, i64>,
    /// Those that have to be told.
    moved: BTreeSet<ObjectKey>,
}

impl Moments {
    /// The moments that a start was told.
    pub fn told(moments: Vec<(ObjectKey, i64)>) -> Moments {
        let by_time = moments.iter().map(|(key, at)| (*at, key.clone())).collect();
        Moments { by_time, of: moments.into_iter().collect(), moved: BTreeSet::new() }
    }

    pub fn next_ms(&self) -> Option<i64> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Looks at it again at this moment, unless it is looked at before that; the last moment there is never comes.
    pub fn note(&mut self, key: &ObjectKey, at: i64) {
        let earlier = self.of.get(key).is_some_and(|known| *known <= at);
        if !earlier && at < i64::MAX {
            self.forget(key);
            self.by_time.insert((at, key.clone()));
            self.of.insert(key.clone(), at);
            self.moved.insert(key.clone());
        }
    }

    pub fn forget(&mut self, key: &ObjectKey) {
        if let Some(at) = self.of.remove(key) {
            self.by_time.remove(&(at, key.clone()));
            self.moved.insert(key.clone());
        }
    }

    /// Takes one whose moment has come.
    pub fn pop(&mut self, now_ms: i64) -> Option<ObjectKey> {
        let (_, key) = self.by_time.first().filter(|(at, _)| *at <= now_ms)?;
        let key = key.clone();
        self.forget(&key);
        Some(key)
    }

    /// What changed since the last time.
    pub fn drain(&mut self) -> impl Iterator<Item = Fact> {
        let moved = std::mem::take(&mut self.moved);
        moved.into_iter().map(|key| {
            let at = self.of.get(&key).copied();
            Fact::Due(key, at)
        })
    }
}
