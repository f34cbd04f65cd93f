//! One eviction: what a binding had in a cluster is taken out of its placement, and stays charged until it is placed anew.

use kinds::fields::items;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::super::binding::{BindingSpec, PURGE_MODES};
use super::kind::{bindings, namespace_of, within};
use super::standing::{Recorder, now, tell};

/// Why, by whom, and what becomes of the old copy.
pub struct Eviction<'a> {
    pub purge_mode: &'a str,
    /// For how long the old copy may stay, where that is said.
    pub grace_seconds: Option<u64>,
    pub reason: &'a str,
    pub producer: &'a str,
}

/// One write: the cluster out of the placement, and a task in its place that says how much it had. What was there stays
/// charged until it is placed anew.
pub async fn evict(
    client: &Client,
    recorder: &Recorder,
    binding: &DynamicObject,
    spec: &BindingSpec,
    cluster: &str,
    eviction: &Eviction<'_>,
) -> kube::Result<()> {
    let stored = &binding.data["spec"];
    let kept: Vec<&Value> = items(stored, &["clusters"]).iter().filter(|one| one["name"] != cluster).collect();
    let mut tasks: Vec<Value> = items(stored, &["gracefulEvictionTasks"]).to_vec();
    let mode = if PURGE_MODES.contains(&eviction.purge_mode) { eviction.purge_mode } else { "Gracefully" };
    let had = spec.clusters.iter().find(|target| target.name == cluster);
    // One that an earlier eviction left is of that time; this one's copy stays from now on.
    let stale = tasks.iter().position(|task| task["fromCluster"] == cluster).map(|at| tasks.remove(at));
    let mut task = json!({
        "fromCluster": cluster,
        "purgeMode": mode,
        "replicas": had.map_or(0, |target| target.replicas),
        "reason": eviction.reason,
        "producer": eviction.producer,
        "creationTimestamp": now(),
        "clustersBeforeFailover": spec.clusters.iter().map(|target| &target.name).collect::<Vec<_>>(),
    });
    if let Some(seconds) = eviction.grace_seconds.map(|seconds| seconds.min(i32::MAX as u64)) {
        task["gracePeriodSeconds"] = json!(seconds);
    }
    if let Some(wish) = stale.as_ref().and_then(|stale| stale.get("suppressDeletion")) {
        task["suppressDeletion"] = wish.clone();
    }
    tasks.push(task);
    let patch = Patch::Merge(json!({
        "metadata": {"uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version},
        "spec": {"clusters": kept, "gracefulEvictionTasks": tasks},
    }));
    let api = within(client, &bindings(), &namespace_of(binding));
    api.patch(&binding.name_any(), &PatchParams::default(), &patch).await?;
    let note = format!("Evict from cluster {cluster} succeed.");
    tell(recorder, binding, &bindings(), false, "EvictWorkloadFromClusterSucceed", &note).await;
    Ok(())
}
