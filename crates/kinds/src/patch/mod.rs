//! The three patch languages that change a stored object without knowing who owns what: JSON patch (RFC 6902), JSON merge
//! patch (RFC 7396) and Kubernetes' strategic merge patch. The fourth, server-side apply, is [`crate::apply`].
//!
//! All three are pure functions from (object, patch) to the patched object or a [`PatchError`]. They check nothing about
//! the result: decoding against the schema, defaulting and validation follow as for any other write.

mod json;
mod merge;
mod strategic;

#[cfg(test)]
mod tests;

use serde_json::Value;
use thiserror::Error;

pub use json::{COPIED_BYTES_MAX, MOVED_VALUES_MAX, OPERATIONS_MAX, json_patch};
pub use merge::merge_patch;
pub use strategic::strategic;

/// Why a patch was not applied. The variants are the three answers a client can get; the texts are Kubernetes' own.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The patch is more work than one request may ask for: 413.
    #[error("{0}")]
    TooLarge(String),
    /// The patch is well formed and does not fit this object: 422.
    #[error("{0}")]
    Unprocessable(String),
}

/// Go's name of the type a JSON value decodes into; patch errors are phrased with it.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Longest rendering of a value inside an error text: enough to recognise a list item, too little to flood an answer.
const SHOWN_BYTES_MAX: usize = 1024;

/// A value the way Go's `%v` prints it, cut at [`SHOWN_BYTES_MAX`].
fn go_text(value: &Value) -> String {
    let mut out = String::new();
    write_go_text(&mut out, value);
    if out.len() > SHOWN_BYTES_MAX {
        let mut end = SHOWN_BYTES_MAX;
        while !out.is_char_boundary(end) {
            end -= 1;
        }
        out.truncate(end);
        out.push('…');
    }
    out
}

fn write_go_text(out: &mut String, value: &Value) {
    if out.len() > SHOWN_BYTES_MAX {
        return;
    }
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_go_text(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            for (i, (name, field)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                write_go_text(out, field);
            }
            out.push(']');
        }
    }
}
