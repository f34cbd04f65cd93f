//! What a pod uses: its effective requests and limits.
//!
//! The rules are those of reference/kubernetes.md's "Who charges what": application containers and sidecars (init
//! containers with `restartPolicy: Always`) run side by side and are added; an ordinary init container runs alone
//! beside the sidecars started before it, so only the peak of them counts; pod-level resources replace the sum;
//! overhead comes on top. Where a resize is under way, the larger of what is asked and what is given counts.

use std::collections::HashMap;

use serde_json::Value;

use super::super::resources::{Common, Resources, UsageError, at, items, text};

/// A pod, added up once and then read by every quota that matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// Whether it still counts as more than a stored object.
    pub live: bool,
    pub requests: Resources,
    pub limits: Resources,
    /// The needs that some container leaves open; empty when the pod states its needs as a whole.
    pub unstated: Needs,
}

/// A set of the four statements that a quota on cpu or memory asks every container to make.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs(u8);

impl Needs {
    pub const NONE: Needs = Needs(0);
    pub const REQUEST_CPU: Needs = Needs(1);
    pub const REQUEST_MEMORY: Needs = Needs(2);
    pub const LIMIT_CPU: Needs = Needs(4);
    pub const LIMIT_MEMORY: Needs = Needs(8);

    pub fn with(self, more: Needs) -> Needs {
        Needs(self.0 | more.0)
    }

    pub fn meets(self, other: Needs) -> bool {
        self.0 & other.0 != 0
    }

    /// What one container leaves open.
    pub fn unstated_by(container: &Value) -> Needs {
        let mut open = Needs::NONE;
        for (side, name, need) in [
            ("requests", "cpu", Needs::REQUEST_CPU),
            ("requests", "memory", Needs::REQUEST_MEMORY),
            ("limits", "cpu", Needs::LIMIT_CPU),
            ("limits", "memory", Needs::LIMIT_MEMORY),
        ] {
            if at(container, &["resources", side, name]).is_none() {
                open = open.with(need);
            }
        }
        open
    }
}

/// Requests or limits.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Side {
    Requests,
    Limits,
}

impl Side {
    fn field(self) -> &'static str {
        match self {
            Side::Requests => "requests",
            Side::Limits => "limits",
        }
    }
}

/// Measures a pod the way quotas do.
pub fn pod_usage(pod: &Value) -> Result<PodUsage, UsageError> {
    if is_terminal(pod) {
        let nothing = Resources::default();
        return Ok(PodUsage { live: false, requests: nothing.clone(), limits: nothing, unstated: Needs::NONE });
    }
    let statuses = Statuses::of(pod);
    let mut requests = containers_sum(pod, Side::Requests, &statuses)?;
    let mut limits = containers_sum(pod, Side::Limits, &statuses)?;
    replace_by_pod_level(pod, &mut requests, &mut limits)?;
    add_overhead(pod, &mut requests, &mut limits)?;
    Ok(PodUsage { live: true, requests, limits, unstated: unstated(pod) })
}

/// The requests and limits a LimitRange of type Pod looks at: what the spec asks for, without overhead, and without
/// regard to what a running pod has been given.
pub fn pod_asks(pod: &Value) -> Result<(Resources, Resources), UsageError> {
    let statuses = Statuses::default();
    let mut requests = containers_sum(pod, Side::Requests, &statuses)?;
    let mut limits = containers_sum(pod, Side::Limits, &statuses)?;
    replace_by_pod_level(pod, &mut requests, &mut limits)?;
    Ok((requests, limits))
}

/// A pod that ran to its end holds nothing but its place among stored objects.
///
/// Kubernetes also lets go of a pod whose deletion is overdue by its grace period once more; that needs a clock, and
/// here a pod that is being deleted is charged until it is gone or reports its end.
pub fn is_terminal(pod: &Value) -> bool {
    matches!(text(pod, &["status", "phase"]), "Failed" | "Succeeded")
}

/// Whether a resource may be stated for the pod as a whole.
fn may_be_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Whether the pod states any of its needs as a whole.
pub fn has_pod_level(pod: &Value) -> bool {
    ["requests", "limits"].into_iter().any(|side| {
        let list = at(pod, &["spec", "resources", side]).and_then(Value::as_object);
        list.is_some_and(|list| list.keys().any(|name| may_be_pod_level(name)))
    })
}

/// Every container that a quota asks to state its needs: application and init containers alike.
pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    items(pod, &["spec", "containers"]).iter().chain(items(pod, &["spec", "initContainers"]))
}

fn unstated(pod: &Value) -> Needs {
    if has_pod_level(pod) {
        return Needs::NONE;
    }
    containers(pod).fold(Needs::NONE, |open, container| open.with(Needs::unstated_by(container)))
}

fn containers_sum(pod: &Value, side: Side, statuses: &Statuses<'_>) -> Result<Resources, UsageError> {
    let mut sum = Resources::default();
    for container in items(pod, &["spec", "containers"]) {
        sum.add(&statuses.effective(container, side)?)?;
    }
    let mut peak = Resources::default();
    let mut sidecars = Resources::default();
    for container in items(pod, &["spec", "initContainers"]) {
        if text(container, &["restartPolicy"]) == "Always" {
            let own = statuses.effective(container, side)?;
            sum.add(&own)?;
            sidecars.add(&own)?;
            peak.raise_to(&sidecars);
        } else {
            let mut own = Resources::read(at(container, &["resources", side.field()]))?;
            own.add(&sidecars)?;
            peak.raise_to(&own);
        }
    }
    sum.raise_to(&peak);
    Ok(sum)
}

fn replace_by_pod_level(pod: &Value, requests: &mut Resources, limits: &mut Resources) -> Result<(), UsageError> {
    for (side, sums) in [(Side::Requests, requests), (Side::Limits, limits)] {
        let stated = Resources::read(at(pod, &["spec", "resources", side.field()]))?;
        for (name, value) in stated.iter().filter(|(name, _)| may_be_pod_level(name)) {
            sums.set(name, value);
        }
    }
    Ok(())
}

fn add_overhead(pod: &Value, requests: &mut Resources, limits: &mut Resources) -> Result<(), UsageError> {
    let overhead = Resources::read(at(pod, &["spec", "overhead"]))?;
    requests.add(&overhead)?;
    for (name, value) in overhead.iter() {
        // No limit means no bound; adding the overhead to it would invent one.
        if let Some(limit) = limits.get(name).filter(|limit| !limit.amount.is_zero()) {
            let sum = limit.checked_add(value).ok_or_else(|| UsageError::TooLarge { resource: name.to_string() })?;
            limits.set(name, sum);
        }
    }
    Ok(())
}

/// What the node reports to have given to containers, while a resize may be under way.
#[derive(Default)]
struct Statuses<'a> {
    by_name: HashMap<&'a str, &'a Value>,
    /// The node said it can never give what is asked: the asking does not count.
    infeasible: bool,
}

impl<'a> Statuses<'a> {
    fn of(pod: &'a Value) -> Self {
        let lists = ["containerStatuses", "initContainerStatuses"];
        let by_name = lists
            .into_iter()
            .flat_map(|list| items(pod, &["status", list]))
            .filter(|status| status.get("resources").is_some_and(|resources| !resources.is_null()))
            .map(|status| (text(status, &["name"]), status))
            .collect();
        let pending = items(pod, &["status", "conditions"])
            .iter()
            .find(|condition| text(condition, &["type"]) == "PodResizePending");
        Self { by_name, infeasible: pending.is_some_and(|condition| text(condition, &["reason"]) == "Infeasible") }
    }

    fn effective(&self, container: &Value, side: Side) -> Result<Resources, UsageError> {
        let asked = Resources::read(at(container, &["resources", side.field()]))?;
        if self.by_name.is_empty() {
            return Ok(asked);
        }
        let Some(status) = self.by_name.get(text(container, &["name"])) else { return Ok(asked) };
        let given = Resources::read(at(status, &["resources", side.field()]))?;
        let mut most = if self.infeasible { Resources::default() } else { asked };
        most.raise_to(&given);
        if side == Side::Requests {
            most.raise_to(&Resources::read(status.get("allocatedResources"))?);
        }
        Ok(most)
    }
}

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
