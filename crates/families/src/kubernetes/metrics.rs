//! Limits and usage of every ResourceQuota, under the name and labels that kube-state-metrics gives them.

use kinds::fields::{at, text};
use quantity::{Amount, Decimal};
use rules::{GroupResource, policy_name};
use serde_json::Value;

use crate::metrics::{Metric, Samples, Survey};

static RESOURCE_QUOTA: Metric = Metric::gauge(
    "kube_resourcequota",
    &["namespace", "resource", "resourcequota", "type"],
    "Information about resource quota.",
);

pub static ALL: &[&Metric] = &[&RESOURCE_QUOTA];

pub fn sample(quotas: &GroupResource, survey: &dyn Survey, out: &mut Samples) {
    survey.each(quotas, &mut |quota| {
        let (namespace, name) = (text(quota, &["metadata", "namespace"]), text(quota, &["metadata", "name"]));
        let hard = at(quota, &["spec", "hard"]).and_then(Value::as_object);
        let lines = survey.of(&policy_name(quotas, namespace, name));
        for line in lines.iter().filter(|line| hard.is_some_and(|hard| hard.contains_key(&*line.resource))) {
            let limit = line.balance.limit.amount().unwrap_or(Amount::ZERO);
            out.put(&RESOURCE_QUOTA, &[namespace, &line.resource, name, "hard"], Decimal(limit));
            out.put(&RESOURCE_QUOTA, &[namespace, &line.resource, name, "used"], Decimal(line.balance.used));
        }
    });
}
