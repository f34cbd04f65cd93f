//! JSON as CEL sees it through a schema: times and durations are values of their own, a `number` is a double even when it
//! is written whole, and field names that are no identifiers are escaped.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::Value;

use crate::schema::{Catalogue, Shape, TypeId};

pub(super) fn to_cel(catalogue: &Catalogue, ty: Option<TypeId>, value: &Value) -> Cel {
    let ty = ty.map(|ty| catalogue.get(ty));
    let shape = ty.map(|ty| &ty.shape);
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) if matches!(shape, Some(Shape::Number)) => {
            Cel::Float(number.as_f64().unwrap_or_default())
        }
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Cel::Int(int),
            (None, Some(uint)) => Cel::UInt(uint),
            (None, None) => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => {
            let format = ty.and_then(|ty| ty.constraints.as_ref()?.format.as_deref());
            let typed = match format {
                Some("date-time" | "datetime" | "date") => rules::cel::timestamp(text),
                Some("duration") => rules::cel::duration(text),
                _ => None,
            };
            typed.unwrap_or_else(|| Cel::String(Arc::new(text.clone())))
        }
        Value::Array(items) => {
            let item_ty = match shape {
                Some(Shape::List(list)) => Some(list.item),
                _ => None,
            };
            Cel::List(Arc::new(items.iter().map(|item| to_cel(catalogue, item_ty, item)).collect()))
        }
        Value::Object(fields) => {
            let convert = |(name, field): (&String, &Value)| {
                let (key, ty) = match shape {
                    Some(Shape::Object(object)) => match object.field(name) {
                        Some(known) => (escape(name).unwrap_or(Cow::Borrowed(name)), Some(known.ty)),
                        None => (Cow::Borrowed(name.as_str()), None),
                    },
                    Some(Shape::Map { value, .. }) => (Cow::Borrowed(name.as_str()), Some(*value)),
                    _ => (Cow::Borrowed(name.as_str()), None),
                };
                (Key::String(Arc::new(key.into_owned())), to_cel(catalogue, ty, field))
            };
            let map: HashMap<Key, Cel> = fields.iter().map(convert).collect();
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

/// Words CEL keeps for itself.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The name by which a rule reads a field: `x-y` is `x__dash__y`, `namespace` is `__namespace__`. Rules do not see fields
/// whose names cannot be brought into that form.
pub(super) fn escape(name: &str) -> Option<Cow<'_, str>> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    if !name.bytes().all(is_known) {
        return None;
    }
    if !name.contains("__") && !name.contains(['-', '.', '/']) {
        return Some(Cow::Borrowed(name));
    }
    Some(Cow::Owned(
        name.replace("__", "__underscores__")
            .replace('.', "__dot__")
            .replace('-', "__dash__")
            .replace('/', "__slash__"),
    ))
}
