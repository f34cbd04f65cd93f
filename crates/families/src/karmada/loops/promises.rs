//! What clusters have left, less what was promised of it since they told: they tell no more often than their heartbeat. Whoever
//! places shares one list of promises with the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kinds::resources::quantity_of;
use kube::ResourceExt;
use kube::api::DynamicObject;
use quantity::Amount;
use serde::Deserialize;
use serde_json::Value;

use super::super::Settings;
use super::super::binding::{BindingSpec, Target, usage_on};
use super::super::schedule::{Cluster, Taint};
use super::kind::is_leaving;
use super::watch::Mirror;

#[derive(Clone, Default)]
pub struct Promises(Arc<Mutex<Vec<Promise>>>);

struct Promise {
    at: Instant,
    cluster: String,
    amounts: BTreeMap<String, Amount>,
}

impl Promises {
    /// The clusters with what they have left.
    pub fn clusters(&self, known: &Mirror, settings: &Settings) -> Vec<Cluster> {
        let fresh = Duration::from_secs(2 * settings.heartbeat_seconds);
        let mut promises = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        promises.retain(|one| one.at.elapsed() < fresh);
        let mut clusters: Vec<Cluster> = known.all().iter().map(|one| read_cluster(one)).collect();
        clusters.sort_by(|one, other| one.name.cmp(&other.name));
        for promise in promises.iter() {
            take(&mut clusters, &promise.cluster, &promise.amounts);
        }
        clusters
    }

    /// Notes what a placement takes of clusters that it did not before, and takes it from these.
    pub fn note(&self, before: &BindingSpec, after: &BindingSpec, clusters: &mut [Cluster]) {
        let mut promises = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for target in &after.clusters {
            let Some(amounts) = more(before, after, target) else { continue };
            take(clusters, &target.name, &amounts);
            promises.push(Promise { at: Instant::now(), cluster: target.name.clone(), amounts });
        }
    }
}

/// What a cluster has to give for a placement that it did not before; less than nothing where it gets something back.
fn more(before: &BindingSpec, after: &BindingSpec, target: &Target) -> Option<BTreeMap<String, Amount>> {
    let (was, is) = (usage_on(before, &target.name).ok()?, usage_on(after, &target.name).ok()?);
    let of = |usage: &super::super::binding::Usage, name: &str| {
        usage.requests.get(name).map_or(Amount::ZERO, |one| one.amount)
    };
    let mut amounts: BTreeMap<String, Amount> = BTreeMap::new();
    for name in is.requests.keys().chain(was.requests.keys()) {
        amounts.insert(name.clone(), of(&is, name).checked_sub(of(&was, name))?);
    }
    amounts.insert("pods".into(), is.pods().amount.checked_sub(was.pods().amount)?);
    Some(amounts)
}

/// The clusters as they were if what a binding has there had another size already: what that leaves is room for more of it.
pub fn resized(mut clusters: Vec<Cluster>, before: &BindingSpec, after: &BindingSpec) -> Vec<Cluster> {
    for target in &before.clusters {
        let same = BindingSpec { clusters: before.clusters.clone(), ..after.clone() };
        if let Some(amounts) = more(before, &same, target) {
            take(&mut clusters, &target.name, &amounts);
        }
    }
    clusters
}

fn take(clusters: &mut [Cluster], name: &str, amounts: &BTreeMap<String, Amount>) {
    let left = clusters.iter_mut().find(|one| one.name == name).and_then(|one| one.left.as_mut());
    for (resource, left) in left.into_iter().flatten() {
        if let Some(amount) = amounts.get(resource) {
            *left = left.checked_sub(*amount).unwrap_or(Amount::ZERO);
        }
    }
}

pub fn read_cluster(cluster: &DynamicObject) -> Cluster {
    let status = &cluster.data["status"];
    let taints = cluster.data["spec"]["taints"].as_array();
    let kinds = status.get("apiEnablements").and_then(Value::as_array).filter(|list| !list.is_empty()).map(|list| {
        let each = |one: &Value| {
            let group = one["groupVersion"].as_str().unwrap_or("").to_owned();
            let kinds = one["resources"].as_array().cloned().unwrap_or_default();
            kinds.into_iter().map(move |kind| (group.clone(), kind["kind"].as_str().unwrap_or("").to_owned()))
        };
        list.iter().flat_map(each).collect::<BTreeSet<_>>()
    });
    Cluster {
        name: cluster.name_any(),
        labels: cluster.labels().clone(),
        taints: taints.into_iter().flatten().filter_map(|one| Taint::deserialize(one).ok()).collect(),
        is_leaving: is_leaving(cluster),
        is_pulled: cluster.data["spec"]["syncMode"] == "Pull",
        kinds,
        left: left(status),
    }
}

fn left(status: &Value) -> Option<BTreeMap<String, Amount>> {
    let summary = status.get("resourceSummary")?;
    let allocatable = summary.get("allocatable")?.as_object().filter(|list| !list.is_empty())?;
    let amount = |list: &str, name: &str| {
        let value = summary.get(list).and_then(|list| list.get(name));
        value.and_then(|value| quantity_of(name, value).ok()).map_or(Amount::ZERO, |one| one.amount())
    };
    let left = allocatable.keys().filter_map(|name| {
        let taken = amount("allocated", name).checked_add(amount("allocating", name))?;
        Some((name.clone(), amount("allocatable", name).checked_sub(taken)?))
    });
    Some(left.collect())
}
