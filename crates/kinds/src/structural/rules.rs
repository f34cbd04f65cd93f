//! CEL rules of a schema, compiled and bounded when the CRD is created.
//!
//! As in Kubernetes a rule is checked against the types its schema declares, and its worst cost is estimated: the cost of
//! one evaluation on the largest value the schema admits, times how often the value can occur in an object. What only
//! shows on an object fails closed there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rules::cel::{CelError, Declared, Program, Shape as Declares, Type, Typed, Variable};
use serde_json::Value;

use super::cel_value::escape;
use super::check::field_path_steps;
use super::costs::Costs;
use super::declare::{declare, most_often};
use super::{ERRORS_MAX, Structural};
use crate::field_error::{FieldError, Path};
use crate::schema::{Catalogue, Rule, Shape, TypeId};

/// One rule, ready to run.
#[derive(Debug)]
pub(super) struct Compiled {
    pub program: Program,
    pub message: Option<Program>,
    /// The most one evaluation can cost, of the rule and of its message.
    pub cost: u64,
    pub message_cost: u64,
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
        rules: Rules::default(),
        errors: Vec::new(),
        costs: Costs::default(),
    };
    let place = Place { is_resource: true, declared: None, times: Some(1), uncorrelated: None };
    compiler.node(structural.root, schema, path, &place);
    let mut errors = compiler.errors;
    errors.extend(compiler.costs.close(path));
    if errors.is_empty() { Ok(compiler.rules) } else { Err(errors) }
}

struct Compiler<'c> {
    catalogue: &'c Catalogue,
    rules: Rules,
    errors: Vec<FieldError>,
    costs: Costs,
}

/// What a node inherits from those above it.
struct Place<'p> {
    is_resource: bool,
    /// What is declared of the node; not worked out before a rule needs it.
    declared: Option<Arc<Declared>>,
    /// How often the node can occur in an object; none where a list or map above it has no bound.
    times: Option<u64>,
    /// The part of the schema in which an old value cannot be found.
    uncorrelated: Option<&'p str>,
}

/// The two variables of a rule.
struct Variables {
    plain: [Variable; 2],
    optional: [Variable; 2],
}

impl Compiler<'_> {
    /// Returns whether there are rules at or below the node.
    fn node(&mut self, ty: TypeId, schema: &Value, path: &Path<'_>, place: &Place<'_>) -> bool {
        if self.errors.len() >= ERRORS_MAX {
            return false;
        }
        let catalogue = self.catalogue;
        let (mut leads, declared) = self.rules_of(ty, schema, path, place);
        let text = |name: &str| schema.get(name).and_then(Value::as_str);
        let bound =
            |name: &str| schema.get(name).and_then(Value::as_i64).map(|bound| u64::try_from(bound).unwrap_or(0));
        let here = path.to_string();
        let below = |inner: &Value, declared: Option<&Arc<Declared>>, times: Option<u64>, is_correlated: bool| Place {
            is_resource: inner.get("x-kubernetes-embedded-resource").and_then(Value::as_bool).unwrap_or(false),
            declared: declared.cloned(),
            times: place.times.zip(times).map(|(outer, times)| outer.saturating_mul(times)),
            uncorrelated: match (place.uncorrelated, is_correlated) {
                (Some(outer), _) => Some(outer),
                (None, false) => Some(here.as_str()),
                (None, true) => None,
            },
        };
        let declares = declared.as_ref().map(|declared| &declared.shape);
        match catalogue.shape(ty) {
            Shape::Object(object) => {
                let properties = path.child("properties");
                let is_correlated = text("x-kubernetes-map-type") != Some("atomic");
                // Fields of an object occur as often as it does, unless it is one that could hold others besides.
                let times = if schema.get("additionalProperties").is_some() { bound("maxProperties") } else { Some(1) };
                for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                    if let Some(field) = object.field(name) {
                        let declared = match (declares, escape(name)) {
                            (Some(Declares::Object(fields)), Some(escaped)) => fields.get(escaped.as_ref()),
                            _ => None,
                        };
                        let place = below(property, declared, times, is_correlated);
                        leads |= self.node(field.ty, property, &properties.key(name), &place);
                    }
                }
            }
            Shape::Map { value, .. } => {
                if let Some(inner) = schema.get("additionalProperties").filter(|inner| inner.is_object()) {
                    let declared = match declares {
                        Some(Declares::Map(value)) => Some(value),
                        _ => None,
                    };
                    let is_correlated = text("x-kubernetes-map-type") != Some("atomic");
                    let place = below(inner, declared, bound("maxProperties"), is_correlated);
                    leads |= self.node(*value, inner, &path.child("additionalProperties"), &place);
                }
            }
            Shape::List(list) => {
                if let Some(inner) = schema.get("items") {
                    let declared = match declares {
                        Some(Declares::List(item)) => Some(item),
                        _ => None,
                    };
                    let is_correlated = text("x-kubernetes-list-type") == Some("map");
                    let place = below(inner, declared, bound("maxItems"), is_correlated);
                    leads |= self.node(list.item, inner, &path.child("items"), &place);
                }
            }
            _ => {}
        }
        if leads {
            self.rules.leads.insert(ty);
        }
        leads
    }

    /// Whether the node has rules, and what is declared of it as far as that is known by now.
    fn rules_of(
        &mut self,
        ty: TypeId,
        schema: &Value,
        path: &Path<'_>,
        place: &Place<'_>,
    ) -> (bool, Option<Arc<Declared>>) {
        let rules = self.catalogue.get(ty).constraints.as_ref().map_or(&[][..], |constraints| &constraints.rules);
        if rules.is_empty() {
            return (false, place.declared.clone());
        }
        let all = path.child("x-kubernetes-validations");
        let Some(declared) = place.declared.clone().or_else(|| declare(schema, place.is_resource)) else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                       unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::internal(all, why));
            return (true, None);
        };
        let (own, old) = (Variable::new("self", &declared), Variable::new("oldSelf", &declared));
        let variables =
            Variables { optional: [own.clone(), Variable { is_optional: true, ..old.clone() }], plain: [own, old] };
        let times = place.times.unwrap_or_else(|| most_often(declared.bytes_min));
        for (i, rule) in rules.iter().enumerate() {
            let written = &schema["x-kubernetes-validations"][i];
            self.rule(ty, rule, written, &all.index(i), &variables, times, place.uncorrelated);
        }
        (true, Some(declared))
    }

    #[expect(clippy::too_many_arguments, reason = "one rule and all that is known where it stands")]
    fn rule(
        &mut self,
        ty: TypeId,
        rule: &Rule,
        written: &Value,
        at: &Path<'_>,
        variables: &Variables,
        times: u64,
        uncorrelated: Option<&str>,
    ) {
        let variables = if rule.optional_old_self { &variables.optional } else { &variables.plain };
        let compile = |source: &str, wanted: &Type, kind: &str, failed: &str| -> Result<(Program, Typed), String> {
            let (program, typed) =
                Program::compile_typed(source, variables).map_err(|why| format!("{failed}: {}", told(&why)))?;
            let is_wanted = std::mem::discriminant(&typed.ty) == std::mem::discriminant(wanted);
            if is_wanted { Ok((program, typed)) } else { Err(kind.to_owned()) }
        };
        let compiled = compile(&rule.rule, &Type::Bool, "cel expression must evaluate to a bool", "compilation failed");
        let (program, typed) = match compiled {
            Ok(compiled) => compiled,
            Err(why) => {
                self.errors.push(FieldError::invalid(at.child("rule"), written.clone(), why));
                if written.get("optionalOldSelf").is_some_and(|value| !value.is_null()) {
                    self.needless_optional(at, rule);
                }
                return;
            }
        };
        let too_expensive =
            self.costs.count(at.child("rule").to_string(), "estimated rule cost", typed.cost.saturating_mul(times));
        self.errors.extend(too_expensive);
        let message = rule.message_expression.as_deref().map(|source| {
            let kind = "messageExpression must evaluate to a string";
            compile(source, &Type::Text, kind, "messageExpression compilation failed")
        });
        let message = match message.transpose() {
            Ok(message) => message,
            Err(why) => {
                self.errors.push(FieldError::invalid(at.child("messageExpression"), written.clone(), why));
                None
            }
        };
        if let Some((_, typed)) = &message {
            let at = at.child("messageExpression").to_string();
            let too_expensive = self.costs.count(at, "estimated messageExpression cost", typed.cost);
            self.errors.extend(too_expensive);
        }
        let is_transition = typed.used.iter().any(|name| name == "oldSelf");
        if let Some(within) = uncorrelated.filter(|_| is_transition) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
            self.errors.push(FieldError::invalid(at.child("rule"), rule.rule.as_str(), detail));
        }
        if !is_transition && written.get("optionalOldSelf").is_some_and(|value| !value.is_null()) {
            self.needless_optional(at, rule);
        }
        let mut suffix = String::new();
        for step in rule.field_path.as_deref().and_then(field_path_steps).unwrap_or_default() {
            suffix.push('.');
            suffix.push_str(&step);
        }
        let (message, message_cost) = message.map_or((None, 0), |(program, typed)| (Some(program), typed.cost));
        let compiled =
            Compiled { program, message, cost: typed.cost, message_cost, is_transition, rule: rule.clone(), suffix };
        self.rules.by_type.entry(ty).or_default().push(compiled);
    }

    fn needless_optional(&mut self, at: &Path<'_>, rule: &Rule) {
        let detail = "may not be set if oldSelf is not used in rule";
        self.errors.push(FieldError::invalid(at.child("optionalOldSelf"), rule.optional_old_self, detail));
    }
}

fn told(why: &CelError) -> String {
    match why {
        CelError::UnknownVariable(_) | CelError::UnknownFunction(_) => format!("ERROR: {why}"),
        _ => why.to_string(),
    }
}
