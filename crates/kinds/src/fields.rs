//! Reading fields of a tree.

use serde_json::Value;

/// Follows field names down from a value. `pointer` would split and unescape text on every call.
#[inline]
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, field| value.get(field))
}

/// The same, where a null is nothing.
#[inline]
pub fn given<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    at(value, path).filter(|value| !value.is_null())
}

/// The items of a list field, none if it is absent.
#[inline]
pub fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A field as text; empty when it is absent or something else.
#[inline]
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or("")
}

/// What kind of value this is, by the word that messages have for it.
pub fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
