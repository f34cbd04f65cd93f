//! One quota over many clusters: a control plane and members, each a process of its own.

mod brought;
mod elastic;
mod elastic_outage;
mod fleet;
mod flink;
mod growth;
mod mends;
mod nodes;
mod observer;
mod real;
mod settings;
mod spark;
mod story;
mod taints;
mod tenants;
mod waiting;

use std::collections::BTreeSet;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn quotas() -> ApiResource {
    kind("policy.karmada.io", "v1alpha1", "FederatedResourceQuota", "federatedresourcequotas")
}

fn policies() -> ApiResource {
    kind("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies")
}

fn taint_policies() -> ApiResource {
    kind("policy.karmada.io", "v1alpha1", "ClusterTaintPolicy", "clustertaintpolicies")
}

fn bindings() -> ApiResource {
    kind("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings")
}

fn clusters() -> ApiResource {
    kind("cluster.karmada.io", "v1alpha1", "Cluster", "clusters")
}

fn flinks() -> ApiResource {
    kind("flink.apache.org", "v1beta1", "FlinkDeployment", "flinkdeployments")
}

fn sparks() -> ApiResource {
    kind("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications")
}

fn leases() -> ApiResource {
    kind("policy.karmada.io", "v1alpha1", "FederatedQuotaLease", "federatedquotaleases")
}

fn slices() -> ApiResource {
    kind("policy.karmada.io", "v1alpha1", "FederatedQuotaSlice", "federatedquotaslices")
}

fn deployments() -> ApiResource {
    kind("apps", "v1", "Deployment", "deployments")
}

/// So many pods of a CPU each.
fn deployment(replicas: u32) -> Value {
    let resources = json!({"requests": {"cpu": "1"}});
    let template = json!({
        "metadata": {"labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    });
    json!({"replicas": replicas, "selector": {"matchLabels": {"app": "w"}}, "template": template})
}

/// A policy that sends all of a kind to any cluster.
fn everything(api_version: &str, kind: &str) -> Value {
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    json!({"resourceSelectors": [{"apiVersion": api_version, "kind": kind}], "placement": placement})
}

const TEAM: &str = "team";

/// The objects of a kind in the team's namespace, or in none.
fn api(client: &kube::Client, of: &ApiResource) -> Api<DynamicObject> {
    match &*of.plural {
        "clusters" | "clustertaintpolicies" => Api::all_with(client.clone(), of),
        _ => Api::namespaced_with(client.clone(), TEAM, of),
    }
}

async fn create(client: &kube::Client, of: &ApiResource, name: &str, spec: Value) -> kube::Result<DynamicObject> {
    let object = json!({"apiVersion": of.api_version, "kind": of.kind, "metadata": {"name": name}, "spec": spec});
    api(client, of).create(&PostParams::default(), &crate::object(object)).await
}

async fn edit(client: &kube::Client, of: &ApiResource, name: &str, patch: Value) -> kube::Result<DynamicObject> {
    api(client, of).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

async fn events(client: &kube::Client) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(client.clone(), TEAM);
    events.list(&ListParams::default()).await.expect("events").items
}

/// Waits until an event of the team says this, for this reason.
async fn told(client: &kube::Client, reason: &str, words: &str) {
    let is_told = |event: &Event| {
        event.reason.as_deref() == Some(reason) && event.note.as_deref().is_some_and(|note| note.contains(words))
    };
    let told = async {
        while !events(client).await.iter().any(is_told) {
            tokio::task::yield_now().await;
        }
    };
    let told = tokio::time::timeout(crate::harness::PATIENCE, told).await;
    told.unwrap_or_else(|_| panic!("no event {reason} ever said: {words}"));
}

/// What events were told for so far.
async fn reasons(client: &kube::Client) -> Vec<String> {
    let all: BTreeSet<String> = events(client).await.into_iter().filter_map(|event| event.reason).collect();
    all.into_iter().collect()
}

/// The condition that says whether a binding is scheduled: its status, reason and message.
fn scheduled(binding: &DynamicObject) -> (String, String) {
    let list = binding.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = list.into_iter().find(|one| one["type"] == "Scheduled").unwrap_or_default();
    let text = |field: &str| condition[field].as_str().unwrap_or("").to_owned();
    (text("reason"), text("message"))
}

/// The clusters a binding is on.
fn placed(binding: &DynamicObject) -> Vec<String> {
    let list = binding.data["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    list.iter().map(|one| one["name"].as_str().unwrap_or("").to_owned()).collect()
}
