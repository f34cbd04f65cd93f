//! What may be written in a LimitRange.

use std::collections::BTreeMap;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{items, text};
use kinds::resources::names::{is_extended, is_native};
use kinds::resources::quantity_of;
use quantity::{Amount, Quantity};
use rules::selector::label_key_problems;
use serde_json::{Map, Value};

use super::super::validate::resource_name;
use super::check::Ratio;

/// The five lists of an item.
const FIELDS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

/// The most items of a LimitRange. Each has a type of its own, and there are three.
const ITEMS_MAX: usize = 64;
/// The most names in one list of an item: every container is checked against, and may be given, each.
const NAMES_MAX: usize = 256;

pub fn validate(range: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::new("spec");
    let limits = spec.child("limits");
    let count = items(range, &["spec", "limits"]).len();
    if count > ITEMS_MAX {
        return vec![FieldError::too_many(limits, count, ITEMS_MAX)];
    }
    let mut seen = Vec::new();
    for (index, item) in items(range, &["spec", "limits"]).iter().enumerate() {
        let path = limits.index(index);
        let kind = text(item, &["type"]);
        errors.extend(kind_name(kind, &path.child("type")));
        if seen.contains(&kind) {
            errors.push(FieldError::duplicate(path.child("type"), kind));
        }
        seen.push(kind);
        validate_item(item, kind, &path, &mut errors);
    }
    errors
}

fn kind_name(kind: &str, path: &Path<'_>) -> Vec<FieldError> {
    let wrong = label_key_problems(kind);
    if !wrong.is_empty() {
        return wrong.into_iter().map(|detail| FieldError::invalid(path, kind, detail)).collect();
    }
    if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
        return vec![FieldError::invalid(path, kind, "must be a standard limit type or fully qualified")];
    }
    Vec::new()
}

fn validate_item(item: &Value, kind: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    // By name, then by field.
    let mut stated: BTreeMap<&str, BTreeMap<&str, Quantity>> = BTreeMap::new();
    for field in FIELDS {
        let list = item.get(field).and_then(Value::as_object);
        let at = path.child(field);
        if let Some(count) = list.map(Map::len).filter(|count| *count > NAMES_MAX) {
            errors.push(FieldError::too_many(at, count, NAMES_MAX));
            continue;
        }
        if kind == "Pod" && field.starts_with("default") {
            if list.is_some_and(|list| !list.is_empty()) {
                errors.push(FieldError::forbidden(at, "may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        for (name, value) in list.into_iter().flatten() {
            let at = at.key(name);
            errors.extend(limited_name(kind, name, &at));
            match quantity_of(name, value) {
                Ok(quantity) => {
                    stated.entry(name).or_default().insert(field, quantity);
                }
                Err(error) => errors.push(FieldError::invalid(at, value.clone(), error.to_string())),
            }
        }
    }
    let bounds_storage = stated.get("storage").is_some_and(|one| one.contains_key("min") || one.contains_key("max"));
    if kind == "PersistentVolumeClaim" && !bounds_storage {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(path.child("limits"), detail));
    }
    for (name, fields) in stated {
        order(name, &fields, path, errors);
    }
}

fn limited_name(kind: &str, name: &str, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = resource_name(name, path);
    if !matches!(kind, "Pod" | "Container") {
        return errors;
    }
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with("hugepages-") {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
    errors
}

/// min ≤ default request ≤ default limit ≤ max, and a ratio that can be kept.
fn order(name: &str, fields: &BTreeMap<&str, Quantity>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let get = |field: &str| fields.get(field);
    let mut invalid = |field: &str, value: &Quantity, detail: String| {
        errors.push(FieldError::invalid(path.child(field).key(name), value.to_string(), detail));
    };
    let (min, max, default) = (get("min"), get("max"), get("default"));
    let (request, ratio) = (get("defaultRequest"), get("maxLimitRequestRatio"));
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        invalid("min", min, format!("min value {min} is greater than max value {max}"));
    }
    if let (Some(request), Some(min)) = (request, min)
        && min > request
    {
        let detail = format!("min value {min} is greater than default request value {request}");
        invalid("defaultRequest", request, detail);
    }
    if let (Some(request), Some(max)) = (request, max)
        && request > max
    {
        let detail = format!("default request value {request} is greater than max value {max}");
        invalid("defaultRequest", request, detail);
    }
    if let (Some(request), Some(default)) = (request, default)
        && request > default
    {
        let detail = format!("default request value {request} is greater than default limit value {default}");
        invalid("defaultRequest", request, detail);
    }
    if let (Some(default), Some(min)) = (default, min)
        && min > default
    {
        invalid("default", min, format!("min value {min} is greater than default value {default}"));
    }
    if let (Some(default), Some(max)) = (default, max)
        && default > max
    {
        invalid("default", max, format!("default value {default} is greater than max value {max}"));
    }
    if let Some(ratio) = ratio {
        if ratio.amount() < Amount::from_units(1) {
            invalid("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (min, max) {
            let reach = Ratio { of: max.amount(), to: min.amount() };
            if min.amount() > Amount::ZERO && !max.amount().is_negative() && reach.is_below(ratio.amount()) {
                let detail = format!("ratio {ratio} is greater than max/min = {reach}");
                invalid("maxLimitRequestRatio", ratio, detail);
            }
        }
    }
    let may_overcommit = is_native(name) && !name.starts_with("hugepages-");
    if let (false, Some(default), Some(request)) = (may_overcommit, default, request)
        && default != request
    {
        let detail = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        invalid("defaultRequest", request, detail);
    }
}
