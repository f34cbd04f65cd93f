//! Claims just in time: where a pool offers it (`spec.config.jitClaims`), a workload that the pool's ResourceQuota would
//! refuse gets a claim of its own, as large as what it asks for, in the commit that lets it in. The claim shrinks with the
//! workload and goes with it; where the pool has too little, the workload is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::{State, SubjectId};
use quantity::{Amount, Quantity};
use rules::{GroupResource, policy_name};
use serde_json::{Value, json};

use super::claim::{QUOTA_PREFIX, claims, pools, quota_name, wanted};
use super::pool::{Pool, show_amounts};
use super::{GROUP, VERSION, at, text};
use crate::family::{Change, Near};
use crate::relief::{COMPANIONS_MAX, ChargeLine, Companion, Plea, Upkeep};

/// What such a claim's name begins with; the uid of its workload follows. A name never changes, unlike labels and owners,
/// so that nobody makes such a claim look like any other.
const NAME_PREFIX: &str = "jit-";

/// The claims that would let a refused workload in. `None` where anything else refuses it as well, or a pool does not
/// offer claims just in time.
pub fn relieve(plea: &Plea<'_>, near: &dyn Near) -> Option<Vec<Companion>> {
    let uid = text(plea.object, &["metadata", "uid"]);
    let mut companions: Vec<Companion> = Vec::with_capacity(plea.denials.len());
    let mut charges = None;
    // The workload's claims so far, by number, with their pools.
    let mut known: Vec<Option<String>> = (0..COMPANIONS_MAX)
        .map(|number| {
            let claim = near.get(&claims(), plea.namespace, &name_of(uid, number))?;
            Some(text(&claim, &["spec", "pool"]).to_string())
        })
        .collect();
    for denial in plea.denials {
        if !denial.resource.is("", "resourcequotas") || denial.message.is_some() {
            return None;
        }
        let name = denial.name.strip_prefix(QUOTA_PREFIX)?;
        let pool = near.get(&pools(), "", name).filter(|pool| offers(pool))?;
        if !near.looks_into(&policy_name(&pools(), "", name), plea.namespace) {
            return None;
        }
        let hard = Pool::read(&pool).ok()?.hard;
        if denial.lines.iter().any(|line| !hard.contains_key(&line.account)) {
            return None;
        }
        let charges: &Vec<ChargeLine> = charges.get_or_insert_with(plea.charges);
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
                    "namespace": plea.namespace,
                    "generation": 1,
                    "ownerReferences": [{
                        "apiVersion": plea.object["apiVersion"], "kind": plea.object["kind"], "name": plea.name,
                        "uid": uid, "controller": true,
                    }],
                },
                "spec": {"pool": name, "claim": show_amounts(asked)},
            }),
            resource: claims(),
            number,
            name: claim,
            quota: (denial.resource.clone(), denial.name.to_string()),
        });
    }
    Some(companions)
}

fn name_of(uid: &str, number: usize) -> String {
    if number == 0 { format!("{NAME_PREFIX}{uid}") } else { format!("{NAME_PREFIX}{uid}-{number}") }
}

fn offers(pool: &Value) -> bool {
    at(pool, &["spec", "config", "jitClaims"]) == Some(&Value::Bool(true))
        && at(pool, &["metadata", "deletionTimestamp"]).is_none()
}

/// A claim never covers more than its workload takes, and is gone when it takes nothing.
pub fn attend(claim: &Value, charges: &[ChargeLine]) -> Upkeep {
    let (namespace, pool) = (text(claim, &["metadata", "namespace"]), text(claim, &["spec", "pool"]));
    let quota = policy_name(&GroupResource::core("resourcequotas"), namespace, &quota_name(pool));
    let taken: BTreeMap<&Arc<str>, Amount> =
        charges.iter().filter(|line| line.policy == quota).map(|line| (&line.account, line.amount)).collect();
    let claimed = wanted(claim);
    let mut left = claimed.clone();
    for (name, amount) in &mut left {
        let taken = taken.get(name).copied().unwrap_or(Amount::ZERO);
        if taken < amount.amount() {
            *amount = Quantity::new(taken, amount.format());
        }
    }
    if left == claimed {
        return Upkeep::AsItIs;
    }
    left.retain(|_, amount| !amount.is_zero());
    if left.is_empty() {
        return Upkeep::Gone;
    }
    let mut claim = claim.clone();
    claim["spec"]["claim"] = show_amounts(left);
    Upkeep::Changed(claim)
}

/// The workload a claim was made for, while that takes what the claim gives.
fn workload(claim: &str, near: &dyn Near) -> Option<SubjectId> {
    let uid: String = claim.strip_prefix(NAME_PREFIX)?.chars().take(UID_CHARS).filter(|c| *c != '-').collect();
    let uid = SubjectId(u128::from_str_radix(&uid, 16).ok()?);
    matches!(near.explain(uid).state, Some(State::Charged | State::Held { .. })).then_some(uid)
}

const UID_CHARS: usize = 36;

/// Whether the claim was made for a workload that is still there.
pub fn has_workload(claim: &str, near: &dyn Near) -> bool {
    workload(claim, near).is_some()
}

/// Such a claim is its workload's, and nobody else's to change.
pub fn guard(change: &Change<'_>, near: &dyn Near) -> Result<(), String> {
    let same_spec = change.new.is_some_and(|new| new.get("spec") == change.old.get("spec"));
    let released = change.new.is_some_and(super::is_released);
    if (same_spec && !released) || !has_workload(change.name, near) {
        return Ok(());
    }
    Err(format!("the claim was made for the workload {} and goes with it", change.name.trim_start_matches(NAME_PREFIX)))
}
