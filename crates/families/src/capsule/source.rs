//! How much one source of a quota takes from one object.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use kinds::field_error::{FieldError, Path};
use quantity::Quantity;
use rules::cel::{COST_MAX, Program, Type};
use rules::jsonpath::{self, JsonPath, MissingKeys, PATH_BYTES_MAX};
use serde_json::Value;

use super::selection::{SELECTORS_MAX, Selector};
use super::targets::Target;
use super::{Reading, items, text};

/// Sources of one quota. Each that names the kind is evaluated for every write of it.
pub const SOURCES_MAX: usize = 64;
/// Expressions and paths of one quota, in sources and their selectors, and bytes of them all: each may be followed, or evaluated,
/// for every write of the kind.
pub const EXPRESSIONS_MAX: usize = 256;
pub const EXPRESSION_BYTES_MAX: usize = 64 * 1024;
/// Steps that all paths of a quota together may take on the object that new ones are tried on.
pub const TRIED_STEPS_MAX: u64 = 500_000;
/// The longest CEL expression; Capsule's own bound.
pub const CEL_BYTES_MAX: usize = 4096;

/// The object that a new expression must be able to handle: more than a large pod has. An expression whose estimated
/// work on it is beyond the budget is refused when the quota is written, not when pods come.
const USUAL_VALUES: u64 = 2000;
const USUAL_LENGTH: u64 = 100;
const USUAL_TEXT: u64 = 1000;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Add,
    Sub,
    Count,
}

/// One entry of `spec.sources`.
pub struct Source {
    pub target: Target,
    pub op: Op,
    value: Measured,
    selectors: Vec<Selector>,
}

enum Measured {
    /// One for each object.
    One,
    Path(JsonPath),
    Cel(Program),
}

impl Source {
    pub fn read(source: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Option<Source> {
        let before = errors.len();
        let target = Target::read(source);
        if target.kind.is_empty() {
            errors.push(FieldError::required(path.child("kind"), "must name a kind"));
        }
        let op = match text(source, &["op"]) {
            "" | "add" => Op::Add,
            "sub" => Op::Sub,
            "count" => Op::Count,
            other => {
                errors.push(FieldError::not_supported(path.child("op"), other, &["add", "sub", "count"]));
                return None;
            }
        };
        let value = read_value(source, op, path, errors);
        let list = items(source, &["selectors"]);
        let selectors_path = path.child("selectors");
        if list.len() > SELECTORS_MAX {
            errors.push(FieldError::too_many(selectors_path, list.len(), SELECTORS_MAX));
            return None;
        }
        let selectors = list.iter().enumerate();
        let selectors = selectors.filter_map(|(n, entry)| Selector::read(entry, &selectors_path.index(n), errors));
        let selectors: Vec<Selector> = selectors.collect();
        let value = value?;
        (errors.len() == before).then_some(Source { target, op, value, selectors })
    }

    /// What the object contributes; `None` when the source does not mean it.
    pub fn measure(&self, object: &Value, reading: Reading) -> Result<Option<Quantity>, String> {
        if !self.selectors.is_empty() {
            let mut meant = false;
            for selector in &self.selectors {
                if selector.matches(object, reading)? {
                    meant = true;
                    break;
                }
            }
            if !meant {
                return Ok(None);
            }
        }
        let one = Quantity::new(quantity::Amount::from_units(1), quantity::Format::DecimalSi);
        match &self.value {
            Measured::One => Ok(Some(one)),
            Measured::Path(path) => path_usage(path, object, reading).map(Some),
            Measured::Cel(program) => cel_usage(program, object, reading).map(Some),
        }
    }

    /// Whether CEL expressions say what it means, or how much.
    pub fn evaluates(&self) -> bool {
        matches!(self.value, Measured::Cel(_)) || self.selectors.iter().any(Selector::evaluates)
    }

    /// `source path "<p>" cel "<c>" op "<o>"`, as Capsule names one in its refusals.
    pub fn describe(&self) -> String {
        let (path, cel) = match &self.value {
            Measured::One => ("", ""),
            Measured::Path(path) => (path.source(), ""),
            Measured::Cel(program) => ("", program.source()),
        };
        let op = match self.op {
            Op::Add => "add",
            Op::Sub => "sub",
            Op::Count => "count",
        };
        format!("source path {path:?} cel {cel:?} op {op:?}")
    }
}

fn read_value(source: &Value, op: Op, at: &Path<'_>, errors: &mut Vec<FieldError>) -> Option<Measured> {
    let (path, cel) = (text(source, &["path"]), text(source, &["cel"]));
    let mut keep = |made: Result<Measured, String>, field: &str, bad: &str| {
        made.map_err(|why| errors.push(FieldError::invalid(at.child(field), bad, why))).ok()
    };
    match (op, path.is_empty(), cel.is_empty()) {
        (Op::Count, true, true) => Some(Measured::One),
        (Op::Add | Op::Sub, false, true) => keep(compile_path(path).map(Measured::Path), "path", path),
        (Op::Add | Op::Sub, true, false) => keep(compile_amount(cel).map(Measured::Cel), "cel", cel),
        _ => {
            let why = "path and cel must be empty when op is 'count'; otherwise exactly one of path or cel must be set \
                       and non-empty";
            errors.push(FieldError::invalid(at, source.clone(), why));
            None
        }
    }
}

/// Compiles a path under Capsule's rules, and refuses one that costs too much on an ordinary object.
pub fn compile_path(source: &str) -> Result<JsonPath, String> {
    let source = source.trim();
    if source.is_empty() {
        return Err("sourcePath must not be empty".into());
    }
    if source.len() > PATH_BYTES_MAX {
        return Err(format!("sourcePath exceeds max length of {PATH_BYTES_MAX}"));
    }
    if !source.starts_with('.') {
        return Err("sourcePath must start with '.'".into());
    }
    if source.contains(['\r', '\n', '\t']) {
        return Err("sourcePath must not contain control whitespace".into());
    }
    let path = JsonPath::compile(source).map_err(|error| format!("parse usage jsonpath {source:?}: {error}"))?;
    match path.find(&PROBE, MissingKeys::Allow) {
        Err(jsonpath::FindError::TooManyResults | jsonpath::FindError::TooManySteps) => {
            Err(format!("parse usage jsonpath {source:?}: selects too much of an ordinary object"))
        }
        // Whether it finds anything is up to the objects.
        _ => Ok(path),
    }
}

/// An object of some two thousand values, five levels deep: descents and wildcards multiply on it as on a pod.
static PROBE: LazyLock<Value> = LazyLock::new(|| {
    fn grow(levels: usize) -> Value {
        match levels {
            0 => Value::from("1"),
            _ if levels.is_multiple_of(2) => Value::Array((0..5).map(|_| grow(levels - 1)).collect()),
            _ => Value::Object(["a", "b", "c", "d"].iter().map(|key| ((*key).into(), grow(levels - 1))).collect()),
        }
    }
    grow(5)
});

/// Compiles an expression over `object` that gives an amount.
fn compile_amount(source: &str) -> Result<Program, String> {
    let (program, ty) = compile_cel(source)?;
    if ty.may_be_amount() {
        return Ok(program);
    }
    Err(format!(
        "invalid CEL expression: must evaluate to a quantity, an int, a string or a list of those, but gives {ty}"
    ))
}

/// Compiles an expression over `object` that says whether something is meant.
pub fn compile_condition(source: &str) -> Result<Program, String> {
    match compile_cel(source)? {
        (program, Type::Bool | Type::Dyn) => Ok(program),
        (_, ty) => Err(format!("invalid CEL expression: must evaluate to a bool, but gives {ty}")),
    }
}

/// Compiles an expression over `object`, and refuses one that costs too much on an ordinary object. The type of its
/// result is told as far as it shows without an object.
fn compile_cel(source: &str) -> Result<(Program, Type), String> {
    if source.trim().is_empty() || source.len() > CEL_BYTES_MAX {
        return Err(format!("invalid CEL expression: must be 1 to {CEL_BYTES_MAX} bytes long"));
    }
    if let Some(known) = COMPILED.lock().unwrap_or_else(PoisonError::into_inner).get(source) {
        return Ok(known.clone());
    }
    let compiled = Program::compile_inferred(source, &["object"]);
    let (program, ty) = compiled.map_err(|error| format!("invalid CEL expression: {error}"))?;
    let estimated = program.estimate_at(USUAL_VALUES, USUAL_LENGTH, USUAL_TEXT);
    if estimated > COST_MAX {
        return Err(format!("invalid CEL expression: estimated cost {estimated} exceeds {COST_MAX}"));
    }
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.len() >= COMPILED_MAX {
        compiled.clear();
    }
    compiled.insert(source.into(), (program.clone(), ty.clone()));
    Ok((program, ty))
}

/// Expressions that were compiled: a quota is compiled by the request that writes it, and then once more by the thread that
/// decides, which has no time for it.
static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);
const COMPILED_MAX: usize = 4096;
type Compiled = HashMap<Box<str>, (Program, Type)>;

fn path_usage(path: &JsonPath, object: &Value, reading: Reading) -> Result<Quantity, String> {
    let found = match reading {
        Reading::Documentation => path.find_forgiving(object),
        Reading::Releases => path.find(object, MissingKeys::Allow),
    };
    let found = found.map_err(|error| format!("execute usage jsonpath: {error}"))?;
    match jsonpath::usage(&found) {
        Err(jsonpath::UsageError::Empty) if reading == Reading::Documentation => Ok(Quantity::ZERO),
        usage => usage.map_err(|error| error.to_string()),
    }
}

fn cel_usage(program: &Program, object: &Value, reading: Reading) -> Result<Quantity, String> {
    let quantities = program.eval_quantities(&[("object", object)]).map_err(|error| error.to_string())?;
    if quantities.is_empty() && reading == Reading::Releases {
        return Err("the expression gave no quantity".into());
    }
    if let Some(negative) = quantities.iter().find(|quantity| quantity.amount().is_negative()) {
        return Err(format!("invalid quantity \"{negative}\": must be greater than or equal to 0"));
    }
    let sum = quantities.iter().try_fold(Quantity::ZERO, |sum, quantity| sum.checked_add(quantity));
    sum.ok_or_else(|| "the sum of the quantities is too large".into())
}
