//! What a resource claim (dynamic resource allocation) uses: devices of a class.

use std::collections::BTreeSet;

use kinds::fields::{at, items, text};
use kinds::resources::Measured;
use serde_json::Value;

/// The most devices one request can be given; a request for all of them is counted as this many.
pub const ALLOCATION_MAX: i64 = 32;

/// Marks a claim that the scheduler made for a pod which asked for an extended resource.
pub const EXTENDED_CLAIM_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// Devices of one class. Of alternatives the largest counts, since any of them may be chosen; `None` when the number
/// is too large to be counted.
pub fn devices(claim: &Value, class: &str) -> Option<Measured> {
    let mut total = Measured::ZERO;
    for request in items(claim, &["spec", "devices", "requests"]) {
        let alternatives = items(request, &["firstAvailable"]);
        let count = if !alternatives.is_empty() {
            alternatives.iter().map(|one| devices_of_class(one, class)).max().unwrap_or(0)
        } else {
            request.get("exactly").map_or(0, |exactly| devices_of_class(exactly, class))
        };
        total = total.checked_add(Measured::count(count))?;
    }
    Some(total)
}

fn devices_of_class(request: &Value, class: &str) -> i64 {
    if text(request, &["deviceClassName"]) != class {
        return 0;
    }
    match text(request, &["allocationMode"]) {
        // Both are the API's defaults.
        "ExactCount" | "" => at(request, &["count"]).map_or(1, |count| count.as_i64().unwrap_or(0)),
        "All" => ALLOCATION_MAX,
        // A mode of the future cannot be counted.
        _ => 0,
    }
}

/// Every class that the claim names.
pub fn classes_of(claim: &Value) -> BTreeSet<&str> {
    let requests = items(claim, &["spec", "devices", "requests"]).iter();
    requests
        .flat_map(|request| items(request, &["firstAvailable"]).iter().chain(request.get("exactly")))
        .map(|one| text(one, &["deviceClassName"]))
        .filter(|class| !class.is_empty())
        .collect()
}

/// The pod that controls the claim.
pub fn pod_owner(claim: &Value) -> Option<&Value> {
    items(claim, &["metadata", "ownerReferences"]).iter().find(|owner| {
        owner.get("controller").and_then(Value::as_bool) == Some(true)
            && text(owner, &["kind"]) == "Pod"
            && text(owner, &["apiVersion"]) == "v1"
    })
}

/// Whether the claim stands for an extended resource that its owner, a pod, is charged for already. What is stored says so
/// only where it is true ([`super::super::pod_claims`]).
pub fn is_charged_to_pod(claim: &Value) -> bool {
    text(claim, &["metadata", "annotations", EXTENDED_CLAIM_ANNOTATION]) == "true" && pod_owner(claim).is_some()
}
