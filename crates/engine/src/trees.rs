//! Objects as trees, and what was made of many of them together, kept between two looks: a bounded number, each until its object, or
//! one of the many, is another.

use std::collections::HashMap;
use std::sync::Arc;

use families::Parsed;
use rules::GroupResource;
use serde_json::Value;

use crate::engine::Engine;
use crate::object::{Object, ObjectKey};

/// Trees kept at a time.
const TREES_MAX: usize = 4096;
/// Namespaces of which it is remembered what was made of all objects of a resource.
const GATHERED_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct Trees(HashMap<ObjectKey, (u64, Arc<Value>)>);

impl Trees {
    pub fn get(&self, object: &Object) -> Option<Arc<Value>> {
        self.0.get(&object.key).filter(|(revision, _)| *revision == object.revision).map(|(_, tree)| tree.clone())
    }

    pub fn keep(&mut self, object: &Object, tree: Arc<Value>) {
        if self.0.len() >= TREES_MAX && !self.0.contains_key(&object.key) {
            self.0.clear();
        }
        self.0.insert(object.key.clone(), (object.revision, tree));
    }

    pub fn forget(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }
}

/// By namespace and resource.
#[derive(Default)]
pub(crate) struct Gathered {
    made: HashMap<Arc<str>, Vec<(GroupResource, Parsed)>>,
}

impl Gathered {
    pub fn get(&self, resource: &GroupResource, namespace: &str) -> Option<Parsed> {
        let made = self.made.get(namespace)?.iter().find(|(of, _)| of == resource);
        made.map(|(_, made)| made.clone())
    }

    pub fn keep(&mut self, resource: &GroupResource, namespace: &str, made: Parsed) {
        if self.made.len() >= GATHERED_MAX {
            self.made.clear();
        }
        let within = self.made.entry(namespace.into()).or_default();
        within.retain(|(of, _)| of != resource);
        within.push((resource.clone(), made));
    }

    /// An object was written or deleted there.
    pub fn forget(&mut self, key: &ObjectKey) {
        if let Some(made) = self.made.get_mut(&key.namespace) {
            made.retain(|(of, _)| *of != key.resource);
        }
    }
}

impl Engine {
    /// A stored object as a tree: as it was when it was written, where that is remembered.
    pub(crate) fn tree_of(&self, object: &Object) -> Arc<Value> {
        let known = self.trees.borrow().get(object);
        known.unwrap_or_else(|| Arc::new(object.value()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Draft;

    fn object(name: &str, revision: u64) -> Object {
        let value = json!({"metadata": {"name": name, "uid": "6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11"}});
        let key = ObjectKey::new(GroupResource::core("configmaps"), "n", name);
        Draft::new(value).unwrap().finish(key, revision, 1).0
    }

    #[test]
    fn a_tree_is_of_one_revision() {
        let mut trees = Trees::default();
        let (first, second) = (object("a", 1), object("a", 2));
        trees.keep(&first, Arc::new(first.value()));
        assert_eq!(trees.get(&first).unwrap()["metadata"]["resourceVersion"], "1");
        assert!(trees.get(&second).is_none());
        trees.forget(&first.key);
        assert!(trees.get(&first).is_none());
        for number in 0..2 * TREES_MAX {
            trees.keep(&object(&number.to_string(), 1), Arc::new(Value::Null));
        }
        assert!(trees.0.len() <= TREES_MAX);
    }

    #[test]
    fn what_was_made_of_many_is_forgotten_with_one_of_them() {
        let mut gathered = Gathered::default();
        let (mine, others) = (object("a", 1).key, GroupResource::core("secrets"));
        gathered.keep(&mine.resource, "n", Arc::new(1));
        gathered.keep(&others, "n", Arc::new(2));
        gathered.keep(&mine.resource, "m", Arc::new(3));
        let known = |gathered: &Gathered, resource: &GroupResource, namespace: &str| {
            gathered.get(resource, namespace).and_then(|made| made.downcast_ref::<i32>().copied())
        };
        gathered.forget(&mine);
        assert_eq!(known(&gathered, &mine.resource, "n"), None);
        assert_eq!((known(&gathered, &others, "n"), known(&gathered, &mine.resource, "m")), (Some(2), Some(3)));
        for number in 0..2 * GATHERED_MAX {
            gathered.keep(&others, &number.to_string(), Arc::new(4));
        }
        assert!(gathered.made.len() <= GATHERED_MAX);
    }
}
