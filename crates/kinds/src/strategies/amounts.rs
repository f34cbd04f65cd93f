//! Amounts that a pod states: for a container, for itself as a whole, and of its class of runtimes. What a quota adds up must not
//! be below zero anywhere, and no statement may say less than the statements it takes the place of.
//!
//! The rules and words are those of Kubernetes' pkg/apis/core/validation, `validateResourceRequirements` and
//! `validatePodResourceConsistency`.

use std::collections::HashMap;

use quantity::{Amount, Quantity};
use rules::selector::label_key_problems;
use serde_json::{Value, json};

use super::fill::text;
use super::pod_rules::items;
use crate::field_error::FieldError;
use crate::resources::names::{is_extended, is_native, is_standard};
use crate::resources::pod::containers_ask;
use crate::resources::{Resources, computed_qos_class, qos_class, quantity_of};

/// What a pod may state as a whole, as Kubernetes lists it.
const POD_LEVEL: [&str; 3] = ["cpu", "hugepages-", "memory"];
const HUGE_PAGES: &str = "hugepages-";

/// What a container states of its resources.
pub fn requirements(stated: &Value, path: &str, errors: &mut Vec<FieldError>) {
    requirements_of(stated, path, container_resource, errors);
}

/// What running a pod costs beside its containers, of a pod or of a RuntimeClass.
pub fn overhead(list: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(list) = list.filter(|list| !list.is_null()) {
        requirements(&json!({"limits": list}), path, errors);
    }
}

/// What a pod states as a whole: never less than its containers need together, and no limit below one of theirs.
pub fn pod_level(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(stated) = spec.get("resources").filter(|stated| !stated.is_null()) else { return };
    let path = format!("{path}.resources");
    if stated.get("claims").is_some_and(|claims| !claims.is_null()) {
        let detail = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(format!("{path}.claims"), detail));
    }
    requirements_of(stated, &path, pod_resource, errors);
    let Ok((requests, limits)) = containers_ask(&json!({"spec": spec})) else {
        errors.push(FieldError::invalid(&path, stated.clone(), "the sum of the containers is too large to be counted"));
        return;
    };
    below_sum(stated, "requests", &requests, |_| true, &path, errors);
    below_sum(stated, "limits", &limits, |name| name.starts_with(HUGE_PAGES), &path, errors);
    for (at, container) in items(spec, "containers").iter().enumerate() {
        for (name, limit) in amounts(container.get("resources"), "limits") {
            let whole = amount(stated, "limits", name);
            if let Some(whole) = whole.filter(|whole| limit.amount() > whole.amount()) {
                let path = format!("{path}.containers[{at}][{name}].limits");
                let detail = format!("must be less than or equal to pod limits of {whole}");
                errors.push(FieldError::invalid(path, limit.to_string(), detail));
            }
        }
    }
}

/// Statements for the whole pod that are smaller than the sum they take the place of.
fn below_sum(
    stated: &Value,
    list: &str,
    sums: &Resources,
    counts: impl Fn(&str) -> bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for (name, sum) in sums.iter().filter(|(name, _)| counts(name)) {
        let whole = amount(stated, list, name);
        if let Some(whole) = whole.filter(|whole| sum.amount > whole.amount()) {
            let sum = sum.to_quantity();
            let detail = format!("must be greater than or equal to aggregate container {list} of {sum}");
            errors.push(FieldError::invalid(format!("{path}.{list}[{name}]"), whole.to_string(), detail));
        }
    }
}

/// What a resize may not do: move a pod to another class of service, which other quotas count, take a statement back, or touch
/// anything but cpu and memory.
pub fn resize(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let class = |class: Result<_, _>| class.ok();
    if class(qos_class(old)) != class(computed_qos_class(pod)) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid("spec", text(&old["status"], "qosClass"), detail));
    }
    let (new_spec, old_spec) = (&pod["spec"], &old["spec"]);
    taken_back(&new_spec["resources"], &old_spec["resources"], "spec.resources", "pod-level resource", &mut errors);
    if others(&new_spec["resources"]) != others(&old_spec["resources"]) {
        errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable at pod-level"));
    }
    for list in ["containers", "initContainers"] {
        let known: HashMap<&str, &Value> = items(old_spec, list).iter().map(|one| (text(one, "name"), one)).collect();
        for (at, container) in items(new_spec, list).iter().enumerate() {
            let Some(old) = known.get(text(container, "name")) else { continue };
            let path = format!("spec.{list}[{at}].resources");
            taken_back(&container["resources"], &old["resources"], &path, "resource", &mut errors);
            if others(&container["resources"]) != others(&old["resources"]) {
                errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable"));
            }
        }
    }
    errors
}

fn taken_back(new: &Value, old: &Value, path: &str, what: &str, errors: &mut Vec<FieldError>) {
    for list in ["requests", "limits"] {
        let gone = |name: &String| new.get(list).is_none_or(|list| list.get(name).is_none());
        if old.get(list).and_then(Value::as_object).is_some_and(|list| list.keys().any(gone)) {
            errors.push(FieldError::forbidden(format!("{path}.{list}"), format!("{what} {list} cannot be removed")));
        }
    }
}

/// A statement without cpu and memory, which may be resized.
fn others(stated: &Value) -> Vec<(&str, &str, Amount)> {
    let lists = ["requests", "limits"].into_iter();
    let of = |list| amounts(Some(stated), list).filter(|(name, _)| !matches!(*name, "cpu" | "memory"));
    lists.flat_map(|list| of(list).map(move |(name, amount)| (list, name, amount.amount()))).collect()
}

fn amount(stated: &Value, list: &str, name: &str) -> Option<Quantity> {
    quantity_of(name, stated.get(list)?.get(name)?).ok()
}

/// The amounts of one list of a statement. One that cannot be read has been refused by the schema.
fn amounts<'a>(stated: Option<&'a Value>, list: &str) -> impl Iterator<Item = (&'a str, Quantity)> + use<'a> {
    let list = stated.and_then(|stated| stated.get(list)).and_then(Value::as_object);
    list.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), quantity_of(name, value).ok()?)))
}

fn requirements_of(
    stated: &Value,
    path: &str,
    name_rule: fn(&str, &str, &mut Vec<FieldError>),
    errors: &mut Vec<FieldError>,
) {
    for list in ["limits", "requests"] {
        for (name, amount) in amounts(Some(stated), list) {
            let path = format!("{path}.{list}[{name}]");
            name_rule(name, &path, errors);
            quantity(name, &amount, &path, errors);
        }
    }
    for (name, request) in amounts(Some(stated), "requests") {
        let promised = !may_be_overcommitted(name);
        let text = request.to_string();
        match amount(stated, "limits", name) {
            Some(limit) => {
                let detail = match (promised, request.amount().cmp(&limit.amount())) {
                    (true, order) if order.is_ne() => format!("must be equal to {name} limit of {limit}"),
                    (false, order) if order.is_gt() => format!("must be less than or equal to {name} limit of {limit}"),
                    _ => continue,
                };
                errors.push(FieldError::invalid(format!("{path}.requests"), text, detail));
            }
            None if promised => {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{path}.limits"), detail));
            }
            None => {}
        }
    }
    let states = |is: fn(&str) -> bool| {
        ["limits", "requests"].into_iter().any(|list| amounts(Some(stated), list).any(|(name, _)| is(name)))
    };
    if states(|name| name.starts_with(HUGE_PAGES)) && !states(|name| matches!(name, "cpu" | "memory")) {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

/// Whether more of it may be limited than is requested: not what is handed out whole.
fn may_be_overcommitted(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

/// An amount below zero would give back what was never taken.
fn quantity(name: &str, amount: &Quantity, path: &str, errors: &mut Vec<FieldError>) {
    if amount.amount().is_negative() {
        errors.push(FieldError::invalid(path, amount.to_string(), "must be greater than or equal to 0"));
    }
    if is_extended(name) && amount.amount().to_units().is_none() {
        errors.push(FieldError::invalid(path, amount.to_string(), "must be an integer"));
    }
    if let Some(page) = name.strip_prefix(HUGE_PAGES)
        && !is_multiple(amount, page)
    {
        let detail = format!("{amount} is not positive integer multiple of {name}");
        errors.push(FieldError::invalid(path, amount.to_string(), detail));
    }
}

fn is_multiple(amount: &Quantity, page: &str) -> bool {
    let Some(page) = Quantity::parse(page).ok().and_then(|page| page.amount().to_units()).filter(|page| *page > 0)
    else {
        return false;
    };
    let units = amount.clone().round_up_units().amount().to_units();
    units.is_some_and(|units| units % page == 0)
}

/// The name as a name, of whatever.
fn is_well_named(name: &str, path: &str, errors: &mut Vec<FieldError>) -> bool {
    let problems = label_key_problems(name);
    let is_fine = problems.is_empty();
    errors.extend(problems.into_iter().map(|why| FieldError::invalid(path, name, why)));
    if is_fine && !name.contains('/') && !is_standard(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
    }
    is_fine
}

fn container_resource(name: &str, path: &str, errors: &mut Vec<FieldError>) {
    if !is_well_named(name, path, errors) {
        return;
    }
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with(HUGE_PAGES) {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

fn pod_resource(name: &str, path: &str, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    is_well_named(name, path, errors);
    if errors.len() == before && !matches!(name, "cpu" | "memory") && !name.starts_with(HUGE_PAGES) {
        errors.push(FieldError::not_supported(path, name, &POD_LEVEL));
    }
}
