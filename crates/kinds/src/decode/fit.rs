//! Fits an object to its built-in kind: the work that decoding into Go structs and encoding again does upstream.
//!
//! Types are checked and nothing is coerced. Fields the kind does not have are named and dropped. Then the object is brought
//! into the form it would have after a round trip through the Go type, because that form is what clients compare with, what
//! server-side apply computes field sets of, and what makes an object the same whether it came as JSON or protobuf:
//! - null is absent;
//! - an empty value of a field with `omitempty` is absent, unless Go holds the field by pointer;
//! - a field without `omitempty` that is no pointer is always there (`resources: {}`, `status: {}`);
//! - quantities and times are written as Kubernetes writes them.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde_json::{Map, Value};

use super::time::{self, Precision};
use super::{CRD_SCHEMA, DEPTH_MAX, DecodeError, FIELD_PROBLEMS_MAX, Room, TooLarge};
use crate::fields::word;
use crate::schema::{Catalogue, Field, Object, Shape, Type, TypeId, Width};

/// An object that fits its kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    pub value: Value,
    /// Paths of the fields that were dropped because the kind does not have them: `spec.containers[0].imagee`.
    pub unknown: Vec<String>,
}

/// Checks a value against a type of a built-in kind and brings it into its stored form.
pub fn fit(catalogue: &Catalogue, ty: TypeId, mut value: Value) -> Result<Fitted, DecodeError> {
    let mut fit = Fit { catalogue, unknown: Vec::new(), room: Room::default() };
    fit.value(ty, &mut value, &Place::Root, 0)?;
    Ok(Fitted { value, unknown: fit.unknown })
}

/// Sets the fields that are absent from an object and whose schema declares a default, and rounds every entry of a
/// ResourceList up to a thousandth, which upstream counts among the defaults. Kinds have further defaults which only code
/// can give. Ends with an error, and the object half done, where that would make too much of it.
pub fn apply_defaults(catalogue: &Catalogue, ty: TypeId, value: &mut Value) -> Result<(), TooLarge> {
    fill_defaults(catalogue, ty, value, &mut Room::default())
}

fn fill_defaults(catalogue: &Catalogue, ty: TypeId, value: &mut Value, room: &mut Room) -> Result<(), TooLarge> {
    match (catalogue.shape(ty), value) {
        (Shape::Object(object), Value::Object(map)) => {
            for field in object.fields() {
                match (map.get_mut(&*field.name), &catalogue.get(field.ty).default) {
                    (Some(child), _) => fill_defaults(catalogue, field.ty, child, room)?,
                    // A default that is Go's zero is not printed where empty values are omitted.
                    (None, Some(default)) if !(field.omit_empty && !field.pointer && is_zero(default)) => {
                        room.take(&field.name, default)?;
                        map.insert(field.name.to_string(), default.clone());
                    }
                    (None, _) => {}
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().try_for_each(|item| fill_defaults(catalogue, list.item, item, room))?;
        }
        (Shape::Map { value, .. }, Value::Object(map)) => {
            map.values_mut().try_for_each(|child| fill_defaults(catalogue, *value, child, room))?;
            if catalogue.get(ty).name.as_deref() == Some("v1.ResourceList") {
                map.values_mut().for_each(round_up_milli);
            }
        }
        _ => {}
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Bool(flag) => !flag,
        _ => false,
    }
}

fn round_up_milli(value: &mut Value) {
    if let Value::String(text) = value
        && let Ok(quantity) = quantity::Quantity::parse(text)
    {
        let rounded = quantity.round_up_milli().to_string();
        if rounded != *text {
            *text = rounded;
        }
    }
}

struct Fit<'a> {
    catalogue: &'a Catalogue,
    unknown: Vec<String>,
    room: Room,
}

impl Fit<'_> {
    fn value(&mut self, ty: TypeId, value: &mut Value, place: &Place<'_>, depth: usize) -> Result<(), DecodeError> {
        if depth > DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        let catalogue = self.catalogue;
        let Type { shape, name, .. } = catalogue.get(ty);
        match (shape, &mut *value) {
            (Shape::Any, _) => {
                if let (Some(name), Some(schema)) = (name, catalogue.named(CRD_SCHEMA)) {
                    return self.schema_or(name, schema, value, place, depth);
                }
            }
            (Shape::Object(object), Value::Object(map)) => {
                let owner = name.as_deref().unwrap_or_default();
                return self.object(object, owner, map, place, depth);
            }
            (Shape::Map { value: ty, .. }, Value::Object(map)) => {
                for (key, child) in map.iter_mut() {
                    self.element(*ty, child, &Place::Key(place, key), depth)?;
                }
            }
            (Shape::List(list), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.element(list.item, item, &Place::Index(place, index), depth)?;
                }
            }
            (Shape::String, Value::String(_)) | (Shape::Boolean, Value::Bool(_)) => {}
            (Shape::Integer(width), Value::Number(number)) => {
                let fits = match width {
                    Width::I32 => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
                    Width::I64 => number.as_i64().is_some(),
                };
                if !fits {
                    return Err(mismatch(&format!("number {number}"), &go_type(catalogue, ty), place));
                }
            }
            (Shape::Number, Value::Number(number)) => {
                // Go prints a float without fraction as a whole number, and so does everyone who compares.
                if let Some(float) = number.as_f64()
                    && float.fract() == 0.0
                    && let Ok(Value::Number(whole)) = super::json::number(&format!("{float:.0}"), true)
                {
                    *number = whole;
                }
            }
            (Shape::IntOrString, Value::String(_)) => {}
            (Shape::IntOrString, Value::Number(number)) => {
                if number.as_i64().and_then(|number| i32::try_from(number).ok()).is_none() {
                    return Err(mismatch(&format!("number {number}"), "int32", place));
                }
            }
            (Shape::IntOrString, other) => return Err(mismatch(word(other), "int32", place)),
            (Shape::Quantity, _) => {
                if let Some(normal) = quantity(value)? {
                    *value = Value::String(normal);
                }
            }
            (Shape::Time, Value::String(text)) if time::is_normal(text.as_bytes()) => {}
            (Shape::Time, Value::String(text)) => *value = moment(text, Precision::Seconds)?,
            (Shape::MicroTime, Value::String(text)) => *value = moment(text, Precision::Micros)?,
            (Shape::Time | Shape::MicroTime | Shape::Duration, other) if !other.is_string() => {
                return Err(mismatch(word(other), "string", place));
            }
            (Shape::Duration, Value::String(_)) => {}
            (Shape::Bytes, Value::String(text)) => {
                if let Some(normal) = base64(text)? {
                    *text = normal;
                }
            }
            (_, other) => return Err(mismatch(word(other), &go_type(catalogue, ty), place)),
        }
        Ok(())
    }

    fn object(
        &mut self,
        object: &Object,
        owner: &str,
        map: &mut Map<String, Value>,
        place: &Place<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let mut failure = None;
        map.retain(|key, child| {
            if failure.is_some() {
                return true;
            }
            let here = Place::Field(place, owner, key);
            let Some(field) = object.field(key) else {
                if !object.preserve_unknown && self.unknown.len() < FIELD_PROBLEMS_MAX {
                    self.unknown.push(here.path());
                }
                return object.preserve_unknown;
            };
            if child.is_null() {
                return self.catalogue.get(field.ty).nullable;
            }
            if let Err(error) = self.value(field.ty, child, &here, depth + 1) {
                failure = Some(error);
                return true;
            }
            !(child.is_null() || field.omit_empty && !field.pointer && is_empty(child))
        });
        if let Some(error) = failure {
            return Err(error);
        }
        self.fill(object.fields(), map)?;
        Ok(())
    }

    /// A place of a CRD schema that holds a schema or something else. Upstream reads these places by code which does not
    /// report unknown fields, so they are dropped in silence here too.
    fn schema_or(
        &mut self,
        name: &str,
        schema: TypeId,
        value: &mut Value,
        place: &Place<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let known = self.unknown.len();
        let wanted = match (name, &mut *value) {
            (_, Value::Object(_)) => {
                self.value(schema, value, place, depth + 1)?;
                None
            }
            ("SchemaOrArray", Value::Array(schemas)) => {
                for item in schemas {
                    self.value(schema, item, place, depth + 1)?;
                }
                None
            }
            ("SchemaOrStrings", Value::Array(names)) => {
                names.iter().any(|name| !name.is_string()).then_some("property names")
            }
            ("SchemaOrBool", Value::Bool(_)) => None,
            ("SchemaOrBool", _) => Some("boolean or JSON schema"),
            _ => Some("JSON schema or list"),
        };
        self.unknown.truncate(known);
        match wanted {
            Some(wanted) => Err(DecodeError::Type(format!("{wanted} expected"))),
            None => Ok(()),
        }
    }

    /// Adds the fields that Go always writes.
    fn fill(&mut self, fields: &[Field], map: &mut Map<String, Value>) -> Result<(), TooLarge> {
        for field in fields.iter().filter(|field| !field.omit_empty && !field.pointer) {
            if !map.contains_key(&*field.name)
                && let Some(zero) = self.zero(field.ty)
            {
                self.room.take(&field.name, &zero)?;
                map.insert(field.name.to_string(), zero);
            }
        }
        Ok(())
    }

    /// An item of a list or a value of a map. Null is not absence here: Go makes the zero value of it.
    fn element(&mut self, ty: TypeId, value: &mut Value, place: &Place<'_>, depth: usize) -> Result<(), DecodeError> {
        if value.is_null() {
            *value = self.zero(ty).unwrap_or(Value::Null);
            return Ok(self.room.take("", value)?);
        }
        self.value(ty, value, place, depth + 1)
    }

    /// What Go writes for a value that was never set; none where it writes null.
    fn zero(&self, ty: TypeId) -> Option<Value> {
        Some(match self.catalogue.shape(ty) {
            Shape::Object(object) => {
                let always = object.fields().iter().filter(|field| !field.omit_empty && !field.pointer);
                let zero = |field: &Field| Some((field.name.to_string(), self.zero(field.ty)?));
                Value::Object(always.filter_map(zero).collect())
            }
            Shape::String => "".into(),
            Shape::Integer(_) | Shape::Number | Shape::IntOrString => 0.into(),
            Shape::Boolean => false.into(),
            Shape::Quantity => "0".into(),
            Shape::Duration => "0s".into(),
            Shape::Map { .. } | Shape::List(_) | Shape::Time | Shape::MicroTime | Shape::Bytes | Shape::Any => {
                return None;
            }
        })
    }
}

fn mismatch(found: &str, wanted: &str, place: &Place<'_>) -> DecodeError {
    DecodeError::Type(match place.fields() {
        Some((owner, fields)) => {
            format!("json: cannot unmarshal {found} into Go struct field {owner}.{fields} of type {wanted}")
        }
        None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
    })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_i64() == Some(0) || number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// The most significant digits a decimal number can have and still be told from its neighbours as a float.
const FLOAT_DIGITS_MAX: usize = 15;

/// Reads a quantity and writes it as Kubernetes does; none when that is how it is written. A number is taken by its digits; one that went through a float (YAML
/// has no other) is taken only as far as a float holds decimal digits.
fn quantity(value: &Value) -> Result<Option<String>, DecodeError> {
    let digits_held: String;
    let text = match value {
        Value::String(text) => text.trim(),
        Value::Number(number) => {
            digits_held = number.to_string();
            let text = &*digits_held;
            let digits = text.split(['e', 'E']).next().unwrap_or_default();
            if number.is_f64() && digits.bytes().filter(u8::is_ascii_digit).count() > FLOAT_DIGITS_MAX + 1 {
                return Err(DecodeError::Type(format!(
                    "the quantity {text} has too many digits for a number: write it as a string"
                )));
            }
            text
        }
        // Whatever else it is, its text is no quantity; the error says what one looks like.
        _ => "",
    };
    match quantity::Quantity::parse(text) {
        Ok(quantity) => {
            let normal = quantity.to_string();
            Ok((*value != *normal).then_some(normal))
        }
        Err(error) => Err(DecodeError::Type(error.to_string())),
    }
}

fn moment(text: &str, precision: Precision) -> Result<Value, DecodeError> {
    let normal = time::normal(text, precision).map_err(DecodeError::Type)?;
    Ok(normal.map_or(Value::Null, Value::String))
}

/// Go ignores line breaks inside of base64 and does not mind bits beyond the last byte.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// The text as it would be written again; none when that is what it is.
fn base64(text: &str) -> Result<Option<String>, DecodeError> {
    let joined: String;
    let mut plain = text;
    if text.contains(['\n', '\r']) {
        joined = text.replace(['\n', '\r'], "");
        plain = &joined;
    }
    let bytes = LENIENT.decode(plain).map_err(|_| {
        DecodeError::Type(format!("illegal base64 data at input byte {}", base64_fault(text.as_bytes())))
    })?;
    let normal = STANDARD.encode(bytes);
    Ok((normal != text).then_some(normal))
}

/// Where Go says that base64 goes wrong: it reads four characters at a time and names the one it could not take, or the
/// start of a group that ends early.
fn base64_fault(text: &[u8]) -> usize {
    let mut rest = text.iter().enumerate().filter(|(_, byte)| !matches!(byte, b'\n' | b'\r')).peekable();
    while let Some(&(start, _)) = rest.peek() {
        for place in 0..4 {
            match rest.next() {
                Some((_, byte)) if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => {}
                Some((at, b'=')) if place >= 2 => {
                    let closed = match rest.peek() {
                        Some((_, b'=')) if place == 2 => rest.next().is_some(),
                        None if place == 2 => return text.len(),
                        _ => place == 3,
                    };
                    return if closed { rest.next().map_or(text.len(), |(at, _)| at) } else { at };
                }
                Some((at, _)) => return at,
                None => return start,
            }
        }
    }
    text.len()
}

/// The type's name in Go, as error messages have it.
fn go_type(catalogue: &Catalogue, ty: TypeId) -> String {
    let Type { shape, name, .. } = catalogue.get(ty);
    match (shape, name) {
        (Shape::Object(_), Some(name)) => {
            let mut last = name.rsplitn(3, '.');
            let (kind, version) = (last.next().unwrap_or_default(), last.next().unwrap_or_default());
            format!("{version}.{kind}")
        }
        (_, Some(name)) => name.to_string(),
        (Shape::Map { value, .. }, None) => format!("map[string]{}", go_type(catalogue, *value)),
        (Shape::List(list), None) => format!("[]{}", go_type(catalogue, list.item)),
        (Shape::Integer(Width::I32), None) => "int32".to_owned(),
        (Shape::Integer(Width::I64), None) => "int64".to_owned(),
        (Shape::Number, None) => "float64".to_owned(),
        (Shape::Boolean, None) => "bool".to_owned(),
        (Shape::Bytes, None) => "[]uint8".to_owned(),
        (Shape::Quantity, None) => "resource.Quantity".to_owned(),
        (Shape::Object(_) | Shape::Any, None) => "map[string]interface {}".to_owned(),
        (Shape::String | Shape::IntOrString | Shape::Time | Shape::MicroTime | Shape::Duration, None) => {
            "string".to_owned()
        }
    }
}

/// Where in the object the walk is; rendered only when there is something to say.
enum Place<'a> {
    Root,
    /// A field and the published name of the type it belongs to.
    Field(&'a Place<'a>, &'a str, &'a str),
    Key(&'a Place<'a>, &'a str),
    Index(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn path(&self) -> String {
        match self {
            Place::Root => String::new(),
            Place::Field(parent, _, name) | Place::Key(parent, name) => {
                let mut path = parent.path();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                path
            }
            Place::Index(parent, index) => format!("{}[{index}]", parent.path()),
        }
    }

    /// The innermost struct and the fields that lead here from the top; Go's messages count no list items or map keys.
    fn fields(&self) -> Option<(&str, String)> {
        match self {
            Place::Root => None,
            Place::Key(parent, _) | Place::Index(parent, _) => parent.fields(),
            Place::Field(parent, owner, name) => {
                let owner = owner.rsplit('.').next().unwrap_or(owner);
                let fields = match parent.fields() {
                    Some((_, fields)) => format!("{fields}.{name}"),
                    None => (*name).to_owned(),
                };
                Some((owner, fields))
            }
        }
    }
}
