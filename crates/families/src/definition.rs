//! CustomResourceDefinitions as families bring them ([`Manifest::definitions`](crate::Manifest::definitions)): one version, served and
//! stored.

use serde_json::{Value, json};

/// The pattern that Kubernetes puts on quantities in its own generated definitions.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// What a kind is called.
#[derive(Clone, Copy)]
pub struct Names {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub short: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: &'static str,
}

impl Names {
    /// A kind with this schema; `has_status` where its status is written apart.
    pub fn definition(&self, schema: Value, has_status: bool, columns: Value) -> Value {
        let Names { group, version, kind, plural, short, categories, scope } = *self;
        let mut named =
            json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()});
        if !short.is_empty() {
            named["shortNames"] = json!(short);
        }
        if !categories.is_empty() {
            named["categories"] = json!(categories);
        }
        let mut served = json!({
            "name": version,
            "served": true,
            "storage": true,
            "schema": {"openAPIV3Schema": schema},
            "subresources": if has_status { json!({"status": {}}) } else { json!({}) },
        });
        if columns.as_array().is_some_and(|columns| !columns.is_empty()) {
            served["additionalPrinterColumns"] = columns;
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "names": named, "scope": scope, "versions": [served]},
        })
    }
}

/// The schema of an object with a spec, and perhaps a status.
pub fn with_spec(spec: Value, status: Option<Value>) -> Value {
    let mut properties = json!({
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}, "spec": spec,
    });
    if let Some(status) = status {
        properties["status"] = status;
    }
    json!({"type": "object", "required": ["spec"], "properties": properties})
}

pub fn quantity(description: &str) -> Value {
    json!({
        "description": description,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

/// Amounts by name.
pub fn amounts(description: &str) -> Value {
    json!({"type": "object", "description": description, "additionalProperties": quantity("An amount.")})
}
