//! JSON in, typed outcome out. No amount passes through a float on the way.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{ExecutionError, Value};
use quantity::{Amount, Format, Quantity};
use serde_json::Value as Json;

use super::library::ExactQuantity;
use super::{CelError, INPUT_DEPTH_MAX, INPUT_VALUES_MAX};

/// How much there is to evaluate on: what the cost estimate starts from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// All values, nested ones included; long texts count for more.
    pub values: u64,
    /// The longest list or map.
    pub length: u64,
    /// The longest text, in bytes.
    pub text: u64,
}

pub(super) fn size_of<'a>(inputs: impl Iterator<Item = &'a Json>) -> Result<Size, CelError> {
    let mut size = Size { values: 1, length: 1, text: 1 };
    for input in inputs {
        measure(input, 0, &mut size)?;
    }
    Ok(size)
}

fn measure(value: &Json, depth: usize, size: &mut Size) -> Result<(), CelError> {
    size.values += 1;
    if depth > INPUT_DEPTH_MAX || size.values > INPUT_VALUES_MAX {
        return Err(CelError::InputTooLarge);
    }
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
        Json::String(text) => {
            let bytes = text.len() as u64;
            size.text = size.text.max(bytes);
            size.values += bytes / 64; // copying a text costs by its length
        }
        Json::Array(items) => {
            size.length = size.length.max(items.len() as u64);
            for item in items {
                measure(item, depth + 1, size)?;
            }
        }
        Json::Object(entries) => {
            size.length = size.length.max(entries.len() as u64);
            for item in entries.values() {
                measure(item, depth + 1, size)?;
            }
        }
    }
    Ok(())
}

/// Integers become `int`, as the Kubernetes API server binds them; serde would make `uint` of the non-negative ones, and
/// `uint + int` does not exist in CEL.
pub(super) fn to_cel(value: &Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(bool) => Value::Bool(*bool),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Value::Int(int),
            (None, Some(uint)) => Value::UInt(uint),
            (None, None) => number.as_f64().map_or(Value::Null, Value::Float),
        },
        Json::String(text) => Value::String(Arc::new(text.clone())),
        Json::Array(items) => Value::List(Arc::new(items.iter().map(to_cel).collect())),
        Json::Object(entries) => {
            let map: HashMap<Key, Value> =
                entries.iter().map(|(key, item)| (Key::String(Arc::new(key.clone())), to_cel(item))).collect();
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// What an expression evaluated to.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Quantity(Quantity),
    List(Vec<Outcome>),
    Map(BTreeMap<String, Outcome>),
    /// A timestamp, duration, address or other value that has no JSON form of its own, with its type's name.
    Other(&'static str),
}

impl Outcome {
    pub fn type_name(&self) -> &'static str {
        match self {
            Outcome::Null => "null",
            Outcome::Bool(_) => "bool",
            Outcome::Int(_) => "int",
            Outcome::Uint(_) => "uint",
            Outcome::Double(_) => "double",
            Outcome::Text(_) => "string",
            Outcome::Quantity(_) => "quantity",
            Outcome::List(_) => "list",
            Outcome::Map(_) => "map",
            Outcome::Other(name) => name,
        }
    }

    pub fn as_bool(&self) -> Result<bool, CelError> {
        match self {
            Outcome::Bool(bool) => Ok(*bool),
            other => Err(CelError::WrongType { wanted: "bool", got: other.type_name() }),
        }
    }

    pub fn as_text(&self) -> Result<&str, CelError> {
        match self {
            Outcome::Text(text) => Ok(text),
            other => Err(CelError::WrongType { wanted: "string", got: other.type_name() }),
        }
    }

    /// One quantity, exactly: a double is refused, because it may not be what its author wrote.
    pub fn into_quantity(self) -> Result<Quantity, CelError> {
        match self {
            Outcome::Quantity(quantity) => Ok(quantity),
            Outcome::Int(int) => Ok(Quantity::new(Amount::from_units(int), Format::DecimalSi)),
            // Through text, which is exact and reaches beyond 63 bits.
            Outcome::Uint(uint) => parse_quantity(&uint.to_string()),
            Outcome::Text(text) => parse_quantity(&text),
            other => Err(CelError::WrongType { wanted: "quantity", got: other.type_name() }),
        }
    }

    /// One quantity or a list of them.
    pub fn into_quantities(self) -> Result<Vec<Quantity>, CelError> {
        match self {
            Outcome::List(items) => items.into_iter().map(Outcome::into_quantity).collect(),
            one => Ok(vec![one.into_quantity()?]),
        }
    }
}

fn parse_quantity(text: &str) -> Result<Quantity, CelError> {
    Quantity::parse(text).map_err(|error| CelError::Quantity { text: text.chars().take(64).collect(), error })
}

pub(super) fn outcome(value: &Value, depth: usize) -> Result<Outcome, CelError> {
    if depth > INPUT_DEPTH_MAX {
        return Err(CelError::Evaluation("the result is nested too deep".into()));
    }
    Ok(match value {
        Value::Null => Outcome::Null,
        Value::Bool(bool) => Outcome::Bool(*bool),
        Value::Int(int) => Outcome::Int(*int),
        Value::UInt(uint) => Outcome::Uint(*uint),
        Value::Float(double) => Outcome::Double(*double),
        Value::String(text) => Outcome::Text(text.to_string()),
        Value::List(items) => {
            Outcome::List(items.iter().map(|item| outcome(item, depth + 1)).collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let entries = map.map.iter().map(|(key, item)| Ok((key_text(key), outcome(item, depth + 1)?)));
            Outcome::Map(entries.collect::<Result<_, CelError>>()?)
        }
        Value::Opaque(opaque) => {
            if let Some(exact) = opaque.downcast_ref::<ExactQuantity>() {
                Outcome::Quantity(exact.0.clone())
            } else if let Some(optional) = opaque.downcast_ref::<OptionalValue>() {
                return optional.value().map_or(Ok(Outcome::Null), |inner| outcome(inner, depth + 1));
            } else {
                Outcome::Other("object")
            }
        }
        Value::Bytes(_) => Outcome::Other("bytes"),
        Value::Duration(_) => Outcome::Other("duration"),
        Value::Timestamp(_) => Outcome::Other("timestamp"),
        Value::Function(..) => Outcome::Other("function"),
    })
}

fn key_text(key: &Key) -> String {
    match key {
        Key::String(text) => text.to_string(),
        Key::Int(int) => int.to_string(),
        Key::Uint(uint) => uint.to_string(),
        Key::Bool(bool) => bool.to_string(),
    }
}

/// The engine's complaint in cel-go's words where it has some, and never with the whole object in it.
pub(super) fn evaluation_error(error: ExecutionError) -> CelError {
    CelError::Evaluation(match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedIndex(..) => "no such overload".into(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}' (in container '')"),
        ExecutionError::DivisionByZero(_) => "division by zero".into(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".into(),
        ExecutionError::Overflow(..) => "integer overflow".into(),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".into(),
        ExecutionError::FunctionError { function, message } => format!("{function}: {message}"),
        ExecutionError::InvalidArgumentCount { expected, actual } => {
            format!("invalid argument count: expected {expected}, got {actual}")
        }
        ExecutionError::UnexpectedType { got, want } => format!("unexpected type: got {got}, want {want}"),
        _ => "no such overload".into(),
    })
}
