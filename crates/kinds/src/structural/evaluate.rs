//! Running the CEL rules of a schema on an object.

use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::OptionalValue;
use rules::cel::{COST_MAX, CelError, Inputs};
use serde_json::Value;

use super::cel_value::to_cel;
use super::rules::Compiled;
use super::validate::Correlated;
use super::{ERRORS_MAX, Structural};
use crate::field_error::{FieldError, Path, Reason};
use crate::schema::{Shape, TypeId};

/// The work all rules together may take on one object, in the steps of [`rules::cel::COST_MAX`]: about a second, as in
/// Kubernetes.
pub const OBJECT_COST_MAX: u64 = 10_000_000;

/// Longest message a rule may make of an object; Kubernetes' bound.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

pub(super) fn evaluate(structural: &Structural, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut run = Run { structural, errors: Vec::new(), budget: OBJECT_COST_MAX, is_over: false };
    run.node(structural.root, object, old, &Path::ROOT);
    run.errors
}

struct Run<'s> {
    structural: &'s Structural,
    errors: Vec<FieldError>,
    budget: u64,
    /// Set when the budget is spent: no rule is run after that.
    is_over: bool,
}

impl Run<'_> {
    fn node(&mut self, ty: TypeId, value: &Value, old: Option<&Value>, path: &Path<'_>) {
        let rules = &self.structural.rules;
        if !rules.leads.contains(&ty) || value.is_null() || self.is_over || self.errors.len() >= ERRORS_MAX {
            return;
        }
        if let Some(rules) = rules.by_type.get(&ty) {
            self.run(ty, rules, value, old.filter(|old| !old.is_null()), path);
        }
        match (self.structural.catalogue.shape(ty), value) {
            (Shape::Object(object), Value::Object(fields)) => {
                for (name, field) in fields {
                    if let Some(known) = object.field(name) {
                        let old = old.and_then(|old| old.get(name));
                        self.node(known.ty, field, old, &path.child(name));
                    }
                }
            }
            (Shape::Map { value: below, .. }, Value::Object(fields)) => {
                for (name, field) in fields {
                    self.node(*below, field, old.and_then(|old| old.get(name)), &path.key(name));
                }
            }
            (Shape::List(list), Value::Array(items)) => {
                let olds = Correlated::new(&list.list_type, old);
                for (i, item) in items.iter().enumerate() {
                    self.node(list.item, item, olds.of(item), &path.index(i));
                }
            }
            _ => {}
        }
    }

    fn run(&mut self, ty: TypeId, rules: &[Compiled], value: &Value, old: Option<&Value>, path: &Path<'_>) {
        let catalogue = &self.structural.catalogue;
        // A rule is let pass where nothing changed, unless it speaks of the change.
        let is_unchanged = old == Some(value);
        let inputs = bind(catalogue, ty, value, old, false);
        for rule in rules {
            if is_unchanged && !rule.is_transition {
                continue;
            }
            if rule.is_transition && old.is_none() && !rule.rule.optional_old_self {
                continue;
            }
            let optional;
            let inputs = if rule.rule.optional_old_self {
                optional = bind(catalogue, ty, value, old, true);
                &optional
            } else {
                &inputs
            };
            let inputs = match inputs {
                Ok(inputs) => inputs,
                Err(why) => {
                    let detail = format!("{why} evaluating rule: {}", rule_text(rule));
                    self.errors.push(FieldError::invalid(shown(path), type_name(value), detail));
                    continue;
                }
            };
            self.one(rule, inputs, value, path);
            if self.is_over {
                return;
            }
        }
    }

    fn one(&mut self, rule: &Compiled, inputs: &Inputs, value: &Value, path: &Path<'_>) {
        let outcome = rule.program.eval_on(inputs, &mut self.budget).and_then(|outcome| outcome.as_bool());
        match outcome {
            Ok(true) => {}
            Ok(false) => {
                let detail = self.message(rule, inputs);
                self.errors.push(failure(rule, value, path, detail));
            }
            Err(CelError::TooExpensive { estimated }) => {
                let detail = if estimated > COST_MAX {
                    format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due \
                         to call cost exceeds limit for rule: {}",
                        rule_text(rule)
                    )
                } else {
                    "validation failed due to running out of cost budget, no further validation rules will be run"
                        .into()
                };
                self.errors.push(FieldError::invalid(shown(path), type_name(value), detail));
                self.is_over = true;
            }
            Err(why) => {
                let text = rule_text(rule);
                let why = why.to_string();
                let detail = if why.starts_with("no such overload") {
                    format!(
                        "'{why}': call arguments did not match a supported operator, function or macro signature for \
                         rule: {text}"
                    )
                } else {
                    format!("{why} evaluating rule: {text}")
                };
                self.errors.push(FieldError::invalid(shown(path), type_name(value), detail));
            }
        }
    }

    /// The message an expression makes, when it makes a decent one; else the fixed one; else the rule itself.
    fn message(&mut self, rule: &Compiled, inputs: &Inputs) -> String {
        let made = rule.message.as_ref().and_then(|message| message.eval_on(inputs, &mut self.budget).ok());
        let made = made.as_ref().and_then(|outcome| outcome.as_text().ok()).map(str::trim);
        if let Some(text) = made
            && !text.is_empty()
            && text.len() <= MESSAGE_BYTES_MAX
            && !text.contains('\n')
        {
            return text.to_owned();
        }
        match &rule.rule.message {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule_text(rule)),
        }
    }
}

fn bind(
    catalogue: &crate::schema::Catalogue,
    ty: TypeId,
    value: &Value,
    old: Option<&Value>,
    is_optional: bool,
) -> Result<Inputs, CelError> {
    let mut inputs = Inputs::default();
    inputs.bind("self", value, to_cel(catalogue, Some(ty), value))?;
    match (old, is_optional) {
        (Some(old), false) => inputs.bind("oldSelf", old, to_cel(catalogue, Some(ty), old))?,
        (Some(old), true) => {
            let optional = OptionalValue::of(to_cel(catalogue, Some(ty), old));
            inputs.bind("oldSelf", old, Cel::Opaque(Arc::new(optional)))?;
        }
        (None, true) => inputs.bind_small("oldSelf", Cel::Opaque(Arc::new(OptionalValue::none()))),
        (None, false) => {}
    }
    Ok(inputs)
}

fn failure(rule: &Compiled, value: &Value, path: &Path<'_>, detail: String) -> FieldError {
    let mut at = if path.is_root() { String::new() } else { path.to_string() };
    at.push_str(&rule.suffix);
    let at = match at.strip_prefix('.') {
        Some(at) if path.is_root() => at.to_owned(),
        _ if at.is_empty() => shown(path),
        _ => at,
    };
    // An object or list would drown the message.
    let bad_value = (!value.is_object() && !value.is_array()).then(|| value.clone());
    match rule.rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(at, detail),
        Some("FieldValueRequired") => FieldError::required(at, detail),
        Some("FieldValueDuplicate") => FieldError::new(at, Reason::Duplicate, bad_value, ""),
        _ => FieldError::new(at, Reason::Invalid, bad_value, detail),
    }
}

fn shown(path: &Path<'_>) -> String {
    if path.is_root() { super::validate::NO_PATH.to_owned() } else { path.to_string() }
}

fn rule_text(rule: &Compiled) -> &str {
    rule.rule.message.as_deref().unwrap_or(&rule.rule.rule).trim()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Null => "null",
    }
}
