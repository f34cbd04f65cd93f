//! The scheduler at work, over a Kubernetes API and the API of organizations beside it: every change it makes is a command, with
//! its events and its own check of quota in the same step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::dimensions::Dimension;
use super::super::names::*;
use super::plan::{Action, Memory, asking, plan};
use super::state::{Objects, Seen, groups, rooms};
use crate::Plural;

/// Between two looks when nothing changes: time makes nodes old, and drains end.
const LOOK: Duration = Duration::from_secs(1);
/// After a change, what comes with it is waited for.
const GATHER: Duration = Duration::from_millis(20);
/// A pass looks at everything: where that takes long, so many times as long belong to others.
const REST: u32 = 2;
/// Organizations that are read one by one; more are read with one list.
const READ_MAX: usize = 8;

struct Shelf {
    store: Store<DynamicObject>,
}

impl Shelf {
    /// Follows one kind for as long as the process runs.
    fn follow(client: &Client, plural: Plural, changed: &Arc<Notify>, loops: &mut tokio::task::JoinSet<()>) -> Shelf {
        let kind = GroupVersionKind::gvk(GROUP, VERSION, kind_of(plural));
        let resource = ApiResource::from_gvk_with_plural(&kind, plural.1);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let writer = reflector::store::Writer::new(resource);
        let store = writer.as_reader();
        let stream = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
        let changed = Arc::clone(changed);
        loops.spawn(async move {
            stream
                .for_each(|_| {
                    changed.notify_one();
                    std::future::ready(())
                })
                .await;
        });
        Shelf { store }
    }

    fn seen(&self) -> Vec<Seen> {
        let state = self.store.state();
        let read = |object: &Arc<DynamicObject>| Seen {
            org: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            spec: object.data.get("spec").cloned().unwrap_or(Value::Null),
            status: object.data.get("status").cloned().unwrap_or(Value::Null),
        };
        let mut seen: Vec<Seen> = state.iter().map(read).collect();
        seen.sort_by(|a, b| (&a.org, &a.name).cmp(&(&b.org, &b.name)));
        seen
    }
}

pub async fn run(client: Client) {
    let changed = Arc::new(Notify::new());
    let mut loops = tokio::task::JoinSet::new();
    let plurals = [NODES, ORGS, ENVS, INSTANCES, ATTACHMENTS, VOLUMES, DEPLOYS];
    let shelves = plurals.map(|plural| Shelf::follow(&client, plural, &changed, &mut loops));
    for shelf in &shelves {
        if shelf.store.wait_until_ready().await.is_err() {
            return;
        }
    }
    let mut memory = Memory::default();
    loop {
        let begun = tokio::time::Instant::now();
        let objects = read(&client, &shelves).await;
        let did = match objects {
            Some(objects) => pass(&client, &objects, &mut memory).await,
            None => 0,
        };
        let took = begun.elapsed();
        if did == 0 {
            // Whichever comes first.
            let _ = tokio::time::timeout(LOOK, changed.notified()).await;
        }
        tokio::time::sleep(GATHER.max(REST * took)).await;
    }
}

/// What there is. Organizations are read anew: what their status says is the ledger's at this moment.
async fn read(client: &Client, shelves: &[Shelf; 7]) -> Option<Objects> {
    let [nodes, orgs, envs, instances, attachments, volumes, deploys] = shelves.each_ref().map(Shelf::seen);
    let mut objects = Objects { nodes, orgs: Vec::new(), envs, instances, attachments, volumes, deploys };
    let asking = asking(&objects, now_ms());
    let wanted: Vec<Seen> = orgs.into_iter().filter(|org| asking.contains(&org.name)).collect();
    if wanted.len() > READ_MAX {
        let path = format!("/apis/{GROUP}/{VERSION}/orgs");
        let list = send(client, Method::GET, &path, None).await.ok()?;
        let mut found: BTreeMap<&str, &Value> = BTreeMap::new();
        for one in list["items"].as_array().into_iter().flatten() {
            found.insert(one["metadata"]["name"].as_str().unwrap_or_default(), one);
        }
        for org in wanted {
            if let Some(one) = found.get(org.name.as_str()) {
                objects.orgs.push(Seen { spec: one["spec"].clone(), status: one["status"].clone(), ..org });
            }
        }
        return Some(objects);
    }
    for org in wanted {
        let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{0}/orgs/{0}", org.name);
        let object = send(client, Method::GET, &path, None).await.ok()?;
        objects.orgs.push(Seen { spec: object["spec"].clone(), status: object["status"].clone(), ..org });
    }
    Some(objects)
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Does what is to be done; how much that was.
async fn pass(client: &Client, objects: &Objects, memory: &mut Memory) -> usize {
    let now = now_ms();
    let all = groups(objects);
    let by_key: BTreeMap<String, usize> = all.iter().enumerate().map(|(at, group)| (group.key(), at)).collect();
    memory.blocked.retain(|key, _| by_key.contains_key(key));
    let rooms = rooms(&objects.orgs);
    let mut did = 0;
    for action in plan(objects, memory, now) {
        let done = carry_out(client, &action).await;
        match (&action, done) {
            (_, Ok(())) => did += 1,
            (Action::Allocate { group, org, .. }, Err(Some(dimension))) => {
                if let (Some(at), Some(room)) = (by_key.get(group), rooms.get(org)) {
                    memory.block(&all[*at], room, dimension, now);
                }
            }
            // Somebody else changed it: the next pass sees how it is.
            (_, Err(_)) => {}
        }
    }
    did
}

/// `Err` with the dimension that refused, if one did.
async fn carry_out(client: &Client, action: &Action) -> Result<(), Option<Dimension>> {
    let (method, path, body) = match action {
        Action::Allocate { org, body, .. } => (Method::POST, format!("/v1/orgs/{org}/instances"), body.clone()),
        Action::SetState { org, instance, state, reason } => (
            Method::PUT,
            format!("/v1/orgs/{org}/instances/{instance}/desired-state"),
            json!({"desired_state": state, "reason": reason}),
        ),
        Action::Remove { org, instance } => {
            (Method::DELETE, format!("/v1/orgs/{org}/instances/{instance}"), Value::Null)
        }
        Action::Deploy { org, deploy, state, message, drains_first } => {
            let mut body = json!({"state": state});
            if *drains_first {
                body["mode"] = json!("drain_first");
            }
            if let Some(message) = message {
                body["message"] = json!(message);
            }
            (Method::PUT, format!("/v1/orgs/{org}/deploys/{deploy}/state"), body)
        }
        Action::Status { org, env, groups } => (
            Method::PATCH,
            format!("/apis/{GROUP}/{VERSION}/namespaces/{org}/envs/{env}/status"),
            json!({"status": {"groups": groups}}),
        ),
    };
    match send(client, method, &path, Some(&body)).await {
        Ok(_) => Ok(()),
        Err(refused) => Err(refused),
    }
}

/// Sends one request, and reads a refusal for quota out of its answer.
async fn send(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Option<Dimension>> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, kind);
    let text = body.filter(|body| !body.is_null()).map(Value::to_string).unwrap_or_default();
    let request = request.body(kube::client::Body::from(text.into_bytes())).map_err(|_| None)?;
    let response = client.send(request).await.map_err(|_| None)?;
    let status = response.status();
    let bytes = response.into_body().collect_bytes().await.map_err(|_| None)?;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    if status.is_success() {
        return Ok(answer);
    }
    let dimension = answer["details"]["dimension"].as_str().and_then(Dimension::parse);
    tracing::debug!(path, %status, code = answer["code"].as_str(), "the scheduler will look again");
    Err(dimension.filter(|_| answer["code"] == "quota_exceeded"))
}
