//! The ResourceQuota that a pool puts into each of its namespaces: what the claims there have, and the defaults on top.

use std::collections::BTreeSet;
use std::sync::Arc;

use kinds::field_error::Path;
use quantity::Quantity;
use rules::{GroupResource, policy_name};
use serde_json::{Map, Value, json};

pub use super::claim::quota_name;
use super::claim::{QUOTA_PREFIX, pools};
use super::pool::{Amounts, CLAIMS, read_amounts, show_amounts};
use super::{GROUP, VERSION, at, text, upkeep};
use crate::{Change, Must, Place, PolicyObject, View};

/// Which pool a ResourceQuota belongs to.
const POOL_LABEL: &str = "projectcapsule.dev/pool";
const MANAGED_LABEL: &str = "projectcapsule.dev/managed-by";

/// Where a pool's ResourceQuota in a namespace is.
pub fn place(pool: &str, namespace: &str) -> Place {
    Place::new(GroupResource::core("resourcequotas"), namespace, &quota_name(pool))
}

/// The pool to which a ResourceQuota of this name belongs.
pub fn pool_of(quota: &str) -> Option<&str> {
    quota.strip_prefix(QUOTA_PREFIX)
}

/// What a namespace may have, or has, by a ResourceQuota that an API server enforces: what it goes by follows the spec a moment later, and
/// what is used may be more than either.
pub fn allowed(quota: &Value) -> Amounts {
    let mut allowed = Amounts::new();
    for list in [["spec", "hard"], ["status", "hard"], ["status", "used"]] {
        for (resource, amount) in amounts(at(quota, &list)) {
            let known = allowed.entry(resource).or_insert_with(|| amount.clone());
            if amount.amount() > known.amount() {
                *known = amount;
            }
        }
    }
    allowed
}

/// What a pool gives to each of its namespaces without a claim.
pub fn defaults(pool: &Value) -> Amounts {
    amounts(at(pool, &["spec", "defaults"]))
}

/// What a change may concern: the ResourceQuotas of a pool, those in a namespace, or the one that was written; and pools, which
/// are held as long as they have any.
pub fn concerned(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    if change.resource.is("", "resourcequotas") {
        let Some(pool) = pool_of(change.name) else { return Vec::new() };
        return vec![place(pool, change.namespace), Place::new(pools(), "", pool)];
    }
    if *change.resource == pools() {
        let mut namespaces: BTreeSet<Arc<str>> = BTreeSet::new();
        namespaces.extend(view.namespaces(&policy_name(&pools(), "", change.name)));
        namespaces.extend(provided(change.name, view));
        let quotas = namespaces.iter().map(|namespace| place(change.name, namespace));
        return quotas.chain([Place::new(pools(), "", change.name)]).collect();
    }
    let mut places = Vec::new();
    for pool in view.list(&pools(), "") {
        let name = text(&pool, &["metadata", "name"]);
        places.push(place(name, change.name));
        places.extend(upkeep::is_out_of_step(&pool, view).then(|| Place::new(pools(), "", name)));
    }
    places
}

/// The namespaces in which there is a ResourceQuota of this pool.
pub fn provided(pool: &str, view: &dyn View) -> Vec<Arc<str>> {
    let quotas = GroupResource::core("resourcequotas");
    let name = quota_name(pool);
    let namespaces = view.list(&GroupResource::core("namespaces"), "").into_iter();
    let namespaces = namespaces.map(|namespace| Arc::from(text(&namespace, &["metadata", "name"])));
    namespaces
        .filter(|namespace: &Arc<str>| view.get(&quotas, namespace, &name).is_some_and(|one| is_of(&one, pool)))
        .collect()
}

/// Whether a ResourceQuota is marked as the pool's. One that merely has the name is not.
fn is_of(quota: &Value, pool: &str) -> bool {
    at(quota, &["metadata", "labels", POOL_LABEL]).and_then(Value::as_str) == Some(pool)
}

/// The ResourceQuota of a pool in a namespace has the spec and the marks that the pool gives it, whoever writes it, and is there
/// as long as the pool serves the namespace: there is no moment in which nothing limits it. Where the pool has nothing to say
/// any longer, it goes.
pub fn must_be(quota: &PolicyObject<'_>, view: &dyn View) -> Must {
    let Some(name) = pool_of(quota.name) else { return Must::AsItIs };
    let Some(pool) = view.get(&pools(), "", name) else { return Must::AsItIs };
    let Some(spec) = kept_spec(&pool, quota.namespace, view) else {
        let is_ours = !quota.object.is_null() && is_of(quota.object, name);
        return if is_ours { Must::Gone } else { Must::AsItIs };
    };
    let wanted = resource_quota_with(&pool, quota.namespace, spec);
    if quota.object.is_null() {
        return Must::Be(wanted);
    }
    let mut kept = quota.object.clone();
    kept["spec"] = wanted["spec"].clone();
    let metadata = &mut kept["metadata"];
    metadata["ownerReferences"] = wanted["metadata"]["ownerReferences"].clone();
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    for (label, value) in wanted["metadata"]["labels"].as_object().into_iter().flatten() {
        metadata["labels"][label] = value.clone();
    }
    Must::differ(quota.object, kept)
}

fn resource_quota_with(pool: &Value, namespace: &str, spec: Value) -> Value {
    let name = text(pool, &["metadata", "name"]);
    json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": quota_name(name),
            "namespace": namespace,
            "labels": {POOL_LABEL: name, MANAGED_LABEL: "controller"},
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourcePool", "name": name,
                "uid": pool["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    })
}

/// The spec of the ResourceQuota of a pool in a namespace: what the claims there have at this moment. `None` where the pool
/// provisions none.
fn kept_spec(pool: &Value, namespace: &str, view: &dyn View) -> Option<Value> {
    let name = text(pool, &["metadata", "name"]);
    let policy = policy_name(&pools(), "", name);
    if !view.looks_into(&policy, namespace) || at(pool, &["metadata", "deletionTimestamp"]).is_some() {
        return None;
    }
    let parts = view.part(&policy, namespace).into_iter().filter(|line| &*line.resource != CLAIMS);
    let claimed = parts.filter(|line| !line.balance.used.is_zero());
    let claimed = claimed.map(|line| (line.resource, Quantity::new(line.balance.used, line.balance.format)));
    Some(spec(pool, claimed.collect()))
}

/// What is claimed with the defaults on top, under the pool's scopes.
fn spec(pool: &Value, claimed: Amounts) -> Value {
    let mut hard = claimed;
    for (resource, default) in amounts(at(pool, &["spec", "defaults"])) {
        let sum = hard.get(&resource).map_or(Some(default.clone()), |claimed| claimed.checked_add(&default));
        // Out of range only when both are near the largest quantity there is; the claims' part is what was granted.
        if let Some(sum) = sum {
            hard.insert(resource, sum);
        }
    }
    let mut spec = Map::new();
    // Left out where there is none, as Go writes it: a client that compares the two sees no difference.
    if !hard.is_empty() {
        spec.insert("hard".into(), show_amounts(hard));
    }
    for field in ["scopes", "scopeSelector"] {
        if let Some(value) = at(pool, &["spec", "quota", field]) {
            spec.insert(field.into(), value.clone());
        }
    }
    Value::Object(spec)
}

fn amounts(list: Option<&Value>) -> Amounts {
    let read = read_amounts(list, &Path::new("amounts"), &mut Vec::new());
    read.into_iter().map(|(name, amount): (Arc<str>, Quantity)| (name, amount.canonical())).collect()
}
