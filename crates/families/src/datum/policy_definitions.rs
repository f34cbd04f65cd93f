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

/// A policy that makes something of a template when objects appear.
fn creation_policy(names: &Names, template: &str, made: Value) -> Value {
    let made = json!({
        "type": "object", "required": ["spec"], "properties": {"metadata": metadata(), "spec": made},
    });
    let spec = json!({
        "type": "object",
        "required": ["trigger", "target"],
        "properties": {
            "disabled": switch(), "trigger": trigger(),
            "target": {"type": "object", "required": [template], "properties": {template: made}},
        },
    });
    definition(names, spec, status(), trigger_columns())
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
    let (kind, plural) = ("ClaimCreationPolicy", "claimcreationpolicies");
    let names = Names { group: GROUP, kind, plural, short: &["ccp"], scope: "Cluster" };
    creation_policy(&names, "resourceClaimTemplate", claim)
}

fn grant_policy() -> Value {
    let grant = json!({"type": "object", "required": ["limits"], "properties": {"limits": limits()}});
    let (kind, plural) = ("GrantCreationPolicy", "grantcreationpolicies");
    let names = Names { group: GROUP, kind, plural, short: &["gcp"], scope: "Cluster" };
    creation_policy(&names, "resourceGrantTemplate", grant)
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
