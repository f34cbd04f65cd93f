//! Path elements as text, the keys of a field set: making them for list items, reading foreign spellings, printing them.

use serde_json::{Map, Value};

use crate::field_error::quote_into;
use crate::schema::{Catalogue, List, ListType, Shape};

/// The element of a field.
pub(super) fn field(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    text.push_str("f:");
    text.push_str(name);
    text
}

/// The element that identifies an item of a set or of a keyed list. Key fields the item leaves out count with their
/// default, so that a port without a protocol is the TCP port.
pub(super) fn item(catalogue: &Catalogue, list: &List, item: &Value) -> Result<String, String> {
    match &list.list_type {
        ListType::Atomic => Err("invalid indexing of non-associative list".into()),
        ListType::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
            scalar => {
                let mut text = String::from("v:");
                write_json(&mut text, scalar);
                Ok(text)
            }
        },
        ListType::Map { keys } => {
            let fields = match item {
                Value::Object(fields) => fields,
                Value::Null => return Err("associative list with keys may not have a null element".into()),
                _ => return Err("associative list with keys may not have non-map elements".into()),
            };
            keyed(catalogue, list, keys, fields)
        }
    }
}

fn keyed(catalogue: &Catalogue, list: &List, keys: &[Box<str>], fields: &Map<String, Value>) -> Result<String, String> {
    let mut text = String::with_capacity(32);
    text.push_str("k:{");
    let mut write = |key: &str, value: &Value| {
        if !text.ends_with('{') {
            text.push(',');
        }
        write_text(&mut text, key);
        text.push(':');
        write_json(&mut text, value);
    };
    let mut found = false;
    // The names inside an element are sorted; nearly all lists have one key, and the published ones are sorted already.
    let mut sorted: Vec<&str>;
    let mut each = |key: &str| {
        if let Some(value) = fields.get(key).or_else(|| key_default(catalogue, list, key)) {
            write(key, value);
            found = true;
        }
    };
    if keys.is_sorted() {
        keys.iter().for_each(|key| each(key));
    } else {
        sorted = keys.iter().map(|key| &**key).collect();
        sorted.sort_unstable();
        sorted.into_iter().for_each(each);
    }
    if !found {
        let keys: Vec<String> = keys.iter().map(|key| crate::field_error::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values \
             for any key fields)",
            keys.join(" ")
        ));
    }
    text.push('}');
    Ok(text)
}

fn key_default<'c>(catalogue: &'c Catalogue, list: &List, key: &str) -> Option<&'c Value> {
    match catalogue.shape(list.item) {
        Shape::Object(object) => object.field(key).and_then(|field| catalogue.get(field.ty).default.as_ref()),
        _ => None,
    }
}

/// One spelling for an element that came from outside. None for kinds of elements we do not know.
pub(super) fn canonical(text: &str) -> Result<Option<String>, String> {
    let Some((kind, rest)) = text.split_once(':') else { return Err(format!("missing colon: {text}")) };
    let parse = || serde_json::from_str::<Value>(rest).map_err(|why| format!("{text}: {why}"));
    Ok(match kind {
        "f" => Some(text.to_owned()),
        "v" => {
            let mut out = String::from("v:");
            write_json(&mut out, &parse()?);
            Some(out)
        }
        "k" => {
            let value = parse()?;
            if !value.is_object() {
                return Err(format!("{text}: expected an object"));
            }
            let mut out = String::from("k:");
            write_json(&mut out, &value);
            Some(out)
        }
        "i" => {
            let index: i64 = rest.parse().map_err(|why| format!("{text}: {why}"))?;
            Some(format!("i:{index}"))
        }
        _ => None,
    })
}

/// `.name`, `[name="a"]`, `[="a"]`, `[0]`.
pub(super) fn display_into(out: &mut String, element: &str) {
    let Some((kind, rest)) = element.split_once(':') else { return };
    match kind {
        "f" => {
            out.push('.');
            out.push_str(rest);
        }
        "k" => {
            out.push('[');
            if let Ok(Value::Object(fields)) = serde_json::from_str(rest) {
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(name);
                    out.push('=');
                    show(out, value);
                }
            }
            out.push(']');
        }
        "v" => {
            out.push_str("[=");
            if let Ok(value) = serde_json::from_str(rest) {
                show(out, &value);
            }
            out.push(']');
        }
        _ => {
            out.push('[');
            out.push_str(rest);
            out.push(']');
        }
    }
}

pub(super) fn display(element: &str) -> String {
    let mut out = String::new();
    display_into(&mut out, element);
    out
}

fn show(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => quote_into(out, text),
        other => out.push_str(&other.to_string()),
    }
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_text(out, text),
        other => out.push_str(&other.to_string()),
    }
}

/// A JSON string. Keys are names, which hardly ever need an escape; then it is a copy.
pub(super) fn write_text(out: &mut String, text: &str) {
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}
