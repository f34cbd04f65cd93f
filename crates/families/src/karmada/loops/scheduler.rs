//! The scheduler: which clusters a binding goes to, written in one patch that is charged as it is stored. A refusal is the
//! quota's, whatever was reckoned here; it is kept apart from clusters that do not fit and clusters that have not enough.
//!
//! Whoever waits is looked at in the order of priority, then age, and tried again when it might fit: when something in the
//! namespace was let go of, a limit was raised, or a quota went.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kinds::conditions;
use kinds::field_error::Path;
use kinds::resources::quantity_of;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use quantity::Amount;
use serde_json::{Value, json};

use super::super::binding::{BindingSpec, Target, Usage, usage};
use super::super::names::Counted;
use super::super::schedule::{self, Cluster, Misfit};
use super::super::scopes::Scopes;
use super::super::{Settings, quota};
use super::detector::words;
use super::kind::{bindings, clusters, fingerprint, is_leaving, leases, namespace_of, quotas, within};
use super::leaving;
use super::promises::Promises;
use super::standing::{now, recorder, says, with_condition};
use super::tellings::{Occasion, Teller, Telling, Tellings};
use super::watch::{Mirror, Watch};

const NAME: &str = "default-scheduler";
pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
/// Namespaces scheduled at the same time. Within one, bindings are served one after the other.
const NAMESPACES_AT_ONCE: usize = 8;
/// How soon a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Whoever waits is looked at again this often, whatever happens.
const REST: Duration = Duration::from_secs(30);

struct Scheduler {
    client: Client,
    settings: Arc<Settings>,
    bindings: Mirror,
    clusters: Mirror,
    quotas: Mirror,
    teller: Teller,
    /// The order in which bindings were first seen: times of creation are whole seconds.
    arrivals: HashMap<String, u64>,
    /// The clusters as they were at the last look.
    clusters_mark: u64,
    promises: Promises,
}

/// A binding that needs a look.
struct Waiting {
    binding: Arc<DynamicObject>,
    spec: BindingSpec,
    is_retry: bool,
}

pub async fn run(client: Client, settings: Arc<Settings>, promises: Promises) {
    // What members give back wakes who waits for it.
    let kinds = [bindings(), clusters(), quotas(), leases()];
    let (watch, [bindings, clusters, quotas, _leases]) = Watch::begin(&client, kinds).await;
    let teller = Teller { client: client.clone(), kind: bindings.kind.clone(), recorder: recorder(&client, NAME) };
    let mut scheduler = Scheduler {
        client,
        settings,
        bindings,
        clusters,
        quotas,
        teller,
        arrivals: HashMap::new(),
        clusters_mark: 0,
        promises,
    };
    loop {
        let is_settled = scheduler.look().await;
        watch.rung(if is_settled { REST } else { RETRY }).await;
    }
}

impl Scheduler {
    /// Looks at every binding; whether nothing failed.
    async fn look(&mut self) -> bool {
        let clusters = self.promises.clusters(&self.clusters, &self.settings);
        // What is left of them changes with every heartbeat, and concerns only who waits.
        let said: Vec<_> = clusters
            .iter()
            .map(|one| {
                (
                    &one.name,
                    &one.labels,
                    &one.taints,
                    one.is_leaving,
                    one.is_pulled,
                    one.kinds.as_ref().map(BTreeSet::len),
                )
            })
            .collect();
        let mark = fingerprint(&format!("{said:?}"));
        let is_new = std::mem::replace(&mut self.clusters_mark, mark) != mark;
        let mut by_namespace: BTreeMap<String, Vec<Waiting>> = BTreeMap::new();
        let all = self.bindings.all();
        self.note_arrivals(&all);
        for binding in all {
            if let Some(waiting) = needs_look(&binding, is_new) {
                by_namespace.entry(namespace_of(&binding)).or_default().push(waiting);
            }
        }
        if by_namespace.is_empty() {
            return true;
        }
        for list in by_namespace.values_mut() {
            list.sort_by_cached_key(|one| self.place_in_line(one));
        }
        let rooms = if by_namespace.values().flatten().any(|one| one.is_retry) {
            self.rooms().await
        } else {
            Some(HashMap::new())
        };
        let Some(rooms) = rooms else { return false };
        let scheduler = &*self;
        let clusters = tokio::sync::Mutex::new(clusters);
        let done: Vec<bool> = futures::stream::iter(by_namespace)
            .map(|(namespace, list)| {
                let rooms = rooms.get(&namespace).cloned().unwrap_or_default();
                let clusters = &clusters;
                async move { scheduler.serve(list, rooms, clusters).await }
            })
            .buffer_unordered(NAMESPACES_AT_ONCE)
            .collect()
            .await;
        let is_settled = done.into_iter().all(|is_settled| is_settled);
        if !is_settled {
            // What could not be written may have been for the clusters' sake: all are looked at again.
            self.clusters_mark = 0;
        }
        is_settled
    }

    fn note_arrivals(&mut self, all: &[Arc<DynamicObject>]) {
        if self.arrivals.len() > 1024.max(2 * all.len()) {
            let known: BTreeSet<String> = all.iter().filter_map(|one| one.uid()).collect();
            self.arrivals.retain(|uid, _| known.contains(uid));
        }
        for binding in all {
            let revision =
                binding.metadata.resource_version.as_deref().and_then(|one| one.parse().ok()).unwrap_or(u64::MAX);
            self.arrivals.entry(binding.uid().unwrap_or_default()).or_insert(revision);
        }
    }

    fn place_in_line(&self, one: &Waiting) -> (i64, String, u64, String) {
        let priority = one.spec.schedule_priority.as_ref().map_or(0, |one| i64::from(one.priority));
        let created = one.binding.metadata.creation_timestamp.as_ref().map(|at| at.0.to_string()).unwrap_or_default();
        let arrival = self.arrivals.get(&one.binding.uid().unwrap_or_default()).copied().unwrap_or(u64::MAX);
        (-priority, created, arrival, one.binding.name_any())
    }

    /// What is left of every quota, by namespace, as it is now: asked for, since copies are a moment old.
    async fn rooms(&self) -> Option<HashMap<String, Vec<Room>>> {
        let listed = super::kind::all(&self.client, &self.quotas.kind).list(&ListParams::default()).await.ok()?;
        let mut rooms: HashMap<String, Vec<Room>> = HashMap::new();
        for quota in listed.items {
            rooms.entry(namespace_of(&quota)).or_default().push(Room::read(&quota));
        }
        Some(rooms)
    }

    /// Serves the bindings of one namespace in their order.
    async fn serve(
        &self,
        list: Vec<Waiting>,
        mut rooms: Vec<Room>,
        clusters: &tokio::sync::Mutex<Vec<Cluster>>,
    ) -> bool {
        let mut is_settled = true;
        let mut tellings = Tellings::new(&self.teller);
        for waiting in list {
            let placed = {
                let clusters = clusters.lock().await;
                schedule::place(&waiting.spec, &waiting.binding.uid().unwrap_or_default(), &clusters)
            };
            let done = match placed {
                Err(misfit) => {
                    let (reason, why) = match &misfit {
                        Misfit::NoClusterFit(why) => ("NoClusterFit", why),
                        Misfit::Unschedulable(why) => ("Unschedulable", why),
                    };
                    refuse(&waiting, reason, why, &mut tellings).await;
                    Ok(())
                }
                Ok(targets) => {
                    let mut next = waiting.spec.clone();
                    next.clusters = targets;
                    let counted = |spec: &BindingSpec| usage(spec, self.settings.count_evicting).unwrap_or_default();
                    let more = (counted(&waiting.spec), counted(&next));
                    if waiting.is_retry && rooms.iter().any(|room| !room.fits(&waiting.spec, &next, &more)) {
                        continue;
                    }
                    let affinity = {
                        let placement = next.placement.as_ref().unwrap_or(&Value::Null);
                        schedule::affinity_name(placement, &next.clusters, &clusters.lock().await)
                    };
                    let done = self.assign(&waiting, &next.clusters, affinity, &mut tellings).await;
                    if let Ok(true) = done {
                        rooms.iter_mut().for_each(|room| room.take(&waiting.spec, &next, &more));
                        self.promises.note(&waiting.spec, &next, &mut clusters.lock().await);
                    }
                    done.map(drop)
                }
            };
            if let Err(error) = done {
                tracing::debug!(%error, binding = waiting.binding.name_any(), "will be scheduled again");
                is_settled = false;
            }
        }
        // The next look goes by what is told.
        is_settled & tellings.finish().await
    }

    /// Writes a placement; whether it was granted.
    async fn assign(
        &self,
        waiting: &Waiting,
        targets: &[Target],
        affinity: Option<String>,
        tellings: &mut Tellings,
    ) -> kube::Result<bool> {
        let binding = &waiting.binding;
        let mut written = binding.clone();
        if targets != waiting.spec.clusters {
            let placement = waiting.spec.placement.clone().unwrap_or_default().to_string();
            // The whole list is put, or nothing: never a part of what was reckoned for another state.
            let patch = Patch::Merge(json!({
                "metadata": {
                    "uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version,
                    "annotations": {APPLIED_PLACEMENT: placement},
                },
                "spec": {"clusters": targets},
            }));
            let api = within(&self.client, &self.bindings.kind, &namespace_of(binding));
            written = match api.patch(&binding.name_any(), &PatchParams::default(), &patch).await {
                Ok(written) => Arc::new(written),
                Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("exceeded") => {
                    refuse(waiting, "QuotaExceeded", &status.message, tellings).await;
                    // What does not grow is in its own way: where it was has to be given back first.
                    if let Some(spec) = leaving::first(&binding.data["spec"], &waiting.spec, targets, NAME) {
                        let metadata =
                            json!({"uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version});
                        let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec}));
                        api.patch(&binding.name_any(), &PatchParams::default(), &patch).await?;
                    }
                    return Ok(false);
                }
                Err(kube::Error::Api(status)) if !matches!(status.code, 404 | 409) && status.code < 500 => {
                    let why = words(&kube::Error::Api(status));
                    refuse(waiting, "SchedulerError", &why, tellings).await;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
        }
        let message = "Binding has been scheduled successfully.";
        let was_scheduled = says(&binding.data["status"], "Scheduled", "True", "Success", message);
        let seen = binding.data["status"]["schedulerObservedGeneration"].as_i64();
        if targets == waiting.spec.clusters && was_scheduled && seen == binding.metadata.generation {
            return Ok(true);
        }
        let status = json!({
            "schedulerObservedGeneration": written.metadata.generation,
            "lastScheduledTime": now(),
            "schedulerObservingAffinityName": affinity,
            "conditions": with_condition(&written.data["status"], "Scheduled", "True", "Success", message),
        });
        let is_news = targets != waiting.spec.clusters || !was_scheduled;
        let event = is_news.then(|| {
            let result: Vec<String> = targets.iter().map(|one| format!("{}:{}", one.name, one.replicas)).collect();
            let note = format!("{message} Result: {{{}}}", result.join(", "));
            Occasion { is_warning: false, reason: "ScheduleBindingSucceed", note }
        });
        tellings.begin(Telling { of: written, status, event }).await;
        Ok(true)
    }
}

/// Says why a binding waits. What it has it keeps.
async fn refuse(waiting: &Waiting, reason: &str, message: &str, tellings: &mut Tellings) {
    let status = &waiting.binding.data["status"];
    if says(status, "Scheduled", "False", reason, message) {
        return;
    }
    let conditions = with_condition(status, "Scheduled", "False", reason, message);
    let status = json!({"conditions": conditions, "schedulerObservedGeneration": waiting.binding.metadata.generation});
    let event = Occasion { is_warning: true, reason: "ScheduleBindingFailed", note: message.to_owned() };
    tellings.begin(Telling { of: waiting.binding.clone(), status, event: Some(event) }).await;
}

/// Whether a binding has to be looked at: it changed, the clusters did, or it waits.
fn needs_look(binding: &Arc<DynamicObject>, clusters_changed: bool) -> Option<Waiting> {
    if is_leaving(binding) {
        return None;
    }
    let status = &binding.data["status"];
    let is_seen = status["schedulerObservedGeneration"].as_i64() == binding.metadata.generation;
    let scheduled = status.get("conditions").and_then(|all| conditions::find(all, "Scheduled"));
    let waits = scheduled.is_none_or(|one| one["status"] != "True");
    if is_seen && !waits && !clusters_changed {
        return None;
    }
    let spec = BindingSpec::read(&json!({"spec": binding.data["spec"]})).ok()?;
    let is_retry = is_seen && scheduled.is_some_and(|one| one["reason"] == "QuotaExceeded");
    is_ours(&spec).then(|| Waiting { binding: binding.clone(), spec, is_retry })
}

/// Whether it is this scheduler that places a binding, and now.
pub fn is_ours(spec: &BindingSpec) -> bool {
    let is_held = spec.suspension.as_ref().is_some_and(|one| one.scheduling);
    !is_held && (spec.scheduler_name.is_empty() || spec.scheduler_name == NAME)
}

/// What one quota has left.
#[derive(Clone)]
struct Room {
    left: Vec<(Counted, Amount)>,
    scopes: Scopes,
}

impl Room {
    fn read(quota: &DynamicObject) -> Room {
        let object = json!({"spec": quota.data["spec"]});
        let used = &quota.data["status"]["overallUsed"];
        let left = quota::overall(&object).unwrap_or_default().into_iter().filter_map(|(name, limit)| {
            let used = quantity_of(&name, used.get(&*name).unwrap_or(&Value::Null)).ok()?;
            Some((Counted::of(&name)?, limit.amount().checked_sub(used.amount())?))
        });
        // Scopes that cannot be read are somebody else's to complain about: then everything is meant.
        Room { left: left.collect(), scopes: Scopes::read(&object["spec"], &Path::new("spec")).unwrap_or_default() }
    }

    fn growth(counted: &Counted, before: &BindingSpec, after: &BindingSpec, more: &(Usage, Usage)) -> Option<Amount> {
        let amount = |spec, usage| counted.amount(spec, usage).map_or(Amount::ZERO, |one| one.amount);
        amount(after, &more.1).checked_sub(amount(before, &more.0))
    }

    fn fits(&self, before: &BindingSpec, after: &BindingSpec, more: &(Usage, Usage)) -> bool {
        let fits = |(counted, left): &(Counted, Amount)| {
            Room::growth(counted, before, after, more).is_some_and(|more| more <= Amount::ZERO || more <= *left)
        };
        !self.scopes.match_binding(after) || self.left.iter().all(fits)
    }

    fn take(&mut self, before: &BindingSpec, after: &BindingSpec, more: &(Usage, Usage)) {
        if self.scopes.match_binding(after) {
            for (counted, left) in &mut self.left {
                let growth = Room::growth(counted, before, after, more).unwrap_or(Amount::ZERO);
                *left = left.checked_sub(growth).unwrap_or(*left);
            }
        }
    }
}
