//! Static assignments: a ResourceQuota in each cluster that a quota names, kept there by a Work, and what the clusters say of
//! them in the quota's status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kinds::conditions;
use kinds::fields::{items, text};
use kinds::resources::quantity_of;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::detector::words;
use super::difference::covers;
use super::kind::{
    MANAGED, WORK_FINALIZER, cluster_of, clusters, fingerprint, is_leaving, namespace_of, quotas, within,
    work_namespace, works,
};
use super::standing::{Recorder, is_passing, is_ready, patch_status, recorder, tell, with_condition};
use super::watch::{Mirror, Watch};
use super::works::create_in;

const QUOTA_NAMESPACE: &str = "federatedresourcequota.karmada.io/namespace";
const QUOTA_NAME: &str = "federatedresourcequota.karmada.io/name";
const RETRY: Duration = Duration::from_secs(1);
/// The condition that says whether clusters have what they were assigned.
const ASSIGNED: &str = "AssignmentsApplied";

struct Assignments {
    client: Client,
    quotas: Mirror,
    clusters: Mirror,
    works: Mirror,
    recorder: Recorder,
}

/// The Works of one quota, by cluster.
type Own = BTreeMap<String, Arc<DynamicObject>>;

pub async fn run(client: Client) {
    let watch = Watch::new();
    let config = watcher::Config::default;
    let quotas = watch.mirror(&client, &quotas(), "", config());
    let clusters = watch.mirror(&client, &clusters(), "", config());
    let works = watch.mirror(&client, &works(), "", config().labels(QUOTA_NAME));
    for mirror in [&quotas, &clusters, &works] {
        mirror.ready().await;
    }
    let recorder = recorder(&client, "federated-resource-quota-sync-controller");
    let assignments = Assignments { client, quotas, clusters, works, recorder };
    loop {
        let is_settled = assignments.look().await;
        watch.rung(if is_settled { Duration::from_secs(3600) } else { RETRY }).await;
    }
}

impl Assignments {
    async fn look(&self) -> bool {
        let mut owned: BTreeMap<(String, String), Own> = BTreeMap::new();
        for work in self.works.all() {
            let label = |name: &str| work.labels().get(name).cloned().unwrap_or_default();
            let namespace = namespace_of(&work);
            let Some(cluster) = cluster_of(&namespace) else { continue };
            owned
                .entry((label(QUOTA_NAMESPACE), label(QUOTA_NAME)))
                .or_default()
                .insert(cluster.to_owned(), work.clone());
        }
        let mut is_settled = true;
        for quota in self.quotas.all() {
            let own = owned.remove(&(namespace_of(&quota), quota.name_any())).unwrap_or_default();
            let done = match is_leaving(&quota) {
                true => self.drop_all(own).await,
                false => self.tend(&quota, own).await,
            };
            if let Err(error) = done {
                is_settled = false;
                if !is_passing(&error) {
                    let note = words(&error);
                    tell(&self.recorder, &quota, &self.quotas.kind, true, "SyncWorkFailed", &note).await;
                }
            }
        }
        // What is left belongs to quotas that are gone.
        for own in owned.into_values() {
            is_settled &= self.drop_all(own).await.is_ok();
        }
        is_settled
    }

    async fn drop_all(&self, own: Own) -> kube::Result<()> {
        for work in own.values().filter(|work| !is_leaving(work)) {
            let api = within(&self.client, &self.works.kind, &namespace_of(work));
            match api.delete(&work.name_any(), &DeleteParams::default()).await {
                Err(error) if !is_passing(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    async fn tend(&self, quota: &DynamicObject, mut own: Own) -> kube::Result<()> {
        let assignments = items(&quota.data, &["spec", "staticAssignments"]);
        let (mut is_changed, mut failed) = (false, None);
        let mut kept = Own::new();
        for assignment in assignments {
            let cluster = text(assignment, &["clusterName"]);
            let work = own.remove(cluster);
            if let Some(work) = &work {
                kept.insert(cluster.to_owned(), work.clone());
            }
            let is_known = self.clusters.get("", cluster).is_some_and(|cluster| !is_leaving(&cluster));
            if is_known && !work.as_ref().is_some_and(|work| is_leaving(work)) {
                // A cluster whose Work cannot be written keeps none of the others waiting.
                match self.put(quota, cluster, &assignment["hard"], work.as_deref()).await {
                    Ok(is_news) => is_changed |= is_news,
                    Err(error) => failed = Some(error),
                }
            }
        }
        self.drop_all(own).await?;
        if is_changed {
            let note =
                format!("Sync works for FederatedResourceQuota({}/{}) succeed.", namespace_of(quota), quota.name_any());
            tell(&self.recorder, quota, &self.quotas.kind, false, "SyncWorkSucceed", &note).await;
        }
        self.aggregate(quota, &kept).await?;
        failed.map_or(Ok(()), Err)
    }

    /// Brings one cluster's Work up to date; whether it was not.
    async fn put(
        &self,
        quota: &DynamicObject,
        cluster: &str,
        hard: &Value,
        work: Option<&DynamicObject>,
    ) -> kube::Result<bool> {
        let (quota_namespace, quota_name) = (namespace_of(quota), quota.name_any());
        let manifest = json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": quota_name, "namespace": quota_namespace, "labels": {MANAGED: "true"}},
            "spec": {"hard": hard},
        });
        let namespace = work_namespace(cluster);
        let mark = fingerprint(&format!("{quota_namespace}/{quota_name}/federatedresourcequota"));
        let name = format!("{}-{mark:016x}", quota_name.to_lowercase());
        let api = within(&self.client, &self.works.kind, &namespace);
        let spec = json!({"workload": {"manifests": [manifest]}});
        if let Some(work) = work {
            let there = &work.data["spec"]["workload"]["manifests"];
            // The list of limits is replaced as a whole: what it has beside the wanted ones goes too.
            if covers(there, &spec["workload"]["manifests"]) && there[0]["spec"]["hard"] == *hard {
                return Ok(false);
            }
            let patch = Patch::Merge(json!({ "spec": spec }));
            return api.patch(&work.name_any(), &PatchParams::default(), &patch).await.map(|_| true);
        }
        let work: DynamicObject = serde_json::from_value(json!({
            "apiVersion": self.works.kind.api_version, "kind": self.works.kind.kind,
            "metadata": {
                "name": name, "namespace": namespace, "finalizers": [WORK_FINALIZER],
                "labels": {QUOTA_NAMESPACE: quota_namespace, QUOTA_NAME: quota_name},
            },
            "spec": spec,
        }))
        .map_err(kube::Error::SerdeError)?;
        create_in(&self.client, &api, &namespace, &work).await.map(|()| true)
    }

    /// Conditions of a quota: whether its clusters have what they were assigned, and whether what they say of it is of now.
    fn standing(&self, quota: &DynamicObject, own: &Own) -> Value {
        let (mut missing, mut stale) = (Vec::new(), Vec::new());
        for assignment in items(&quota.data, &["spec", "staticAssignments"]) {
            let name = text(assignment, &["clusterName"]);
            let cluster = self.clusters.get("", name).filter(|cluster| !is_leaving(cluster));
            let Some(cluster) = cluster else {
                missing.push(format!("cluster {name} is not registered"));
                continue;
            };
            let work = own.get(name).map(|work| &work.data["status"]);
            let applied = work.and_then(|status| conditions::find(status.get("conditions")?, "Applied"));
            match applied.map(|one| (text(one, &["status"]), text(one, &["message"]))) {
                Some(("True", _)) if is_ready(&cluster) => {}
                Some(("True", _)) => stale.push(format!("cluster {name} does not answer: what it says is of before")),
                Some((_, why)) => missing.push(format!("cluster {name}: {why}")),
                None => missing.push(format!("cluster {name} was not reached yet")),
            }
        }
        let status = &quota.data["status"];
        let said = |is, reason, all: &[String]| with_condition(status, ASSIGNED, is, reason, &all.join("; "));
        match (&missing[..], &stale[..]) {
            _ if items(&quota.data, &["spec", "staticAssignments"]).is_empty() => Value::Null,
            ([], []) => said("True", "Applied", &["every cluster has what it was assigned".into()]),
            ([], stale) => said("Unknown", "Stale", stale),
            (missing, stale) => said("False", "NotApplied", &[missing, stale].concat()),
        }
    }

    /// What the clusters say of their quotas, sorted by cluster.
    async fn aggregate(&self, quota: &DynamicObject, own: &Own) -> kube::Result<()> {
        let told = own.iter().filter_map(|(cluster, work)| {
            let status = &work.data["status"];
            let is_applied = status.get("conditions").and_then(|all| conditions::find(all, "Applied"));
            let told = is_applied
                .filter(|one| one["status"] == "True")
                .and(status["manifestStatuses"].get(0)?.get("status"))?;
            let mut assignments = items(&quota.data, &["spec", "staticAssignments"]).iter();
            let hard = &assignments.find(|one| text(one, &["clusterName"]) == cluster)?["hard"];
            let mut entry = json!({"clusterName": cluster});
            for field in ["hard", "used"] {
                if let Some(list) = told.get(field) {
                    entry[field] = assigned(list, hard);
                }
            }
            Some(entry)
        });
        let told: Vec<Value> = told.collect();
        let nothing = Vec::new();
        let status = &quota.data["status"];
        let is_told = *status["aggregatedStatus"].as_array().unwrap_or(&nothing) == told;
        let conditions = self.standing(quota, own);
        if is_told && status.get("conditions").unwrap_or(&Value::Null) == &conditions {
            return Ok(());
        }
        let patch = json!({"aggregatedStatus": told, "conditions": conditions});
        patch_status(&self.client, quota, &self.quotas.kind, patch).await?;
        if is_told {
            return Ok(());
        }
        let note =
            format!("Collect status of FederatedResourceQuota({}/{}) succeed.", namespace_of(quota), quota.name_any());
        tell(&self.recorder, quota, &self.quotas.kind, false, "AggregateStatusSucceed", &note).await;
        Ok(())
    }
}

/// Of what a cluster tells, what it was assigned, and only amounts: whatever else one says keeps the others from being heard.
fn assigned(told: &Value, hard: &Value) -> Value {
    let is_amount = |name: &str, value: &Value| quantity_of(name, value).is_ok_and(|one| !one.amount().is_negative());
    let told = told.as_object().into_iter().flatten();
    let told = told.filter(|(name, value)| hard.get(*name).is_some() && is_amount(name, value));
    Value::Object(told.map(|(name, value)| (name.clone(), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_amounts_of_what_is_assigned_are_passed_on() {
        let hard = json!({"pods": "5", "cpu": "1", "memory": "1Gi"});
        let told = json!({"pods": "lots", "cpu": "-1", "memory": "1Mi", "secrets": "3"});
        assert_eq!(assigned(&told, &hard), json!({"memory": "1Mi"}));
        assert_eq!(assigned(&json!([1]), &hard), json!({}));
    }
}
