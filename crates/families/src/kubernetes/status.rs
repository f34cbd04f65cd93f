//! What a quota shows of the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kinds::fields::{items, text};
use kinds::resources::quantity_of;
use quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::BalanceLine;

/// `{hard, used}`: the limits as they are written, and what is used of each that can be counted.
pub fn quota_status(hard: Option<&Value>, lines: &[BalanceLine], bucket: &str) -> Map<String, Value> {
    let mut status = Map::new();
    let hard = hard.and_then(Value::as_object);
    if let Some(hard) = hard.filter(|hard| !hard.is_empty()) {
        status.insert("hard".into(), Value::Object(hard.clone()));
    }
    let used: Map<String, Value> = lines
        .iter()
        .filter(|line| &*line.bucket == bucket && hard.is_some_and(|hard| hard.contains_key(&*line.resource)))
        .map(|line| (line.resource.to_string(), Value::String(used(line))))
        .collect();
    if !used.is_empty() {
        status.insert("used".into(), Value::Object(used));
    }
    status
}

fn used(line: &BalanceLine) -> String {
    Quantity::new(line.balance.used, line.balance.format).to_string()
}

/// Unused namespaces are listed by quotas that pick no more than this: ten thousand of them in every quota over all would be
/// most of what is stored, and of the work.
const UNUSED_LISTED_MAX: usize = 200;

/// Total usage, and usage by namespace: of those that use something, and of all where they are few.
pub fn cluster_status(hard: Option<&Value>, lines: &[BalanceLine], mut selected: Vec<Arc<str>>) -> Map<String, Value> {
    if selected.len() > UNUSED_LISTED_MAX {
        selected.clear();
    }
    let total = quota_status(hard, lines, "");
    let zero = zero_of(&total);
    let mut parts: BTreeMap<&str, Map<String, Value>> = selected.iter().map(|name| (&**name, zero.clone())).collect();
    let using: BTreeSet<&str> =
        lines.iter().filter(|line| !line.balance.used.is_zero()).map(|line| &*line.bucket).collect();
    for line in lines.iter().filter(|line| !line.bucket.is_empty() && zero.contains_key(&*line.resource)) {
        if using.contains(&*line.bucket) || parts.contains_key(&*line.bucket) {
            let part = parts.entry(&line.bucket).or_insert_with(|| zero.clone());
            part.insert(line.resource.to_string(), Value::String(used(line)));
        }
    }
    let namespaces: Vec<Value> = parts.into_iter().map(|(namespace, used)| part(namespace, &total, used)).collect();
    let mut status = Map::new();
    status.insert("total".into(), Value::Object(total));
    status.insert("namespaces".into(), if namespaces.is_empty() { Value::Null } else { Value::Array(namespaces) });
    status
}

/// What a namespace that uses nothing of a quota has used. Its part is opened when it is first charged.
pub fn unused(namespace: &str, total: &Map<String, Value>) -> Value {
    part(namespace, total, zero_of(total))
}

fn zero_of(total: &Map<String, Value>) -> Map<String, Value> {
    let used = total.get("used").and_then(Value::as_object);
    used.into_iter().flatten().map(|(name, _)| (name.clone(), json!("0"))).collect()
}

fn part(namespace: &str, total: &Map<String, Value>, used: Map<String, Value>) -> Value {
    let mut status = Map::new();
    if let Some(hard) = total.get("hard") {
        status.insert("hard".into(), hard.clone());
    }
    status.insert("used".into(), Value::Object(used));
    json!({ "namespace": namespace, "status": status })
}

/// The namespaces that a cluster quota's status has listed so far: which ones are selected is known only where the rules
/// are, and readers show what was last published.
pub fn listed(quota: &Value) -> Vec<Arc<str>> {
    items(quota, &["status", "namespaces"]).iter().map(|one| text(one, &["namespace"]).into()).collect()
}

/// A hierarchical quota also says it in two lines, for its printer columns.
pub fn hierarchical_status(hard: Option<&Value>, lines: &[BalanceLine]) -> Map<String, Value> {
    let mut status = quota_status(hard, lines, "");
    let used = status.get("used").and_then(Value::as_object);
    let summary = |of_limits: bool| {
        let cells: Vec<String> = hard
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter(|(name, _)| name.starts_with("limits.") == of_limits)
            .filter_map(|(name, hard)| {
                let used = used?.get(name)?.as_str()?;
                Some(format!("{name}: {used}/{}", quantity_of(name, hard).ok()?))
            })
            .collect();
        cells.join(", ")
    };
    let (requests, limits) = (summary(false), summary(true));
    for (field, text) in [("requestsSummary", requests), ("limitsSummary", limits)] {
        if !text.is_empty() {
            status.insert(field.into(), Value::String(text));
        }
    }
    status
}
