//! Limits and usage of every FederatedResourceQuota, how bindings stand, and which clusters are well. Karmada has no metric of
//! its quotas, so that the names are ours.

use std::collections::BTreeMap;

use kinds::conditions;
use kinds::fields::{at, text};
use kinds::resources::quantity_of;
use quantity::{Amount, Decimal};
use rules::policy_name;
use serde_json::Value;

use super::lease::is_lent;
use super::slice::quota_name;
use super::{BINDINGS, CLUSTERS, LEASES, QUOTAS, SLICES};
use crate::metrics::{Metric, Samples, Survey};

static LIMIT: Metric = Metric::gauge(
    "bursar_federated_quota_limit",
    &["federatedresourcequota", "namespace", "resource"],
    "How much a FederatedResourceQuota allows in all clusters together.",
);
static USED: Metric = Metric::gauge(
    "bursar_federated_quota_used",
    &["federatedresourcequota", "namespace", "resource"],
    "How much of a FederatedResourceQuota is used, evicted workloads that are not placed anew included.",
);
static BOUND: Metric = Metric::gauge(
    "bursar_resource_bindings",
    &["namespace", "reason"],
    "ResourceBindings by the reason of their condition Scheduled: Success, QuotaExceeded, NoClusterFit, Unschedulable, SchedulerError, Pending.",
);
static EVICTING: Metric = Metric::gauge(
    "bursar_resource_bindings_evicting",
    &["namespace"],
    "ResourceBindings with an eviction that is not done.",
);
static READY: Metric =
    Metric::gauge("bursar_member_cluster_ready", &["cluster"], "Whether a member cluster is ready: 1 or 0.");

static LENT: Metric = Metric::gauge(
    "bursar_federated_quota_lent",
    &["cluster", "federatedresourcequota", "namespace", "resource"],
    "How much a member may use for pods that appear there at run time, what bindings have there included.",
);
static LENT_USED: Metric = Metric::gauge(
    "bursar_federated_quota_lent_used",
    &["cluster", "federatedresourcequota", "namespace", "resource"],
    "How much a member says it uses of what it was lent.",
);
static LENT_WAITING: Metric = Metric::gauge(
    "bursar_federated_quota_waiting",
    &["cluster", "federatedresourcequota", "namespace", "resource"],
    "What pods at the gate of a member wait for.",
);

static SLICE_LIMIT: Metric = Metric::gauge(
    "bursar_federated_slice_limit",
    &["federatedquotaslice", "namespace", "resource"],
    "In a member: how much a FederatedQuotaSlice allows the pods of its namespace.",
);
static SLICE_USED: Metric = Metric::gauge(
    "bursar_federated_slice_used",
    &["federatedquotaslice", "namespace", "resource"],
    "In a member: how much pods use of a FederatedQuotaSlice.",
);
static SLICE_WAITING: Metric = Metric::gauge(
    "bursar_federated_slice_waiting",
    &["federatedquotaslice", "namespace", "resource"],
    "In a member: what pods at the gate of a FederatedQuotaSlice wait for.",
);

/// Reasons that the scheduler gives.
const REASONS: [&str; 5] = ["Success", "QuotaExceeded", "NoClusterFit", "Unschedulable", "SchedulerError"];

pub static ALL: &[&Metric] = &[
    &LIMIT,
    &USED,
    &BOUND,
    &EVICTING,
    &READY,
    &LENT,
    &LENT_USED,
    &LENT_WAITING,
    &SLICE_LIMIT,
    &SLICE_USED,
    &SLICE_WAITING,
];

pub fn sample(survey: &dyn Survey, out: &mut Samples) {
    let quotas = QUOTAS.resource();
    survey.each(&quotas, &mut |quota| {
        let (namespace, name) = (text(quota, &["metadata", "namespace"]), text(quota, &["metadata", "name"]));
        for line in survey.of(&policy_name(&quotas, namespace, name)) {
            let limit = line.balance.limit.amount().unwrap_or(Amount::ZERO);
            out.put(&LIMIT, &[name, namespace, &line.resource], Decimal(limit));
            out.put(&USED, &[name, namespace, &line.resource], Decimal(line.balance.used));
        }
    });
    let mut standing: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut evicting: BTreeMap<String, u64> = BTreeMap::new();
    survey.each(&BINDINGS.resource(), &mut |binding| {
        let namespace = text(binding, &["metadata", "namespace"]);
        let told = conditions::of(binding, "Scheduled").map(|one| text(one, &["reason"]));
        // Whatever somebody wrote into a status makes no series of its own.
        let reason = told.filter(|reason| REASONS.contains(reason)).unwrap_or("Pending");
        *standing.entry((namespace.into(), reason.into())).or_default() += 1;
        if !kinds::fields::items(binding, &["spec", "gracefulEvictionTasks"]).is_empty() {
            *evicting.entry(namespace.into()).or_default() += 1;
        }
    });
    standing.iter().for_each(|((namespace, reason), count)| out.put(&BOUND, &[namespace, reason], count));
    evicting.iter().for_each(|(namespace, count)| out.put(&EVICTING, &[namespace], count));
    survey.each(&LEASES.resource(), &mut |lease| {
        let namespace = text(lease, &["metadata", "namespace"]);
        let (quota, cluster) = (text(lease, &["spec", "quota"]), text(lease, &["spec", "clusterName"]));
        for (metric, path) in
            [(&LENT, ["spec", "hard"]), (&LENT_USED, ["status", "used"]), (&LENT_WAITING, ["status", "waiting"])]
        {
            for (name, value) in at(lease, &path).and_then(Value::as_object).into_iter().flatten() {
                // What a lease says that is no amount is nobody's to add up.
                let amount = quantity_of(name, value).ok().filter(|_| is_lent(name));
                amount.into_iter().for_each(|amount| {
                    out.put(metric, &[cluster, quota, namespace, name], Decimal(amount.amount()));
                });
            }
        }
    });
    survey.each(&CLUSTERS.resource(), &mut |cluster| {
        let ready = conditions::of(cluster, "Ready").is_some_and(|one| one["status"] == "True");
        out.put(&READY, &[text(cluster, &["metadata", "name"])], u8::from(ready));
    });
    sample_slices(survey, out);
}

/// What a member has of its own: a slice whose time is over shows no room, whatever it says.
fn sample_slices(survey: &dyn Survey, out: &mut Samples) {
    let slices = SLICES.resource();
    survey.each(&slices, &mut |slice| {
        let (namespace, name) = (text(slice, &["metadata", "namespace"]), text(slice, &["metadata", "name"]));
        for line in survey.of(&policy_name(&slices, namespace, name)).iter().filter(|line| line.bucket.is_empty()) {
            let limit = line.balance.limit.amount().unwrap_or(Amount::ZERO);
            out.put(&SLICE_LIMIT, &[name, namespace, &line.resource], Decimal(limit));
            out.put(&SLICE_USED, &[name, namespace, &line.resource], Decimal(line.balance.used));
        }
        for (resource, value) in at(slice, &["status", "waiting"]).and_then(Value::as_object).into_iter().flatten() {
            let amount = quantity_of(resource, value).ok().filter(|_| is_lent(resource));
            amount.into_iter().for_each(|amount| {
                out.put(&SLICE_WAITING, &[name, namespace, &quota_name(resource)], Decimal(amount.amount()));
            });
        }
    });
}
