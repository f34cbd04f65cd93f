//! The facts about the built-in kinds, read from `data/facts.txt` into a [`Catalogue`].
//!
//! The file is written by `tests/parts/cmd/facts` from Kubernetes' own Go types; a test regenerates it and compares. Reading
//! it takes a few milliseconds, once, on first use. Its lines:
//!
//! ```text
//! kind GROUP VERSION KIND TYPE                       "-" is the core group
//! type NAME [atomic]                                 an object type; "^" is io.k8s.api. and "~" the meta group
//!  inline TYPE NUMBER                                JSON shows its fields here; number 0: no protobuf field either
//!  NAME TYPE NUMBER [? omitempty] [! required] [list=set|map:K,K] [map=atomic|granular] [patch=S,S] [key=K]
//!       [default=JSON] [enum=V,V] [items=V,V] [go=name of a list or map type]
//! ```
//! In TYPE, `*` is a Go pointer, `[]` a list, `[w]` a list that protobuf wraps in a message, `{}` a map of strings,
//! and `string:v1.Protocol` a string whose Go type has a name.
//!
//! A mistake in the file is a bug in this program: reading it panics, and the tests read all of it.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::schema::{
    Catalogue, Field, List, ListType, Object, Patch, Shape, Type, TypeId, Width, Wire, WireKind, WireTarget,
};

/// The built-in kinds and their types.
pub struct Facts {
    pub catalogue: Catalogue,
    /// Sorted by group, version, kind.
    kinds: Vec<Kind>,
}

/// A built-in kind and the type of its objects.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub ty: TypeId,
}

/// The group-version that holds the kinds which every group shares, such as `DeleteOptions`.
const SHARED: (&str, &str) = ("meta.k8s.io", "v1");

static TEXT: &str = include_str!("../data/facts.txt");
static FACTS: LazyLock<Facts> = LazyLock::new(|| Reader::read(TEXT));

/// The facts about all built-in kinds.
pub fn facts() -> &'static Facts {
    &FACTS
}

impl Facts {
    /// The type of a kind's objects. Options and Status are found under every group-version, as clients name any.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        self.exact(group, version, kind).or_else(|| self.exact(SHARED.0, SHARED.1, kind))
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    fn exact(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        let found = self.kinds.binary_search_by(|k| (k.group, k.version, k.kind).cmp(&(group, version, kind)));
        found.ok().map(|at| self.kinds[at].ty)
    }
}

/// A type as its lines say it, before inlined fields are put where JSON shows them.
struct Written {
    id: TypeId,
    name: Box<str>,
    atomic: bool,
    lines: Vec<&'static str>,
}

struct Reader {
    catalogue: Catalogue,
    /// Types without a name of their own, by the words that describe them: equal ones are one.
    plain: HashMap<String, TypeId>,
    written: Vec<Written>,
    by_name: HashMap<Box<str>, usize>,
}

impl Reader {
    fn read(text: &'static str) -> Facts {
        let mut reader =
            Reader { catalogue: Catalogue::new(), plain: HashMap::new(), written: Vec::new(), by_name: HashMap::new() };
        let mut kinds = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(rest) = line.strip_prefix("kind ") {
                kinds.push(words::<4>(rest));
            } else if let Some(rest) = line.strip_prefix("type ") {
                reader.reserve(rest);
            } else {
                reader.written.last_mut().expect("a field follows its type").lines.push(line.trim_start());
            }
        }
        for at in 0..reader.written.len() {
            let object = reader.object(at);
            let Written { id, name, .. } = &reader.written[at];
            let ty = Type { name: Some(name.clone()), ..Type::new(Shape::Object(object)) };
            reader.catalogue.set(*id, ty);
        }
        let mut kinds: Vec<Kind> = kinds
            .into_iter()
            .map(|[group, version, kind, name]| {
                let ty = reader.written[reader.by_name[&*long(name)]].id;
                Kind { group: if group == "-" { "" } else { group }, version, kind, ty }
            })
            .collect();
        kinds.sort_by_key(|kind| (kind.group, kind.version, kind.kind));
        reader.catalogue.opaque = true;
        Facts { catalogue: reader.catalogue, kinds }
    }

    fn reserve(&mut self, rest: &'static str) {
        let (name, atomic) = match rest.strip_suffix(" atomic") {
            Some(name) => (name, true),
            None => (rest, false),
        };
        let name = long(name);
        let id = self.catalogue.add(Type::new(Shape::Any));
        self.by_name.insert(name.clone(), self.written.len());
        self.written.push(Written { id, name, atomic, lines: Vec::new() });
    }

    fn object(&mut self, at: usize) -> Object {
        let mut fields = Vec::new();
        let mut wire = Vec::new();
        self.fields(at, &mut fields, Some(&mut wire));
        wire.sort_by_key(|wire| wire.number);
        let mut object = Object::new(fields);
        object.wire = wire;
        object.atomic = self.written[at].atomic;
        object
    }

    /// Collects the fields of a type and of all it inlines; the protobuf fields are only its own.
    fn fields(&mut self, at: usize, fields: &mut Vec<Field>, mut wire: Option<&mut Vec<Wire>>) {
        for line in self.written[at].lines.clone() {
            let mut rest = line.split(' ');
            let mut next = || rest.next().unwrap_or_else(|| panic!("facts: too few words: {line}"));
            let (name, word) = (next(), next());
            let number: u32 = next().parse().unwrap_or_else(|_| panic!("facts: not a number: {line}"));
            let (kind, target);
            if name == "inline" {
                let inner = self.by_name[&*long(word)];
                self.fields(inner, fields, None);
                (kind, target) = (WireKind::Plain, WireTarget::Inline(self.written[inner].id));
            } else {
                let field = self.field(name, word, rest);
                fields.push(field);
                (kind, target) = (wire_kind(word), WireTarget::Field(name.into()));
            }
            if let (Some(wire), true) = (wire.as_deref_mut(), number > 0) {
                wire.push(Wire { number, kind, target });
            }
        }
    }

    fn field(&mut self, name: &str, word: &str, facts: impl Iterator<Item = &'static str>) -> Field {
        let (pointer, word) = match word.strip_prefix('*') {
            Some(word) => (true, word),
            None => (false, word),
        };
        let mut field = Field { pointer, omit_empty: false, ..Field::new(name, TypeId(0)) };
        let mut about = About::default();
        for fact in facts {
            match fact.split_once('=') {
                None if fact == "?" => field.omit_empty = true,
                None if fact == "!" => field.required = true,
                Some(("list", value)) => about.list = value,
                Some(("map", "atomic")) => about.atomic = true,
                Some(("map", "granular")) => about.granular = true,
                Some(("go", name)) => about.go = name,
                Some(("patch", strategies)) => {
                    for strategy in strategies.split(',') {
                        match strategy {
                            "merge" => field.patch.merge = true,
                            "replace" => field.patch.replace = true,
                            "retainKeys" => field.patch.retain_keys = true,
                            other => panic!("facts: patch strategy {other}"),
                        }
                    }
                }
                Some(("key", key)) => field.patch = Patch { merge_key: Some(key.into()), ..field.patch },
                Some(("default", value)) => about.default = value,
                Some(("enum", values)) => about.allowed = values,
                Some(("items", values)) => about.items = values,
                _ => panic!("facts: {name}: {fact}"),
            }
        }
        field.ty = self.ty(word, about);
        field
    }

    fn ty(&mut self, word: &str, about: About<'_>) -> TypeId {
        let object = self.by_name.get(&*long(word)).map(|at| self.written[*at].id);
        if let Some(id) = object.filter(|_| !about.granular) {
            return id;
        }
        let key = format!("{word} {about:?}");
        if let Some(id) = self.plain.get(&key) {
            return *id;
        }
        if object.is_some() {
            let at = self.by_name[&*long(word)];
            let mut granular = self.object(at);
            granular.atomic = false;
            let name = Some(self.written[at].name.clone());
            let id = self.catalogue.add_variant(Type { name, ..Type::new(Shape::Object(granular)) });
            self.plain.insert(key, id);
            return id;
        }
        let mut ty = Type::new(self.shape(word, &about));
        if !about.go.is_empty() {
            ty.name = Some(about.go.into());
        } else if let Some((_, name)) = word.split_once(':')
            && !word.starts_with(['[', '{'])
        {
            ty.name = Some(name.into());
        } else if word.starts_with("SchemaOr") {
            ty.name = Some(word.into());
        }
        if !about.default.is_empty() {
            ty.default = Some(serde_json::from_str(about.default).expect("facts: a default is JSON"));
        }
        ty.allowed = list_of(about.allowed).into();
        let id = self.catalogue.add(ty);
        self.plain.insert(key, id);
        id
    }

    fn shape(&mut self, word: &str, about: &About<'_>) -> Shape {
        if let Some(item) = word.strip_prefix("[]").or_else(|| word.strip_prefix("[w]")) {
            let item = self.ty(item.trim_start_matches('*'), About { allowed: about.items, ..About::default() });
            let list_type = match about.list.split_once(':') {
                Some(("map", keys)) => ListType::Map { keys: keys.split(',').map(Box::from).collect() },
                None if about.list == "set" => ListType::Set,
                None if about.list.is_empty() => ListType::Atomic,
                _ => panic!("facts: list={}", about.list),
            };
            return Shape::List(List { item, list_type });
        }
        if let Some(value) = word.strip_prefix("{}") {
            let value = self.ty(value.trim_start_matches('*'), About::default());
            return Shape::Map { value, atomic: about.atomic };
        }
        match word.split(':').next().unwrap_or(word) {
            "string" => Shape::String,
            "int32" => Shape::Integer(Width::I32),
            "int64" => Shape::Integer(Width::I64),
            "bool" => Shape::Boolean,
            "double" => Shape::Number,
            "bytes" => Shape::Bytes,
            "Quantity" => Shape::Quantity,
            "Time" => Shape::Time,
            "MicroTime" => Shape::MicroTime,
            "IntOrString" => Shape::IntOrString,
            "Raw" | "SchemaOrBool" | "SchemaOrArray" | "SchemaOrStrings" => Shape::Any,
            other => panic!("facts: no type {other}"),
        }
    }
}

/// What a line says about the type of its field, beyond its name.
#[derive(Clone, Copy, Debug, Default)]
struct About<'a> {
    list: &'a str,
    atomic: bool,
    granular: bool,
    go: &'a str,
    default: &'a str,
    allowed: &'a str,
    items: &'a str,
}

fn wire_kind(word: &str) -> WireKind {
    if word.contains("[w]") {
        return WireKind::WrappedList;
    }
    match word.trim_start_matches(['*', '[', ']', '{', '}']) {
        "Raw" => WireKind::Raw,
        "SchemaOrBool" => WireKind::SchemaOrBool,
        "SchemaOrArray" => WireKind::SchemaOrArray,
        "SchemaOrStrings" => WireKind::SchemaOrStrings,
        _ => WireKind::Plain,
    }
}

fn long(name: &str) -> Box<str> {
    match (name.strip_prefix('^'), name.strip_prefix('~')) {
        (Some(rest), _) => format!("io.k8s.api.{rest}").into(),
        (_, Some(rest)) => format!("io.k8s.apimachinery.pkg.apis.meta.{rest}").into(),
        _ => name.into(),
    }
}

fn list_of(values: &str) -> Vec<Value> {
    if values.is_empty() {
        return Vec::new();
    }
    values.split(',').map(Value::from).collect()
}

fn words<const N: usize>(line: &'static str) -> [&'static str; N] {
    let words: Vec<_> = line.split(' ').collect();
    words.try_into().unwrap_or_else(|_| panic!("facts: {N} words wanted: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(ty: TypeId, path: &str) -> TypeId {
        path.split('.').fold(ty, |ty, name| facts().catalogue.child(ty, name).unwrap_or_else(|| panic!("{name}")))
    }

    #[test]
    fn a_deployment_is_known_down_to_its_ports() {
        let deployment = facts().kind("apps", "v1", "Deployment").unwrap();
        let catalogue = &facts().catalogue;
        let protocol = step(deployment, "spec.template.spec.containers.0.ports.0.protocol");
        assert_eq!(catalogue.get(protocol).default, Some("TCP".into()));
        assert_eq!(catalogue.get(protocol).allowed.len(), 3);
        let Shape::List(ports) = catalogue.shape(step(deployment, "spec.template.spec.containers.0.ports")) else {
            panic!("a list")
        };
        assert_eq!(ports.list_type, ListType::Map { keys: ["containerPort".into(), "protocol".into()].into() });
        let replicas = catalogue.field(step(deployment, "spec"), "replicas").unwrap();
        assert!(replicas.pointer && replicas.omit_empty && !replicas.required);
        let strategy = catalogue.field(step(deployment, "spec"), "strategy").unwrap();
        assert!(strategy.patch.retain_keys && !strategy.patch.merge);
    }

    #[test]
    fn inlined_fields_stand_where_json_shows_them() {
        let pod = facts().kind("", "v1", "Pod").unwrap();
        let volume = step(pod, "spec.volumes.0");
        assert!(facts().catalogue.field(volume, "emptyDir").is_some());
        assert!(facts().catalogue.field(pod, "apiVersion").is_some());
        let Shape::Object(object) = facts().catalogue.shape(volume) else { panic!("an object") };
        assert!(matches!(object.wire(2).unwrap().target, WireTarget::Inline(_)));
        assert_eq!(object.wire(1).unwrap().target, WireTarget::Field("name".into()));
    }

    #[test]
    fn options_are_known_under_every_group() {
        assert_eq!(facts().kind("policy", "v1", "DeleteOptions"), facts().kind("meta.k8s.io", "v1", "DeleteOptions"));
        assert!(facts().kind("", "v1", "Nosuch").is_none());
        assert!(facts().kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").is_some());
    }

    #[test]
    fn reading_the_facts_is_quick() {
        let before = std::time::Instant::now();
        let read = Reader::read(TEXT);
        let took = before.elapsed();
        assert!(read.catalogue.len() > 900 && read.kinds.len() > 100);
        // A bound on start-up, wide enough for an unoptimised build on a busy machine.
        assert!(took.as_millis() < 200, "{took:?}");
    }
}
