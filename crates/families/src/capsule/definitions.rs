//! The kinds of this family as CustomResourceDefinitions, field for field those of Capsule. What is ours beside them:
//! `claimCount`, and `group` and `version` in a source, which Capsule's documentation writes.

use serde_json::{Value, json};

use super::{GROUP, VERSION};
use crate::definition::with_spec;
pub use crate::definition::{amounts, quantity};

const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const SOURCE_RULE: &str = "self.op == 'count' ? (!has(self.path) || self.path == '') && (!has(self.cel) || self.cel == '') : (has(self.path) && self.path != '') != (has(self.cel) && self.cel != '')";
const SOURCE_RULE_MESSAGE: &str =
    "path and cel must be empty when op is 'count'; otherwise exactly one of path or cel must be set and non-empty";

pub fn definitions() -> Vec<Value> {
    let mut definitions = vec![custom_quota(), global_custom_quota()];
    definitions.extend(super::pool_definitions::definitions());
    definitions
}

pub struct Names {
    pub kind: &'static str,
    pub plural: &'static str,
    pub short: &'static [&'static str],
    pub scope: &'static str,
}

pub fn definition(names: &Names, spec: Value, status: Value, columns: Value) -> Value {
    let Names { kind, plural, short, scope } = *names;
    let names =
        crate::definition::Names { group: GROUP, version: VERSION, kind, plural, short, categories: &[], scope };
    names.definition(with_spec(spec, Some(status)), true, columns)
}

pub fn list(description: &str, of: Value) -> Value {
    json!({"type": "array", "description": description, "items": of})
}

fn label_fields() -> Value {
    let text = json!({"type": "string"});
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {"key": text, "operator": text, "values": {
            "type": "array", "items": text, "x-kubernetes-list-type": "atomic",
        }},
    });
    json!({
        "matchLabels": {"type": "object", "additionalProperties": text},
        "matchExpressions": {"type": "array", "items": expression, "x-kubernetes-list-type": "atomic"},
    })
}

pub fn label_selectors(description: &str) -> Value {
    let one = json!({"type": "object", "properties": label_fields(), "x-kubernetes-map-type": "atomic"});
    list(description, one)
}

pub fn conditions() -> Value {
    let condition = json!({
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "type": {"type": "string", "maxLength": 316, "pattern": CONDITION_TYPE},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {
                "type": "string", "minLength": 1, "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "message": {"type": "string", "maxLength": 32768},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        },
    });
    list("What is the matter with the object.", condition)
}

pub fn column(name: &str, kind: &str, path: &str, description: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "description": description})
}

pub fn age() -> Value {
    column("Age", "date", ".metadata.creationTimestamp", "Age")
}

fn selectors() -> Value {
    let mut properties = label_fields();
    properties["fieldSelectors"] = list(
        "JSONPaths of which each must find something true; `path=value` and `path!=value` compare.",
        json!({"type": "string"}),
    );
    properties["celExpressions"] = json!({
        "type": "array", "maxItems": 64, "description": "Conditions over `object` of which each must hold.",
        "items": {"type": "string", "minLength": 1, "maxLength": 4096},
    });
    let one = json!({"type": "object", "properties": properties, "x-kubernetes-map-type": "atomic"});
    list("Which objects count: one of these must match, and all parts of it.", one)
}

fn source() -> Value {
    json!({
        "type": "object",
        "required": ["kind"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Group and version of the kind; v1 when absent."},
            "group": {"type": "string", "description": "The group, where apiVersion is absent."},
            "version": {"type": "string", "description": "The version, where apiVersion is absent."},
            "kind": {"type": "string", "minLength": 1},
            "op": {"type": "string", "enum": ["add", "sub", "count"], "default": "add"},
            "path": {"type": "string", "description": "JSONPath of the quantities that are summed up."},
            "cel": {
                "type": "string", "maxLength": 4096,
                "description": "Expression over `object` that gives a quantity or a list of them.",
            },
            "selectors": selectors(),
        },
        "x-kubernetes-validations": [{"rule": SOURCE_RULE, "message": SOURCE_RULE_MESSAGE}],
    })
}

fn quota_spec(global: bool) -> Value {
    let options = json!({
        "type": "object",
        "default": {"emitMetricPerClaimUsage": false},
        "properties": {"emitMetricPerClaimUsage": {
            "type": "boolean", "default": false, "description": "Also expose a metric for each counted object.",
        }},
    });
    let mut spec = json!({
        "type": "object",
        "required": ["limit", "sources"],
        "properties": {
            "limit": quantity("The most that all counted objects may take together."),
            "sources": list("What is counted.", source()),
            "options": options,
            "scopeSelectors": label_selectors("Objects are considered when one of these matches their labels."),
        },
    });
    if global {
        spec["properties"]["namespaceSelectors"] =
            label_selectors("The namespaces whose objects are counted: one of these must match. All when absent.");
    }
    spec
}

fn quota_status(global: bool) -> Value {
    let text = json!({"type": "string"});
    let claim = json!({
        "type": "object",
        "required": ["group", "kind", "name", "uid", "usage", "version"],
        "properties": {
            "group": text, "version": text, "kind": text, "name": text, "namespace": text, "uid": text,
            "usage": quantity("What the object takes."),
        },
    });
    let target = json!({
        "type": "object",
        "required": ["group", "kind", "version"],
        "properties": {
            "group": text, "version": text, "kind": text, "op": text, "path": text, "cel": text, "scope": text,
            "selectors": selectors(),
        },
    });
    let usage = json!({
        "type": "object",
        "properties": {"used": quantity("What is used."), "available": quantity("What is left.")},
    });
    let mut status = json!({
        "type": "object",
        "required": ["conditions", "targets"],
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "usage": usage,
            "claimCount": {"type": "integer", "description": "How many objects are counted."},
            "claims": list("The counted objects, or the first of many.", claim),
            "targets": list("The kinds that are looked at.", target),
            "conditions": conditions(),
        },
    });
    if global {
        status["properties"]["namespaces"] = list("The namespaces that are looked into.", text);
    }
    status
}

fn quota_columns() -> Value {
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    json!([
        column("Limit", "string", ".spec.limit", "The limit"),
        column("Used", "string", ".status.usage.used", "What is used"),
        column("Available", "string", ".status.usage.available", "What is left"),
        column("Ready", "string", &format!("{ready}.status"), "Whether all is well"),
        column("Status", "string", &format!("{ready}.message"), "What is the matter"),
        age(),
    ])
}

fn custom_quota() -> Value {
    let names = Names { kind: "CustomQuota", plural: super::CUSTOM_QUOTAS, short: &["cq"], scope: "Namespaced" };
    definition(&names, quota_spec(false), quota_status(false), quota_columns())
}

fn global_custom_quota() -> Value {
    let names =
        Names { kind: "GlobalCustomQuota", plural: super::GLOBAL_CUSTOM_QUOTAS, short: &["gcq"], scope: "Cluster" };
    definition(&names, quota_spec(true), quota_status(true), quota_columns())
}
