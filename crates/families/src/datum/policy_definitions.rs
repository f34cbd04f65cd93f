//! ClaimCreationPolicy, GrantCreationPolicy and QuotaPlan as CustomResourceDefinitions.

use serde_json::{Value, json};

use super::GROUP;
use super::schemas::{Names, age, amount, column, conditions, definition, dimensions, limits, list, text};

pub fn definitions() -> Vec<Value> {
    vec![claim_policy(), grant_policy(), plan()]
}

fn trigger() -> Value {
    let constraint = json!({
        "type": "object",
        "required": ["expression"],
        "properties": {
            "expression": {
                "type": "string", "maxLength": 1024,
                "description": "CEL over object, user and request. One that cannot be evaluated refuses the write.",
            },
            "message": {"type": "string", "maxLength": 256},
        },
    });
    json!({
        "type": "object",
        "required": ["resource"],
        "properties": {
            "resource": {
                "type": "object", "required": ["apiVersion", "kind"],
                "description": "The kind; all of its versions are meant.",
                "properties": {"apiVersion": text(""), "kind": text("")},
            },
            "constraints": list("What must hold of an object.", constraint),
        },
    })
}

fn switch() -> Value {
    json!({"type": "boolean", "default": false, "description": "Whether it is switched off."})
}

fn metadata() -> Value {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    json!({
        "type": "object",
        "properties": {"name": text("A template."), "labels": texts, "annotations": texts},
    })
}

fn status() -> Value {
    json!({"type": "object", "properties": {"observedGeneration": {"type": "integer"}, "conditions": conditions()}})
}

fn trigger_columns() -> Value {
    json!([
        column("Kind", "string", ".spec.trigger.resource.kind", "What it is about"),
        column("Disabled", "boolean", ".spec.disabled", "Whether it is switched off"),
        age(),
    ])
}

fn claim_policy() -> Value {
    let resource = json!({
        "type": "object",
        "required": ["name", "quantity"],
        "properties": {
            "name": text("A template."), "quantity": amount("A template."), "dimensions": dimensions("Templates."),
        },
    });
    let claim = json!({
        "type": "object",
        "required": ["resources"],
        "properties": {
            "resources": list("What is claimed.", resource), "dimensions": dimensions("Templates."),
            "grantRef": {
                "type": "object", "required": ["name"], "properties": {"namespace": text(""), "name": text("")},
            },
        },
    });
    let template = json!({
        "type": "object", "required": ["spec"], "properties": {"metadata": metadata(), "spec": claim},
    });
    let spec = json!({
        "type": "object",
        "required": ["trigger", "target"],
        "properties": {
            "disabled": switch(), "trigger": trigger(),
            "target": {
                "type": "object", "required": ["resourceClaimTemplate"],
                "properties": {"resourceClaimTemplate": template},
            },
        },
    });
    let names = Names {
        group: GROUP,
        kind: "ClaimCreationPolicy",
        plural: "claimcreationpolicies",
        short: &["ccp"],
        scope: "Cluster",
    };
    definition(&names, spec, status(), trigger_columns())
}

fn grant_policy() -> Value {
    let grant = json!({"type": "object", "required": ["limits"], "properties": {"limits": limits()}});
    let template = json!({
        "type": "object", "required": ["spec"], "properties": {"metadata": metadata(), "spec": grant},
    });
    let spec = json!({
        "type": "object",
        "required": ["trigger", "target"],
        "properties": {
            "disabled": switch(), "trigger": trigger(),
            "target": {
                "type": "object", "required": ["resourceGrantTemplate"],
                "properties": {"resourceGrantTemplate": template},
            },
        },
    });
    let names = Names {
        group: GROUP,
        kind: "GrantCreationPolicy",
        plural: "grantcreationpolicies",
        short: &["gcp"],
        scope: "Cluster",
    };
    definition(&names, spec, status(), trigger_columns())
}

fn plan() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["limits"],
        "properties": {"displayName": text("How it is shown."), "limits": limits()},
    });
    let columns = json!([column("Shown", "string", ".spec.displayName", "How it is shown"), age()]);
    let names = Names { group: GROUP, kind: "QuotaPlan", plural: "quotaplans", short: &["plan"], scope: "Cluster" };
    definition(&names, spec, status(), columns)
}
