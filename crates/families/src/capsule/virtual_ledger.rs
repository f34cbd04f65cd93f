//! QuantityLedger: Capsule's book of reservations, one for each custom quota. Here a request and its charge are one
//! write, so nothing is ever reserved; the objects are shown for whoever reads them, always settled.

use rules::{GroupResource, policy_name};
use serde_json::{Value, json};

use super::quota::{USAGE, shown_usage};
use super::{GROUP, Kind, VERSION, text};
use crate::{Balances, VirtualResource, World};

pub const RESOURCE: VirtualResource = VirtualResource {
    group: GROUP,
    version: VERSION,
    resource: "quantityledgers",
    singular: "quantityledger",
    kind: "QuantityLedger",
    verbs: &["get", "list"],
    short: &["ql"],
    columns: &[
        ("TargetKind", ".spec.targetRef.kind"),
        ("TargetNamespace", ".spec.targetRef.namespace"),
        ("TargetName", ".spec.targetRef.name"),
        ("Reserved", ".status.reserved"),
    ],
};

/// The ledgers of the quotas in a namespace.
pub fn ledgers(resource: &GroupResource, namespace: &str, world: &dyn World, balances: &dyn Balances) -> Vec<Value> {
    let quotas = world.list(resource, namespace);
    quotas.iter().map(|quota| ledger(resource, namespace, quota, balances)).collect()
}

fn ledger(resource: &GroupResource, namespace: &str, quota: &Value, balances: &dyn Balances) -> Value {
    let kind = Kind::of(resource).map_or("", Kind::name);
    let name = text(quota, &["metadata", "name"]);
    let uid = quota["metadata"]["uid"].clone();
    let lines = balances.of(&policy_name(resource, namespace, name));
    let usage = lines.iter().find(|line| &*line.resource == USAGE);
    let allocated = usage.map(shown_usage).unwrap_or_default();
    let mut target = json!({"apiGroup": GROUP, "kind": kind, "name": name, "uid": uid});
    if !namespace.is_empty() {
        target["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "QuantityLedger",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": quota["metadata"]["resourceVersion"],
            "creationTimestamp": quota["metadata"]["creationTimestamp"],
            "labels": {"capsule.clastix.io/managed-by": "controller"},
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"targetRef": target},
        "status": {"reserved": "0", "allocated": allocated.to_string()},
    })
}
