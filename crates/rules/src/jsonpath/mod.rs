//! JSONPath in the dialect of Kubernetes' client-go: `.spec.template`, `{.items[*].metadata.name}`, `..cpu`,
//! `.spec.ports[?(@.name=="http")].port`, `.metadata.labels.app\.kubernetes\.io/name`.
//!
//! It is its own dialect: no leading `$` is needed, dots in names are escaped, an index out of bounds is an error, and
//! `@` and `$` both mean the value at hand. Compile once with [`JsonPath::compile`], evaluate many times with
//! [`JsonPath::find`]; results borrow from the object. Beside the bounds below, one thing differs from client-go: a path
//! is one action, so templates (`{.a} text {range .b}…{end}`) are refused.

mod eval;
mod parse;
mod steps;
mod text;

use serde_json::Value;

pub use steps::{steps_taken, within_steps};
pub use text::{UsageError, go_text, text, usage};

/// The longest path compiled; Capsule's own limit.
pub const PATH_BYTES_MAX: usize = 1024;

/// How deep filters and unions may nest.
pub const PATH_DEPTH_MAX: usize = 32;

/// The most values a path may select, at any step on its way.
pub const RESULTS_MAX: usize = 10_000;

/// The most values one evaluation may look at: nested filters multiply, and a second is too long to decide a request.
pub const STEPS_MAX: u64 = 1_000_000;

/// How deep `..` descends. No decoder of ours builds anything nearly as deep.
pub const DESCENT_DEPTH_MAX: usize = 512;

/// Why a path does not compile, in client-go's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompileError {
    #[error("jsonpath must be no longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    #[error("jsonpath must not nest filters and unions deeper than {PATH_DEPTH_MAX}")]
    TooDeep,
    #[error("jsonpath must be a single expression, not a template")]
    Template,
    #[error("{0}")]
    Syntax(String),
}

/// Why a path gave no answer on an object, in client-go's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FindError {
    #[error("{0} is not found")]
    NotFound(String),
    #[error("{0} is not array or slice")]
    NotArray(&'static str),
    #[error("{0} is not array or slice and cannot be filtered")]
    NotFilterable(String),
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds { index: i64, length: i64 },
    #[error("starting index {start} is greater than ending index {end}")]
    StartAfterEnd { start: i64, end: i64 },
    #[error("step must be > 0")]
    Step,
    #[error("can only compare one element at a time")]
    NotOne,
    #[error("incompatible types for comparison")]
    Incompatible,
    #[error("invalid type for comparison")]
    NotComparable,
    #[error("unrecognized filter operator {0}")]
    Operator(String),
    #[error("unrecognized identifier {0}")]
    Identifier(String),
    #[error("jsonpath selects more than {RESULTS_MAX} values")]
    TooManyResults,
    #[error("jsonpath takes too many steps on this object")]
    TooManySteps,
    #[error("object is nested too deep")]
    TooDeep,
}

/// A compiled path.
#[derive(Clone, PartialEq, Debug)]
pub struct JsonPath {
    source: String,
    nodes: Vec<Node>,
}

/// What to make of a field that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingKeys {
    /// It selects nothing.
    Allow,
    Refuse,
}

/// One selected value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Found<'a> {
    Json(&'a Value),
    /// A constant written in the path.
    Text(&'a str),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// One byte of a text: what `*` selects in one.
    Byte(u8),
}

impl JsonPath {
    /// Compiles a path, with or without the braces around it.
    pub fn compile(source: &str) -> Result<JsonPath, CompileError> {
        if source.len() > PATH_BYTES_MAX {
            return Err(CompileError::TooLong);
        }
        let inner = source.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(source);
        Ok(JsonPath { source: source.to_string(), nodes: parse::action(inner, 0)? })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// All values the path selects in `root`, in order. The fields of a map come in the map's order.
    pub fn find<'a>(&'a self, root: &'a Value, missing: MissingKeys) -> Result<Vec<Found<'a>>, FindError> {
        eval::find(&self.nodes, root, missing, false)
    }

    /// The same for users who expect that what is not there selects nothing: an index beyond a list or into something
    /// that is none, and `null`, select nothing, and a filter on a single value looks at that value, as in
    /// `.spec.type[?(@=="LoadBalancer")]`.
    pub fn find_forgiving<'a>(&'a self, root: &'a Value) -> Result<Vec<Found<'a>>, FindError> {
        let mut found = eval::find(&self.nodes, root, MissingKeys::Allow, true)?;
        found.retain(|value| !matches!(value, Found::Json(Value::Null)));
        Ok(found)
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Field(String),
    Wildcard,
    Recursive,
    /// A word that means nothing; evaluating it is an error.
    Identifier(String),
    Slice(Slice),
    Union(Vec<Vec<Node>>),
    Filter(Box<Filter>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slice {
    start: Option<i64>,
    end: End,
    step: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// `[2]`: just the one item after the start.
    One,
    At(i64),
    Open,
}

#[derive(Clone, PartialEq, Debug)]
struct Filter {
    left: Vec<Node>,
    right: Vec<Node>,
    /// `None` asks whether the left side selects anything.
    operator: Option<String>,
}
