//! What changes without a command becomes an event by this one, which the server sends when it sees that there is something to tell:
//! usage that comes near to a limit, overrides that have ended, and limits of a tier that says otherwise now.

use kinds::fields::{given, text};
use kinds::time;
use serde_json::{Map, Value, json};

use super::super::dimensions::Dimension;
use super::super::limits::{Cap, Effective};
use super::super::names::ORGS;
use super::super::status::level;
use super::super::{limits_of, numbers};
use super::Given;
use super::body::Body;
use super::operator::LimitChange;
use super::problem::Problem;
use super::work::{Asking, Done, Outcome};

/// The limits that an organization was last told to have, by dimension.
pub const LIMITS_TOLD: &str = "limits_told";

/// A limit as it is told: a number, a word, or nothing where nothing is enforced.
pub fn told(cap: Cap) -> Value {
    match cap {
        Cap::Unlimited => json!("unlimited"),
        cap => cap.shown(),
    }
}

pub fn all_told(limits: &Effective) -> Value {
    let all = Dimension::ALL.into_iter().map(|one| (one.name().to_owned(), told(limits.cap(one))));
    Value::Object(all.collect::<Map<String, Value>>())
}

/// Tells what changed by itself since that was last told.
pub fn tell(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    Body::of(given.body, &[])?;
    let stored = asking.load_to_change(ORGS, asking.org)?;
    let mut spec = stored.spec().clone();
    let mut events = limits(asking, &mut spec);
    events.extend(thresholds(asking, &mut spec));
    if events.is_empty() {
        return Ok(Outcome::as_it_was(&stored));
    }
    let mut out = Outcome::new(Done::Changed);
    let row = asking.change(&mut out, &stored, spec, &events);
    Ok(out.showing(row))
}

/// Limits that are others than were told. An override that has ended is taken away.
fn limits(asking: &Asking<'_>, spec: &mut Value) -> Vec<(&'static str, Value)> {
    let now_ms = asking.around.now_ms;
    // While its limits cannot be told, nothing is granted, and nothing said.
    let Ok(then) = limits_of(&json!({"spec": spec}), asking.around.world, now_ms) else { return Vec::new() };
    let usage = asking.usage();
    let mut events = Vec::new();
    for dimension in Dimension::ALL {
        let name = dimension.name();
        let own = &spec["overrides"][name];
        let ended = given(own, &["expires_at"]).and_then(Value::as_str).and_then(time::read_ms);
        let ended = ended.filter(|at| *at <= now_ms).map(|_| own.clone());
        let before = given(spec, &[LIMITS_TOLD]).map(|told| told[name].clone());
        let is_another = before.as_ref().is_some_and(|before| *before != told(then.cap(dimension)));
        if ended.is_none() && !is_another {
            continue;
        }
        let limit = |own: &Value| own.get("limit").cloned().unwrap_or_default();
        let effective_before = before.unwrap_or_else(|| ended.as_ref().map(limit).unwrap_or_default());
        let (old_limit, reason, expires_at) = match &ended {
            Some(own) => (limit(own), "the override has ended".to_owned(), own["expires_at"].clone()),
            None => (limit(own), format!("tier {:?} says otherwise", text(spec, &["tier"])), Value::Null),
        };
        let new_limit = if ended.is_some() { Value::Null } else { old_limit.clone() };
        let row = usage.iter().find(|row| row.dimension == dimension);
        let effective_before = if effective_before.is_number() { effective_before } else { Value::Null };
        let then = &then;
        let change = LimitChange {
            dimension,
            old_limit,
            new_limit,
            effective_before,
            then,
            row,
            reason: &reason,
            expires_at,
            ticket: None,
        };
        events.push(("org.quota_set", change.payload(asking.org, now_ms)));
        if ended.is_some()
            && let Some(overrides) = spec["overrides"].as_object_mut()
        {
            overrides.remove(name);
        }
        if spec[LIMITS_TOLD].is_object() {
            spec[LIMITS_TOLD][name] = told(then.cap(dimension));
        }
    }
    events
}

/// Where usage came near to a limit, or went back from it.
fn thresholds(asking: &Asking<'_>, spec: &mut Value) -> Vec<(&'static str, Value)> {
    let mut told = spec["warned"].as_object().cloned().unwrap_or_default();
    let mut crossed = Vec::new();
    for row in asking.usage() {
        let before = told.get(row.dimension.name()).and_then(Value::as_i64).unwrap_or(0);
        let now = level(&row, before);
        if now == before {
            continue;
        }
        match now {
            0 => drop(told.remove(row.dimension.name())),
            percent => drop(told.insert(row.dimension.name().into(), json!(percent))),
        }
        let payload = json!({
            "dimension": row.dimension.name(), "threshold": before.max(now),
            "direction": if now > before { "up" } else { "down" }, "percent": now,
            "usage": numbers::shown(row.usage), "limit": row.limit.map(numbers::shown),
        });
        crossed.push(("org.quota_threshold_crossed", payload));
    }
    if !crossed.is_empty() {
        spec["warned"] = Value::Object(told);
    }
    crossed
}
