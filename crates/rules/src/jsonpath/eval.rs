//! From nodes and an object to the values selected.

use std::cmp::Ordering;

use serde_json::Value;

use super::steps::{self, STEPS_A_PATH};
use super::text::go_text;
use super::{DESCENT_DEPTH_MAX, End, Filter, FindError, Found, MissingKeys, Node, RESULTS_MAX, STEPS_MAX, Slice};

pub(super) fn find<'a>(
    nodes: &'a [Node],
    root: &'a Value,
    missing: MissingKeys,
    forgiving: bool,
) -> Result<Vec<Found<'a>>, FindError> {
    let mut evaluator = Evaluator { missing, forgiving, steps: 0, steps_max: steps::left().min(STEPS_MAX) };
    let found = evaluator.list(vec![Found::Json(root)], nodes).map_err(|stop| stop.error);
    steps::take(evaluator.steps + STEPS_A_PATH);
    found
}

struct Evaluator {
    missing: MissingKeys,
    /// See [`super::JsonPath::find_forgiving`].
    forgiving: bool,
    steps: u64,
    steps_max: u64,
}

/// An error, and whether client-go hands out values with it: a filter that asks for existence looks at those and
/// overlooks the error.
struct Stop {
    error: FindError,
    has_values: bool,
}

type Step<'a> = Result<Vec<Found<'a>>, Stop>;

impl Evaluator {
    fn list<'a>(&mut self, input: Vec<Found<'a>>, nodes: &'a [Node]) -> Step<'a> {
        nodes.iter().try_fold(input, |values, node| self.node(values, node))
    }

    fn node<'a>(&mut self, input: Vec<Found<'a>>, node: &'a Node) -> Step<'a> {
        let has_input = !input.is_empty();
        let mut results = Vec::new();
        match node {
            Node::Text(text) => results.push(Found::Text(text)),
            Node::Int(int) => results.extend(input.iter().map(|_| Found::Int(*int))),
            Node::Float(float) => results.extend(input.iter().map(|_| Found::Float(*float))),
            Node::Bool(bool) => results.extend(input.iter().map(|_| Found::Bool(*bool))),
            Node::Identifier(name) => {
                return Err(Stop { error: FindError::Identifier(name.clone()), has_values: has_input });
            }
            Node::Field(name) => return self.field(&input, name),
            Node::Wildcard => {
                for value in &input {
                    self.children(*value, &mut results)?;
                }
            }
            Node::Recursive => self.descend(&input, &mut results, 0)?,
            Node::Slice(slice) => return self.slice(&input, *slice),
            Node::Union(members) => {
                for member in members {
                    match self.list(input.clone(), member) {
                        Ok(found) => results.extend(found),
                        Err(stop) => return Err(Stop { has_values: has_input, ..stop }),
                    }
                    self.count(0, &results)?;
                }
            }
            Node::Filter(filter) => return self.filter(&input, filter),
        }
        self.count(1, &results)?;
        Ok(results)
    }

    /// Every value looked at passes here.
    fn count(&mut self, steps: usize, results: &[Found<'_>]) -> Result<(), Stop> {
        self.steps = self.steps.saturating_add(steps as u64);
        if self.steps > self.steps_max {
            return Err(Stop { error: FindError::TooManySteps, has_values: false });
        }
        if results.len() > RESULTS_MAX {
            return Err(Stop { error: FindError::TooManyResults, has_values: false });
        }
        Ok(())
    }

    fn field<'a>(&mut self, input: &[Found<'a>], name: &str) -> Step<'a> {
        let mut results = Vec::new();
        self.count(input.len(), &results)?;
        for value in input {
            if let Found::Json(Value::Object(map)) = value
                && let Some(found) = map.get(name)
            {
                results.push(Found::Json(found));
            }
        }
        if results.is_empty() && !input.is_empty() && self.missing == MissingKeys::Refuse {
            return Err(Stop { error: FindError::NotFound(name.to_string()), has_values: false });
        }
        Ok(results)
    }

    /// The values in a map or list, the bytes of a text; nothing in anything else.
    fn children<'a>(&mut self, value: Found<'a>, results: &mut Vec<Found<'a>>) -> Result<(), Stop> {
        let length = match value {
            Found::Json(Value::Object(map)) => map.len(),
            Found::Json(Value::Array(items)) => items.len(),
            Found::Json(Value::String(text)) => text.len(),
            Found::Text(text) => text.len(),
            _ => 0,
        };
        if results.len() + length > RESULTS_MAX {
            return Err(Stop { error: FindError::TooManyResults, has_values: false });
        }
        self.count(1 + length, results)?;
        match value {
            Found::Json(Value::Object(map)) => results.extend(map.values().map(Found::Json)),
            Found::Json(Value::Array(items)) => results.extend(items.iter().map(Found::Json)),
            Found::Json(Value::String(text)) => results.extend(text.bytes().map(Found::Byte)),
            Found::Text(text) => results.extend(text.bytes().map(Found::Byte)),
            _ => {}
        }
        Ok(())
    }

    /// Each value that has something in it, before what it has in it.
    fn descend<'a>(&mut self, input: &[Found<'a>], results: &mut Vec<Found<'a>>, depth: usize) -> Result<(), Stop> {
        if depth > DESCENT_DEPTH_MAX {
            return Err(Stop { error: FindError::TooDeep, has_values: false });
        }
        for value in input {
            let mut children = Vec::new();
            match value {
                // A text counts when it is not empty, and its bytes have nothing in them.
                Found::Json(Value::String(text)) if !text.is_empty() => results.push(*value),
                Found::Text(text) if !text.is_empty() => results.push(*value),
                Found::Json(Value::Object(_) | Value::Array(_)) => self.children(*value, &mut children)?,
                _ => {}
            }
            if !children.is_empty() {
                results.push(*value);
                self.descend(&children, results, depth + 1)?;
            }
            self.count(1, results)?;
        }
        Ok(())
    }

    fn slice<'a>(&mut self, input: &[Found<'a>], slice: Slice) -> Step<'a> {
        let stop = |error| Stop { error, has_values: true };
        let mut results = Vec::new();
        for value in input {
            let items = match value {
                Found::Json(Value::Null) => continue,
                Found::Json(Value::Array(items)) => items,
                _ if self.forgiving => continue,
                other => return Err(stop(FindError::NotArray(go_type(*other)))),
            };
            let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let mut start = slice.start.unwrap_or(0);
            let mut end = match slice.end {
                End::One => start.wrapping_add(1),
                End::At(end) => end,
                End::Open => length,
            };
            if start < 0 {
                start = start.saturating_add(length);
            }
            if end < 0 || (end == 0 && slice.end == End::One) {
                end = end.saturating_add(length);
            }
            if start == end {
                // Asking for no items is fine, and ends the whole selection; upstream's habit.
                return Ok(results);
            }
            if self.forgiving && (start >= length || start < 0 || end > length || end < 0) {
                continue;
            }
            if start >= length || start < 0 {
                return Err(stop(FindError::OutOfBounds { index: start, length }));
            }
            if end > length || end < 0 {
                return Err(stop(FindError::OutOfBounds { index: end.wrapping_sub(1), length }));
            }
            if start > end {
                return Err(stop(FindError::StartAfterEnd { start, end }));
            }
            let step = slice.step.unwrap_or(1);
            let Some(step) = usize::try_from(step).ok().filter(|step| *step > 0) else {
                return Err(stop(FindError::Step));
            };
            // Both are within the list here.
            let range = usize::try_from(start).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
            results.extend(items[range].iter().step_by(step).map(Found::Json));
            self.count(1 + items.len() / step, &results)?;
        }
        Ok(results)
    }

    fn filter<'a>(&mut self, input: &[Found<'a>], filter: &'a Filter) -> Step<'a> {
        let mut results = Vec::new();
        for value in input {
            let items = match value {
                Found::Json(Value::Array(items)) => items.as_slice(),
                Found::Json(Value::Null) if self.forgiving => continue,
                Found::Json(one) if self.forgiving => std::slice::from_ref(*one),
                _ => return Err(Stop { error: FindError::NotFilterable(go_text(*value)), has_values: true }),
            };
            for item in items {
                self.count(1, &results)?;
                match self.passes(item, filter) {
                    Ok(true) => results.push(Found::Json(item)),
                    Ok(false) => {}
                    Err((error, true)) => return Err(Stop { error, has_values: true }),
                    Err((error, false)) => return Err(Stop { error, has_values: !results.is_empty() }),
                }
            }
        }
        Ok(results)
    }

    /// The flag beside an error: whether client-go returns the filter's input with it, or what passed so far.
    fn passes<'a>(&mut self, item: &'a Value, filter: &'a Filter) -> Result<bool, (FindError, bool)> {
        let lefts = self.list(vec![Found::Json(item)], &filter.left);
        let Some(operator) = &filter.operator else {
            return match lefts {
                Ok(found) => Ok(!found.is_empty()),
                Err(Stop { error: error @ (FindError::TooManySteps | FindError::TooManyResults), .. }) => {
                    Err((error, true))
                }
                Err(stop) => Ok(stop.has_values),
            };
        };
        let Some(left) = one(lefts)? else { return Ok(false) };
        let rights = self.list(vec![Found::Json(item)], &filter.right);
        let Some(right) = one(rights)? else { return Ok(false) };
        compare(operator, left, right).map_err(|error| (error, false))
    }
}

fn one(found: Step<'_>) -> Result<Option<Found<'_>>, (FindError, bool)> {
    match found {
        Err(stop) => Err((stop.error, true)),
        Ok(found) => match found.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(*one)),
            _ => Err((FindError::NotOne, true)),
        },
    }
}

enum Scalar<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
}

fn scalar(value: Found<'_>) -> Result<Scalar<'_>, FindError> {
    Ok(match value {
        Found::Bool(bool) | Found::Json(&Value::Bool(bool)) => Scalar::Bool(bool),
        Found::Int(int) => Scalar::Int(int),
        Found::Byte(byte) => Scalar::Int(byte.into()),
        Found::Float(float) => Scalar::Float(float),
        Found::Text(text) => Scalar::Text(text),
        Found::Json(Value::String(text)) => Scalar::Text(text),
        Found::Json(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(int), _) => Scalar::Int(int),
            (None, Some(float)) => Scalar::Float(float),
            (None, None) => return Err(FindError::NotComparable),
        },
        Found::Json(Value::Null | Value::Array(_) | Value::Object(_)) => return Err(FindError::NotComparable),
    })
}

fn compare(operator: &str, left: Found<'_>, right: Found<'_>) -> Result<bool, FindError> {
    if !["==", "!=", "<", "<=", ">", ">="].contains(&operator) {
        return Err(FindError::Operator(operator.to_string()));
    }
    let is_order = !matches!(operator, "==" | "!=");
    let order = match (scalar(left)?, scalar(right)?) {
        (Scalar::Bool(_), Scalar::Bool(_)) if is_order => return Err(FindError::NotComparable),
        (Scalar::Bool(left), Scalar::Bool(right)) => Some(left.cmp(&right)),
        (Scalar::Int(left), Scalar::Int(right)) => Some(left.cmp(&right)),
        (Scalar::Float(left), Scalar::Float(right)) => left.partial_cmp(&right),
        (Scalar::Text(left), Scalar::Text(right)) => Some(left.cmp(right)),
        _ => return Err(FindError::Incompatible),
    };
    Ok(match operator {
        "==" => order == Some(Ordering::Equal),
        "!=" => order != Some(Ordering::Equal),
        "<" => order == Some(Ordering::Less),
        "<=" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        ">" => !matches!(order, Some(Ordering::Less | Ordering::Equal)),
        _ => order != Some(Ordering::Less),
    })
}

/// The name of the type in Go, for the message.
fn go_type(value: Found<'_>) -> &'static str {
    match value {
        Found::Json(Value::Object(_)) => "map[string]interface {}",
        Found::Json(Value::Array(_)) => "[]interface {}",
        Found::Json(Value::String(_)) | Found::Text(_) => "string",
        Found::Json(Value::Number(number)) if number.as_i64().is_none() => "float64",
        Found::Json(Value::Number(_)) => "int64",
        Found::Int(_) => "int",
        Found::Byte(_) => "uint8",
        Found::Float(_) => "float64",
        Found::Json(Value::Bool(_)) | Found::Bool(_) => "bool",
        Found::Json(Value::Null) => "<nil>",
    }
}
