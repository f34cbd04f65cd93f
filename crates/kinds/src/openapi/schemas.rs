//! The `components.schemas` of a document: every type its kinds reach.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::descriptions::{describe, describe_field};
use crate::facts::Facts;
use crate::schema::{Catalogue, Field, ListType, Shape, Type, TypeId, Width};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// The schemas collected for one document.
pub struct Schemas<'a> {
    facts: &'a Facts,
    catalogue: &'a Catalogue,
    done: BTreeMap<String, Value>,
    /// Types referred to and not yet written; a list, so that recursion in types is none in code.
    waiting: Vec<TypeId>,
    seen: BTreeSet<TypeId>,
}

impl<'a> Schemas<'a> {
    pub fn new(facts: &'a Facts) -> Self {
        let (done, waiting, seen) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        Schemas { facts, catalogue: &facts.catalogue, done, waiting, seen }
    }

    /// Makes sure a kind's schema is there and marked as that kind's. Gives its name.
    pub fn kind(&mut self, group: &str, version: &str, kind: &str, ty: TypeId) -> String {
        let name = self.name(ty);
        self.seen.insert(ty);
        let mark = json!({"group": group, "version": version, "kind": kind});
        if !self.done.contains_key(&name) {
            let schema = self.object(ty);
            self.done.insert(name.clone(), schema);
        }
        if let Some(schema) = self.done.get_mut(&name) {
            match schema["x-kubernetes-group-version-kind"].as_array_mut() {
                Some(marks) if marks.contains(&mark) => {}
                Some(marks) => marks.push(mark),
                None => schema["x-kubernetes-group-version-kind"] = json!([mark]),
            }
        }
        name
    }

    /// What every document has: the bodies of deletes and errors, and the patch that can be anything.
    pub fn shared(&mut self, group: &str, version: &str) {
        for kind in ["DeleteOptions", "Status"] {
            if let Some(ty) = self.facts.kind(group, version, kind) {
                let (group, version) = if kind == "Status" { ("", "v1") } else { (group, version) };
                self.kind(group, version, kind, ty);
            }
        }
        self.plain(&format!("{META}.Patch"), json!({"type": "object"}));
    }

    /// The metadata schema, for documents whose kinds are not in the facts.
    pub fn object_meta(&mut self) -> Value {
        match self.catalogue.named(&format!("{META}.ObjectMeta")) {
            Some(ty) => self.reference(ty),
            None => json!({"type": "object"}),
        }
    }

    pub fn list_meta(&mut self) -> Value {
        match self.catalogue.named(&format!("{META}.ListMeta")) {
            Some(ty) => self.reference(ty),
            None => json!({"type": "object"}),
        }
    }

    pub fn insert(&mut self, name: String, schema: Value) {
        self.done.insert(name, schema);
    }

    pub fn finish(mut self) -> Map<String, Value> {
        while let Some(ty) = self.waiting.pop() {
            let name = self.name(ty);
            if !self.done.contains_key(&name) {
                let schema = self.object(ty);
                self.done.insert(name, schema);
            }
        }
        self.done.into_iter().collect()
    }

    fn name(&self, ty: TypeId) -> String {
        self.catalogue.get(ty).name.as_deref().unwrap_or("object").to_owned()
    }

    fn object(&mut self, ty: TypeId) -> Value {
        let catalogue = self.catalogue;
        let Type { shape, name, .. } = catalogue.get(ty);
        let (Shape::Object(object), Some(name)) = (shape, name) else { return json!({"type": "object"}) };
        let mut properties = Map::new();
        for field in object.fields() {
            let mut schema = self.field(field);
            if let Some(words) = describe_field(name, &field.name) {
                schema["description"] = words.into();
            }
            properties.insert(field.name.to_string(), alone(schema));
        }
        let mut schema = json!({"type": "object"});
        if let Some(words) = describe(name) {
            schema["description"] = words.into();
        }
        if !properties.is_empty() {
            schema["properties"] = properties.into();
        }
        let required: Vec<&str> =
            object.fields().iter().filter(|field| field.required).map(|field| &*field.name).collect();
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        if object.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        schema
    }

    fn field(&mut self, field: &Field) -> Value {
        let mut schema = self.value(field.ty);
        if !field.pointer && !field.omit_empty && matches!(self.catalogue.shape(field.ty), Shape::Object(_)) {
            schema["default"] = json!({});
        }
        let patch = &field.patch;
        let strategies = [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
        let strategies: Vec<&str> = strategies.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
        if !strategies.is_empty() {
            schema["x-kubernetes-patch-strategy"] = strategies.join(",").into();
        }
        if let Some(key) = &patch.merge_key {
            schema["x-kubernetes-patch-merge-key"] = (&**key).into();
        }
        schema
    }

    fn value(&mut self, ty: TypeId) -> Value {
        let catalogue = self.catalogue;
        let Type { shape, default, allowed, .. } = catalogue.get(ty);
        let mut schema = match shape {
            Shape::Object(_) => self.reference(ty),
            Shape::Map { value, atomic } => {
                let mut schema = json!({"type": "object", "additionalProperties": self.element(*value)});
                if *atomic {
                    schema["x-kubernetes-map-type"] = "atomic".into();
                }
                schema
            }
            Shape::List(list) => {
                let mut schema = json!({"type": "array", "items": self.element(list.item)});
                schema["x-kubernetes-list-type"] = match &list.list_type {
                    ListType::Atomic => "atomic".into(),
                    ListType::Set => "set".into(),
                    ListType::Map { keys } => {
                        let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
                        schema["x-kubernetes-list-map-keys"] = keys.into();
                        "map".into()
                    }
                };
                schema
            }
            Shape::String => json!({"type": "string"}),
            Shape::Integer(Width::I32) => json!({"type": "integer", "format": "int32"}),
            Shape::Integer(Width::I64) => json!({"type": "integer", "format": "int64"}),
            Shape::Number => json!({"type": "number", "format": "double"}),
            Shape::Boolean => json!({"type": "boolean"}),
            Shape::Duration => json!({"type": "string"}),
            Shape::Bytes => json!({"type": "string", "format": "byte"}),
            Shape::IntOrString => {
                let either = json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]});
                self.plain(INT_OR_STRING, either)
            }
            Shape::Quantity => self.plain(QUANTITY, json!({"oneOf": [{"type": "string"}, {"type": "number"}]})),
            Shape::Time => self.plain(&format!("{META}.Time"), json!({"type": "string", "format": "date-time"})),
            Shape::MicroTime => {
                self.plain(&format!("{META}.MicroTime"), json!({"type": "string", "format": "date-time"}))
            }
            // Not an empty schema: kubectl takes that for none.
            Shape::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
        };
        if let Some(default) = default {
            schema["default"] = default.clone();
        }
        if !allowed.is_empty() {
            schema["enum"] = allowed.to_vec().into();
        }
        schema
    }

    /// Items of lists and values of maps have the default their Go type has.
    fn element(&mut self, ty: TypeId) -> Value {
        let mut schema = self.value(ty);
        match self.catalogue.shape(ty) {
            Shape::Object(_) => schema["default"] = json!({}),
            Shape::String => schema["default"] = "".into(),
            Shape::Integer(_) => schema["default"] = 0.into(),
            Shape::Boolean => schema["default"] = false.into(),
            _ => {}
        }
        alone(schema)
    }

    fn reference(&mut self, ty: TypeId) -> Value {
        let name = self.name(ty);
        let published = self.catalogue.named(&name).unwrap_or(ty);
        if self.seen.insert(published) {
            self.waiting.push(published);
        }
        let mut schema = reference(&name);
        // A field may be granular where the type it refers to is atomic.
        if let (Shape::Object(here), Shape::Object(there)) = (self.catalogue.shape(ty), self.catalogue.shape(published))
            && here.atomic != there.atomic
        {
            schema["x-kubernetes-map-type"] = if here.atomic { "atomic" } else { "granular" }.into();
        }
        schema
    }

    /// A type that is a schema by itself and not an object of the catalogue.
    fn plain(&mut self, name: &str, mut schema: Value) -> Value {
        if !self.done.contains_key(name) {
            if let Some(words) = describe(name) {
                schema["description"] = words.into();
            }
            self.done.insert(name.to_owned(), schema);
        }
        reference(name)
    }
}

/// A reference without siblings needs no wrapping.
fn alone(schema: Value) -> Value {
    match schema.as_object().filter(|map| map.len() == 1).and_then(|map| map.get("allOf")?.get(0)) {
        Some(reference) => reference.clone(),
        None => schema,
    }
}

/// A reference that can have siblings (a description, a default): beside a bare `$ref` OpenAPI 3.0 ignores them.
pub fn reference(name: &str) -> Value {
    json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]})
}
