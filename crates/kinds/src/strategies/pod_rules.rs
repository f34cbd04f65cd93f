//! What is wrong with a pod spec, in pods and in templates. As far as users meet it: names and images, duplicates, words out of
//! a list, amounts that no quota could count. The rest of Kubernetes' checks concerns those who run pods.

use std::collections::HashSet;

use rules::selector::{dns_subdomain_problems, label_key_problems, label_value_problems};
use serde_json::Value;

use super::amounts::{overhead, pod_level, requirements};
use super::fill::text;
use crate::field_error::FieldError;
use crate::names::{NameRule, name_problems};

const RESTART: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PULL: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// Sources of volumes in the order in which a second one is found; others follow them.
const SOURCES: [&str; 6] = ["emptyDir", "hostPath", "secret", "nfs", "downwardAPI", "configMap"];

/// What a container that was added to a running pod may not have: whatever somebody would have to be charged for.
const NOT_EPHEMERAL: [&str; 6] = ["ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"];

/// What stands in a template: as in a pod, but for the containers that only a running pod can be given.
pub fn template_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = pod_spec(spec, path);
    if !items(spec, "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(format!("{path}.ephemeralContainers"), detail));
    }
    errors
}

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
    ephemeral_containers(spec, path, names, &volumes, &mut errors);
    pod_level(spec, path, &mut errors);
    overhead(spec.get("overhead"), &format!("{path}.overhead"), &mut errors);
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

pub fn items<'a>(object: &'a Value, field: &str) -> &'a [Value] {
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

/// Containers added for a look inside. They are charged to nobody, so they may ask for nothing.
fn ephemeral_containers<'a>(
    spec: &'a Value,
    path: &str,
    mut taken: HashSet<&'a str>,
    volumes: &HashSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    let others = taken.clone();
    for (at, one) in items(spec, "ephemeralContainers").iter().enumerate() {
        let path = format!("{path}.ephemeralContainers[{at}]");
        container(one, &path, &mut taken, volumes, errors);
        let target = text(one, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.push(FieldError::not_found(format!("{path}.targetContainerName"), target));
        }
        for field in NOT_EPHEMERAL.iter().filter(|field| one.get(**field).is_some_and(is_something)) {
            let detail = "cannot be set for an Ephemeral Container";
            errors.push(FieldError::forbidden(format!("{path}.{field}"), detail));
        }
    }
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
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
        requirements(stated, &format!("{path}.resources"), errors);
    }
}

pub fn port_number(number: i64, path: &str, errors: &mut Vec<FieldError>) {
    if !(1..=65_535).contains(&number) {
        errors.push(FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"));
    }
}
