//! The custom kinds of the tree, as CustomResourceDefinitions.

use serde_json::{Value, json};

use super::super::definitions::{Names, amounts, definition, list, object, top, usage};
use super::{ANCHORS, CONFIGURATIONS, GROUP, QUOTAS};

pub fn definitions() -> Vec<Value> {
    vec![hierarchical_resource_quota(), hierarchy_configuration(), subnamespace_anchor()]
}

fn hierarchical_resource_quota() -> Value {
    let mut status = usage("What the namespace and everything below it use.");
    status["properties"]["requestsSummary"] = json!({"type": "string"});
    status["properties"]["limitsSummary"] = json!({"type": "string"});
    let spec = object("What is limited.", json!({"hard": amounts("The limits, by name.")}));
    let names = Names {
        group: GROUP,
        version: "v1alpha2",
        kind: "HierarchicalResourceQuota",
        plural: QUOTAS,
        short: &["hrq"],
        categories: &[],
        scope: "Namespaced",
    };
    let columns = json!([
        {"name": "Request", "type": "string", "jsonPath": ".status.requestsSummary"},
        {"name": "Limit", "type": "string", "jsonPath": ".status.limitsSummary"},
    ]);
    definition(names, top("A quota over a namespace and everything below it.", spec, status), columns)
}

fn hierarchy_configuration() -> Value {
    let spec = object(
        "Where the namespace stands in the tree.",
        json!({
            "parent": {"type": "string", "description": "The namespace above this one, if any."},
            "allowCascadingDeletion": {
                "type": "boolean",
                "description": "Whether subnamespaces may be deleted together with this namespace.",
            },
        }),
    );
    let status = object(
        "What the tree looks like from here.",
        json!({
            "children": list(json!({"type": "string"}), "atomic"),
            "conditions": list(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), "atomic"),
        }),
    );
    let names = Names {
        group: GROUP,
        version: "v1alpha2",
        kind: "HierarchyConfiguration",
        plural: CONFIGURATIONS,
        short: &[],
        categories: &[],
        scope: "Namespaced",
    };
    definition(names, top("The place of a namespace in the tree of namespaces.", spec, status), json!([]))
}

fn subnamespace_anchor() -> Value {
    let pair = json!({
        "type": "object",
        "required": ["key", "value"],
        "properties": {"key": {"type": "string"}, "value": {"type": "string"}},
    });
    let spec = object(
        "What the subnamespace is given.",
        json!({"labels": list(pair.clone(), "atomic"), "annotations": list(pair, "atomic")}),
    );
    let status = object("What became of it.", json!({"status": {"type": "string"}}));
    let names = Names {
        group: GROUP,
        version: "v1alpha2",
        kind: "SubnamespaceAnchor",
        plural: ANCHORS,
        short: &["subns"],
        categories: &[],
        scope: "Namespaced",
    };
    definition(names, top("Asks for a namespace below this one, of the anchor's name.", spec, status), json!([]))
}
