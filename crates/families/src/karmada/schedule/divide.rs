//! Dividing replicas among clusters, to the last one.

use kinds::fields::{at, items, text};
use serde_json::Value;

use super::{Candidate, Misfit, PLENTY, clusters_match};
use crate::karmada::binding::{BindingSpec, Target};

/// Divides a number by weights. The parts add up to it exactly; what is left of the division goes to the largest remainders, and
/// among equal ones to whom the salt and the name say, so that not every workload has its odd replica in the same cluster.
pub fn largest_remainder<'a>(total: u64, weights: &[(&'a str, u64)], salt: &str) -> Vec<(&'a str, u64)> {
    let sum: u128 = weights.iter().map(|(_, weight)| u128::from(*weight)).sum();
    if sum == 0 {
        return weights.iter().map(|(name, _)| (*name, 0)).collect();
    }
    let parts = weights.iter().map(|(name, weight)| {
        let exact = u128::from(total) * u128::from(*weight);
        // Never more than the total.
        (*name, u64::try_from(exact / sum).unwrap_or(total), exact % sum)
    });
    let mut parts: Vec<(&str, u64, u128)> = parts.collect();
    let given: u64 = parts.iter().map(|(_, part, _)| part).sum();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|one, other| {
        let key = |place: &usize| (u128::MAX - parts[*place].2, mix(salt, parts[*place].0), parts[*place].0);
        key(one).cmp(&key(other))
    });
    // Fewer are left than there are remainders above zero.
    let left = usize::try_from(total.saturating_sub(given)).unwrap_or(usize::MAX);
    order.into_iter().take(left).for_each(|place| parts[place].1 += 1);
    parts.into_iter().map(|(name, part, _)| (name, part)).collect()
}

/// The same for the same texts on every machine.
fn mix(salt: &str, name: &str) -> u64 {
    let bytes = if salt.is_empty() { "".bytes().chain("".bytes()) } else { salt.bytes().chain(name.bytes()) };
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

pub fn divide(
    spec: &BindingSpec,
    placement: &Value,
    uid: &str,
    candidates: &[Candidate<'_>],
) -> Result<Vec<Target>, Misfit> {
    let wanted = u64::from(spec.replicas);
    let scheduling = at(placement, &["replicaScheduling"]);
    let word = |path: &[&str]| scheduling.map_or("", |one| text(one, path));
    let is_aggregated = word(&["replicaDivisionPreference"]) == "Aggregated";
    let is_dynamic = word(&["weightPreference", "dynamicWeight"]) == "AvailableReplicas";
    let parts = match (is_aggregated, is_dynamic) {
        (false, false) => Ok(by_static_weights(wanted, scheduling, uid, candidates)),
        (is_aggregated, _) => step(wanted, is_aggregated, uid, candidates),
    }?;
    // A cluster without any has no part in it.
    let parts = parts.into_iter().filter(|(_, replicas)| *replicas > 0);
    let target = |(name, replicas): (&str, u64)| Target {
        name: name.to_owned(),
        replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
        components: Vec::new(),
    };
    Ok(parts.map(target).collect())
}

/// By the weights of the list, whatever clusters have left. Clusters that nothing in it means get none; without a list all
/// weigh the same.
fn by_static_weights<'a>(
    wanted: u64,
    scheduling: Option<&Value>,
    uid: &str,
    candidates: &[Candidate<'a>],
) -> Vec<(&'a str, u64)> {
    let list = scheduling.map_or(&[][..], |one| items(one, &["weightPreference", "staticWeightList"]));
    let weight = |candidate: &Candidate<'_>| {
        let means = |one: &&Value| {
            let target = one.get("targetCluster").unwrap_or(&Value::Null);
            clusters_match(target, &candidate.cluster.name, &candidate.cluster.labels)
        };
        let weights = list.iter().filter(means).filter_map(|one| one.get("weight")?.as_u64());
        weights.max().unwrap_or(0).min(PLENTY)
    };
    let mut weights: Vec<(&str, u64)> = candidates.iter().map(|one| (&*one.cluster.name, weight(one))).collect();
    if weights.iter().all(|(_, weight)| *weight == 0) {
        weights.iter_mut().for_each(|(_, weight)| *weight = 1);
    }
    largest_remainder(wanted, &weights, uid)
}

/// From what is placed to what is wanted: only the difference moves. Fewer are taken away in proportion; more are given by what
/// is left, or to as few clusters as possible.
fn step<'a>(
    wanted: u64,
    is_aggregated: bool,
    uid: &str,
    candidates: &[Candidate<'a>],
) -> Result<Vec<(&'a str, u64)>, Misfit> {
    let placed: u64 = candidates.iter().map(|one| one.has).sum();
    let has = |one: &Candidate<'a>| (&*one.cluster.name, one.has);
    if placed >= wanted {
        let weights: Vec<(&str, u64)> = candidates.iter().map(has).collect();
        return Ok(largest_remainder(wanted, &weights, uid));
    }
    let room: u64 = candidates.iter().fold(0, |sum, one| sum.saturating_add(one.room.saturating_sub(one.has)));
    let more = wanted - placed;
    if room < more {
        let available = placed.saturating_add(room);
        let why = format!("Clusters available replicas {available} are not enough to schedule.");
        return Err(Misfit::Unschedulable(why));
    }
    let mut parts: Vec<(&str, u64)> = candidates.iter().map(has).collect();
    if is_aggregated {
        // They are in order already: present ones first, then the roomiest.
        let mut left = more;
        for (part, candidate) in parts.iter_mut().zip(candidates) {
            let given = left.min(candidate.room.saturating_sub(candidate.has));
            part.1 += given;
            left -= given;
        }
        return Ok(parts);
    }
    let weights = candidates.iter().map(|one| (&*one.cluster.name, one.room.saturating_sub(one.has)));
    let shares = largest_remainder(more, &weights.collect::<Vec<_>>(), uid);
    parts.iter_mut().zip(shares).for_each(|(part, (_, share))| part.1 += share);
    Ok(parts)
}
