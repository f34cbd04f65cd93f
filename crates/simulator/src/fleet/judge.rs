//! What must be so after every step, counted from stored objects alone by code that shares nothing with what charges.

use serde_json::Value;

use super::CLUSTERS;
use super::centre::{Centre, bindings, leases};
use super::member::Member;

fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok())).unwrap_or(0)
}

/// The CPUs of one pod of a workload, and how many it has there.
pub fn placed(binding: &Value, cluster: Option<&str>) -> u64 {
    let spec = &binding["spec"];
    let one = number(&spec["replicaRequirements"]["resourceRequest"]["cpu"]);
    let clusters = spec["clusters"].as_array().into_iter().flatten();
    let there = clusters.filter(|target| cluster.is_none_or(|cluster| target["name"] == cluster));
    one * there.map(|target| number(&target["replicas"])).sum::<u64>()
}

/// What was evicted and is not placed anew: as much as is missing, and no more than was taken.
fn held(binding: &Value) -> u64 {
    let spec = &binding["spec"];
    let one = number(&spec["replicaRequirements"]["resourceRequest"]["cpu"]);
    let is_on = |name: &Value| spec["clusters"].as_array().into_iter().flatten().any(|target| target["name"] == *name);
    let tasks = spec["gracefulEvictionTasks"].as_array().into_iter().flatten();
    let taken: u64 = tasks.filter(|task| !is_on(&task["fromCluster"])).map(|task| number(&task["replicas"])).sum();
    let missing = (number(&spec["replicas"]) * one).saturating_sub(placed(binding, None));
    (taken * one).min(missing)
}

/// What one binding is charged.
pub fn charge(binding: &Value) -> u64 {
    placed(binding, None) + held(binding)
}

/// What bindings are charged and members were lent, together.
pub fn total(centre: &Centre) -> u64 {
    let all = centre.all(&bindings());
    let charged: u64 = all.iter().map(charge).sum();
    let lent = centre.all(&leases()).into_iter().map(|lease| {
        let cluster = lease["spec"]["clusterName"].as_str().unwrap_or("");
        let base: u64 = all.iter().map(|binding| placed(binding, Some(cluster))).sum();
        number(&lease["spec"]["hard"]["cpu"]).saturating_sub(base)
    });
    charged + lent.sum::<u64>()
}

/// `ceiling` is what may be charged and lent; how much is.
pub fn judge(centre: &Centre, members: &mut [Member], ceiling: u64, now_ms: i64) -> Result<u64, String> {
    let total = total(centre);
    if total > ceiling {
        return Err(format!("{total} are charged and lent where there are {ceiling}"));
    }
    let shown = centre.shown();
    if shown.as_deref() != Some(&total.to_string()) {
        return Err(format!("the quota says {shown:?}, and {total} are charged and lent"));
    }
    for (member, name) in members.iter_mut().zip(CLUSTERS).filter(|(member, _)| !member.lies) {
        let lease = centre.get(&leases(), &format!("{}.{name}", super::centre::QUOTA));
        let charged = lease.map_or(0, |lease| number(&lease["spec"]["hard"]["cpu"]));
        let may_use = member.may_use(now_ms);
        if may_use > charged {
            return Err(format!("{name} may use {may_use}, and {charged} are charged for it"));
        }
        member.is_excused &= member.pods > charged;
        if member.pods > charged && !member.is_excused {
            return Err(format!("{name} runs {}, and {charged} are charged for it", member.pods));
        }
    }
    Ok(total)
}
