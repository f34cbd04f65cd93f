//! The object form of a label selector: `matchLabels` and `matchExpressions`.

use serde_json::{Map, Value};

use super::name::{label_key_problems, label_value_problems, quoted};
use super::parse::requirement;
use super::{Operator, Requirement, SELECTOR_ITEMS_MAX, SelectorError};

/// One thing wrong with a selector object, for the validation of the object that holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Relative to the selector: `matchExpressions[0].key`.
    pub path: String,
    pub kind: ProblemKind,
    pub detail: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProblemKind {
    Required,
    Forbidden,
    /// With the value that is not allowed.
    Invalid(Value),
}

pub(super) fn requirements(object: &Value) -> Result<Vec<Requirement>, SelectorError> {
    let selector = Shape::of(object)?;
    let mut requirements = Vec::with_capacity(selector.labels.len() + selector.expressions.len());
    for (key, value) in &selector.labels {
        requirements.push(requirement(key, Operator::Equals, vec![(*value).to_string()])?);
    }
    for expression in &selector.expressions {
        let operator = expression.operator().ok_or_else(|| {
            SelectorError::Invalid(format!("{} is not a valid label selector operator", quoted(expression.operator)))
        })?;
        let values = expression.values.iter().map(|value| (*value).to_string()).collect();
        requirements.push(requirement(expression.key, operator, values)?);
    }
    Ok(requirements)
}

/// Everything wrong with a selector object, as Kubernetes validates one inside a spec. An object of the wrong shape is
/// an error: no schema would have let it through.
pub fn problems(object: &Value) -> Result<Vec<Problem>, SelectorError> {
    let mut problems = Vec::new();
    if object.is_null() {
        return Ok(problems);
    }
    let selector = Shape::of(object)?;
    let mut complain = |path: String, kind: ProblemKind, detail: String| problems.push(Problem { path, kind, detail });
    let invalid = |value: &str| ProblemKind::Invalid(value.into());
    for (key, value) in &selector.labels {
        for problem in label_key_problems(key) {
            complain("matchLabels".into(), invalid(key), problem);
        }
        for problem in label_value_problems(value) {
            complain("matchLabels".into(), invalid(value), problem);
        }
    }
    for (at, expression) in selector.expressions.iter().enumerate() {
        let path = |rest: &str| format!("matchExpressions[{at}].{rest}");
        match expression.operator() {
            Some(Operator::In | Operator::NotIn) if expression.values.is_empty() => complain(
                path("values"),
                ProblemKind::Required,
                "must be specified when `operator` is 'In' or 'NotIn'".into(),
            ),
            Some(Operator::Exists | Operator::DoesNotExist) if !expression.values.is_empty() => complain(
                path("values"),
                ProblemKind::Forbidden,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'".into(),
            ),
            Some(_) => {}
            None => {
                complain(path("operator"), invalid(expression.operator), "not a valid selector operator".into());
            }
        }
        for problem in label_key_problems(expression.key) {
            complain(path("key"), invalid(expression.key), problem);
        }
        for (value_at, value) in expression.values.iter().enumerate() {
            for problem in label_value_problems(value) {
                complain(path(&format!("values[{value_at}]")), invalid(value), problem);
            }
        }
    }
    Ok(problems)
}

/// A selector object taken apart, its shape checked and its size bounded.
struct Shape<'a> {
    labels: Vec<(&'a str, &'a str)>,
    expressions: Vec<Expression<'a>>,
}

struct Expression<'a> {
    key: &'a str,
    operator: &'a str,
    values: Vec<&'a str>,
}

impl Expression<'_> {
    fn operator(&self) -> Option<Operator> {
        Some(match self.operator {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return None,
        })
    }
}

impl<'a> Shape<'a> {
    fn of(object: &'a Value) -> Result<Shape<'a>, SelectorError> {
        let object = object.as_object().ok_or_else(|| wrong("selector", "an object"))?;
        let mut shape = Shape { labels: Vec::new(), expressions: Vec::new() };
        if let Some(labels) = present(object, "matchLabels") {
            for (key, value) in labels.as_object().ok_or_else(|| wrong("matchLabels", "an object"))? {
                shape.labels.push((key, value.as_str().ok_or_else(|| wrong("matchLabels", "strings"))?));
            }
        }
        if let Some(expressions) = present(object, "matchExpressions") {
            for expression in expressions.as_array().ok_or_else(|| wrong("matchExpressions", "a list"))? {
                shape.expressions.push(Expression::of(expression)?);
            }
        }
        let count = shape.labels.len() + shape.expressions.len();
        let values_max = shape.expressions.iter().map(|expression| expression.values.len()).max().unwrap_or(0);
        if count > SELECTOR_ITEMS_MAX || values_max > SELECTOR_ITEMS_MAX {
            return Err(SelectorError::TooManyItems);
        }
        Ok(shape)
    }
}

impl<'a> Expression<'a> {
    fn of(expression: &'a Value) -> Result<Expression<'a>, SelectorError> {
        let object = expression.as_object().ok_or_else(|| wrong("matchExpressions", "objects"))?;
        let text = |field: &'static str| match present(object, field) {
            None => Ok(""),
            Some(value) => value.as_str().ok_or_else(|| wrong(field, "a string")),
        };
        let values = match present(object, "values") {
            None => Vec::new(),
            Some(values) => values
                .as_array()
                .and_then(|values| values.iter().map(Value::as_str).collect::<Option<Vec<&str>>>())
                .ok_or_else(|| wrong("values", "a list of strings"))?,
        };
        Ok(Expression { key: text("key")?, operator: text("operator")?, values })
    }
}

/// `null` and absent are the same in Kubernetes' JSON.
fn present<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null())
}

fn wrong(field: &str, wanted: &str) -> SelectorError {
    SelectorError::Invalid(format!("label selector: {field} must be {wanted}"))
}
