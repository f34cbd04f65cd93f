//! Structural schemas of CustomResourceDefinitions.
//!
//! A CRD's `openAPIV3Schema` is checked against the rules that make a schema structural and becomes a [`Structural`]: the
//! same [`Catalogue`] the built-in kinds have, so that decoding, patches, apply and OpenAPI need not know the difference,
//! plus what only custom resources need, compiled once: patterns and CEL rules.
//!
//! A request goes `prune → default → (admission) → validate`. Errors are [`FieldError`]s in Kubernetes' words.

mod cel_value;
mod check;
mod compile;
mod costs;
mod declare;
mod defaults;
mod evaluate;
mod format;
mod pattern;
mod prune;
mod rules;
mod validate;

#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::bounds::{Room, TooLarge};
use crate::field_error::{FieldError, Path, Reason};
use crate::schema::{Catalogue, TypeId};
pub use costs::{RULE_COST_MAX, SCHEMA_COST_MAX};
pub use evaluate::OBJECT_COST_MAX;

/// Deepest nesting of a schema. Walks recurse over it, and no API anyone can use is deeper.
pub const SCHEMA_DEPTH_MAX: usize = 64;

/// Most nodes of one schema. The largest CRDs in the wild have about thirty thousand.
pub const SCHEMA_NODES_MAX: usize = 200_000;

/// Most errors reported for one schema or one object. A client can send a million wrong items; nobody reads them all.
pub const ERRORS_MAX: usize = 100;

/// How many steps the validation of one object by its schema may take: one for every value, every branch of a junctor that
/// looks at it, every item whose identity is compared, and one for every eight bytes that a pattern reads. An object as
/// large as they may be takes a quarter of this where no value is looked at twice.
pub const VALIDATION_STEPS_MAX: usize = 2_000_000;

/// A checked and compiled schema.
#[derive(Debug)]
pub struct Structural {
    catalogue: Catalogue,
    root: TypeId,
    patterns: pattern::Patterns,
    rules: rules::Rules,
}

impl Structural {
    /// Compiles a schema; `path` is where it stands in the CRD and opens every error.
    pub fn compile(schema: &Value, path: &Path<'_>) -> Result<Self, Vec<FieldError>> {
        let patterns = check::check(schema, path)?;
        let mut structural = compile::compile(schema, path, patterns)?;
        let errors = defaults::check(&structural, schema, path);
        if !errors.is_empty() {
            return Err(errors);
        }
        structural.rules = rules::compile(&structural, schema, path)?;
        Ok(structural)
    }

    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// What one evaluation of each rule, and of each message made by an expression, is estimated to cost at most, in
    /// Kubernetes' units; in no order.
    pub fn estimates(&self) -> Vec<(String, u64)> {
        let rules = self.rules.by_type.values().flatten();
        let of = |rule: &rules::Compiled| {
            let own = (rule.program.source().to_owned(), rule.cost);
            let message = rule.message.as_ref().map(|message| (message.source().to_owned(), rule.message_cost));
            std::iter::once(own).chain(message)
        };
        rules.flat_map(of).collect()
    }

    /// The type of the whole object.
    pub fn root(&self) -> TypeId {
        self.root
    }

    /// Drops every field the schema does not know and returns their paths, sorted, for `fieldValidation`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.catalogue, self.root, object)
    }

    /// Fills in defaults, and drops nulls where null is no value. Ends with an error, and the object half done, where that
    /// would make too much of it.
    pub fn default(&self, object: &mut Value) -> Result<(), TooLarge> {
        defaults::default(&self.catalogue, self.root, object, &mut Room::default())
    }

    /// What is wrong with an object. On an update, faults of fields that did not change are let pass: the object was
    /// stored before the schema became stricter.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::validate(self, object, old);
        if self.rules.by_type.is_empty() {
            return errors;
        }
        // A rule may take for granted what the schema says; on an object that breaks the schema it would only add noise.
        let blocks = |error: &FieldError| {
            use Reason::{Forbidden, InternalError, Required, TooLong, TooMany, TypeInvalid};
            matches!(error.reason, Required | Forbidden | InternalError | TooLong | TooMany | TypeInvalid)
        };
        if errors.iter().any(blocks) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                          errors to complete validation";
            errors.push(FieldError::invalid(validate::NO_PATH, Value::Null, detail));
        } else {
            errors.extend(evaluate::evaluate(self, object, old));
        }
        errors
    }
}
