//! ResourcePoolClaim: finding a pool for it, whether it is in use, what it says of itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use kinds::conditions;
use kinds::field_error::{FieldError, Path};
use ledger::SubjectId;
use quantity::{Amount, Quantity};
use rules::{GroupResource, policy_name};
use serde_json::{Map, Value, json};

use super::in_use::{holders, in_use};
use super::pool::{Amounts, CLAIMS, Pool, RELEASE, is_released, read_amounts};
use super::status::time;
use super::{GROUP, RESOURCE_POOL_CLAIMS, RESOURCE_POOLS, Reading, at, items, text};
use crate::kubernetes::validate::amounts;
use crate::{Admission, Balances, Change, Operation, Place, Projected, Sources, View, put_status};

pub const QUOTA_PREFIX: &str = "capsule-pool-";

/// The name of the ResourceQuota that a pool provisions into its namespaces.
pub fn quota_name(pool: &str) -> String {
    format!("{QUOTA_PREFIX}{pool}")
}

pub fn pools() -> GroupResource {
    GroupResource::new(GROUP, RESOURCE_POOLS)
}

pub fn claims() -> GroupResource {
    GroupResource::new(GROUP, RESOURCE_POOL_CLAIMS)
}

pub fn wanted(claim: &Value) -> Amounts {
    read_amounts(at(claim, &["spec", "claim"]), &Path::new("spec").child("claim"), &mut Vec::new())
}

/// Of what nothing is claimed a pool need have none: else taking that resource out of the pool would take the claim the rest.
pub fn needed(claim: &Value) -> Amounts {
    let mut needed = wanted(claim);
    needed.retain(|_, amount| !amount.is_zero());
    needed
}

pub fn validate(claim: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, claimed) = (Path::new("spec"), |claim| at(claim, &["spec", "claim"]));
    read_amounts(claimed(claim), &spec.child("claim"), &mut errors);
    // It becomes part of a ResourceQuota. What is stored already may be written again.
    if errors.is_empty() && old.is_none_or(|old| claimed(old) != claimed(claim)) {
        amounts(claimed(claim), &spec.child("claim"), &mut errors);
    }
    errors
}

/// Keeps the pool where none is named any more, and drops a request for release that comes too early to mean anything.
pub fn admit(request: &mut Admission<'_>) {
    if request.operation == Operation::Create
        && let Some(annotations) = request.object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(RELEASE);
    }
    if text(request.object, &["spec", "pool"]).is_empty() {
        // Who applies a manifest without a pool again does not mean another one.
        let kept = request.old.filter(|old| is_shown(old, "Exhausted", "False"));
        let kept = kept.map(|old| text(old, &["spec", "pool"]).to_string()).filter(|pool| !pool.is_empty());
        let pool = kept.unwrap_or_default();
        if let Some(spec) = request.object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("pool".into(), Value::String(pool));
        }
    }
}

/// The first pool, by name, that has all the resources, is open to the namespace and has enough left; else the first
/// that would have.
pub fn assign(claim: &Value, namespace: &str, view: &dyn View) -> Option<String> {
    let wanted = needed(claim);
    let namespace = view.get(&GroupResource::core("namespaces"), "", namespace)?;
    let labels = at(&namespace, &["metadata", "labels"]);
    let may = |pool: &Pool| pool.selects(&labels) && wanted.keys().all(|name| pool.hard.contains_key(name));
    let candidates: Vec<Arc<Value>> = view
        .list(&pools(), "")
        .into_iter()
        .filter(|pool| at(pool, &["metadata", "deletionTimestamp"]).is_none())
        .filter(|pool| Pool::read(pool).is_ok_and(|pool| may(&pool)))
        .collect();
    let has_enough = |pool: &&Arc<Value>| {
        let lines = view.part(&policy_name(&pools(), "", text(pool, &["metadata", "name"])), "");
        wanted.iter().all(|(name, amount)| {
            let line = lines.iter().find(|line| line.resource == *name);
            line.is_some_and(|line| line.balance.available().is_none_or(|left| left >= amount.amount()))
        })
    };
    let chosen = candidates.iter().find(has_enough).or(candidates.first())?;
    Some(text(chosen, &["metadata", "name"]).to_string())
}

/// What may not happen to a claim while its resources are in use, or (by the documentation) while it has them.
pub fn guard(change: &Change<'_>, view: &dyn View, reading: Reading) -> Result<(), String> {
    let pool = text(change.old, &["spec", "pool"]);
    let used = || is_in_use(change.old, change.namespace, view, reading);
    let is_leaving = |claim: &Value| at(claim, &["metadata", "deletionTimestamp"]).is_some();
    // A deletion that waits for finalizers is one all the same, from the moment it is asked for.
    let Some(new) = change.new.filter(|new| !is_leaving(new) || is_leaving(change.old)) else {
        return match used() {
            true => Err(format!("cannot delete the pool while claim is used in resourcepool {pool}")),
            false => Ok(()),
        };
    };
    if is_released(new) && !is_released(change.old) && used() {
        return Err(format!("cannot release the claim while it is used in resourcepool {pool}"));
    }
    let resized = wanted(change.old) != wanted(new);
    let moved = text(new, &["spec", "pool"]) != pool;
    if !(resized || moved) {
        return Ok(());
    }
    let allocated = view.explain(subject(change.old)).has_of(&policy_name(&pools(), "", pool));
    let forbidden = match reading {
        // "can not be expanded or shrunk, without releasing": the write that releases it may resize it.
        Reading::Documentation => allocated && (resized && !moved && !is_released(new) || used()),
        Reading::Releases => used(),
    };
    if forbidden {
        return Err(format!("cannot change the requested resources while claim is allocated to a resourcepool {pool}"));
    }
    Ok(())
}

/// Whether the usage of the pool's ResourceQuota needs this claim.
fn is_in_use(claim: &Value, namespace: &str, view: &dyn View, reading: Reading) -> bool {
    // Where a quota is counted elsewhere, its status tells.
    let (pool, sources) = (text(claim, &["spec", "pool"]), [pools(), GroupResource::core("resourcequotas")]);
    // Asked of every claim of the namespace when what is used there moves.
    let of = Sources { resources: &sources, ledger: true };
    let name = format!("capsule/in-use/{pool}/{namespace}");
    let found = view.derived(&name, of, &|| Arc::new(in_use(pool, namespace, view, reading)));
    found.downcast_ref::<BTreeSet<SubjectId>>().is_some_and(|found| found.contains(&subject(claim)))
}

pub fn project(claim: &mut Value, balances: &dyn Balances, reading: Reading) -> Projected {
    // Whether a claim has its resources is known only where the ledger is; readers see what was published.
    let Some(view) = balances.view() else { return Projected::Unchanged };
    let namespace = text(claim, &["metadata", "namespace"]).to_string();
    let mut status = claim.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let generation = claim.pointer("/metadata/generation").cloned().unwrap_or(Value::Null);
    let before = status.remove("conditions").unwrap_or(Value::Null);
    let mut now = Conditions { before, now: time(view.now_ms()), list: Vec::new(), generation: generation.clone() };
    match pool_of(claim, &namespace, view) {
        Err(why) => {
            status.remove("pool");
            now.push("Ready", "False", "Failed", why, false);
        }
        Ok((name, uid)) => {
            status.insert("pool".into(), json!({"name": name, "uid": uid}));
            now.push("Ready", "True", "Succeeded", "reconciled".into(), false);
            if !is_released(claim) {
                say_standing(claim, &namespace, &name, view, reading, &mut now);
            }
        }
    }
    if generation.is_i64() {
        status.insert("observedGeneration".into(), generation);
    }
    status.insert("conditions".into(), Value::Array(now.list));
    put_status(claim, status)
}

/// The pool the claim is assigned to, with its uid; or why it is not.
fn pool_of(claim: &Value, namespace: &str, view: &dyn View) -> Result<(String, Value), String> {
    let name = text(claim, &["spec", "pool"]);
    if name.is_empty() {
        return Err("no pool reference was defined".into());
    }
    let Some(pool) = view.get(&pools(), "", name) else {
        return Err(format!("ResourcePool.{GROUP} \"{name}\" not found"));
    };
    let is_selected = view.looks_into(&policy_name(&pools(), "", name), namespace);
    if at(&pool, &["metadata", "deletionTimestamp"]).is_some() || !is_selected {
        return Err("resourcepool not available".into());
    }
    let hard = at(&pool, &["spec", "quota", "hard"]);
    for resource in needed(claim).keys() {
        if hard.and_then(|hard| hard.get(&**resource)).is_none() {
            return Err(format!("resource {resource} is not available in pool {name}"));
        }
    }
    Ok((name.to_string(), pool["metadata"]["uid"].clone()))
}

fn say_standing(claim: &Value, namespace: &str, pool: &str, view: &dyn View, reading: Reading, now: &mut Conditions) {
    let policy = policy_name(&pools(), "", pool);
    let used = || is_in_use(claim, namespace, view, reading);
    if !view.waits(subject(claim)) {
        now.push("Exhausted", "False", "NoExhaustions", "resource claimable from pool".into(), true);
        match used() {
            true => now.push("Bound", "True", "InUse", "claim is used".into(), true),
            false => now.push("Bound", "False", "Unused", "claim is unused".into(), true),
        }
        return;
    }
    let blocking = view.blocking(subject(claim));
    let lines = blocking
        .iter()
        .filter(|line| line.key.policy == policy && line.key.bucket.is_empty() && &*line.key.resource != CLAIMS);
    let (mut exhausted, mut queued) = (Vec::new(), Vec::new());
    for line in lines {
        let resource = &line.key.resource;
        let requested = Quantity::new(line.amount, line.format);
        match line.blocked_by {
            Some(ahead) => {
                let ahead = view.explain(ahead);
                let need = ahead.lines.iter().find(|other| other.account == line.account);
                let need = need.map(|need| Quantity::new(need.amount, need.format)).unwrap_or_default();
                queued.push(format!("requested: {resource}={requested}, queued: {resource}={need}"));
            }
            None => {
                let limit = line.balance.limit.amount().unwrap_or(Amount::ZERO);
                let left = limit.checked_sub(line.balance.used).unwrap_or(Amount::ZERO).max(Amount::ZERO);
                let left = Quantity::new(left, line.format);
                exhausted.push(format!("requested: {resource}={requested}, available: {resource}={left}"));
            }
        }
    }
    let (reason, parts) = if queued.is_empty() { ("PoolExhausted", exhausted) } else { ("QueueExhausted", queued) };
    now.push("Exhausted", "True", reason, parts.join("; "), true);
    // One that waits for more keeps what it has, and that may be used.
    match used() {
        true => now.push("Bound", "True", "InUse", "claim is used".into(), true),
        false => now.push("Bound", "False", "Failed", "claim causes exhaustions".into(), true),
    }
}

/// Waiting claims whose words are mended when their pool's balance moves. Those further back say the same a little
/// longer.
const WAITING_MENDED_MAX: usize = 100;

/// The claims whose status depends on this object's.
pub fn told_by(resource: &GroupResource, object: &Value, view: &dyn View, reading: Reading) -> Vec<Place> {
    let name = text(object, &["metadata", "name"]);
    let claim = |namespace: &str, name: &str| Place::new(claims(), namespace, name);
    if resource.is("", "resourcequotas") {
        let Some(pool) = name.strip_prefix(QUOTA_PREFIX) else { return Vec::new() };
        let namespace = text(object, &["metadata", "namespace"]);
        let in_use = in_use(pool, namespace, view, reading);
        // Those whose word is no longer true; the others need not be looked at again.
        let holders = holders(pool, namespace, view).into_iter().filter(|one| {
            let shown = view.get(&claims(), namespace, &one.name);
            shown.is_some_and(|shown| is_shown(&shown, "Bound", "True") != in_use.contains(&one.uid))
        });
        return holders.map(|one| claim(namespace, &one.name)).collect();
    }
    if *resource == pools() {
        let waiting = view.waiting(&policy_name(resource, "", name), WAITING_MENDED_MAX);
        return waiting.iter().map(|one| claim(&one.namespace, &one.name)).collect();
    }
    Vec::new()
}

/// Whether the published status has this condition.
fn is_shown(claim: &Value, condition: &str, status: &str) -> bool {
    let conditions = items(claim, &["status", "conditions"]);
    conditions.iter().any(|one| one["type"] == condition && one["status"] == status)
}

/// Conditions being written. The time of each moves only when it says something else.
pub struct Conditions {
    pub before: Value,
    pub now: String,
    pub list: Vec<Value>,
    pub generation: Value,
}

impl Conditions {
    pub fn push(&mut self, of: &str, status: &str, reason: &str, message: String, with_generation: bool) {
        let mut condition = conditions::condition(of, status, reason, &message);
        let before = conditions::find(&self.before, of);
        conditions::since(&mut condition, "lastTransitionTime", before, conditions::NEWS, &self.now);
        if with_generation && self.generation.is_i64() {
            condition["observedGeneration"] = self.generation.clone();
        }
        self.list.push(condition);
    }
}

/// The subject behind a stored object.
pub fn subject(object: &Value) -> SubjectId {
    let digits: String = text(object, &["metadata", "uid"]).chars().filter(|c| *c != '-').collect();
    SubjectId(u128::from_str_radix(&digits, 16).unwrap_or_default())
}

/// One entry of a pool's `status.claims`.
pub fn shown(uid: String, name: &str, namespace: &str, amounts: Map<String, Value>) -> Value {
    json!({"uid": uid, "name": name, "namespace": namespace, "claims": amounts})
}
