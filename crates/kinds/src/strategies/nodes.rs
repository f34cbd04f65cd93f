//! Nodes: what a kubelet says of its machine. Nothing here runs pods on them.

use serde_json::{Value, json};

use super::Strategy;
use super::amounts::overhead;
use super::fill::{absent, each, text, within};
use crate::field_error::FieldError;
use crate::names::{NameRule, name_problems};

pub struct Nodes;
/// How pods are run, and what that costs beside their containers.
pub struct RuntimeClasses;

impl Strategy for RuntimeClasses {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let handler = text(object, "handler");
        if handler.is_empty() {
            errors.push(FieldError::required("handler", ""));
        } else {
            let problems = name_problems(handler, NameRule::Label);
            errors.extend(problems.into_iter().map(|why| FieldError::invalid("handler", handler, why)));
        }
        overhead(object.pointer("/overhead/podFixed"), "overhead", &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        if object["handler"] == old["handler"] {
            return Vec::new();
        }
        vec![FieldError::invalid("handler", object["handler"].clone(), "field is immutable")]
    }
}

const NOT_READY: &str = "node.kubernetes.io/not-ready";

impl Strategy for Nodes {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = within(object, "spec") {
            // Two spellings of one thing; the list is the newer one.
            let first = text(spec, "podCIDR").to_owned();
            if !first.is_empty() && spec.get("podCIDRs").and_then(Value::as_array).is_none_or(Vec::is_empty) {
                spec["podCIDRs"] = json!([first]);
            }
        }
        if let Some(status) = within(object, "status") {
            if let Some(capacity) = status.get("capacity").cloned() {
                absent(status, "allocatable", capacity);
            }
            within(status, "daemonEndpoints").and_then(|endpoints| {
                let kubelet = within(endpoints, "kubeletEndpoint")?;
                absent(kubelet, "Port", 0);
                Some(())
            });
            if let Some(machine) = within(status, "nodeInfo") {
                for field in MACHINE {
                    absent(machine, field, "");
                }
            }
        }
    }

    /// Until somebody says that it is ready, a node takes no pods.
    fn prepare_create(&self, object: &mut Value) {
        let Some(spec) = within(object, "spec") else { return };
        absent(spec, "taints", json!([]));
        let mut known = false;
        each(spec, "taints", |taint| known |= text(taint, "key") == NOT_READY && text(taint, "effect") == "NoSchedule");
        if let (false, Some(Value::Array(taints))) = (known, spec.get_mut("taints")) {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
    }

    fn keeps_first_status(&self) -> bool {
        true
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }

    fn selectable_field(&self, object: &Value, _field: &str) -> String {
        object.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false).to_string()
    }
}

/// What is always said of a machine, if only by an empty text.
const MACHINE: [&str; 10] = [
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];
