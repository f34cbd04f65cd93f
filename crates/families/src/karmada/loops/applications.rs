//! Workloads that are not well in a cluster that is: where a policy says so (`failover.application`), one that a member has told to be
//! unhealthy for a while is evicted from there, and placed anew as what a cluster that failed had. For how long it has been unhealthy is
//! known since this process began.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use kinds::fields::{at, items, text};
use kube::api::DynamicObject;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::super::binding::BindingSpec;
use super::evict::{Eviction, evict};
use super::kind::{bindings, is_leaving};
use super::standing::{Recorder, is_passing, recorder};
use super::watch::{Mirror, Watch};

const PRODUCER: &str = "ApplicationFailover";
const TOLERATED_SECONDS: u64 = 300;
const GRACE_SECONDS: u64 = 600;
/// How soon one that was placed in the same cluster again, since there is no other, is evicted from it once more.
const AGAIN: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(3600);

pub struct Applications {
    client: Client,
    bindings: Mirror,
    recorder: Recorder,
    /// Since when each binding, by uid, is unhealthy in a cluster; and when it was evicted from one.
    unhealthy: HashMap<(String, String), Instant>,
    evicted: HashMap<(String, String), Instant>,
}

pub async fn run(client: Client) {
    let (watch, [bindings]) = Watch::begin(&client, [bindings()]).await;
    let mut applications = Applications::new(client, bindings);
    loop {
        let rest = applications.look().await;
        watch.rung(rest).await;
    }
}

/// What a binding's policy says of it, if anything.
fn wished(spec: &BindingSpec) -> Option<&Value> {
    at(spec.failover.as_ref()?, &["application"]).filter(|one| one.is_object())
}

fn is_unhealthy(binding: &DynamicObject, cluster: &str) -> bool {
    let told = items(&binding.data, &["status", "aggregatedStatus"]);
    told.iter().any(|one| one["clusterName"] == cluster && one["health"] == "Unhealthy")
}

impl Applications {
    pub fn new(client: Client, bindings: Mirror) -> Applications {
        let recorder = recorder(&client, PRODUCER);
        Applications { client, bindings, recorder, unhealthy: HashMap::new(), evicted: HashMap::new() }
    }

    /// Looks at every binding; when to look again.
    pub async fn look(&mut self) -> Duration {
        let (mut rest, mut seen) = (REST, HashSet::new());
        self.evicted.retain(|_, at| at.elapsed() < AGAIN);
        for binding in self.bindings.all().iter().filter(|binding| !is_leaving(binding)) {
            let Ok(spec) = BindingSpec::read(&json!({"spec": binding.data["spec"]})) else { continue };
            let Some(wish) = wished(&spec) else { continue };
            let number = |path: &[&str], default: u64| at(wish, path).and_then(Value::as_u64).unwrap_or(default);
            let tolerated =
                Duration::from_secs(number(&["decisionConditions", "tolerationSeconds"], TOLERATED_SECONDS));
            // One at a time: what follows of the first is looked at before the next.
            let unwell = spec.clusters.iter().filter(|target| is_unhealthy(binding, &target.name));
            let mut over = None;
            for target in unwell {
                let key = (binding.uid().unwrap_or_default(), target.name.clone());
                let since = *self.unhealthy.entry(key.clone()).or_insert_with(Instant::now);
                let again = self.evicted.get(&key).map_or(Duration::ZERO, |at| AGAIN.saturating_sub(at.elapsed()));
                let left = tolerated.saturating_sub(since.elapsed()).max(again);
                seen.insert(key);
                match left.is_zero() {
                    true => over = over.or(Some(&*target.name)),
                    false => rest = rest.min(left),
                }
            }
            let Some(cluster) = over else { continue };
            let eviction = Eviction {
                purge_mode: text(wish, &["purgeMode"]),
                grace_seconds: Some(number(&["gracePeriodSeconds"], GRACE_SECONDS)),
                reason: "ApplicationFailure",
                producer: PRODUCER,
            };
            if let Err(error) = evict(&self.client, &self.recorder, binding, &spec, cluster, &eviction).await {
                rest = rest.min(RETRY);
                if !is_passing(&error) {
                    tracing::debug!(%error, binding = binding.name_any(), "will be evicted again");
                }
            } else {
                // Placed there again, it has as long as before.
                let key = (binding.uid().unwrap_or_default(), cluster.to_owned());
                seen.remove(&key);
                self.evicted.insert(key, Instant::now());
            }
        }
        self.unhealthy.retain(|key, _| seen.contains(key));
        rest
    }
}
