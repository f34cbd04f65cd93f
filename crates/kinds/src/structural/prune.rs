//! Dropping what the schema does not know.

use serde_json::Value;

use super::ERRORS_MAX;
use crate::field_error::Path;
use crate::schema::{Catalogue, Shape, TypeId};

/// Drops unknown fields; returns their paths, sorted and at most [`ERRORS_MAX`].
pub(super) fn prune(catalogue: &Catalogue, ty: TypeId, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    walk(catalogue, ty, object, &Path::ROOT, &mut dropped);
    dropped.sort();
    dropped
}

fn walk(catalogue: &Catalogue, ty: TypeId, value: &mut Value, path: &Path<'_>, dropped: &mut Vec<String>) {
    match (catalogue.shape(ty), value) {
        (Shape::Object(object), Value::Object(fields)) => fields.retain(|name, field| {
            if let Some(known) = object.field(name) {
                walk(catalogue, known.ty, field, &path.child(name), dropped);
                return true;
            }
            if !object.preserve_unknown && dropped.len() < ERRORS_MAX {
                dropped.push(path.child(name).to_string());
            }
            object.preserve_unknown
        }),
        (Shape::Map { value, .. }, Value::Object(fields)) => {
            for (name, field) in fields {
                walk(catalogue, *value, field, &path.child(name), dropped);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for (i, item) in items.iter_mut().enumerate() {
                walk(catalogue, list.item, item, &path.index(i), dropped);
            }
        }
        _ => {}
    }
}
