//! ResourceBinding as quotas and loops read it: what a workload asks for, where it was placed, what was evicted.
//!
//! [`usage`] is what a binding is charged: what is placed, and what was evicted and is not placed anew yet. So the total of a
//! namespace does not dip while a cluster fails, and nobody takes meanwhile what its workloads need elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use kinds::fields::{items, text};
use kinds::resources::{Measured, UsageError, quantity_of};
use quantity::{Amount, Format};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What may become of the old copy of what is evicted.
pub const PURGE_MODES: [&str; 5] = ["Directly", "Gracefully", "Never", "Immediately", "Graciously"];

/// `spec` of a ResourceBinding.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindingSpec {
    pub resource: Reference,
    pub replicas: u32,
    pub replica_requirements: Option<Requirements>,
    pub components: Vec<Component>,
    pub clusters: Vec<Target>,
    pub graceful_eviction_tasks: Vec<EvictionTask>,
    pub placement: Option<Value>,
    pub schedule_priority: Option<SchedulePriority>,
    pub scheduler_name: String,
    pub suspension: Option<Suspension>,
    pub failover: Option<Value>,
}

/// The template that a binding is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirements {
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub resource_request: Map<String, Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub priority_class_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Component {
    pub name: String,
    pub replicas: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<Requirements>,
}

/// How much of a workload one cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Target {
    pub name: String,
    pub replicas: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<TargetComponent>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetComponent {
    pub name: String,
    pub replicas: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionTask {
    pub from_cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub purge_mode: String,
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub producer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppress_deletion: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters_before_failover: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SchedulePriority {
    pub priority: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Suspension {
    pub scheduling: bool,
    pub dispatching: bool,
    pub dispatching_on_clusters: Option<Value>,
}

impl BindingSpec {
    /// Reads what the schema has let in; or says what is wrong with it.
    pub fn read(binding: &Value) -> Result<BindingSpec, String> {
        match binding.get("spec") {
            None | Some(Value::Null) => Ok(BindingSpec::default()),
            Some(spec) => BindingSpec::deserialize(spec).map_err(|error| format!("spec cannot be read: {error}")),
        }
    }

    pub fn is_divided(&self) -> bool {
        let kind = self.placement.as_ref().and_then(|placement| placement.get("replicaScheduling"));
        // Inside the block the default is to divide.
        kind.is_some_and(|kind| kind.get("replicaSchedulingType").and_then(Value::as_str) != Some("Duplicated"))
    }

    pub fn is_on(&self, cluster: &str) -> bool {
        self.clusters.iter().any(|target| target.name == cluster)
    }

    /// Whether nothing is brought to a cluster for now.
    pub fn is_suspended_on(&self, cluster: &str) -> bool {
        let Some(suspension) = &self.suspension else { return false };
        let named = suspension.dispatching_on_clusters.as_ref().map_or(&[][..], |one| items(one, &["clusterNames"]));
        suspension.dispatching || named.iter().any(|name| *name == *cluster)
    }

    /// Whether it is for a template of this kind.
    pub fn is_of(&self, api_version: &str, kind: &str) -> bool {
        self.resource.api_version == api_version && self.resource.kind == kind
    }

    /// How many pods a cluster has of it. A Pod is one wherever it is, whatever is said of its replicas.
    fn pods_on(&self, target: &Target) -> u64 {
        u64::from(target.replicas).max(u64::from(self.is_of("v1", "Pod")))
    }

    /// The priority classes of its pods.
    pub fn priority_classes(&self) -> impl Iterator<Item = &str> {
        let components = self.components.iter().filter_map(|one| one.replica_requirements.as_ref());
        let all = self.replica_requirements.iter().chain(components);
        all.map(|one| one.priority_class_name.as_str()).filter(|class| !class.is_empty())
    }

    /// Tasks whose cluster has nothing of the workload any more.
    fn evicted(&self) -> impl Iterator<Item = &EvictionTask> {
        self.graceful_eviction_tasks.iter().filter(|task| !self.is_on(&task.from_cluster))
    }

    /// Whether nothing is missing of what was evicted: without its tasks the binding is charged the same.
    pub fn is_replaced(&self) -> bool {
        let without = BindingSpec { graceful_eviction_tasks: Vec::new(), ..self.clone() };
        let is_same = usage(self, false).is_ok_and(|with| usage(&without, false).is_ok_and(|without| with == without));
        is_same && !self.clusters.is_empty()
    }

    /// What was evicted and is not placed anew, eviction by eviction: what came since the one before makes up for what was missing,
    /// and is missing itself once it is evicted in turn. `each` is what a cluster has that came in between.
    fn missing(&self, had: impl Fn(&EvictionTask) -> u64, each: u64, has: impl Fn(&Target) -> u64) -> u64 {
        let (mut missing, mut before) = (0_u64, BTreeSet::new());
        let mut present: BTreeSet<&str> = BTreeSet::new();
        for task in &self.graceful_eviction_tasks {
            let said: BTreeSet<&str> = task.clusters_before_failover.iter().map(String::as_str).collect();
            // Those that were evicted by one write say the same; of one that says nothing no order is known.
            if !said.is_empty() && said != before {
                let came = said.difference(&present).count() as u64;
                missing = missing.saturating_sub(came.saturating_mul(each));
                present.clone_from(&said);
                before = said;
            }
            missing = missing.saturating_add(had(task));
            present.remove(&*task.from_cluster);
        }
        let came = self.clusters.iter().filter(|target| !present.contains(&*target.name));
        missing.saturating_sub(came.map(has).sum()).min(self.evicted().map(had).sum())
    }

    /// Replicas that were evicted and are not placed anew.
    fn held_replicas(&self, count_evicting: bool) -> u64 {
        let on = |task: &EvictionTask| u64::from(task.replicas.unwrap_or(0));
        if count_evicting {
            return self.evicted().map(on).sum();
        }
        if self.is_divided() {
            let evicted: u64 = self.evicted().map(on).sum();
            let placed: u64 = self.clusters.iter().map(|target| self.pods_on(target)).sum();
            return evicted.min(u64::from(self.replicas).saturating_sub(placed));
        }
        // Every cluster has all of them, which may have become fewer.
        let all = u64::from(self.replicas);
        self.missing(|task| on(task).min(all), all, |target| u64::from(target.replicas))
    }

    /// Whole sets of components that were evicted and are not placed anew.
    fn held_sets(&self, count_evicting: bool) -> u64 {
        if count_evicting { self.evicted().count() as u64 } else { self.missing(|_| 1, 1, |_| 1) }
    }
}

/// What a binding takes, all clusters together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub requests: BTreeMap<String, Measured>,
    pub pods: u64,
    /// Clusters that have the object.
    pub objects: u64,
}

impl Usage {
    fn add(&mut self, requirements: Option<&Requirements>, times: u64) -> Result<(), UsageError> {
        self.pods = self.pods.checked_add(times).ok_or_else(|| too_large("pods"))?;
        let times = i64::try_from(times).map_err(|_| too_large("pods"))?;
        for (name, value) in requirements.iter().flat_map(|one| &one.resource_request) {
            let one = quantity_of(name, value)?;
            let amount = one.amount().checked_mul(times).ok_or_else(|| too_large(name))?;
            let more = Measured { amount, format: one.format() };
            let sum = match self.requests.get(name) {
                Some(had) => had.checked_add(more).ok_or_else(|| too_large(name))?,
                None => more,
            };
            if !sum.amount.is_zero() {
                self.requests.insert(name.clone(), sum);
            }
        }
        Ok(())
    }

    pub fn pods(&self) -> Measured {
        count(self.pods)
    }

    pub fn objects(&self) -> Measured {
        count(self.objects)
    }
}

fn count(of: u64) -> Measured {
    Measured { amount: Amount::from_nanos(i128::from(of) * 1_000_000_000), format: Format::DecimalSi }
}

fn too_large(resource: &str) -> UsageError {
    UsageError::TooLarge { resource: resource.to_string() }
}

/// What a binding is charged: what is placed, and what was evicted and is not placed anew. With `count_evicting`, what was
/// evicted counts until its task is done, for as long as the old copy may run beside the new one.
pub fn usage(spec: &BindingSpec, count_evicting: bool) -> Result<Usage, UsageError> {
    let mut usage = Usage::default();
    if spec.components.is_empty() {
        let placed: u64 = spec.clusters.iter().map(|target| spec.pods_on(target)).sum();
        let held = spec.held_replicas(count_evicting);
        let times = placed.checked_add(held).ok_or_else(|| too_large("pods"))?;
        usage.add(spec.replica_requirements.as_ref(), times)?;
    } else {
        for target in &spec.clusters {
            usage.add_set(spec, target)?;
        }
        let held = spec.held_sets(count_evicting);
        for component in &spec.components {
            let times = u64::from(component.replicas).checked_mul(held).ok_or_else(|| too_large("pods"))?;
            usage.add(component.replica_requirements.as_ref(), times)?;
        }
    }
    usage.objects = spec.clusters.len() as u64 + spec.held_sets(count_evicting);
    Ok(usage)
}

/// What one cluster has of it.
pub fn usage_on(spec: &BindingSpec, cluster: &str) -> Result<Usage, UsageError> {
    let mut usage = Usage::default();
    for target in spec.clusters.iter().filter(|target| target.name == cluster) {
        match spec.components.is_empty() {
            true => usage.add(spec.replica_requirements.as_ref(), spec.pods_on(target))?,
            false => usage.add_set(spec, target)?,
        }
        usage.objects += 1;
    }
    Ok(usage)
}

/// What is charged as evicted, by the cluster that had it: what is placed anew is taken from the oldest tasks first.
pub fn evicted_by_cluster(spec: &BindingSpec, count_evicting: bool) -> Result<Vec<(&str, Usage)>, UsageError> {
    let mut left = match spec.components.is_empty() {
        true => spec.held_replicas(count_evicting),
        false => spec.held_sets(count_evicting),
    };
    let tasks: Vec<&EvictionTask> = spec.evicted().collect();
    let mut found = Vec::new();
    for task in tasks.into_iter().rev() {
        let mut usage = Usage::default();
        let on = u64::from(task.replicas.unwrap_or(0));
        let had = match spec.components.is_empty() {
            true if count_evicting || spec.is_divided() => on,
            true => on.min(spec.replicas.into()),
            false => 1,
        };
        let times = had.min(left);
        left -= times;
        if spec.components.is_empty() {
            usage.add(spec.replica_requirements.as_ref(), times)?;
        }
        for component in &spec.components {
            let times = u64::from(component.replicas).checked_mul(times).ok_or_else(|| too_large("pods"))?;
            usage.add(component.replica_requirements.as_ref(), times)?;
        }
        found.push((&*task.from_cluster, usage));
    }
    Ok(found)
}

impl Usage {
    /// The components of one cluster. It gets all of them, whatever less the binding says it has; and what it says it has more counts.
    fn add_set(&mut self, spec: &BindingSpec, target: &Target) -> Result<(), UsageError> {
        for component in &spec.components {
            let own = target.components.iter().find(|one| one.name == component.name);
            let replicas = own.map_or(component.replicas, |own| own.replicas.max(component.replicas));
            self.add(component.replica_requirements.as_ref(), u64::from(replicas))?;
        }
        Ok(())
    }
}

/// As how many pods of a new size that counts which was evicted in the old one: no fewer than it was, no more than are wanted, and not
/// more of anything than it had.
pub fn in_new_size(replicas: u32, old: &BindingSpec, new: &BindingSpec) -> u32 {
    let requests = |spec: &BindingSpec| spec.replica_requirements.clone().unwrap_or_default().resource_request;
    let (was, is) = (requests(old), requests(new));
    let amount = |list: &Map<String, Value>, name: &str| {
        quantity_of(name, list.get(name).unwrap_or(&Value::Null)).map_or(Amount::ZERO, |one| one.amount())
    };
    let fits = is.keys().filter(|name| !amount(&is, name).is_zero()).map(|name| {
        let had = amount(&was, name).checked_mul(replicas.into()).unwrap_or(Amount::ZERO);
        u32::try_from(had.nanos() / amount(&is, name).nanos()).unwrap_or(u32::MAX)
    });
    if was == is { replicas } else { replicas.max(fits.min().unwrap_or(new.replicas).min(new.replicas)) }
}

/// Tasks say what they must to be counted: how much the cluster had, and where the workload was. That is a fact of the write that
/// evicted it, whatever its writer, or a later one, says. They stand in the order of their evictions: one that was left by an earlier
/// eviction of a cluster that is evicted again is of this one.
pub fn complete_tasks(binding: &mut Value, old: &Value) {
    let (Ok(old), Ok(new)) = (BindingSpec::read(old), BindingSpec::read(binding)) else { return };
    let before: Vec<&str> = old.clusters.iter().map(|target| &*target.name).collect();
    let had: BTreeMap<&str, u64> = old.clusters.iter().map(|target| (&*target.name, old.pods_on(target))).collect();
    let known: BTreeMap<&str, &EvictionTask> =
        old.graceful_eviction_tasks.iter().map(|task| (&*task.from_cluster, task)).collect();
    let is_on: BTreeSet<&str> = new.clusters.iter().map(|target| &*target.name).collect();
    let Some(tasks) = binding.pointer_mut("/spec/gracefulEvictionTasks").and_then(Value::as_array_mut) else { return };
    for (task, read) in tasks.iter_mut().zip(&new.graceful_eviction_tasks) {
        let from = &*read.from_cluster;
        let Some(task) = task.as_object_mut().filter(|_| !is_on.contains(from)) else { continue };
        let (replicas, before) = match (had.get(from), known.get(from)) {
            (Some(had), _) => (json!(had), json!(before)),
            (None, Some(known)) => {
                let replicas = known.replicas.map(|replicas| in_new_size(replicas, &old, &new));
                (json!(replicas), json!(known.clusters_before_failover))
            }
            // Nothing is known of it but what is written.
            (None, None) => continue,
        };
        for (field, fact) in [("replicas", replicas), ("clustersBeforeFailover", before)] {
            match fact.is_null() || fact == json!([]) {
                true => drop(task.remove(field)),
                false => drop(task.insert(field.into(), fact)),
            }
        }
    }
    let is_left_now = |task: &Value| {
        let from = text(task, &["fromCluster"]);
        had.contains_key(from) && !is_on.contains(from)
    };
    tasks.sort_by_key(is_left_now);
}
