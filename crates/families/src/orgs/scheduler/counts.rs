//! What the scheduler counts of its own work.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kinds::fields::text;
use serde_json::Value;

use super::super::dimensions::Dimension;
use crate::instruments::{Counter, Histogram};
use crate::metrics::{Metric, Samples};

pub static UNSCHEDULABLE: Metric = Metric::counter(
    "bursar_scheduler_unschedulable_total",
    &["dimension", "reason"],
    "How often a group of instances came to wait, by why.",
);
pub static RECONCILE: Metric = Metric::histogram(
    "bursar_scheduler_reconcile_seconds",
    &["result"],
    "Passes of the scheduler: there is one each second at the least where there are organizations.",
);
pub static SKIPS: Metric = Metric::counter(
    "bursar_scheduler_quota_backoff_skips_total",
    &["dimension"],
    "Allocations that were not tried because the ledger had just refused one like them.",
);

/// Reasons are a few words of our own; more than these were something else.
const REASONS_MAX: usize = 256;

#[derive(Default)]
pub struct Counts {
    passes: [Histogram; 2],
    /// In the order of [`Dimension::COMPUTE`].
    skips: [Counter; 3],
    waits: Mutex<BTreeMap<(String, String), u64>>,
}

impl Counts {
    pub fn passed(&self, took: Duration, failed: bool) {
        self.passes[usize::from(failed)].observe(took);
    }

    pub fn skipped(&self, skips: [u64; 3]) {
        for (counter, more) in self.skips.iter().zip(skips) {
            counter.add(more);
        }
    }

    /// Counts whoever waits for something that was not told of it before.
    pub fn told(&self, before: &Value, groups: &Value) {
        for group in groups.as_array().into_iter().flatten() {
            let reason = text(group, &["unschedulable_reason"]);
            let known = before.as_array().into_iter().flatten().any(|one| {
                one["process_type"] == group["process_type"] && text(one, &["unschedulable_reason"]) == reason
            });
            if reason.is_empty() || known {
                continue;
            }
            let (reason, dimension) = reason.split_once(':').unwrap_or((reason, ""));
            let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (dimension.to_owned(), reason.to_owned());
            if waits.len() < REASONS_MAX || waits.contains_key(&key) {
                *waits.entry(key).or_default() += 1;
            }
        }
    }

    pub fn sample(&self, out: &mut Samples) {
        for (histogram, result) in self.passes.iter().zip(["ok", "failed"]) {
            histogram.sample(&RECONCILE, &[result], out);
        }
        for (counter, dimension) in self.skips.iter().zip(Dimension::COMPUTE) {
            out.put(&SKIPS, &[dimension.name()], counter.get());
        }
        for ((dimension, reason), count) in &*self.waits.lock().unwrap_or_else(PoisonError::into_inner) {
            out.put(&UNSCHEDULABLE, &[dimension, reason], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wait_is_counted_once_however_often_it_is_told() {
        let counts = Counts::default();
        let waits = |reason: &str| json!([{"process_type": "web", "unschedulable_reason": reason}]);
        let (none, quota, nodes) = (json!([]), waits("org_quota_exceeded:max_instances"), waits("no_nodes_active"));
        for (before, now) in [(&none, &quota), (&quota, &quota), (&quota, &nodes), (&nodes, &none), (&none, &quota)] {
            counts.told(before, now);
        }
        let mut out = Samples::default();
        counts.sample(&mut out);
        let text = out.text();
        for line in [
            "bursar_scheduler_unschedulable_total{dimension=\"max_instances\",reason=\"org_quota_exceeded\"} 2",
            "bursar_scheduler_unschedulable_total{dimension=\"\",reason=\"no_nodes_active\"} 1",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
