//! Which clusters a binding may go to.

use std::collections::BTreeMap;

use kinds::fields::{at, items, text};
use rules::selector::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::{Candidate, Cluster, Misfit};
use crate::karmada::binding::{BindingSpec, Target};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
    pub time_added: Option<String>,
}

pub fn candidates<'a>(
    spec: &BindingSpec,
    placement: &Value,
    clusters: &'a [Cluster],
    goes_back: bool,
) -> Result<Vec<Candidate<'a>>, Misfit> {
    let mut why_not: BTreeMap<String, usize> = BTreeMap::new();
    let mut candidates = Vec::new();
    for cluster in clusters {
        match obstacle(spec, placement, cluster, goes_back) {
            Some(why) => *why_not.entry(why).or_default() += 1,
            None => {
                let has = spec.clusters.iter().find(|target| target.name == cluster.name);
                candidates.push(Candidate { cluster, has: has.map_or(0, |one| u64::from(one.replicas)), room: 0 });
            }
        }
    }
    if !candidates.is_empty() {
        return Ok(candidates);
    }
    let reasons: Vec<String> = why_not.iter().map(|(why, count)| format!("{count} {why}")).collect();
    let reasons = if reasons.is_empty() { "no clusters are registered".into() } else { reasons.join(", ") };
    Err(Misfit::NoClusterFit(format!("0/{} clusters are available: {reasons}.", clusters.len())))
}

fn obstacle(spec: &BindingSpec, placement: &Value, cluster: &Cluster, goes_back: bool) -> Option<String> {
    let is_there = spec.is_on(&cluster.name);
    let kind = (spec.resource.api_version.clone(), spec.resource.kind.clone());
    if cluster.is_leaving {
        return Some("cluster(s) are being removed".into());
    }
    if !is_there && cluster.is_pulled {
        return Some("cluster(s) are not pushed to".into());
    }
    if !is_chosen(placement, cluster) {
        return Some("cluster(s) did not match the placement cluster affinity constraint".into());
    }
    if !goes_back && spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == cluster.name) {
        return Some("cluster(s) is in the process of eviction".into());
    }
    if !is_there && cluster.kinds.as_ref().is_some_and(|kinds| !kinds.contains(&kind)) {
        return Some("cluster(s) did not have the API resource".into());
    }
    let keeps_off =
        |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute") && !tolerates(placement, taint);
    // What is there is moved by eviction, not by scheduling.
    cluster
        .taints
        .iter()
        .find(keeps_off)
        .filter(|_| !is_there)
        .map(|taint| format!("cluster(s) had untolerated taint {{{}{}: {}}}", taint.key, value(taint), taint.effect))
}

fn value(taint: &Taint) -> String {
    if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) }
}

/// Whether some toleration of a placement covers a taint.
fn tolerates(placement: &Value, taint: &Taint) -> bool {
    toleration(placement, taint).is_some()
}

/// The toleration that covers a taint.
pub fn toleration<'a>(placement: &'a Value, taint: &Taint) -> Option<&'a Value> {
    items(placement, &["clusterTolerations"]).iter().find(|one| {
        let (key, effect) = (text(one, &["key"]), text(one, &["effect"]));
        let is_value = match text(one, &["operator"]) {
            "Exists" => true,
            "" | "Equal" => text(one, &["value"]) == taint.value,
            _ => false,
        };
        let is_key = if key.is_empty() { text(one, &["operator"]) == "Exists" } else { key == taint.key };
        is_key && is_value && (effect.is_empty() || effect == taint.effect)
    })
}

/// Whether a placement means a cluster at all, by the affinity that counts or one that may come to count.
pub fn is_chosen(placement: &Value, cluster: &Cluster) -> bool {
    match at(placement, &["clusterAffinity"]).filter(|one| !one.is_null()) {
        Some(affinity) => clusters_match(affinity, &cluster.name, &cluster.labels),
        None => match affinities(placement) {
            [] => true,
            several => several.iter().any(|one| clusters_match(one, &cluster.name, &cluster.labels)),
        },
    }
}

/// The affinities that are tried in turn, where there is none that counts alone.
pub fn affinities(placement: &Value) -> &[Value] {
    let is_alone = at(placement, &["clusterAffinity"]).is_some_and(|one| !one.is_null());
    if is_alone { &[] } else { items(placement, &["clusterAffinities"]) }
}

/// The first of them that means every cluster where something is placed.
pub fn affinity_of(placement: &Value, targets: &[Target], clusters: &[Cluster]) -> Option<usize> {
    let means = |affinity: &Value, target: &Target| {
        let cluster = clusters.iter().find(|cluster| cluster.name == target.name);
        cluster.is_some_and(|cluster| clusters_match(affinity, &cluster.name, &cluster.labels))
    };
    let own = |affinity: &Value| targets.iter().all(|target| means(affinity, target));
    affinities(placement).iter().position(own).filter(|_| !targets.is_empty())
}

/// Whether an affinity means a cluster: by name, by labels, and not excluded.
pub fn clusters_match(affinity: &Value, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let listed = |field: &str| items(affinity, &[field]).iter().any(|one| one.as_str() == Some(name));
    if listed("exclude") {
        return false;
    }
    if !items(affinity, &["clusterNames"]).is_empty() && !listed("clusterNames") {
        return false;
    }
    match affinity.get("labelSelector").filter(|one| !one.is_null()) {
        None => true,
        Some(written) => LabelSelector::from_object(written).is_ok_and(|selector| selector.matches(labels)),
    }
}
