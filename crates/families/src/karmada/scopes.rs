//! Which bindings a quota with scopes looks at: those with a priority class, or with one of some.

use kinds::field_error::{FieldError, Path};
use kinds::fields::{items, text};
use serde_json::Value;

use super::binding::BindingSpec;

/// Scopes and expressions one quota may have: each is asked of every binding.
const SCOPES_MAX: usize = 64;
const VALUES_MAX: usize = 256;
const SCOPE: &str = "PriorityClass";
const OPERATORS: [&str; 4] = ["DoesNotExist", "Exists", "In", "NotIn"];

/// All must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists,
    DoesNotExist,
    In(Vec<Box<str>>),
    NotIn(Vec<Box<str>>),
}

impl Requirement {
    /// A binding may have several classes: any of them counts.
    fn matches(&self, classes: &[&str]) -> bool {
        let listed = |values: &[Box<str>]| classes.iter().any(|class| values.iter().any(|one| **one == **class));
        match self {
            Requirement::Exists => !classes.is_empty(),
            Requirement::DoesNotExist => classes.is_empty(),
            Requirement::In(values) => listed(values),
            Requirement::NotIn(values) => !listed(values),
        }
    }
}

impl Scopes {
    /// Reads `scopes` and `scopeSelector`; what cannot be understood is an error and never "everything".
    pub fn read(spec: &Value, path: &Path<'_>) -> Result<Scopes, Vec<FieldError>> {
        let (mut requirements, mut errors) = (Vec::new(), Vec::new());
        let (scopes, selector) = (path.child("scopes"), path.child("scopeSelector"));
        let expressions_path = selector.child("matchExpressions");
        let listed = items(spec, &["scopes"]);
        let expressions = items(spec, &["scopeSelector", "matchExpressions"]);
        for (list, at) in [(listed, &scopes), (expressions, &expressions_path)] {
            if list.len() > SCOPES_MAX {
                return Err(vec![FieldError::too_many(at, list.len(), SCOPES_MAX)]);
            }
        }
        for (place, scope) in listed.iter().enumerate() {
            match scope.as_str() {
                Some(SCOPE) => requirements.push(Requirement::Exists),
                _ => errors.push(FieldError::not_supported(scopes.index(place), scope.clone(), &[SCOPE])),
            }
        }
        for (place, expression) in expressions.iter().enumerate() {
            let at = expressions_path.index(place);
            let (name, operator) = (text(expression, &["scopeName"]), text(expression, &["operator"]));
            let values = items(expression, &["values"]);
            if name != SCOPE {
                errors.push(FieldError::not_supported(at.child("scopeName"), name, &[SCOPE]));
                continue;
            }
            if values.len() > VALUES_MAX {
                errors.push(FieldError::too_many(at.child("values"), values.len(), VALUES_MAX));
                continue;
            }
            let takes_values = matches!(operator, "In" | "NotIn");
            if takes_values == values.is_empty() {
                let why = match takes_values {
                    true => "must be at least one scope value when `operator` is 'In' or 'NotIn' for scope selector",
                    false => "must be no scope value when `operator` is 'Exists' or 'DoesNotExist' for scope selector",
                };
                errors.push(FieldError::invalid(at.child("values"), values.to_vec(), why));
            }
            let classes = || values.iter().filter_map(Value::as_str).map(Box::from).collect();
            requirements.push(match operator {
                "Exists" => Requirement::Exists,
                "DoesNotExist" => Requirement::DoesNotExist,
                "In" => Requirement::In(classes()),
                "NotIn" => Requirement::NotIn(classes()),
                _ => {
                    errors.push(FieldError::not_supported(at.child("operator"), operator, &OPERATORS));
                    continue;
                }
            });
        }
        if errors.is_empty() { Ok(Scopes(requirements)) } else { Err(errors) }
    }

    pub fn match_binding(&self, spec: &BindingSpec) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let classes: Vec<&str> = spec.priority_classes().collect();
        self.0.iter().all(|one| one.matches(&classes))
    }
}
