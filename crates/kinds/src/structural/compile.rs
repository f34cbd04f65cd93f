//! From a checked `openAPIV3Schema` to types in a catalogue.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::Structural;
use super::pattern::Patterns;
use crate::facts::facts;
use crate::field_error::{FieldError, Path};
use crate::schema::{Catalogue, Constraints, Field, List, ListType, Nested, Object, Rule, Shape, Type, TypeId, Width};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The schema has passed `check`, so what is not understood here does not occur.
pub(super) fn compile(schema: &Value, path: &Path<'_>, patterns: Patterns) -> Result<Structural, Vec<FieldError>> {
    let mut compiler = Compiler { catalogue: Catalogue::new(), patterns, imported: HashMap::new() };
    let root = compiler.node(schema, true).map_err(|why| vec![FieldError::internal(path, why)])?;
    Ok(Structural {
        catalogue: compiler.catalogue,
        root,
        patterns: compiler.patterns,
        rules: super::rules::Rules::default(),
    })
}

struct Compiler {
    catalogue: Catalogue,
    patterns: Patterns,
    /// Types taken over from the built-in kinds, by their id there.
    imported: HashMap<TypeId, TypeId>,
}

impl Compiler {
    fn node(&mut self, schema: &Value, is_root: bool) -> Result<TypeId, String> {
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let preserve_unknown = flag("x-kubernetes-preserve-unknown-fields");
        let embedded_resource = flag("x-kubernetes-embedded-resource");
        let shape = if flag("x-kubernetes-int-or-string") {
            Shape::IntOrString
        } else {
            match schema.get("type").and_then(Value::as_str) {
                Some("object") => self.object(schema, is_root, preserve_unknown, embedded_resource)?,
                Some("array") => self.list(schema)?,
                Some("string") => Shape::String,
                Some("integer") if schema.get("format").and_then(Value::as_str) == Some("int32") => {
                    Shape::Integer(Width::I32)
                }
                Some("integer") => Shape::Integer(Width::I64),
                Some("number") => Shape::Number,
                Some("boolean") => Shape::Boolean,
                _ => Shape::Any,
            }
        };
        let constraints = self.constraints(schema)?;
        let mut ty = Type::new(shape);
        ty.nullable = flag("nullable");
        ty.default = schema.get("default").filter(|value| !value.is_null()).cloned();
        ty.allowed = schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default().into();
        ty.description = schema.get("description").and_then(Value::as_str).map(Into::into);
        ty.constraints = (constraints != Constraints::default()).then(|| Box::new(constraints));
        Ok(self.catalogue.add(ty))
    }

    fn object(
        &mut self,
        schema: &Value,
        is_root: bool,
        preserve_unknown: bool,
        embedded_resource: bool,
    ) -> Result<Shape, String> {
        let atomic = schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        if properties.is_empty() && !is_root && !embedded_resource {
            match schema.get("additionalProperties") {
                Some(Value::Object(_)) => {
                    return Ok(Shape::Map { value: self.node(&schema["additionalProperties"], false)?, atomic });
                }
                Some(Value::Bool(true)) => {
                    return Ok(Shape::Map { value: self.catalogue.add(Type::new(Shape::Any)), atomic });
                }
                _ => {}
            }
        }
        let required: Vec<&str> = strings(schema, "required").collect();
        let mut fields = Vec::with_capacity(properties.len() + 3);
        let is_resource = is_root || embedded_resource;
        for (name, property) in properties {
            // The server knows what metadata is; a schema can only restrict names in it, which is a value rule.
            let ty =
                if is_resource && name == "metadata" { self.metadata(property)? } else { self.node(property, false)? };
            fields.push(Field { required: required.contains(&name.as_str()), ..field(name, ty) });
        }
        if is_resource {
            for name in ["apiVersion", "kind", "metadata"] {
                if properties.contains_key(name) {
                    continue;
                }
                let ty = if name == "metadata" {
                    self.metadata(&Value::Null)?
                } else {
                    self.catalogue.add(Type::new(Shape::String))
                };
                fields.push(field(name, ty));
            }
        }
        let mut object = Object::new(fields);
        object.preserve_unknown = preserve_unknown;
        object.embedded_resource = embedded_resource;
        object.atomic = atomic;
        Ok(Shape::Object(object))
    }

    fn list(&mut self, schema: &Value) -> Result<Shape, String> {
        let item = self.node(schema.get("items").unwrap_or(&Value::Null), false)?;
        let list_type = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => {
                ListType::Map { keys: strings(schema, "x-kubernetes-list-map-keys").map(Into::into).collect() }
            }
            _ => ListType::Atomic,
        };
        Ok(Shape::List(List { item, list_type }))
    }

    /// ObjectMeta as the built-in kinds have it, with the CRD's restrictions on names.
    fn metadata(&mut self, property: &Value) -> Result<TypeId, String> {
        let builtin = &facts().catalogue;
        let meta = builtin.named(OBJECT_META).ok_or("the facts have no ObjectMeta")?;
        let plain = self.import(builtin, meta);
        let restrictions = property.get("properties").and_then(Value::as_object);
        let Some(restrictions) = restrictions.filter(|restrictions| !restrictions.is_empty()) else { return Ok(plain) };
        let mut ty = self.catalogue.get(plain).clone();
        ty.name = None;
        let mut constraints = Constraints::default();
        let nested = Nested {
            properties: restrictions
                .iter()
                .map(|(name, schema)| Ok((Box::from(name.as_str()), self.nested(schema)?)))
                .collect::<Result<_, String>>()?,
            required: strings(property, "required").map(Into::into).collect(),
            ..Nested::default()
        };
        constraints.all_of.push(nested);
        ty.constraints = Some(Box::new(constraints));
        Ok(self.catalogue.add(ty))
    }

    fn import(&mut self, from: &Catalogue, id: TypeId) -> TypeId {
        if let Some(&known) = self.imported.get(&id) {
            return known;
        }
        let here = self.catalogue.add(Type::new(Shape::Any));
        self.imported.insert(id, here);
        let mut ty = from.get(id).clone();
        // Those are what Go's zero values look like, not something to write into custom resources.
        ty.default = None;
        ty.shape = match ty.shape {
            Shape::Object(object) => {
                let fields =
                    object.fields().iter().map(|field| Field { ty: self.import(from, field.ty), ..field.clone() });
                let mut copy = Object::new(fields.collect());
                copy.preserve_unknown = object.preserve_unknown;
                copy.embedded_resource = object.embedded_resource;
                copy.atomic = object.atomic;
                Shape::Object(copy)
            }
            Shape::Map { value, atomic } => Shape::Map { value: self.import(from, value), atomic },
            Shape::List(list) => Shape::List(List { item: self.import(from, list.item), ..list }),
            scalar => scalar,
        };
        self.catalogue.set(here, ty);
        here
    }

    fn constraints(&mut self, schema: &Value) -> Result<Constraints, String> {
        let number = |name: &str| schema.get(name).and_then(Value::as_number).cloned();
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let text = |name: &str| schema.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(Box::from);
        let pattern: Option<Box<str>> = text("pattern");
        if let Some(pattern) = &pattern {
            self.patterns.add(pattern)?;
        }
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
        Ok(Constraints {
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern,
            format: text("format"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            rules: rules.map(rule).collect(),
            all_of: self.nested_list(schema, "allOf")?,
            any_of: self.nested_list(schema, "anyOf")?,
            one_of: self.nested_list(schema, "oneOf")?,
            not: schema.get("not").map(|not| self.nested(not)).transpose()?.map(Box::new),
        })
    }

    fn nested_list(&mut self, schema: &Value, junctor: &str) -> Result<Vec<Nested>, String> {
        let is_int_or_string = schema.get("x-kubernetes-int-or-string").and_then(Value::as_bool).unwrap_or(false);
        // The one junctor that may name types says what the extension says already.
        if is_int_or_string && junctor == "anyOf" && super::check::is_int_or_string_any_of(schema) {
            return Ok(Vec::new());
        }
        let nested = schema.get(junctor).and_then(Value::as_array).into_iter().flatten();
        nested
            .filter(|nested| !(is_int_or_string && super::check::is_int_or_string_any_of(nested)))
            .map(|nested| self.nested(nested))
            .collect()
    }

    fn nested(&mut self, schema: &Value) -> Result<Nested, String> {
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        Ok(Nested {
            constraints: self.constraints(schema)?,
            allowed: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default().into(),
            required: strings(schema, "required").map(Into::into).collect(),
            properties: properties
                .map(|(name, property)| Ok((Box::from(name.as_str()), self.nested(property)?)))
                .collect::<Result<_, String>>()?,
            items: schema.get("items").map(|items| self.nested(items)).transpose()?.map(Box::new),
        })
    }
}

/// Custom resources have no Go structs behind them: a field exists when it is written and not before.
fn field(name: &str, ty: TypeId) -> Field {
    Field { pointer: true, ..Field::new(name, ty) }
}

fn rule(rule: &Value) -> Rule {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    Rule {
        rule: text("rule").unwrap_or_default(),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: text("reason"),
        field_path: text("fieldPath"),
        optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
    }
}

pub(super) fn strings<'s>(schema: &'s Value, name: &str) -> impl Iterator<Item = &'s str> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
