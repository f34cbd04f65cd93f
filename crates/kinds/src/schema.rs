//! The one schema type. The facts about the built-in kinds and the structural schemas of CustomResourceDefinitions
//! both become a [`Catalogue`], so decoding, field validation, patches, server-side apply, defaulting, pruning and
//! OpenAPI are each written once and never ask where a kind came from.
//!
//! Types live in an arena and refer to each other by [`TypeId`], because some are recursive (`JSONSchemaProps`).
//! Start reading at [`Shape`].
//!
//! ```text
//! Catalogue ── TypeId ──> Type { shape, nullable, default, … }
//!                           └─ Shape::Object { fields: name -> Field { ty: TypeId, … } }
//! ```

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Where a type lies in its [`Catalogue`]. An id means something only together with the catalogue that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// All types that one source of schemas defines.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    types: Vec<Type>,
    names: HashMap<Box<str>, TypeId>,
    /// Whether server-side apply owns values without a schema as a whole, as it does in built-in kinds. In custom
    /// resources it looks into them.
    pub opaque: bool,
}

/// One node of a schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    pub shape: Shape,
    /// The published name of an object type (`io.k8s.api.core.v1.Pod`), by which other documents refer to it. Scalars of a
    /// built-in kind may carry the name of their Go type (`v1.PullPolicy`), which only error messages show, and the
    /// three places of a CRD schema that hold a schema or something else carry the name of their [`WireKind`].
    pub name: Option<Box<str>>,
    /// `null` is a value of its own here. Elsewhere null means absent and is dropped.
    pub nullable: bool,
    pub default: Option<Value>,
    /// The `enum` of the schema; empty means any value.
    pub allowed: Allowed,
    pub description: Option<Box<str>>,
    /// Value rules of custom resources. Built-in kinds are validated by code and have none.
    pub constraints: Option<Box<Constraints>>,
}

/// The values an `enum` allows, in its order. A long one is looked up and not searched: it may stand in every item of a
/// long list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allowed {
    values: Vec<Value>,
    set: Option<HashSet<Value>>,
}

/// Up to here comparing one by one is as fast.
const SEARCHED_MAX: usize = 8;

impl From<Vec<Value>> for Allowed {
    fn from(values: Vec<Value>) -> Self {
        let set = (values.len() > SEARCHED_MAX).then(|| values.iter().cloned().collect());
        Self { values, set }
    }
}

impl Allowed {
    pub fn allows(&self, value: &Value) -> bool {
        match &self.set {
            Some(set) => set.contains(value),
            None => self.values.is_empty() || self.values.contains(value),
        }
    }
}

impl std::ops::Deref for Allowed {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.values
    }
}

/// What values of a type look like in JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Object(Object),
    /// Keys are free, all values alike.
    Map {
        value: TypeId,
        /// Server-side apply owns the map as a whole instead of key by key.
        atomic: bool,
    },
    List(List),
    String,
    Integer(Width),
    Number,
    Boolean,
    IntOrString,
    /// A Kubernetes quantity: a string, or a bare number which is read as its text.
    Quantity,
    /// RFC 3339 with whole seconds; null stands for "not set".
    Time,
    /// RFC 3339 with six fractional digits.
    MicroTime,
    /// Go's duration text, `1h5m0s`.
    Duration,
    /// Base64 in JSON.
    Bytes,
    /// Any JSON at all: raw extensions, and schemas that only preserve unknown fields.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    I32,
    I64,
}

/// An object with named fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    /// Sorted by name, see [`Object::new`]. Fields that Go inlines in JSON stand here, in the object they appear in.
    fields: Vec<Field>,
    /// Sorted by number. Empty for types that have no protobuf form.
    pub wire: Vec<Wire>,
    /// Fields not named here are kept instead of pruned.
    pub preserve_unknown: bool,
    /// A complete object with apiVersion, kind and metadata of its own.
    pub embedded_resource: bool,
    /// Server-side apply owns the object as a whole.
    pub atomic: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct List {
    pub item: TypeId,
    pub list_type: ListType,
}

/// How server-side apply merges a list. A list that says nothing is atomic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    Map { keys: Box<[Box<str>]> },
}

/// A named field of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: Box<str>,
    pub ty: TypeId,
    pub required: bool,
    /// Dropped from JSON when empty (Go's `omitempty`).
    pub omit_empty: bool,
    /// Held by pointer in Go: unset and zero are different things.
    pub pointer: bool,
    pub patch: Patch,
}

/// How a strategic merge patch treats a field. The default is to replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists are merged by [`Patch::merge_key`], or as sets when they hold primitives.
    pub merge: bool,
    pub replace: bool,
    pub retain_keys: bool,
    pub merge_key: Option<Box<str>>,
}

/// A field of a protobuf message and where its value goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    pub number: u32,
    pub kind: WireKind,
    pub target: WireTarget,
}

/// How the bytes of a field are to be read where its shape alone does not say. It speaks about the values at the leaves:
/// of a map or a list of such things, about each value in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    /// As the shape says.
    Plain,
    /// A message with one repeated field `items = 1` around a JSON list (`Verbs`, `ExtraValue`).
    WrappedList,
    /// A message with one field `raw = 1` that holds JSON text.
    Raw,
    /// A schema, or a boolean: `allows = 1`, `schema = 2`.
    SchemaOrBool,
    /// A schema, or a list of schemas: `schema = 1`, `jsonSchemas = 2`.
    SchemaOrArray,
    /// A schema, or a list of property names: `schema = 1`, `property = 2`.
    SchemaOrStrings,
}

#[derive(Clone, Debug, PartialEq)]
pub enum WireTarget {
    /// The JSON field of this name in the same object.
    Field(Box<str>),
    /// A message in protobuf whose fields JSON shows in the enclosing object.
    Inline(TypeId),
}

/// Value rules of a CRD schema, as the structural schema compiler leaves them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constraints {
    pub minimum: Option<serde_json::Number>,
    pub maximum: Option<serde_json::Number>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<serde_json::Number>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Box<str>>,
    pub format: Option<Box<str>>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub rules: Vec<Rule>,
    pub all_of: Vec<Nested>,
    pub any_of: Vec<Nested>,
    pub one_of: Vec<Nested>,
    pub not: Option<Box<Nested>>,
}

/// Value rules below a junctor (`allOf`, `anyOf`, `oneOf`, `not`). They add no structure: every field they speak of is
/// declared in the schema proper.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nested {
    pub constraints: Constraints,
    /// The `enum`; empty means any value.
    pub allowed: Allowed,
    pub required: Vec<Box<str>>,
    pub properties: Vec<(Box<str>, Nested)>,
    pub items: Option<Box<Nested>>,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    pub reason: Option<String>,
    pub field_path: Option<String>,
    pub optional_old_self: bool,
}

impl Catalogue {
    pub fn new() -> Self {
        Self::default()
    }

    /// The type behind an id. Ids of another catalogue are a bug of the caller and stop here.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    pub fn shape(&self, id: TypeId) -> &Shape {
        &self.get(id).shape
    }

    /// Adds a type. An object with a name can be found again by it; of two with one name the later wins.
    pub fn add(&mut self, ty: Type) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).expect("a catalogue holds fewer than 2^32 types"));
        self.remember(id, &ty);
        self.types.push(ty);
        id
    }

    /// Adds a type that shares its published name with another one, which stays the one found by it.
    pub fn add_variant(&mut self, ty: Type) -> TypeId {
        let name = ty.name.clone();
        let id = self.add(Type { name: None, ..ty });
        self.types[id.0 as usize].name = name;
        id
    }

    /// Puts a type in place of an earlier one: reserve an id first, fill it later, and recursion is possible.
    pub fn set(&mut self, id: TypeId, ty: Type) {
        self.remember(id, &ty);
        self.types[id.0 as usize] = ty;
    }

    fn remember(&mut self, id: TypeId, ty: &Type) {
        if let (Some(name), Shape::Object(_)) = (&ty.name, &ty.shape) {
            self.names.insert(name.clone(), id);
        }
    }

    pub fn named(&self, name: &str) -> Option<TypeId> {
        self.names.get(name).copied()
    }

    pub fn len(&self) -> usize {
        self.types.len()
    }

    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The field of an object type; none when the type is not an object or does not name it.
    pub fn field(&self, id: TypeId, name: &str) -> Option<&Field> {
        match self.shape(id) {
            Shape::Object(object) => object.field(name),
            _ => None,
        }
    }

    /// The type below one step down: a field, any key of a map, any item of a list.
    pub fn child(&self, id: TypeId, name: &str) -> Option<TypeId> {
        match self.shape(id) {
            Shape::Object(object) => object.field(name).map(|field| field.ty),
            Shape::Map { value, .. } => Some(*value),
            Shape::List(list) => Some(list.item),
            _ => None,
        }
    }
}

impl Type {
    pub fn new(shape: Shape) -> Self {
        Type {
            shape,
            name: None,
            nullable: false,
            default: None,
            allowed: Allowed::default(),
            description: None,
            constraints: None,
        }
    }
}

impl Object {
    /// Sorts the fields by name, so that a lookup is a binary search and a walk beside a sorted JSON map is a merge.
    pub fn new(mut fields: Vec<Field>) -> Self {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Object { fields, ..Object::default() }
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|field| (*field.name).cmp(name)).ok().map(|at| &self.fields[at])
    }

    /// All fields, in the order of their names.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    pub fn wire(&self, number: u32) -> Option<&Wire> {
        self.wire.binary_search_by_key(&number, |wire| wire.number).ok().map(|at| &self.wire[at])
    }
}

impl Field {
    /// An optional field with no further facts, as CRD schemas have them: an empty value is a value and stays.
    pub fn new(name: impl Into<Box<str>>, ty: TypeId) -> Self {
        Field { name: name.into(), ty, required: false, omit_empty: true, pointer: true, patch: Patch::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_types_may_refer_to_themselves() {
        let mut catalogue = Catalogue::new();
        let tree = catalogue.add(Type::new(Shape::Any));
        let text = catalogue.add(Type::new(Shape::String));
        let list = catalogue.add(Type::new(Shape::List(List { item: tree, list_type: ListType::Atomic })));
        let fields = vec![Field::new("name", text), Field::new("children", list)];
        let mut node = Type::new(Shape::Object(Object::new(fields)));
        node.name = Some("Tree".into());
        catalogue.set(tree, node);

        assert_eq!(catalogue.named("Tree"), Some(tree));
        assert_eq!(catalogue.child(tree, "children"), Some(list));
        assert_eq!(catalogue.child(list, "0"), Some(tree));
        assert_eq!(catalogue.child(tree, "nosuch"), None);
        assert!(catalogue.field(text, "name").is_none());
    }
}
