//! Small hands for filling in trees.

use serde_json::{Map, Value};

/// Sets a field that is missing or null.
pub fn absent(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(map) = object
        && map.get(field).is_none_or(Value::is_null)
    {
        map.insert(field.to_owned(), value.into());
    }
}

/// Sets a text field that is missing, null or empty, as Go's defaulting of plain strings does.
pub fn blank(object: &mut Value, field: &str, value: &str) {
    if object.get(field).and_then(Value::as_str).unwrap_or_default().is_empty()
        && let Value::Object(map) = object
    {
        map.insert(field.to_owned(), value.into());
    }
}

/// The object below a field, made when it is missing. `None` when something else stands there.
pub fn within<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    let map = object.as_object_mut()?;
    let inner = map.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if inner.is_null() {
        *inner = Value::Object(Map::new());
    }
    inner.is_object().then_some(inner)
}

/// The object below a field, if it is there.
pub fn given<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    object.get_mut(field).filter(|inner| inner.is_object())
}

/// Every item of a list field.
pub fn each(object: &mut Value, field: &str, mut change: impl FnMut(&mut Value)) {
    if let Some(Value::Array(items)) = object.get_mut(field) {
        items.iter_mut().for_each(&mut change);
    }
}

/// A field as text; empty when missing.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}
