//! Deployments: one ReplicaSet a template, the current one at full size, older ones at none.
//!
//! Nothing runs pods here, so nothing becomes ready: a new template takes over at once instead of waiting for
//! readiness that never comes.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::events::Events;
use crate::run::{Failed, Guarded, drive, exists_is_fine, gone_is_fine, guarded, readable};

const HASH_LABEL: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
/// Old ReplicaSets kept for rollbacks when the Deployment does not say.
const HISTORY_DEFAULT: i32 = 10;

pub async fn run(client: Client) {
    let controller = Controller::new(Api::<Guarded<Deployment>>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Guarded<ReplicaSet>>::all(client.clone()), watcher::Config::default());
    drive(controller, guarded("deployments", reconcile), Arc::new(client), "deployments").await;
}

async fn reconcile(deployment: Arc<Deployment>, client: Arc<Client>) -> Result<Action, Failed> {
    let (Some(spec), Some(namespace), Some(uid)) = (&deployment.spec, deployment.namespace(), deployment.uid()) else {
        return Ok(Action::await_change());
    };
    if deployment.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let wanted_template = &spec.template;
    let events = Events::new(&client, "deployment-controller");
    let sets = Api::<ReplicaSet>::namespaced((*client).clone(), &namespace);
    let all_sets = Api::<Guarded<ReplicaSet>>::namespaced((*client).clone(), &namespace);
    let mut owned: Vec<ReplicaSet> = readable(&all_sets, &ListParams::default(), "deployments")
        .await?
        .into_iter()
        .filter(|set| set.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid))
        .collect();
    owned.sort_by_key(|set| (revision(set), set.name_any()));
    let newest = owned.last().map_or(0, revision);
    let current = owned.iter().position(|set| same_template(set, wanted_template));
    let paused = spec.paused == Some(true);
    let replicas = spec.replicas.unwrap_or(1);
    let current = match current {
        Some(at) => {
            let set = owned.remove(at);
            let number = if revision(&set) < newest { newest + 1 } else { revision(&set) };
            if resize(&sets, &set, replicas, Some(number)).await? {
                scaled(&events, &deployment, &set.name_any(), size(&set), replicas).await;
            }
            Some(set)
        }
        None if paused => None,
        None => {
            let made = new_set(&deployment, wanted_template, replicas, newest + 1);
            let made = exists_is_fine(sets.create(&PostParams::default(), &made).await)?;
            if let Some(made) = made.as_ref().filter(|_| replicas > 0) {
                scaled(&events, &deployment, &made.name_any(), 0, replicas).await;
            }
            made
        }
    };
    if !paused {
        for old in &owned {
            if resize(&sets, old, 0, None).await? {
                scaled(&events, &deployment, &old.name_any(), size(old), 0).await;
            }
        }
        let keep = usize::try_from(spec.revision_history_limit.unwrap_or(HISTORY_DEFAULT)).unwrap_or(0);
        for old in owned.iter().take(owned.len().saturating_sub(keep)) {
            if size(old) == 0 && status_replicas(old) == 0 {
                gone_is_fine(sets.delete(&old.name_any(), &DeleteParams::background()).await)?;
            }
        }
    }
    write_status(&deployment, &client, &namespace, current.as_ref(), &owned, newest).await?;
    Ok(Action::await_change())
}

fn revision(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn status_replicas(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

/// Whether the set was made from this template; the hash label is ours and does not count.
fn same_template(set: &ReplicaSet, template: &PodTemplateSpec) -> bool {
    let Some(mut own) = set.spec.as_ref().and_then(|spec| spec.template.clone()) else { return false };
    if let Some(labels) = own.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        labels.remove(HASH_LABEL);
    }
    let tree = |template: &PodTemplateSpec| serde_json::to_value(template).unwrap_or_default();
    tree(&own) == tree(template)
}

fn new_set(deployment: &Deployment, template: &PodTemplateSpec, replicas: i32, number: i64) -> ReplicaSet {
    let hash = template_hash(template, deployment.status.as_ref().and_then(|status| status.collision_count));
    let mut template = template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.into(), hash.clone());
    let labels = labels.clone();
    let mut selector = deployment.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.into(), hash.clone());
    let mut set = ReplicaSet::default();
    set.metadata.name = Some(format!("{}-{hash}", deployment.name_any()));
    set.metadata.namespace = deployment.namespace();
    set.metadata.labels = Some(labels);
    let mut annotations: BTreeMap<String, String> = deployment.annotations().clone();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.insert(REVISION.into(), number.to_string());
    annotations.insert("deployment.kubernetes.io/desired-replicas".into(), replicas.to_string());
    set.metadata.annotations = Some(annotations);
    set.metadata.owner_references = deployment
        .controller_owner_ref(&())
        .map(|owner| vec![OwnerReference { block_owner_deletion: Some(true), ..owner }]);
    let min_ready_seconds = deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
    set.spec = Some(ReplicaSetSpec { replicas: Some(replicas), selector, template: Some(template), min_ready_seconds });
    set
}

/// A short name for a template, in the alphabet Kubernetes uses so that no word is spelled by accident.
fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hasher = std::hash::DefaultHasher::new();
    serde_json::to_string(template).unwrap_or_default().hash(&mut hasher);
    collisions.unwrap_or(0).hash(&mut hasher);
    let mut rest = hasher.finish();
    let mut text = String::new();
    for _ in 0..10 {
        let index = usize::try_from(rest % ALPHABET.len() as u64).unwrap_or(0);
        text.push(char::from(ALPHABET[index]));
        rest /= ALPHABET.len() as u64;
    }
    text
}

/// Tells of a ReplicaSet that was made larger or smaller.
async fn scaled(events: &Events<'_>, deployment: &Deployment, set: &str, from: i32, to: i32) {
    let direction = if to > from { "up" } else { "down" };
    let message = format!("Scaled {direction} replica set {set} from {from} to {to}");
    events.normal(deployment, "ScalingReplicaSet", &message).await;
}

/// Brings a set to a size and a number. Whether its size changed.
async fn resize(sets: &Api<ReplicaSet>, set: &ReplicaSet, replicas: i32, number: Option<i64>) -> Result<bool, Failed> {
    let renumber = number.filter(|number| *number != revision(set));
    if size(set) == replicas && renumber.is_none() {
        return Ok(false);
    }
    let mut patch = json!({"spec": {"replicas": replicas}});
    if let Some(number) = renumber {
        patch["metadata"] = json!({"annotations": {REVISION: number.to_string()}});
    }
    let patched = gone_is_fine(sets.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)?;
    Ok(patched.is_some() && size(set) != replicas)
}

async fn write_status(
    deployment: &Deployment,
    client: &Client,
    namespace: &str,
    current: Option<&ReplicaSet>,
    old: &[ReplicaSet],
    newest: i64,
) -> Result<(), Failed> {
    let all = || current.into_iter().chain(old);
    let sum = |count: fn(&ReplicaSet) -> i32| all().map(count).sum::<i32>();
    let ready = |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let total = sum(status_replicas);
    let available = sum(ready);
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let failure = all().find_map(|set| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|one| one.type_ == "ReplicaFailure" && one.status == "True")
    });
    let enough = available >= wanted;
    let mut conditions = vec![json!({
        "type": "Available",
        "status": if enough { "True" } else { "False" },
        "reason": if enough { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" },
        "message": if enough { "Deployment has minimum availability." } else { "Deployment does not have minimum availability." },
    })];
    conditions.push(json!({
        "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
        "message": format!("ReplicaSet {:?} is progressing.", current.map(|set| set.name_any()).unwrap_or_default()),
    }));
    if let Some(failure) = failure {
        conditions.push(json!({
            "type": "ReplicaFailure", "status": "True", "reason": failure.reason, "message": failure.message,
        }));
    }
    let shown = serde_json::to_value(&deployment.status).unwrap_or_default();
    stamp(&mut conditions, &shown["conditions"]);
    let status = json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": total,
        "updatedReplicas": current.map_or(0, status_replicas),
        "readyReplicas": available,
        "availableReplicas": available,
        "unavailableReplicas": (wanted - available).max(0),
        "conditions": conditions,
    });
    let same = status.as_object().into_iter().flatten().all(|(field, value)| {
        let shown = shown.get(field).unwrap_or(&Value::Null);
        shown == value || (shown.is_null() && *value == json!(0))
    });
    let number = current.map_or(newest, revision).to_string();
    let renumbered = current.is_some() && deployment.annotations().get(REVISION) != Some(&number);
    if same && !renumbered {
        return Ok(());
    }
    // The number goes with the status: an annotation written by itself would count as a new generation.
    let mut patch = json!({"status": status});
    if renumbered {
        patch["metadata"] = json!({"annotations": {REVISION: number}});
    }
    let api = Api::<Deployment>::namespaced(client.clone(), namespace);
    gone_is_fine(api.patch_status(&deployment.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)?;
    Ok(())
}

/// Keeps the times of conditions that did not change, and sets those of the others to now.
fn stamp(conditions: &mut [Value], shown: &Value) {
    let now = json!(jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default());
    for condition in conditions {
        let known = shown.as_array().into_iter().flatten().find(|one| one["type"] == condition["type"]);
        let keeps =
            |fields: &[&str]| known.filter(|known| fields.iter().all(|field| known[*field] == condition[*field]));
        let moved = keeps(&["status"]).map(|known| known["lastTransitionTime"].clone());
        let updated = keeps(&["status", "reason", "message"]).map(|known| known["lastUpdateTime"].clone());
        condition["lastTransitionTime"] = moved.unwrap_or_else(|| now.clone());
        condition["lastUpdateTime"] = updated.unwrap_or_else(|| now.clone());
    }
}
