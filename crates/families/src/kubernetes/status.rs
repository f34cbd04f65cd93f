//! What a quota shows of the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;

use quantity::Quantity;
use serde_json::{Map, Value, json};

use super::resources::{items, quantity_of, text};
use crate::family::BalanceLine;

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

/// Total usage, and usage by namespace: every selected namespace, used or not.
pub fn cluster_status(hard: Option<&Value>, lines: &[BalanceLine], selected: Vec<Arc<str>>) -> Map<String, Value> {
    let using = lines.iter().filter(|line| !line.bucket.is_empty() && !line.balance.used.is_zero());
    let namespaces: BTreeSet<Arc<str>> = using.map(|line| line.bucket.clone()).chain(selected).collect();
    let namespaces: Vec<Value> = namespaces
        .iter()
        .map(|namespace| {
            // A part is opened when it is first charged; until then it has used nothing.
            let mut status = quota_status(hard, lines, namespace);
            let zero = used_of(&quota_status(hard, lines, ""), |_| json!("0"));
            let known = status.remove("used").and_then(|used| used.as_object().cloned()).unwrap_or_default();
            let used: Map<String, Value> = zero.into_iter().chain(known).collect();
            status.insert("used".into(), Value::Object(used));
            json!({ "namespace": namespace, "status": status })
        })
        .collect();
    let mut status = Map::new();
    status.insert("total".into(), Value::Object(quota_status(hard, lines, "")));
    status.insert("namespaces".into(), if namespaces.is_empty() { Value::Null } else { Value::Array(namespaces) });
    status
}

/// The namespaces that a cluster quota's status has listed so far: which ones are selected is known only where the rules
/// are, and readers show what was last published.
pub fn listed(quota: &Value) -> Vec<Arc<str>> {
    items(quota, &["status", "namespaces"]).iter().map(|one| text(one, &["namespace"]).into()).collect()
}

fn used_of(status: &Map<String, Value>, value: impl Fn(&Value) -> Value) -> Map<String, Value> {
    let used = status.get("used").and_then(Value::as_object);
    used.into_iter().flatten().map(|(name, used)| (name.clone(), value(used))).collect()
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
