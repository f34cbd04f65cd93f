//! Which statuses are behind the ledger, and which of them may be mended now: one that a user wrote is shown for a while first.
//! Whatever their number, the next one is found without a look at the others.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use rules::GroupResource;

use crate::object::ObjectKey;

/// Copies share what they have in common: a snapshot takes one, however many are behind.
#[derive(Clone, Default)]
pub(crate) struct Stale {
    /// To be mended before all others: of those who were served what they waited for.
    served: OrdSet<ObjectKey>,
    /// To be mended as soon as somebody comes to it.
    due: OrdSet<ObjectKey>,
    /// As users wrote them, and until when they are shown so; all of these are behind.
    written: OrdMap<ObjectKey, i64>,
    shown_until: OrdSet<(i64, ObjectKey)>,
    /// All objects of a resource in a namespace, those after this name: one by one they become due.
    whole: OrdMap<(GroupResource, Arc<str>), Arc<str>>,
}

impl Stale {
    /// All objects of a resource in a namespace: that costs the same however many they are.
    pub fn mark_all(&mut self, resource: GroupResource, namespace: Arc<str>) {
        self.whole.insert((resource, namespace), "".into());
    }

    /// A place all of whose objects are to be marked that come after a name.
    pub fn next_whole(&self) -> Option<(GroupResource, Arc<str>, Arc<str>)> {
        let ((resource, namespace), after) = self.whole.get_min()?;
        Some((resource.clone(), namespace.clone(), after.clone()))
    }

    /// Those up to this name were marked; all of them, where there is none.
    pub fn went_on(&mut self, resource: GroupResource, namespace: Arc<str>, after: Option<Arc<str>>) {
        match after {
            Some(after) => drop(self.whole.insert((resource, namespace), after)),
            None => drop(self.whole.remove(&(resource, namespace))),
        }
    }

    /// How many such places there are.
    pub fn whole(&self) -> usize {
        self.whole.len()
    }

    fn is_in_whole(&self, key: &ObjectKey) -> bool {
        let after = self.whole.get(&(key.resource.clone(), key.namespace.clone()));
        after.is_some_and(|after| key.name > *after)
    }

    pub fn mark(&mut self, key: ObjectKey) {
        if !self.due.contains(&key) && !self.is_shown(&key) && !self.served.contains(&key) {
            self.due.insert(key);
        }
    }

    /// Of one who was served: however many are behind, it does not wait for them to be told how long their line is now.
    pub fn mark_served(&mut self, key: ObjectKey) {
        if !self.is_shown(&key) {
            self.due.remove(&key);
            self.served.insert(key);
        }
    }

    fn is_shown(&self, key: &ObjectKey) -> bool {
        self.written.get(key).is_some_and(|until| self.shown_until.contains(&(*until, key.clone())))
    }

    /// A user wrote it.
    pub fn show(&mut self, key: ObjectKey, until_ms: i64) {
        self.due.remove(&key);
        self.served.remove(&key);
        if let Some(before) = self.written.insert(key.clone(), until_ms) {
            self.shown_until.remove(&(before, key.clone()));
        }
        self.shown_until.insert((until_ms, key));
    }

    /// Those that were shown long enough are due.
    pub fn advance(&mut self, now_ms: i64) {
        while self.shown_until.get_min().is_some_and(|(until, _)| *until <= now_ms) {
            self.due.extend(self.shown_until.remove_min().map(|(_, key)| key));
        }
    }

    /// The first of those that are due.
    pub fn first(&self, max: usize) -> Vec<ObjectKey> {
        self.served.iter().chain(&self.due).take(max).cloned().collect()
    }

    /// Takes one out, due or not, if it is behind; whether a user had written it.
    pub fn take(&mut self, key: &ObjectKey) -> Option<bool> {
        let written = self.written.remove(key);
        let is_shown = written.is_some_and(|until| self.shown_until.remove(&(until, key.clone())).is_some());
        let is_due = self.served.remove(key).is_some() || self.due.remove(key).is_some();
        (is_due || is_shown).then_some(written.is_some())
    }

    /// How many are due.
    pub fn due(&self) -> usize {
        self.served.len() + self.due.len()
    }

    pub fn served(&self) -> usize {
        self.served.len()
    }

    pub fn is_empty(&self) -> bool {
        self.served.is_empty() && self.due.is_empty() && self.shown_until.is_empty() && self.whole.is_empty()
    }

    /// Whether one is behind, due or not.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.served.contains(key) || self.due.contains(key) || self.written.contains_key(key) || self.is_in_whole(key)
    }

    /// All that are behind, due or not.
    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = &ObjectKey> {
        self.served.iter().chain(&self.due).chain(self.written.keys())
    }
}

#[cfg(test)]
mod tests {
    use rules::GroupResource;

    use super::*;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::new(GroupResource::core("resourcequotas"), "a", &format!("{number:05}"))
    }

    #[test]
    fn however_many_there_are_each_is_looked_at_once() {
        let (mut stale, mut looks) = (Stale::default(), 0);
        // Half of them are as users wrote them: they stand in nobody's way.
        for number in 0..10_000 {
            stale.mark(key(number));
            if number % 2 == 0 {
                stale.show(key(number), 9);
                stale.mark(key(number));
            }
        }
        for (now_ms, left) in [(8, 5_000), (9, 0)] {
            stale.advance(now_ms);
            assert_eq!(stale.due(), 5_000);
            loop {
                let next = stale.first(32);
                if next.is_empty() {
                    break;
                }
                looks += next.len();
                for key in next {
                    assert_eq!(stale.take(&key), Some(now_ms == 9));
                }
            }
            assert_eq!(stale.all().count(), left);
        }
        assert_eq!(looks, 10_000);
        assert!(stale.is_empty());
    }

    #[test]
    fn who_was_served_is_told_first() {
        let mut stale = Stale::default();
        (0..5).for_each(|number| stale.mark(key(number)));
        stale.mark_served(key(4));
        stale.mark(key(4));
        stale.mark_served(key(9));
        assert_eq!((stale.first(3), stale.due()), (vec![key(4), key(9), key(0)], 6));
        assert_eq!(stale.take(&key(4)), Some(false));
        assert_eq!(stale.take(&key(4)), None);
        // What a user wrote is shown to him first, also of these.
        stale.show(key(9), 9);
        stale.mark_served(key(9));
        assert_eq!((stale.first(1), stale.due()), (vec![key(0)], 4));
    }

    #[test]
    fn what_a_user_wrote_again_is_shown_from_then_on() {
        let mut stale = Stale::default();
        stale.show(key(1), 5);
        stale.show(key(1), 9);
        stale.advance(5);
        assert_eq!((stale.due(), stale.is_empty()), (0, false));
        assert_eq!(stale.take(&key(1)), Some(true));
        assert_eq!(stale.take(&key(1)), None);
        stale.advance(9);
        assert!(stale.is_empty());
        // One that is due and written once more is not due.
        stale.mark(key(2));
        stale.show(key(2), 20);
        assert_eq!(stale.due(), 0);
        stale.advance(20);
        stale.show(key(2), 30);
        assert_eq!(stale.due(), 0);
        assert_eq!(stale.take(&key(2)), Some(true));
    }
}
