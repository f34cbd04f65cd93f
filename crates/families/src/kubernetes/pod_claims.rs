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
use crate::{Change, Must, Parsed, Place, PolicyObject, View, World};

pub fn resource() -> GroupResource {
    GroupResource::new("resource.k8s.io", "resourceclaims")
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

fn marked(claim: &Value) -> Parsed {
    let marked = is_marked(claim).then(|| Marked {
        namespace: text(claim, &["metadata", "namespace"]).into(),
        name: text(claim, &["metadata", "name"]).into(),
        pod: pod_owner(claim).map_or("", |owner| text(owner, &["uid"])).into(),
    });
    Arc::new(marked)
}

fn read(made: &Parsed) -> Option<&Marked> {
    made.downcast_ref::<Option<Marked>>()?.as_ref()
}

/// Whether a pod there can have such claims. Hardly any namespace has, and pods are written all the time.
pub fn may_concern(namespace: &str, world: &dyn World) -> bool {
    world.parsed(&resource(), namespace, &marked).iter().any(|made| read(made).is_some())
}

/// The claims made for a pod that changed or went; all of them when a class did.
pub fn made_for(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    let all = match *change.resource == pods() {
        true => view.parsed(&resource(), change.namespace, &marked),
        false => view.parsed_everywhere(&resource(), &marked),
    };
    let uid = text(change.new.unwrap_or(change.old), &["metadata", "uid"]);
    let concerned = all.iter().filter_map(read).filter(|claim| *change.resource != pods() || claim.pod == uid);
    concerned.map(|claim| Place::new(resource(), &claim.namespace, &claim.name)).collect()
}

/// The claim without the annotation, where that does not hold.
pub fn must_be(object: &PolicyObject<'_>, view: &dyn View) -> Must {
    let claim = object.object;
    if !is_marked(claim) || is_made_for_its_pod(claim, object, view) {
        return Must::AsItIs;
    }
    let mut claim = claim.clone();
    if let Some(annotations) = claim.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(EXTENDED_CLAIM_ANNOTATION);
    }
    Must::Be(claim)
}

/// The owner is a pod that is there and asks for at least these devices, and no other claim stands for them.
fn is_made_for_its_pod(claim: &Value, object: &PolicyObject<'_>, view: &dyn View) -> bool {
    let Some(owner) = pod_owner(claim) else { return false };
    let Some(pod) = view.get(&pods(), object.namespace, text(owner, &["name"])) else {
        return false;
    };
    if text(&pod, &["metadata", "uid"]) != text(owner, &["uid"]) {
        return false;
    }
    let Ok(usage) = pod_usage_at(&pod, view.now_ms()) else { return false };
    let uid = text(owner, &["uid"]);
    let stands_for_the_same = |other: &Value| {
        text(other, &["metadata", "name"]) != object.name
            && is_marked(other)
            && items(other, &["metadata", "ownerReferences"]).iter().any(|owner| text(owner, &["uid"]) == uid)
    };
    asks_for_all(&usage, claim, view)
        && !view.list(&resource(), object.namespace).iter().any(|other| stands_for_the_same(other))
}

/// Whether a pod is charged for all the devices of a claim: under the name of their class itself, and for what that leaves open
/// under the name that the class declares. Where classes declare the same name, they share what was asked for under it.
fn asks_for_all(usage: &PodUsage, claim: &Value, view: &dyn View) -> bool {
    let asked = |name: &str| usage.requests.get(name).map_or(Amount::ZERO, |asked| asked.amount);
    let mut open: BTreeMap<String, Amount> = BTreeMap::new();
    for class in classes_of(claim) {
        let own = asked(&format!("deviceclass.resource.kubernetes.io/{class}"));
        let Some(left) = devices(claim, class).and_then(|wanted| wanted.amount.checked_sub(own)) else { return false };
        let definition = view.get(&device_classes::resource(), "", class);
        let extended = definition.map(|one| text(&one, &["spec", "extendedResourceName"]).to_string());
        let sum = open.entry(extended.unwrap_or_default()).or_insert(Amount::ZERO);
        let Some(more) = sum.checked_add(left.max(Amount::ZERO)) else { return false };
        *sum = more;
    }
    open.iter().all(|(name, left)| *left <= asked(name))
}
