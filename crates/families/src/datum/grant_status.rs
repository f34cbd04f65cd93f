//! What grants, definitions and what grants come to tell of themselves.

use kinds::conditions;
use kinds::fields::{at, items, text};
use quantity::Amount;
use rules::policy_name;
use serde_json::{Map, Value, json};

use super::EFFECTIVE;
use super::catalog::{Catalog, Definition, invalid_reason};
use super::effective::{self, Grant};
use super::entity::Entities;
use super::limits::{Problem, UNLIMITED};
use super::metered::{Sample, Samples, is_stale};
use super::table::{BucketAccount, CLAIMS, Limited, Table};
use crate::{BalanceLine, Balances, Projected, put_status};

/// A condition before it has its time.
type Said = (&'static str, &'static str, &'static str, String);

/// Puts conditions into a status, with the generation they are about.
fn tell(status: &mut Map<String, Value>, object: &Value, said: Vec<Said>, now: &str) {
    let generation = at(object, &["metadata", "generation"]).filter(|generation| generation.is_i64());
    if let Some(generation) = generation {
        status.insert("observedGeneration".into(), generation.clone());
    }
    let before = status.get("conditions").cloned().unwrap_or_default();
    let mut list = Vec::with_capacity(said.len());
    for (kind, holds, reason, message) in said {
        let mut condition = conditions::condition(kind, holds, reason, &message);
        let known = conditions::find(&before, kind);
        conditions::since(&mut condition, "lastTransitionTime", known, &["status", "reason"], now);
        if let Some(generation) = generation {
            condition["observedGeneration"] = generation.clone();
        }
        list.push(condition);
    }
    status.insert("conditions".into(), Value::Array(list));
}

fn status_of(object: &Value) -> Map<String, Value> {
    object.get("status").and_then(Value::as_object).cloned().unwrap_or_default()
}

pub fn definition(object: &mut Value, balances: &dyn Balances) -> Projected {
    let Some(view) = balances.view() else { return Projected::Unchanged };
    let said = match Definition::read(object) {
        Ok(definition) => match Catalog::of(view).get(&definition.resource_name) {
            Some(known) if known.object != definition.object => {
                let why = format!("{:?} is defined by {:?} already", definition.resource_name, known.object);
                vec![
                    ("Ready", "False", "InvalidDefinition", why.clone()),
                    ("DefinitionValid", "False", "DuplicateResourceName", why),
                ]
            }
            _ => vec![
                ("Ready", "True", "DefinitionActive", "The resource can be granted and claimed.".into()),
                ("DefinitionValid", "True", "ValidationSuccessful", "The definition is valid.".into()),
            ],
        },
        Err(errors) => {
            let why = kinds::field_error::join(&errors);
            vec![
                ("Ready", "False", "InvalidDefinition", why.clone()),
                ("DefinitionValid", "False", invalid_reason(&errors), why),
            ]
        }
    };
    let mut status = status_of(object);
    tell(&mut status, object, said, &kinds::time::text(view.now_ms()));
    put_status(object, status)
}

pub fn grant(object: &mut Value, balances: &dyn Balances) -> Projected {
    let Some(view) = balances.view() else { return Projected::Unchanged };
    let catalog = Catalog::of(view);
    let grant = Grant::read(object);
    let problems = grant.limits.iter().enumerate().flat_map(|(at, one)| {
        let told =
            move |problem: Problem| (problem.reason, format!("spec.limits[{at}].{}: {}", problem.path, problem.why));
        one.problems(&catalog).into_iter().map(told)
    });
    let (reasons, messages): (Vec<&str>, Vec<String>) = problems.unzip();
    let problem = reasons.first().map(|reason| (*reason, messages.join("; ")));
    let mut said: Vec<Said> = Vec::new();
    let entity = grant.entity.clone();
    let stored = entity.as_ref().and_then(|entity| effective::stored(entity, view));
    let is_known = entity.as_ref().is_some_and(|entity| Entities::of(view).knows(entity));
    said.push(match (&problem, &entity) {
        (Some((_, message)), _) => ("Ready", "False", "InvalidLimitsConfiguration", message.clone()),
        (None, Some(entity)) if !is_known => ("Ready", "False", "NotEnforced", format!("there is no {entity}")),
        (None, None) => ("Ready", "False", "NotEnforced", "spec.resourceRef names no Project or Organization".into()),
        _ => ("Ready", "True", "GrantActive", "The limits are in force.".into()),
    });
    said.push(match problem {
        Some((reason, message)) => ("LimitsValid", "False", reason, message),
        None => ("LimitsValid", "True", "ValidationSuccessful", "The limits are valid.".into()),
    });
    let mut usage = Value::Null;
    said.push(match (&entity, stored) {
        (Some(entity), Some(stored)) => {
            let table = Table::read(&entity.object_name(), &stored, catalog);
            let samples = Samples::read(&stored);
            let lines = balances.of(&policy_name(&EFFECTIVE.resource(), "", &entity.object_name()));
            usage = used(&grant, &table, &samples, &lines, view.now_ms());
            synchronized(&grant, &table, &samples, view.now_ms())
        }
        _ => ("UsageSynchronized", "Unknown", "PendingSync", "Usage has not been counted yet.".into()),
    });
    let mut status = status_of(object);
    match usage {
        Value::Null => drop(status.remove("usage")),
        usage => drop(status.insert("usage".into(), usage)),
    }
    tell(&mut status, object, said, &kinds::time::text(view.now_ms()));
    put_status(object, status)
}

fn synchronized(grant: &Grant, table: &Table, samples: &Samples, now_ms: i64) -> Said {
    let mut said: Said =
        ("UsageSynchronized", "True", "SyncSuccessful", "Usage is what the ledger has granted.".into());
    for name in grant.limits.iter().map(|one| &one.name) {
        let Some(limited) = table.resources.get(name) else { continue };
        let Some(source) = &limited.definition.source else { continue };
        if !source.is_cached {
            said = (said.0, "Unknown", "CachingDisabled", format!("usage of {name} is measured, and not shown"));
            continue;
        }
        for bucket in &limited.buckets {
            match samples.get(&bucket.name) {
                None => {
                    return (
                        "UsageSynchronized",
                        "Unknown",
                        "PendingSync",
                        format!("usage of {name} was not measured yet"),
                    );
                }
                Some(Sample::Unavailable { message }) => {
                    return ("UsageSynchronized", "False", "SyncFailed", format!("usage of {name}: {message}"));
                }
                Some(Sample::Measured { recorded_ms, .. }) if is_stale(*recorded_ms, now_ms) => {
                    let since = kinds::time::text(*recorded_ms);
                    return (
                        "UsageSynchronized",
                        "False",
                        "StaleData",
                        format!("usage of {name} was last measured at {since}"),
                    );
                }
                Some(Sample::Measured { .. }) if said.1 == "True" => said.3 = "Usage was measured.".into(),
                Some(Sample::Measured { .. }) => {}
            }
        }
    }
    said
}

/// `status.usage`: what is used of each bucket of a grant, all grants of its entity together.
fn used(grant: &Grant, table: &Table, samples: &Samples, lines: &[BalanceLine], now_ms: i64) -> Value {
    let mut usage = Vec::new();
    for one in &grant.limits {
        let Some(limited) = table.resources.get(&one.name) else { continue };
        if limited.definition.source.as_ref().is_some_and(|source| !source.is_cached) {
            continue;
        }
        let of_grant =
            limited.buckets.iter().filter(|known| one.buckets.iter().any(|bucket| bucket.selector == known.selector));
        let buckets: Vec<Value> = of_grant.map(|bucket| shown(limited, bucket, samples, lines, now_ms)).collect();
        usage.push(json!({"name": one.name, "buckets": buckets}));
    }
    Value::Array(usage)
}

fn shown(limited: &Limited, bucket: &BucketAccount, samples: &Samples, lines: &[BalanceLine], now_ms: i64) -> Value {
    let unit = limited.definition.unit;
    let line = lines.iter().find(|line| line.resource == bucket.name && line.bucket.is_empty());
    let claimed = line.map_or(Amount::ZERO, |line| line.balance.used);
    let (unseen, synced) = match samples.get(&bucket.name) {
        Some(Sample::Measured { unseen, recorded_ms, .. }) => (*unseen, Some(*recorded_ms)),
        _ => (Amount::ZERO, None),
    };
    let used = claimed.checked_add(unseen).unwrap_or(claimed);
    let mut shown = json!({
        "selector": bucket.written,
        "limit": bucket.limit.map_or_else(|| UNLIMITED.to_owned(), |limit| unit.show(limit)),
        "used": unit.show(used),
    });
    if let Some(limit) = bucket.limit {
        let left = limit.checked_sub(used).unwrap_or(Amount::ZERO).max(Amount::ZERO);
        shown["available"] = json!(unit.show(left));
    }
    if let Some(synced) = synced {
        shown["lastSyncTime"] = json!(kinds::time::text(synced));
        if is_stale(synced, now_ms) {
            shown["stale"] = json!(true);
        }
    }
    shown
}

/// What grants come to: everything an entity has, with what is used.
pub fn effective(object: &mut Value, balances: &dyn Balances) -> Projected {
    let Some(view) = balances.view() else { return Projected::Unchanged };
    let name = text(object, &["metadata", "name"]).to_owned();
    let table = Table::read(&name, object, Catalog::of(view));
    let samples = Samples::read(object);
    let lines = balances.of(&policy_name(&EFFECTIVE.resource(), "", &name));
    let now_ms = view.now_ms();
    let resource = |(name, limited): (&String, &Limited)| {
        let buckets: Vec<Value> =
            limited.buckets.iter().map(|bucket| shown(limited, bucket, &samples, &lines, now_ms)).collect();
        json!({
            "name": name, "unit": limited.definition.unit_name,
            "from": if limited.is_granted { "Grant" } else { "Default" }, "buckets": buckets,
        })
    };
    let mut status = status_of(object);
    status.insert("resources".into(), table.resources.iter().map(resource).collect());
    let claims = lines.iter().find(|line| &*line.resource == CLAIMS);
    let counted = |count: fn(&BalanceLine) -> usize| json!(claims.map_or(0, count));
    status.insert("claimsGranted".into(), counted(|line| line.balance.subjects));
    let waiting = lines.iter().map(|line| line.balance.waiting).max().unwrap_or(0);
    status.insert("claimsWaiting".into(), json!(waiting));
    status.insert("grantCount".into(), json!(items(object, &["spec", "grants"]).len()));
    put_status(object, status)
}
