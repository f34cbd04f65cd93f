//! What monitoring sees: claims by phase and reason, what is granted and used, and how meters fare.
//!
//! Limits and usage are what the EffectiveQuotaGrants show. Decisions are counted in the steps that make them, from the start of the
//! process on; an object that is refused because its claim would not be granted is a claim that was denied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use kinds::fields::{items, text};
use serde_json::Value;

use super::metered::{Sample, Samples as Measured};
use super::selector::Selector;
use super::table::account_name;
use super::units::Unit;
use super::{CLAIMS, EFFECTIVE};
use crate::Change;
use crate::metrics::{Metric, Samples, Survey};

const OF_BUCKET: &[&str] = &["bucket", "entity", "entity_kind", "resource"];

static GRANTED: Metric = Metric::counter("quota_claims_granted_total", &[], "Claims that were granted");
static DENIED: Metric = Metric::counter("quota_claims_denied_total", &["reason"], "Claims that were denied");
static LEFT_OUT: Metric = Metric::counter(
    "quota_denials_left_out_total",
    &[],
    "Denials that are not written down, because their project has too many of them there",
);
static CLAIMS_NOW: Metric = Metric::gauge("quota_claims", &["phase", "reason"], "Claims by what was decided");
static LIMIT: Metric = Metric::gauge("quota_bucket_limit", OF_BUCKET, "What is granted, in the resource's unit");
static USED: Metric = Metric::gauge("quota_bucket_used", OF_BUCKET, "What is used, in the resource's unit");
static WAITING: Metric = Metric::gauge("quota_claims_waiting", &["entity", "entity_kind"], "Claims that wait");
static METER_UP: Metric =
    Metric::gauge("quota_meter_up", &["account", "entity", "entity_kind"], "Whether a bucket's meter answered last");

static EVENTS_SENT: Metric =
    Metric::counter("quota_events_sent_total", &["definition"], "Metering events that were accepted");
static EVENTS_FAILED: Metric = Metric::counter(
    "quota_events_failed_total",
    &["definition"],
    "Requests with metering events that were not accepted",
);
static EVENTS_WAITING: Metric =
    Metric::gauge("quota_events_waiting", &["definition"], "Entries of the outbox that a sink has not passed yet");

static EVENTS_LOST: Metric = Metric::counter(
    "quota_events_lost_total",
    &["definition"],
    "Entries of the outbox that were retired before a sink had them",
);

static EVENTS_REFUSED: Metric = Metric::counter(
    "quota_events_refused_total",
    &["definition"],
    "Metering events that were given up, because their receiver refused them and took others",
);

pub static ALL: &[&Metric] = &[
    &GRANTED,
    &DENIED,
    &LEFT_OUT,
    &CLAIMS_NOW,
    &LIMIT,
    &USED,
    &WAITING,
    &METER_UP,
    &EVENTS_SENT,
    &EVENTS_FAILED,
    &EVENTS_WAITING,
    &EVENTS_LOST,
    &EVENTS_REFUSED,
];

/// Decisions, counted by whoever sees them.
#[derive(Clone, Debug, Default)]
pub struct Decisions(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    granted: u64,
    denied: BTreeMap<String, u64>,
    left_out: u64,
    /// By definition.
    outbox: BTreeMap<String, Sent>,
}

/// How events of one definition fare.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub sent: u64,
    pub failed: u64,
    pub waiting: u64,
    pub lost: u64,
    pub refused: u64,
}

impl Decisions {
    /// Counts what a stored claim has come to.
    pub fn note(&self, change: &Change<'_>) {
        let Some(new) = change.new else { return };
        let said = |object: &Value| ["phase", "reason"].map(|field| text(object, &["status", field]).to_owned());
        let (before, now) = (said(change.old), said(new));
        match now[0].as_str() {
            "Granted" if before[0] != now[0] => self.count(|counts| counts.granted += 1),
            "Denied" if before != now => self.note_denied(&now[1]),
            _ => {}
        }
    }

    pub fn note_denied(&self, reason: &str) {
        self.count(|counts| *counts.denied.entry(reason.to_owned()).or_default() += 1);
    }

    pub fn note_left_out(&self) {
        self.count(|counts| counts.left_out += 1);
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn outbox(&self, definition: &str, change: impl FnOnce(&mut Sent)) {
        self.count(|counts| change(counts.outbox.entry(definition.to_owned()).or_default()));
    }
}

pub fn sample(decisions: &Decisions, survey: &dyn Survey, out: &mut Samples) {
    {
        let counts = decisions.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.put(&GRANTED, &[], counts.granted);
        for (reason, count) in &counts.denied {
            out.put(&DENIED, &[reason], count);
        }
        out.put(&LEFT_OUT, &[], counts.left_out);
        for (definition, Sent { sent, failed, waiting, lost, refused }) in &counts.outbox {
            out.put(&EVENTS_SENT, &[definition], sent);
            out.put(&EVENTS_FAILED, &[definition], failed);
            out.put(&EVENTS_WAITING, &[definition], waiting);
            out.put(&EVENTS_LOST, &[definition], lost);
            out.put(&EVENTS_REFUSED, &[definition], refused);
        }
    }
    let mut claims: BTreeMap<(String, String), u64> = BTreeMap::new();
    survey.each(&CLAIMS.resource(), &mut |claim| {
        let said = |field: &str| text(claim, &["status", field]).to_owned();
        *claims.entry((said("phase"), said("reason"))).or_default() += 1;
    });
    for ((phase, reason), count) in &claims {
        out.put(&CLAIMS_NOW, &[phase, reason], count);
    }
    survey.each(&EFFECTIVE.resource(), &mut |object| entity(object, out));
}

fn entity(object: &Value, out: &mut Samples) {
    let (kind, name) = (text(object, &["spec", "entity", "kind"]), text(object, &["spec", "entity", "name"]));
    let mut stale = BTreeSet::new();
    for resource in items(object, &["status", "resources"]) {
        let (named, unit) = (text(resource, &["name"]), Unit::named(text(resource, &["unit"])));
        for bucket in items(resource, &["buckets"]) {
            let path = kinds::field_error::Path::new("selector");
            let selector = Selector::read(bucket.get("selector"), &path, &mut Vec::new());
            if bucket["stale"] == true {
                stale.insert(account_name(named, &selector));
            }
            let selector = selector.text();
            let labels = [selector.as_str(), name, kind, named];
            // Amounts that are no whole number of units are shown in bytes, and a bucket may be without limit.
            for (metric, field) in [(&LIMIT, "limit"), (&USED, "used")] {
                if let Ok(amount) = unit.read(text(bucket, &[field])) {
                    out.put(metric, &labels, unit.exact(amount));
                }
            }
        }
    }
    out.put(&WAITING, &[name, kind], object["status"]["claimsWaiting"].as_i64().unwrap_or(0));
    for (account, sample) in Measured::read(object).iter() {
        // Nobody asks all the time; but who has not been heard for long is not up, whatever was said last.
        let up = u8::from(matches!(sample, Sample::Measured { .. }) && !stale.contains(account));
        out.put(&METER_UP, &[account, name, kind], up);
    }
}
