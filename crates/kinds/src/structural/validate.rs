//! Are the values of a custom resource allowed? The words are those of Kubernetes' OpenAPI validation.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

use serde_json::{Number, Value};

use super::{ERRORS_MAX, Structural, VALIDATION_STEPS_MAX, format};
use crate::field_error::{FieldError, Path, Reason};
use crate::schema::{Allowed, Constraints, ListType, Nested, Shape, Type, TypeId, Width};

/// The path of errors that speak of the object as a whole, as Go prints the absence of one.
pub(super) const NO_PATH: &str = "<nil>";

pub(super) fn validate(structural: &Structural, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walk = Walk { structural, errors: Vec::new(), steps: Cell::new(VALIDATION_STEPS_MAX) };
    walk.value(structural.root, object, old, &Path::ROOT);
    walk.finish()
}

/// A value on its own, such as a default. `steps` is what is left for it, and for what comes after.
pub(super) fn validate_part(structural: &Structural, ty: TypeId, value: &Value, steps: &mut usize) -> Vec<FieldError> {
    let mut walk = Walk { structural, errors: Vec::new(), steps: Cell::new(*steps) };
    walk.value(ty, value, None, &Path::ROOT);
    *steps = walk.steps.get();
    walk.finish()
}

struct Walk<'s> {
    structural: &'s Structural,
    errors: Vec<FieldError>,
    /// How many steps are left; at none, nothing is looked at any more.
    steps: Cell<usize>,
}

impl Walk<'_> {
    /// Pays for work; tells whether there was enough left.
    fn step(&self, steps: usize) -> bool {
        self.steps.set(self.steps.get().saturating_sub(steps));
        self.steps.get() > 0
    }

    fn finish(self) -> Vec<FieldError> {
        if self.steps.get() == 0 {
            // What was found until then may be an error of not having looked.
            let detail = format!("validating the object takes more than {VALIDATION_STEPS_MAX} steps");
            return vec![FieldError::forbidden(NO_PATH, detail)];
        }
        self.errors
    }

    fn report(&mut self, error: FieldError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }

    fn value(&mut self, id: TypeId, value: &Value, old: Option<&Value>, path: &Path<'_>) {
        // What did not change was accepted before; a stricter schema does not lock its owner out.
        if !self.step(1) || self.errors.len() >= ERRORS_MAX || old == Some(value) {
            return;
        }
        let catalogue = &self.structural.catalogue;
        let ty = catalogue.get(id);
        if value.is_null() && ty.nullable {
            return;
        }
        if let Some(error) = wrong_type(&ty.shape, value, path) {
            self.report(error);
            return;
        }
        if let Some(constraints) = &ty.constraints {
            let mut found = self.constraints(constraints, value, path);
            self.errors.append(&mut found);
        }
        if let Some(error) = outside_width(&ty.shape, value, path) {
            self.report(error);
        }
        if let Some(error) = not_allowed(&ty.allowed, value, path) {
            self.report(error);
        }
        match (&ty.shape, value) {
            (Shape::Object(object), Value::Object(fields)) => {
                for field in object.fields() {
                    if field.required && !fields.contains_key(&*field.name) {
                        self.report(FieldError::required(path.child(&field.name), ""));
                    }
                }
                if object.embedded_resource {
                    for name in ["apiVersion", "kind"] {
                        if fields.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                            self.report(FieldError::required(path.child(name), "must not be empty"));
                        }
                    }
                }
                let is_resource = object.embedded_resource || id == self.structural.root;
                for (name, value) in fields {
                    let Some(field) = object.field(name) else { continue };
                    let below = path.child(name);
                    if is_resource && name == "metadata" {
                        self.metadata(catalogue.get(field.ty), value, &below);
                    } else {
                        self.value(field.ty, value, old.and_then(|old| old.get(name)), &below);
                    }
                }
            }
            (Shape::Map { value: below, .. }, Value::Object(fields)) => {
                for (name, value) in fields {
                    self.value(*below, value, old.and_then(|old| old.get(name)), &path.child(name));
                }
            }
            (Shape::List(list), Value::Array(items)) => {
                self.identities(&list.list_type, items, path);
                let olds = Correlated::new(&list.list_type, old);
                for (i, item) in items.iter().enumerate() {
                    self.value(list.item, item, olds.of(item), &path.index(i));
                }
            }
            _ => {}
        }
    }

    /// The server checks metadata itself; a schema can only restrict the names in it.
    fn metadata(&mut self, ty: &Type, value: &Value, path: &Path<'_>) {
        if let Some(constraints) = &ty.constraints {
            let mut found = self.constraints(constraints, value, path);
            self.errors.append(&mut found);
        }
    }

    /// Items of a set, and keys of a keyed list, occur once.
    fn identities(&mut self, list_type: &ListType, items: &[Value], path: &Path<'_>) {
        let mut seen: HashMap<String, bool> = HashMap::new();
        if !self.step(items.len()) {
            return;
        }
        for (i, item) in items.iter().enumerate() {
            let (identity, shown) = match list_type {
                ListType::Atomic => return,
                ListType::Set => (item.to_string(), item.clone()),
                ListType::Map { keys } => {
                    if !item.is_object() && !item.is_null() {
                        let detail = "must be an object for an array of list-type map";
                        self.report(FieldError::invalid(path.index(i), item.clone(), detail));
                        return;
                    }
                    let key = key_of(keys, item);
                    (key.to_string(), key)
                }
            };
            match seen.get_mut(&identity) {
                None => {
                    seen.insert(identity, false);
                }
                // Said once, however often it occurs.
                Some(true) => {}
                Some(reported) => {
                    *reported = true;
                    self.report(FieldError::duplicate(path.index(i), shown));
                }
            }
        }
    }

    fn constraints(&self, rules: &Constraints, value: &Value, path: &Path<'_>) -> Vec<FieldError> {
        let mut errors = self.junctors(rules, value, path);
        match value {
            Value::String(text) => self.string(rules, text, path, &mut errors),
            Value::Number(number) => check_number(rules, number, path, &mut errors),
            Value::Array(items) => {
                let count = items.len();
                if let Some(min) = rules.min_items.filter(|min| below(count, *min)) {
                    errors.push(FieldError::invalid(
                        path,
                        count,
                        body(path, format_args!("should have at least {min} items")),
                    ));
                }
                if let Some(max) = rules.max_items.filter(|max| above(count, *max)) {
                    errors.push(FieldError::too_many(path, count, to_usize(max)));
                }
                if rules.unique_items && self.step(count) {
                    let mut seen = std::collections::HashSet::new();
                    if !items.iter().all(|item| seen.insert(item.to_string())) {
                        errors.push(FieldError::invalid(path, "", body(path, "shouldn't contain duplicates")));
                    }
                }
            }
            Value::Object(fields) => {
                let count = fields.len();
                if let Some(min) = rules.min_properties.filter(|min| below(count, *min)) {
                    let detail = body(path, format_args!("should have at least {min} properties"));
                    errors.push(FieldError::invalid(path, count, detail));
                }
                if let Some(max) = rules.max_properties.filter(|max| above(count, *max)) {
                    errors.push(FieldError::too_many(path, count, to_usize(max)));
                }
            }
            _ => {}
        }
        errors
    }

    fn string(&self, rules: &Constraints, text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
        if rules.max_length.is_some() || rules.min_length.is_some() {
            let count = text.chars().count();
            if let Some(max) = rules.max_length.filter(|max| above(count, *max)) {
                errors.push(FieldError::too_long(path, to_usize(max)));
            }
            if let Some(min) = rules.min_length.filter(|min| below(count, *min)) {
                errors.push(FieldError::invalid(
                    path,
                    text,
                    body(path, format_args!("should be at least {min} chars long")),
                ));
            }
        }
        if let Some(pattern) = &rules.pattern
            && self.step(text.len() / 8)
            && self.structural.patterns.get(pattern).is_some_and(|regex| !regex.is_match(text))
        {
            errors.push(FieldError::invalid(path, text, body(path, format_args!("should match '{pattern}'"))));
        }
        if let Some(format) = &rules.format
            && format::has_format(text, format) == Some(false)
        {
            let quoted = crate::field_error::quote(text);
            let detail = body(path, format_args!("must be of type {format}: {quoted}"));
            errors.push(FieldError::type_invalid(path, text, detail));
        }
    }

    fn junctors(&self, rules: &Constraints, value: &Value, path: &Path<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let name = || crate::field_error::quote(&path.to_string());
        let whole = |detail: String| FieldError::invalid(NO_PATH, "", detail);
        if !rules.any_of.is_empty() {
            let (valid, fewest) = self.branches(&rules.any_of, value, path);
            if valid == 0 {
                errors.push(whole(format!("{} must validate at least one schema (anyOf)", name())));
                errors.extend(fewest);
            }
        }
        if !rules.one_of.is_empty() {
            let (valid, fewest) = self.branches(&rules.one_of, value, path);
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    many => format!("Found {many} valid alternatives"),
                };
                errors.push(whole(format!("{} must validate one and only one schema (oneOf). {found}", name())));
                if valid == 0 {
                    errors.extend(fewest);
                }
            }
        }
        if !rules.all_of.is_empty() {
            let mut failed = 0;
            for branch in &rules.all_of {
                let failures = self.nested(branch, value, path);
                failed += usize::from(!failures.is_empty());
                if errors.len() < ERRORS_MAX {
                    errors.extend(failures);
                }
            }
            if failed > 0 {
                let none = if failed == rules.all_of.len() { ". None validated" } else { "" };
                errors.push(whole(format!("{} must validate all the schemas (allOf){none}", name())));
            }
        }
        if let Some(not) = &rules.not
            && self.nested(not, value, path).is_empty()
        {
            errors.push(whole(format!("{} must not validate the schema (not)", name())));
        }
        errors
    }

    /// How many branches a value satisfies, and the faults of the one it comes closest to.
    fn branches(&self, branches: &[Nested], value: &Value, path: &Path<'_>) -> (usize, Vec<FieldError>) {
        let mut valid = 0;
        let mut fewest: Option<Vec<FieldError>> = None;
        for branch in branches {
            let failures = self.nested(branch, value, path);
            valid += usize::from(failures.is_empty());
            if fewest.as_ref().is_none_or(|fewest| failures.len() < fewest.len()) {
                fewest = Some(failures);
            }
        }
        (valid, fewest.unwrap_or_default())
    }

    fn nested(&self, nested: &Nested, value: &Value, path: &Path<'_>) -> Vec<FieldError> {
        if !self.step(1) {
            return Vec::new();
        }
        let errors = self.nested_errors(nested, value, path);
        // Branches that fail are the rule, and their faults are mostly thrown away: they are work all the same.
        self.step(errors.iter().map(|error| (error.path.len() + error.detail.len()) / 64).sum());
        errors
    }

    fn nested_errors(&self, nested: &Nested, value: &Value, path: &Path<'_>) -> Vec<FieldError> {
        let mut errors = self.constraints(&nested.constraints, value, path);
        errors.extend(not_allowed(&nested.allowed, value, path));
        if let Value::Object(fields) = value {
            for name in nested.required.iter().filter(|name| !fields.contains_key(&***name)) {
                errors.push(FieldError::required(path.child(name), ""));
            }
            for (name, below) in &nested.properties {
                if errors.len() >= ERRORS_MAX {
                    break;
                }
                if let Some(field) = fields.get(&**name) {
                    errors.extend(self.nested(below, field, &path.child(name)));
                }
            }
        }
        if let (Some(below), Value::Array(items)) = (&nested.items, value) {
            for (i, item) in items.iter().enumerate() {
                errors.extend(self.nested(below, item, &path.index(i)));
                if errors.len() >= ERRORS_MAX {
                    break;
                }
            }
        }
        errors
    }
}

/// The items an old list had, found by the identity of the new ones. Items of other lists have no past.
pub(super) struct Correlated<'v> {
    keys: &'v [Box<str>],
    items: HashMap<String, &'v Value>,
}

impl<'v> Correlated<'v> {
    pub fn new(list_type: &'v ListType, old: Option<&'v Value>) -> Self {
        match (list_type, old) {
            (ListType::Map { keys }, Some(Value::Array(items))) => {
                Self { keys, items: items.iter().map(|item| (key_of(keys, item).to_string(), item)).collect() }
            }
            _ => Self { keys: &[], items: HashMap::new() },
        }
    }

    pub fn of(&self, item: &Value) -> Option<&'v Value> {
        if self.items.is_empty() { None } else { self.items.get(&key_of(self.keys, item).to_string()).copied() }
    }
}

fn key_of(keys: &[Box<str>], item: &Value) -> Value {
    let key = |name: &str| Some((name.to_owned(), item.get(name)?.clone()));
    Value::Object(keys.iter().filter_map(|name| key(name)).collect())
}

/// The sentence of the OpenAPI validator: `spec.replicas in body should be …`.
fn body(path: &Path<'_>, rest: impl fmt::Display) -> String {
    format!("{path} in body {rest}")
}

fn wrong_type(shape: &Shape, value: &Value, path: &Path<'_>) -> Option<FieldError> {
    let actual = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        // JSON has one kind of number: 1.0 is an integer.
        Value::Number(number) if !number.is_f64() || number.as_f64().is_some_and(|n| n.fract() == 0.0) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let (expected, fits) = match shape {
        Shape::Any => return None,
        Shape::Object(_) | Shape::Map { .. } => ("object", actual == "object"),
        Shape::List(_) => ("array", actual == "array"),
        Shape::Integer(_) => ("integer", actual == "integer"),
        Shape::Number => ("number", matches!(actual, "integer" | "number")),
        Shape::Boolean => ("boolean", actual == "boolean"),
        Shape::IntOrString => ("integer,string", matches!(actual, "integer" | "string")),
        _ => ("string", actual == "string"),
    };
    let detail = || body(path, format_args!("must be of type {expected}: \"{actual}\""));
    (!fits).then(|| FieldError::type_invalid(path, actual, detail()))
}

fn outside_width(shape: &Shape, value: &Value, path: &Path<'_>) -> Option<FieldError> {
    let (Shape::Integer(width), Value::Number(number)) = (shape, value) else { return None };
    let fits = match (width, number.as_i64()) {
        (Width::I32, Some(number)) => i32::try_from(number).is_ok(),
        (Width::I64, Some(_)) => true,
        // Beyond 64 bits, or written as 1.0.
        (_, None) => number.as_f64().is_some_and(|n| n.abs() < 9e15),
    };
    let format = if *width == Width::I32 { "int32" } else { "int64" };
    let detail = || format!("Checked value must be of type integer with format {format} in {path}");
    (!fits).then(|| FieldError::new(NO_PATH, Reason::Invalid, Some("".into()), detail()))
}

/// How many values of an `enum` a refusal lists.
const LISTED_MAX: usize = 256;

fn not_allowed(allowed: &Allowed, value: &Value, path: &Path<'_>) -> Option<FieldError> {
    if allowed.allows(value) {
        return None;
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut supported: Vec<String> = allowed.iter().take(LISTED_MAX).map(text).collect();
    if supported.len() < allowed.len() {
        supported.push("…".to_owned());
    }
    Some(FieldError::not_supported(path, value.clone(), &supported))
}

fn check_number(rules: &Constraints, number: &Number, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut report = |rest: String| {
        errors.push(FieldError::invalid(path, Value::Number(number.clone()), body(path, rest)));
    };
    if let Some(factor) = &rules.multiple_of
        && !is_multiple(number, factor)
    {
        report(format!("should be a multiple of {}", show(factor)));
    }
    if let Some(max) = &rules.maximum {
        let order = compare(number, max);
        if order.is_gt() || (rules.exclusive_maximum && order.is_eq()) {
            let or_equal = if rules.exclusive_maximum { "" } else { "or equal to " };
            report(format!("should be less than {or_equal}{}", show(max)));
        }
    }
    if let Some(min) = &rules.minimum {
        let order = compare(number, min);
        if order.is_lt() || (rules.exclusive_minimum && order.is_eq()) {
            let or_equal = if rules.exclusive_minimum { "" } else { "or equal to " };
            report(format!("should be greater than {or_equal}{}", show(min)));
        }
    }
}

/// Exact for integers of any width; floats are compared as the floats they are.
fn compare(a: &Number, b: &Number) -> std::cmp::Ordering {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(std::cmp::Ordering::Equal),
    }
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn is_multiple(number: &Number, factor: &Number) -> bool {
    match (whole(number), whole(factor)) {
        (Some(_), Some(0)) => true,
        (Some(number), Some(factor)) => number % factor == 0,
        _ => match (number.as_f64(), factor.as_f64()) {
            (Some(number), Some(factor)) if factor != 0.0 => (number / factor).fract() == 0.0,
            _ => true,
        },
    }
}

/// Go prints a whole float without a fraction.
fn show(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
        _ => number.to_string(),
    }
}

fn below(count: usize, min: u64) -> bool {
    u64::try_from(count).is_ok_and(|count| count < min)
}

fn above(count: usize, max: u64) -> bool {
    u64::try_from(count).is_ok_and(|count| count > max)
}

fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
