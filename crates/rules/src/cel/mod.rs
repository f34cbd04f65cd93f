//! CEL, compiled once, bounded always.
//!
//! [`Program`] wraps `kube_cel::cel` and stands between it and the users' expressions:
//!
//! ```text
//!   text --scan--> length, nesting --parse--> tree --check--> names known, comprehensions counted --> Program
//!   JSON --convert--> values (integers stay integers) --estimate--> cost within budget --evaluate--> Outcome
//! ```
//!
//! What the engine lacks and this module adds: unknown variables and functions are found when compiling; the work of an
//! evaluation is estimated from the sizes of its inputs and refused when too much; quantities are our exact ones (the
//! engine's own wrap on overflow); a select on something that is no map is an error and not `false`; and a panic inside
//! the engine is an error of that evaluation.

mod check;
mod convert;
mod cost;
mod inputs;
mod library;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::parser::Parser;
use kube_cel::cel::{IdedExpr, Value};
use quantity::Quantity;

pub use convert::Outcome;
pub use inputs::{Inputs, duration, timestamp};
pub use library::FUNCTIONS;

/// The longest expression compiled. The longest rules in published CRDs are a quarter of this.
pub const EXPRESSION_BYTES_MAX: usize = 8 * 1024;

/// The most operators, dots and brackets in an expression. Each can be one level of the tree, the engine recurses once a
/// level, and a stack that overflows takes the process with it: this many levels need well under half a megabyte.
pub const OPERATORS_MAX: usize = 400;

/// How deep brackets may nest; the parser needs far more stack for these than for a chain of operators.
pub const NESTING_MAX: usize = 32;

/// How deep `all`, `exists`, `map` and `filter` may stand inside one another.
pub const COMPREHENSIONS_NESTED_MAX: usize = 4;

/// The most work one evaluation may be estimated to take, in steps of roughly a tenth of a microsecond.
pub const COST_MAX: u64 = 2_000_000;

/// The most values (list items, map entries, scalars) that may be bound in one evaluation; the API accepts objects of a
/// few megabytes, which have fewer.
pub const INPUT_VALUES_MAX: u64 = 500_000;

/// How deep a bound value may nest. Kubernetes' own JSON decoders stop at about the same depth.
pub const INPUT_DEPTH_MAX: usize = 128;

/// Why an expression was refused or gave no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CelError {
    #[error("expression must be no longer than {EXPRESSION_BYTES_MAX} bytes")]
    TooLong,
    #[error("expression is too complex: at most {OPERATORS_MAX} operators, nested {NESTING_MAX} deep")]
    TooComplex,
    #[error("comprehensions may be nested at most {COMPREHENSIONS_NESTED_MAX} deep")]
    ComprehensionsTooDeep,
    #[error("{0}")]
    Syntax(String),
    #[error("undeclared reference to '{0}' (in container '')")]
    UnknownVariable(String),
    #[error("undeclared reference to '{0}' (in container '')")]
    UnknownFunction(String),
    #[error("'{0}' is not supported")]
    Unsupported(&'static str),
    #[error("no value was given for '{0}'")]
    Unbound(String),
    #[error("object too large to evaluate an expression on")]
    InputTooLarge,
    #[error("expression too expensive for this object: estimated cost {estimated} exceeds {COST_MAX}")]
    TooExpensive { estimated: u64 },
    #[error("{0}")]
    Evaluation(String),
    #[error("the expression engine failed on this expression")]
    Panicked,
    #[error("expression must evaluate to {wanted}, but gave {got}")]
    WrongType { wanted: &'static str, got: &'static str },
    #[error("invalid quantity {text:?}: {error}")]
    Quantity { text: String, error: quantity::ParseError },
}

/// A compiled expression.
pub struct Program {
    source: String,
    expression: IdedExpr,
    variables: Vec<String>,
}

impl Program {
    /// Compiles `source`, which may refer to `variables` and nothing else.
    pub fn compile(source: &str, variables: &[&str]) -> Result<Program, CelError> {
        check::scan(source)?;
        let parsed = catch_unwind(|| Parser::new().enable_optional_syntax(true).parse(source));
        let mut expression =
            parsed.map_err(|_| CelError::Panicked)?.map_err(|errors| CelError::Syntax(errors.to_string()))?;
        check::rewrite(&mut expression);
        check::names(&expression, variables)?;
        let variables = variables.iter().map(|name| (*name).to_string()).collect();
        Ok(Program { source: source.to_string(), expression, variables })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates with these inputs. Each variable the program was compiled with must be given.
    pub fn eval(&self, inputs: &[(&str, &serde_json::Value)]) -> Result<Outcome, CelError> {
        for name in &self.variables {
            if !inputs.iter().any(|(given, _)| given == name) {
                return Err(CelError::Unbound(name.clone()));
            }
        }
        let size = convert::size_of(inputs.iter().map(|(_, value)| *value))?;
        let estimated = cost::estimate(&self.expression, &size);
        if estimated > COST_MAX {
            return Err(CelError::TooExpensive { estimated });
        }
        let resolved = catch_unwind(AssertUnwindSafe(|| {
            library::with_base(|base| {
                let mut scope = base.new_inner_scope();
                for (name, value) in inputs {
                    scope.add_variable_from_value(*name, convert::to_cel(value));
                }
                scope.resolve(&self.expression)
            })
        }));
        let value: Value = resolved.map_err(|_| CelError::Panicked)?.map_err(convert::evaluation_error)?;
        convert::outcome(&value, 0)
    }

    /// The answer of a condition.
    pub fn eval_bool(&self, inputs: &[(&str, &serde_json::Value)]) -> Result<bool, CelError> {
        self.eval(inputs)?.as_bool()
    }

    /// The amounts an expression gives: one quantity, or a list of them. Integers and texts count as the quantity they
    /// spell; a double never does.
    pub fn eval_quantities(&self, inputs: &[(&str, &serde_json::Value)]) -> Result<Vec<Quantity>, CelError> {
        self.eval(inputs)?.into_quantities()
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("source", &self.source).field("variables", &self.variables).finish()
    }
}
