//! From a cluster's conditions to its taints, and from taints to evictions. A cluster that is not well gets no more workloads;
//! that it loses those it has is an administrator's word, by a taint with the effect NoExecute or a ClusterTaintPolicy.

use std::sync::Arc;
use std::time::Duration;

use kinds::conditions;
use kinds::fields::{items, text};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Settings;
use super::super::binding::BindingSpec;
use super::super::interpret;
use super::super::schedule::{Taint, clusters_match, toleration};
use super::evict::{Eviction, evict};
use super::kind::{all, bindings, clusters, is_leaving, taint_policies};
use super::standing::{Recorder, is_passing, now, now_ms, recorder};
use super::watch::{Mirror, Watch};

const NOT_READY: &str = "cluster.karmada.io/not-ready";
const UNREACHABLE: &str = "cluster.karmada.io/unreachable";
const RETRY: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(3600);

pub struct Taints {
    client: Client,
    settings: Arc<Settings>,
    clusters: Mirror,
    policies: Mirror,
    bindings: Mirror,
    recorder: Recorder,
}

pub async fn run(client: Client, settings: Arc<Settings>) {
    let (watch, mirrors) = Watch::begin(&client, [clusters(), taint_policies(), bindings()]).await;
    let taints = Taints::new(client, settings, mirrors);
    loop {
        let rest = taints.look().await;
        watch.rung(rest).await;
    }
}

impl Taints {
    pub fn new(client: Client, settings: Arc<Settings>, [clusters, policies, bindings]: [Mirror; 3]) -> Taints {
        let recorder = recorder(&client, "taint-manager");
        Taints { client, settings, clusters, policies, bindings, recorder }
    }

    pub async fn look(&self) -> Duration {
        let mut rest = REST;
        for cluster in self.clusters.all().iter().filter(|cluster| !is_leaving(cluster)) {
            let done = self.tend(cluster).await;
            rest = rest.min(done.unwrap_or_else(|error| {
                if !is_passing(&error) {
                    tracing::debug!(%error, cluster = cluster.name_any(), "will be looked at again");
                }
                RETRY
            }));
        }
        rest
    }

    /// Sees to the taints of one cluster, and to who does not tolerate them; when to look again.
    async fn tend(&self, cluster: &DynamicObject) -> kube::Result<Duration> {
        let stored: Vec<Value> = cluster.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let wanted = self.wanted(cluster, stored.clone());
        if wanted != stored {
            let patch = Patch::Merge(json!({
                "metadata": {"uid": cluster.metadata.uid, "resourceVersion": cluster.metadata.resource_version},
                "spec": {"taints": wanted},
            }));
            all(&self.client, &self.clusters.kind).patch(&cluster.name_any(), &PatchParams::default(), &patch).await?;
            // What follows from it follows when it is stored.
            return Ok(REST);
        }
        if !self.settings.evict {
            return Ok(REST);
        }
        let taints: Vec<Taint> = stored.iter().filter_map(|one| Taint::deserialize(one).ok()).collect();
        let taints: Vec<Taint> = taints.into_iter().filter(|taint| taint.effect == "NoExecute").collect();
        if taints.is_empty() {
            return Ok(REST);
        }
        let (mut rest, name) = (REST, cluster.name_any());
        for binding in self.bindings.all().iter().filter(|binding| !is_leaving(binding)) {
            let Ok(spec) = BindingSpec::read(&json!({"spec": binding.data["spec"]})) else { continue };
            if !spec.is_on(&name) || ran_to_its_end(binding, &spec, &name) {
                continue;
            }
            match until(&spec, &taints) {
                None => {}
                Some(left) if left.is_zero() => {
                    // One that cannot be written keeps no other in a cluster that failed.
                    let mode = spec.failover.as_ref().map_or("", |failover| text(failover, &["cluster", "purgeMode"]));
                    let eviction = Eviction {
                        purge_mode: mode,
                        grace_seconds: None,
                        reason: "TaintUntolerated",
                        producer: "TaintManager",
                    };
                    let evicted = evict(&self.client, &self.recorder, binding, &spec, &name, &eviction);
                    if let Err(error) = evicted.await {
                        rest = rest.min(RETRY);
                        if !is_passing(&error) {
                            tracing::debug!(%error, binding = binding.name_any(), "will be evicted again");
                        }
                    }
                }
                Some(left) => rest = rest.min(left),
            }
        }
        Ok(rest)
    }

    /// The taints a cluster must have for its conditions, and for what policies say of them. Each that evicts says since when it is
    /// there: who tolerates it for a while does so from then on.
    fn wanted(&self, cluster: &DynamicObject, mut taints: Vec<Value>) -> Vec<Value> {
        for taint in taints.iter_mut().filter(|taint| taint["effect"] == "NoExecute" && since(taint).is_none()) {
            taint["timeAdded"] = json!(now());
        }
        let all = cluster.data["status"].get("conditions");
        let status = |of: &str| all.and_then(|all| conditions::find(all, of)).map_or("", |one| text(one, &["status"]));
        let ready = status("Ready");
        // Until it has told, nothing is known.
        set(&mut taints, NOT_READY, "", "NoSchedule", ready == "False");
        set(&mut taints, UNREACHABLE, "", "NoSchedule", ready == "Unknown");
        let mut policies = self.policies.all();
        policies.sort_by_key(|one| one.name_any());
        for policy in policies.iter().filter(|policy| !is_leaving(policy)) {
            let spec = &policy.data["spec"];
            let targets = spec.get("targetClusters").unwrap_or(&Value::Null);
            if !clusters_match(targets, &cluster.name_any(), cluster.labels()) {
                continue;
            }
            let holds = |field: &str| {
                let list = items(spec, &[field]);
                let holds = |one: &Value| {
                    let is = status(text(one, &["conditionType"]));
                    let listed = items(one, &["statusValues"]).iter().any(|value| value.as_str() == Some(is));
                    !is.is_empty() && if text(one, &["operator"]) == "NotIn" { !listed } else { listed }
                };
                !list.is_empty() && list.iter().all(holds)
            };
            let (adds, removes) = (holds("addOnConditions"), holds("removeOnConditions"));
            for taint in items(spec, &["taints"]).iter().filter(|_| adds || removes) {
                let of = |field: &str| text(taint, &[field]);
                set(&mut taints, of("key"), of("value"), of("effect"), adds);
            }
        }
        taints
    }
}

/// Whether nothing of a workload is left to run in a cluster: elsewhere it would run once more.
fn ran_to_its_end(binding: &DynamicObject, spec: &BindingSpec, cluster: &str) -> bool {
    let told = items(&binding.data, &["status", "aggregatedStatus"]).iter().find(|one| one["clusterName"] == cluster);
    let resource = &spec.resource;
    let live = |status: &Value| json!({"apiVersion": resource.api_version, "kind": resource.kind, "status": status});
    told.is_some_and(|told| interpret::is_finished(&live(&told["status"])))
}

/// When a taint was put there, if it says so.
fn since(taint: &Value) -> Option<i64> {
    kinds::time::read_ms(text(taint, &["timeAdded"]))
}

/// Puts a taint there, or takes it away.
fn set(taints: &mut Vec<Value>, key: &str, value: &str, effect: &str, is_wanted: bool) {
    let is_it = |one: &Value| one["key"] == key && one["effect"] == effect;
    match (taints.iter().any(is_it), is_wanted) {
        (false, true) => {
            let mut taint = json!({"key": key, "effect": effect, "timeAdded": now()});
            if !value.is_empty() {
                taint["value"] = json!(value);
            }
            taints.push(taint);
        }
        (true, false) => taints.retain(|one| !is_it(one)),
        _ => {}
    }
}

/// How long a binding may stay in a cluster with these taints: not at all, so long, or for ever.
fn until(spec: &BindingSpec, taints: &[Taint]) -> Option<Duration> {
    let placement = spec.placement.as_ref().unwrap_or(&Value::Null);
    let left = taints.iter().filter_map(|taint| match toleration(placement, taint) {
        None => Some(Duration::ZERO),
        Some(toleration) => {
            let seconds = toleration.get("tolerationSeconds").and_then(Value::as_i64)?;
            // One that does not say is as good as new: it is told to say.
            let since = taint.time_added.as_deref().and_then(kinds::time::read_ms).unwrap_or_else(now_ms);
            let end = since.saturating_add(seconds.saturating_mul(1000));
            Some(Duration::from_millis(u64::try_from(end.saturating_sub(now_ms())).unwrap_or(0)))
        }
    });
    left.min()
}
