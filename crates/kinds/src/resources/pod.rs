//! What a pod uses: its effective requests and limits.
//!
//! The rules are those of reference/kubernetes.md's "Who charges what": application containers and sidecars (init
//! containers with `restartPolicy: Always`) run side by side and are added; an ordinary init container runs alone
//! beside the sidecars started before it, so only the peak of them counts; pod-level resources replace the sum;
//! overhead comes on top. Where a resize is under way, the larger of what is asked and what is given counts.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Common, Resources, UsageError};
use crate::fields::{at, items, text};
use crate::{conditions, time};

/// A pod, added up once and then read by every quota that matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// Whether it still counts as more than a stored object.
    pub live: bool,
    /// When it stops counting as such by itself, because its deletion is overdue.
    pub overdue_ms: Option<i64>,
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
        let stated = |side, name| at(container, &["resources", side, name]).is_some();
        Needs::open(
            stated("requests", "cpu"),
            stated("requests", "memory"),
            stated("limits", "cpu"),
            stated("limits", "memory"),
        )
    }

    fn unstated_in(stated: &Statement) -> Needs {
        let (requests, limits) = (&stated.requests, &stated.limits);
        let has = |list: &Resources, name| list.common(name).is_some();
        Needs::open(
            has(requests, Common::Cpu),
            has(requests, Common::Memory),
            has(limits, Common::Cpu),
            has(limits, Common::Memory),
        )
    }

    fn open(request_cpu: bool, request_memory: bool, limit_cpu: bool, limit_memory: bool) -> Needs {
        let open = |stated: bool, need: Needs| if stated { Needs::NONE } else { need };
        open(request_cpu, Needs::REQUEST_CPU)
            .with(open(request_memory, Needs::REQUEST_MEMORY))
            .with(open(limit_cpu, Needs::LIMIT_CPU))
            .with(open(limit_memory, Needs::LIMIT_MEMORY))
    }
}

/// Requests and limits, of a container or of a pod.
#[derive(Clone, Default)]
struct Statement {
    requests: Resources,
    limits: Resources,
}

impl Statement {
    fn read(resources: Option<&Value>) -> Result<Statement, UsageError> {
        let Some(resources) = resources else { return Ok(Statement::default()) };
        let requests = Resources::read(resources.get("requests"))?;
        Ok(Statement { requests, limits: Resources::read(resources.get("limits"))? })
    }

    fn add(&mut self, more: &Statement) -> Result<(), UsageError> {
        self.requests.add(&more.requests)?;
        self.limits.add(&more.limits)
    }

    fn raise_to(&mut self, least: &Statement) {
        self.requests.raise_to(&least.requests);
        self.limits.raise_to(&least.limits);
    }
}

/// Measures a pod the way quotas do, before any deletion of it is overdue.
pub fn pod_usage(pod: &Value) -> Result<PodUsage, UsageError> {
    pod_usage_at(pod, i64::MIN)
}

/// Measures a pod the way quotas do at this moment.
pub fn pod_usage_at(pod: &Value, now_ms: i64) -> Result<PodUsage, UsageError> {
    let overdue_ms = overdue_ms(pod);
    let ended = is_terminal(pod);
    if ended || overdue_ms.is_some_and(|at| at <= now_ms) {
        let nothing = Resources::default();
        let open = containers(pod).fold(Needs::NONE, |open, container| open.with(Needs::unstated_by(container)));
        let unstated = if has_pod_level(pod) { Needs::NONE } else { open };
        let overdue_ms = overdue_ms.filter(|_| !ended);
        return Ok(PodUsage { live: false, overdue_ms, requests: nothing.clone(), limits: nothing, unstated });
    }
    let (mut sum, open) = containers_sum(pod, &Statuses::of(pod))?;
    replace_by_pod_level(pod, &mut sum)?;
    add_overhead(pod, &mut sum)?;
    let unstated = if has_pod_level(pod) { Needs::NONE } else { open };
    Ok(PodUsage { live: true, overdue_ms, requests: sum.requests, limits: sum.limits, unstated })
}

/// The requests and limits a LimitRange of type Pod looks at: what the spec asks for, without overhead, and without
/// regard to what a running pod has been given.
pub fn pod_asks(pod: &Value) -> Result<(Resources, Resources), UsageError> {
    let (mut sum, _) = containers_sum(pod, &Statuses::default())?;
    replace_by_pod_level(pod, &mut sum)?;
    Ok((sum.requests, sum.limits))
}

/// What the containers of a pod ask for together, requests and limits, whatever the pod states as a whole.
pub fn containers_ask(pod: &Value) -> Result<(Resources, Resources), UsageError> {
    let (sum, _) = containers_sum(pod, &Statuses::default())?;
    Ok((sum.requests, sum.limits))
}

/// What the containers of a pod request together, of what a pod may state as a whole and promise more of than there is.
pub fn container_requests(pod: &Value) -> Result<Vec<(String, String)>, UsageError> {
    let (sum, _) = containers_sum(pod, &Statuses::default())?;
    let requests = ["cpu", "memory"].into_iter().filter_map(|name| {
        let asked = sum.requests.get(name)?;
        Some((name.to_owned(), asked.to_quantity().to_string()))
    });
    Ok(requests.collect())
}

/// From when on a pod that is being deleted is not waited for any longer: its node is gone, or stuck. As in Kubernetes
/// that is strictly after another grace period beyond the time of deletion, which includes one already.
fn overdue_ms(pod: &Value) -> Option<i64> {
    let metadata = pod.get("metadata")?;
    let deleted_ms = time::read_ms(metadata.get("deletionTimestamp")?.as_str()?)?;
    let grace_ms = metadata.get("deletionGracePeriodSeconds")?.as_i64()?.checked_mul(1000)?;
    deleted_ms.checked_add(grace_ms)?.checked_add(1)
}

/// A pod that ran to its end holds nothing but its place among stored objects.
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

/// What the containers need when it is most, and what some of them leave unstated.
fn containers_sum(pod: &Value, statuses: &Statuses<'_>) -> Result<(Statement, Needs), UsageError> {
    let mut sum = Statement::default();
    let mut open = Needs::NONE;
    for container in items(pod, &["spec", "containers"]) {
        let stated = Statement::read(container.get("resources"))?;
        open = open.with(Needs::unstated_in(&stated));
        sum.add(&statuses.effective(container, stated)?)?;
    }
    let inits = items(pod, &["spec", "initContainers"]);
    if inits.is_empty() {
        return Ok((sum, open));
    }
    let mut peak = Statement::default();
    let mut sidecars = Statement::default();
    for container in inits {
        let mut stated = Statement::read(container.get("resources"))?;
        open = open.with(Needs::unstated_in(&stated));
        if text(container, &["restartPolicy"]) == "Always" {
            let own = statuses.effective(container, stated)?;
            sum.add(&own)?;
            sidecars.add(&own)?;
            peak.raise_to(&sidecars);
        } else {
            stated.add(&sidecars)?;
            peak.raise_to(&stated);
        }
    }
    sum.raise_to(&peak);
    Ok((sum, open))
}

fn replace_by_pod_level(pod: &Value, sum: &mut Statement) -> Result<(), UsageError> {
    let Some(resources) = at(pod, &["spec", "resources"]) else { return Ok(()) };
    let stated = Statement::read(Some(resources))?;
    for (stated, sums) in [(&stated.requests, &mut sum.requests), (&stated.limits, &mut sum.limits)] {
        for (name, value) in stated.iter().filter(|(name, _)| may_be_pod_level(name)) {
            sums.set(name, value);
        }
    }
    Ok(())
}

fn add_overhead(pod: &Value, sum: &mut Statement) -> Result<(), UsageError> {
    let Some(overhead) = at(pod, &["spec", "overhead"]) else { return Ok(()) };
    let overhead = Resources::read(Some(overhead))?;
    sum.requests.add(&overhead)?;
    for (name, value) in overhead.iter() {
        // No limit means no bound; adding the overhead to it would invent one.
        if let Some(limit) = sum.limits.get(name).filter(|limit| !limit.amount.is_zero()) {
            let more = limit.checked_add(value).ok_or_else(|| UsageError::TooLarge { resource: name.to_string() })?;
            sum.limits.set(name, more);
        }
    }
    Ok(())
}

/// What the node reports to have given to containers, while a resize may be under way.
#[derive(Default)]
struct Statuses<'a> {
    by_name: BTreeMap<&'a str, &'a Value>,
    /// The node said it can never give what is asked: the asking does not count.
    infeasible: bool,
}

impl<'a> Statuses<'a> {
    fn of(pod: &'a Value) -> Self {
        let Some(status) = pod.get("status") else { return Statuses::default() };
        let by_name: BTreeMap<_, _> = ["containerStatuses", "initContainerStatuses"]
            .into_iter()
            .flat_map(|list| items(status, &[list]))
            .filter(|status| status.get("resources").is_some_and(|resources| !resources.is_null()))
            .map(|status| (text(status, &["name"]), status))
            .collect();
        let pending = status.get("conditions").and_then(|list| conditions::find(list, "PodResizePending"));
        Self { by_name, infeasible: pending.is_some_and(|condition| text(condition, &["reason"]) == "Infeasible") }
    }

    fn effective(&self, container: &Value, asked: Statement) -> Result<Statement, UsageError> {
        if self.by_name.is_empty() {
            return Ok(asked);
        }
        let Some(status) = self.by_name.get(text(container, &["name"])) else { return Ok(asked) };
        let given = Statement::read(status.get("resources"))?;
        let mut most = if self.infeasible { Statement::default() } else { asked };
        most.raise_to(&given);
        most.requests.raise_to(&Resources::read(status.get("allocatedResources"))?);
        Ok(most)
    }
}
