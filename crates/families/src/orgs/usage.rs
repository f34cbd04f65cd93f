//! How much each object takes of its organization's limits: one rule over all kinds that count.

use kinds::fields::{given, items, text};
use quantity::{Amount, Format};
use rules::{Measure, MeasureError, Subject, Verdict};
use serde_json::Value;

use super::dimensions::{COUNT, Dimension};
use super::footprint::Footprint;
use super::names::*;
use super::numbers;
use crate::{Plural, Plurals};

/// The kinds that take something of an organization's limits.
pub const COUNTED: Plurals = &[
    APPS,
    ENVS,
    INSTANCES,
    ROUTES,
    VOLUMES,
    ATTACHMENTS,
    RESTORE_JOBS,
    EXEC_SESSIONS,
    LOG_STREAMS,
    RELEASES,
    DEPLOYS,
    SNAPSHOTS,
    SECRET_BUNDLES,
    IDEMPOTENCY_KEYS,
];

/// What no tier limits is bounded all the same: what one organization may store of it.
pub const RECORDS: &str = "records";
pub const RECORDS_MAX: i64 = 20_000;
/// Keys of commands that are remembered at a time.
pub const KEYS: &str = "idempotency_keys";
pub const KEYS_MAX: i64 = 10_000;
/// And what all of that is long together, as it is stored.
pub const RECORD_BYTES: &str = "record_bytes";
pub const RECORD_BYTES_MAX: i64 = 64 << 20;
const RECORDS_AT: usize = COUNT + Dimension::COMPUTE.len();
const KEYS_AT: usize = RECORDS_AT + 1;
const RECORD_BYTES_AT: usize = KEYS_AT + 1;

/// How long a grant of an exec session is counted by the hour.
pub const HOUR_MS: i64 = 60 * 60 * 1000;

/// The place of an account: the dimensions in their order, then what is allocated of those that instances take.
pub const fn account_at(dimension: Dimension) -> usize {
    dimension.at()
}

pub const fn counted_at(dimension: Dimension) -> usize {
    COUNT + dimension.at()
}

/// Whether instances in this state are counted: all that are not to be stopped, booting, failed and draining ones included.
pub fn counts(desired_state: &str) -> bool {
    desired_state != "stopped"
}

/// Whether a job in this status goes on.
pub fn is_under_way(status: &str) -> bool {
    matches!(status, "queued" | "running")
}

/// When the grant of a session that nobody connected to ends; and since when it is counted by the hour.
pub fn session_times(spec: &Value) -> Result<(i64, i64), String> {
    let moment = |field: &str| given(spec, &[field]).and_then(Value::as_i64).ok_or(format!("{field} is no moment"));
    Ok((moment("expires_at_ms")?, moment("granted_at_ms")?))
}

/// The rule of one organization.
pub struct Usage;

impl Measure for Usage {
    fn may_change_with_time(&self, text: &str) -> bool {
        text.contains("expires_at_ms")
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        take(subject, out).map_err(|why| MeasureError {
            policy: subject.namespace.into(),
            message: format!("{} {:?}: {why}", subject.resource.resource, subject.name),
        })
    }
}

fn take(subject: &Subject<'_>, out: &mut Verdict) -> Result<(), String> {
    let is = |plural: Plural| plural.is(subject.resource);
    let spec = given(subject.object, &["spec"]).ok_or("it has no spec")?;
    let mut charge = |dimension: Dimension, amount: i64| {
        out.charge(account_at(dimension), Amount::from_units(amount), Format::DecimalSi);
    };
    if is(APPS) {
        charge(Dimension::Apps, 1);
    } else if is(ENVS) {
        charge(Dimension::Envs, 1);
        if given(spec, &["ipv4", "enabled"]).and_then(Value::as_bool) == Some(true) {
            charge(Dimension::Ipv4, 1);
        }
        let held = Footprint::read(spec.get("held").unwrap_or(&Value::Null)).map_err(|why| format!("held: {why}"))?;
        for (dimension, amount) in Dimension::COMPUTE.into_iter().zip(held.amounts()) {
            if !amount.is_zero() {
                out.charge(account_at(dimension), amount, Format::DecimalSi);
            }
        }
    } else if is(INSTANCES) {
        if counts(text(spec, &["desired_state"])) {
            let one = Footprint::of_one(spec.get("resources").unwrap_or(&Value::Null))?;
            for (dimension, amount) in Dimension::COMPUTE.into_iter().zip(one.amounts()) {
                out.charge(counted_at(dimension), amount, Format::DecimalSi);
            }
        }
    } else if is(ROUTES) {
        charge(Dimension::Routes, 1);
        if !text(spec, &["hostname"]).is_empty() {
            charge(Dimension::Hostnames, 1);
        }
        let ports = items(spec, &["charged_bindings"]).len();
        if ports > 0 {
            charge(Dimension::PublicPorts, i64::try_from(ports).map_err(|_| "too many bindings")?);
        }
    } else if is(VOLUMES) {
        charge(Dimension::Volumes, 1);
        charge(Dimension::VolumeBytes, numbers::whole(spec.get("size_bytes").unwrap_or(&Value::Null))?);
        if let Some(until_ms) = given(spec, &["snapshots_expires_at_ms"]).and_then(Value::as_i64) {
            out.holds_until(until_ms);
        }
    } else if is(ATTACHMENTS) {
        charge(Dimension::Attachments, 1);
    } else if is(RESTORE_JOBS) {
        if is_under_way(text(spec, &["status"])) {
            charge(Dimension::RestoreJobs, 1);
        }
    } else if is(EXEC_SESSIONS) {
        take_session(subject, spec, out)?;
    } else if is(LOG_STREAMS) {
        let (expires_ms, _) = session_times(spec)?;
        if subject.now_ms < expires_ms {
            charge(Dimension::LogStreams, 1);
        }
        out.holds_until(expires_ms);
    }
    take_records(subject, spec, out)
}

/// What is stored for as long as nobody deletes it.
fn take_records(subject: &Subject<'_>, spec: &Value, out: &mut Verdict) -> Result<(), String> {
    let is = |plural: &Plural| plural.is(subject.resource);
    if is(&IDEMPOTENCY_KEYS) {
        out.charge(KEYS_AT, Amount::from_units(1), Format::DecimalSi);
        out.holds_until(given(spec, &["expires_at_ms"]).and_then(Value::as_i64).ok_or("expires_at_ms is no moment")?);
    } else if [RELEASES, DEPLOYS, SNAPSHOTS, RESTORE_JOBS, SECRET_BUNDLES].iter().any(is) {
        out.charge(RECORDS_AT, Amount::from_units(1), Format::DecimalSi);
    } else {
        return Ok(());
    }
    let text = serde_json::to_vec(spec).map_err(|error| error.to_string())?;
    let bytes = i64::try_from(text.len()).map_err(|_| "it is too long")?;
    out.charge(RECORD_BYTES_AT, Amount::from_units(bytes), Format::DecimalSi);
    Ok(())
}

/// Whether a session in this state may be open: until its lease ends.
pub fn counts_as_open(state: &str) -> bool {
    matches!(state, "granted" | "connected")
}

/// A session counts while its lease lasts, which whoever is connected renews; and as a grant for an hour, whatever becomes of it.
fn take_session(subject: &Subject<'_>, spec: &Value, out: &mut Verdict) -> Result<(), String> {
    let (expires_ms, granted_ms) = session_times(spec)?;
    let leaves_ms = granted_ms.saturating_add(HOUR_MS);
    let state = text(spec, &["state"]);
    let is_open = counts_as_open(state) && subject.now_ms < expires_ms;
    if is_open {
        out.charge(account_at(Dimension::ExecSessions), Amount::from_units(1), Format::DecimalSi);
    }
    if subject.now_ms < leaves_ms {
        out.charge(account_at(Dimension::ExecSessionsPerHour), Amount::from_units(1), Format::DecimalSi);
    }
    // The next of its moments; when all have passed, the last.
    let next = match is_open {
        true if subject.now_ms < leaves_ms => expires_ms.min(leaves_ms),
        true => expires_ms,
        false => leaves_ms,
    };
    out.holds_until(next);
    Ok(())
}

/// The rule of one volume: its snapshots that are under way.
pub struct SnapshotsOf(pub String);

impl Measure for SnapshotsOf {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let spec = &subject.object["spec"];
        if text(spec, &["volume"]) == self.0 && is_under_way(text(spec, &["status"])) {
            out.charge(0, Amount::from_units(1), Format::DecimalSi);
        }
        Ok(())
    }
}
