//! Deployments: one ReplicaSet a template. How large each is to be next is [`crate::rollout`]'s to say.
//!
//! Nothing here runs pods. Where nothing else does either, nothing becomes ready, and a rolling update waits half way, as it does
//! in a cluster without nodes.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kinds::conditions;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{Selector, SelectorExt};
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::adoption::{adopt, controller_of, release};
use crate::events::Events;
use crate::rollout::{self, Set, Wish};
use crate::run::{Failed, Guarded, drive, exists_is_fine, gone_is_fine, guarded, is_shown, now, readable};

const HASH_LABEL: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
/// What a set was sized for.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const PODS_MAX: &str = "deployment.kubernetes.io/max-replicas";
/// How soon another name is tried, or a set seen that was just made.
const COLLIDED_RETRY: std::time::Duration = std::time::Duration::from_millis(100);
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
    let events = Events::new(&client, "deployment-controller");
    let sets = Api::<ReplicaSet>::namespaced((*client).clone(), &namespace);
    let all_sets = Api::<Guarded<ReplicaSet>>::namespaced((*client).clone(), &namespace);
    let found = readable(&all_sets, &ListParams::default(), "deployments").await?;
    let mut others = claimed(&deployment, spec, &sets, found, &uid).await?;
    // By age, as Kubernetes orders them: should several be of the template, the oldest is it, whatever anybody wrote on them.
    others.sort_by_key(|set| (set.creation_timestamp(), set.name_any()));
    let mut current = others.iter().position(|set| same_template(set, &spec.template)).map(|at| others.remove(at));
    let newest = others.iter().map(revision).max().unwrap_or(0);
    let wish = Wish::of(spec);
    let sizes: Vec<Set> = others.iter().map(sized).collect();
    let next = rollout::next(&wish, current.as_ref().map(sized).as_ref(), &sizes);
    let number =
        current.as_ref().map_or(newest + 1, |set| if revision(set) <= newest { newest + 1 } else { revision(set) });
    match (&current, next.current) {
        (Some(set), size) => {
            let wanted = size.unwrap_or(size_of(set));
            if resize(&sets, set, wanted, Some(number), &wish).await? {
                scaled(&events, &deployment, &set.name_any(), size_of(set), wanted).await;
            }
        }
        (None, Some(size)) => {
            let made = new_set(&deployment, &spec.template, size, number, &wish);
            current = match exists_is_fine(sets.create(&PostParams::default(), &made).await)? {
                Some(made) => Some(made),
                None => return collided(&deployment, &client, &namespace, &sets, &made.name_any(), &uid).await,
            };
            if let Some(made) = current.as_ref().filter(|_| size > 0) {
                scaled(&events, &deployment, &made.name_any(), 0, size).await;
            }
        }
        (None, None) => {}
    }
    for (old, size) in others.iter().zip(&next.others) {
        if resize(&sets, old, *size, None, &wish).await? {
            scaled(&events, &deployment, &old.name_any(), size_of(old), *size).await;
        }
    }
    clean_up(spec, &sets, &others).await?;
    write_status(&deployment, &client, &namespace, current.as_ref(), &others, newest).await?;
    Ok(Action::await_change())
}

/// The sets the Deployment is in charge of. It takes those that its selector finds and that are nobody's, and lets go of those
/// that it no longer finds.
async fn claimed(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    sets: &Api<ReplicaSet>,
    found: Vec<ReplicaSet>,
    uid: &str,
) -> Result<Vec<ReplicaSet>, Failed> {
    let selector: Option<Selector> = spec.selector.clone().try_into().ok();
    let Some(selector) = selector.filter(|selector| !selector.selects_all()) else { return Ok(Vec::new()) };
    let mut claimed = Vec::new();
    for set in found {
        let is_found = selector.matches(set.labels());
        match controller_of(&set) {
            Some(owner) if owner != uid => {}
            Some(_) if is_found || set.metadata.deletion_timestamp.is_some() => claimed.push(set),
            Some(_) => release(sets, &set, uid).await?,
            None if !is_found || set.metadata.deletion_timestamp.is_some() => {}
            None => claimed.extend(match owner_reference(deployment) {
                Some(owner) => adopt(sets, &set, owner).await?,
                None => None,
            }),
        }
    }
    Ok(claimed)
}

fn owner_reference(deployment: &Deployment) -> Option<OwnerReference> {
    deployment.controller_owner_ref(&()).map(|owner| OwnerReference { block_owner_deletion: Some(true), ..owner })
}

/// The name for a new set is taken. By a set of ours that was not seen yet, it will be; by another, the next name is tried.
async fn collided(
    deployment: &Deployment,
    client: &Client,
    namespace: &str,
    sets: &Api<ReplicaSet>,
    name: &str,
    uid: &str,
) -> Result<Action, Failed> {
    let taken = sets.get_opt(name).await?;
    if taken.as_ref().and_then(controller_of) != Some(uid) && taken.is_some() {
        let count = deployment.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
        let api = Api::<Deployment>::namespaced(client.clone(), namespace);
        let patch = Patch::Merge(json!({"status": {"collisionCount": count.saturating_add(1)}}));
        gone_is_fine(api.patch_status(&deployment.name_any(), &PatchParams::default(), &patch).await)?;
    }
    Ok(Action::requeue(COLLIDED_RETRY))
}

/// Removes old sets without pods beyond those kept for rollbacks, the oldest revision first.
async fn clean_up(spec: &DeploymentSpec, sets: &Api<ReplicaSet>, others: &[ReplicaSet]) -> Result<(), Failed> {
    let keep = usize::try_from(spec.revision_history_limit.unwrap_or(HISTORY_DEFAULT)).unwrap_or(0);
    let mut oldest: Vec<&ReplicaSet> = others.iter().collect();
    oldest.sort_by_key(|set| (revision(set), set.creation_timestamp(), set.name_any()));
    for old in oldest.iter().take(others.len().saturating_sub(keep)) {
        let observed = old.status.as_ref().and_then(|status| status.observed_generation) >= old.metadata.generation;
        if size_of(old) == 0 && status_replicas(old) == 0 && observed && old.metadata.deletion_timestamp.is_none() {
            gone_is_fine(sets.delete(&old.name_any(), &DeleteParams::background()).await)?;
        }
    }
    Ok(())
}

/// A set as a rollout sees it.
fn sized(set: &ReplicaSet) -> Set {
    let number = |name: &str| set.annotations().get(name).and_then(|text| text.parse().ok());
    let available = set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    Set {
        size: size_of(set),
        pods: status_replicas(set),
        available,
        desired: number(DESIRED),
        pods_max: number(PODS_MAX),
    }
}

fn revision(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn size_of(set: &ReplicaSet) -> i32 {
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

fn new_set(deployment: &Deployment, template: &PodTemplateSpec, replicas: i32, number: i64, wish: &Wish) -> ReplicaSet {
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
    annotations.insert(DESIRED.into(), wish.replicas.to_string());
    annotations.insert(PODS_MAX.into(), wish.pods_max().to_string());
    set.metadata.annotations = Some(annotations);
    set.metadata.owner_references = owner_reference(deployment).map(|owner| vec![owner]);
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

/// Brings a set to a size and a number, and notes on it what it was sized for. Whether its size changed. What is as it has to be
/// is not written.
async fn resize(
    sets: &Api<ReplicaSet>,
    set: &ReplicaSet,
    replicas: i32,
    number: Option<i64>,
    wish: &Wish,
) -> Result<bool, Failed> {
    let mut notes = serde_json::Map::new();
    let mut note = |name: &str, value: String| {
        if set.annotations().get(name) != Some(&value) {
            notes.insert(name.into(), value.into());
        }
    };
    if let Some(number) = number {
        note(REVISION, number.to_string());
    }
    if size_of(set) > 0 || replicas > 0 {
        note(DESIRED, wish.replicas.to_string());
        note(PODS_MAX, wish.pods_max().to_string());
    }
    let resizes = size_of(set) != replicas;
    if !resizes && notes.is_empty() {
        return Ok(false);
    }
    let mut patch = json!({"metadata": {"uid": set.metadata.uid, "annotations": notes}});
    if resizes {
        patch["spec"] = json!({"replicas": replicas});
    }
    let patched = gone_is_fine(sets.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)?;
    Ok(patched.is_some() && resizes)
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
    let number = current.map_or(newest, revision).to_string();
    let renumbered = current.is_some() && deployment.annotations().get(REVISION) != Some(&number);
    if is_shown(&status, &shown) && !renumbered {
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
    let now = now();
    for condition in conditions {
        let known = conditions::find(shown, condition["type"].as_str().unwrap_or_default());
        conditions::since(condition, "lastTransitionTime", known, conditions::TRANSITION, &now);
        conditions::since(condition, "lastUpdateTime", known, conditions::NEWS, &now);
    }
}
