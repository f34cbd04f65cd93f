//! What a pool shows: what is claimed of it, by which claims in which namespaces, and what it lacks.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::SubjectId;
use quantity::{Amount, Quantity};
use rules::{GroupResource, policy_name};
use serde_json::{Map, Value, json};

use super::claim::{Conditions, shown};
use super::pool::{CLAIMS, Pool, show_amounts};
use super::status::{CLAIMS_SHOWN_MAX, time, uid};
use super::{nodes, text};
use crate::{BalanceLine, Balances, Projected, View, put_status};

/// Waiting claims that are added up to tell how much is asked for in vain.
const WAITING_ADDED_MAX: usize = 1000;

pub fn project(resource: &GroupResource, pool: &mut Value, balances: &dyn Balances) -> Projected {
    let policy = policy_name(resource, "", text(pool, &["metadata", "name"]));
    let Ok(spec) = Pool::read(pool) else { return Projected::Unchanged };
    let lines = balances.of(&policy);
    if lines.is_empty() {
        return Projected::Unchanged;
    }
    let mut status = pool.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let generation = pool.pointer("/metadata/generation").cloned().unwrap_or(Value::Null);
    if generation.is_i64() {
        status.insert("observedGeneration".into(), generation.clone());
    }
    status.insert("allocation".into(), allocation(&spec, &lines));
    let count = lines.iter().find(|line| line.bucket.is_empty() && &*line.resource == CLAIMS);
    let count = count.map_or(0, |line| line.balance.subjects);
    status.insert("claimCount".into(), json!(count));
    status.insert("namespaceUsage".into(), by_namespace(&lines));
    let before = status.remove("conditions").unwrap_or(Value::Null);
    let Some(view) = balances.view() else {
        if !before.is_null() {
            status.insert("conditions".into(), before);
            return put_status(pool, status);
        }
        // Just written: until it is published, it is as good as its birth.
        let born = text(pool, &["metadata", "creationTimestamp"]).to_string();
        let mut conditions = Conditions { before, now: born, list: Vec::new(), generation };
        conditions.push("Ready", "True", "Succeeded", "reconciled".into(), false);
        status.insert("conditions".into(), Value::Array(conditions.list));
        return put_status(pool, status);
    };
    let namespaces = view.namespaces(&policy);
    status.insert("namespaceCount".into(), json!(namespaces.len()));
    status.insert("namespaces".into(), json!(namespaces.iter().map(|name| &**name).collect::<Vec<_>>()));
    status.insert("claims".into(), claims(&policy, &lines, view));
    let exhaustions = exhaustions(&policy, &lines, view);
    let mut conditions = Conditions { before, now: time(view.now_ms()), list: Vec::new(), generation };
    conditions.push("Ready", "True", "Succeeded", "reconciled".into(), false);
    match exhaustions.is_empty() {
        true => conditions.push("Exhausted", "False", "NoExhaustions", "no exhaustions".into(), false),
        false => conditions.push("Exhausted", "True", "PoolExhausted", "Pool has exhaustions".into(), false),
    }
    match nodes::oversubscribed(pool, &lines) {
        Some(over) if over.is_empty() => {
            conditions.push("Oversubscribed", "False", "NodesSuffice", "the nodes cover the claims".into(), false);
        }
        Some(over) => conditions.push("Oversubscribed", "True", "NodesShrunk", over.join("; "), false),
        None => {}
    }
    status.insert("exhaustions".into(), Value::Object(exhaustions));
    status.insert("conditions".into(), Value::Array(conditions.list));
    put_status(pool, status)
}

fn allocation(spec: &Pool, lines: &[BalanceLine]) -> Value {
    let used = |name: &str| {
        let line = lines.iter().find(|line| line.bucket.is_empty() && &*line.resource == name);
        line.map(|line| Quantity::new(line.balance.used, line.balance.format)).unwrap_or_default()
    };
    let (mut all_used, mut all_left) = (Vec::new(), Vec::new());
    for (name, hard) in &spec.hard {
        let used = used(name);
        let left = hard.checked_sub(&used).filter(|left| !left.amount().is_negative()).unwrap_or_default();
        all_used.push((name.clone(), used));
        all_left.push((name.clone(), left));
    }
    json!({
        "hard": show_amounts(spec.hard.clone()),
        "used": show_amounts(all_used),
        "available": show_amounts(all_left),
    })
}

/// What the claims of each namespace have together; a namespace without claims is left out.
fn by_namespace(lines: &[BalanceLine]) -> Value {
    let mut namespaces: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let parts = lines.iter().filter(|line| !line.bucket.is_empty() && &*line.resource != CLAIMS);
    for line in parts.filter(|line| !line.balance.used.is_zero()) {
        let used = Quantity::new(line.balance.used, line.balance.format).to_string();
        namespaces.entry(&line.bucket).or_default().insert(line.resource.to_string(), json!(used));
    }
    json!(namespaces)
}

/// The claims that have their resources, by namespace and name: the first of them.
fn claims(policy: &str, lines: &[BalanceLine], view: &dyn View) -> Value {
    let mut left = CLAIMS_SHOWN_MAX;
    let mut namespaces: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for line in lines.iter().filter(|line| !line.bucket.is_empty() && &*line.resource == CLAIMS) {
        let mut claims: BTreeMap<(Arc<str>, SubjectId), Map<String, Value>> = BTreeMap::new();
        for held in view.holders(policy, CLAIMS, &line.bucket, left) {
            let amounts = claims.entry((held.name, held.uid)).or_default();
            if &*held.account != CLAIMS {
                let amount = Quantity::new(held.amount, held.format).to_string();
                amounts.insert(held.account.to_string(), json!(amount));
            }
        }
        left = left.saturating_sub(claims.len());
        let entries = claims.into_iter().map(|((name, id), amounts)| shown(uid(id), &name, &line.bucket, amounts));
        let entries: Vec<Value> = entries.collect();
        if !entries.is_empty() {
            namespaces.insert(&line.bucket, entries);
        }
    }
    json!(namespaces)
}

/// Resources that claims wait for: what is left of them, and what is asked for.
fn exhaustions(policy: &str, lines: &[BalanceLine], view: &dyn View) -> Map<String, Value> {
    let mut asked: BTreeMap<&str, (Amount, &BalanceLine)> = BTreeMap::new();
    let waiting = view.waiting(policy, WAITING_ADDED_MAX);
    for wait in waiting.iter().filter(|wait| &*wait.account != CLAIMS) {
        let Some(line) = lines.iter().find(|line| line.bucket.is_empty() && line.resource == wait.account) else {
            continue;
        };
        if wait.amount > left(line) {
            let sum = &mut asked.entry(&line.resource).or_insert((Amount::ZERO, line)).0;
            *sum = sum.checked_add(wait.amount).unwrap_or(*sum);
        }
    }
    let show = |amount: Amount, line: &BalanceLine| Quantity::new(amount, line.balance.format).to_string();
    let entries = asked.into_iter().map(|(name, (requesting, line))| {
        let entry = json!({"available": show(left(line), line), "requesting": show(requesting, line)});
        (name.to_string(), entry)
    });
    entries.collect()
}

fn left(line: &BalanceLine) -> Amount {
    let limit = line.balance.limit.amount().unwrap_or(Amount::ZERO);
    limit.checked_sub(line.balance.used).unwrap_or(Amount::ZERO).max(Amount::ZERO)
}
