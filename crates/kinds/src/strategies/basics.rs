//! Namespaces, Secrets, ConfigMaps and other small kinds.

use base64::Engine as _;
use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, blank, each, text, within};
use crate::field_error::FieldError;
use crate::names::NameRule;

pub struct Namespaces;
pub struct Secrets;
pub struct ConfigMaps;
pub struct ServiceAccounts;
pub struct PriorityClasses;
pub struct Quotas;
pub struct LimitRanges;
pub struct Roles;
pub struct Bindings;
pub struct Events;
pub struct Counted;

impl Strategy for Namespaces {
    fn default(&self, object: &mut Value) {
        let name = text(&object["metadata"], "name").to_owned();
        if name.is_empty() {
            return;
        }
        if let Some(labels) = within(object, "metadata").and_then(|metadata| within(metadata, "labels")) {
            labels["kubernetes.io/metadata.name"] = name.into();
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"phase": "Active"});
        if let Some(spec) = within(object, "spec") {
            absent(spec, "finalizers", json!([]));
            if let Some(Value::Array(list)) = spec.get_mut("finalizers")
                && !list.iter().any(|one| one == "kubernetes")
            {
                list.push("kubernetes".into());
            }
        }
    }

    /// Finalizers of a namespace change through its `finalize` subresource only.
    fn prepare_update(&self, object: &mut Value, old: &Value) {
        object["spec"] = old["spec"].clone();
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.phase", "name"]
    }
}

impl Strategy for Secrets {
    fn default(&self, object: &mut Value) {
        blank(object, "type", "Opaque");
        let Some(plain) = object.as_object_mut().and_then(|map| map.remove("stringData")) else { return };
        let Value::Object(plain) = plain else { return };
        if let Some(Value::Object(data)) = within(object, "data") {
            for (key, value) in plain {
                let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
                data.insert(key, encoded.into());
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        data_keys(object, "data", &mut errors);
        if binary_bytes(object, "data") > DATA_BYTES_MAX {
            errors.push(FieldError::too_long("data", DATA_BYTES_MAX));
        }
        let wanted: &[&str] = match text(object, "type") {
            "kubernetes.io/basic-auth" => &["username", "password"],
            "kubernetes.io/tls" => &["tls.crt", "tls.key"],
            "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
            "kubernetes.io/dockercfg" => &[".dockercfg"],
            "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
            _ => &[],
        };
        let has = |key: &&&str| object["data"].get(**key).is_some();
        // Either half of a name and password will do.
        let enough = text(object, "type") == "kubernetes.io/basic-auth" && wanted.iter().any(|key| has(&key));
        if !enough {
            let missing = wanted.iter().filter(|key| !has(key));
            errors.extend(missing.map(|key| FieldError::required(format!("data[{key}]"), "")));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = frozen(object, old, &["data", "immutable"]);
        if object["type"] != old["type"] {
            errors.push(FieldError::invalid("type", object["type"].clone(), "field is immutable"));
        }
        errors
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["type"]
    }
}

/// What all values of a Secret or a ConfigMap come to at most; Kubernetes' bound.
const DATA_BYTES_MAX: usize = 1024 * 1024;

fn text_bytes(object: &Value, field: &str) -> usize {
    let values = object.get(field).and_then(Value::as_object).into_iter().flatten();
    values.map(|(_, value)| value.as_str().map_or(0, str::len)).sum()
}

/// The bytes that base64 stands for.
fn binary_bytes(object: &Value, field: &str) -> usize {
    let values = object.get(field).and_then(Value::as_object).into_iter().flatten();
    let decoded = |text: &str| text.trim_end_matches('=').len().saturating_mul(3) / 4;
    values.map(|(_, value)| value.as_str().map_or(0, decoded)).sum()
}

/// Data whose keys can be file names.
fn data_keys(object: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (key, _) in object.get(field).and_then(Value::as_object).into_iter().flatten() {
        let fits = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if !fits || key.is_empty() {
            let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                          'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
            errors.push(FieldError::invalid(format!("{field}[{key}]"), key.as_str(), detail));
        }
    }
}

impl Strategy for ConfigMaps {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (key, _) in object.get("data").and_then(Value::as_object).into_iter().flatten() {
            if object["binaryData"].get(key).is_some() {
                let detail = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(format!("data[{key}]"), key.as_str(), detail));
            }
        }
        data_keys(object, "data", &mut errors);
        data_keys(object, "binaryData", &mut errors);
        if text_bytes(object, "data") + binary_bytes(object, "binaryData") > DATA_BYTES_MAX {
            errors.push(FieldError::too_long("[]", DATA_BYTES_MAX));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        frozen(object, old, &["data", "binaryData", "immutable"])
    }
}

/// What may not change once `immutable` is set.
fn frozen(object: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    if old.get("immutable").and_then(Value::as_bool) != Some(true) {
        return Vec::new();
    }
    let changed = fields.iter().filter(|field| object.get(**field) != old.get(**field));
    changed.map(|field| FieldError::forbidden(*field, "field is immutable when `immutable` is set")).collect()
}

impl Strategy for ServiceAccounts {
    fn returns_deleted_object(&self) -> bool {
        true
    }
}

impl Strategy for PriorityClasses {
    fn default(&self, object: &mut Value) {
        absent(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        /// Above are the system's own.
        const USER_VALUE_MAX: i64 = 1_000_000_000;
        let name = text(&object["metadata"], "name");
        let system = matches!(name, "system-node-critical" | "system-cluster-critical");
        let mut errors = Vec::new();
        if name.starts_with("system-") && !system {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known \
                 system priority class"
            );
            errors.push(FieldError::forbidden("metadata.name", detail));
        } else if !system && object["value"].as_i64().unwrap_or(0) > USER_VALUE_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {USER_VALUE_MAX}");
            errors.push(FieldError::forbidden("value", detail));
        }
        errors
    }

    /// It is the first and stays it: nothing that counts can change.
    fn first_generation(&self) -> Option<i64> {
        Some(1)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (field, detail) in
            [("value", "may not be changed in an update."), ("preemptionPolicy", "may not be changed in an update.")]
        {
            if object.get(field) != old.get(field) {
                errors.push(FieldError::forbidden(field, detail));
            }
        }
        errors
    }
}

impl Strategy for Quotas {
    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({});
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

impl Strategy for LimitRanges {}

impl Strategy for Roles {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let namespaced = text(object, "kind") == "Role";
        for (at, rule) in object["rules"].as_array().into_iter().flatten().enumerate() {
            let empty = |field: &str| rule.get(field).and_then(Value::as_array).is_none_or(Vec::is_empty);
            if empty("verbs") {
                errors
                    .push(FieldError::required(format!("rules[{at}].verbs"), "verbs must contain at least one value"));
            }
            if namespaced && !empty("nonResourceURLs") {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                let path = format!("rules[{at}].nonResourceURLs");
                errors.push(FieldError::invalid(path, rule["nonResourceURLs"].clone(), detail));
            }
        }
        errors
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }
}

impl Strategy for Bindings {
    fn default(&self, object: &mut Value) {
        const GROUP: &str = "rbac.authorization.k8s.io";
        if let Some(reference) = within(object, "roleRef") {
            blank(reference, "apiGroup", GROUP);
        }
        each(object, "subjects", |subject| {
            if matches!(text(subject, "kind"), "User" | "Group") {
                blank(subject, "apiGroup", GROUP);
            }
        });
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let reference = &object["roleRef"];
        let mut errors = Vec::new();
        // What counts in the whole cluster cannot rest on a role of one namespace, of which there may be many.
        let kinds: &[&str] =
            if text(object, "kind") == "RoleBinding" { &["ClusterRole", "Role"] } else { &["ClusterRole"] };
        if !kinds.contains(&text(reference, "kind")) {
            errors.push(FieldError::not_supported("roleRef.kind", text(reference, "kind"), kinds));
        }
        if text(reference, "name").is_empty() {
            errors.push(FieldError::required("roleRef.name", ""));
        }
        for (at, subject) in object["subjects"].as_array().into_iter().flatten().enumerate() {
            const KINDS: [&str; 3] = ["ServiceAccount", "User", "Group"];
            let kind = text(subject, "kind");
            if !KINDS.contains(&kind) {
                errors.push(FieldError::not_supported(format!("subjects[{at}].kind"), kind, &KINDS));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        if object["roleRef"] == old["roleRef"] {
            return Vec::new();
        }
        vec![FieldError::invalid("roleRef", object["roleRef"].clone(), "cannot change roleRef")]
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }
}

impl Strategy for Events {
    /// An event is told in the namespace of what it is about; one about an object without a namespace in `default`, or, with
    /// a time of its own, in `kube-system`.
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let field = if object.get("regarding").is_some() { "regarding" } else { "involvedObject" };
        let (namespace, about) = (text(&object["metadata"], "namespace"), text(&object[field], "namespace"));
        let fits = match about {
            "" if object.get("eventTime").is_some_and(|at| !at.is_null()) => {
                matches!(namespace, "default" | "kube-system")
            }
            "" => namespace == "default",
            about => about == namespace,
        };
        if fits {
            return Vec::new();
        }
        vec![FieldError::invalid("involvedObject.namespace", about, "does not match event.namespace")]
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    }
}

/// Kinds that need nothing but a count of their changes.
impl Strategy for Counted {
    fn counts_generations(&self) -> bool {
        true
    }
}
