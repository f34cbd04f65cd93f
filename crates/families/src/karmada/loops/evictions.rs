//! The end of an eviction: the old copy stays until the workload is placed anew and well there, and then goes. What is not placed
//! anew keeps its task, and with it its charge: nobody else gets what it needs.

use std::time::Duration;

use kinds::conditions;
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::super::binding::{BindingSpec, EvictionTask};
use super::kind::{namespace_of, within};
use super::standing::now_ms;
use super::works::{Own, Works};

/// How long an old copy stays beside a new one that does not come to be well.
const GRACE: Duration = Duration::from_secs(600);

/// Whether a cluster's Work stays although the binding is not there any more.
pub fn keeps(spec: &BindingSpec, cluster: &str) -> bool {
    let task = spec.graceful_eviction_tasks.iter().find(|task| task.from_cluster == cluster);
    task.is_some_and(|task| {
        let goes_at_once = matches!(&*task.purge_mode, "Directly" | "Immediately");
        task.suppress_deletion == Some(true) || task.purge_mode == "Never" || !goes_at_once
    })
}

/// Takes away the tasks that are done; when to look again.
pub async fn finish(
    works: &Works,
    binding: &DynamicObject,
    spec: &BindingSpec,
    own: &Own,
) -> kube::Result<Option<Duration>> {
    if spec.graceful_eviction_tasks.is_empty() {
        return Ok(None);
    }
    let is_replaced = spec.is_replaced();
    // Where all is placed that is to be, a cluster that is not chosen any more has nothing to come back to.
    let is_settled = is_scheduled(binding);
    let is_well =
        is_replaced && spec.clusters.iter().all(|target| own.get(&target.name).is_some_and(|work| is_well(work)));
    let mut rest: Option<Duration> = None;
    let mut kept = Vec::new();
    for task in &spec.graceful_eviction_tasks {
        let is_held = task.suppress_deletion == Some(true) || task.purge_mode == "Never";
        let left = is_replaced.then(|| left(task)).filter(|left| !left.is_zero());
        // What is back again has left no old copy.
        let has_none = !own.contains_key(&task.from_cluster) || spec.is_on(&task.from_cluster);
        let is_over = is_replaced && (is_well || left.is_none() || has_none);
        if !is_held && (is_over || (is_settled && !works.may_have(spec, &task.from_cluster))) {
            continue;
        }
        rest = [rest, left].into_iter().flatten().min();
        kept.push(&task.from_cluster);
    }
    if kept.len() == spec.graceful_eviction_tasks.len() {
        return Ok(rest);
    }
    // Written as they are stored: with fields that are not read here.
    let stored = binding.data["spec"]["gracefulEvictionTasks"].as_array().cloned().unwrap_or_default();
    let is_kept = |task: &&Value| kept.iter().any(|from| task["fromCluster"] == ***from);
    let tasks: Vec<&Value> = stored.iter().filter(is_kept).collect();
    let patch = json!({
        "metadata": {"uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version},
        "spec": {"gracefulEvictionTasks": if tasks.is_empty() { Value::Null } else { json!(tasks) }},
    });
    let api = within(&works.client, &works.bindings.kind, &namespace_of(binding));
    api.patch(&binding.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(rest)
}

/// Whether the scheduler has seen to the binding as it is, and placed all of it.
fn is_scheduled(binding: &DynamicObject) -> bool {
    let status = &binding.data["status"];
    let condition = status.get("conditions").and_then(|all| conditions::find(all, "Scheduled"));
    let is_seen = status["schedulerObservedGeneration"].as_i64() == binding.metadata.generation;
    is_seen && condition.is_some_and(|one| one["status"] == "True")
}

fn is_well(work: &DynamicObject) -> bool {
    let told = work.data["status"]["manifestStatuses"].as_array().and_then(|list| list.first());
    told.is_some_and(|one| one["health"] == "Healthy")
}

/// What is left of the time an old copy may stay.
fn left(task: &EvictionTask) -> Duration {
    let grace = task.grace_period_seconds.map_or(GRACE, |seconds| Duration::from_secs(seconds.into()));
    let since = task.creation_timestamp.as_deref().and_then(kinds::time::read_ms).unwrap_or(0);
    let passed = u64::try_from(now_ms().saturating_sub(since)).unwrap_or(0);
    grace.saturating_sub(Duration::from_millis(passed))
}
