//! What the tests of patches and apply share: YAML as values, built-in kinds by their name.

use serde_json::{Map, Value};

use crate::facts::facts;
use crate::schema::{Catalogue, ListType, Shape, TypeId};

pub fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

/// A kind of the core or the apps group.
pub fn kind(name: &str) -> (&'static Catalogue, TypeId) {
    let ty = facts().kind("", "v1", name).or_else(|| facts().kind("apps", "v1", name));
    (&facts().catalogue, ty.unwrap_or_else(|| panic!("no kind {name}")))
}

/// Objects at random from one seed: few fields and few distinct values, so that two of them overlap.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }

    /// A value that fits the type. Lists owned by item have no two items of one identity.
    pub fn value(&mut self, catalogue: &Catalogue, ty: TypeId, depth: usize) -> Value {
        const WORDS: &[&str] = &["a", "b", "c", "1"];
        let word = WORDS[self.below(WORDS.len())];
        match catalogue.shape(ty) {
            Shape::Object(object) => {
                let fields = object.fields();
                let count = if depth == 0 || fields.is_empty() { 0 } else { self.below(5) };
                let mut out = Map::new();
                for _ in 0..count {
                    let field = &fields[self.below(fields.len().min(7))];
                    out.insert(field.name.to_string(), self.value(catalogue, field.ty, depth - 1));
                }
                Value::Object(out)
            }
            Shape::Map { value, .. } => {
                let count = if depth == 0 { 0 } else { self.below(3) };
                let mut entry =
                    || (WORDS[self.below(WORDS.len())].to_owned(), self.value(catalogue, *value, depth - 1));
                Value::Object((0..count).map(|_| entry()).collect())
            }
            Shape::List(list) => {
                let count = if depth == 0 { 0 } else { self.below(4) };
                let mut items: Vec<Value> = Vec::new();
                for _ in 0..count {
                    let mut item = self.value(catalogue, list.item, depth - 1);
                    if let ListType::Map { keys } = &list.list_type {
                        for key in keys {
                            let ty = catalogue.child(list.item, key).expect("a key is a field");
                            item[&**key] = self.value(catalogue, ty, depth);
                        }
                    }
                    let same = |other: &Value| match &list.list_type {
                        ListType::Map { keys } => keys.iter().all(|key| other[&**key] == item[&**key]),
                        ListType::Set => *other == item,
                        ListType::Atomic => false,
                    };
                    if !items.iter().any(same) {
                        items.push(item);
                    }
                }
                Value::Array(items)
            }
            Shape::Integer(_) | Shape::Number => self.below(3).into(),
            Shape::Boolean => (self.below(2) == 0).into(),
            Shape::Time | Shape::MicroTime => "2026-01-01T00:00:00Z".into(),
            _ => word.into(),
        }
    }

    /// An object of a kind with its names.
    pub fn object(&mut self, catalogue: &Catalogue, ty: TypeId, api_version: &str, kind: &str) -> Value {
        let mut object = Value::Object(Map::new());
        for name in ["metadata", "spec", "data", "status"] {
            if let Some(field) = catalogue.field(ty, name).filter(|_| self.below(4) > 0) {
                object[name] = self.value(catalogue, field.ty, 6);
            }
        }
        if object.get("metadata").is_none() {
            object["metadata"] = Value::Object(Map::new());
        }
        object["metadata"].as_object_mut().expect("just made").remove("managedFields");
        object["metadata"]["name"] = "x".into();
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        object
    }
}
