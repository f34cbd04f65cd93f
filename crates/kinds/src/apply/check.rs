//! Is an applied configuration something the schema knows? Ownership is recorded by path, so a field that does not exist
//! or a list with two items of one identity must be refused before anything is merged.

use std::collections::HashSet;

use serde_json::Value;

use super::cursor::Cursor;
use super::element;
use crate::schema::{ListType, Shape};

/// Errors reported for one configuration. A hostile one could have a million; nobody reads more than these.
const ERRORS_MAX: usize = 50;

/// What is wrong, in the order of the fields; each entry is `path: why`.
pub(super) fn check(cursor: Cursor<'_>, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    walk(cursor, value, &mut String::new(), &mut errors);
    errors
}

fn walk(cursor: Cursor<'_>, value: &Value, path: &mut String, errors: &mut Vec<String>) {
    if errors.len() >= ERRORS_MAX || value.is_null() {
        return;
    }
    let Some(ty) = cursor.ty else { return };
    let start = path.len();
    match (cursor.catalogue.shape(ty), value) {
        (Shape::Object(object), Value::Object(fields)) => {
            for (name, field) in fields {
                element::display_into(path, &element::field(name));
                if object.field(name).is_some() {
                    walk(cursor.child(name), field, path, errors);
                } else if !object.preserve_unknown {
                    errors.push(format!("{path}: field not declared in schema"));
                }
                path.truncate(start);
            }
        }
        (Shape::Map { .. }, Value::Object(fields)) => {
            for (name, field) in fields {
                element::display_into(path, &element::field(name));
                walk(cursor.child(name), field, path, errors);
                path.truncate(start);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            let mut seen = HashSet::with_capacity(items.len());
            for (i, item) in items.iter().enumerate() {
                let element = if list.list_type == ListType::Atomic {
                    format!("i:{i}")
                } else {
                    match element::item(cursor.catalogue, list, item) {
                        Ok(element) => element,
                        Err(why) => {
                            errors.push(format!("{path}: element {i}: {why}"));
                            return;
                        }
                    }
                };
                if seen.contains(&element) {
                    errors.push(format!("{path}: duplicate entries for key {}", element::display(&element)));
                }
                element::display_into(path, &element);
                walk(cursor.item(list), item, path, errors);
                path.truncate(start);
                seen.insert(element);
            }
        }
        (Shape::Object(_) | Shape::Map { .. }, other) => {
            errors.push(format!("{path}: expected map, got {}", show(other)))
        }
        (Shape::List(_), other) => errors.push(format!("{path}: expected list, got {}", show(other))),
        (Shape::Integer(_) | Shape::Number, value) if !value.is_number() => {
            errors.push(format!("{path}: expected numeric (int or float), got {}", go_type(value)));
        }
        (Shape::Boolean, value) if !value.is_boolean() => {
            errors.push(format!("{path}: expected boolean, got {}", show(value)));
        }
        (Shape::String | Shape::Time | Shape::MicroTime | Shape::Duration | Shape::Bytes, value)
            if !value.is_string() =>
        {
            errors.push(format!("{path}: expected string, got {}", show(value)));
        }
        (Shape::IntOrString | Shape::Quantity, Value::Object(_) | Value::Array(_)) => {
            errors.push(format!("{path}: expected any scalar, got {}", show(value)));
        }
        _ => {}
    }
}

/// The value as the message shows it, cut: a configuration may carry megabytes in one field.
fn show(value: &Value) -> String {
    const SHOWN_CHARS_MAX: usize = 256;
    let text = value.to_string();
    if text.len() <= SHOWN_CHARS_MAX { text } else { text.chars().take(SHOWN_CHARS_MAX).chain(['…']).collect() }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Object(_) => "map[string]interface {}",
        _ => "[]interface {}",
    }
}
