//! Protobuf bodies, read by the facts about the kind instead of by generated structs: one pass from bytes to tree.
//!
//! kubectl and client-go send typed kinds this way and do not fall back to JSON. A body is four magic bytes and a message
//! `Unknown { typeMeta = 1 { apiVersion = 1, kind = 2 }, raw = 2, contentEncoding = 3, contentType = 4 }`. This reader
//! builds the tree as the wire has it, zero values and all; [`super::fit`] knows which of those mean "absent".

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::time::{self, Precision};
use super::{CRD_SCHEMA, DEPTH_MAX, DecodeError, VALUES_MAX};
use crate::facts::facts;
use crate::schema::{Catalogue, Shape, TypeId, Width, WireKind, WireTarget};

/// What every protobuf body begins with: "k8s" and a zero.
pub const PROTOBUF_MAGIC: [u8; 4] = *b"k8s\0";

/// Reads a body. Its kind is the one it names when that is a built-in kind (options come with any body), else `ty`.
pub fn protobuf(bytes: &[u8], catalogue: &Catalogue, ty: TypeId) -> Result<Value, DecodeError> {
    let Some(envelope) = bytes.strip_prefix(&PROTOBUF_MAGIC) else {
        return Err(DecodeError::Envelope(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ));
    };
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut fields = Fields(envelope);
    while let Some((number, content)) = fields.next().map_err(outside)? {
        match (number, content) {
            (1, Content::Bytes(meta)) => {
                let mut meta = Fields(meta);
                while let Some((number, content)) = meta.next().map_err(outside)? {
                    match (number, content) {
                        (1, Content::Bytes(text)) => api_version = string(text),
                        (2, Content::Bytes(text)) => kind = string(text),
                        _ => {}
                    }
                }
            }
            (2, Content::Bytes(content)) => raw = content,
            (3, Content::Bytes(encoding)) if !encoding.is_empty() => {
                return Err(DecodeError::Envelope("a content encoding is not supported"));
            }
            _ => {}
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let mut reader = Reader { catalogue, values: 0 };
    let mut map = Map::new();
    match facts().kind(group, version, &kind) {
        Some(ty) => {
            reader.catalogue = &facts().catalogue;
            reader.message(ty, raw, &mut map, 0)?;
        }
        None if kind.is_empty() => reader.message(ty, raw, &mut map, 0)?,
        None => return Err(DecodeError::UnknownKind { api_version, kind }),
    }
    for (name, text) in [("apiVersion", api_version), ("kind", kind)] {
        if !text.is_empty() {
            map.insert(name.to_owned(), text.into());
        }
    }
    Ok(Value::Object(map))
}

/// Faults of the envelope are told apart from those of the object in it.
fn outside(error: DecodeError) -> DecodeError {
    match error {
        DecodeError::Protobuf(words) => DecodeError::Envelope(words),
        other => other,
    }
}

/// One field's content as the wire types have it.
#[derive(Clone, Copy)]
enum Content<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

/// The fields of a message, one after the other.
struct Fields<'a>(&'a [u8]);

const TRUNCATED: DecodeError = DecodeError::Protobuf("unexpected EOF");

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<(u32, Content<'a>)>, DecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| DecodeError::Protobuf("proto: illegal tag"))?;
        if number == 0 {
            return Err(DecodeError::Protobuf("proto: illegal tag 0"));
        }
        let content = match tag & 7 {
            0 => Content::Varint(self.varint()?),
            1 => {
                let bytes: [u8; 8] = self.take(8)?.try_into().map_err(|_| TRUNCATED)?;
                Content::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| TRUNCATED)?;
                Content::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Content::Fixed32
            }
            _ => return Err(DecodeError::Protobuf("proto: illegal wireType")),
        };
        Ok(Some((number, content)))
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value: u64 = 0;
        for at in 0..10 {
            let Some((byte, rest)) = self.0.split_first() else { return Err(TRUNCATED) };
            self.0 = rest;
            if at == 9 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Protobuf("proto: integer overflow"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(taken)
    }
}

struct Reader<'c> {
    catalogue: &'c Catalogue,
    values: usize,
}

impl Reader<'_> {
    fn message(
        &mut self,
        ty: TypeId,
        bytes: &[u8],
        map: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        if depth > DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        let Shape::Object(object) = self.catalogue.shape(ty) else {
            return Err(DecodeError::Protobuf("a message where the kind has none"));
        };
        let mut fields = Fields(bytes);
        while let Some((number, content)) = fields.next()? {
            // Numbers this version does not know are skipped, as by every protobuf reader.
            let Some(wire) = object.wire(number) else { continue };
            match &wire.target {
                WireTarget::Inline(ty) => self.message(*ty, bytes_of(content)?, map, depth + 1)?,
                WireTarget::Field(name) => {
                    let Some(field) = object.field(name) else { continue };
                    let slot = map.entry(&**name).or_insert(Value::Null);
                    self.field(field.ty, wire.kind, content, slot, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// Puts what one occurrence of a field says into its place: repeated fields append, messages merge, scalars replace.
    fn field(
        &mut self,
        ty: TypeId,
        kind: WireKind,
        content: Content<'_>,
        slot: &mut Value,
        depth: usize,
    ) -> Result<(), DecodeError> {
        match self.catalogue.shape(ty) {
            Shape::List(list) if kind == WireKind::WrappedList => *slot = self.wrapped(list.item, content, depth)?,
            Shape::List(list) => {
                if !slot.is_array() {
                    *slot = Value::Array(Vec::new());
                }
                let Value::Array(items) = slot else { return Ok(()) };
                match (self.catalogue.shape(list.item), content) {
                    (Shape::Integer(_) | Shape::Boolean, Content::Bytes(packed)) => {
                        let mut packed = Fields(packed);
                        while !packed.0.is_empty() {
                            let content = Content::Varint(packed.varint()?);
                            items.push(self.leaf(list.item, kind, content, depth)?);
                        }
                    }
                    _ => items.push(self.leaf(list.item, kind, content, depth)?),
                }
            }
            Shape::Map { value, .. } => {
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                let Value::Object(map) = slot else { return Ok(()) };
                let (mut key, mut held) = (String::new(), None);
                let mut entry = Fields(bytes_of(content)?);
                while let Some((number, content)) = entry.next()? {
                    match number {
                        1 => key = string(bytes_of(content)?),
                        2 => held = Some(self.leaf(*value, kind, content, depth)?),
                        _ => {}
                    }
                }
                if held.is_none() {
                    self.count()?;
                }
                map.insert(key, held.unwrap_or(Value::Null));
            }
            Shape::Object(_) => {
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                let Value::Object(map) = slot else { return Ok(()) };
                self.count()?;
                self.message(ty, bytes_of(content)?, map, depth)?;
            }
            _ => *slot = self.leaf(ty, kind, content, depth)?,
        }
        Ok(())
    }

    /// A value that stands for itself: a scalar, an item of a list, a value of a map.
    fn leaf(&mut self, ty: TypeId, kind: WireKind, content: Content<'_>, depth: usize) -> Result<Value, DecodeError> {
        self.count()?;
        match kind {
            WireKind::Raw => return self.raw(bytes_of(content)?, depth),
            WireKind::SchemaOrBool | WireKind::SchemaOrArray | WireKind::SchemaOrStrings => {
                return self.schema_or(kind, bytes_of(content)?, depth);
            }
            WireKind::Plain | WireKind::WrappedList => {}
        }
        Ok(match (self.catalogue.shape(ty), content) {
            (Shape::String, Content::Bytes(bytes)) => Value::String(string(bytes)),
            (Shape::Bytes, Content::Bytes(bytes)) => Value::String(STANDARD.encode(bytes)),
            (Shape::Integer(width), Content::Varint(value)) => integer(*width, value)?,
            (Shape::Boolean, Content::Varint(value)) => Value::Bool(value != 0),
            (Shape::Number, Content::Fixed64(bits)) => match Number::from_f64(f64::from_bits(bits)) {
                Some(number) => Value::Number(number),
                None => return Err(DecodeError::Protobuf("a number that is not finite")),
            },
            (Shape::Quantity, Content::Bytes(bytes)) => quantity(bytes)?,
            (Shape::Time, Content::Bytes(bytes)) => moment(bytes, Precision::Seconds)?,
            (Shape::MicroTime, Content::Bytes(bytes)) => moment(bytes, Precision::Micros)?,
            (Shape::IntOrString, Content::Bytes(bytes)) => int_or_string(bytes)?,
            (Shape::List(list), _) if kind == WireKind::WrappedList => self.wrapped(list.item, content, depth)?,
            (Shape::Object(_), Content::Bytes(bytes)) => {
                let mut map = Map::new();
                self.message(ty, bytes, &mut map, depth + 1)?;
                Value::Object(map)
            }
            _ => return Err(DecodeError::Protobuf("proto: wrong wireType")),
        })
    }

    fn wrapped(&mut self, item: TypeId, content: Content<'_>, depth: usize) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        let mut fields = Fields(bytes_of(content)?);
        while let Some((number, content)) = fields.next()? {
            if number == 1 {
                items.push(self.leaf(item, WireKind::Plain, content, depth)?);
            }
        }
        Ok(Value::Array(items))
    }

    /// The three places of a CRD schema that hold a schema or something else.
    fn schema_or(&mut self, kind: WireKind, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
        let Some(ty) = self.catalogue.named(CRD_SCHEMA) else {
            return Err(DecodeError::Protobuf("a schema where the kind has none"));
        };
        let (mut allows, mut schema, mut others) = (false, None, Vec::new());
        let mut fields = Fields(bytes);
        while let Some((number, content)) = fields.next()? {
            match (kind, number) {
                (WireKind::SchemaOrBool, 1) => allows = matches!(content, Content::Varint(value) if value != 0),
                (WireKind::SchemaOrBool, 2) | (_, 1) => {
                    let mut map = Map::new();
                    self.message(ty, bytes_of(content)?, &mut map, depth + 1)?;
                    schema = Some(Value::Object(map));
                }
                (WireKind::SchemaOrArray, 2) => {
                    let mut map = Map::new();
                    self.message(ty, bytes_of(content)?, &mut map, depth + 1)?;
                    others.push(Value::Object(map));
                }
                (WireKind::SchemaOrStrings, 2) => others.push(Value::String(string(bytes_of(content)?))),
                _ => {}
            }
        }
        Ok(match (kind, schema) {
            (_, Some(schema)) => schema,
            (WireKind::SchemaOrBool, None) => Value::Bool(allows),
            (_, None) if others.is_empty() => Value::Null,
            (_, None) => Value::Array(others),
        })
    }

    /// JSON in the place of a message: it nests in what it stands in.
    fn raw(&mut self, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
        let mut fields = Fields(bytes);
        let mut text = &[][..];
        while let Some((number, content)) = fields.next()? {
            if number == 1 {
                text = bytes_of(content)?;
            }
        }
        if text.is_empty() {
            return Ok(Value::Null);
        }
        Ok(super::json::json_inside(text, None, depth, &mut self.values)?.value)
    }

    fn count(&mut self) -> Result<(), DecodeError> {
        self.values += 1;
        if self.values > VALUES_MAX { Err(DecodeError::TooManyValues) } else { Ok(()) }
    }
}

fn bytes_of(content: Content<'_>) -> Result<&[u8], DecodeError> {
    match content {
        Content::Bytes(bytes) => Ok(bytes),
        Content::Varint(_) | Content::Fixed64(_) | Content::Fixed32 => {
            Err(DecodeError::Protobuf("proto: wrong wireType"))
        }
    }
}

/// Text that is not UTF-8 gets the replacement character, as when Go writes it as JSON.
fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn integer(width: Width, value: u64) -> Result<Value, DecodeError> {
    let value = value.cast_signed();
    if width == Width::I32 && i32::try_from(value).is_err() {
        return Err(DecodeError::Protobuf("proto: integer overflow"));
    }
    Ok(value.into())
}

fn quantity(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut fields = Fields(bytes);
    let mut text = "0".to_owned();
    while let Some((number, content)) = fields.next()? {
        if number == 1 {
            text = string(bytes_of(content)?);
        }
    }
    Ok(text.into())
}

/// Seconds and nanoseconds; an empty message is the time that was never set.
fn moment(bytes: &[u8], precision: Precision) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut fields = Fields(bytes);
    while let Some((number, content)) = fields.next()? {
        match (number, content) {
            (1, Content::Varint(value)) => seconds = value.cast_signed(),
            (2, Content::Varint(value)) => nanos = value.cast_signed(),
            _ => {}
        }
    }
    let range = DecodeError::Protobuf("a time out of range");
    let nanos = i32::try_from(nanos).map_err(|_| range.clone())?;
    let text = time::from_parts(seconds, nanos, precision).map_err(|()| range)?;
    Ok(text.map_or(Value::Null, Value::String))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut is_string, mut number_held, mut text) = (false, 0.into(), String::new());
    let mut fields = Fields(bytes);
    while let Some((number, content)) = fields.next()? {
        match (number, content) {
            (1, Content::Varint(kind)) => is_string = kind == 1,
            (2, Content::Varint(value)) => number_held = integer(Width::I32, value)?,
            (3, Content::Bytes(bytes)) => text = string(bytes),
            _ => {}
        }
    }
    Ok(if is_string { text.into() } else { number_held })
}
