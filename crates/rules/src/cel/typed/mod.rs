//! Types and static cost of an expression, as Kubernetes' compiler finds them.
//!
//! The engine evaluates without types. A CustomResourceDefinition is accepted or refused by types and by an estimate of
//! the worst cost, so both are worked out here, from the tree alone: [`Declared`] says what a schema admits, `check` gives
//! every node a type and every call its overloads (the language definition's type checker), `cost` adds up what
//! Kubernetes would.

mod check;
mod cost;
mod function;
mod literal;
mod path;
mod size;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub(super) use check::{Dialect, check};
pub(super) use cost::cost;
pub(super) use literal::literals;

/// What is known of a variable: its type, and how large it can be.
#[derive(Debug)]
pub struct Declared {
    pub shape: Shape,
    /// The most items, entries, characters or bytes it can have; 0 for what has no size.
    pub size_max: u64,
    /// The fewest bytes it takes in JSON.
    pub bytes_min: u64,
}

#[derive(Debug)]
pub enum Shape {
    Scalar(Type),
    List(Arc<Declared>),
    /// Keys are texts.
    Map(Arc<Declared>),
    /// Fields by the name an expression reads them by.
    Object(BTreeMap<String, Arc<Declared>>),
}

/// A type of the language.
#[derive(Clone, Debug)]
pub enum Type {
    /// The type of what was refused: it goes with everything, so that one mistake is told once.
    Error,
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Optional(Arc<Type>),
    /// The type of a type: what `type(x)` gives.
    Kind(Arc<Type>),
    /// An object of a schema; each place in a schema is a type of its own.
    Object(Arc<Declared>),
    /// A type of a library that compares by value: a quantity, a URL.
    Library(&'static str),
    /// A type of a library that is opaque: an address.
    Opaque(&'static str),
    /// Not known yet.
    Variable(u32),
}

impl Type {
    pub(super) fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    pub(super) fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub(super) fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// Whether an amount can come out: a quantity, a whole number, a text that may spell one, a list of those, or something
    /// only an object tells.
    pub fn may_be_amount(&self) -> bool {
        match self {
            Type::Dyn | Type::Error | Type::Int | Type::Uint | Type::Text | Type::Variable(_) => true,
            Type::Library(name) => *name == QUANTITY,
            Type::List(item) => !matches!(**item, Type::List(_)) && item.may_be_amount(),
            Type::Optional(inner) => inner.may_be_amount(),
            _ => false,
        }
    }

    /// The same type, names and all.
    fn is(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b))
            | (Type::Optional(a), Type::Optional(b))
            | (Type::Kind(a), Type::Kind(b)) => a.is(b),
            (Type::Map(a), Type::Map(b)) => a.0.is(&b.0) && a.1.is(&b.1),
            (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b),
            (Type::Library(a), Type::Library(b)) | (Type::Opaque(a), Type::Opaque(b)) => a == b,
            (Type::Variable(a), Type::Variable(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && !self.has_parts(),
        }
    }

    fn has_parts(&self) -> bool {
        matches!(
            self,
            Type::List(_)
                | Type::Map(_)
                | Type::Optional(_)
                | Type::Kind(_)
                | Type::Object(_)
                | Type::Library(_)
                | Type::Opaque(_)
                | Type::Variable(_)
        )
    }
}

pub(super) const QUANTITY: &str = "kubernetes.Quantity";

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Type::Error => "!error!",
            Type::Dyn | Type::Variable(_) => "dyn",
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::Text => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Object(_) => "object",
            Type::Library(name) | Type::Opaque(name) => name,
            Type::List(item) => return write!(f, "list({item})"),
            Type::Map(entry) => return write!(f, "map({}, {})", entry.0, entry.1),
            Type::Optional(inner) => return write!(f, "optional_type({inner})"),
            Type::Kind(inner) => return write!(f, "type({inner})"),
        };
        f.write_str(name)
    }
}

impl Declared {
    pub fn scalar(ty: Type, size_max: u64, bytes_min: u64) -> Arc<Declared> {
        Arc::new(Declared { shape: Shape::Scalar(ty), size_max, bytes_min })
    }

    /// Something of which nothing is known, such as an object of any kind.
    pub fn anything() -> Arc<Declared> {
        Self::scalar(Type::Dyn, u64::MAX, 1)
    }

    pub(super) fn ty(self: &Arc<Self>) -> Type {
        match &self.shape {
            Shape::Scalar(ty) => ty.clone(),
            Shape::List(item) => Type::list(item.ty()),
            Shape::Map(value) => Type::map(Type::Text, value.ty()),
            Shape::Object(_) => Type::Object(Arc::clone(self)),
        }
    }
}

/// A variable an expression may name.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: &'static str,
    pub declared: Arc<Declared>,
    /// Bound to an optional of what is declared.
    pub is_optional: bool,
}

impl Variable {
    pub fn new(name: &'static str, declared: &Arc<Declared>) -> Variable {
        Variable { name, declared: Arc::clone(declared), is_optional: false }
    }
}
