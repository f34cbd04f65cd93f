//! What CEL rules may take for granted of a schema: types, and the most and the least there can be.
//!
//! Where a schema sets no bound, what fits into the largest request does: Kubernetes counts that way, so that the cost of
//! a rule is the same here and there.

use std::collections::BTreeMap;
use std::sync::Arc;

use rules::cel::{Declared, Shape, Type};
use serde_json::Value;

use super::cel_value::escape;
use super::compile::strings;

/// The largest request Kubernetes' estimates reckon with.
const REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// What a schema declares; none where rules do not see it, such as a value of any type.
pub(super) fn declare(schema: &Value, is_resource: bool) -> Option<Arc<Declared>> {
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64).map(|bound| u64::try_from(bound).unwrap_or(0));
    let longest = bound("maxLength").map(|characters| characters.saturating_mul(4));
    if flag("x-kubernetes-int-or-string") {
        return Some(Declared::scalar(Type::Dyn, longest.unwrap_or(REQUEST_BYTES - 2), 1));
    }
    match schema.get("type").and_then(Value::as_str)? {
        "array" => {
            let item = below(schema.get("items")?)?;
            let size_max = bound("maxItems").unwrap_or((REQUEST_BYTES - 2) / (item.bytes_min + 1));
            Some(Arc::new(Declared { shape: Shape::List(item), size_max, bytes_min: 2 }))
        }
        "object" => match schema.get("additionalProperties").filter(|value| value.is_object()) {
            Some(value) => {
                let value = below(value)?;
                // A key, its quotes, a colon and a comma come to six bytes at least.
                let size_max = bound("maxProperties").unwrap_or((REQUEST_BYTES - 2) / (value.bytes_min + 6));
                Some(Arc::new(Declared { shape: Shape::Map(value), size_max, bytes_min: 2 }))
            }
            None => Some(object(schema, is_resource)),
        },
        "string" => Some(text(schema, bound("maxLength"), longest)),
        "boolean" => Some(Declared::scalar(Type::Bool, 0, 4)),
        "number" => Some(Declared::scalar(Type::Double, 0, 1)),
        "integer" => Some(Declared::scalar(Type::Int, 0, 1)),
        _ => None,
    }
}

fn below(schema: &Value) -> Option<Arc<Declared>> {
    declare(schema, schema.get("x-kubernetes-embedded-resource").and_then(Value::as_bool).unwrap_or(false))
}

fn object(schema: &Value, is_resource: bool) -> Arc<Declared> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let meta = is_resource && !declares_meta(schema);
    let required: Vec<&str> = strings(schema, "required").collect();
    let mut fields = BTreeMap::new();
    let mut bytes_min = 2;
    let mut add = |name: &str, field: Option<Arc<Declared>>, has_default: bool| {
        let Some(field) = field else { return };
        if required.contains(&name) && !has_default {
            bytes_min += name.len() as u64 + field.bytes_min + 4;
        }
        if let Some(escaped) = escape(name) {
            fields.insert(escaped.into_owned(), field);
        }
    };
    for (name, property) in properties.into_iter().flatten() {
        if !(meta && ["apiVersion", "kind", "metadata"].contains(&name.as_str())) {
            add(name, below(property), property.get("default").is_some_and(|default| !default.is_null()));
        }
    }
    if meta {
        let name = || Declared::scalar(Type::Text, REQUEST_BYTES - 2, 2);
        add("apiVersion", Some(name()), false);
        add("kind", Some(name()), false);
        let names = [("name".to_owned(), name()), ("generateName".to_owned(), name())];
        let shape = Shape::Object(names.into_iter().collect());
        add("metadata", Some(Arc::new(Declared { shape, size_max: 0, bytes_min: 2 })), false);
    }
    Arc::new(Declared { shape: Shape::Object(fields), size_max: 0, bytes_min })
}

/// Of a resource rules always see its kind and its name; the schema's own words on them count only if they cover all.
fn declares_meta(schema: &Value) -> bool {
    let is = |path: &str, ty: &str| schema.pointer(path).and_then(Value::as_str) == Some(ty);
    is("/properties/kind/type", "string")
        && is("/properties/apiVersion/type", "string")
        && is("/properties/metadata/type", "object")
        && is("/properties/metadata/properties/name/type", "string")
        && is("/properties/metadata/properties/generateName/type", "string")
}

fn text(schema: &Value, characters: Option<u64>, longest: Option<u64>) -> Arc<Declared> {
    match schema.get("format").and_then(Value::as_str) {
        Some("byte") => Declared::scalar(Type::Bytes, characters.unwrap_or(REQUEST_BYTES - 2), 2),
        Some("duration") => Declared::scalar(Type::Duration, 32, 3),
        Some("date") => Declared::scalar(Type::Timestamp, 12, 12),
        Some("date-time") => Declared::scalar(Type::Timestamp, 32, 21),
        _ => {
            let allowed = schema.get("enum").and_then(Value::as_array).filter(|allowed| !allowed.is_empty());
            let size = longest.or_else(|| {
                let lengths = allowed?.iter().filter_map(Value::as_str).map(|text| text.len() as u64);
                Some(lengths.max().unwrap_or(0))
            });
            Declared::scalar(Type::Text, size.unwrap_or(REQUEST_BYTES - 2), 2)
        }
    }
}

/// How often something of at least this size fits into a request.
pub(super) fn most_often(bytes_min: u64) -> u64 {
    REQUEST_BYTES / (bytes_min + 1)
}
