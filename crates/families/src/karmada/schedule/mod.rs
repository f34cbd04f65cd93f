//! Which clusters a binding goes to, and with how many replicas: filter, score, choose, divide. Pure and the same for the same
//! input, whatever order clusters come in. What is placed already moves no more than it must.

mod divide;
mod filter;

use std::borrow::Cow;
use std::collections::BTreeMap;

use kinds::fields::{items, text};
use kinds::resources::quantity_of;
use quantity::Amount;
use serde_json::Value;

use super::binding::{BindingSpec, Requirements, Target};
use super::names::CLAIMS;
pub use divide::largest_remainder;
pub use filter::{Taint, clusters_match, is_chosen, toleration};

/// A member cluster as the scheduler sees it.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub is_leaving: bool,
    /// Whether nobody brings anything there.
    pub is_pulled: bool,
    /// The kinds it serves, as apiVersion and kind; `None` while it has not told.
    pub kinds: Option<std::collections::BTreeSet<(String, String)>>,
    /// What is left of each resource; `None` while it has not told, or has no nodes.
    pub left: Option<BTreeMap<String, Amount>>,
}

/// Why a binding was not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// No cluster may have it.
    NoClusterFit(String),
    /// Clusters may, but have not enough.
    Unschedulable(String),
}

/// As good as no bound: more pods than any binding may ask for.
const PLENTY: u64 = u32::MAX as u64;

struct Candidate<'a> {
    cluster: &'a Cluster,
    /// What it has of the workload now.
    has: u64,
    /// How many it could have in all, with what it has.
    room: u64,
}

/// Where a binding goes. What was evicted goes somewhere else; where there is nowhere else, it goes back to clusters that may have it
/// again: nothing else would ever end its evictions. Of several affinities that are to be tried in turn the first that has room counts.
pub fn place(spec: &BindingSpec, uid: &str, clusters: &[Cluster]) -> Result<Vec<Target>, Misfit> {
    let placements = in_turn(spec, clusters);
    let place_in = |goes_back: bool| {
        let mut placed = placements.iter().map(|placement| place_in(spec, placement, uid, clusters, goes_back));
        let first = placed.next().unwrap_or_else(|| Err(Misfit::NoClusterFit("no affinity".into())));
        first.or_else(|misfit| placed.find_map(Result::ok).ok_or(misfit))
    };
    let elsewhere = place_in(false);
    // Where every cluster has all of it, what others have already does not replace what one has lost.
    let is_enough = |targets: &Vec<Target>| {
        let next = BindingSpec { clusters: targets.clone(), ..spec.clone() };
        next.is_replaced()
    };
    if spec.graceful_eviction_tasks.is_empty() || elsewhere.as_ref().is_ok_and(is_enough) {
        return elsewhere;
    }
    place_in(true).or(elsewhere)
}

/// A placement for each of its affinities, in the order in which they are tried. What is placed by one of them stays with it for as long as
/// it can, whatever those before it have again: after it come the next ones, and then the first.
fn in_turn<'a>(spec: &'a BindingSpec, clusters: &[Cluster]) -> Vec<Cow<'a, Value>> {
    let Some(placement) = &spec.placement else { return vec![Cow::Owned(Value::Null)] };
    let affinities = filter::affinities(placement);
    if affinities.is_empty() {
        return vec![Cow::Borrowed(placement)];
    }
    let own = filter::affinity_of(placement, &spec.clusters, clusters).unwrap_or(0);
    let (first, then) = affinities.split_at(own.min(affinities.len()));
    let with = |affinity: &Value| {
        let mut one = placement.clone();
        if let Some(fields) = one.as_object_mut() {
            fields.remove("clusterAffinities");
            fields.insert("clusterAffinity".into(), affinity.clone());
        }
        Cow::Owned(one)
    };
    then.iter().chain(first).map(with).collect()
}

/// The name of the affinity by which a binding is where it is.
pub fn affinity_name(placement: &Value, targets: &[Target], clusters: &[Cluster]) -> Option<String> {
    let own = filter::affinity_of(placement, targets, clusters)?;
    Some(text(filter::affinities(placement).get(own)?, &["affinityName"]).to_owned())
}

/// What is placed, with as many pods less as are there beyond those that are wanted.
pub fn fewer(spec: &BindingSpec, uid: &str) -> Vec<Target> {
    let wanted = u64::from(spec.replicas);
    let placed: u64 = spec.clusters.iter().map(|target| u64::from(target.replicas)).sum();
    let shares = match spec.is_divided() {
        true if placed <= wanted => return spec.clusters.clone(),
        true => {
            let weights: Vec<(&str, u64)> =
                spec.clusters.iter().map(|target| (&*target.name, u64::from(target.replicas))).collect();
            largest_remainder(wanted, &weights, uid)
        }
        false => spec.clusters.iter().map(|target| (&*target.name, wanted)).collect(),
    };
    let targets = spec.clusters.iter().zip(shares).map(|(target, (_, share))| {
        let replicas = u32::try_from(share).map_or(target.replicas, |share| target.replicas.min(share));
        Target { replicas, ..target.clone() }
    });
    // A cluster that is left without any has no part in it, unless nothing is wanted at all.
    targets.filter(|target| wanted == 0 || target.replicas > 0 || !spec.is_divided()).collect()
}

fn place_in(
    spec: &BindingSpec,
    placement: &Value,
    uid: &str,
    clusters: &[Cluster],
    goes_back: bool,
) -> Result<Vec<Target>, Misfit> {
    let mut candidates = filter::candidates(spec, placement, clusters, goes_back)?;
    for candidate in &mut candidates {
        candidate.room = room(spec, candidate);
    }
    // Already there first, then the roomiest, then by name.
    candidates.sort_by(|one, other| {
        let key = |candidate: &Candidate<'_>| {
            (candidate.has == 0 && !spec.is_on(&candidate.cluster.name), u64::MAX - candidate.room)
        };
        key(one).cmp(&key(other)).then_with(|| one.cluster.name.cmp(&other.cluster.name))
    });
    let is_divided = spec.is_divided();
    let has_components = !spec.components.is_empty();
    if has_components {
        candidates.retain(|candidate| candidate.room >= 1);
        if candidates.is_empty() {
            return Err(Misfit::Unschedulable("Clusters available replicas 0 are not enough to schedule.".into()));
        }
        // Components stay together: divided, they go to one cluster.
        if is_divided {
            candidates.truncate(1);
        }
    }
    choose(placement, &mut candidates)?;
    let mut targets: Vec<Target> = match (has_components, is_divided && spec.replicas > 0) {
        (false, true) => divide::divide(spec, placement, uid, &candidates)?,
        _ => {
            let wanted = if has_components { 0 } else { spec.replicas };
            if !has_components && candidates.iter().any(|one| one.room < u64::from(wanted)) {
                let least = candidates.iter().map(|one| one.room).min().unwrap_or(0);
                let why = format!("Clusters available replicas {least} are not enough to schedule.");
                return Err(Misfit::Unschedulable(why));
            }
            let target =
                |one: &Candidate<'_>| Target { name: one.cluster.name.clone(), replicas: wanted, components: vec![] };
            candidates.iter().map(target).collect()
        }
    };
    targets.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(targets)
}

/// Keeps as many clusters as the constraint on their number allows.
fn choose(placement: &Value, candidates: &mut Vec<Candidate<'_>>) -> Result<(), Misfit> {
    let constraints = items(placement, &["spreadConstraints"]);
    let Some(constraint) = constraints.iter().find(|one| matches!(text(one, &["spreadByField"]), "" | "cluster"))
    else {
        return Ok(());
    };
    let number = |field: &str| constraint.get(field).and_then(Value::as_u64).and_then(|one| usize::try_from(one).ok());
    let (least, most) = (number("minGroups").unwrap_or(1), number("maxGroups").filter(|one| *one > 0));
    if candidates.len() < least {
        let why = format!(
            "the number of feasible clusters {} is less than spreadConstraint.MinGroups {least}",
            candidates.len()
        );
        return Err(Misfit::NoClusterFit(why));
    }
    candidates.truncate(most.unwrap_or(usize::MAX));
    Ok(())
}

/// How many replicas, or sets of components, fit into what a cluster has left and what the workload has there.
fn room(spec: &BindingSpec, candidate: &Candidate<'_>) -> u64 {
    let Some(left) = &candidate.cluster.left else { return PLENTY };
    let mut one: BTreeMap<String, Amount> = BTreeMap::new();
    let mut need = |requirements: Option<&Requirements>, times: u32| {
        for (name, value) in requirements.iter().flat_map(|one| &one.resource_request) {
            let amount = quantity_of(name, value).ok().and_then(|one| one.amount().checked_mul(i64::from(times)));
            let sum = one.entry(name.clone()).or_insert(Amount::ZERO);
            // What cannot be counted fits nowhere.
            *sum = amount.and_then(|amount| sum.checked_add(amount)).unwrap_or(Amount::from_nanos(i128::MAX));
        }
        let pods = one.entry("pods".into()).or_insert(Amount::ZERO);
        *pods = pods.checked_add(Amount::from_units(i64::from(times))).unwrap_or(*pods);
    };
    match spec.components.is_empty() {
        true => need(spec.replica_requirements.as_ref(), 1),
        false => spec.components.iter().for_each(|one| need(one.replica_requirements.as_ref(), one.replicas)),
    }
    // Claims are not what nodes have; and of how many pods they take, some tell nothing.
    let is_told = |name: &str| left.contains_key(name) || (name != "pods" && name != CLAIMS);
    let fits = one.iter().filter(|(name, amount)| !amount.is_zero() && is_told(name));
    let fits = fits.map(|(name, amount)| {
        let left = left.get(name).copied().unwrap_or(Amount::ZERO).nanos().max(0);
        u64::try_from(left / amount.nanos()).unwrap_or(PLENTY)
    });
    let more = fits.min().unwrap_or(PLENTY).min(PLENTY);
    let has = if spec.components.is_empty() { candidate.has } else { u64::from(spec.is_on(&candidate.cluster.name)) };
    more.saturating_add(has).min(PLENTY)
}

#[cfg(test)]
mod tests;
