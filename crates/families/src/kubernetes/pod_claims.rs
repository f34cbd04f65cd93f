//! Claims that the scheduler makes for a pod which asked for an extended resource. The pod is charged already, so such a
//! claim is not charged under that name again; the annotation that says so is believed only where it is true, because it
//! would be a way around the quota for whoever writes it himself.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::fields::{items, text};
use kinds::resources::pod::{PodUsage, pod_usage_at};
use quantity::Amount;
use rules::GroupResource;
use serde_json::Value;

use super::device_classes;
use super::usage::device::{EXTENDED_CLAIM_ANNOTATION, classes_of, devices, pod_owner};
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
    let Ok(usage) = pod_usage_at(&pod, near.now_ms()) else { return false };
    let uid = text(owner, &["uid"]);
    let stands_for_the_same = |other: &Value| {
        text(other, &["metadata", "name"]) != object.name
            && is_marked(other)
            && items(other, &["metadata", "ownerReferences"]).iter().any(|owner| text(owner, &["uid"]) == uid)
    };
    asks_for_all(&usage, claim, near)
        && !near.list(&resource(), object.namespace).iter().any(|other| stands_for_the_same(other))
}

/// Whether a pod is charged for all the devices of a claim: under the name of their class itself, and for what that leaves open
/// under the name that the class declares. Where classes declare the same name, they share what was asked for under it.
fn asks_for_all(usage: &PodUsage, claim: &Value, near: &dyn Near) -> bool {
    let asked = |name: &str| usage.requests.get(name).map_or(Amount::ZERO, |asked| asked.amount);
    let mut open: BTreeMap<String, Amount> = BTreeMap::new();
    for class in classes_of(claim) {
        let own = asked(&format!("deviceclass.resource.kubernetes.io/{class}"));
        let Some(left) = devices(claim, class).and_then(|wanted| wanted.amount.checked_sub(own)) else { return false };
        let definition = near.get(&device_classes::resource(), "", class);
        let extended = definition.map(|one| text(&one, &["spec", "extendedResourceName"]).to_string());
        let sum = open.entry(extended.unwrap_or_default()).or_insert(Amount::ZERO);
        let Some(more) = sum.checked_add(left.max(Amount::ZERO)) else { return false };
        *sum = more;
    }
    open.iter().all(|(name, left)| *left <= asked(name))
}
