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
mod desk;
mod inputs;
mod library;
mod typed;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::cel::parser::Parser;
use kube_cel::cel::{IdedExpr, Value};
use quantity::Quantity;

pub use convert::Outcome;
pub use desk::{Budget, Foresight, Known, PutOff, Question, WRITE_STEPS_MAX, aside, at_desk, evaluations, within};
pub use inputs::{Inputs, duration, timestamp};
pub use library::FUNCTIONS;
use typed::Dialect;
pub use typed::{Declared, Shape, Type, Variable};

/// The longest expression compiled. The longest rules in published CRDs are a tenth of this.
pub const EXPRESSION_BYTES_MAX: usize = 16 * 1024;

/// How deep the tree of an expression may be: the most operators, dots and brackets that stand in one chain. The engine
/// recurses once a level, and a stack that overflows takes the process with it: this many levels need well under half a
/// megabyte. Parts joined by `&&` and `||` are chains of their own.
pub const DEPTH_MAX: usize = 400;

/// How deep brackets may nest; the parser needs far more stack for these than for a chain of operators.
pub const NESTING_MAX: usize = 32;

/// How deep `all`, `exists`, `map` and `filter` may stand inside one another.
pub const COMPREHENSIONS_NESTED_MAX: usize = 4;

/// The most work one evaluation may be estimated to take, in steps of roughly a tenth of a microsecond.
pub const COST_MAX: u64 = 2_000_000;

/// The most work all expressions together may take on one object on the thread that decides; about two milliseconds. What
/// takes longer is worked out before ([`Foresight`]).
pub const DECIDER_COST_MAX: u64 = 20_000;

/// The same for all objects of one step on that thread; about ten milliseconds.
pub const STEP_COST_MAX: u64 = 100_000;

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
    #[error("expression is too complex: at most {DEPTH_MAX} operators in a chain, brackets nested {NESTING_MAX} deep")]
    TooComplex,
    #[error("comprehensions may be nested at most {COMPREHENSIONS_NESTED_MAX} deep")]
    ComprehensionsTooDeep,
    #[error("{0}")]
    Syntax(String),
    #[error("ERROR: {0}")]
    Types(String),
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

/// What is known of an expression before it is evaluated.
#[derive(Clone, Debug)]
pub struct Typed {
    pub ty: Type,
    /// The variables it speaks of.
    pub used: Vec<String>,
    /// The most one evaluation can cost, in Kubernetes' units.
    pub cost: u64,
}

fn parse(source: &str) -> Result<IdedExpr, CelError> {
    check::scan(source)?;
    let parsed = catch_unwind(|| Parser::new().enable_optional_syntax(true).parse(source));
    let mut expression =
        parsed.map_err(|_| CelError::Panicked)?.map_err(|errors| CelError::Syntax(errors.to_string()))?;
    check::expand(&mut expression);
    Ok(expression)
}

/// A compiled expression; copies share it.
#[derive(Clone)]
pub struct Program {
    source: Arc<str>,
    expression: Arc<IdedExpr>,
    variables: Arc<[String]>,
}

impl Program {
    /// Compiles `source`, which may refer to `variables` and nothing else. Nothing is known of their types.
    pub fn compile(source: &str, variables: &[&str]) -> Result<Program, CelError> {
        Self::finish(source, parse(source)?, variables.iter().map(|name| (*name).to_owned()).collect())
    }

    /// Compiles like [`Program::compile`], and tells the type of the result as far as it shows without an object.
    pub fn compile_inferred(source: &str, variables: &[&'static str]) -> Result<(Program, Type), CelError> {
        let expression = parse(source)?;
        let names = variables.iter().map(|name| (*name).to_owned()).collect();
        let anything = Declared::anything();
        let variables: Vec<Variable> = variables.iter().map(|name| Variable::new(name, &anything)).collect();
        let checked = typed::check(&expression, &variables, Dialect::Engine).map_err(CelError::Types)?;
        let ty = checked.ty(&expression).clone();
        Ok((Self::finish(source, expression, names)?, ty))
    }

    /// Compiles `source` against what is declared of its variables: what does not fit the types is refused here. The
    /// first variable is the one whose declaration tells sizes.
    pub fn compile_typed(source: &str, variables: &[Variable]) -> Result<(Program, Typed), CelError> {
        let expression = parse(source)?;
        let checked = typed::check(&expression, variables, Dialect::Kubernetes).map_err(CelError::Types)?;
        typed::literals(&expression).map_err(CelError::Types)?;
        let cost = variables.first().map_or(0, |first| typed::cost(&expression, &checked, &first.declared));
        let typed = Typed { ty: checked.ty(&expression).clone(), used: checked.used, cost };
        let names = variables.iter().map(|variable| variable.name.to_owned()).collect();
        Ok((Self::finish(source, expression, names)?, typed))
    }

    fn finish(source: &str, mut expression: IdedExpr, variables: Vec<String>) -> Result<Program, CelError> {
        check::rewrite(&mut expression);
        check::names(&expression, &variables)?;
        Ok(Program { source: source.into(), expression: Arc::new(expression), variables: variables.into() })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates with these inputs. Each variable the program was compiled with must be given.
    pub fn eval(&self, inputs: &[(&str, &serde_json::Value)]) -> Result<Outcome, CelError> {
        for name in self.variables.iter() {
            if !inputs.iter().any(|(given, _)| given == name) {
                return Err(CelError::Unbound(name.clone()));
            }
        }
        if let Some(answer) = desk::answer(self, inputs) {
            return answer;
        }
        let size = convert::size_of(inputs.iter().map(|(_, value)| *value))?;
        let estimated = self.estimate(&size);
        if estimated > COST_MAX {
            return Err(CelError::TooExpensive { estimated });
        }
        desk::note_evaluation();
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

    fn estimate(&self, size: &convert::Size) -> u64 {
        cost::estimate(&self.expression, size)
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
