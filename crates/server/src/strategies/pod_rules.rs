//! What is wrong with a pod spec, in pods and in templates. As far as users meet it: names and images, duplicates, words out of
//! a list, amounts that no quota could count. The rest of Kubernetes' checks concerns those who run pods.

use std::collections::HashSet;

use families::kubernetes::names::{is_extended, is_native, is_standard, qualified_name_errors};
use kinds::field_error::FieldError;
use quantity::Quantity;
use rules::selector::{dns_subdomain_problems, label_key_problems, label_value_problems};
use serde_json::Value;

use super::NameRule;
use super::fill::text;
use crate::api::name_problems;

const RESTART: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PULL: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// Sources of volumes in the order in which a second one is found; others follow them.
const SOURCES: [&str; 6] = ["emptyDir", "hostPath", "secret", "nfs", "downwardAPI", "configMap"];

/// Everything found below `path`, such as `spec.template.spec`.
pub fn pod_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = volumes(spec, path, &mut errors);
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names = HashSet::new();
    for list in ["containers", "initContainers"] {
        for (at, one) in items(spec, list).iter().enumerate() {
            container(one, &format!("{path}.{list}[{at}]"), &mut names, &volumes, &mut errors);
        }
    }
    one_of(spec, "restartPolicy", path, &RESTART, &mut errors);
    one_of(spec, "dnsPolicy", path, &DNS, &mut errors);
    if let Some(seconds) = spec.get("activeDeadlineSeconds").and_then(Value::as_i64)
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = format!("must be between 1 and {}, inclusive", i32::MAX);
        errors.push(FieldError::invalid(format!("{path}.activeDeadlineSeconds"), seconds, detail));
    }
    for (key, value) in spec.get("nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        let place = format!("{path}.nodeSelector");
        errors.extend(label_key_problems(key).into_iter().map(|why| FieldError::invalid(&place, key.as_str(), why)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(label_value_problems(value).into_iter().map(|why| FieldError::invalid(&place, value, why)));
    }
    let account = text(spec, "serviceAccountName");
    if !account.is_empty() {
        let place = format!("{path}.serviceAccountName");
        let problems = dns_subdomain_problems(account);
        errors.extend(problems.into_iter().map(|why| FieldError::invalid(&place, account, why)));
    }
    for (at, toleration) in items(spec, "tolerations").iter().enumerate() {
        let value = text(toleration, "value");
        if text(toleration, "operator") == "Exists" && !value.is_empty() {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(format!("{path}.tolerations[{at}].operator"), value, detail));
        }
    }
    errors
}

fn items<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice)
}

fn one_of(object: &Value, field: &str, path: &str, known: &[&str], errors: &mut Vec<FieldError>) {
    let given = text(object, field);
    if !given.is_empty() && !known.contains(&given) {
        errors.push(FieldError::not_supported(format!("{path}.{field}"), given, known));
    }
}

/// A name that is there, well formed, and nobody else's.
fn named<'a>(object: &'a Value, path: &str, taken: &mut HashSet<&'a str>, errors: &mut Vec<FieldError>) {
    let (name, path) = (text(object, "name"), format!("{path}.name"));
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let problems = name_problems(name, NameRule::Label);
    errors.extend(problems.into_iter().map(|why| FieldError::invalid(&path, name, why)));
    if !taken.insert(name) {
        errors.push(FieldError::duplicate(path, name));
    }
}

fn volumes<'a>(spec: &'a Value, path: &str, errors: &mut Vec<FieldError>) -> HashSet<&'a str> {
    let mut names = HashSet::new();
    for (at, volume) in items(spec, "volumes").iter().enumerate() {
        let path = format!("{path}.volumes[{at}]");
        named(volume, &path, &mut names, errors);
        let given: Vec<&str> = volume.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        let ordered = SOURCES.iter().copied().filter(|source| given.contains(source));
        let others = given.iter().copied().filter(|key| *key != "name" && !SOURCES.contains(key));
        for second in ordered.chain(others).skip(1) {
            errors.push(FieldError::forbidden(format!("{path}.{second}"), "may not specify more than 1 volume type"));
        }
    }
    names
}

fn container<'a>(
    container: &'a Value,
    path: &str,
    taken: &mut HashSet<&'a str>,
    volumes: &HashSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    named(container, path, taken, errors);
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    one_of(container, "imagePullPolicy", path, &PULL, errors);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let handler =
            |probe: &Value| ["exec", "httpGet", "tcpSocket", "grpc"].iter().any(|kind| probe.get(kind).is_some());
        if container.get(probe).is_some_and(|probe| !handler(probe)) {
            errors.push(FieldError::required(format!("{path}.{probe}"), "must specify a handler type"));
        }
    }
    let mut port_names = HashSet::new();
    for (at, port) in items(container, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{at}]");
        let name = text(port, "name");
        if !name.is_empty() && !port_names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        match port.get("containerPort").and_then(Value::as_i64).unwrap_or(0) {
            0 => errors.push(FieldError::required(format!("{path}.containerPort"), "")),
            number => port_number(number, &format!("{path}.containerPort"), errors),
        }
        one_of(port, "protocol", &path, &PROTOCOLS, errors);
    }
    for (at, variable) in items(container, "env").iter().enumerate() {
        if text(variable, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.env[{at}].name"), ""));
        }
        if variable.get("valueFrom").is_some() && !text(variable, "value").is_empty() {
            let detail = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(format!("{path}.env[{at}].valueFrom"), "", detail));
        }
    }
    for (at, mount) in items(container, "volumeMounts").iter().enumerate() {
        let (name, path) = (text(mount, "name"), format!("{path}.volumeMounts[{at}]"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::not_found(format!("{path}.name"), name));
        }
        if text(mount, "mountPath").is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
    }
    if let Some(stated) = container.get("resources") {
        resources(stated, &format!("{path}.resources"), errors);
    }
}

pub fn port_number(number: i64, path: &str, errors: &mut Vec<FieldError>) {
    if !(1..=65_535).contains(&number) {
        errors.push(FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"));
    }
}

/// What a container states of its resources. An amount below zero would give back what was never taken.
fn resources(stated: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let read = |list: &str, name: &str| -> Option<(String, Quantity)> {
        let text = stated.get(list)?.get(name)?.as_str()?;
        Some((text.to_owned(), Quantity::parse(text).ok()?))
    };
    for list in ["limits", "requests"] {
        for name in stated.get(list).and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name) {
            let path = format!("{path}.{list}[{name}]");
            resource_name(name, &path, errors);
            let Some((text, amount)) = read(list, name) else { continue };
            if amount.amount().is_negative() {
                errors.push(FieldError::invalid(&path, text.as_str(), "must be greater than or equal to 0"));
            }
            let whole = is_extended(name) || name.starts_with("hugepages-");
            if whole && amount.amount().to_units().is_none() {
                errors.push(FieldError::invalid(&path, text, "must be an integer"));
            }
        }
    }
    for name in stated.get("requests").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name) {
        let Some((text, request)) = read("requests", name) else { continue };
        let promised = is_extended(name) || name.starts_with("hugepages-");
        match read("limits", name) {
            Some((limit_text, limit)) => {
                let detail = match (promised, request.amount().cmp(&limit.amount())) {
                    (true, order) if order.is_ne() => format!("must be equal to {name} limit of {limit_text}"),
                    (false, order) if order.is_gt() => {
                        format!("must be less than or equal to {name} limit of {limit_text}")
                    }
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
}

fn resource_name(name: &str, path: &str, errors: &mut Vec<FieldError>) {
    let problems = qualified_name_errors(name);
    if !problems.is_empty() {
        errors.extend(problems.into_iter().map(|why| FieldError::invalid(path, name, why)));
        return;
    }
    if !name.contains('/') {
        if !is_standard(name) {
            errors.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
        }
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with("hugepages-") {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}
