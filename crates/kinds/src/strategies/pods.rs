//! Pods: stored and counted; nothing runs them.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::fill::{absent, text, within};
use super::pod_rules::{items, pod_spec};
use super::pod_spec::{default_host_ports, default_pod_requests, default_pod_spec};
use super::{Strategy, amounts};
use crate::field_error::FieldError;
use crate::resources::{QosClass, computed_qos_class};

pub struct Pods;

/// Fields of a pod's spec that may change after it was made, each in one direction ([`one_way`]).
const MUTABLE: &[&str] = &["activeDeadlineSeconds", "tolerations", "schedulingGates"];

impl Strategy for Pods {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = within(object, "spec") {
            absent(spec, "enableServiceLinks", true);
            default_pod_spec(spec);
            default_pod_requests(spec);
            default_host_ports(spec);
        }
        default_pod_level(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        let class = computed_qos_class(object).unwrap_or(QosClass::BestEffort);
        object["status"] = json!({"phase": "Pending", "qosClass": class.as_str()});
        if let Some(spec) = within(object, "spec") {
            absent(spec, "serviceAccountName", "default");
            absent(spec, "serviceAccount", "default");
            default_tolerations(spec);
        }
    }

    /// The class follows from the requests that a LimitRange or a webhook filled in, too.
    fn settle_create(&self, object: &mut Value) {
        let class = computed_qos_class(object).unwrap_or(QosClass::BestEffort);
        object["status"]["qosClass"] = json!(class.as_str());
    }

    /// What the server filled in at creation stays when a client no longer mentions it: an applied configuration never does.
    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let Some(spec) = within(object, "spec") else { return };
        for field in ["serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "nodeName"] {
            if let Some(known) = old["spec"].get(field) {
                absent(spec, field, known.clone());
            }
        }
        default_tolerations(spec);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        pod_spec(&object["spec"], "spec")
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Vec::new();
        if !items(spec, "ephemeralContainers").is_empty() {
            errors.push(FieldError::forbidden("spec.ephemeralContainers", "cannot be set on create"));
        }
        if !text(spec, "nodeName").is_empty() && !items(spec, "schedulingGates").is_empty() {
            let detail = "cannot be set until all schedulingGates have been cleared";
            errors.push(FieldError::forbidden("spec.nodeName", detail));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = one_way(&object["spec"], &old["spec"]);
        if errors.is_empty() && comparable(object, old) != comparable(old, old) {
            errors.push(FieldError::forbidden(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                 `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                 `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
            ));
        }
        errors
    }

    /// What comes through a side door is looked at as closely: a resize states amounts again, and quotas go by the class that
    /// a status names.
    fn validate_subresource(&self, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = match subresource {
            "resize" | "ephemeralcontainers" => pod_spec(&object["spec"], "spec"),
            "status" if text(&object["status"], "qosClass") != text(&old["status"], "qosClass") => {
                vec![FieldError::invalid("status.qosClass", text(&object["status"], "qosClass"), "field is immutable")]
            }
            _ => Vec::new(),
        };
        match subresource {
            "resize" => errors.extend(amounts::resize(object, old)),
            "ephemeralcontainers" => errors.extend(only_added_containers(&object["spec"], &old["spec"])),
            _ => {}
        }
        errors
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn counts_generations(&self) -> bool {
        true
    }

    /// A pod that no node was ever told of goes at once.
    fn grace_seconds(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let spec = &object["spec"];
        let finished = matches!(object.pointer("/status/phase").and_then(Value::as_str), Some("Failed" | "Succeeded"));
        if text(spec, "nodeName").is_empty() || finished {
            return None;
        }
        let asked = asked.or_else(|| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64)).unwrap_or(30);
        (asked > 0).then_some(asked)
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
    }
}

/// What a pod as a whole requests, where it states a limit and no request: what its containers request together, and its
/// limit for what none of them does.
pub fn default_pod_level(pod: &mut Value) {
    let limits = pod.pointer("/spec/resources/limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let asked = crate::resources::pod::container_requests(pod).unwrap_or_default();
    let Some(resources) = pod.get_mut("spec").and_then(|spec| spec.get_mut("resources")) else { return };
    let Some(requests) = within(resources, "requests") else { return };
    for (name, amount) in asked {
        absent(requests, &name, amount);
    }
    for (name, limit) in limits {
        absent(requests, &name, limit);
    }
}

/// What may change in one direction only: a deadline is set or brought nearer, tolerations come, gates go. A pod's deadline is
/// what a quota of terminating pods looks at.
fn one_way(spec: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let deadline = |spec: &Value| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    match (deadline(old), deadline(spec)) {
        (Some(_), None) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid("spec.activeDeadlineSeconds", Value::Null, detail));
        }
        (Some(old), Some(new)) if new > old => {
            let detail = "must be less than or equal to previous value";
            errors.push(FieldError::invalid("spec.activeDeadlineSeconds", new, detail));
        }
        _ => {}
    }
    // How long something is tolerated may change; a text tells tolerations that are otherwise alike.
    let told = |toleration: &Value| {
        let mut told = toleration.clone();
        if let Value::Object(map) = &mut told {
            map.remove("tolerationSeconds");
        }
        told.to_string()
    };
    let now: HashSet<String> = items(spec, "tolerations").iter().map(told).collect();
    if items(old, "tolerations").iter().any(|toleration| !now.contains(&told(toleration))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", detail));
    }
    let known: HashSet<&str> = items(old, "schedulingGates").iter().map(|gate| text(gate, "name")).collect();
    for (at, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !known.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(format!("spec.schedulingGates[{at}].name"), detail));
        }
    }
    errors
}

/// Containers for a look inside are added; those that are there stay as they are.
fn only_added_containers(spec: &Value, old: &Value) -> Vec<FieldError> {
    let now: HashMap<&str, &Value> =
        items(spec, "ephemeralContainers").iter().map(|one| (text(one, "name"), one)).collect();
    let mut errors = Vec::new();
    for known in items(old, "ephemeralContainers") {
        let name = text(known, "name");
        let what = match now.get(name) {
            None => "removed",
            Some(now) if *now != known => "changed",
            Some(_) => continue,
        };
        let detail = format!("existing ephemeral containers {name:?} may not be {what}\n");
        errors.push(FieldError::forbidden("spec.ephemeralContainers", detail));
    }
    errors
}

/// The spec without what may change.
fn comparable(object: &Value, old: &Value) -> Value {
    let grace = |object: &Value| object["spec"]["terminationGracePeriodSeconds"].as_i64();
    let mended_grace = grace(old).filter(|seconds| *seconds < 0 && grace(object) == Some(1));
    let mut spec = object.get("spec").cloned().unwrap_or_default();
    if let Value::Object(map) = &mut spec {
        map.retain(|field, _| !MUTABLE.contains(&field.as_str()));
        if let Some(seconds) = mended_grace {
            map.insert("terminationGracePeriodSeconds".into(), seconds.into());
        }
        for list in ["containers", "initContainers"] {
            for container in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(container) = container {
                    container.remove("image");
                }
            }
        }
    }
    spec
}

/// How long pods stay bound to a node that is not ready or not reachable.
fn default_tolerations(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let Value::Object(map) = &mut *spec else { return };
        let list = map.entry("tolerations").or_insert_with(|| json!([]));
        let Value::Array(list) = list else { return };
        let covered = list.iter().any(|toleration| {
            let (own, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !covered {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}
