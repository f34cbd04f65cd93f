//! What monitoring sees of organizations: usage and limits as the ledger has them, of as many organizations as are shown.

use std::sync::Arc;

use kinds::fields::text;
use quantity::Decimal;
use rules::policy_name;
use serde_json::Value;

use super::ipv4;
use super::names::{ENVS, ORGS};
use super::scheduler::counts;
use super::status::rows;
use crate::Parsed;
use crate::metrics::{Metric, Samples, Survey};

/// Series are as many as organizations times dimensions: those of the first ones are told.
pub const ORGS_MAX: usize = 1000;

const OF_ORG: &[&str] = &["dimension", "org"];

static LIMIT: Metric = Metric::gauge(
    "bursar_org_quota_limit",
    &["dimension", "org", "source"],
    "The limit in force; absent where nothing is enforced.",
);
static USAGE: Metric = Metric::gauge("bursar_org_quota_usage", OF_ORG, "What is used, reservations included.");
static RESERVED: Metric =
    Metric::gauge("bursar_org_quota_reserved", OF_ORG, "What was accepted and is not allocated yet.");
static OVER: Metric = Metric::gauge("bursar_org_quota_over_limit", OF_ORG, "1 where usage is above the limit.");
static WARNING: Metric = Metric::gauge(
    "bursar_org_quota_warning_percent",
    OF_ORG,
    "80 or 95 where usage came that near to the limit; it goes back only five hundredths below.",
);
static ORGS_SEEN: Metric =
    Metric::gauge("bursar_orgs", &[], "Organizations; of the first thousand there are further series.");
static UNSCHEDULABLE: Metric = Metric::gauge(
    "bursar_scheduler_unschedulable_groups",
    &["dimension", "reason"],
    "Groups of instances that cannot be placed, by why.",
);

pub static ALL: &[&Metric] = &[
    &LIMIT,
    &USAGE,
    &RESERVED,
    &OVER,
    &WARNING,
    &ORGS_SEEN,
    &UNSCHEDULABLE,
    &counts::UNSCHEDULABLE,
    &counts::RECONCILE,
    &counts::SKIPS,
    &ipv4::ADDRESSES,
];

pub fn sample(survey: &dyn Survey, out: &mut Samples) {
    let mut seen = 0_usize;
    survey.each(&ORGS.resource(), &mut |org| {
        seen += 1;
        if seen > ORGS_MAX {
            return;
        }
        let name = text(org, &["metadata", "name"]);
        let policy = policy_name(&ORGS.resource(), text(org, &["metadata", "namespace"]), name);
        for row in rows(org, &survey.of(&policy)) {
            let dimension = row.dimension.name();
            out.put(&USAGE, &[dimension, name], Decimal(row.usage));
            if !row.reserved.is_zero() {
                out.put(&RESERVED, &[dimension, name], Decimal(row.reserved));
            }
            let Some(limit) = row.limit else { continue };
            let source = if row.source == super::limits::Source::Override { "override" } else { "tier" };
            out.put(&LIMIT, &[dimension, name, source], Decimal(limit));
            out.put(&OVER, &[dimension, name], u8::from(row.is_over()));
            let level = org["status"]["warnings"][dimension].as_i64().unwrap_or(0);
            if level > 0 {
                out.put(&WARNING, &[dimension, name], level);
            }
        }
    });
    out.put(&ORGS_SEEN, &[], seen);
    let mut waiting: std::collections::BTreeMap<(String, String), u64> = std::collections::BTreeMap::new();
    survey.each_parsed(&ENVS.resource(), &waits, &mut |env| {
        for why in env.downcast_ref::<Waits>().into_iter().flatten() {
            *waiting.entry(why.clone()).or_default() += 1;
        }
    });
    for ((reason, dimension), count) in waiting {
        out.put(&UNSCHEDULABLE, &[&dimension, &reason], count);
    }
}

/// Why the groups of an environment wait, each with the dimension that it waits for.
type Waits = Vec<(String, String)>;

fn waits(env: &Value) -> Parsed {
    let groups = env.pointer("/status/groups").and_then(Value::as_array).into_iter().flatten();
    let why = groups.map(|group| text(group, &["unschedulable_reason"])).filter(|why| !why.is_empty());
    // The dimension is a label of its own.
    let split = |whole: &str| {
        whole.split_once(':').map_or((whole.into(), "".into()), |(one, other)| (one.into(), other.into()))
    };
    let waits: Waits = why.map(split).collect();
    Arc::new(waits)
}
