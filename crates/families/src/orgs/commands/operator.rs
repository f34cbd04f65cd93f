//! What operators do: organizations, their tiers, and limits of their own.

use kinds::time;
use serde_json::{Value, json};

use super::super::dimensions::Dimension;
use super::super::limits::{Cap, Source, SurgePolicy, read_cap};
use super::super::names::*;
use super::super::status::level;
use super::super::{limits_of, numbers};
use super::body::Body;
use super::problem::Problem;
use super::work::{Asking, Done, Outcome, Step, StepKind, Stored};
use super::{Given, row};
use crate::Place;

/// An organization and the namespace with all that is its own.
pub fn create_org(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["id", "tier", "display_name", "reservations", "surge_policy"])?;
    let name = body.name("id")?;
    let tier = body.text("tier")?.unwrap_or("free");
    check_tier(asking, tier)?;
    let mut spec = json!({"tier": tier, "overrides": {}});
    // Of an earlier organization of this name the next one learns nothing.
    for (field, from) in ["events_from", "audit_from"].into_iter().zip(asking.around.journals_from) {
        spec[field] = json!(from);
    }
    spec["reservations"] = json!(body.word("reservations", &["exact", "check"])?.unwrap_or("exact"));
    if let Some(policy) = body.word("surge_policy", &["drain_first", "reject"])? {
        spec["surge_policy"] = json!(policy);
    }
    if let Some(shown) = body.text("display_name")? {
        spec["display_name"] = json!(shown);
    }
    if asking.find(ORGS, name).is_some() {
        return Err(Problem::conflict("org_exists", format!("there is an organization {name:?} already")));
    }
    let mut out = Outcome::new(Done::Created);
    if asking.around.world.get(&NAMESPACES.resource(), "", name).is_some() {
        return Err(Problem::conflict("org_exists", format!("the name {name:?} is taken by a namespace")));
    }
    let uid = kinds::uid::text(ledger::SubjectId((asking.around.ids)()));
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name, "uid": uid, "creationTimestamp": time::text(asking.around.now_ms),
            "labels": {"kubernetes.io/metadata.name": name, "orgs.bursar.dev/org": name},
        },
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    });
    let place = Place::new(NAMESPACES.resource(), "", name);
    out.steps.push(Step { place, kind: StepKind::Create, object: namespace });
    let payload = json!({"tier": tier});
    let object = asking.create(&mut out, ORGS, name, spec, "org.created", payload);
    Ok(out.showing(&object))
}

/// An organization that has nothing any more; its namespace is removed as any other, with what is left in it.
pub fn delete_org(_: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(ORGS, asking.org)?;
    let mut out = Outcome::new(Done::Deleted);
    asking.delete(&mut out, &stored, "org.deleted", json!({}));
    if let Some(namespace) = asking.around.world.get(&NAMESPACES.resource(), "", asking.org) {
        let mut namespace = (*namespace).clone();
        namespace["metadata"]["deletionTimestamp"] = json!(time::text(asking.around.now_ms));
        namespace["status"]["phase"] = json!("Terminating");
        let place = Place::new(NAMESPACES.resource(), "", asking.org);
        out.steps.push(Step { place, kind: StepKind::UpdateAny, object: namespace });
    }
    Ok(out)
}

fn check_tier(asking: &Asking<'_>, tier: &str) -> Result<(), Problem> {
    match asking.find(TIERS, tier) {
        Some(_) => Ok(()),
        None => Err(Problem::invalid("tier", format!("there is no tier {tier:?}"))),
    }
}

pub fn set_tier(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["tier", "reason"])?;
    let (tier, reason) = (body.needed_text("tier")?, body.needed_text("reason")?);
    check_tier(asking, tier)?;
    let stored = asking.load_to_change(ORGS, asking.org)?;
    let old = stored.spec()["tier"].clone();
    if old == tier {
        return Ok(Outcome::as_it_was(&stored));
    }
    let mut spec = stored.spec().clone();
    spec["tier"] = json!(tier);
    let payload = json!({
        "org_id": asking.org, "old_tier": old, "new_tier": tier, "reason": reason,
        "changed_at": time::text(asking.around.now_ms),
    });
    let mut out = Outcome::new(Done::Changed);
    let object = asking.change(&mut out, &stored, spec, &[("org.tier_set", payload)]);
    Ok(out.showing(&object))
}

/// How commands of an organization are taken: whether they reserve, and what becomes of surges without room.
pub fn set_policy(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["reservations", "surge_policy"])?;
    let stored = asking.load_to_change(ORGS, asking.org)?;
    let mut spec = stored.spec().clone();
    if let Some(word) = body.word("reservations", &["exact", "check"])? {
        spec["reservations"] = json!(word);
    }
    if let Some(word) = body.word("surge_policy", &["drain_first", "reject"])? {
        spec["surge_policy"] = json!(word);
    }
    if spec == *stored.spec() {
        return Ok(Outcome::as_it_was(&stored));
    }
    let payload = json!({"reservations": spec["reservations"], "surge_policy": spec["surge_policy"]});
    let mut out = Outcome::new(Done::Changed);
    let object = asking.change(&mut out, &stored, spec, &[("org.policy_set", payload)]);
    Ok(out.showing(&object))
}

/// Where usage came near to a limit, or went back from it, since that was last told.
pub fn tell_thresholds(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    Body::of(given.body, &[])?;
    let stored = asking.load_to_change(ORGS, asking.org)?;
    let mut told = stored.spec()["warned"].as_object().cloned().unwrap_or_default();
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
    if crossed.is_empty() {
        return Ok(Outcome::as_it_was(&stored));
    }
    let mut spec = stored.spec().clone();
    spec["warned"] = Value::Object(told);
    let mut out = Outcome::new(Done::Changed);
    let object = asking.change(&mut out, &stored, spec, &crossed);
    Ok(out.showing(&object))
}

fn dimension_of(given: &Given<'_>) -> Result<Dimension, Problem> {
    let name = given.name("dimension");
    Dimension::parse(name).ok_or_else(|| Problem::not_found("dimension", name))
}

pub fn set_quota(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let dimension = dimension_of(given)?;
    let body = Body::of(given.body, &["limit", "reason", "expires_at", "ticket"])?;
    let limit = body.required("limit")?;
    let cap = read_cap(dimension, limit).map_err(|why| Problem::invalid("limit", why))?;
    let reason = body.needed_text("reason")?;
    let expires_at = body.text("expires_at")?;
    if let Some(text) = expires_at {
        let at = time::read_ms(text);
        let at = at.ok_or_else(|| Problem::invalid("expires_at", "it is no moment: write 2027-01-31T12:00:00Z"))?;
        if at <= asking.around.now_ms {
            return Err(Problem::invalid("expires_at", "it is over"));
        }
    }
    let written = match cap {
        Cap::Most(amount) if dimension.is_fractional() => json!(numbers::text(amount)),
        Cap::Most(amount) => numbers::shown(amount),
        Cap::Unlimited | Cap::NotEnforced => json!("unlimited"),
    };
    let stored = asking.load_to_change(ORGS, asking.org)?;
    let mut spec = stored.spec().clone();
    let mut own = json!({
        "limit": written, "reason": reason, "set_by": asking.actor.id,
        "updated_at": time::text(asking.around.now_ms),
    });
    if let Some(at) = expires_at {
        own["expires_at"] = json!(at);
    }
    if !spec["overrides"].is_object() {
        spec["overrides"] = json!({});
    }
    spec["overrides"][dimension.name()] = own;
    limit_changed(asking, &stored, spec, dimension, reason, body.text("ticket")?)
}

pub fn delete_quota(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let dimension = dimension_of(given)?;
    let body = Body::of(given.body, &["reason", "ticket"])?;
    let reason = body.text("reason")?.unwrap_or("removed");
    let stored = asking.load_to_change(ORGS, asking.org)?;
    let mut spec = stored.spec().clone();
    let removed = spec["overrides"].as_object_mut().and_then(|overrides| overrides.remove(dimension.name()));
    if removed.is_none() {
        return Ok(Outcome::as_it_was(&stored));
    }
    limit_changed(asking, &stored, spec, dimension, reason, body.text("ticket")?)
}

/// `org.quota_set`: who changed which limit from what to what, and how usage stood.
fn limit_changed(
    asking: &mut Asking<'_>,
    stored: &Stored,
    spec: Value,
    dimension: Dimension,
    reason: &str,
    ticket: Option<&str>,
) -> Result<Outcome, Problem> {
    let now_ms = asking.around.now_ms;
    let mut after = (*stored.object).clone();
    after["spec"] = spec.clone();
    let limits = |org: &Value| {
        let limits = limits_of(org, asking.around.world, now_ms);
        limits.map_err(|errors| Problem::conflict("limits_unknown", kinds::field_error::join(&errors)))
    };
    let (before, then) = (limits(&stored.object)?, limits(&after)?);
    let usage = asking.usage();
    let row = usage.iter().find(|row| row.dimension == dimension);
    let over = match then.cap(dimension) {
        Cap::Most(limit) => row.is_some_and(|row| row.usage > limit),
        Cap::Unlimited | Cap::NotEnforced => false,
    };
    let own = |org: &Value| org["spec"]["overrides"][dimension.name()]["limit"].clone();
    let source = if then.sources[dimension.at()] == Source::Override { "override" } else { "tier" };
    let payload = json!({
        "org_id": asking.org,
        "dimension": dimension.name(),
        "old_limit": own(&stored.object),
        "new_limit": own(&after),
        "effective_before": before.cap(dimension).shown(),
        "effective_after": then.cap(dimension).shown(),
        "limit_source_after": source,
        "usage_at_change": row.map(|row| numbers::shown(row.usage)),
        "reserved_at_change": row.map(|row| numbers::shown(row.reserved)),
        "over_limit_after": over,
        "reason": reason,
        "expires_at": after["spec"]["overrides"][dimension.name()]["expires_at"],
        "ticket": ticket,
        "changed_at": time::text(now_ms),
    });
    let mut out = Outcome::new(Done::Changed);
    let object = asking.change(&mut out, stored, spec, &[("org.quota_set", payload.clone())]);
    out.body = payload;
    out.body["version"] = row_version(&object);
    Ok(out)
}

fn row_version(object: &Value) -> Value {
    row(object)["version"].clone()
}

/// What becomes of a surge without room, for an organization.
pub fn surge_policy(asking: &Asking<'_>) -> SurgePolicy {
    let org = asking.find(ORGS, asking.org);
    let limits = org.and_then(|org| limits_of(&org.object, asking.around.world, asking.around.now_ms).ok());
    limits.map(|limits| limits.surge_policy).unwrap_or_default()
}
