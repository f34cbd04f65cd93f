//! CEL rules of a schema, compiled and bounded when the CRD is created.
//!
//! Kubernetes type-checks rules against the schema; the engine here has no types, so what can be told without them is
//! told: syntax, unknown functions and variables, fields the schema does not declare, `oldSelf` where old and new cannot
//! be matched, and the cost of the worst object the schema admits. What only shows on an object fails closed there.

use std::collections::{HashMap, HashSet};

use rules::cel::{CelError, Program};
use serde_json::Value;

use super::cel_value::escape;
use super::check::field_path_steps;
use super::{ERRORS_MAX, Structural};
use crate::field_error::{FieldError, Path};
use crate::schema::{Catalogue, Rule, Shape, TypeId};

/// The most work a rule may be on the worst object its schema admits, a hundred times what one evaluation may take on a
/// real one. What is beyond it would be refused on every object worth writing a rule for.
const RULE_COST_MAX: u64 = 100 * rules::cel::COST_MAX;

/// How long a list, map or text without a bound is taken to be. Kubernetes assumes what fits into a request and so makes
/// authors write bounds; here real sizes are checked again when a rule runs, and this only has to catch rules that no
/// ordinary object could be judged by.
const ASSUMED_LENGTH: u64 = 1_000;

/// One rule, ready to run.
#[derive(Debug)]
pub(super) struct Compiled {
    pub program: Program,
    pub message: Option<Program>,
    /// Speaks of the old value: not asked when there is none.
    pub is_transition: bool,
    pub rule: Rule,
    /// The end of the path errors are reported at: `.a[b]`; empty for the node itself.
    pub suffix: String,
}

#[derive(Debug, Default)]
pub(super) struct Rules {
    pub by_type: HashMap<TypeId, Vec<Compiled>>,
    /// Types with rules at or below them; others need no walk.
    pub leads: HashSet<TypeId>,
}

/// Compiles every rule of the schema; `schema` is the text the structural form was made of.
pub(super) fn compile(structural: &Structural, schema: &Value, path: &Path<'_>) -> Result<Rules, Vec<FieldError>> {
    let mut compiler = Compiler {
        catalogue: &structural.catalogue,
        root: structural.root,
        rules: Rules::default(),
        errors: Vec::new(),
    };
    compiler.node(structural.root, schema, path, 1, None);
    if compiler.errors.is_empty() { Ok(compiler.rules) } else { Err(compiler.errors) }
}

struct Compiler<'c> {
    catalogue: &'c Catalogue,
    root: TypeId,
    rules: Rules,
    errors: Vec<FieldError>,
}

impl Compiler<'_> {
    /// Returns whether there are rules at or below the node. `times` is how often the node can occur in an object;
    /// `uncorrelated` names the part of the schema in which an old value cannot be found.
    fn node(&mut self, ty: TypeId, schema: &Value, path: &Path<'_>, times: u64, uncorrelated: Option<&str>) -> bool {
        if self.errors.len() >= ERRORS_MAX {
            return false;
        }
        let catalogue = self.catalogue;
        let mut leads = self.rules_of(ty, schema, path, times, uncorrelated);
        let text = |name: &str| schema.get(name).and_then(Value::as_str);
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64).unwrap_or(ASSUMED_LENGTH);
        let here = path.to_string();
        let closed = |is_correlated: bool| match (uncorrelated, is_correlated) {
            (Some(outer), _) => Some(outer),
            (None, false) => Some(here.as_str()),
            (None, true) => None,
        };
        match catalogue.shape(ty) {
            Shape::Object(object) => {
                let uncorrelated = closed(text("x-kubernetes-map-type") != Some("atomic"));
                let properties = path.child("properties");
                for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                    if let Some(field) = object.field(name) {
                        leads |= self.node(field.ty, property, &properties.key(name), times, uncorrelated);
                    }
                }
            }
            Shape::Map { value, .. } => {
                if let Some(inner) = schema.get("additionalProperties").filter(|inner| inner.is_object()) {
                    let times = times.saturating_mul(bound("maxProperties"));
                    let uncorrelated = closed(text("x-kubernetes-map-type") != Some("atomic"));
                    leads |= self.node(*value, inner, &path.child("additionalProperties"), times, uncorrelated);
                }
            }
            Shape::List(list) => {
                if let Some(inner) = schema.get("items") {
                    let times = times.saturating_mul(bound("maxItems"));
                    let uncorrelated = closed(text("x-kubernetes-list-type") == Some("map"));
                    leads |= self.node(list.item, inner, &path.child("items"), times, uncorrelated);
                }
            }
            _ => {}
        }
        if leads {
            self.rules.leads.insert(ty);
        }
        leads
    }

    fn rules_of(
        &mut self,
        ty: TypeId,
        schema: &Value,
        path: &Path<'_>,
        times: u64,
        uncorrelated: Option<&str>,
    ) -> bool {
        let rules = self.catalogue.get(ty).constraints.as_ref().map_or(&[][..], |constraints| &constraints.rules);
        let worst = longest(schema, 0);
        let all = path.child("x-kubernetes-validations");
        for (i, rule) in rules.iter().enumerate() {
            let at = all.index(i);
            let written = || schema["x-kubernetes-validations"][i].clone();
            let compiled = match self.rule(ty, rule) {
                Ok(compiled) => compiled,
                Err((part, why)) => {
                    self.errors.push(FieldError::invalid(
                        at.child(part),
                        written(),
                        format!("compilation failed: {why}"),
                    ));
                    continue;
                }
            };
            if let Some(within) = uncorrelated.filter(|_| compiled.is_transition) {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                self.errors.push(FieldError::invalid(at.child("rule"), rule.rule.as_str(), detail));
            }
            if rule.optional_old_self && !compiled.is_transition {
                let detail = "may not be set if oldSelf is not used in rule";
                self.errors.push(FieldError::invalid(at.child("optionalOldSelf"), true, detail));
            }
            for (part, name, program) in [
                ("rule", "estimated rule cost", Some(&compiled.program)),
                ("messageExpression", "estimated messageExpression cost", compiled.message.as_ref()),
            ] {
                let cost = program.map_or(0, |program| worst.cost(program).saturating_mul(times));
                if cost > RULE_COST_MAX {
                    self.errors.push(FieldError::forbidden(at.child(part), too_expensive(name, cost)));
                }
            }
            self.rules.by_type.entry(ty).or_default().push(compiled);
        }
        !rules.is_empty()
    }

    /// The rule, or the name of the part that does not compile and why.
    fn rule(&self, ty: TypeId, rule: &Rule) -> Result<Compiled, (&'static str, String)> {
        let compile = |part: &'static str, source: &str| -> Result<(Program, bool), (&'static str, String)> {
            // Whether the old value is spoken of shows in whether the rule can do without the variable.
            let (program, is_transition) = match Program::compile(source, &["self"]) {
                Err(CelError::UnknownVariable(name)) if name == "oldSelf" => {
                    (Program::compile(source, &["self", "oldSelf"]), true)
                }
                other => (other, false),
            };
            let program = program.map_err(|why| (part, why.to_string()))?;
            for steps in program.selections() {
                if let Some(field) = self.undefined_field(ty, &steps[1..]) {
                    return Err((part, format!("ERROR: undefined field '{field}'")));
                }
            }
            Ok((program, is_transition))
        };
        let (program, is_transition) = compile("rule", &rule.rule)?;
        let message =
            rule.message_expression.as_deref().map(|source| compile("messageExpression", source)).transpose()?;
        let mut suffix = String::new();
        for step in rule.field_path.as_deref().and_then(field_path_steps).unwrap_or_default() {
            suffix.push('.');
            suffix.push_str(&step);
        }
        Ok(Compiled {
            program,
            message: message.map(|(program, _)| program),
            is_transition,
            rule: rule.clone(),
            suffix,
        })
    }

    /// The first step that leads to a field the schema does not declare.
    fn undefined_field<'p>(&self, ty: TypeId, steps: &'p [String]) -> Option<&'p str> {
        let mut at = ty;
        for (i, step) in steps.iter().enumerate() {
            match self.catalogue.shape(at) {
                Shape::Object(object) => {
                    let field = object.fields().iter().find(|field| escape(&field.name) == step.as_str());
                    match field {
                        Some(field) => at = field.ty,
                        None if object.preserve_unknown => return None,
                        None => return Some(step),
                    }
                    // Of a resource's metadata rules see the names and nothing else.
                    let is_metadata = step == "metadata" && (object.embedded_resource || (i == 0 && ty == self.root));
                    if let Some(below) = steps.get(i + 1).filter(|_| is_metadata) {
                        return (below != "name" && below != "generateName").then_some(below);
                    }
                }
                Shape::Map { value, .. } => at = *value,
                _ => return None,
            }
        }
        None
    }
}

/// The longest list or map, and the longest text, that a schema admits at or below a node.
struct Longest {
    length: u64,
    text: u64,
}

impl Longest {
    fn cost(&self, program: &Program) -> u64 {
        program.estimate_at(self.length.saturating_mul(4), self.length, self.text)
    }
}

fn longest(schema: &Value, depth: usize) -> Longest {
    let bound = |name: &str| schema.get(name).and_then(Value::as_u64).unwrap_or(ASSUMED_LENGTH);
    let mut longest = Longest { length: 1, text: 1 };
    if depth > super::SCHEMA_DEPTH_MAX {
        return longest;
    }
    let mut below = |inner: &Value| {
        let inner = self::longest(inner, depth + 1);
        longest.length = longest.length.max(inner.length);
        longest.text = longest.text.max(inner.text);
    };
    schema.get("items").into_iter().for_each(&mut below);
    schema.get("additionalProperties").into_iter().for_each(&mut below);
    schema.get("properties").and_then(Value::as_object).into_iter().flatten().for_each(|(_, property)| below(property));
    match schema.get("type").and_then(Value::as_str) {
        Some("array") => longest.length = longest.length.max(bound("maxItems")),
        Some("object") if schema.get("additionalProperties").is_some() => {
            longest.length = longest.length.max(bound("maxProperties"));
        }
        Some("string") => longest.text = longest.text.max(bound("maxLength")),
        _ => {}
    }
    if schema.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool) == Some(true) {
        longest.length = longest.length.max(ASSUMED_LENGTH);
        longest.text = longest.text.max(ASSUMED_LENGTH);
    }
    longest
}

fn too_expensive(name: &str, cost: u64) -> String {
    let tenths = cost.saturating_mul(10) / RULE_COST_MAX;
    let factor = if tenths > 1_000 { "more than 100x".to_owned() } else { format!("{}.{}x", tenths / 10, tenths % 10) };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
