//! Objects that are still to follow what was written, because they were too many for one step.
//!
//! What limits a namespace is never late for it: before anything is decided there, the policies of that namespace that are
//! behind follow, those that have to be compiled again among them, and so do those outside of namespaces that a step left behind. So does what policies keep there, policy or not:
//! it may be charged by what it says.

use std::collections::HashSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use rules::GroupResource;
use rules::cel::STEP_COST_MAX;

use crate::engine::Engine;
use crate::follow::ROUNDS_MAX;
use crate::object::ObjectKey;

/// Those that are behind, by namespace. Copies share what they have in common.
#[derive(Clone, Default)]
pub(crate) struct Behind {
    keys: OrdMap<Arc<str>, OrdSet<ObjectKey>>,
    count: usize,
    /// Of those outside of namespaces, the ones that a step left.
    left_outside: OrdSet<ObjectKey>,
    /// Of those in namespaces, the ones that policies keep, or that say what limits.
    kept: OrdMap<Arc<str>, OrdSet<ObjectKey>>,
    /// Policies that mean something else since something changed, and are in force as before until they follow.
    outdated: OrdSet<ObjectKey>,
}

impl Behind {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.keys.get(&key.namespace).is_some_and(|keys| keys.contains(key))
    }

    pub fn insert(&mut self, key: ObjectKey) {
        let keys = self.keys.entry(key.namespace.clone()).or_default();
        self.count += usize::from(keys.insert(key).is_none());
    }

    /// The same of one that a step could not do.
    pub fn leave(&mut self, key: ObjectKey) {
        if key.namespace.is_empty() {
            self.left_outside.insert(key.clone());
        }
        self.insert(key);
    }

    /// The same of one that a policy keeps.
    pub fn leave_kept(&mut self, key: ObjectKey) {
        if !key.namespace.is_empty() {
            self.kept.entry(key.namespace.clone()).or_default().insert(key.clone());
        }
        self.leave(key);
    }

    /// The same of a policy that is to be compiled again.
    pub fn leave_outdated(&mut self, key: ObjectKey) {
        self.outdated.insert(key.clone());
        self.leave(key);
    }

    pub fn is_outdated(&self, key: &ObjectKey) -> bool {
        self.outdated.contains(key)
    }

    /// Whether a policy is to be compiled again; it is told once.
    pub fn take_outdated(&mut self, key: &ObjectKey) -> bool {
        self.outdated.remove(key).is_some()
    }

    pub fn pop_first(&mut self) -> Option<ObjectKey> {
        let key = self.keys.get_min()?.1.get_min()?.clone();
        self.remove(&key);
        Some(key)
    }

    pub fn retain(&mut self, mut keeps: impl FnMut(&ObjectKey) -> bool) {
        let gone: Vec<ObjectKey> = self.keys.values().flatten().filter(|key| !keeps(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove(key));
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(keys) = self.keys.get_mut(&key.namespace) else { return };
        self.count -= usize::from(keys.remove(key).is_some());
        if keys.is_empty() {
            self.keys.remove(&key.namespace);
        }
        self.left_outside.remove(key);
        if let Some(kept) = self.kept.get_mut(&key.namespace) {
            kept.remove(key);
            if kept.is_empty() {
                self.kept.remove(&key.namespace);
            }
        }
    }

    /// What policies keep in a namespace, or what says there what limits.
    fn kept_in(&self, namespace: &str) -> impl Iterator<Item = &ObjectKey> {
        self.kept.get(namespace).into_iter().flatten()
    }

    /// What of these resources limits a namespace, and what is kept there; and the namespace itself, whose labels say what does.
    fn limiting(&self, namespace: &str, policies: &HashSet<GroupResource>) -> Vec<ObjectKey> {
        let itself = ObjectKey::new(GroupResource::core("namespaces"), "", namespace);
        let itself = Some(itself).filter(|key| self.contains(key));
        let within = self.keys.get(namespace).into_iter().flatten();
        let limiting = within.chain(&self.left_outside).filter(|key| policies.contains(&key.resource));
        let kept = self.kept_in(namespace).filter(|key| !policies.contains(&key.resource));
        let others = limiting.chain(kept).cloned();
        itself.into_iter().chain(others).collect()
    }
}

impl Engine {
    /// Whether an object is still to follow what was written.
    pub fn is_behind(&self, key: &ObjectKey) -> bool {
        self.behind.contains(key)
    }

    /// Lets follow what limits a namespace, before anything is decided there.
    pub(crate) fn bring_up(&mut self, namespace: &str, now_ms: i64) {
        if self.behind.is_empty() {
            return;
        }
        // What follows from them may be too much for this step as well, and limit the namespace.
        for _ in 0..ROUNDS_MAX {
            let mut late = self.behind.limiting(namespace, &self.policy_resources);
            let elsewhere = self.limited_from(namespace);
            late.extend(elsewhere.iter().flat_map(|other| self.behind.kept_in(other)).cloned());
            if late.is_empty() {
                return;
            }
            let moved_from = self.touched.len();
            for key in late {
                self.behind.remove(&key);
                // It cannot be put off again.
                self.allowance = STEP_COST_MAX;
                self.conform(&key);
            }
            self.follow(moved_from, now_ms);
        }
    }

    /// Where else is what limits a namespace.
    fn limited_from(&self, namespace: &str) -> Vec<Arc<str>> {
        if self.behind.kept.is_empty() || self.limiting.is_empty() {
            return Vec::new();
        }
        let view = self.view(self.clock_ms);
        self.families.iter().flat_map(|family| family.limited_from(namespace, &view)).collect()
    }
}
