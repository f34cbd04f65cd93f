//! Eviction: deleting a pod on condition that its disruption budget allows it.
//!
//! Kubernetes keeps the allowance as a number in the budget's status, written by a controller a little later than the pods
//! change. Here it is counted at the moment of the eviction, from the pods as they are, one eviction after the other: there is
//! nothing to be late.

use std::hash::BuildHasher;

use axum::body::Body;
use foldhash::fast::RandomState;
use http::{Response, StatusCode};
use kinds::conditions;
use rules::GroupResource;
use rules::selector::{LabelSelector, Labels};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use super::options::{DeleteOptions, FieldValidation};
use super::prepare::Expected;
use super::subresource::{check_below, created_below};
use super::{Api, ApiError, ApiResult, Call, meta, response};
use crate::core::{Cache, ObjectKey};

const MORE_THAN_ONE: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// Two evictions that each find one pod to spare must not both take it. Budgets end at their namespace, so only evictions
/// in one namespace wait for each other; that a few namespaces share a turn costs them a commit's time.
pub(super) struct Turns {
    turns: [Mutex<()>; TURNS],
    hasher: RandomState,
}

const TURNS: usize = 64;

impl Default for Turns {
    fn default() -> Turns {
        Turns { turns: [const { Mutex::const_new(()) }; TURNS], hasher: RandomState::default() }
    }
}

impl Turns {
    async fn take(&self, namespace: &str) -> MutexGuard<'_, ()> {
        let at = usize::try_from(self.hasher.hash_one(namespace) % TURNS as u64).unwrap_or_default();
        self.turns[at].lock().await
    }
}

impl Api {
    pub(super) async fn evict(&self, call: Call) -> ApiResult<Response<Body>> {
        let mut warnings = Vec::new();
        let expected = Expected::subresource(&call)?;
        let eviction = self.decode(&call, &expected, FieldValidation::Ignore, &mut warnings)?;
        check_below(&call, &eviction, "Eviction")?;
        let given = eviction.get("deleteOptions").cloned().unwrap_or_default();
        let options = DeleteOptions::parse(&call.query, &given)?;
        let key = call.key();
        self.review_body(&created_below(&call, &key, options.dry_run), eviction, &mut warnings).await?;
        // Webhooks have seen the eviction, above. They are not asked about the deletion that it comes to: Kubernetes does
        // not, and nobody's turn may last as long as somebody's webhook takes. In a task of its own, which a client that goes
        // away does not end: the next one counts what this one has taken.
        let api = self.clone();
        let task = tokio::spawn(async move {
            let _turn = api.inner.evictions.take(&key.namespace).await;
            let stored = api.parts().cache.get(&key).ok_or_else(|| call.not_found())?;
            check_budget(&api.parts().cache, &stored.value())?;
            api.delete_reviewed(&call, &key, &options).await.map(|_| ())
        });
        task.await.unwrap_or_else(|_| Err(ApiError::stopping()))?;
        Ok(response::created())
    }
}

/// Refuses the eviction of a pod that its budget needs.
fn check_budget(cache: &Cache, pod: &Value) -> ApiResult<()> {
    // A pod that does not run, or no longer, is no loss.
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    if matches!(phase, "Pending" | "Succeeded" | "Failed") || meta::is_set(pod, "deletionTimestamp") {
        return Ok(());
    }
    let namespace = meta::text(pod, "namespace");
    let budgets = cache.list(&GroupResource::new("policy", "poddisruptionbudgets"));
    let all = budgets.range(namespace, None).map(|object| object.value());
    let mut covering = all.filter(|budget| covers(budget, pod));
    let Some(budget) = covering.next() else { return Ok(()) };
    if covering.next().is_some() {
        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", MORE_THAN_ONE));
    }
    let Count { healthy, desired } = count(cache, &budget, namespace);
    if !is_ready(pod) {
        let always = budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str) == Some("AlwaysAllow");
        if always || (desired > 0 && healthy >= desired) {
            return Ok(());
        }
    }
    if healthy > desired {
        return Ok(());
    }
    let name = meta::text(&budget, "name");
    Err(ApiError::disruption(format!(
        "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    )))
}

struct LabelsOf<'a>(&'a Value);

impl Labels for LabelsOf<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.pointer("/metadata/labels")?.get(key)?.as_str()
    }
}

/// A budget without a selector covers nothing, one with an empty selector everything.
fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector").map(LabelSelector::from_object);
    selector.is_some_and(|selector| selector.is_ok_and(|selector| selector.matches(&LabelsOf(pod))))
}

fn is_ready(pod: &Value) -> bool {
    conditions::holds(&pod["status"]["conditions"], "Ready")
}

struct Count {
    healthy: i64,
    desired: i64,
}

fn count(cache: &Cache, budget: &Value, namespace: &str) -> Count {
    let pods = cache.list(&GroupResource::core("pods"));
    let pods: Vec<Value> =
        pods.range(namespace, None).map(|object| object.value()).filter(|pod| covers(budget, pod)).collect();
    let lives = |pod: &&Value| is_ready(pod) && !meta::is_set(pod, "deletionTimestamp");
    let healthy = length(pods.iter().filter(lives).count());
    let spec = &budget["spec"];
    let desired = match (&spec["minAvailable"], &spec["maxUnavailable"]) {
        (Value::Number(least), _) => least.as_i64().unwrap_or(0),
        (Value::String(least), _) => share(least, expected(cache, &pods, namespace)),
        (_, Value::Number(most)) => expected(cache, &pods, namespace).saturating_sub(most.as_i64().unwrap_or(0)),
        (_, Value::String(most)) => {
            let expected = expected(cache, &pods, namespace);
            expected.saturating_sub(share(most, expected))
        }
        _ => 0,
    };
    Count { healthy, desired: desired.max(0) }
}

fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// `25%` of a number, rounded up; nothing of what is no percentage.
fn share(percent: &str, of: i64) -> i64 {
    let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or(0);
    percent.saturating_mul(of).saturating_add(99).div_euclid(100)
}

/// How many pods there ought to be: what the owners of those that are there ask for, and the ownerless as they stand.
fn expected(cache: &Cache, pods: &[Value], namespace: &str) -> i64 {
    let mut owners = std::collections::BTreeMap::new();
    let mut expected: i64 = 0;
    for pod in pods {
        match controller(pod) {
            None => expected = expected.saturating_add(1),
            Some(owner) => *owners.entry(owner).or_insert(0_i64) += 1,
        }
    }
    let mut asked = std::collections::BTreeMap::new();
    for (owner, present) in owners {
        let (owner, replicas) = wish(cache, owner, namespace);
        // Sets of one Deployment have one wish between them.
        let known = asked.entry(owner).or_insert(replicas.unwrap_or(0));
        if replicas.is_none() {
            *known += present;
        }
    }
    asked.values().fold(expected, |sum, replicas| sum.saturating_add(*replicas))
}

/// Kind and name of the object in charge of another.
fn controller(object: &Value) -> Option<(String, String)> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some((owner["kind"].as_str()?.to_owned(), owner["name"].as_str()?.to_owned()))
}

/// How many replicas an owner asks for. A ReplicaSet asks for what its Deployment does; nothing is in charge of a Deployment,
/// whatever its references say.
fn wish(cache: &Cache, owner: (String, String), namespace: &str) -> ((String, String), Option<i64>) {
    let Some(object) = named(cache, &owner, namespace) else { return (owner, None) };
    let above = controller(&object).filter(|above| owner.0 == "ReplicaSet" && above.0 == "Deployment");
    match above.and_then(|above| Some((named(cache, &above, namespace)?, above))) {
        Some((deployment, above)) => (above, replicas(&deployment)),
        None => (owner, replicas(&object)),
    }
}

fn replicas(object: &Value) -> Option<i64> {
    object.pointer("/spec/replicas").and_then(Value::as_i64)
}

fn named(cache: &Cache, (kind, name): &(String, String), namespace: &str) -> Option<Value> {
    let resource = match kind.as_str() {
        "ReplicaSet" => GroupResource::new("apps", "replicasets"),
        "Deployment" => GroupResource::new("apps", "deployments"),
        "StatefulSet" => GroupResource::new("apps", "statefulsets"),
        "ReplicationController" => GroupResource::core("replicationcontrollers"),
        _ => return None,
    };
    cache.get(&ObjectKey::new(resource, namespace, name)).map(|object| object.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_up() {
        for (percent, of, wanted) in [("50%", 3, 2), ("0%", 3, 0), ("100%", 7, 7), ("1%", 1, 1), ("x", 5, 0)] {
            assert_eq!(share(percent, of), wanted, "{percent} of {of}");
        }
    }
}
