//! Objects by where they are.

use std::collections::HashMap;
use std::sync::Arc;

use rules::GroupResource;

use crate::object::{Object, ObjectKey};

/// The objects of one resource, by namespace and name. Copies share what they have in common.
pub type Shelf = imbl::OrdMap<(Arc<str>, Arc<str>), Arc<Object>>;

/// All objects, as they are in this step.
#[derive(Clone, Default)]
pub struct Shelves {
    shelves: HashMap<GroupResource, Kept>,
    changes: u64,
}

#[derive(Clone, Default)]
struct Kept {
    shelf: Shelf,
    /// The number of the last change.
    changed: u64,
}

impl Shelves {
    pub fn of(&self, resource: &GroupResource) -> Option<&Shelf> {
        self.shelves.get(resource).map(|kept| &kept.shelf)
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.of(&key.resource)?.get(&place(key))
    }

    pub fn put(&mut self, object: Arc<Object>) {
        self.changes += 1;
        let kept = self.shelves.entry(object.key.resource.clone()).or_default();
        kept.changed = self.changes;
        kept.shelf.insert(place(&object.key), object);
    }

    pub fn remove(&mut self, key: &ObjectKey) {
        self.changes += 1;
        if let Some(kept) = self.shelves.get_mut(&key.resource) {
            kept.changed = self.changes;
            kept.shelf.remove(&place(key));
        }
    }

    /// A number that is another whenever an object of this resource is.
    pub fn changed(&self, resource: &GroupResource) -> u64 {
        self.shelves.get(resource).map_or(0, |kept| kept.changed)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&GroupResource, &Shelf)> {
        self.shelves.iter().map(|(resource, kept)| (resource, &kept.shelf))
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.shelves.values().flat_map(|kept| kept.shelf.values())
    }

    /// The objects of a resource in one namespace, by name.
    pub fn within<'a>(
        &'a self,
        resource: &GroupResource,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        // Nothing comes between a name and itself with the least character behind it: the end is found once, and not looked for at
        // every object.
        let from = (namespace.clone(), Arc::from(""));
        let until = (Arc::from(format!("{namespace}\0")), Arc::from(""));
        let objects = self.of(resource).into_iter().flat_map(move |shelf| shelf.range(from.clone()..until.clone()));
        objects.map(|(_, object)| object)
    }
}

fn place(key: &ObjectKey) -> (Arc<str>, Arc<str>) {
    (key.namespace.clone(), key.name.clone())
}
