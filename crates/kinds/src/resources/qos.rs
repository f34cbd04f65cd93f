//! How well a pod is served when a node runs short, which Kubernetes derives from what its containers state.

use serde_json::Value;

use super::pod::containers;
use super::{Common, Resources, UsageError};
use crate::fields::{at, text};

/// The three quality-of-service classes, as Kubernetes derives them from requests and limits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

/// The class a pod has: the stored one, else computed.
pub fn qos_class(pod: &Value) -> Result<QosClass, UsageError> {
    match text(pod, &["status", "qosClass"]) {
        "Guaranteed" => Ok(QosClass::Guaranteed),
        "Burstable" => Ok(QosClass::Burstable),
        "BestEffort" => Ok(QosClass::BestEffort),
        _ => computed_qos_class(pod),
    }
}

/// The class that follows from the spec alone: what a new pod gets.
pub fn computed_qos_class(pod: &Value) -> Result<QosClass, UsageError> {
    let mut sums = Qos::default();
    match at(pod, &["spec", "resources"]).filter(|resources| !resources.is_null()) {
        // Stated for the pod as a whole, the statements of containers do not matter; without limits it is never
        // guaranteed because requests then have nothing to equal.
        Some(whole) => sums.take(whole, at(whole, &["limits"]).is_some())?,
        None => {
            for container in containers(pod) {
                sums.take(container.get("resources").unwrap_or(&Value::Null), true)?;
            }
        }
    }
    Ok(sums.class())
}

#[derive(Default)]
struct Qos {
    requests: Resources,
    limits: Resources,
    /// Some container does not limit both cpu and memory.
    open: bool,
}

impl Qos {
    fn take(&mut self, resources: &Value, must_limit_both: bool) -> Result<(), UsageError> {
        let requests = positive(Resources::read(resources.get("requests"))?);
        let limits = positive(Resources::read(resources.get("limits"))?);
        if must_limit_both && (limits.common(Common::Cpu).is_none() || limits.common(Common::Memory).is_none()) {
            self.open = true;
        }
        self.requests.add(&requests)?;
        self.limits.add(&limits)
    }

    fn class(&self) -> QosClass {
        if self.requests.is_empty() && self.limits.is_empty() {
            return QosClass::BestEffort;
        }
        let equal = [Common::Cpu, Common::Memory].into_iter().all(|name| {
            self.requests.common(name).map(|value| value.amount) == self.limits.common(name).map(|value| value.amount)
        });
        if !self.open && equal { QosClass::Guaranteed } else { QosClass::Burstable }
    }
}

/// Only cpu and memory above zero decide about the class.
fn positive(list: Resources) -> Resources {
    let mut kept = Resources::default();
    for name in [Common::Cpu, Common::Memory] {
        if let Some(value) = list.common(name).filter(|value| !value.amount.is_zero() && !value.amount.is_negative()) {
            kept.set(name.name(), value);
        }
    }
    kept
}
