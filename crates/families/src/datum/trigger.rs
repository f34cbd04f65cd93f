//! When a policy speaks: of which kind of objects, and under which conditions.

use kinds::field_error::{FieldError, Path};
use kinds::fields::{given, items, text};
use rules::cel::Program;
use serde_json::Value;

use super::template::{Inputs, VARIABLES};
use crate::Refusal;
use crate::capsule::Target;

/// Conditions of one policy.
const CONSTRAINTS_MAX: usize = 10;
const EXPRESSION_BYTES_MAX: usize = 1024;
/// What a condition speaks of that is about the object alone.
const OBJECT_ALONE: &[&str] = &["object", "trigger"];

#[derive(Clone, Debug)]
pub struct Trigger {
    pub target: Target,
    /// Those about the object alone first.
    constraints: Vec<Constraint>,
}

#[derive(Clone, Debug)]
struct Constraint {
    program: Program,
    message: String,
    /// Whether it says the same whoever writes the object.
    is_of_object: bool,
}

/// What a policy says to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Yes,
    /// Not to this writer, or not in this request: what it said to others of the same object stays said.
    NotNow,
    /// Not of such an object.
    No,
}

impl Trigger {
    pub fn read(policy: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Trigger {
        let resource = given(policy, &["spec", "trigger", "resource"]).cloned().unwrap_or_default();
        let target = Target::read(&resource);
        if target.kind.is_empty() {
            let place = path.child("resource");
            errors.push(FieldError::required(place.child("kind"), "the kind of the objects that are meant"));
        }
        let (listed, place) = (items(policy, &["spec", "trigger", "constraints"]), path.child("constraints"));
        if listed.len() > CONSTRAINTS_MAX {
            errors.push(FieldError::too_many(place, listed.len(), CONSTRAINTS_MAX));
        }
        let mut constraints = Vec::new();
        for (index, one) in listed.iter().take(CONSTRAINTS_MAX).enumerate() {
            let source = text(one, &["expression"]);
            let place = place.index(index);
            if source.len() > EXPRESSION_BYTES_MAX {
                errors.push(FieldError::too_long(place.child("expression"), EXPRESSION_BYTES_MAX));
                continue;
            }
            let is_of_object = Program::compile(source, OBJECT_ALONE).is_ok();
            let message = text(one, &["message"]).to_owned();
            match Program::compile(source, VARIABLES) {
                Ok(program) => constraints.push(Constraint { program, message, is_of_object }),
                Err(why) => errors.push(FieldError::invalid(place.child("expression"), source, why.to_string())),
            }
        }
        constraints.sort_by_key(|one| !one.is_of_object);
        Trigger { target, constraints }
    }

    /// Whether all conditions hold. One that cannot be evaluated refuses the write: no answer is no leave.
    pub fn speaks(&self, policy: &str, inputs: &Inputs<'_>) -> Result<Speaks, Refusal> {
        for Constraint { program, message, is_of_object } in &self.constraints {
            match program.eval_bool(&inputs.all()) {
                Ok(true) => {}
                Ok(false) if *is_of_object => return Ok(Speaks::No),
                Ok(false) => return Ok(Speaks::NotNow),
                Err(why) => {
                    let said = if message.is_empty() { program.source() } else { message };
                    return Err(Refusal::forbidden(format!("policy \"{policy}\" cannot be evaluated ({said}): {why}")));
                }
            }
        }
        Ok(Speaks::Yes)
    }
}
