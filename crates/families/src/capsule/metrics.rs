//! Capsule's metrics, with its names and labels, so that rules and dashboards made for it go on working.
//!
//! Limits and usage are the ledger's at the moment of the scrape. Conditions, exhaustions and the objects behind a quota
//! are those its status shows; a quota over more objects than a status names tells usage of those only.

use kinds::field_error::Path;
use quantity::{Amount, Decimal, Percent, Quantity};
use rules::{GroupResource, policy_name};
use serde_json::Value;

use super::claim::{claims, pools, wanted};
use super::pool::{CLAIMS, read_amounts};
use super::quota::{USAGE, shown_usage};
use super::{GLOBAL_CUSTOM_QUOTAS, GROUP, Kind, at, items, text};
use crate::BalanceLine;
use crate::metrics::{Metric, Samples, Survey};

const OF_POOL: &[&str] = &["pool", "resource"];
const OF_POOL_NAMESPACE: &[&str] = &["pool", "resource", "target_namespace"];
const OF_QUOTA: &[&str] = &["custom_quota", "target_namespace"];
const OF_GLOBAL: &[&str] = &["custom_quota"];
const OF_ITEM: &[&str] = &["custom_quota", "group", "kind", "name", "target_namespace"];

static POOL_RESOURCE: Metric =
    Metric::gauge("capsule_pool_resource", OF_POOL, "Type of resource being used in a resource pool");
static POOL_LIMIT: Metric =
    Metric::gauge("capsule_pool_limit", OF_POOL, "Current resource limit for a given resource in a resource pool");
static POOL_USAGE: Metric =
    Metric::gauge("capsule_pool_usage", OF_POOL, "Current resource usage for a given resource in a resource pool");
static POOL_USAGE_PERCENTAGE: Metric = Metric::gauge(
    "capsule_pool_usage_percentage",
    OF_POOL,
    "Current resource usage for a given resource in a resource pool (percentage)",
);
static POOL_AVAILABLE: Metric = Metric::gauge(
    "capsule_pool_available",
    OF_POOL,
    "Current resource availability for a given resource in a resource pool",
);
static POOL_EXHAUSTION: Metric = Metric::gauge(
    "capsule_pool_exhaustion",
    OF_POOL,
    "Resources become exhausted, when there's not enough available for all claims and the claims get queued",
);
static POOL_EXHAUSTION_PERCENTAGE: Metric = Metric::gauge(
    "capsule_pool_exhaustion_percentage",
    OF_POOL,
    "Resources become exhausted, when there's not enough available for all claims and the claims get queued (Percentage)",
);
static POOL_CONDITION: Metric = Metric::gauge(
    "capsule_pool_condition",
    &["condition", "pool"],
    "Current conditions for a given resource in a resource pool",
);
static POOL_NAMESPACE_USAGE: Metric = Metric::gauge(
    "capsule_pool_namespace_usage",
    OF_POOL_NAMESPACE,
    "Current resources claimed on namespace basis for a given resource in a resource pool for a specific namespace",
);
static POOL_NAMESPACE_USAGE_PERCENTAGE: Metric = Metric::gauge(
    "capsule_pool_namespace_usage_percentage",
    OF_POOL_NAMESPACE,
    "Current resources claimed on namespace basis for a given resource in a resource pool for a specific namespace \
     (percentage)",
);
static CLAIM_CONDITION: Metric = Metric::gauge(
    "capsule_claim_condition",
    &["condition", "name", "target_namespace"],
    "The current condition status of a claim.",
);
static CLAIM_POOL: Metric =
    Metric::gauge("capsule_claim_pool", &["name", "pool", "target_namespace"], "The current assigned pool of a claim.");
static CLAIM_RESOURCE: Metric = Metric::gauge(
    "capsule_claim_resource",
    &["name", "resource", "target_namespace"],
    "The given amount of resources from the claim",
);

/// The metrics of one of the two kinds of custom quota.
struct QuotaMetrics {
    condition: Metric,
    limit: Metric,
    usage: Metric,
    available: Metric,
    usage_percentage: Metric,
    item_usage: Metric,
}

static CUSTOM_QUOTA: QuotaMetrics = QuotaMetrics {
    condition: Metric::gauge(
        "capsule_custom_quota_condition",
        &["condition", "custom_quota", "target_namespace"],
        "Provides per custom quota condition status",
    ),
    limit: Metric::gauge(
        "capsule_custom_quota_resource_limit",
        OF_QUOTA,
        "Current resource limit for given custom quota",
    ),
    usage: Metric::gauge(
        "capsule_custom_quota_resource_usage",
        OF_QUOTA,
        "Current resource usage for given custom quota",
    ),
    available: Metric::gauge(
        "capsule_custom_quota_resource_available",
        OF_QUOTA,
        "Available resources for given custom quota",
    ),
    usage_percentage: Metric::gauge(
        "capsule_custom_quota_resource_usage_percentage",
        OF_QUOTA,
        "Current resource usage for given custom quota (percentage)",
    ),
    item_usage: Metric::gauge("capsule_custom_quota_resource_item_usage", OF_ITEM, "Claimed resources from given item"),
};

static GLOBAL_CUSTOM_QUOTA: QuotaMetrics = QuotaMetrics {
    condition: Metric::gauge(
        "capsule_global_custom_quota_condition",
        &["condition", "custom_quota"],
        "Provides per global custom quota condition status",
    ),
    limit: Metric::gauge(
        "capsule_global_custom_quota_resource_limit",
        OF_GLOBAL,
        "Current resource limit for given global custom quota",
    ),
    usage: Metric::gauge(
        "capsule_global_custom_quota_resource_usage",
        OF_GLOBAL,
        "Current resource usage for given global custom quota",
    ),
    available: Metric::gauge(
        "capsule_global_custom_quota_resource_available",
        OF_GLOBAL,
        "Available resources for given global custom quota",
    ),
    usage_percentage: Metric::gauge(
        "capsule_global_custom_quota_resource_usage_percentage",
        OF_GLOBAL,
        "Current resource usage for given global custom quota (percentage)",
    ),
    item_usage: Metric::gauge(
        "capsule_global_custom_quota_resource_item_usage",
        OF_ITEM,
        "Claimed resources from given item",
    ),
};

pub static ALL: &[&Metric] = &[
    &POOL_RESOURCE,
    &POOL_LIMIT,
    &POOL_USAGE,
    &POOL_USAGE_PERCENTAGE,
    &POOL_AVAILABLE,
    &POOL_EXHAUSTION,
    &POOL_EXHAUSTION_PERCENTAGE,
    &POOL_CONDITION,
    &POOL_NAMESPACE_USAGE,
    &POOL_NAMESPACE_USAGE_PERCENTAGE,
    &CLAIM_CONDITION,
    &CLAIM_POOL,
    &CLAIM_RESOURCE,
    &CUSTOM_QUOTA.condition,
    &CUSTOM_QUOTA.limit,
    &CUSTOM_QUOTA.usage,
    &CUSTOM_QUOTA.available,
    &CUSTOM_QUOTA.usage_percentage,
    &CUSTOM_QUOTA.item_usage,
    &GLOBAL_CUSTOM_QUOTA.condition,
    &GLOBAL_CUSTOM_QUOTA.limit,
    &GLOBAL_CUSTOM_QUOTA.usage,
    &GLOBAL_CUSTOM_QUOTA.available,
    &GLOBAL_CUSTOM_QUOTA.usage_percentage,
    &GLOBAL_CUSTOM_QUOTA.item_usage,
];

pub fn sample(quotas: &GroupResource, survey: &dyn Survey, out: &mut Samples) {
    survey.each(&pools(), &mut |pool| sample_pool(pool, survey, out));
    survey.each(&claims(), &mut |claim| sample_claim(claim, out));
    survey.each(quotas, &mut |quota| sample_quota(Kind::CustomQuota, quotas, quota, survey, out));
    let globals = GroupResource::new(GROUP, GLOBAL_CUSTOM_QUOTAS);
    survey.each(&globals, &mut |quota| sample_quota(Kind::GlobalCustomQuota, &globals, quota, survey, out));
}

fn sample_pool(pool: &Value, survey: &dyn Survey, out: &mut Samples) {
    let name = text(pool, &["metadata", "name"]);
    let lines = survey.of(&policy_name(&pools(), "", name));
    let limit_of = |resource: &str| {
        let line = lines.iter().find(|line| line.bucket.is_empty() && &*line.resource == resource);
        line.and_then(|line| line.balance.limit.amount()).unwrap_or(Amount::ZERO)
    };
    for line in lines.iter().filter(|line| &*line.resource != CLAIMS) {
        let (resource, used) = (&*line.resource, line.balance.used);
        let share = Percent { part: used, whole: limit_of(resource) };
        if !line.bucket.is_empty() {
            // A namespace whose claims are gone has nothing to tell.
            if !used.is_zero() {
                let labels = [name, resource, &line.bucket];
                out.put(&POOL_NAMESPACE_USAGE, &labels, Decimal(used));
                out.put(&POOL_NAMESPACE_USAGE_PERCENTAGE, &labels, share);
            }
            continue;
        }
        let labels = [name, resource];
        out.put(&POOL_RESOURCE, &labels, 1);
        out.put(&POOL_LIMIT, &labels, Decimal(limit_of(resource)));
        out.put(&POOL_USAGE, &labels, Decimal(used));
        out.put(&POOL_USAGE_PERCENTAGE, &labels, share);
        out.put(&POOL_AVAILABLE, &labels, Decimal(available(line)));
    }
    let exhaustions = at(pool, &["status", "exhaustions"]).and_then(Value::as_object);
    for (resource, exhaustion) in exhaustions.into_iter().flatten() {
        let amounts = read_amounts(Some(exhaustion), &Path::new("exhaustions"), &mut Vec::new());
        let amount = |field: &str| amounts.get(field).map_or(Amount::ZERO, Quantity::amount);
        let (requesting, available) = (amount("requesting"), amount("available"));
        out.put(&POOL_EXHAUSTION, &[name, resource], Decimal(requesting));
        if !available.is_zero()
            && let Some(lacking) = requesting.checked_sub(available).filter(|lacking| *lacking > Amount::ZERO)
        {
            let share = Percent { part: lacking, whole: available };
            out.put(&POOL_EXHAUSTION_PERCENTAGE, &[name, resource], share);
        }
    }
    for (condition, value) in conditions(pool) {
        out.put(&POOL_CONDITION, &[condition, name], value);
    }
}

fn sample_claim(claim: &Value, out: &mut Samples) {
    let (namespace, name) = (text(claim, &["metadata", "namespace"]), text(claim, &["metadata", "name"]));
    for (condition, value) in conditions(claim) {
        out.put(&CLAIM_CONDITION, &[condition, name, namespace], value);
    }
    let pool = text(claim, &["status", "pool", "name"]);
    if !pool.is_empty() {
        out.put(&CLAIM_POOL, &[name, pool, namespace], 1);
    }
    for (resource, amount) in wanted(claim) {
        out.put(&CLAIM_RESOURCE, &[name, &resource, namespace], Decimal(amount.amount()));
    }
}

fn sample_quota(kind: Kind, resource: &GroupResource, quota: &Value, survey: &dyn Survey, out: &mut Samples) {
    let metrics = if kind == Kind::GlobalCustomQuota { &GLOBAL_CUSTOM_QUOTA } else { &CUSTOM_QUOTA };
    let (namespace, name) = (text(quota, &["metadata", "namespace"]), text(quota, &["metadata", "name"]));
    // The labels of a global quota are those of a namespaced one without the namespace, which is the last.
    let own = metrics.limit.labels.len();
    let labels = &[name, namespace][..own];
    let lines = survey.of(&policy_name(resource, namespace, name));
    if let Some(line) = lines.iter().find(|line| &*line.resource == USAGE) {
        let limit = line.balance.limit.amount().unwrap_or(Amount::ZERO);
        out.put(&metrics.limit, labels, Decimal(limit));
        let used = shown_usage(line).amount();
        out.put(&metrics.usage, labels, Decimal(used));
        out.put(&metrics.available, labels, Decimal(available(line)));
        out.put(&metrics.usage_percentage, labels, Percent { part: used, whole: limit });
    }
    for (condition, value) in conditions(quota) {
        out.put(&metrics.condition, &[condition, name, namespace][..own + 1], value);
    }
    if at(quota, &["spec", "options", "emitMetricPerClaimUsage"]) != Some(&Value::Bool(true)) {
        return;
    }
    for item in items(quota, &["status", "claims"]) {
        let Ok(usage) = Quantity::parse(text(item, &["usage"])) else { continue };
        let labels = ["group", "kind", "name", "namespace"].map(|field| text(item, &[field]));
        let [group, kind, item, at] = labels;
        out.put(&metrics.item_usage, &[name, group, kind, item, at], Decimal(usage.amount()));
    }
}

/// Each condition of an object, and whether it is true.
fn conditions(object: &Value) -> impl Iterator<Item = (&str, u8)> {
    let list = items(object, &["status", "conditions"]).iter();
    list.map(|one| (text(one, &["type"]), u8::from(text(one, &["status"]) == "True")))
}

fn available(line: &BalanceLine) -> Amount {
    let limit = line.balance.limit.amount().unwrap_or(Amount::ZERO);
    limit.checked_sub(line.balance.used.max(Amount::ZERO)).unwrap_or(Amount::ZERO).max(Amount::ZERO)
}
