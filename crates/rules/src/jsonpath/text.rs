//! What was found, as text, and as an amount.

use std::fmt::Write;

use quantity::{ParseError, Quantity};
use serde_json::Value;

use super::Found;
use super::steps::take_text;

/// The longest text that results are printed as. A path that selects more than this is no usage.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;

/// The results as client-go prints them: one space between, maps and lists as JSON, `null` spelled out.
/// `None` beyond [`TEXT_BYTES_MAX`].
pub fn text(found: &[Found<'_>]) -> Option<String> {
    let mut out = String::new();
    for (at, value) in found.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        match value {
            Found::Json(json @ (Value::Array(_) | Value::Object(_))) => out.push_str(&go_json(json)),
            Found::Json(Value::Null) => out.push_str("null"),
            scalar => out.push_str(&go_text(*scalar)),
        }
        if out.len() > TEXT_BYTES_MAX {
            break;
        }
    }
    take_text(out.len());
    (out.len() <= TEXT_BYTES_MAX).then_some(out)
}

/// Why results are no usage, in Capsule's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UsageError {
    #[error("quantity path did not resolve to any value")]
    Empty,
    #[error("invalid quantity {text:?}: {error}")]
    Quantity { text: String, error: ParseError },
    /// A part below zero would hide what the other parts take.
    #[error("invalid quantity {text:?}: must be greater than or equal to 0")]
    Negative { text: String },
    #[error("the sum of the quantities is too large")]
    Overflow,
    #[error("quantity path resolves to too much text")]
    TooLong,
}

/// The sum of all quantities in the results, as Capsule counts a usage: whatever the results print as, cut at spaces.
pub fn usage(found: &[Found<'_>]) -> Result<Quantity, UsageError> {
    let text = text(found).ok_or(UsageError::TooLong)?;
    let mut sum: Option<Quantity> = None;
    for token in text.split_whitespace() {
        let quantity = Quantity::parse(token)
            .map_err(|error| UsageError::Quantity { text: token.chars().take(64).collect(), error })?;
        if quantity.amount().is_negative() {
            return Err(UsageError::Negative { text: token.chars().take(64).collect() });
        }
        sum = Some(match sum {
            None => quantity,
            Some(sum) => sum.checked_add(&quantity).ok_or(UsageError::Overflow)?,
        });
    }
    sum.ok_or(UsageError::Empty)
}

/// A value as Go's default formatting shows it.
pub fn go_text(value: Found<'_>) -> String {
    match value {
        Found::Json(json) => {
            let mut out = String::new();
            write_go(&mut out, json);
            out
        }
        Found::Text(text) => text.to_string(),
        Found::Int(int) => int.to_string(),
        Found::Byte(byte) => byte.to_string(),
        Found::Float(float) => go_float(float),
        Found::Bool(bool) => bool.to_string(),
    }
}

/// Messages quote whole values; this is as much of one as anybody reads.
const SHOWN_BYTES_MAX: usize = 4096;

fn write_go(out: &mut String, value: &Value) {
    if out.len() > SHOWN_BYTES_MAX {
        return;
    }
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&go_number(number)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { " " } else { "" });
                write_go(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            out.push_str("map[");
            for (at, key) in keys.into_iter().enumerate() {
                let space = if at > 0 { " " } else { "" };
                let _ = write!(out, "{space}{key}:");
                if let Some(item) = map.get(key) {
                    write_go(out, item);
                }
            }
            out.push(']');
        }
    }
}

fn go_number(number: &serde_json::Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (Some(int), _) => int.to_string(),
        (None, Some(float)) => go_float(float),
        (None, None) => number.to_string(),
    }
}

/// The shortest digits that read back the same, in Go's `%v` layout: plain from 1e-4 up to below 1e21, with a signed
/// exponent of at least two digits outside.
fn go_float(float: f64) -> String {
    if float == 0.0 {
        return if float.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..21).contains(&exponent) {
        return format!("{float}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// JSON as Go marshals it: keys sorted, and `<`, `>`, `&` and the two line separators escaped.
fn go_json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out
}

fn write_json(out: &mut String, value: &Value) {
    if out.len() > TEXT_BYTES_MAX {
        return;
    }
    match value {
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, item)) in entries.into_iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_json_text(out, key);
                out.push(':');
                write_json(out, item);
            }
            out.push('}');
        }
        Value::String(text) => write_json_text(out, text),
        Value::Number(number) if number.as_i64().is_none() => {
            // The encoder's own layout of floats: exponents from 1e21 and below 1e-6, without a leading zero.
            let float = number.as_f64().unwrap_or(0.0);
            let magnitude = float.abs();
            if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
                out.push_str(&go_float(float).replace("e-0", "e-"));
            } else {
                let _ = write!(out, "{float}");
            }
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}

fn write_json_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{0}'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
