//! Claims that the scheduler makes for a pod which asked for an extended resource. The pod is charged already, so such a
//! claim is not charged under that name again; the annotation that says so is believed only where it is true, because it
//! would be a way around the quota for whoever writes it himself.

use std::sync::Arc;

use rules::GroupResource;
use serde_json::Value;

use super::device_classes;
use super::resources::{Measured, items, text};
use super::usage::device::{EXTENDED_CLAIM_ANNOTATION, classes_of, devices, pod_owner};
use super::usage::pod::pod_usage;
use crate::family::{Change, Dependent, Made, Near, PolicyObject, World};

pub fn resource() -> GroupResource {
    GroupResource::new("resource.k8s.io", "resourceclaims")
}

/// What such claims depend on: that their pod is there and is charged, and what the name of the class is.
pub fn leads() -> Vec<GroupResource> {
    vec![pods(), device_classes::resource()]
}

fn pods() -> GroupResource {
    GroupResource::core("pods")
}

fn is_marked(claim: &Value) -> bool {
    text(claim, &["metadata", "annotations", EXTENDED_CLAIM_ANNOTATION]) == "true"
}

/// A claim with the annotation.
struct Marked {
    namespace: String,
    name: String,
    /// The uid of its pod.
    pod: String,
}

fn marked(claim: &Value) -> Made {
    let marked = is_marked(claim).then(|| Marked {
        namespace: text(claim, &["metadata", "namespace"]).into(),
        name: text(claim, &["metadata", "name"]).into(),
        pod: pod_owner(claim).map_or("", |owner| text(owner, &["uid"])).into(),
    });
    Arc::new(marked)
}

fn read(made: &Made) -> Option<&Marked> {
    made.downcast_ref::<Option<Marked>>()?.as_ref()
}

/// Whether a pod there can have such claims. Hardly any namespace has, and pods are written all the time.
pub fn may_lead(namespace: &str, world: &dyn World) -> bool {
    world.made(&resource(), namespace, &marked).iter().any(|made| read(made).is_some())
}

/// The claims made for a pod that changed or went; all of them when a class did.
pub fn followers(change: &Change<'_>, near: &dyn Near) -> Vec<Dependent> {
    let all = match *change.resource == pods() {
        true => near.made(&resource(), change.namespace, &marked),
        false => near.made_everywhere(&resource(), &marked),
    };
    let uid = text(change.new.unwrap_or(change.old), &["metadata", "uid"]);
    let concerned = all.iter().filter_map(read).filter(|claim| *change.resource != pods() || claim.pod == uid);
    let follower = |claim: &Marked| Dependent {
        resource: resource(),
        namespace: claim.namespace.as_str().into(),
        name: claim.name.as_str().into(),
    };
    concerned.map(follower).collect()
}

/// The claim without the annotation, where that does not hold.
pub fn derive(object: &PolicyObject<'_>, near: &dyn Near) -> Option<Value> {
    let claim = object.object;
    if !is_marked(claim) || is_made_for_its_pod(claim, object, near) {
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
    let Some(pod) = near.get(&pods(), object.namespace, text(owner, &["name"])) else {
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
            && is_marked(other)
            && items(other, &["metadata", "ownerReferences"]).iter().any(|owner| text(owner, &["uid"]) == uid)
    };
    classes_of(claim).into_iter().all(asks_for)
        && !near.list(&resource(), object.namespace).iter().any(|other| stands_for_the_same(other))
}
