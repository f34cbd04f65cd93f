//! ClusterResourceQuota (quota.openshift.io/v1): one quota over every namespace that a selector picks, by labels, by
//! annotations or by both. Its accounts are ordinary ones, in the same decision as all others; usage by namespace is
//! kept beside the total.

use std::collections::BTreeMap;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, items, text};
use rules::selector::LabelSelector;
use rules::{Namespace, Reach};
use serde_json::{Value, json};

use super::{status, validate};

pub const GROUP: &str = "quota.openshift.io";
pub const RESOURCE: &str = "clusterresourcequotas";
/// The same quotas as the namespaces they bind see them.
pub const APPLIED: &str = "appliedclusterresourcequotas";

/// Which namespaces a quota binds.
struct Selector {
    labels: Option<LabelSelector>,
    annotations: BTreeMap<String, String>,
}

impl Selector {
    fn read(quota: &Value) -> Result<Selector, FieldError> {
        let selector = at(quota, &["spec", "selector"]);
        let labels = selector.and_then(|selector| selector.get("labels")).filter(|labels| !labels.is_null());
        let labels = labels.map(LabelSelector::from_object).transpose().map_err(|error| {
            let bad = labels.cloned().unwrap_or(Value::Null);
            FieldError::invalid("spec.selector.labels", bad, error.to_string())
        })?;
        let annotations = selector.and_then(|selector| selector.get("annotations")).and_then(Value::as_object);
        let annotations = annotations
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or("").to_string()))
            .collect();
        Ok(Selector { labels, annotations })
    }

    fn is_empty(&self) -> bool {
        self.labels.is_none() && self.annotations.is_empty()
    }

    /// Both must match. A selector without either would bind every namespace and is refused when written.
    fn accepts(&self, namespace: &Namespace) -> bool {
        !self.is_empty()
            && self.labels.as_ref().is_none_or(|labels| labels.matches(&namespace.labels))
            && self.annotations.iter().all(|(name, value)| namespace.annotations.get(name) == Some(value))
    }
}

pub fn reach(quota: &Value) -> Result<Reach, Vec<FieldError>> {
    let selector = Selector::read(quota).map_err(|error| vec![error])?;
    Ok(Reach::Selected(std::sync::Arc::new(move |namespace| selector.accepts(namespace))))
}

pub fn validate(quota: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match Selector::read(quota) {
        Err(error) => errors.push(error),
        Ok(selector) if selector.is_empty() => {
            errors.push(FieldError::required("spec.selector", "must restrict the selected projects"));
        }
        Ok(Selector { labels: Some(labels), .. }) if labels.is_everything() => {
            let detail = "must restrict the selected projects";
            errors.push(FieldError::invalid("spec.selector.labels", json!({}), detail));
        }
        Ok(_) => {}
    }
    let spec = Path::new("spec");
    let nothing = Value::Null;
    errors.extend(validate::quota_spec(at(quota, &["spec", "quota"]).unwrap_or(&nothing), &spec.child("quota")));
    errors
}

/// The quotas that bind a namespace, as its users may see them. `quotas` have their status filled in.
pub fn applied(quotas: impl Iterator<Item = Value>, namespace: &Value) -> Vec<Value> {
    let strings = |field: &str| -> BTreeMap<String, String> {
        let map = at(namespace, &["metadata", field]).and_then(Value::as_object);
        let pairs = map.into_iter().flatten();
        pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_string()))).collect()
    };
    let name = text(namespace, &["metadata", "name"]);
    let seen = Namespace { name: name.into(), labels: strings("labels"), annotations: strings("annotations") };
    let bind = |quota: &Value| Selector::read(quota).is_ok_and(|selector| selector.accepts(&seen));
    quotas
        .filter(bind)
        .map(|mut quota| {
            quota["kind"] = json!("AppliedClusterResourceQuota");
            quota["apiVersion"] = json!("quota.openshift.io/v1");
            if let Some(metadata) = quota.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("namespace".into(), json!(name));
            }
            // The budget is everybody's; who else lives on it, and of how much, is not for a tenant to see.
            let total = quota.pointer("/status/total").and_then(Value::as_object);
            if let Some(unused) = total.map(|total| status::unused(name, total)) {
                let own = items(&quota, &["status", "namespaces"]).iter().find(|one| text(one, &["namespace"]) == name);
                quota["status"]["namespaces"] = json!([own.cloned().unwrap_or(unused)]);
            }
            quota
        })
        .collect()
}
