//! Is a schema structural? The rules of CustomResourceDefinition v1, with the API server's words.
//!
//! Structural means: every field, item and map value has a type outside of `allOf`, `anyOf`, `oneOf` and `not`; those
//! junctors only add value rules; nothing is said twice or in two ways.

use serde_json::{Map, Value};

use super::pattern::Patterns;
use super::{ERRORS_MAX, SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX};
use crate::field_error::{FieldError, Path};

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Every fault of a schema, sorted by text as the API server does; or its patterns, compiled.
pub(super) fn check(schema: &Value, path: &Path<'_>) -> Result<Patterns, Vec<FieldError>> {
    let mut checker = Checker { errors: Vec::new(), nodes: 0, patterns: Patterns::default() };
    checker.node(schema, path, Level::Root, Context::default(), 0);
    let mut errors = checker.errors;
    if errors.is_empty() {
        return Ok(checker.patterns);
    }
    errors.sort_by_key(FieldError::to_string);
    errors.dedup();
    Err(errors)
}

/// What a node inherits from where it stands.
#[derive(Clone, Copy, Default)]
struct Context {
    /// Set where defaults are forbidden, with the end of the message.
    no_defaults: Option<&'static str>,
    inside_meta: bool,
}

struct Checker {
    errors: Vec<FieldError>,
    nodes: usize,
    patterns: Patterns,
}

impl Checker {
    fn report(&mut self, error: FieldError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }

    fn require(&mut self, path: impl std::fmt::Display, detail: &str) {
        self.report(FieldError::required(path, detail));
    }

    fn forbid(&mut self, path: impl std::fmt::Display, detail: &str) {
        self.report(FieldError::forbidden(path, detail));
    }

    fn invalid(&mut self, path: impl std::fmt::Display, value: impl Into<Value>, detail: &str) {
        self.report(FieldError::invalid(path, value, detail));
    }

    /// Whether there is room for one more node; says so once when there is not.
    fn enter(&mut self, path: &Path<'_>, depth: usize) -> bool {
        self.nodes += 1;
        if depth > SCHEMA_DEPTH_MAX {
            self.forbid(path, &format!("schemas may not be nested deeper than {SCHEMA_DEPTH_MAX} levels"));
            return false;
        }
        if self.nodes == SCHEMA_NODES_MAX + 1 {
            self.forbid(path, &format!("a schema may not have more than {SCHEMA_NODES_MAX} nodes"));
        }
        self.nodes <= SCHEMA_NODES_MAX
    }

    fn node(&mut self, schema: &Value, path: &Path<'_>, level: Level, context: Context, depth: usize) {
        if !self.enter(path, depth) {
            return;
        }
        let Value::Object(fields) = schema else {
            self.invalid(path, schema.clone(), "must be a schema");
            return;
        };
        let schema = Schema(fields);
        self.unsupported(schema, path, context);
        self.typing(schema, path, level);
        self.metadata(schema, path, level);
        self.extensions(schema, path);
        self.lists(schema, path);
        self.rules(schema, path);
        self.junctors(schema, schema, path, path, depth);

        if let Some(items) = schema.get("items") {
            if items.is_array() {
                self.forbid(path.child("items"), "items must be a schema object and not an array");
            } else {
                self.node(items, &path.child("items"), Level::Item, context, depth + 1);
            }
        } else if schema.ty() == "array" {
            self.require(path.child("items"), "must be specified");
        }
        if let Some(additional) = schema.get("additionalProperties") {
            let at = path.child("additionalProperties");
            if level == Level::Root {
                self.forbid(at, "must not be used at the root");
            }
            if schema.flag("x-kubernetes-embedded-resource") {
                self.forbid(at, "must not be used if x-kubernetes-embedded-resource is set");
            }
            if !schema.properties().is_empty() && *additional != Value::Bool(true) {
                self.forbid(at, "additionalProperties and properties are mutual exclusive");
            }
            if additional.is_object() {
                let no_defaults = if context.inside_meta {
                    Some("inside additionalProperties applying to object metadata")
                } else {
                    context.no_defaults
                };
                self.node(additional, &at, Level::Field, Context { no_defaults, ..context }, depth + 1);
            }
        }
        let is_resource = level == Level::Root || schema.flag("x-kubernetes-embedded-resource");
        for (name, property) in schema.properties() {
            let mut context = context;
            if is_resource && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                context.inside_meta = true;
                if level == Level::Root {
                    context.no_defaults = Some(match name.as_str() {
                        "apiVersion" => "in top-level apiVersion",
                        "kind" => "in top-level kind",
                        _ => "in top-level metadata",
                    });
                }
            }
            self.node(property, &path.child("properties").key(name), Level::Field, context, depth + 1);
        }
    }

    fn unsupported(&mut self, schema: Schema<'_>, path: &Path<'_>, context: Context) {
        for keyword in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            let is_set = schema.get(keyword).is_some_and(|value| match value {
                Value::String(text) => !text.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            });
            if is_set {
                self.forbid(path.child(keyword), &format!("{keyword} is not supported"));
            }
        }
        let ty = schema.ty();
        if ty == "null" {
            self.forbid(path.child("type"), "type cannot be set to null, use nullable as an alternative");
        } else if !ty.is_empty() && !TYPES.contains(&ty) {
            self.report(FieldError::not_supported(path.child("type"), ty, TYPES));
        }
        if schema.flag("uniqueItems") {
            self.forbid(
                path.child("uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
        if schema.get("default").is_some()
            && let Some(why) = context.no_defaults
        {
            self.forbid(path.child("default"), &format!("must not be set {why}"));
        }
        if context.inside_meta && schema.flag("x-kubernetes-embedded-resource") {
            self.forbid(path.child("x-kubernetes-embedded-resource"), "must not be used inside of resource meta");
        }
        self.check_pattern(schema, path);
    }

    fn check_pattern(&mut self, schema: Schema<'_>, path: &Path<'_>) {
        if let Some(text) = schema.text("pattern")
            && let Err(why) = self.patterns.add(text)
        {
            let detail = format!("must be a valid regular expression, but isn't: {why}");
            self.invalid(path.child("pattern"), text, &detail);
        }
    }

    fn typing(&mut self, schema: Schema<'_>, path: &Path<'_>, level: Level) {
        let at = path.child("type");
        let ty = schema.ty();
        if schema.flag("x-kubernetes-embedded-resource") && ty != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            if ty.is_empty() { self.require(at, detail) } else { self.invalid(at, ty, detail) }
        } else if ty.is_empty()
            && !schema.flag("x-kubernetes-int-or-string")
            && !schema.flag("x-kubernetes-preserve-unknown-fields")
        {
            self.require(
                at,
                match level {
                    Level::Root => "must not be empty at the root",
                    Level::Item => "must not be empty for specified array items",
                    Level::Field => "must not be empty for specified object fields",
                },
            );
        }
        if level == Level::Root && !ty.is_empty() && ty != "object" {
            self.invalid(at, ty, "must be object at the root");
        }
        if schema.flag("x-kubernetes-embedded-resource")
            && !schema.flag("x-kubernetes-preserve-unknown-fields")
            && schema.properties().is_empty()
        {
            self.require(
                path.child("properties"),
                "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            );
        }
    }

    /// apiVersion, kind and metadata of a resource are the server's; a schema may only restrict the names.
    fn metadata(&mut self, schema: Schema<'_>, path: &Path<'_>, level: Level) {
        if level != Level::Root && !schema.flag("x-kubernetes-embedded-resource") {
            return;
        }
        let properties = path.child("properties");
        for name in ["kind", "apiVersion"] {
            if let Some(property) = schema.properties().get(name).and_then(Schema::of)
                && property.ty() != "string"
            {
                self.invalid(properties.key(name).child("type"), property.ty(), "must be string");
            }
        }
        let Some(metadata) = schema.properties().get("metadata").and_then(Schema::of) else { return };
        let at = properties.key("metadata");
        if metadata.ty() != "object" {
            self.invalid(at.child("type"), metadata.ty(), "must be object");
        }
        let restricts_names_only = metadata.properties().keys().all(|name| name == "name" || name == "generateName")
            && metadata.0.keys().all(|key| {
                matches!(key.as_str(), "type" | "properties" | "description" | "default" | "required" | "title")
            });
        if level == Level::Root && !restricts_names_only {
            self.forbid(
                at,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            );
        }
    }

    fn extensions(&mut self, schema: Schema<'_>, path: &Path<'_>) {
        let preserve = "x-kubernetes-preserve-unknown-fields";
        if schema.flag("x-kubernetes-int-or-string") {
            for extension in [preserve, "x-kubernetes-embedded-resource"] {
                if schema.flag(extension) {
                    self.invalid(path.child(extension), true, "must be false if x-kubernetes-int-or-string is true");
                }
            }
        }
        if schema.get(preserve) == Some(&Value::Bool(false)) {
            self.invalid(path.child(preserve), false, "must be true or undefined");
        }
        if let Some(map_type) = schema.text("x-kubernetes-map-type") {
            self.must_be(schema, path, "object", "must be object if x-kubernetes-map-type is specified");
            let supported = ["atomic", "granular"];
            if !supported.contains(&map_type) {
                self.report(FieldError::not_supported(path.child("x-kubernetes-map-type"), map_type, &supported));
            }
        }
    }

    fn must_be(&mut self, schema: Schema<'_>, path: &Path<'_>, ty: &str, detail: &str) {
        match schema.ty() {
            "" => self.require(path.child("type"), detail),
            other if other != ty => self.invalid(path.child("type"), other, detail),
            _ => {}
        }
    }

    fn lists(&mut self, schema: Schema<'_>, path: &Path<'_>) {
        let list_type = schema.text("x-kubernetes-list-type");
        let keys: Vec<&str> = strings_of(schema.0, "x-kubernetes-list-map-keys");
        let at_type = path.child("x-kubernetes-list-type");
        let at_items = path.child("items");
        if let Some(list_type) = list_type {
            self.must_be(schema, path, "array", "must be array if x-kubernetes-list-type is specified");
            let supported = ["atomic", "set", "map"];
            if !supported.contains(&list_type) {
                self.report(FieldError::not_supported(at_type, list_type, &supported));
            }
        }
        if !keys.is_empty() {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            match list_type {
                None => self.require(at_type, detail),
                Some("map") => {}
                Some(other) => self.invalid(at_type, other, detail),
            }
        }
        let items = schema.get("items").and_then(Schema::of);
        if let (Some(kind @ ("set" | "map")), Some(items)) = (list_type, items)
            && items.flag("nullable")
        {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
            self.forbid(at_items.child("nullable"), &detail);
        }
        match (list_type, items) {
            (Some("set"), Some(items)) => {
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                let (extension, is_atomic) = match items.ty() {
                    "array" => {
                        ("x-kubernetes-list-type", items.text("x-kubernetes-list-type").is_none_or(|t| t == "atomic"))
                    }
                    "object" => ("x-kubernetes-map-type", items.text("x-kubernetes-map-type") == Some("atomic")),
                    _ => return,
                };
                if !is_atomic {
                    let value = items.get(extension).cloned().unwrap_or(Value::Null);
                    self.invalid(at_items.child(extension), value, detail);
                }
            }
            (Some("map"), items) => self.keyed_list(items, &keys, path),
            _ => {}
        }
    }

    fn keyed_list(&mut self, items: Option<Schema<'_>>, keys: &[&str], path: &Path<'_>) {
        let at_keys = path.child("x-kubernetes-list-map-keys");
        let at_items = path.child("items");
        if keys.is_empty() {
            self.require(at_keys, "must not be empty if x-kubernetes-list-type is map");
        }
        let Some(items) = items else {
            self.require(at_items, "must have a schema if x-kubernetes-list-type is map");
            return;
        };
        if items.ty() != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.invalid(at_items.child("type"), items.ty(), detail);
            return;
        }
        let required = strings_of(items.0, "required");
        for (i, key) in keys.iter().enumerate() {
            if keys[..i].contains(key) {
                self.invalid(at_keys, keys.to_vec(), "must not contain duplicate entries");
            }
            let Some(property) = items.properties().get(*key).and_then(Schema::of) else {
                self.invalid(at_keys, keys.to_vec(), "entries must all be names of item properties");
                continue;
            };
            let properties = at_items.child("properties");
            let at = properties.key(key);
            if matches!(property.ty(), "array" | "object") {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                self.invalid(at.child("type"), items.ty(), detail);
            }
            if !required.contains(key) && property.get("default").is_none() {
                self.require(
                    at.child("default"),
                    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                );
            }
            if property.flag("nullable") {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbid(at.child("nullable"), detail);
            }
        }
    }

    /// The form of CEL rules; their expressions are looked at when they are compiled.
    fn rules(&mut self, schema: Schema<'_>, path: &Path<'_>) {
        let all = path.child("x-kubernetes-validations");
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        for (i, rule) in rules.into_iter().flatten().enumerate() {
            let at = all.index(i);
            let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
            let (expression, message) = (text("rule").trim(), text("message"));
            if expression.is_empty() {
                self.require(at.child("rule"), "rule is not specified");
            } else if !message.is_empty() && message.trim().is_empty() {
                self.invalid(at.child("message"), message, "must be non-empty if specified");
            } else if message.trim().contains('\n') {
                self.invalid(at.child("message"), message, "must not contain line breaks");
            } else if expression.contains('\n') && message.trim().is_empty() {
                self.require(at.child("message"), "message must be specified if rule contains line breaks");
            }
            let message_expression = text("messageExpression");
            if !message_expression.is_empty() && message_expression.trim().is_empty() {
                self.require(at.child("messageExpression"), "messageExpression must be non-empty if specified");
            }
            let reasons = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
            let reason = text("reason");
            if !reason.is_empty() && !reasons.contains(&reason) {
                self.report(FieldError::not_supported(at.child("reason"), reason, &reasons));
            }
            let field_path = text("fieldPath");
            if !field_path.is_empty() {
                let detail = if field_path.trim().is_empty() {
                    "must be non-empty if specified"
                } else if field_path.contains('\n') {
                    "must not contain line breaks"
                } else if !leads_somewhere(schema, field_path) {
                    "must be a valid path"
                } else {
                    continue;
                };
                self.invalid(at.child("fieldPath"), field_path, detail);
            }
        }
    }

    /// Value rules below junctors may not define anything, and may only speak of what the schema proper defines.
    fn junctors(
        &mut self,
        value: Schema<'_>,
        structure: Schema<'_>,
        path: &Path<'_>,
        structure_path: &Path<'_>,
        depth: usize,
    ) {
        let skip_any_of = is_int_or_string_any_of_map(value.0);
        for junctor in ["allOf", "anyOf", "oneOf"] {
            if junctor == "anyOf" && skip_any_of {
                continue;
            }
            let at = path.child(junctor);
            let branches = value.get(junctor).and_then(Value::as_array);
            for (i, branch) in branches.into_iter().flatten().enumerate() {
                self.nested(branch, structure, &at.index(i), structure_path, depth + 1);
            }
        }
        if let Some(not) = value.get("not") {
            self.nested(not, structure, &path.child("not"), structure_path, depth + 1);
        }
    }

    fn nested(
        &mut self,
        value: &Value,
        structure: Schema<'_>,
        path: &Path<'_>,
        structure_path: &Path<'_>,
        depth: usize,
    ) {
        if !self.enter(path, depth) {
            return;
        }
        let Some(value) = Schema::of(value) else {
            self.invalid(path, value.clone(), "must be a schema");
            return;
        };
        for (keyword, detail) in [
            ("type", "must be empty to be structural"),
            ("additionalProperties", "must be undefined to be structural"),
            ("default", "must be undefined to be structural"),
            ("title", "must be empty to be structural"),
            ("description", "must be empty to be structural"),
            ("nullable", "must be false to be structural"),
            ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
            ("x-kubernetes-embedded-resource", "must be false to be structural"),
            ("x-kubernetes-int-or-string", "must be false to be structural"),
            ("x-kubernetes-list-map-keys", "must be empty to be structural"),
            ("x-kubernetes-list-type", "must be undefined to be structural"),
            ("x-kubernetes-map-type", "must be undefined to be structural"),
            ("x-kubernetes-validations", "must be empty to be structural"),
        ] {
            let is_set = value.get(keyword).is_some_and(|value| match value {
                Value::Bool(flag) => *flag || keyword == "default",
                Value::String(text) => !text.is_empty() || keyword == "default",
                Value::Array(items) => !items.is_empty(),
                Value::Null => false,
                _ => true,
            });
            if is_set {
                self.forbid(path.child(keyword), detail);
            }
        }
        self.check_pattern(value, path);
        self.junctors(value, structure, path, structure_path, depth);
        if let Some(items) = value.get("items") {
            let (at, there) = (path.child("items"), structure_path.child("items"));
            match structure.get("items").and_then(Schema::of) {
                Some(structure) => self.nested(items, structure, &at, &there, depth + 1),
                None => self.require(there, &format!("because it is defined in {at}")),
            }
        }
        let (properties, structures) = (path.child("properties"), structure_path.child("properties"));
        for (name, property) in value.properties() {
            let (at, there) = (properties.key(name), structures.key(name));
            if name == "metadata" {
                self.forbid(at, "must not be specified in a nested context");
            }
            match structure.properties().get(name).and_then(Schema::of) {
                Some(structure) => self.nested(property, structure, &at, &there, depth + 1),
                None => self.require(there, &format!("because it is defined in {at}")),
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Schema<'s>(&'s Map<String, Value>);

impl<'s> Schema<'s> {
    fn of(value: &'s Value) -> Option<Self> {
        value.as_object().map(Self)
    }

    fn get(self, keyword: &str) -> Option<&'s Value> {
        self.0.get(keyword)
    }

    fn text(self, keyword: &str) -> Option<&'s str> {
        self.get(keyword).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    fn ty(self) -> &'s str {
        self.text("type").unwrap_or_default()
    }

    fn flag(self, keyword: &str) -> bool {
        self.get(keyword).and_then(Value::as_bool).unwrap_or(false)
    }

    fn properties(self) -> &'s Map<String, Value> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        self.get("properties").and_then(Value::as_object).unwrap_or(&EMPTY)
    }
}

fn strings_of<'s>(schema: &'s Map<String, Value>, name: &str) -> Vec<&'s str> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `anyOf: [{type: integer}, {type: string}]`, the spelling int-or-string fields had before they had an extension.
pub(super) fn is_int_or_string_any_of(schema: &Value) -> bool {
    schema.as_object().is_some_and(is_int_or_string_any_of_map)
}

fn is_int_or_string_any_of_map(schema: &Map<String, Value>) -> bool {
    let branches = schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice);
    let is = |branch: &Value, ty: &str| {
        branch.as_object().is_some_and(|fields| fields.len() == 1)
            && branch.get("type").and_then(Value::as_str) == Some(ty)
    };
    matches!(branches, Some([first, second]) if is(first, "integer") && is(second, "string"))
}

/// A `fieldPath`: `.a.b['c']` through declared properties or the keys of maps.
fn leads_somewhere(schema: Schema<'_>, path: &str) -> bool {
    let Some(steps) = field_path_steps(path) else { return false };
    let mut at = schema;
    for step in steps {
        let next = at.properties().get(&step).or_else(|| at.get("additionalProperties")).and_then(Schema::of);
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

/// The names in a `fieldPath`; none when it is malformed.
pub(super) fn field_path_steps(path: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    let mut rest = path.trim();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['") {
            let (name, after) = quoted.split_once("']")?;
            steps.push(name.to_owned());
            rest = after;
        } else {
            let name = rest.strip_prefix('.')?;
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return None;
            }
            steps.push(name[..end].to_owned());
            rest = &name[end..];
        }
    }
    (!steps.is_empty()).then_some(steps)
}
