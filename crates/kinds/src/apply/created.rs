//! Ownership of a new object: everything in it is its creator's.
//!
//! Creating pods is the hot path of the server, so this is not a comparison with nothing but one walk that writes the
//! `fieldsV1` text as it goes. It says the same as [`super::compare`] of an unfilled object with the new one would, and a
//! test holds the two together.

use serde_json::Value;

use super::compare::is_zero;
use super::cursor::{Atom, Cursor};
use super::{Writer, element, managed};
use crate::schema::List;

/// Replaces an object's managedFields by the one entry of its creator. What the request brought is dropped: in a new
/// object nobody else can own anything.
pub fn created(object: &mut Value, by: &Writer<'_>) {
    managed::strip_from(object);
    let Some(text) = created_text(object, by) else { return };
    // What was just written is JSON.
    let Ok(entries) = serde_json::from_str(&text) else { return };
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("managedFields".into(), entries);
    }
}

/// The whole `managedFields` list of a new object as JSON text, for a server that renders the object anyway and can put
/// the text in place: it saves building and dropping a tree as large as the object. None when there is nothing to own.
pub fn created_text(object: &Value, by: &Writer<'_>) -> Option<String> {
    let fields = created_fields(object, by);
    if fields == EMPTY {
        return None;
    }
    let mut out = String::with_capacity(fields.len() + 160);
    let mut text = |name: &str, value: &str| {
        out.push_str(name);
        escape_into(&mut out, value);
    };
    text("[{\"apiVersion\":\"", by.api_version);
    text("\",\"fieldsType\":\"", "FieldsV1");
    out.push_str("\",\"fieldsV1\":");
    out.push_str(&fields);
    let mut text = |name: &str, value: &str| {
        out.push_str(name);
        escape_into(&mut out, value);
    };
    text(",\"manager\":\"", by.manager);
    text("\",\"operation\":\"", "Update");
    if !by.subresource.is_empty() {
        text("\",\"subresource\":\"", by.subresource);
    }
    text("\",\"time\":\"", by.now);
    out.push_str("\"}]");
    Some(out)
}

const EMPTY: &str = "{}";

/// The `fieldsV1` text of a new object; `{}` when there is nothing to own.
pub fn created_fields(object: &Value, by: &Writer<'_>) -> String {
    let mut out = String::with_capacity(1024);
    let cursor = by.cursor();
    let Value::Object(fields) = object else { return EMPTY.into() };
    out.push('{');
    for (name, field) in fields {
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => write_metadata(&mut out, cursor.child(name), field, by),
            name if by.reset.contains(&name) => {}
            name => write_field(&mut out, cursor, name, field, true),
        }
    }
    out.push('}');
    out
}

/// Metadata itself is never owned, nor is what the server puts into it.
fn write_metadata(out: &mut String, cursor: Cursor<'_>, metadata: &Value, by: &Writer<'_>) {
    let Value::Object(fields) = metadata else { return };
    write_element(out, "f:", "metadata", |out| {
        for (name, field) in fields {
            let is_unowned = super::UNOWNED.iter().any(|path| matches!(path, ["metadata", leaf] if leaf == name));
            let is_reset = || by.reset.iter().any(|path| path.strip_prefix("metadata.") == Some(name));
            if !is_unowned && !is_reset() {
                write_field(out, cursor, name, field, true);
            }
        }
        false
    });
}

/// One field of an object. `zero_parent` says that the object existed before anybody filled it.
fn write_field(out: &mut String, cursor: Cursor<'_>, name: &str, field: &Value, zero_parent: bool) {
    let existed = zero_parent && cursor.exists_when_zero(name);
    write_element(out, "f:", name, |out| write_value(out, cursor.child(name), field, existed));
}

/// What of a value is owned. Returns whether the value itself is; the caller has opened its node.
fn write_value(out: &mut String, cursor: Cursor<'_>, value: &Value, existed: bool) -> bool {
    match cursor.atom(Some(value)) {
        Atom::Fields => match value.as_object().filter(|fields| !fields.is_empty()) {
            None => !existed,
            Some(fields) => {
                write_self(out, !existed);
                for (name, field) in fields {
                    write_field(out, cursor, name, field, existed);
                }
                !existed
            }
        },
        Atom::Items(list) => match value.as_array().filter(|items| !items.is_empty()) {
            None => !existed || !is_zero(value),
            Some(items) => {
                write_self(out, !existed);
                write_items(out, cursor, list, items);
                !existed
            }
        },
        Atom::Leaf => !existed || !is_zero(value),
    }
}

fn write_items(out: &mut String, cursor: Cursor<'_>, list: &List, items: &[Value]) {
    let mut elements: Vec<(String, &Value)> = Vec::with_capacity(items.len());
    for item in items {
        if let Ok(element) = element::item(cursor.catalogue, list, item) {
            elements.push((element, item));
        }
    }
    elements.sort_by(|a, b| a.0.cmp(&b.0));
    let mut i = 0;
    while i < elements.len() {
        let twins = elements[i..].iter().take_while(|(element, _)| *element == elements[i].0).count();
        let (element, item) = &elements[i];
        write_element(out, "", element, |out| {
            if twins == 1 { write_value(out, cursor.item(list), item, false) } else { true }
        });
        i += twins;
    }
}

/// Writes the node of an element. `inside` writes what is below and says whether the element itself is a member; a node
/// that is neither a member nor leads to one is not written.
fn write_element(out: &mut String, kind: &str, rest: &str, inside: impl FnOnce(&mut String) -> bool) {
    let start = out.len();
    if !out.ends_with('{') {
        out.push(',');
    }
    out.push('"');
    out.push_str(kind);
    escape_into(out, rest);
    out.push_str("\":{");
    let opened = out.len();
    let is_member = inside(out);
    if &out[opened..] == SELF_ENTRY {
        out.truncate(opened);
    }
    if out.len() == opened && !is_member {
        out.truncate(start);
    } else {
        out.push('}');
    }
}

const SELF_ENTRY: &str = "\".\":{}";

fn write_self(out: &mut String, is_member: bool) {
    if is_member {
        out.push_str(SELF_ENTRY);
    }
}

fn escape_into(out: &mut String, text: &str) {
    let mut plain = 0;
    for (i, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        // These bytes never occur inside a longer character, so the cut is at a boundary.
        out.push_str(&text[plain..i]);
        plain = i + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            control => out.push_str(&format!("\\u{control:04x}")),
        }
    }
    out.push_str(&text[plain..]);
}
