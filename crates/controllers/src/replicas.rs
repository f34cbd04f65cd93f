//! ReplicaSets and ReplicationControllers: as many pods as asked for. Nothing runs them; they are stored and counted.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, PoisonError};

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kinds::conditions;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, Selector, SelectorExt};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::adoption::{adopt, controller_of, release};
use crate::events::Events;
use crate::glance::PodGlance;
use crate::pods::{Owned, is_active};
use crate::run::{Failed, Guarded, drive, gone_is_fine, guarded, is_shown, now, readable};

/// Pods made or removed in one look at a set; the next look goes on. Keeps one huge set from starving the rest.
const BURST_MAX: usize = 500;
/// Events told of one look at a set. Kubernetes combines what is alike after as many; more would bury the rest.
const EVENTS_MAX: usize = 10;
/// How soon a set is looked at again whose pods were refused.
const REFUSED_RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// What ReplicaSets and ReplicationControllers have in common.
trait Replicated:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    const API_VERSION: &'static str;
    const KIND: &'static str;
    /// The name under which its controller reports.
    const CONTROLLER: &'static str;
    fn replicas(&self) -> i32;
    fn template(&self) -> Option<PodTemplateSpec>;
    fn selector(&self) -> Option<LabelSelector>;
    fn shown_status(&self) -> Value;
}

impl Replicated for ReplicaSet {
    const API_VERSION: &'static str = "apps/v1";
    const KIND: &'static str = "ReplicaSet";
    const CONTROLLER: &'static str = "replicaset-controller";

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn template(&self) -> Option<PodTemplateSpec> {
        self.spec.as_ref()?.template.clone()
    }

    fn selector(&self) -> Option<LabelSelector> {
        Some(self.spec.as_ref()?.selector.clone())
    }

    fn shown_status(&self) -> Value {
        serde_json::to_value(&self.status).unwrap_or_default()
    }
}

impl Replicated for ReplicationController {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "ReplicationController";
    const CONTROLLER: &'static str = "replication-controller";

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn template(&self) -> Option<PodTemplateSpec> {
        self.spec.as_ref()?.template.clone()
    }

    fn selector(&self) -> Option<LabelSelector> {
        let labels = self.spec.as_ref()?.selector.clone().filter(|labels| !labels.is_empty())?;
        Some(LabelSelector { match_labels: Some(labels), match_expressions: None })
    }

    fn shown_status(&self) -> Value {
        serde_json::to_value(&self.status).unwrap_or_default()
    }
}

struct Context {
    client: Client,
    owned: Owned,
}

pub async fn replica_sets(client: Client, owned: Owned, pods: impl Stream<Item = Arc<PodGlance>> + Send + 'static) {
    run::<ReplicaSet>(client, owned, pods).await;
}

pub async fn replication_controllers(
    client: Client,
    owned: Owned,
    pods: impl Stream<Item = Arc<PodGlance>> + Send + 'static,
) {
    run::<ReplicationController>(client, owned, pods).await;
}

async fn run<K: Replicated>(client: Client, owned: Owned, pods: impl Stream<Item = Arc<PodGlance>> + Send + 'static) {
    let touched = pods.filter_map(|pod| async move { owner::<K>(&pod) });
    let controller =
        Controller::new(Api::<Guarded<K>>::all(client.clone()), watcher::Config::default()).reconcile_on(touched);
    drive(controller, guarded(K::KIND, reconcile::<K>), Arc::new(Context { client, owned }), K::KIND).await;
}

fn owner<K: Replicated>(pod: &PodGlance) -> Option<ObjectRef<Guarded<K>>> {
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    (owner.kind == K::KIND && owner.api_version == K::API_VERSION)
        .then(|| ObjectRef::new(&owner.name).within(&pod.namespace().unwrap_or_default()))
}

async fn reconcile<K: Replicated>(set: Arc<K>, context: Arc<Context>) -> Result<Action, Failed> {
    let client = &context.client;
    if set.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let (Some(template), Some(uid), Some(namespace)) = (set.template(), set.uid(), set.namespace()) else {
        return Ok(Action::await_change());
    };
    let api = Api::<Pod>::namespaced(client.clone(), &namespace);
    // The shared watch may lag behind our own creates, and a second batch would then be made: ask for the truth.
    let selector: Option<Selector> = set.selector().and_then(|selector| selector.try_into().ok());
    let Some(selector) = selector else { return Ok(Action::await_change()) };
    let all = Api::<Guarded<Pod>>::namespaced(client.clone(), &namespace);
    let listed = readable(&all, &kube::api::ListParams::default().labels_from(&selector), K::KIND).await?;
    let mut active = claimed(&*set, &api, listed, &uid, &context.owned).await?;
    let wanted = usize::try_from(set.replicas()).unwrap_or(0);
    let mut refusal = None;
    let events = Events::new(client, K::CONTROLLER);
    let mut told = 0;
    if active.len() < wanted {
        for _ in active.len()..wanted.min(active.len() + BURST_MAX) {
            match api.create(&PostParams::default(), &new_pod(&*set, &template, &uid)).await {
                Ok(pod) => {
                    if told < EVENTS_MAX {
                        events.normal(&*set, "SuccessfulCreate", &format!("Created pod: {}", pod.name_any())).await;
                    }
                    told += 1;
                    active.push(pod);
                }
                Err(kube::Error::Api(status)) => {
                    refusal = Some(status.message.clone());
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
    } else {
        // Those that are no loss go first, then the youngest: they have done the least.
        active.sort_by_key(|pod| {
            let young = std::cmp::Reverse((pod.creation_timestamp(), pod.name_any()));
            (pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()), condition(pod, "Ready"), young)
        });
        for pod in active.split_off_surplus(wanted).into_iter().take(BURST_MAX) {
            gone_is_fine(api.delete(&pod.name_any(), &DeleteParams::background()).await)?;
            if told < EVENTS_MAX {
                events.normal(&*set, "SuccessfulDelete", &format!("Deleted pod: {}", pod.name_any())).await;
            }
            told += 1;
        }
    }
    if let Some(message) = &refusal {
        report(&*set, &events, message).await;
    }
    write_status(&*set, client, &namespace, active.len(), &template, &active, refusal.as_deref()).await?;
    let more = active.len() < wanted && refusal.is_none();
    Ok(match (refusal, more) {
        (Some(_), _) => Action::requeue(REFUSED_RETRY),
        (None, true) => Action::requeue(std::time::Duration::ZERO),
        (None, false) => Action::await_change(),
    })
}

trait Surplus {
    /// Leaves `wanted` pods and returns the others, which stand in front.
    fn split_off_surplus(&mut self, wanted: usize) -> Vec<Pod>;
}

impl Surplus for Vec<Pod> {
    fn split_off_surplus(&mut self, wanted: usize) -> Vec<Pod> {
        let surplus = self.len().saturating_sub(wanted);
        self.drain(..surplus).collect()
    }
}

/// The pods that count for the set: its own, and those that its selector finds and nobody is in charge of, which it takes. It
/// lets go of those it has that the selector no longer finds.
async fn claimed<K: Replicated>(
    set: &K,
    api: &Api<Pod>,
    found: Vec<Pod>,
    uid: &str,
    owned: &Owned,
) -> Result<Vec<Pod>, Failed> {
    let names: HashSet<String> = found.iter().map(|pod| pod.name_any()).collect();
    let lost: Vec<String> = {
        let owned = owned.lock().unwrap_or_else(PoisonError::into_inner);
        owned.get(uid).into_iter().flatten().filter(|name| !names.contains(*name)).cloned().collect()
    };
    for name in lost {
        // It may have gone, or be another one by now.
        let Some(pod) = api.get_opt(&name).await? else { continue };
        let is_found = set.selector().and_then(|selector| Selector::try_from(selector).ok());
        let is_found = is_found.is_some_and(|selector| selector.matches(pod.labels()));
        if controller_of(&pod) == Some(uid) && !is_found && pod.metadata.deletion_timestamp.is_none() {
            release(api, &pod, uid).await?;
        }
    }
    let mut active = Vec::new();
    for pod in found.into_iter().filter(is_active) {
        match controller_of(&pod) {
            Some(owner) if owner == uid => active.push(pod),
            Some(_) => {}
            None => active.extend(adopt(api, &pod, owner_reference(set, uid)).await?),
        }
    }
    Ok(active)
}

fn owner_reference<K: Replicated>(set: &K, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: K::API_VERSION.into(),
        kind: K::KIND.into(),
        name: set.name_any(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn new_pod<K: Replicated>(set: &K, template: &PodTemplateSpec, uid: &str) -> Pod {
    let mut pod = Pod { spec: template.spec.clone(), ..Pod::default() };
    let metadata = template.metadata.clone().unwrap_or_default();
    pod.metadata.generate_name = Some(format!("{}-", set.name_any()));
    pod.metadata.labels = metadata.labels;
    pod.metadata.annotations = metadata.annotations;
    pod.metadata.finalizers = metadata.finalizers;
    pod.metadata.owner_references = Some(vec![owner_reference(set, uid)]);
    pod
}

/// A refusal without the name of the pod that was refused: `is forbidden: exceeded quota: …`.
fn gist(message: &str) -> &str {
    message.split_once("\" ").map_or(message, |(_, why)| why)
}

/// Tells whoever describes the set why it has too few pods: once, when the refusals begin.
async fn report<K: Replicated>(set: &K, events: &Events<'_>, message: &str) {
    if !conditions::holds(&set.shown_status()["conditions"], "ReplicaFailure") {
        events.warning(set, "FailedCreate", &format!("Error creating: {message}")).await;
    }
}

async fn write_status<K: Replicated>(
    set: &K,
    client: &Client,
    namespace: &str,
    replicas: usize,
    template: &PodTemplateSpec,
    active: &[Pod],
    refusal: Option<&str>,
) -> Result<(), Failed> {
    let labels: BTreeMap<String, String> =
        template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    let full =
        active.iter().filter(|pod| labels.iter().all(|(key, value)| pod.labels().get(key) == Some(value))).count();
    let ready = active.iter().filter(|pod| condition(pod, "Ready")).count();
    let shown = set.shown_status();
    let mut status = json!({
        "replicas": replicas,
        "fullyLabeledReplicas": full,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": set.meta().generation.unwrap_or(0),
    });
    let known = conditions::find(&shown["conditions"], "ReplicaFailure");
    let conditions = match (refusal, known) {
        // Every refused pod has another generated name in its message: a condition that followed the name would be
        // written again and again, and each write would wake this controller for the next.
        (Some(message), Some(known)) if known["message"].as_str().map(gist) == Some(gist(message)) => json!([known]),
        (Some(message), known) => {
            let mut failure = conditions::condition("ReplicaFailure", "True", "FailedCreate", message);
            conditions::since(&mut failure, "lastTransitionTime", known, conditions::NEWS, &now());
            json!([failure])
        }
        (None, Some(_)) => Value::Null,
        (None, None) => shown["conditions"].clone(),
    };
    status["conditions"] = conditions;
    if is_shown(&status, &shown) {
        return Ok(());
    }
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"status": status}));
    gone_is_fine(api.patch_status(&set.name_any(), &PatchParams::default(), &patch).await)?;
    Ok(())
}

fn condition(pod: &Pod, name: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == name && one.status == "True")
}
