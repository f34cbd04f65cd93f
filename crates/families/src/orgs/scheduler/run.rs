//! The scheduler at work, over a Kubernetes API and the API of organizations beside it: every change it makes is a command, with
//! its events and its own check of quota in the same step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use controllers::glance::Unread;
use futures::StreamExt;
use http::Method;
use kinds::fields::{given, text};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use quantity::Amount;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::dimensions::Dimension;
use super::super::moment::Moment;
use super::super::names::*;
use super::super::numbers;
use super::board::{Board, Concerned, FOLLOWED};
use super::counts::Counts;
use super::plan::{Action, Exceeded, Memory, asking, plan_for};
use super::silence::{NO_HEARTBEAT, Silence, Turn};
use super::state::{Room, Seen, rooms};
use crate::Plural;

/// Between two looks at those for whom time does something: nodes become old, drains end, limits change.
const LOOK: Duration = Duration::from_secs(1);
/// Looks after which everybody was looked at once, whether anything changed or not.
const LOOKS_OF_ALL: usize = 30;
/// After a change, what comes with it is waited for.
const GATHER: Duration = Duration::from_millis(20);
/// So many times as long as a pass takes belong to others; more of one that had nothing to do but to tell how groups stand.
const REST: u32 = 2;
const REST_AFTER_TELLING: u32 = 4;
/// Organizations that are read one by one; more are read with one list.
const READ_MAX: usize = 8;

/// What has changed and was not looked at yet: of every object how it is now. It is read when it is looked at.
#[derive(Default)]
struct Inbox {
    changes: Mutex<BTreeMap<(usize, String, String), Option<Unread>>>,
    listed: Mutex<BTreeSet<usize>>,
    changed: Notify,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    /// Follows one kind for as long as the process runs.
    async fn follow(self: Arc<Self>, client: Client, at: usize, plural: Plural) {
        let kind = GroupVersionKind::gvk(GROUP, VERSION, kind_of(plural));
        let resource = ApiResource::from_gvk_with_plural(&kind, plural.1);
        let api: Api<Unread> = Api::all_with(client, &resource);
        let mut stream = Box::pin(watcher(api, watcher::Config::default()).default_backoff());
        // What is known to be there, and what a list that is under way has named so far: the rest has gone meanwhile.
        let (mut known, mut listed) = (BTreeSet::new(), BTreeSet::new());
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => drop(listed.insert(self.put(at, object))),
                Ok(Event::InitDone) => {
                    for gone in known.difference(&listed) {
                        self.remove(at, gone);
                    }
                    known = std::mem::take(&mut listed);
                    lock(&self.listed).insert(at);
                }
                Ok(Event::Apply(object)) => drop(known.insert(self.put(at, object))),
                Ok(Event::Delete(object)) => {
                    let place = place_of(&object);
                    known.remove(&place);
                    self.remove(at, &place);
                }
                // It is tried again, after a while.
                Err(_) => continue,
            }
            self.changed.notify_one();
        }
    }

    fn put(&self, at: usize, object: Unread) -> (String, String) {
        let (org, name) = place_of(&object);
        lock(&self.changes).insert((at, org.clone(), name.clone()), Some(object));
        (org, name)
    }

    fn remove(&self, at: usize, (org, name): &(String, String)) {
        lock(&self.changes).insert((at, org.clone(), name.clone()), None);
    }

    fn is_ready(&self) -> bool {
        lock(&self.listed).len() == FOLLOWED.len()
    }
}

fn place_of(object: &Unread) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// What of an object is looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Halves {
    spec: Value,
    status: Value,
}

pub async fn run(client: Client, counts: Arc<Counts>) {
    let inbox = Arc::new(Inbox::default());
    let mut loops = tokio::task::JoinSet::new();
    for (at, plural) in FOLLOWED.into_iter().enumerate() {
        loops.spawn(Arc::clone(&inbox).follow(client.clone(), at, plural));
    }
    while !inbox.is_ready() {
        inbox.changed.notified().await;
    }
    let mut scheduler = Scheduler::new(client, counts);
    loop {
        let begun = Instant::now();
        scheduler.take(&inbox);
        scheduler.turn().await;
        let is_idle = scheduler.due.is_empty();
        let moves = scheduler.pass().await;
        if is_idle {
            // Whichever comes first.
            let _ = tokio::time::timeout(LOOK, inbox.changed.notified()).await;
        } else {
            let rest = if moves { REST } else { REST_AFTER_TELLING };
            tokio::time::sleep(GATHER.max(rest * begun.elapsed())).await;
        }
    }
}

struct Scheduler {
    client: Client,
    counts: Arc<Counts>,
    board: Board,
    memory: Memory,
    /// The organizations of the next pass.
    due: BTreeSet<String>,
    /// Those for whom time does something.
    watched: BTreeSet<String>,
    looked: Instant,
    /// The last one of those that are looked at whatever happens.
    swept: String,
    begun: Instant,
    silence: Silence,
    /// Nodes that are to be put in or out of service.
    turns: Vec<Turn>,
}

impl Scheduler {
    fn new(client: Client, counts: Arc<Counts>) -> Scheduler {
        let (board, memory, looked) = (Board::default(), Memory::default(), Instant::now());
        Scheduler {
            client,
            counts,
            board,
            memory,
            due: BTreeSet::new(),
            watched: BTreeSet::new(),
            looked,
            swept: String::new(),
            begun: looked,
            silence: Silence::default(),
            turns: Vec::new(),
        }
    }

    /// Takes in what has changed, and what time may have changed.
    fn take(&mut self, inbox: &Inbox) {
        let changes = std::mem::take(&mut *lock(&inbox.changes));
        for ((at, org, name), object) in changes {
            let concerned = match object {
                Some(object) => match object.read() {
                    Ok(Halves { spec, status }) => self.board.put(FOLLOWED[at], Seen { org, name, spec, status }),
                    Err(error) => {
                        tracing::error!(org, name, %error, "an object cannot be read, and is scheduled as it was");
                        continue;
                    }
                },
                None => self.board.remove(FOLLOWED[at], &org, &name),
            };
            match concerned {
                Concerned::Org(org) => drop(self.due.insert(org)),
                Concerned::Everybody => self.due.extend(self.board.orgs().cloned()),
                Concerned::Nobody => {}
            }
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.due.append(&mut self.watched);
            let some = self.board.orgs().len().div_ceil(LOOKS_OF_ALL);
            let swept: Vec<String> = self.board.orgs_after(&self.swept, some).cloned().collect();
            self.swept = swept.last().cloned().unwrap_or_default();
            self.due.extend(swept);
            let uptime_ms = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
            self.turns = self.silence.look(self.board.all_nodes(), uptime_ms);
        }
    }

    /// Puts nodes out of service that are silent, and back into it. A change that comes between wins.
    async fn turn(&mut self) {
        for turn in std::mem::take(&mut self.turns) {
            let path = format!("/apis/{GROUP}/{VERSION}/nodes/{}", turn.node);
            let Ok(node) = send(&self.client, Method::GET, &path, None, None).await else { continue };
            if turn.state == "offline" && node["status"]["heartbeat_at_ms"].as_i64() != Some(turn.heard_ms) {
                // It was heard of, and only this loop does not know yet.
                continue;
            }
            let body = match turn.state {
                "offline" => json!({"state": "offline", "reason": NO_HEARTBEAT}),
                state => json!({"state": state}),
            };
            let path = format!("/v1/nodes/{}/state", turn.node);
            // Refused, it is found again. Where the store takes nothing, no heartbeat was taken either.
            let version = Some(turn.version);
            if matches!(send(&self.client, Method::PUT, &path, Some(&body), version).await, Err(Undone::Failed)) {
                return self.silence.forgive();
            }
        }
    }

    /// Does what is to be done for those who are due; whether that was more than telling how they stand.
    async fn pass(&mut self) -> bool {
        if self.due.is_empty() {
            return false;
        }
        let (now, begun) = (now_ms(), Instant::now());
        let Some(rooms) = rooms_of(&self.client, &asking(&self.board, &self.due, now)).await else {
            // They stay due.
            self.counts.passed(begun.elapsed(), true);
            return false;
        };
        let due = std::mem::take(&mut self.due);
        self.memory.forget(&self.board);
        let plan = plan_for(&self.board, &due, rooms, &self.memory, now);
        self.due.extend(plan.left);
        self.counts.skipped(plan.skips);
        self.watched.retain(|org| !due.contains(org));
        self.watched.extend(plan.watched);
        let moves = plan.actions.iter().any(|action| !matches!(action, Action::Status { .. }));
        for action in plan.actions {
            let done = carry_out(&self.client, &action).await;
            if let (Action::Allocate { group, org, .. }, Err(Undone::Exceeded(refused))) = (&action, &done)
                && let Some(group) = self.board.holding(org).and_then(|holding| holding.groups.get(group))
            {
                self.memory.block(group, *refused, now);
            }
            if let (Action::Status { org, env, groups }, Ok(())) = (&action, &done) {
                let shown = self.board.holding(org).and_then(|holding| holding.envs.get(env));
                self.counts.told(shown.map_or(&Value::Null, |env| &env.status["groups"]), groups);
            }
            if let Action::Replace { org, app, env, .. } = &action {
                let place = (org.clone(), env_name(app, env));
                match done {
                    Ok(()) => drop(self.memory.plain.remove(&place)),
                    Err(_) => drop(self.memory.plain.insert(place)),
                }
            }
            // Somebody else changed it: it is looked at again as it is then.
            if done.is_err() {
                self.watched.insert(action.org().to_owned());
            }
        }
        self.counts.passed(begun.elapsed(), false);
        moves
    }
}

/// What these organizations may allocate. They are read anew: what their status says is the ledger's at this moment.
async fn rooms_of(client: &Client, orgs: &BTreeSet<String>) -> Option<BTreeMap<String, Room>> {
    let seen = |name: &str, object: &Value| Seen {
        org: name.to_owned(),
        name: name.to_owned(),
        spec: Value::Null,
        status: object["status"].clone(),
    };
    let mut found = Vec::with_capacity(orgs.len());
    if orgs.len() > READ_MAX {
        let path = format!("/apis/{GROUP}/{VERSION}/orgs");
        let list = send(client, Method::GET, &path, None, None).await.ok()?;
        for one in list["items"].as_array().into_iter().flatten() {
            let name = one["metadata"]["name"].as_str().unwrap_or_default();
            if orgs.contains(name) {
                found.push(seen(name, one));
            }
        }
        return Some(rooms(&found));
    }
    for org in orgs {
        let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{org}/orgs/{org}");
        // One that is gone by now has nothing to allocate.
        if let Ok(object) = send(client, Method::GET, &path, None, None).await {
            found.push(seen(org, &object));
        }
    }
    Some(rooms(&found))
}

/// The moment, by a clock that does not go back: neither do the moments that commands write down, which are waited for by it.
pub(super) fn now_ms() -> i64 {
    static MOMENT: Moment = Moment::new();
    MOMENT.now_ms(jiff::Timestamp::now().as_millisecond())
}

async fn carry_out(client: &Client, action: &Action) -> Result<(), Undone> {
    let mut expected = None;
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
        Action::Fail { org, instance, reason } => (
            Method::PUT,
            format!("/v1/orgs/{org}/instances/{instance}/status"),
            json!({"status": "failed", "reason": reason}),
        ),
        Action::EndSession { org, session, version } => {
            // One that was renewed meanwhile goes on.
            expected = Some(*version);
            (Method::DELETE, format!("/v1/orgs/{org}/exec-sessions/{session}"), Value::Null)
        }
        Action::Replace { org, app, env, why, process_types } => (
            Method::POST,
            format!("/v1/orgs/{org}/apps/{app}/envs/{env}/replacements"),
            json!({"reason": why, "process_types": process_types}),
        ),
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
    send(client, method, &path, Some(&body), expected).await.map(drop)
}

/// The numbers of a refusal for quota.
fn exceeded(answer: &Value) -> Option<Exceeded> {
    let details = answer.get("details").filter(|_| answer["code"] == "quota_exceeded")?;
    let nanos =
        |field: &str| given(details, &[field]).and_then(|value| numbers::decimal(value).ok()).map(Amount::nanos);
    let dimension = Dimension::parse(text(details, &["dimension"]))?;
    Some(Exceeded { dimension, counted: nanos("counted").unwrap_or(0), limit: nanos("limit") })
}

/// Why a request came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    Exceeded(Exceeded),
    Refused,
    /// Nobody answered, or whoever did could not do it at the moment.
    Failed,
}

/// Sends one request, and reads a refusal for quota out of its answer.
pub(super) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
    version: Option<i64>,
) -> Result<Value, Undone> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, kind);
    let request = match version {
        Some(version) => request.header(http::header::IF_MATCH, format!("\"{version}\"")),
        None => request,
    };
    let text = body.filter(|body| !body.is_null()).map(Value::to_string).unwrap_or_default();
    let request = request.body(kube::client::Body::from(text.into_bytes())).map_err(|_| Undone::Failed)?;
    let response = client.send(request).await.map_err(|_| Undone::Failed)?;
    let status = response.status();
    let bytes = response.into_body().collect_bytes().await.map_err(|_| Undone::Failed)?;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    if status.is_success() {
        return Ok(answer);
    }
    tracing::debug!(path, %status, code = answer["code"].as_str(), "the scheduler will look again");
    Err(match exceeded(&answer) {
        Some(exceeded) => Undone::Exceeded(exceeded),
        None if status.is_server_error() => Undone::Failed,
        None => Undone::Refused,
    })
}
