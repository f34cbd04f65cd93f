//! How each kind of object is charged to one quota. A quota knows, from the moment it is compiled, which of its
//! accounts each part of a pod or a claim goes to; an admission only reads and adds.

use std::sync::Arc;

use kinds::fields::text;
use kinds::resources::pod::{Needs, PodUsage, containers, has_pod_level, pod_usage_at};
use kinds::resources::{Measured, UsageError};
use rules::{Measure, MeasureError, Subject, Verdict};
use serde_json::Value;

use super::names::{DevicePart, PodPart, ServicePart, VolumePart};
use super::scopes::Scopes;
use super::usage::service::service_usage;
use super::usage::{device, volume};

/// What all rules of one quota have in common.
#[derive(Debug)]
pub struct Quota {
    /// The policy's name in the ledger.
    pub policy: Arc<str>,
    /// The name people gave it.
    pub name: Arc<str>,
    pub scopes: Scopes,
    /// The resource names, by account.
    pub names: Vec<Arc<str>>,
    /// Usage is also kept by namespace.
    pub by_namespace: bool,
    /// Counts, but refuses nothing.
    pub observe_only: bool,
}

impl Quota {
    fn failed(&self, error: UsageError) -> MeasureError {
        MeasureError { policy: self.policy.clone(), message: error.to_string() }
    }

    /// Charges what is not zero. A negative amount (which validation of the object lets nobody send) is refused: it
    /// would buy room for others.
    fn charge(&self, subject: &Subject<'_>, lines: impl Iterator<Item = (usize, Option<Measured>)>, out: &mut Verdict) {
        let bucket = self.by_namespace.then(|| Arc::<str>::from(subject.namespace));
        let mut negative = Vec::new();
        for (account, used) in lines {
            let Some(used) = used.filter(|used| !used.amount.is_zero()) else { continue };
            if used.amount.is_negative() {
                negative.push(&*self.names[account]);
                continue;
            }
            out.charge(account, used.amount, used.format);
            if let Some(bucket) = &bucket {
                out.charge_bucket(account, bucket.clone(), used.amount, used.format);
            }
        }
        if !negative.is_empty() && !self.observe_only {
            out.refuse(format!("quota usage is negative for resource(s): {}", negative.join(",")));
        }
    }
}

pub struct PodRule {
    pub quota: Arc<Quota>,
    pub parts: Vec<(PodPart, usize)>,
    /// The names that ask every container to state its need, with the need.
    pub asks: Vec<(Arc<str>, Needs)>,
}

/// The measured pod, remembered for all quotas that ask.
struct Pod(Result<PodUsage, UsageError>);

impl Measure for PodRule {
    /// A pod stops counting once its deletion is overdue.
    fn may_change_with_time(&self, text: &str) -> bool {
        text.contains("\"deletionTimestamp\"")
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let quota = &*self.quota;
        if !quota.scopes.match_pod(subject).map_err(|error| quota.failed(error))? {
            return Ok(());
        }
        let pod = subject.memo(|subject| Pod(pod_usage_at(subject.object, subject.now_ms)));
        let usage = pod.0.as_ref().map_err(|error| quota.failed(error.clone()))?;
        if let Some(overdue_ms) = usage.overdue_ms {
            out.holds_until(overdue_ms);
        }
        if self.asks.iter().any(|(_, need)| usage.unstated.meets(*need)) && !quota.observe_only {
            out.refuse(format!("failed quota: {}: {}", quota.name, self.missing(subject.object)));
        }
        quota.charge(subject, self.parts.iter().map(|(part, account)| (*account, used_by_pod(usage, part))), out);
        Ok(())
    }
}

impl PodRule {
    /// Which containers leave which need open.
    fn missing(&self, pod: &Value) -> String {
        let mut parts = Vec::new();
        for (name, need) in self.asks.iter().filter(|_| !has_pod_level(pod)) {
            let mut names: Vec<&str> = containers(pod)
                .filter(|container| Needs::unstated_by(container).meets(*need))
                .map(|container| text(container, &["name"]))
                .collect();
            names.sort_unstable();
            names.dedup();
            if !names.is_empty() {
                parts.push(format!("{name} for: {}", names.join(",")));
            }
        }
        format!("must specify {}", parts.join("; "))
    }
}

/// What a pod takes of one part that is counted.
pub fn used_by_pod(usage: &PodUsage, part: &PodPart) -> Option<Measured> {
    match part {
        PodPart::Object => Some(Measured::ONE),
        PodPart::Live => usage.live.then_some(Measured::ONE),
        PodPart::Request(name) => usage.requests.common(*name),
        PodPart::Limit(name) => usage.limits.common(*name),
        PodPart::RequestOf(name) => usage.requests.get(name),
    }
}

/// The need that a quota on this name asks every container to state.
pub fn asked_by(name: &str) -> Option<Needs> {
    Some(match name {
        "cpu" | "requests.cpu" => Needs::REQUEST_CPU,
        "memory" | "requests.memory" => Needs::REQUEST_MEMORY,
        "limits.cpu" => Needs::LIMIT_CPU,
        "limits.memory" => Needs::LIMIT_MEMORY,
        _ => return None,
    })
}

pub struct ServiceRule {
    pub quota: Arc<Quota>,
    pub parts: Vec<(ServicePart, usize)>,
}

impl Measure for ServiceRule {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let usage = service_usage(subject.object);
        let lines = self.parts.iter().map(|(part, account)| {
            let used = match part {
                ServicePart::Object => 1,
                ServicePart::NodePorts => usage.node_ports,
                ServicePart::LoadBalancers => usage.load_balancers,
            };
            (*account, Some(Measured::count(used)))
        });
        self.quota.charge(subject, lines, out);
        Ok(())
    }
}

pub struct VolumeRule {
    pub quota: Arc<Quota>,
    pub parts: Vec<(VolumePart, usize)>,
}

impl Measure for VolumeRule {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let claim = subject.object;
        if !self.quota.scopes.match_volume_claim(claim) {
            return Ok(());
        }
        let storage = volume::storage(claim).map_err(|error| self.quota.failed(error))?;
        let class = volume::storage_class(claim);
        let lines = self.parts.iter().map(|(part, account)| {
            let used = match part {
                VolumePart::Object => Some(Measured::ONE),
                VolumePart::Storage => storage,
                VolumePart::ObjectOfClass(of) => (&**of == class).then_some(Measured::ONE),
                VolumePart::StorageOfClass(of) => storage.filter(|_| &**of == class),
            };
            (*account, used)
        });
        self.quota.charge(subject, lines, out);
        Ok(())
    }
}

pub struct DeviceRule {
    pub quota: Arc<Quota>,
    pub parts: Vec<(DevicePart, usize)>,
}

impl Measure for DeviceRule {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let claim = subject.object;
        let mut lines = Vec::with_capacity(self.parts.len());
        for (part, account) in &self.parts {
            let resource = || self.quota.names[*account].to_string();
            let too_large = || self.quota.failed(UsageError::TooLarge { resource: resource() });
            let of_class = |class: &str| device::devices(claim, class).ok_or_else(too_large);
            let used = match part {
                DevicePart::Object => Some(Measured::ONE),
                DevicePart::Class(class) => Some(of_class(class)?),
                DevicePart::ImplicitClass(_) | DevicePart::ExtendedClasses(_) if device::is_charged_to_pod(claim) => {
                    None
                }
                DevicePart::ImplicitClass(class) => Some(of_class(class)?),
                DevicePart::ExtendedClasses(classes) => {
                    let mut sum = Measured::ZERO;
                    for class in classes {
                        sum = sum.checked_add(of_class(class)?).ok_or_else(too_large)?;
                    }
                    Some(sum)
                }
            };
            lines.push((*account, used));
        }
        self.quota.charge(subject, lines.into_iter(), out);
        Ok(())
    }
}

/// One for each object.
pub struct ObjectRule {
    pub quota: Arc<Quota>,
    pub accounts: Vec<usize>,
}

impl Measure for ObjectRule {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let lines = self.accounts.iter().map(|account| (*account, Some(Measured::ONE)));
        self.quota.charge(subject, lines, out);
        Ok(())
    }
}
