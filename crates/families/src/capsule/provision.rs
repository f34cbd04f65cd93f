//! The ResourceQuota that a pool puts into each of its namespaces: what the claims there have, and the defaults on top.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::field_error::Path;
use quantity::Quantity;
use rules::{GroupResource, policy_name};
use serde_json::{Map, Value, json};

pub use super::claim::quota_name;
use super::claim::{QUOTA_PREFIX, needed, pools, wanted};
use super::pool::{Amounts, CLAIMS, Pool, read_amounts, show_amounts};
use super::{GROUP, VERSION, at, items, text};
use crate::{Change, Must, Place, PolicyObject, View};

/// Which pool a ResourceQuota belongs to.
pub const POOL_LABEL: &str = "projectcapsule.dev/pool";
const MANAGED_LABEL: &str = "projectcapsule.dev/managed-by";

/// The namespaces that get one, as the pool's status lists them.
pub fn namespaces(pool: &Value) -> Vec<String> {
    items(pool, &["status", "namespaces"]).iter().filter_map(Value::as_str).map(str::to_string).collect()
}

/// Whether the pool serves a namespace with these labels; what its status lists may be a moment old.
pub fn serves(pool: &Value, labels: &BTreeMap<String, String>) -> bool {
    Pool::read(pool).is_ok_and(|pool| pool.selects(labels))
}

/// The ResourceQuota for one namespace as the pool's status has it, without status.
pub fn resource_quota(pool: &Value, namespace: &str) -> Value {
    resource_quota_with(pool, namespace, spec(pool, amounts(at(pool, &["status", "namespaceUsage", namespace]))))
}

/// Where a pool's ResourceQuota in a namespace is.
pub fn place(pool: &str, namespace: &str) -> Place {
    Place::new(GroupResource::core("resourcequotas"), namespace, &quota_name(pool))
}

/// The ResourceQuotas that a change may concern: those of a pool, those in a namespace, or the one that was written.
pub fn concerned(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    if change.resource.is("", "resourcequotas") {
        let is_kept = change.name.starts_with(QUOTA_PREFIX);
        return is_kept
            .then(|| Place::new(change.resource.clone(), change.namespace, change.name))
            .into_iter()
            .collect();
    }
    if change.new.is_none() {
        return Vec::new();
    }
    if *change.resource == pools() {
        let namespaces = view.namespaces(&policy_name(&pools(), "", change.name));
        return namespaces.iter().map(|namespace| place(change.name, namespace)).collect();
    }
    let pools = view.list(&pools(), "").into_iter();
    pools.map(|pool| place(text(&pool, &["metadata", "name"]), change.name)).collect()
}

/// The ResourceQuota of a pool in a namespace has the spec that the pool gives it, whoever writes it, and is there as long as
/// the pool serves the namespace: there is no moment in which nothing limits it.
pub fn must_be(quota: &PolicyObject<'_>, view: &dyn View) -> Must {
    let Some(pool) = quota.name.strip_prefix(QUOTA_PREFIX) else { return Must::AsItIs };
    let Some(spec) = kept_spec(quota.namespace, pool, view) else { return Must::AsItIs };
    if quota.object.is_null() {
        let pool = view.get(&pools(), "", pool);
        return pool.map_or(Must::AsItIs, |pool| Must::Be(resource_quota_with(&pool, quota.namespace, spec)));
    }
    if quota.object.get("spec") == Some(&spec) {
        return Must::AsItIs;
    }
    let mut kept = quota.object.clone();
    kept["spec"] = spec;
    Must::Be(kept)
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
fn kept_spec(namespace: &str, name: &str, view: &dyn View) -> Option<Value> {
    let policy = policy_name(&pools(), "", name);
    let pool = view.get(&pools(), "", name).filter(|_| view.looks_into(&policy, namespace))?;
    if at(&pool, &["metadata", "deletionTimestamp"]).is_some() {
        return None;
    }
    let parts = view.part(&policy, namespace).into_iter().filter(|line| &*line.resource != CLAIMS);
    let claimed = parts.filter(|line| !line.balance.used.is_zero());
    let claimed = claimed.map(|line| (line.resource, Quantity::new(line.balance.used, line.balance.format)));
    Some(spec(&pool, claimed.collect()))
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

/// Whether the pool has every resource that a claim asks for, in whatever amount.
pub fn has_what_is_claimed(pool: &Value, claim: &Value) -> bool {
    let hard = amounts(at(pool, &["spec", "quota", "hard"]));
    !wanted(claim).is_empty() && needed(claim).keys().all(|name| hard.contains_key(name))
}

fn amounts(list: Option<&Value>) -> Amounts {
    let read = read_amounts(list, &Path::new("amounts"), &mut Vec::new());
    read.into_iter().map(|(name, amount): (Arc<str>, Quantity)| (name, amount.canonical())).collect()
}
