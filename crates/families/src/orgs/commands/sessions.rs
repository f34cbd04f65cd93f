//! Exec sessions and log streams: what is counted while it is open, and never longer than its lease.

use kinds::fields::text;
use serde_json::{Value, json};

use super::super::names::*;
use super::super::usage::{HOUR_MS, counts, counts_as_open};
use super::Given;
use super::body::Body;
use super::problem::{Problem, RATE_LIMITED, Sort};
use super::work::{Asking, Done, Outcome, Step, StepKind, Stored, row};
use crate::Place;

/// How long a grant waits for somebody to connect.
pub const GRANT_MS: i64 = 60 * 1000;
/// How long a connected session counts after it was last renewed: whoever crashes gives it back.
pub const SESSION_MS: i64 = 60 * 1000;
/// How long a log stream counts after it was last renewed.
pub const STREAM_MS: i64 = 30 * 1000;
/// Sessions of one environment and in one instance: guards of the platform, not an organization's quota.
const SESSIONS_PER_ENV_MAX: usize = 10;
const SESSIONS_PER_INSTANCE_MAX: usize = 2;

pub fn grant(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    Body::of(given.body, &[])?;
    let instance = asking.load(INSTANCES, given.name("instance"))?;
    if !counts(text(instance.spec(), &["desired_state"])) {
        return Err(instance_stopped());
    }
    let now_ms = asking.around.now_ms;
    let name = asking.new_id("x");
    let spec = json!({
        "instance": instance.name, "app": instance.spec()["app"], "env": instance.spec()["env"], "state": "granted",
        "granted_at_ms": now_ms, "expires_at_ms": now_ms.saturating_add(GRANT_MS),
    });
    exec_room(&spec, asking.list(EXEC_SESSIONS).iter().map(Stored::spec), now_ms)?;
    let mut out = Outcome::new(Done::Created);
    let payload = json!({"instance_id": instance.name});
    let row = asking.create(&mut out, EXEC_SESSIONS, &name, spec, "exec_session.granted", payload);
    Ok(out.showing(row))
}

pub fn instance_stopped() -> Problem {
    Problem::conflict("instance_stopped", "the instance is to be stopped")
}

/// Whether there is room for a session beside these.
pub fn exec_room<'a>(one: &Value, others: impl Iterator<Item = &'a Value>, now_ms: i64) -> Result<(), Problem> {
    let (mut in_env, mut in_instance) = (0, 0);
    for other in others.filter(|other| is_open(other, now_ms)) {
        in_env += usize::from(["app", "env"].iter().all(|field| other[*field] == one[*field]));
        in_instance += usize::from(other["instance"] == one["instance"]);
    }
    if in_env < SESSIONS_PER_ENV_MAX && in_instance < SESSIONS_PER_INSTANCE_MAX {
        return Ok(());
    }
    let why = format!(
        "there are {SESSIONS_PER_ENV_MAX} sessions at most in an environment, and {SESSIONS_PER_INSTANCE_MAX} in an instance"
    );
    Err(Problem::new(Sort::Limited, RATE_LIMITED, why))
}

/// Whether a session counts for nothing any more.
pub fn has_passed(session: &Value, now_ms: i64) -> bool {
    let at = |field: &str| session.get(field).and_then(Value::as_i64).unwrap_or(i64::MAX);
    let is_ended = text(session, &["state"]) == "ended" || now_ms >= at("expires_at_ms");
    is_ended && now_ms >= at("granted_at_ms").saturating_add(HOUR_MS)
}

fn is_open(spec: &Value, now_ms: i64) -> bool {
    counts_as_open(text(spec, &["state"])) && spec["expires_at_ms"].as_i64().is_some_and(|at| now_ms < at)
}

/// Connects to a granted session; from then on the same command, sent again, says that somebody is still there.
pub fn connect(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    Body::of(given.body, &[])?;
    let stored = asking.load_to_change(EXEC_SESSIONS, given.name("session"))?;
    let now_ms = asking.around.now_ms;
    let instance = asking.find(INSTANCES, text(stored.spec(), &["instance"]));
    let runs = instance.is_some_and(|one| counts(text(one.spec(), &["desired_state"])));
    if !is_open(stored.spec(), now_ms) || !runs {
        return Err(Problem::conflict(
            "session_ended",
            "the session has ended: nobody connected or renewed it in time, it was closed, or its instance stopped",
        ));
    }
    let was_connected = text(stored.spec(), &["state"]) == "connected";
    let left_ms = stored.spec()["expires_at_ms"].as_i64().unwrap_or(now_ms).saturating_sub(now_ms);
    // Not every sign of life is written down.
    if was_connected && left_ms > SESSION_MS / 2 {
        return Ok(Outcome::as_it_was(&stored));
    }
    let mut spec = stored.spec().clone();
    spec["state"] = json!("connected");
    spec["expires_at_ms"] = json!(now_ms.saturating_add(SESSION_MS));
    let event = if was_connected { "exec_session.renewed" } else { "exec_session.connected" };
    let mut out = Outcome::new(Done::Changed);
    let row = asking.change(&mut out, &stored, spec, &[(event, json!({}))]);
    Ok(out.showing(row))
}

/// Ends a session, and says why it has; one that has ended, and is counted by the hour no longer, is forgotten.
pub fn end(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    Body::of(given.body, &[])?;
    let stored = asking.load_to_change(EXEC_SESSIONS, given.name("session"))?;
    if text(stored.spec(), &["state"]) == "ended" {
        if !has_passed(stored.spec(), asking.around.now_ms) {
            return Ok(Outcome::as_it_was(&stored));
        }
        let mut out = Outcome::new(Done::Deleted);
        asking.delete(&mut out, &stored, "exec_session.deleted", json!({}));
        return Ok(out);
    }
    let instance = asking.find(INSTANCES, text(stored.spec(), &["instance"]));
    let runs = instance.is_some_and(|one| counts(text(one.spec(), &["desired_state"])));
    let reason = match text(stored.spec(), &["state"]) {
        _ if !runs => "instance_stopped",
        _ if is_open(stored.spec(), asking.around.now_ms) => "closed",
        "connected" => "connection_lost",
        _ => "connect_timeout",
    };
    let mut spec = stored.spec().clone();
    spec["state"] = json!("ended");
    spec["end_reason"] = json!(reason);
    let mut out = Outcome::new(Done::Changed);
    let payload = json!({"reason": reason});
    let row = asking.change(&mut out, &stored, spec, &[("exec_session.ended", payload)]);
    Ok(out.showing(row))
}

/// A lease on a log stream. It is no event: it passes by itself if nobody renews it.
pub fn open_stream(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    asking.load(ENVS, &env_name(given.name("app"), given.name("env")))?;
    let now_ms = asking.around.now_ms;
    let name = asking.new_id("l");
    let spec = json!({
        "app": given.name("app"), "env": given.name("env"), "holder": asking.actor.id, "granted_at_ms": now_ms,
        "expires_at_ms": now_ms.saturating_add(STREAM_MS),
    });
    let mut out = Outcome::new(Done::Created);
    let row = asking.create_quietly(&mut out, LOG_STREAMS, &name, spec);
    Ok(out.showing(row))
}

pub fn renew_stream(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load(LOG_STREAMS, given.name("stream"))?;
    let mut object = (*stored.object).clone();
    object["spec"]["expires_at_ms"] = json!(asking.around.now_ms.saturating_add(STREAM_MS));
    let place = Place::new(LOG_STREAMS.resource(), asking.org, &stored.name);
    let mut out = Outcome::new(Done::Changed).showing(row(&object));
    out.steps.push(Step { place, kind: StepKind::Update(stored.revision()), object });
    Ok(out)
}

pub fn close_stream(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load(LOG_STREAMS, given.name("stream"))?;
    let place = Place::new(LOG_STREAMS.resource(), asking.org, &stored.name);
    let mut out = Outcome::new(Done::Deleted);
    out.steps.push(Step { place, kind: StepKind::DeleteAny, object: (*stored.object).clone() });
    Ok(out)
}
