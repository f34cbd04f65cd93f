//! Claims just in time: where a pool offers it (`spec.config.jitClaims`), a workload that the pool's ResourceQuota would
//! refuse gets a claim of its own, as large as what it asks for, in the commit that lets it in. The claim shrinks with the
//! workload and goes with it; where the pool has too little, the workload is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledger::{State, SubjectId};
use quantity::{Amount, Quantity};
use rules::{GroupResource, policy_name};
use serde_json::{Value, json};

use super::claim::{QUOTA_PREFIX, claims, pools, quota_name, subject, wanted};
use super::pool::{Pool, show_amounts};
use super::{GROUP, VERSION, at, text};
use crate::{COMPANIONS_MAX, Change, ChargeLine, Companion, Must, Place, RefusedWrite, View, companion_uid};

/// What such a claim's name begins with; the uid of its workload follows. A name never changes, unlike labels and owners,
/// so that nobody makes such a claim look like any other.
const NAME_PREFIX: &str = "jit-";

/// The claims that would let a refused workload in. `None` where anything else refuses it as well, or a pool does not
/// offer claims just in time.
pub fn companions(refused: &RefusedWrite<'_>, view: &dyn View) -> Option<Vec<Companion>> {
    let uid = text(refused.object, &["metadata", "uid"]);
    let mut companions: Vec<Companion> = Vec::with_capacity(refused.denials.len());
    let mut charges = None;
    // The workload's claims so far, by number, with their pools.
    let mut known: Vec<Option<String>> = (0..COMPANIONS_MAX)
        .map(|number| {
            let claim = view.get(&claims(), refused.namespace, &name_of(uid, number))?;
            Some(text(&claim, &["spec", "pool"]).to_string())
        })
        .collect();
    for denial in refused.denials {
        if !denial.resource.is("", "resourcequotas") || denial.message.is_some() {
            return None;
        }
        let name = denial.name.strip_prefix(QUOTA_PREFIX)?;
        let pool = view.get(&pools(), "", name).filter(|pool| offers(pool))?;
        if !view.looks_into(&policy_name(&pools(), "", name), refused.namespace) {
            return None;
        }
        let hard = Pool::read(&pool).ok()?.hard;
        if denial.lines.iter().any(|line| !hard.contains_key(&line.account)) {
            return None;
        }
        let charges: &Vec<ChargeLine> = charges.get_or_insert_with(refused.charges);
        let asked = charges.iter().filter(|line| line.policy == denial.policy && hard.contains_key(&line.account));
        let asked = asked.map(|line| (line.account.clone(), Quantity::new(line.amount, line.format)));
        let own = known.iter().position(|pool| pool.as_deref() == Some(name));
        let number = own.or_else(|| known.iter().position(Option::is_none))?;
        known[number] = Some(name.to_string());
        let claim = name_of(uid, number);
        companions.push(Companion {
            object: json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "ResourcePoolClaim",
                "metadata": {
                    "name": claim,
                    "namespace": refused.namespace,
                    "generation": 1,
                    "ownerReferences": [{
                        "apiVersion": refused.object["apiVersion"], "kind": refused.object["kind"], "name": refused.name,
                        "uid": uid, "controller": true,
                    }],
                },
                "spec": {"pool": name, "claim": show_amounts(asked)},
            }),
            resource: claims(),
            number,
            name: claim,
            quota: Some((denial.resource.clone(), denial.name.to_string())),
        });
    }
    Some(companions)
}

fn name_of(uid: &str, number: usize) -> String {
    if number == 0 { format!("{NAME_PREFIX}{uid}") } else { format!("{NAME_PREFIX}{uid}-{number}") }
}

pub fn is_offered(pool: &Value) -> bool {
    at(pool, &["spec", "config", "jitClaims"]) == Some(&Value::Bool(true))
}

fn offers(pool: &Value) -> bool {
    is_offered(pool) && at(pool, &["metadata", "deletionTimestamp"]).is_none()
}

/// A claim never covers more than its workload takes, and is gone when it takes nothing. Of what the pool's ResourceQuota does not
/// count, because it is not there, does not list it, or has scopes that leave the workload out, nobody can tell what the workload
/// takes: that stays as it is.
pub fn must_be(claim: &Value, view: &dyn View) -> Must {
    let Some(workload) = made_for(claim) else { return Must::AsItIs };
    if !view.lives(workload) {
        return Must::Gone;
    }
    let (namespace, pool) = (text(claim, &["metadata", "namespace"]), text(claim, &["spec", "pool"]));
    let quota = policy_name(&GroupResource::core("resourcequotas"), namespace, &quota_name(pool));
    let counted: BTreeSet<Arc<str>> = view.part(&quota, "").into_iter().map(|line| line.resource).collect();
    if counted.is_empty() {
        return Must::AsItIs;
    }
    let lines = view.explain(workload).lines.into_iter();
    let taken: BTreeMap<Arc<str>, Amount> = lines
        .filter(|line| line.key.policy == quota && line.key.bucket.is_empty())
        .map(|line| (line.key.resource, line.amount))
        .collect();
    if taken.is_empty() && is_left_out(claim, workload, pool, view) {
        return Must::AsItIs;
    }
    let claimed = wanted(claim);
    let mut left = claimed.clone();
    for (name, amount) in left.iter_mut().filter(|(name, _)| counted.contains(*name)) {
        let taken = taken.get(name).copied().unwrap_or(Amount::ZERO);
        if taken < amount.amount() {
            *amount = Quantity::new(taken, amount.format());
        }
    }
    if left == claimed {
        return Must::AsItIs;
    }
    left.retain(|_, amount| !amount.is_zero());
    if left.is_empty() {
        return Must::Gone;
    }
    let mut claim = claim.clone();
    claim["spec"]["claim"] = show_amounts(left);
    Must::Be(claim)
}

/// Whether the scopes of a pool's ResourceQuota may be why a workload takes nothing of it, and not that it has come to its end.
fn is_left_out(claim: &Value, workload: SubjectId, pool: &str, view: &dyn View) -> bool {
    let namespace = text(claim, &["metadata", "namespace"]);
    let quota = view.get(&GroupResource::core("resourcequotas"), namespace, &quota_name(pool));
    let has = |field: &str| {
        let found = quota.as_ref().and_then(|quota| at(quota, &["spec", field])).filter(|found| !found.is_null());
        found.is_some_and(|found| found.as_array().is_none_or(|list| !list.is_empty()))
    };
    if !has("scopes") && !has("scopeSelector") {
        return false;
    }
    let owners = at(claim, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    let pods = owners.into_iter().flatten().filter(|owner| owner["kind"] == "Pod");
    let mut pods = pods.filter_map(|owner| view.get(&GroupResource::core("pods"), namespace, owner["name"].as_str()?));
    let is_over = |pod: &Value| matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    !pods.any(|pod| subject(&pod) == workload && is_over(&pod))
}

/// The claims in a namespace that were made for workloads, of one pool: they are looked at when its ResourceQuota comes to count
/// something else.
pub fn concerned(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    let Some(pool) = change.name.strip_prefix(QUOTA_PREFIX) else { return Vec::new() };
    let names = |quota: &Value| -> BTreeSet<String> {
        let hard = at(quota, &["spec", "hard"]).and_then(Value::as_object);
        hard.into_iter().flat_map(|hard| hard.keys().cloned()).collect()
    };
    if change.new.is_none_or(|new| names(new) == names(change.old)) {
        return Vec::new();
    }
    let made = view.list(&claims(), change.namespace).into_iter();
    let made = made.filter(|claim| text(claim, &["spec", "pool"]) == pool && made_for(claim).is_some());
    made.map(|claim| Place::new(claims(), change.namespace, text(&claim, &["metadata", "name"]))).collect()
}

/// The object that a claim is the companion of. A claim that merely has the name of one is nobody's.
fn made_for(claim: &Value) -> Option<SubjectId> {
    workload_of(text(claim, &["metadata", "name"]), subject(claim))
}

fn workload_of(claim: &str, uid: SubjectId) -> Option<SubjectId> {
    let of = workload_in(claim)?;
    (0..COMPANIONS_MAX).any(|number| companion_uid(of, number) == uid).then_some(of)
}

const UID_CHARS: usize = 36;

/// The uid in the name of such a claim.
fn workload_in(claim: &str) -> Option<SubjectId> {
    let uid: String = claim.strip_prefix(NAME_PREFIX)?.chars().take(UID_CHARS).filter(|c| *c != '-').collect();
    u128::from_str_radix(&uid, 16).ok().map(SubjectId)
}

/// Whether the claim was made for a workload that is still there and takes something.
pub fn has_workload(claim: &str, uid: SubjectId, view: &dyn View) -> bool {
    let workload = workload_of(claim, uid);
    workload.is_some_and(|uid| matches!(view.explain(uid).state, Some(State::Charged | State::Held { .. })))
}

/// Such a claim is its workload's, and nobody else's to change, whatever becomes of the pool: if that comes back, the workload is
/// still what takes of it.
pub fn guard(change: &Change<'_>, view: &dyn View) -> Result<(), String> {
    let same_spec = change.new.is_some_and(|new| new.get("spec") == change.old.get("spec"));
    let released = change.new.is_some_and(super::is_released);
    let is_free = || !made_for(change.old).is_some_and(|workload| view.lives(workload));
    if (same_spec && !released) || is_free() {
        return Ok(());
    }
    Err(format!("the claim was made for the workload {} and goes with it", change.name.trim_start_matches(NAME_PREFIX)))
}
