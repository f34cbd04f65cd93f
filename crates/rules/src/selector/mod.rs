//! Label and field selectors, in both spellings Kubernetes has: the text of a query parameter and the object in a spec.
//!
//! Start at [`LabelSelector`]: a conjunction of requirements, or nothing at all. [`FieldSelector`] is the smaller cousin
//! for `metadata.name` and friends.

mod field;
mod name;
mod object;
mod parse;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde_json::Value;

pub use field::{FieldSelector, FieldTerm};
pub use name::{dns_subdomain_problems, label_key_problems, label_value_problems};
pub use object::{Problem, ProblemKind, problems};

/// The longest selector text read. Query strings are shorter than HTTP servers let them be; this is twice the usual 8 KiB.
pub const SELECTOR_BYTES_MAX: usize = 16 * 1024;

/// The most requirements, and the most values of one requirement, in a selector object. Matching costs their product for
/// every object of a kind, and no real selector has a hundredth of them.
pub const SELECTOR_ITEMS_MAX: usize = 1000;

/// Why a selector was refused, in Kubernetes' words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectorError {
    #[error("a selector must be no longer than {SELECTOR_BYTES_MAX} bytes")]
    TooLong,
    #[error(
        "a selector must have no more than {SELECTOR_ITEMS_MAX} requirements, of no more than {SELECTOR_ITEMS_MAX} values"
    )]
    TooManyItems,
    #[error("{0}")]
    Syntax(String),
    /// A key, operator or value that is not allowed.
    #[error("{0}")]
    Invalid(String),
}

/// Which labelled objects are meant: those that satisfy every requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelSelector {
    /// In the order of their keys. `None` matches no object at all, which is what an absent selector object means.
    requirements: Option<Vec<Requirement>>,
}

/// One condition on one label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted and distinct when read from text, as written when read from an object.
    pub values: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    GreaterThan,
    LessThan,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    pub const EVERYTHING: LabelSelector = LabelSelector { requirements: Some(Vec::new()) };
    pub const NOTHING: LabelSelector = LabelSelector { requirements: None };

    /// Reads the form of a query parameter: `app=web,tier in (a,b),!canary`.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        Ok(LabelSelector::of(parse::parse(text)?))
    }

    /// Reads the object form, `matchLabels` and `matchExpressions`. `null` matches nothing, `{}` everything.
    pub fn from_object(object: &Value) -> Result<LabelSelector, SelectorError> {
        if object.is_null() {
            return Ok(LabelSelector::NOTHING);
        }
        Ok(LabelSelector::of(object::requirements(object)?))
    }

    fn of(mut requirements: Vec<Requirement>) -> LabelSelector {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector { requirements: Some(requirements) }
    }

    pub fn matches(&self, labels: &impl Labels) -> bool {
        match &self.requirements {
            None => false,
            Some(requirements) => requirements.iter().all(|requirement| requirement.matches(labels)),
        }
    }

    /// Whether it lets every object pass, so that the labels need not be looked at.
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    pub fn is_nothing(&self) -> bool {
        self.requirements.is_none()
    }

    pub fn requirements(&self) -> &[Requirement] {
        self.requirements.as_deref().unwrap_or_default()
    }
}

impl Requirement {
    pub fn matches(&self, labels: &impl Labels) -> bool {
        let value = labels.label(&self.key);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(|value| self.has(value)),
            Operator::NotIn | Operator::NotEquals => value.is_none_or(|value| !self.has(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.bound().zip(integer(value)).is_some_and(|(bound, value)| value > bound),
            Operator::LessThan => self.bound().zip(integer(value)).is_some_and(|(bound, value)| value < bound),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.iter().any(|wanted| wanted == value)
    }

    fn bound(&self) -> Option<i64> {
        integer(self.values.first().map(String::as_str))
    }
}

fn integer(text: Option<&str>) -> Option<i64> {
    text?.parse().ok()
}

/// Something with labels to look up.
pub trait Labels {
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl Labels for HashMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl Labels for serde_json::Map<String, Value> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }
}

/// `metadata.labels` of an object tree; anything but a map has no labels.
impl Labels for Value {
    fn label(&self, key: &str) -> Option<&str> {
        self.as_object().and_then(|labels| labels.label(key))
    }
}

impl<L: Labels> Labels for Option<L> {
    fn label(&self, key: &str) -> Option<&str> {
        self.as_ref().and_then(|labels| labels.label(key))
    }
}

impl<L: Labels> Labels for &L {
    fn label(&self, key: &str) -> Option<&str> {
        (*self).label(key)
    }
}

/// The query-parameter form, normalised.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements().iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}
