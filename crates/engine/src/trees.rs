//! Objects as trees, and what was made of many of them together, kept between two looks: a bounded number, each until its object, or
//! one of the many, is another.

use std::collections::HashMap;
use std::sync::Arc;

use families::Parsed;
use rules::GroupResource;
use serde_json::Value;

use crate::engine::Engine;
use crate::object::{Object, ObjectKey};

/// Trees kept at a time, and the bytes of the texts that they are read from: a tree takes several times the memory of its text.
const TREES_MAX: usize = 4096;
const TREES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Namespaces of which it is remembered what was made of all objects of a resource.
const GATHERED_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct Trees {
    kept: HashMap<ObjectKey, Kept>,
    /// Of all their texts.
    bytes: usize,
}

struct Kept {
    revision: u64,
    bytes: usize,
    tree: Arc<Value>,
}

impl Trees {
    pub fn get(&self, object: &Object) -> Option<Arc<Value>> {
        self.kept.get(&object.key).filter(|kept| kept.revision == object.revision).map(|kept| kept.tree.clone())
    }

    pub fn keep(&mut self, object: &Object, tree: Arc<Value>) {
        self.forget(&object.key);
        let bytes = object.json.len();
        if self.kept.len() >= TREES_MAX || self.bytes + bytes > TREES_BYTES_MAX {
            self.kept.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.kept.insert(object.key.clone(), Kept { revision: object.revision, bytes, tree });
    }

    pub fn forget(&mut self, key: &ObjectKey) {
        if let Some(kept) = self.kept.remove(key) {
            self.bytes -= kept.bytes;
        }
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
        let known = object.remembered().or_else(|| self.trees.borrow().get(object));
        known.unwrap_or_else(|| Arc::new(object.value()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Draft;

    fn object(name: &str, revision: u64) -> Object {
        long_object(name, revision, 0)
    }

    fn long_object(name: &str, revision: u64, bytes: usize) -> Object {
        let uid = "6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11";
        let value = json!({"metadata": {"name": name, "uid": uid}, "data": "x".repeat(bytes)});
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
        assert!(trees.kept.len() <= TREES_MAX);
    }

    /// However long objects are, little is kept of them; and what is written again, or forgotten, counts no more.
    #[test]
    fn trees_are_bounded_by_the_length_of_their_texts() {
        let mut trees = Trees::default();
        for revision in 1..100 {
            trees.keep(&long_object("same", revision, 1_000_000), Arc::new(Value::Null));
        }
        assert_eq!((trees.kept.len(), trees.bytes / 1_000_000), (1, 1));
        for number in 0..100 {
            trees.keep(&long_object(&number.to_string(), 1, 1_000_000), Arc::new(Value::Null));
            assert!(trees.bytes <= TREES_BYTES_MAX && trees.kept.len() <= 16);
        }
        for number in 0..100 {
            trees.forget(&object(&number.to_string(), 1).key);
        }
        trees.forget(&object("same", 1).key);
        assert_eq!((trees.kept.len(), trees.bytes), (0, 0));
    }

    #[test]
    fn a_tree_is_lent_for_as_long_as_it_is_kept() {
        let (object, mut trees) = (object("a", 1), Trees::default());
        let tree = Arc::new(object.value());
        object.written_from(&tree);
        trees.keep(&object, tree.clone());
        assert!(Arc::ptr_eq(&object.recent(), &tree));
        let read = Value::clone(&tree);
        drop(tree);
        trees.forget(&object.key);
        assert!(object.remembered().is_none());
        assert_eq!(*object.recent(), read);
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
