//! What members tell of a binding's Works, in the binding's status and in its template's.

use kinds::conditions;
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::super::binding::BindingSpec;
use super::super::interpret;
use super::kind::{namespace_of, within};
use super::standing::with_condition;
use super::works::{Own, Works};

/// What one Work tells: an entry of a binding's `aggregatedStatus`.
fn entry(cluster: &str, work: &DynamicObject) -> Value {
    let status = &work.data["status"];
    let applied = status.get("conditions").and_then(|all| conditions::find(all, "Applied"));
    let is_applied = applied.is_some_and(|one| one["status"] == "True");
    let mut entry = json!({"clusterName": cluster, "applied": is_applied});
    if let Some(message) = applied.filter(|_| !is_applied).and_then(|one| one["message"].as_str()) {
        entry["appliedMessage"] = json!(message);
    }
    let told = status.get("manifestStatuses").and_then(Value::as_array).and_then(|list| list.first());
    entry["health"] = told.and_then(|one| one.get("health")).cloned().unwrap_or_else(|| json!("Unknown"));
    if let Some(status) = told.and_then(|one| one.get("status")).filter(|one| !one.is_null()) {
        entry["status"] = status.clone();
    }
    entry
}

pub async fn tell(works: &Works, binding: &DynamicObject, spec: &BindingSpec, own: &Own) -> kube::Result<()> {
    let entries: Vec<Value> = own.iter().map(|(cluster, work)| entry(cluster, work)).collect();
    let is_applied = |cluster: &str| entries.iter().any(|one| one["clusterName"] == cluster && one["applied"] == true);
    let is_whole = !spec.clusters.is_empty() && spec.clusters.iter().all(|target| is_applied(&target.name));
    let namespace = namespace_of(binding);
    let missing = spec.clusters.iter().filter(|target| !own.contains_key(&target.name));
    let waits = missing.filter_map(|target| Some((&target.name, works.not_kept_to(&namespace, &target.name)?))).next();
    let (is, reason, message) = match (is_whole, &waits) {
        (true, _) => ("True", "FullyAppliedSuccess", "All works have been successfully applied".to_owned()),
        (false, None) => {
            let message = "Failed to apply all works, see status.aggregatedStatus";
            ("False", "FullyAppliedFailed", message.to_owned())
        }
        (false, Some((cluster, quota))) => {
            let message = format!("cluster {cluster} does not keep to FederatedResourceQuota({namespace}/{quota}) yet");
            ("False", "FullyAppliedFailed", message)
        }
    };
    let status = &binding.data["status"];
    let condition = status.get("conditions").and_then(|all| conditions::find(all, "FullyApplied"));
    let is_told =
        condition.is_some_and(|one| one["status"] == is && one["reason"] == reason && one["message"] == message);
    let nothing = Vec::new();
    let shown = status.get("aggregatedStatus").and_then(Value::as_array).unwrap_or(&nothing);
    if *shown == entries && (is_told || (own.is_empty() && condition.is_none() && waits.is_none())) {
        return Ok(());
    }
    let conditions = with_condition(status, "FullyApplied", is, reason, &message);
    let patch = json!({"aggregatedStatus": entries, "conditions": conditions});
    // The scheduler writes conditions, too: what it says must not be taken back by a copy of what it said before.
    let version = json!({"resourceVersion": binding.metadata.resource_version});
    let patch = Patch::Merge(json!({"metadata": version, "status": patch}));
    let api = within(&works.client, &works.bindings.kind, &namespace);
    api.patch_status(&binding.name_any(), &PatchParams::default(), &patch).await?;
    tell_template(works, spec, &namespace, &entries).await;
    Ok(())
}

/// The template's status, of all clusters together. Who may not write it, or cannot, loses nothing but the convenience.
async fn tell_template(works: &Works, spec: &BindingSpec, namespace: &str, entries: &[Value]) {
    let template = json!({"apiVersion": spec.resource.api_version, "kind": spec.resource.kind});
    let of = |entry: &Value| spec.is_on(entry["clusterName"].as_str().unwrap_or(""));
    let told: Vec<(&str, &Value)> = entries
        .iter()
        .filter(|entry| of(entry))
        .filter_map(|entry| Some((entry["clusterName"].as_str()?, entry.get("status")?)))
        .collect();
    let Some(status) = interpret::aggregate(&template, &told) else { return };
    let (group, version) = spec.resource.api_version.split_once('/').unwrap_or(("", &spec.resource.api_version));
    let wanted = GroupVersionKind::gvk(group, version, &spec.resource.kind);
    let Ok((kind, _)) = kube::discovery::pinned_kind(&works.client, &wanted).await else { return };
    let api = within(&works.client, &kind, namespace);
    let patch = Patch::Merge(json!({ "status": status }));
    if let Err(error) = api.patch_status(&spec.resource.name, &PatchParams::default(), &patch).await {
        tracing::debug!(%error, template = spec.resource.name, "the template's status is not told");
    }
}
