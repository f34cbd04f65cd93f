//! What else somebody has to be allowed who writes what quotas are charged by, or what members keep to.

use serde_json::Value;

use super::{BINDINGS, LEASES, POLICIES, QUOTAS, SLICES};
use crate::{Change, Plural, Right};

/// Whoever writes a binding, or a lease, says what is charged, and what no more: that takes the right to change the quotas of the
/// namespace, who could as well raise them. So does a policy by which members run what is charged no more. A slice says what the control
/// plane lent, which no namespace's own Role is to change.
pub fn of_what_is_charged(change: &Change<'_>) -> Option<Right> {
    let is = |kind: &Plural| kind.is(change.resource);
    let is_said = match change.new {
        Some(new) if is(&POLICIES) => leaves_uncharged(new) && change.old.get("spec") != new.get("spec"),
        Some(new) => said(change.old) != said(new),
        // A binding that is deleted stays until what it placed is gone; the others are gone at once.
        None => !is(&BINDINGS) && !is(&POLICIES),
    };
    let to_update = |of: &Plural, namespace: &str| Right {
        verb: "update",
        resource: of.resource(),
        namespace: namespace.to_owned(),
        name: String::new(),
    };
    match is_said {
        true if is(&BINDINGS) || is(&LEASES) || is(&POLICIES) => Some(to_update(&QUOTAS, change.namespace)),
        true if is(&SLICES) => Some(to_update(&SLICES, "")),
        _ => None,
    }
}

/// Whether a policy has members keep what the quota lets go of: when the template goes, when it becomes less, or when its cluster failed.
fn leaves_uncharged(policy: &Value) -> bool {
    let says = |path: &str| policy.pointer(path).is_some_and(|said| *said == true || *said == "Never");
    let clusters = policy.pointer("/spec/suspension/dispatchingOnClusters");
    const SAID: [&str; 4] = [
        "/spec/preserveResourcesOnDeletion",
        "/spec/suspension/dispatching",
        "/spec/failover/cluster/purgeMode",
        "/spec/failover/application/purgeMode",
    ];
    SAID.into_iter().any(says) || clusters.is_some_and(|clusters| !clusters.is_null())
}

/// All of an object but its status, and what nobody goes by.
fn said(object: &Value) -> [Option<&Value>; 4] {
    ["/spec", "/metadata/annotations", "/metadata/finalizers", "/metadata/ownerReferences"]
        .map(|part| object.pointer(part))
}
