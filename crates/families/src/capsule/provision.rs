//! The ResourceQuota that a pool puts into each of its namespaces: what the claims there have, and the defaults on top.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::field_error::Path;
use quantity::Quantity;
use rules::policy_name;
use serde_json::{Map, Value, json};

pub use super::claim::quota_name;
use super::claim::{QUOTA_PREFIX, needed, pools, wanted};
use super::pool::{Amounts, CLAIMS, Pool, read_amounts, show_amounts};
use super::{GROUP, VERSION, at, items, text};
use crate::family::Near;

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
    quota(pool, namespace, spec(pool, amounts(at(pool, &["status", "namespaceUsage", namespace]))))
}

/// The ResourceQuota of a pool in a namespace, by its name, as it is at this moment. `None` where no pool provisions it.
pub fn provided(namespace: &str, name: &str, near: &dyn Near) -> Option<Value> {
    let pool = near.get(&pools(), "", name.strip_prefix(QUOTA_PREFIX)?)?;
    Some(quota(&pool, namespace, kept_spec(namespace, name, near)?))
}

fn quota(pool: &Value, namespace: &str, spec: Value) -> Value {
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

/// The spec of the ResourceQuota of a pool in a namespace, by its name: what the claims there have at this moment.
/// `None` where no pool provisions it.
pub fn kept_spec(namespace: &str, quota: &str, near: &dyn Near) -> Option<Value> {
    let name = quota.strip_prefix(QUOTA_PREFIX)?;
    let policy = policy_name(&pools(), "", name);
    let pool = near.get(&pools(), "", name).filter(|_| near.looks_into(&policy, namespace))?;
    if at(&pool, &["metadata", "deletionTimestamp"]).is_some() {
        return None;
    }
    let parts = near.part(&policy, namespace).into_iter().filter(|line| &*line.resource != CLAIMS);
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
