//! What may be written in a quota, with Kubernetes' words for what may not.

use kinds::field_error::{FieldError, Path, Reason};
use kinds::fields::{items, text};
use kinds::resources::names::{is_integer, is_standard, is_standard_quota};
use kinds::resources::quantity_of;
use quantity::Quantity;
use rules::selector::label_key_problems;
use serde_json::{Map, Value, json};

use super::scopes::Scope;

/// The most names one quota may limit. Each is an account; a body could carry a quarter of a million of them.
pub const HARD_MAX: usize = 1024;
/// The most scopes, and expressions of a scope selector. There are seven scopes, and every object of the namespace is
/// asked about each entry.
pub const SCOPES_MAX: usize = 64;
/// The most values of one expression, compared one by one with every pod's class.
pub const SCOPE_VALUES_MAX: usize = 256;

/// The spec of a quota, on create and on update.
pub fn quota_spec(spec: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = too_much(spec, path);
    if !errors.is_empty() {
        return errors;
    }
    amounts(spec.get("hard"), &path.child("hard"), &mut errors);
    scopes(spec, path, &mut errors);
    scope_selector(spec, path, &mut errors);
    errors
}

/// Refused before anything is looked at closely, so that a monstrous spec costs no more than its reading. These bounds
/// are ours; Kubernetes has none.
fn too_much(spec: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let expressions = items(spec, &["scopeSelector", "matchExpressions"]);
    let scopes = items(spec, &["scopes"]).len();
    if scopes > SCOPES_MAX {
        errors.push(FieldError::too_many(path.child("scopes"), scopes, SCOPES_MAX));
    }
    let selector = path.child("scopeSelector");
    let selector = selector.child("matchExpressions");
    if expressions.len() > SCOPES_MAX {
        errors.push(FieldError::too_many(selector, expressions.len(), SCOPES_MAX));
    }
    let values = expressions.iter().map(|expression| items(expression, &["values"]).len()).max().unwrap_or(0);
    if values > SCOPE_VALUES_MAX {
        errors.push(FieldError::too_many(selector.child("values"), values, SCOPE_VALUES_MAX));
    }
    errors
}

/// Scopes decide what a quota counts, and are fixed for its life; their order is not.
pub fn quota_scopes_unchanged(spec: &Value, old: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let set = |spec| {
        let mut names: Vec<&str> = items(spec, &["scopes"]).iter().filter_map(Value::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    if set(spec) == set(old) {
        return Vec::new();
    }
    let scopes = spec.get("scopes").cloned().unwrap_or(Value::Null);
    vec![FieldError::invalid(path.child("scopes"), scopes, "field is immutable")]
}

/// `status.hard` and `status.used` follow the rules of `spec.hard`.
pub fn quota_status(status: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    amounts(status.get("hard"), &path.child("hard"), &mut errors);
    amounts(status.get("used"), &path.child("used"), &mut errors);
    errors
}

/// A list of names and amounts.
pub fn amounts(list: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = list.and_then(Value::as_object);
    if let Some(count) = list.map(Map::len).filter(|count| *count > HARD_MAX) {
        errors.push(FieldError::too_many(path, count, HARD_MAX));
        return;
    }
    for (name, value) in list.into_iter().flatten() {
        let path = path.key(name);
        errors.extend(quota_name(name, &path));
        match quantity_of(name, value) {
            Ok(quantity) => errors.extend(amount(name, &quantity.round_up_milli(), &path)),
            Err(error) => errors.push(FieldError::invalid(path, value.clone(), error.to_string())),
        }
    }
}

fn quota_name(name: &str, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = resource_name(name, path);
    if !name.contains('/') && !is_standard_quota(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource for quota"));
    }
    errors
}

/// The rule for every resource name: standard, or with a prefix that says whose it is.
pub fn resource_name(name: &str, path: &Path<'_>) -> Vec<FieldError> {
    let wrong = label_key_problems(name);
    if !wrong.is_empty() {
        return wrong.into_iter().map(|detail| FieldError::invalid(path, name, detail)).collect();
    }
    if !name.contains('/') && !is_standard(name) {
        return vec![FieldError::invalid(path, name, "must be a standard resource type or fully qualified")];
    }
    Vec::new()
}

fn amount(name: &str, quantity: &Quantity, path: &Path<'_>) -> impl Iterator<Item = FieldError> {
    let invalid = |detail: &str| FieldError::invalid(path, quantity.to_string(), detail);
    let whole = quantity.amount().round_up_units() == Some(quantity.amount());
    let negative = quantity.amount().is_negative().then(|| invalid("must be greater than or equal to 0"));
    let broken = (is_integer(name) && !whole).then(|| invalid("must be an integer"));
    negative.into_iter().chain(broken)
}

/// Pairs of scopes that no object can match both of.
const CONFLICTS: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

fn conflicts(names: &[&str]) -> usize {
    CONFLICTS.iter().filter(|(one, other)| names.contains(one) && names.contains(other)).count()
}

fn scopes(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let names: Vec<&str> = items(spec, &["scopes"]).iter().map(|scope| scope.as_str().unwrap_or("")).collect();
    let invalid = |detail| FieldError::invalid(path.child("scopes"), json!(names), detail);
    for name in &names {
        if Scope::of(name).is_none() {
            errors.push(invalid("unsupported scope"));
        }
        errors.extend((0..misapplied(name, spec)).map(|_| invalid("unsupported scope applied to resource")));
    }
    errors.extend((0..conflicts(&names)).map(|_| invalid("conflicting scopes")));
}

/// How many of the quota's standard names cannot be limited under this scope. Names with a prefix are not checked.
fn misapplied(scope: &str, spec: &Value) -> usize {
    let Some(scope) = Scope::of(scope) else { return 0 };
    let Some(hard) = spec.get("hard").and_then(Value::as_object) else { return 0 };
    hard.keys().filter(|name| is_standard_quota(name) && !applies_to(scope, name)).count()
}

fn applies_to(scope: Scope, name: &str) -> bool {
    match scope {
        Scope::BestEffort => name == "pods",
        Scope::VolumeAttributesClass => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        Scope::Terminating
        | Scope::NotTerminating
        | Scope::NotBestEffort
        | Scope::PriorityClass
        | Scope::CrossNamespacePodAffinity => matches!(
            name,
            "pods" | "cpu" | "memory" | "requests.cpu" | "requests.memory" | "limits.cpu" | "limits.memory"
        ),
    }
}

fn scope_selector(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let expressions = items(spec, &["scopeSelector", "matchExpressions"]);
    let path = path.child("scopeSelector");
    let path = path.child("matchExpressions");
    let mut names = Vec::new();
    for expression in expressions {
        let name = text(expression, &["scopeName"]);
        names.push(name);
        if Scope::of(name).is_none() {
            errors.push(FieldError::invalid(path.child("scopeName"), name, "unsupported scope"));
        }
        for _ in 0..misapplied(name, spec) {
            let detail = format!("{}: unsupported scope applied to resource", as_go_shows_it(expressions));
            errors.push(FieldError::new(path, Reason::Invalid, None, detail));
        }
        operator(expression, name, &path, errors);
    }
    for _ in 0..conflicts(&names) {
        // Kubernetes repeats the other list here, which is usually absent.
        let scopes = spec.get("scopes").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid(path, scopes, "conflicting scopes"));
    }
}

fn operator(expression: &Value, scope: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let operator = text(expression, &["operator"]);
    let values = items(expression, &["values"]);
    if Scope::of(scope).is_some_and(|scope| !scope.has_values()) && operator != "Exists" {
        let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
            ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
            ResourceQuotaScopeCrossNamespacePodAffinity";
        errors.push(FieldError::invalid(path.child("operator"), operator, detail));
    }
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.push(FieldError::required(path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.push(FieldError::invalid(path.child("values"), json!(values), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.push(FieldError::invalid(path.child("operator"), operator, "not a valid selector operator")),
    }
}

/// Kubernetes prints its internal type here: fields without JSON names, in the order of their declaration. A JSON map
/// has an order of its own, so the text is put together by hand and stands where the bad value would.
fn as_go_shows_it(expressions: &[Value]) -> String {
    let shown = |expression: &Value| {
        let field = |name: &str| json!(text(expression, &[name]));
        let values = expression.get("values").unwrap_or(&Value::Null);
        format!("{{\"ScopeName\":{},\"Operator\":{},\"Values\":{values}}}", field("scopeName"), field("operator"))
    };
    let list: Vec<String> = expressions.iter().map(shown).collect();
    format!("{{\"MatchExpressions\":[{}]}}", list.join(","))
}

/// Warnings about a new quota whose limits allow less than its requests.
pub fn quota_warnings(hard: Option<&Value>) -> Vec<String> {
    let read = |name: &str| hard.and_then(|hard| hard.get(name)).and_then(|value| quantity_of(name, value).ok());
    let mut warnings = Vec::new();
    for (name, has_bare_form) in [("cpu", true), ("memory", true), ("storage", false), ("ephemeral-storage", false)] {
        let mut request_name = format!("requests.{name}");
        let mut request = read(&request_name);
        if request.is_none() && has_bare_form {
            request_name = name.to_string();
            request = read(name);
        }
        let limit_name = format!("limits.{name}");
        if let (Some(request), Some(limit)) = (request, read(&limit_name))
            && request > limit
        {
            warnings
                .push(format!("ResourceQuota {request_name} ({request}) should be less than {limit_name} ({limit})"));
        }
    }
    warnings
}
