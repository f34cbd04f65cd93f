//! Whether a member is well, what it serves and what it has left: asked again and again, written into its Cluster's status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinds::resources::pod::pod_usage;
use kinds::resources::{Measured, quantity_of};
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::Discovery;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::super::Settings;
use super::kind::{all, clusters};
use super::standing::{patch_status, says, with_condition};

/// A member that does not answer within this does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Every so many beats a member is asked what it serves.
const BEATS_BETWEEN_DISCOVERIES: u64 = 3;
/// Groups that a Cluster tells of, and kinds of each.
pub const TOLD_MAX: usize = 1000;
/// Objects asked for at a time.
const PAGE: u32 = 500;

/// What a member said.
pub enum Pulse {
    Well(String),
    /// It answers, and says that it is not ready.
    Unwell(String),
    Silent(String),
}

pub async fn run(client: Client, member: Client, name: String, settings: Arc<Settings>, bell: Arc<Notify>) {
    let beat = Duration::from_secs(settings.heartbeat_seconds);
    let grace = Duration::from_secs(settings.grace_seconds);
    let (mut well, mut beats, mut was_silent) = (Instant::now(), 0_u64, false);
    loop {
        let pulse = tokio::time::timeout(PATIENCE, ask(&member)).await;
        let pulse = pulse.unwrap_or_else(|_| Pulse::Silent("no answer in time".into()));
        let told = match &pulse {
            Pulse::Well(version) => {
                well = Instant::now();
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
            _ => match unwell(&pulse, well.elapsed(), grace) {
                Some((is, reason, why)) => tell(&client, &name, json!({}), is, reason, &why).await,
                None => Ok(()),
            },
        };
        if let Err(error) = told {
            tracing::debug!(%error, cluster = name, "the state of a cluster is not told");
        }
        was_silent = matches!(pulse, Pulse::Silent(_));
        beats += 1;
        tokio::time::sleep(beat).await;
    }
}

/// What is told of a member that is not well, and has not been for so long. One moment means nothing, whether it says so itself or is
/// silent: all that runs there may be evicted for it.
pub fn unwell(pulse: &Pulse, since: Duration, grace: Duration) -> Option<(&'static str, &'static str, String)> {
    match pulse {
        Pulse::Unwell(why) if since >= grace => Some(("False", "ClusterNotReady", why.clone())),
        Pulse::Silent(why) if since >= grace => {
            Some(("Unknown", "ClusterNotReachable", format!("cluster is not reachable: {why}")))
        }
        _ => None,
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
    let groups = discovery.groups();
    let kinds = groups.flat_map(|group| group.versions().flat_map(|version| group.versioned_resources(version)));
    Some(json!({"apiEnablements": enabled(kinds.map(|(kind, _)| kind))}))
}

/// Kinds by group and version. More of them than a status has room for are not told: one that is refused would tell nothing.
pub fn enabled(kinds: impl Iterator<Item = ApiResource>) -> Vec<Value> {
    let mut versions: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for kind in kinds {
        versions.entry(kind.api_version).or_default().insert(kind.plural, kind.kind);
    }
    let list = versions.into_iter().take(TOLD_MAX).map(|(version, kinds)| {
        let kinds = kinds.into_iter().take(TOLD_MAX).map(|(name, kind)| json!({"name": name, "kind": kind}));
        json!({"groupVersion": version, "resources": kinds.collect::<Vec<_>>()})
    });
    list.collect()
}

/// What the nodes of a member have, and what its pods take of that. Of one without nodes nothing is known.
pub async fn left(member: &Client) -> Option<Value> {
    let (mut total, mut ready, mut allocatable) = (0, 0, Sums::default());
    let nodes = each(member, "Node", "nodes", |node| {
        total += 1;
        ready += u32::from(kinds::conditions::of(node, "Ready").is_some_and(|one| one["status"] == "True"));
        if node["spec"]["unschedulable"] == true {
            return Some(());
        }
        let list = node["status"]["allocatable"].as_object().into_iter().flatten();
        list.map(|(name, value)| allocatable.add(name, Measured::of(quantity_of(name, value).ok()?))).collect()
    });
    nodes.await?;
    if total == 0 {
        return Some(json!({"resourceSummary": null, "nodeSummary": {"totalNum": 0, "readyNum": 0}}));
    }
    let (mut allocated, mut allocating) = (Sums::default(), Sums::default());
    let pods = each(member, "Pod", "pods", |pod| {
        // A pod that cannot be read takes nothing that could be told.
        let Some(usage) = pod_usage(pod).ok().filter(|usage| usage.live) else { return Some(()) };
        let sums = if pod["spec"]["nodeName"].is_string() { &mut allocated } else { &mut allocating };
        for (name, measured) in usage.requests.iter() {
            sums.add(name, measured)?;
        }
        sums.add("pods", Measured::of(quantity_of("pods", &json!(1)).ok()?))
    });
    pods.await?;
    Some(json!({
        "nodeSummary": {"totalNum": total, "readyNum": ready},
        "resourceSummary": {
            "allocatable": allocatable.shown(), "allocated": allocated.shown(), "allocating": allocating.shown(),
        },
    }))
}

/// Looks at every object of a kind, a page at a time: a member may have more than anybody keeps in memory at once.
async fn each(member: &Client, kind: &str, plural: &str, mut look: impl FnMut(&Value) -> Option<()>) -> Option<()> {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", kind), plural);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = all(member, &kind).list(&page).await.ok()?;
        for object in &list.items {
            look(&object.data)?;
        }
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Some(()),
        }
    }
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

/// Tells of a member that cannot be asked at all.
pub async fn tell_unreached(client: &Client, name: &str, why: &str) {
    let why = format!("cluster is not reachable: {why}");
    if let Err(error) = tell(client, name, json!({}), "Unknown", "ClusterNotReachable", &why).await {
        tracing::debug!(%error, cluster = name, "the state of a cluster is not told");
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
