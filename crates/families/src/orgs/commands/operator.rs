//! What operators do: organizations, their tiers, and limits of their own.

use kinds::time;
use serde_json::{Value, json};

use super::super::dimensions::Dimension;
use super::super::limits::{Cap, Effective, SurgePolicy, read_cap};
use super::super::names::*;
use super::super::status::Row;
use super::super::{limits_of, numbers};
use super::Given;
use super::body::Body;
use super::problem::Problem;
use super::telling::{LIMITS_TOLD, all_told, told};
use super::work::{Asking, Done, Outcome, Step, StepKind, Stored};
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
    if let Ok(limits) = limits_of(&json!({"spec": spec}), asking.around.world, asking.around.now_ms) {
        spec[LIMITS_TOLD] = all_told(&limits);
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
    let row = asking.create(&mut out, ORGS, name, spec, "org.created", payload);
    Ok(out.showing(row))
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
    // That the tier is another tells that its limits are; what changed by itself before is still to be told.
    let limits = |spec: &Value| limits_of(&json!({"spec": spec}), asking.around.world, asking.around.now_ms).ok();
    if let Some((before, then)) = limits(stored.spec()).zip(limits(&spec)) {
        let known = stored.spec()[LIMITS_TOLD] == all_told(&before);
        if known {
            spec[LIMITS_TOLD] = all_told(&then);
        }
    }
    let payload = json!({
        "org_id": asking.org, "old_tier": old, "new_tier": tier, "reason": reason,
        "changed_at": time::text(asking.around.now_ms),
    });
    let mut out = Outcome::new(Done::Changed);
    let row = asking.change(&mut out, &stored, spec, &[("org.tier_set", payload)]);
    Ok(out.showing(row))
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
    let row = asking.change(&mut out, &stored, spec, &[("org.policy_set", payload)]);
    Ok(out.showing(row))
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

/// Somebody changed a limit: that is told, and what is answered.
fn limit_changed(
    asking: &mut Asking<'_>,
    stored: &Stored,
    mut spec: Value,
    dimension: Dimension,
    reason: &str,
    ticket: Option<&str>,
) -> Result<Outcome, Problem> {
    let now_ms = asking.around.now_ms;
    let limits = |spec: &Value| {
        let limits = limits_of(&json!({"spec": spec}), asking.around.world, now_ms);
        limits.map_err(|errors| Problem::conflict("limits_unknown", kinds::field_error::join(&errors)))
    };
    let (before, then) = (limits(stored.spec())?, limits(&spec)?);
    if spec[LIMITS_TOLD].is_object() {
        spec[LIMITS_TOLD][dimension.name()] = told(then.cap(dimension));
    }
    let usage = asking.usage();
    let row = usage.iter().find(|row| row.dimension == dimension);
    let own = |spec: &Value| spec["overrides"][dimension.name()]["limit"].clone();
    let changed = LimitChange {
        dimension,
        old_limit: own(stored.spec()),
        new_limit: own(&spec),
        effective_before: before.cap(dimension).shown(),
        then: &then,
        row,
        reason,
        expires_at: spec["overrides"][dimension.name()]["expires_at"].clone(),
        ticket,
    };
    let payload = changed.payload(asking.org, now_ms);
    let mut out = Outcome::new(Done::Changed);
    let mut changed = asking.change(&mut out, stored, spec, &[("org.quota_set", payload.clone())]);
    out.body = payload;
    out.body["version"] = changed["version"].take();
    Ok(out)
}

/// A limit that is another one now.
pub(super) struct LimitChange<'a> {
    pub dimension: Dimension,
    /// What an operator had said, and says.
    pub old_limit: Value,
    pub new_limit: Value,
    pub effective_before: Value,
    pub then: &'a Effective,
    pub row: Option<&'a Row>,
    pub reason: &'a str,
    pub expires_at: Value,
    pub ticket: Option<&'a str>,
}

impl LimitChange<'_> {
    /// `org.quota_set`: which limit went from what to what, why, and how usage stood.
    pub fn payload(self, org: &str, now_ms: i64) -> Value {
        let LimitChange { dimension, then, row, .. } = self;
        let over = match then.cap(dimension) {
            Cap::Most(limit) => row.is_some_and(|row| row.usage > limit),
            Cap::Unlimited | Cap::NotEnforced => false,
        };
        json!({
            "org_id": org,
            "dimension": dimension.name(),
            "old_limit": self.old_limit,
            "new_limit": self.new_limit,
            "effective_before": self.effective_before,
            "effective_after": then.cap(dimension).shown(),
            "limit_source_after": then.sources[dimension.at()].word(),
            "usage_at_change": row.map(|row| numbers::shown(row.usage)),
            "reserved_at_change": row.map(|row| numbers::shown(row.reserved)),
            "over_limit_after": over,
            "reason": self.reason,
            "expires_at": self.expires_at,
            "ticket": self.ticket,
            "changed_at": time::text(now_ms),
        })
    }
}

/// What becomes of a surge without room, for an organization.
pub fn surge_policy(asking: &Asking<'_>) -> SurgePolicy {
    let org = asking.find(ORGS, asking.org);
    let limits = org.and_then(|org| limits_of(&org.object, asking.around.world, asking.around.now_ms).ok());
    limits.map(|limits| limits.surge_policy).unwrap_or_default()
}
