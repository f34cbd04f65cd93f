//! Whether a member is well, what it serves and what it has left: asked again and again, written into its Cluster's status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kinds::resources::pod::pod_usage;
use kinds::resources::{Measured, quantity_of};
use kube::api::{DynamicObject, ListParams};
use kube::discovery::Discovery;
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::super::Settings;
use super::kind::{all, clusters};
use super::standing::{patch_status, says, with_condition};

/// A member that does not answer within this does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Every so many beats a member is asked what it serves.
const BEATS_BETWEEN_DISCOVERIES: u64 = 3;

/// What a member said.
enum Pulse {
    Well(String),
    /// It answers, and says that it is not ready.
    Unwell(String),
    Silent(String),
}

pub async fn run(client: Client, member: Client, name: String, settings: Arc<Settings>, bell: Arc<Notify>) {
    let beat = Duration::from_secs(settings.heartbeat_seconds);
    let grace = Duration::from_secs(settings.grace_seconds);
    let (mut heard, mut beats, mut was_silent) = (Instant::now(), 0_u64, false);
    loop {
        let pulse = tokio::time::timeout(PATIENCE, ask(&member)).await;
        let pulse = pulse.unwrap_or_else(|_| Pulse::Silent("no answer in time".into()));
        let told = match &pulse {
            Pulse::Well(version) => {
                heard = Instant::now();
                let mut status = json!({"kubernetesVersion": version});
                if beats.is_multiple_of(BEATS_BETWEEN_DISCOVERIES) || was_silent {
                    extend(&mut status, tokio::time::timeout(PATIENCE, served(&member)).await.ok().flatten());
                }
                extend(&mut status, tokio::time::timeout(PATIENCE, left(&member)).await.ok().flatten());
                if was_silent {
                    // What could not be done meanwhile is done now.
                    bell.notify_one();
                }
                tell(&client, &name, status, "True", "ClusterReady", "cluster is healthy and ready to accept workloads")
                    .await
            }
            Pulse::Unwell(why) => {
                heard = Instant::now();
                tell(&client, &name, json!({}), "False", "ClusterNotReady", why).await
            }
            // A moment's silence means nothing.
            Pulse::Silent(_) if heard.elapsed() < grace => Ok(()),
            Pulse::Silent(why) => {
                let why = format!("cluster is not reachable: {why}");
                tell(&client, &name, json!({}), "Unknown", "ClusterNotReachable", &why).await
            }
        };
        if let Err(error) = told {
            tracing::debug!(%error, cluster = name, "the state of a cluster is not told");
        }
        was_silent = matches!(pulse, Pulse::Silent(_));
        beats += 1;
        tokio::time::sleep(beat).await;
    }
}

fn extend(status: &mut Value, more: Option<Value>) {
    if let (Some(status), Some(Value::Object(more))) = (status.as_object_mut(), more) {
        status.extend(more);
    }
}

async fn ask(member: &Client) -> Pulse {
    let request = match http::Request::get("/readyz").body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return Pulse::Silent(error.to_string()),
    };
    match member.request_text(request).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) => return Pulse::Unwell(status.message.clone()),
        Err(error) => return Pulse::Silent(root(&error)),
    }
    match member.apiserver_version().await {
        Ok(version) => Pulse::Well(version.git_version),
        Err(error) => Pulse::Silent(root(&error)),
    }
}

/// What is behind an error: the outermost says only that a service failed.
fn root(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// The kinds a member serves.
async fn served(member: &Client) -> Option<Value> {
    let discovery = Discovery::new(member.clone()).run().await.ok()?;
    let mut versions: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for group in discovery.groups() {
        for version in group.versions() {
            for (resource, _) in group.versioned_resources(version) {
                versions.entry(resource.api_version).or_default().insert(resource.plural, resource.kind);
            }
        }
    }
    let list = versions.into_iter().map(|(version, kinds)| {
        let kinds: Vec<Value> = kinds.into_iter().map(|(name, kind)| json!({"name": name, "kind": kind})).collect();
        json!({"groupVersion": version, "resources": kinds})
    });
    Some(json!({"apiEnablements": list.collect::<Vec<_>>()}))
}

/// What the nodes of a member have, and what its pods take of that. Of one without nodes nothing is known.
async fn left(member: &Client) -> Option<Value> {
    let nodes = Api::<Node>::all(member.clone()).list(&ListParams::default()).await.ok()?.items;
    if nodes.is_empty() {
        return Some(json!({"resourceSummary": null, "nodeSummary": {"totalNum": 0, "readyNum": 0}}));
    }
    let pods = Api::<Pod>::all(member.clone()).list(&ListParams::default()).await.ok()?.items;
    let mut allocatable = Sums::default();
    let mut ready = 0;
    for node in &nodes {
        let node = serde_json::to_value(node).ok()?;
        ready += u32::from(kinds::conditions::of(&node, "Ready").is_some_and(|one| one["status"] == "True"));
        if node["spec"]["unschedulable"] == true {
            continue;
        }
        for (name, value) in node["status"]["allocatable"].as_object().into_iter().flatten() {
            allocatable.add(name, Measured::of(quantity_of(name, value).ok()?))?;
        }
    }
    let (mut allocated, mut allocating) = (Sums::default(), Sums::default());
    for pod in &pods {
        let pod = serde_json::to_value(pod).ok()?;
        // A pod that cannot be read takes nothing that could be told.
        let Ok(usage) = pod_usage(&pod) else { continue };
        if !usage.live {
            continue;
        }
        let sums = if pod["spec"]["nodeName"].is_string() { &mut allocated } else { &mut allocating };
        for (name, measured) in usage.requests.iter() {
            sums.add(name, measured)?;
        }
        sums.add("pods", Measured::of(quantity_of("pods", &json!(1)).ok()?))?;
    }
    Some(json!({
        "nodeSummary": {"totalNum": nodes.len(), "readyNum": ready},
        "resourceSummary": {
            "allocatable": allocatable.shown(), "allocated": allocated.shown(), "allocating": allocating.shown(),
        },
    }))
}

#[derive(Default)]
struct Sums(BTreeMap<String, Measured>);

impl Sums {
    fn add(&mut self, name: &str, more: Measured) -> Option<()> {
        let sum = match self.0.get(name) {
            Some(had) => had.checked_add(more)?,
            None => more,
        };
        self.0.insert(name.to_owned(), sum);
        Some(())
    }

    fn shown(self) -> Value {
        let shown = self.0.into_iter().map(|(name, sum)| (name, json!(sum.to_quantity().canonical().to_string())));
        Value::Object(shown.collect::<Map<_, _>>())
    }
}

/// Writes what is news of a cluster.
async fn tell(
    client: &Client,
    name: &str,
    mut status: Value,
    is: &str,
    reason: &str,
    message: &str,
) -> kube::Result<()> {
    let Some(cluster): Option<DynamicObject> = all(client, &clusters()).get_opt(name).await? else { return Ok(()) };
    let shown = &cluster.data["status"];
    let is_shown = |(field, value): (&String, &Value)| shown.get(field).unwrap_or(&Value::Null) == value;
    let is_news = !status.as_object().into_iter().flatten().all(is_shown);
    if !is_news && says(shown, "Ready", is, reason, message) {
        return Ok(());
    }
    status["conditions"] = with_condition(shown, "Ready", is, reason, message);
    patch_status(client, &cluster, &clusters(), status).await.map(drop)
}
