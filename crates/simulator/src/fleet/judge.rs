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

/// What bindings are charged and members were lent, together. What a lease says of evicted workloads is charged with those: how
/// much that may be at the most is [`could_run`]'s to see to.
pub fn total(centre: &Centre) -> u64 {
    let all = centre.all(&bindings());
    let charged: u64 = all.iter().map(charge).sum();
    let lent = centre.all(&leases()).into_iter().map(|lease| {
        let cluster = lease["spec"]["clusterName"].as_str().unwrap_or("");
        let base: u64 = all.iter().map(|binding| placed(binding, Some(cluster))).sum();
        let covered = number(&lease["spec"]["covered"]["cpu"]);
        number(&lease["spec"]["hard"]["cpu"]).saturating_sub(base + covered)
    });
    charged + lent.sum::<u64>()
}

/// What could run in all clusters together at this moment: in each what it was lent, or what was placed there where that is more.
fn could_run(centre: &Centre) -> u64 {
    let all = centre.all(&bindings());
    let leases = centre.all(&leases());
    let there = |cluster: &str| {
        let base: u64 = all.iter().map(|binding| placed(binding, Some(cluster))).sum();
        let lease = leases.iter().find(|lease| lease["spec"]["clusterName"] == *cluster);
        lease.map_or(0, |lease| number(&lease["spec"]["hard"]["cpu"])).max(base)
    };
    CLUSTERS.iter().map(|cluster| there(cluster)).sum()
}

/// Whether nobody has to give anything back before this binding may go anywhere: nothing that it had is lent to a member.
pub fn is_free(centre: &Centre, binding: &Value) -> bool {
    let leases = centre.all(&leases());
    let had = |cluster: &Value| {
        let of = |list: &str, field: &str| {
            binding["spec"][list].as_array().into_iter().flatten().any(|one| one[field] == *cluster)
        };
        of("clusters", "name") || of("gracefulEvictionTasks", "fromCluster")
    };
    let covers = |lease: &&Value| number(&lease["spec"]["covered"]["cpu"]) > 0;
    let is_placed = |lease: &&Value| {
        let cluster = lease["spec"]["clusterName"].as_str().unwrap_or("");
        placed(binding, Some(cluster)) > 0
    };
    !leases.iter().filter(|lease| had(&lease["spec"]["clusterName"])).any(|one| covers(&one) || is_placed(&one))
}

/// How much is charged and lent, and how much of it could run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Most {
    pub charged: u64,
    pub runs: u64,
}

/// How much there is of both: never more than there may be.
pub fn judge(centre: &Centre, members: &mut [Member], may_be: Most, now_ms: i64) -> Result<Most, String> {
    let total = total(centre);
    if total > may_be.charged {
        return Err(format!("{total} are charged and lent where there are {}", may_be.charged));
    }
    let runs = could_run(centre);
    if runs > may_be.runs {
        return Err(format!("{runs} could run where there are {}", may_be.runs));
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
    Ok(Most { charged: total, runs })
}
