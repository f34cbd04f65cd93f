//! ResourcePool and ResourcePoolClaim as CustomResourceDefinitions, field for field those of Capsule. `namespaceUsage` in
//! a pool's status is ours: what the claims of each namespace have together, complete however many there are. So are
//! `config.jitClaims` and `nodes`.

use serde_json::{Value, json};

use super::definitions::{Names, age, amounts, column, conditions, definition, label_selectors, list, quantity};

pub fn definitions() -> Vec<Value> {
    vec![resource_pool(), resource_pool_claim()]
}

fn quota_spec() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text, "x-kubernetes-list-type": "atomic"});
    let expression = json!({
        "type": "object",
        "required": ["operator", "scopeName"],
        "properties": {"operator": text, "scopeName": text, "values": texts},
    });
    json!({
        "type": "object",
        "description": "The ResourceQuota that is provisioned, and how much of each resource can be claimed in all.",
        "properties": {
            "hard": amounts("How much can be claimed, by resource."),
            "scopes": texts,
            "scopeSelector": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "properties": {"matchExpressions": {
                    "type": "array", "items": expression, "x-kubernetes-list-type": "atomic",
                }},
            },
        },
    })
}

fn allocation() -> Value {
    json!({
        "type": "object",
        "properties": {
            "hard": amounts("How much there is."),
            "used": amounts("How much is claimed."),
            "available": amounts("How much is left."),
        },
    })
}

fn reference_name() -> Value {
    json!({"type": "string"})
}

fn resource_pool() -> Value {
    let flag = |description: &str| json!({"type": "boolean", "default": false, "description": description});
    let spec = json!({
        "type": "object",
        "required": ["quota"],
        "properties": {
            "selectors": label_selectors("The namespaces that may claim: one of these must match."),
            "quota": quota_spec(),
            "defaults": amounts("What every namespace gets without a claim."),
            "config": {
                "type": "object",
                "default": {},
                "properties": {
                    "defaultsZero": flag("Without a claim, nothing of the pool's resources can be used."),
                    "orderedQueue": flag("No claim passes an older one that waits for the same resource."),
                    "deleteBoundResources": flag("Claims are deleted with the pool."),
                    "jitClaims": {
                        "type": "boolean",
                        "description": "A workload that the pool's ResourceQuota would refuse gets a claim of its own.",
                    },
                },
            },
            "nodes": {
                "type": "object",
                "required": ["selector", "shares"],
                "description": "Sizes the pool by nodes: each share of what the selected ones can allocate.",
                "properties": {
                    "selector": label_selectors("")["items"].clone(),
                    "shares": {
                        "type": "object",
                        "description": "How much of the sum, by resource: \"80%\", \"4/5\" or \"2\".",
                        "additionalProperties": {"type": "string"},
                    },
                },
            },
        },
    });
    let claim = json!({
        "type": "object",
        "required": ["name", "namespace", "uid"],
        "properties": {
            "uid": {"type": "string"}, "name": reference_name(), "namespace": {"type": "string"},
            "claims": amounts("What the claim has."),
        },
    });
    let exhaustion = json!({
        "type": "object",
        "properties": {"available": quantity("What is left."), "requesting": quantity("What is asked for in vain.")},
    });
    let status = json!({
        "type": "object",
        "required": ["conditions"],
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "namespaceCount": {"type": "integer", "default": 0},
            "claimCount": {"type": "integer", "default": 0},
            "namespaces": list("The namespaces that may claim.", json!({"type": "string"})),
            "claims": {
                "type": "object",
                "description": "The claims that have their resources, by namespace, or the first of many.",
                "additionalProperties": list("Claims.", claim),
            },
            "namespaceUsage": {
                "type": "object",
                "description": "What the claims of each namespace have together.",
                "additionalProperties": amounts("Amounts by resource."),
            },
            "allocation": allocation(),
            "exhaustions": {
                "type": "object",
                "description": "Resources that claims wait for.",
                "additionalProperties": exhaustion,
            },
            "conditions": conditions(),
        },
    });
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    let columns = json!([
        column("Claims", "integer", ".status.claimCount", "How many claims have their resources"),
        column("Namespaces", "integer", ".status.namespaceCount", "How many namespaces may claim"),
        column("Ready", "string", &format!("{ready}.status"), "Whether all is well"),
        column("Status", "string", &format!("{ready}.message"), "What is the matter"),
        age(),
    ]);
    let names = Names { kind: "ResourcePool", plural: super::RESOURCE_POOLS, short: &["quotapool"], scope: "Cluster" };
    definition(&names, spec, status, columns)
}

fn resource_pool_claim() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["claim"],
        "properties": {
            "pool": {"type": "string", "default": "", "description": "The pool to claim from; found when empty."},
            "claim": amounts("How much is claimed, by resource."),
        },
    });
    let condition = conditions()["items"].clone();
    let mut deprecated = condition;
    if let Some(fields) = deprecated.as_object_mut() {
        fields.remove("required");
    }
    let status = json!({
        "type": "object",
        "required": ["conditions"],
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "pool": {
                "type": "object",
                "properties": {"name": reference_name(), "uid": {"type": "string"}},
            },
            "condition": deprecated,
            "conditions": conditions(),
            "allocation": allocation(),
        },
    });
    let of = |kind: &str, field: &str| format!(".status.conditions[?(@.type==\"{kind}\")].{field}");
    let columns = json!([
        column("Pool", "string", ".status.pool.name", "The pool claimed from"),
        column("Ready", "string", &of("Ready", "status"), "Whether the claim is assigned to a pool"),
        column("Message", "string", &of("Ready", "message"), "What is the matter"),
        column("Bound", "string", &of("Bound", "status"), "Whether the claimed resources are in use"),
        column("Reason", "string", &of("Bound", "message"), "Why"),
        age(),
    ]);
    let names =
        Names { kind: "ResourcePoolClaim", plural: super::RESOURCE_POOL_CLAIMS, short: &[], scope: "Namespaced" };
    definition(&names, spec, status, columns)
}
