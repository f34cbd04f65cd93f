//! Claims that the scheduler makes for a pod which asked for an extended resource. The pod is charged already, so such a
//! claim is not charged under that name again; the annotation that says so is believed only where it is true, because it
//! would be a way around the quota for whoever writes it himself.

use rules::GroupResource;
use serde_json::Value;

use super::device_classes;
use super::resources::{Measured, items, text};
use super::usage::device::{EXTENDED_CLAIM_ANNOTATION, classes_of, devices, pod_owner};
use super::usage::pod::pod_usage;
use crate::family::{Near, PolicyObject};

pub fn resource() -> GroupResource {
    GroupResource::new("resource.k8s.io", "resourceclaims")
}

/// The claim without the annotation, where that does not hold.
pub fn derive(object: &PolicyObject<'_>, near: &dyn Near) -> Option<Value> {
    let claim = object.object;
    let marked = text(claim, &["metadata", "annotations", EXTENDED_CLAIM_ANNOTATION]) == "true";
    if !marked || is_made_for_its_pod(claim, object, near) {
        return None;
    }
    let mut claim = claim.clone();
    let annotations = claim.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)?;
    annotations.remove(EXTENDED_CLAIM_ANNOTATION);
    Some(claim)
}

/// The owner is a pod that is there and asks for at least these devices, and no other claim stands for them.
fn is_made_for_its_pod(claim: &Value, object: &PolicyObject<'_>, near: &dyn Near) -> bool {
    let Some(owner) = pod_owner(claim) else { return false };
    let Some(pod) = near.get(&GroupResource::core("pods"), object.namespace, text(owner, &["name"])) else {
        return false;
    };
    if text(&pod, &["metadata", "uid"]) != text(owner, &["uid"]) {
        return false;
    }
    let Ok(usage) = pod_usage(&pod) else { return false };
    let asks_for = |class: &str| {
        let definition = near.get(&device_classes::resource(), "", class);
        let extended = definition.map(|one| text(&one, &["spec", "extendedResourceName"]).to_string());
        let implicit = format!("deviceclass.resource.kubernetes.io/{class}");
        let names = extended.filter(|name| !name.is_empty()).into_iter().chain([implicit]);
        let mut asked = names.filter_map(|name| usage.requests.get(&name));
        let asked = asked.try_fold(Measured::ZERO, Measured::checked_add);
        matches!((asked, devices(claim, class)), (Some(asked), Some(wanted)) if asked.amount >= wanted.amount)
    };
    let uid = text(owner, &["uid"]);
    let stands_for_the_same = |other: &Value| {
        text(other, &["metadata", "name"]) != object.name
            && text(other, &["metadata", "annotations", EXTENDED_CLAIM_ANNOTATION]) == "true"
            && items(other, &["metadata", "ownerReferences"]).iter().any(|owner| text(owner, &["uid"]) == uid)
    };
    classes_of(claim).into_iter().all(asks_for)
        && !near.list(&resource(), object.namespace).iter().any(|other| stands_for_the_same(other))
}
