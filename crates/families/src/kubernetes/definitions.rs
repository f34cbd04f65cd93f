//! The custom kinds of this family, as CustomResourceDefinitions.

use serde_json::{Value, json};

use super::{cluster_quota, hierarchy};
pub(super) use crate::definition::{Names, amounts};

pub fn definitions() -> Vec<Value> {
    std::iter::once(cluster_resource_quota()).chain(hierarchy::definitions::definitions()).collect()
}

pub(super) fn definition(names: Names, schema: Value, columns: Value) -> Value {
    names.definition(schema, true, columns)
}

pub(super) fn object(description: &str, properties: Value) -> Value {
    json!({"type": "object", "description": description, "properties": properties})
}

pub(super) fn top(description: &str, spec: Value, status: Value) -> Value {
    let mut schema = object(
        description,
        json!({
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
        }),
    );
    if !status.is_null() {
        schema["properties"]["status"] = status;
    }
    schema
}

fn strings(description: &str) -> Value {
    json!({"type": "object", "description": description, "nullable": true, "additionalProperties": {"type": "string"}})
}

pub(super) fn usage(description: &str) -> Value {
    let hard = amounts("The limits in force, by name.");
    object(description, json!({"hard": hard, "used": amounts("What is used of each, by name.")}))
}

pub(super) fn list(of: Value, list_type: &str) -> Value {
    json!({"type": "array", "items": of, "x-kubernetes-list-type": list_type})
}

fn cluster_resource_quota() -> Value {
    let text = json!({"type": "string"});
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {"key": text, "operator": text, "values": list(text.clone(), "atomic")},
    });
    let labels = json!({
        "type": "object",
        "description": "Selects namespaces by label.",
        "nullable": true,
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": text},
            "matchExpressions": list(expression, "atomic"),
        },
        "x-kubernetes-map-type": "atomic",
    });
    let selector = object(
        "The namespaces this quota is over; where labels and annotations are both given, both must match.",
        json!({"labels": labels, "annotations": strings("Selects namespaces that have all of these annotations.")}),
    );
    let scope = json!({
        "type": "object",
        "required": ["operator", "scopeName"],
        "properties": {"scopeName": text, "operator": text, "values": list(text.clone(), "atomic")},
    });
    let scope_selector = json!({
        "type": "object",
        "description": "Like scopes, with operators and values.",
        "properties": {"matchExpressions": list(scope, "atomic")},
        "x-kubernetes-map-type": "atomic",
    });
    let quota = object(
        "What is limited, as in a ResourceQuota.",
        json!({
            "hard": amounts("The limits, by name."),
            "scopes": list(text.clone(), "atomic"),
            "scopeSelector": scope_selector,
        }),
    );
    let mut spec = object("What is limited, and where.", json!({"selector": selector, "quota": quota}));
    spec["required"] = json!(["quota", "selector"]);
    let mut by_namespace = object(
        "Usage in one namespace.",
        json!({"namespace": text, "status": usage("The limits, and what this namespace uses of them.")}),
    );
    by_namespace["required"] = json!(["namespace", "status"]);
    let mut namespaces = list(by_namespace, "map");
    namespaces["nullable"] = json!(true);
    namespaces["x-kubernetes-list-map-keys"] = json!(["namespace"]);
    let status = object(
        "What is used, in all and by namespace.",
        json!({"total": usage("Usage over all selected namespaces."), "namespaces": namespaces}),
    );
    let names = Names {
        group: cluster_quota::GROUP,
        version: "v1",
        kind: "ClusterResourceQuota",
        plural: cluster_quota::RESOURCE,
        short: &["clusterquota"],
        categories: &[],
        scope: "Cluster",
    };
    definition(names, top("A quota over every namespace that a selector picks.", spec, status), json!([]))
}
