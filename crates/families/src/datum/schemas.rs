//! Parts of which the family's definitions are made.

use serde_json::{Value, json};

pub use crate::capsule::schemas::{age, column, conditions, list};

pub struct Names {
    pub group: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub short: &'static [&'static str],
    pub scope: &'static str,
}

pub fn definition(names: &Names, spec: Value, status: Value, columns: Value) -> Value {
    let Names { group, kind, plural, short, scope } = names;
    let singular = kind.to_lowercase();
    let mut named = json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular});
    if !short.is_empty() {
        named["shortNames"] = json!(short);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "names": named, "scope": scope, "versions": [{
            "name": super::VERSION,
            "served": true,
            "storage": true,
            "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "spec": spec, "status": status,
                },
            }},
            "subresources": {"status": {}},
        }]},
    })
}

pub fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// An amount with a unit, which may be written as a number.
pub fn amount(description: &str) -> Value {
    json!({
        "description": description, "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
    })
}

pub fn reference(description: &str, required: &[&str]) -> Value {
    json!({
        "type": "object", "description": description, "required": required,
        "properties": {
            "apiGroup": text("The group of the kind; no version."), "kind": text("The kind."),
            "name": text("The name."), "namespace": text("The namespace, where it is another."),
            "uid": text("The uid, once it is known."),
        },
    })
}

pub fn selector() -> Value {
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": text("A dimension."), "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            "values": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        },
    });
    json!({
        "type": "object", "x-kubernetes-map-type": "atomic",
        "description": "Which requests are meant; an empty one means all.",
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {"type": "array", "items": expression, "x-kubernetes-list-type": "atomic"},
        },
    })
}

pub fn dimensions(description: &str) -> Value {
    json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}})
}

/// `spec.limits` of a grant, a plan, a template.
pub fn limits() -> Value {
    let bucket = json!({
        "type": "object",
        "required": ["value"],
        "properties": {"value": amount("How much there is, or \"unlimited\"."), "selector": selector()},
    });
    let limit = json!({
        "type": "object",
        "required": ["name", "buckets"],
        "properties": {
            "name": text("The resource, as its definition calls it."),
            "dimensionLabels": list("The dimensions that buckets may select by.", json!({"type": "string"})),
            "bucketPolicy": {
                "type": "string", "enum": ["MostSpecific", "AllMatching"],
                "description": "Whether the narrowest matching bucket decides (the default), or all that match.",
            },
            "buckets": list("Limits, each for the requests that it selects.", bucket),
        },
    });
    list("How much of each resource there is.", limit)
}

/// A column of a condition's status and one of its reason.
pub fn ready_columns(kind: &str, words: [&str; 2]) -> [Value; 2] {
    let of = |field: &str| format!(".status.conditions[?(@.type==\"{kind}\")].{field}");
    [column(words[0], "string", &of("status"), "Whether it is so"), column(words[1], "string", &of("reason"), "Why")]
}
