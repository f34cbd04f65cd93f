//! Claims of devices (dynamic resource allocation). A quota counts what a claim asks for, so a request must be countable: one of
//! two forms, a known mode, a number that fits it.
//!
//! The rules and words are those of Kubernetes' pkg/apis/resource/validation.

use std::collections::{HashMap, HashSet};

use rules::selector::dns_subdomain_problems;
use serde_json::Value;

use super::Strategy;
use super::fill::{blank, each, given, text, within};
use super::pod_rules::items;
use crate::field_error::FieldError;
use crate::names::{NameRule, name_problems};

pub struct ResourceClaims;

/// As many requests as devices can be allocated to one claim.
const REQUESTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const SELECTORS_MAX: usize = 32;
const CONSTRAINTS_MAX: usize = 32;
const CONFIGURATIONS_MAX: usize = 32;
const MODES: [&str; 2] = ["All", "ExactCount"];

impl Strategy for ResourceClaims {
    fn default(&self, object: &mut Value) {
        let template = text(object, "kind") == "ResourceClaimTemplate";
        let Some(spec) = within(object, "spec") else { return };
        let spec = if template { within(spec, "spec") } else { Some(spec) };
        let Some(devices) = spec.and_then(|spec| given(spec, "devices")) else { return };
        each(devices, "requests", |request| {
            if let Some(exactly) = given(request, "exactly") {
                default_mode(exactly);
            }
            each(request, "firstAvailable", default_mode);
        });
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        match text(object, "kind") {
            "ResourceClaimTemplate" => devices(&object["spec"]["spec"]["devices"], "spec.spec.devices", &mut errors),
            _ => devices(&object["spec"]["devices"], "spec.devices", &mut errors),
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        if object["spec"] == old["spec"] {
            return Vec::new();
        }
        vec![FieldError::invalid("spec", object["spec"].clone(), "field is immutable")]
    }
}

fn default_mode(request: &mut Value) {
    blank(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" && request.get("count").and_then(Value::as_i64).unwrap_or(0) == 0
    {
        request["count"] = 1.into();
    }
}

fn devices(devices: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let requests = bounded(devices, "requests", REQUESTS_MAX, path, errors);
    let mut names = HashSet::new();
    for (at, one) in requests.iter().enumerate() {
        let path = format!("{path}.requests[{at}]");
        if named(one, &path, &mut names, errors) {
            request(one, &path, errors);
        }
    }
    let known: HashMap<&str, HashSet<&str>> = requests
        .iter()
        .map(|one| (text(one, "name"), items(one, "firstAvailable").iter().map(|one| text(one, "name")).collect()))
        .collect();
    for (list, most) in [("constraints", CONSTRAINTS_MAX), ("config", CONFIGURATIONS_MAX)] {
        for (at, one) in bounded(devices, list, most, path, errors).iter().enumerate() {
            let path = format!("{path}.{list}[{at}]");
            for (at, name) in bounded(one, "requests", REQUESTS_MAX, &path, errors).iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                let (first, second) = name.split_once('/').map_or((name, None), |(first, rest)| (first, Some(rest)));
                let is_known = known.get(first).is_some_and(|below| second.is_none_or(|second| below.contains(second)));
                if !is_known {
                    let detail = "must be the name of a request in the claim or the name of a request and a subrequest \
                                  separated by '/'";
                    errors.push(FieldError::invalid(format!("{path}.requests[{at}]"), name, detail));
                }
            }
        }
    }
}

fn request(request: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let exactly = request.get("exactly").filter(|exactly| !exactly.is_null());
    let has_alternatives = !items(request, "firstAvailable").is_empty();
    match (exactly, has_alternatives) {
        (None, false) => {
            errors.push(FieldError::required(path, "exactly one of `exactly` or `firstAvailable` is required"));
        }
        (Some(_), true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(FieldError::invalid(path, Value::Null, detail));
        }
        (Some(exactly), false) => wish(exactly, &format!("{path}.exactly"), errors),
        (None, true) => {
            let mut names = HashSet::new();
            for (at, one) in bounded(request, "firstAvailable", ALTERNATIVES_MAX, path, errors).iter().enumerate() {
                let path = format!("{path}.firstAvailable[{at}]");
                named(one, &path, &mut names, errors);
                wish(one, &path, errors);
            }
        }
    }
}

/// What is asked of one class: some devices of it, or all that there are.
fn wish(wish: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let class = text(wish, "deviceClassName");
    let class_path = format!("{path}.deviceClassName");
    if class.is_empty() {
        errors.push(FieldError::required(&class_path, ""));
    } else {
        let problems = dns_subdomain_problems(class);
        errors.extend(problems.into_iter().map(|why| FieldError::invalid(&class_path, class, why)));
    }
    bounded(wish, "selectors", SELECTORS_MAX, path, errors);
    let count = wish.get("count").and_then(Value::as_i64).unwrap_or(0);
    let mode = text(wish, "allocationMode");
    match mode {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(format!("{path}.count"), count, detail));
        }
        "ExactCount" if count <= 0 => {
            errors.push(FieldError::invalid(format!("{path}.count"), count, "must be greater than zero"));
        }
        "All" | "ExactCount" => {}
        _ => errors.push(FieldError::not_supported(format!("{path}.allocationMode"), mode, &MODES)),
    }
}

/// A list that is no longer than it may be; of one that is, nothing more is looked at.
fn bounded<'a>(object: &'a Value, field: &str, most: usize, path: &str, errors: &mut Vec<FieldError>) -> &'a [Value] {
    let list = items(object, field);
    if list.len() > most {
        errors.push(FieldError::too_many(format!("{path}.{field}"), list.len(), most));
        return &[];
    }
    list
}

/// Whether the name is this request's alone; a second of the same name is not looked at.
fn named<'a>(request: &'a Value, path: &str, taken: &mut HashSet<&'a str>, errors: &mut Vec<FieldError>) -> bool {
    let name = text(request, "name");
    let is_new = taken.insert(name);
    if !is_new {
        errors.push(FieldError::duplicate(path, name));
    }
    let path = format!("{path}.name");
    let problems = name_problems(name, NameRule::Label);
    errors.extend(problems.into_iter().map(|why| FieldError::invalid(&path, name, why)));
    is_new
}
