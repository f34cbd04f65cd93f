//! Inputs converted once for several programs.
//!
//! Validating a custom resource evaluates many rules on one value, and its schema says more about the value than JSON
//! does (a timestamp, a double, an escaped name). So the caller converts, and this keeps the bounds: what is bound is
//! measured, and the work of all evaluations together is paid from one budget.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::Value;
use kube_cel::cel::parser::Parser;
use serde_json::Value as Json;

use super::convert::{self, Size};
use super::{COST_MAX, CelError, Outcome, Program, cost, library};

/// Variables with their values and the size of all together.
pub struct Inputs {
    variables: Vec<(&'static str, Value)>,
    size: Size,
}

impl Default for Inputs {
    fn default() -> Self {
        Self { variables: Vec::new(), size: Size { values: 1, length: 1, text: 1 } }
    }
}

impl Inputs {
    /// Binds a variable to `value`, which the caller made of `json`.
    pub fn bind(&mut self, name: &'static str, json: &Json, value: Value) -> Result<(), CelError> {
        let size = convert::size_of(std::iter::once(json))?;
        self.size.values = self.size.values.saturating_add(size.values);
        self.size.length = self.size.length.max(size.length);
        self.size.text = self.size.text.max(size.text);
        self.variables.push((name, value));
        Ok(())
    }

    /// Binds a variable to something that has no size, such as an empty optional.
    pub fn bind_small(&mut self, name: &'static str, value: Value) {
        self.variables.push((name, value));
    }
}

impl Program {
    /// Evaluates on inputs shared with other programs. The estimated work is taken from `budget`; one evaluation may take
    /// [`COST_MAX`] of it at most.
    pub fn eval_on(&self, inputs: &Inputs, budget: &mut u64) -> Result<Outcome, CelError> {
        let estimated = cost::estimate(&self.expression, &inputs.size);
        if estimated > COST_MAX.min(*budget) {
            return Err(CelError::TooExpensive { estimated });
        }
        *budget -= estimated;
        let resolved = catch_unwind(AssertUnwindSafe(|| {
            library::with_base(|base| {
                let mut scope = base.new_inner_scope();
                for (name, value) in &inputs.variables {
                    scope.add_variable_from_value(*name, value.clone());
                }
                scope.resolve(&self.expression)
            })
        }));
        let value: Value = resolved.map_err(|_| CelError::Panicked)?.map_err(convert::evaluation_error)?;
        convert::outcome(&value, 0)
    }

    /// The work on inputs of a given size: so many values, lists and maps and texts no longer than this.
    pub fn estimate_at(&self, values: u64, length: u64, text: u64) -> u64 {
        cost::estimate(&self.expression, &Size { values, length, text })
    }
}

/// A timestamp in RFC 3339; none when the text is none.
pub fn timestamp(text: &str) -> Option<Value> {
    through_function("timestamp(text)", text)
}

/// A duration such as `1h30m`; none when the text is none.
pub fn duration(text: &str) -> Option<Value> {
    through_function("duration(text)", text)
}

/// The engine's constructors are reachable only by calling them.
fn through_function(call: &str, text: &str) -> Option<Value> {
    let expression = Parser::new().parse(call).ok()?;
    let made = catch_unwind(AssertUnwindSafe(|| {
        library::with_base(|base| {
            let mut scope = base.new_inner_scope();
            scope.add_variable_from_value("text", Value::String(std::sync::Arc::new(text.to_owned())));
            scope.resolve(&expression).ok()
        })
    }));
    made.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_budget_pays_for_all() {
        let json = serde_json::json!([1, 2, 3]);
        let mut inputs = Inputs::default();
        inputs.bind("self", &json, convert::to_cel(&json)).unwrap();
        let program = Program::compile("self.all(x, x > 0)", &["self"]).unwrap();
        let mut budget = 1_000;
        assert_eq!(program.eval_on(&inputs, &mut budget), Ok(Outcome::Bool(true)));
        assert!(budget < 1_000);
        let mut budget = 1;
        assert!(matches!(program.eval_on(&inputs, &mut budget), Err(CelError::TooExpensive { .. })));
        assert!(program.estimate_at(1_000_000, 1_000_000, 1) > program.estimate_at(10, 10, 1));
    }

    #[test]
    fn times_are_made_of_text() {
        assert!(matches!(timestamp("2026-01-01T00:00:00Z"), Some(Value::Timestamp(_))));
        assert!(matches!(duration("1h"), Some(Value::Duration(_))));
        assert!(timestamp("x").is_none() && duration("x").is_none());
    }
}
