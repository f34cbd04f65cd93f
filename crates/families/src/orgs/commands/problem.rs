//! What is wrong with a command, in words and in a code that programs go by.

use serde_json::{Value, json};

use super::super::guard::conflict;
use super::super::numbers;
use super::super::words::Violation;
use crate::Refusal;

/// There is too much of it at the moment, whatever quota says.
pub const RATE_LIMITED: &str = "rate_limited";

/// What sort of answer a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The request itself is wrong.
    Invalid,
    NotFound,
    /// It does not go with the state as it is.
    Conflict,
    /// There is too much of it at the moment.
    Limited,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub sort: Sort,
    /// Stable: programs go by it.
    pub code: String,
    pub detail: String,
    /// For `quota_exceeded`: what said no.
    pub violations: Vec<Violation>,
    /// Mistakes by field.
    pub fields: Vec<(String, String)>,
}

impl Problem {
    pub fn new(sort: Sort, code: &str, detail: impl Into<String>) -> Problem {
        Problem { sort, code: code.into(), detail: detail.into(), violations: Vec::new(), fields: Vec::new() }
    }

    pub fn conflict(code: &str, detail: impl Into<String>) -> Problem {
        Problem::new(Sort::Conflict, code, detail)
    }

    /// A field that is not as it has to be.
    pub fn invalid(field: &str, why: impl Into<String>) -> Problem {
        let why = why.into();
        let mut problem = Problem::new(Sort::Invalid, "invalid_argument", format!("{field}: {why}"));
        problem.fields.push((field.into(), why));
        problem
    }

    pub fn not_found(what: &str, name: &str) -> Problem {
        Problem::new(Sort::NotFound, "not_found", format!("there is no {what} {name:?}"))
    }

    pub fn quota(violations: Vec<Violation>) -> Problem {
        let detail: Vec<String> = violations.iter().map(Violation::text).collect();
        Problem { violations, ..Problem::conflict("quota_exceeded", detail.join("; ")) }
    }

    /// What was found only in the step, in the words of what is found before it.
    pub fn of(refusal: Refusal) -> Problem {
        let code = refusal.causes.first().map_or("conflict", |cause| &*cause.reason);
        let sort = if code == RATE_LIMITED { Sort::Limited } else { Sort::Conflict };
        Problem::new(sort, code, refusal.message.as_str())
    }

    /// The dimension that a refusal is about first.
    pub fn dimension(&self) -> Option<&'static str> {
        self.violations.first().map(|one| one.dimension.name())
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        conflict(&problem.code, problem.detail)
    }
}

/// The details of a refusal for quota: the first dimension's numbers, and those of all.
pub fn quota_details(violations: &[Violation], usage: impl Fn(&Violation) -> (Value, Value, Value)) -> Value {
    let one = |violation: &Violation| {
        let (counted, reserved, source) = usage(violation);
        json!({
            "dimension": violation.dimension.name(),
            "limit": numbers::shown(violation.limit),
            "current_usage": numbers::shown(violation.current),
            "requested_delta": numbers::shown(violation.requested),
            "counted": counted,
            "reserved": reserved,
            "limit_source": source,
            "key": violation.key,
        })
    };
    let all: Vec<Value> = violations.iter().map(one).collect();
    let mut details = all.first().cloned().unwrap_or_else(|| json!({}));
    details["violations"] = Value::Array(all);
    details
}
