//! Organizations in this world: commands, what the scheduler makes of them, and agents of nodes; each one write of several objects
//! with its events, made from what was durable when it was asked for. And whether the views are what the events tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use families::orgs::commands::{
    Actor, Around, Asking, Given, Op, Outcome, Rebuilt, Step, StepKind, is_rebuilt, rebuild, run, state,
};
use families::orgs::names::*;
use families::orgs::scheduler::plan::{Action, Memory, plan};
use families::orgs::scheduler::state::{Objects, Seen};
use families::orgs::{Dimension, tiers};
use families::{BalanceLine, Balances, Plural, World};
use rules::GroupResource;
use serde_json::{Value, json};
use server::core::{Expect, ObjectKey};

use super::durable::{Durable, Kept};
use super::naive;
use super::request::{Request, Together, Verb};
use super::weather::Script;

/// Seeds from here on play organizations, too.
pub const SEEDS: u64 = 1 << 32;

/// Most of what happens happens to the first, so that it comes to run something.
const HERE: [&str; 4] = ["acme", "acme", "acme", "umbrella"];
const DRAIN: [&str; 3] = ["scale_down", "rollout_replace", "node_draining"];

/// Keys of commands; the last one is soon forgotten.
const KEYS: [&str; 4] = ["key-a", "key-b", "key-c", SHORT_LIVED];
const SHORT_LIVED: &str = "key-short";
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Stored objects as commands look at them.
struct Known<'a>(&'a Durable);

/// An object with its revision, as readers see it.
fn revised(kept: &Kept) -> Arc<Value> {
    let mut value = Value::clone(&kept.value);
    value["metadata"]["resourceVersion"] = json!(kept.revision.to_string());
    Arc::new(value)
}

impl World for Known<'_> {
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        let all = self.0.objects.values().filter(|kept| kept.key.resource == *resource);
        all.filter(|kept| &*kept.key.namespace == namespace).map(revised).collect()
    }

    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0.objects.get(&ObjectKey::new(resource.clone(), namespace, name)).map(revised)
    }
}

/// Usage is the ledger's business: what commands look at of it decides nothing.
impl Balances for Known<'_> {
    fn of(&self, _: &str) -> Vec<BalanceLine> {
        Vec::new()
    }
}

fn verb_of(step: &Step) -> Verb {
    let value = step.object.clone();
    let expect = |revision| Expect { revision, uid: None };
    match step.kind {
        StepKind::Create => Verb::Create(value),
        StepKind::Update(revision) => Verb::Update { value, expect: expect(Some(revision)), status: false },
        StepKind::UpdateAny => Verb::Update { value, expect: expect(None), status: false },
        StepKind::Delete(revision) => Verb::Delete { expect: expect(Some(revision)) },
        StepKind::DeleteAny => Verb::Delete { expect: expect(None) },
    }
}

impl Script<'_> {
    /// How a world with organizations begins.
    pub(super) fn begin_orgs(&mut self) {
        for (name, spec) in tiers::built_in().into_iter().take(2) {
            self.put(GROUP, "tiers", "", &name, json!({"spec": spec}));
        }
    }

    /// One command of somebody, of the scheduler or of an agent.
    pub(super) fn org(&mut self) {
        let org = self.one_of(&HERE);
        if self.seen.get(GROUP, "orgs", org, org).is_none() {
            let tier = self.one_of(&["free", "standard"]);
            return self.command(org, Op::CreateOrg, &[], json!({"id": org, "tier": tier}));
        }
        if self.seen.of(GROUP, "nodes").next().is_none() {
            let node = json!({"allocatable_memory_bytes": 4_i64 << 30, "cpu_cores": 4});
            return self.command("", Op::RegisterNode, &[("node", "m1")], node);
        }
        // A world is short: what everything else needs is made first.
        if !self.chance(6) && self.begins(org) {
            return;
        }
        match self.rng.below(12) {
            10 | 11 => self.schedule(),
            0..=2 => self.schedule(),
            3 => self.agent(org),
            4 => self.operator(org),
            5 | 6 => self.things(org),
            _ => self.apps(org),
        }
    }

    /// Makes what an organization cannot run anything without, if it has none yet.
    fn begins(&mut self, org: &str) -> bool {
        let known = Known(self.seen);
        let has = |plural: Plural| !known.list(&plural.resource(), org).is_empty();
        let envs = known.list(&ENVS.resource(), org);
        let runs = envs.iter().any(|env| env["spec"]["processes"].as_object().is_some_and(|all| !all.is_empty()));
        let path = [("app", "shop"), ("env", "prod")];
        let (op, path, body) = match () {
            () if !has(APPS) => (Op::CreateApp, &[][..], json!({"name": "shop"})),
            () if !has(ENVS) => (Op::CreateEnv, &path[..1], json!({"name": "prod"})),
            () if !has(RELEASES) => {
                let memory = (1 + self.rng.below(64)) << 24;
                let processes = json!({"web": {"memory_bytes": memory, "cpu": "0.5"}});
                (Op::CreateRelease, &path[..1], json!({"processes": processes}))
            }
            () if !runs => (Op::CreateDeploy, &path[..], json!({"release": 1})),
            () => return false,
        };
        self.command(org, op, path, body);
        true
    }

    fn some(&mut self, plural: Plural, org: &str) -> String {
        let all: Vec<String> =
            Known(self.seen).list(&plural.resource(), org).iter().map(|one| naive::name_of(one).to_owned()).collect();
        if all.is_empty() { "none".into() } else { all[self.rng.index(all.len())].clone() }
    }

    fn apps(&mut self, org: &str) {
        let (app, env) = (self.one_of(&["shop", "blog"]), self.one_of(&["prod", "test"]));
        let path = [("app", app), ("env", env)];
        match self.rng.below(12) {
            0 => self.command(org, Op::CreateApp, &[], json!({"name": app})),
            1 | 2 => self.command(org, Op::CreateEnv, &path[..1], json!({"name": env})),
            3 => {
                let memory = (1 + self.rng.below(64)) << 24;
                let processes = json!({"web": {"memory_bytes": memory, "cpu": self.one_of(&["0.25", "1", "1.5"])}});
                self.command(org, Op::CreateRelease, &path[..1], json!({"processes": processes}));
            }
            4 | 5 => {
                let release = 1 + self.rng.below(3);
                self.command(org, Op::CreateDeploy, &path, json!({"release": release}));
            }
            6 => self.command(org, Op::CreateRollback, &path, Value::Null),
            7 if self.chance(3) => {
                let release = (1 + self.rng.below(3)).to_string();
                let path = [path[0], ("release", release.as_str())];
                self.command(org, Op::DeleteRelease, &path, Value::Null);
            }
            7 => self.command(org, Op::DeleteEnv, &path, Value::Null),
            8 => self.command(org, Op::DeleteApp, &path[..1], Value::Null),
            _ => {
                let scales = json!([{"process_type": "web", "desired": self.rng.below(5)}]);
                self.command(org, Op::SetScale, &path, json!({"scales": scales}));
            }
        }
    }

    /// Routes, addresses, volumes, sessions and streams.
    fn things(&mut self, org: &str) {
        let (app, env) = (self.one_of(&["shop", "blog"]), self.one_of(&["prod", "test"]));
        let path = [("app", app), ("env", env)];
        let volume = self.some(VOLUMES, org);
        match self.rng.below(20) {
            18 => {
                let route = self.some(ROUTES, org);
                let path = [path[0], path[1], ("route", route.as_str())];
                let body = json!({"ipv4_required": self.chance(2)});
                self.command(org, Op::UpdateRoute, &path, body);
            }
            19 => self.command(org, Op::TellThresholds, &[], Value::Null),
            13 => {
                let value = json!({"secrets": {self.one_of(&["A", "B"]): "x"}});
                self.command(org, Op::SetSecrets, &path, value);
            }
            14 => self.command(org, Op::CreateAttachment, &path, json!({"volume": volume, "mount_path": "/data"})),
            15 => {
                let attachment = self.some(ATTACHMENTS, org);
                let path = [path[0], path[1], ("attachment", attachment.as_str())];
                self.command(org, Op::DeleteAttachment, &path, Value::Null);
            }
            16 => {
                let snapshot = self.some(SNAPSHOTS, org);
                self.command(org, Op::CreateRestore, &[("volume", &volume)], json!({"snapshot": snapshot}));
            }
            17 => {
                let (job, snapshot) = (self.some(RESTORE_JOBS, org), self.some(SNAPSHOTS, org));
                let status = json!({"status": self.one_of(&["running", "succeeded", "failed"])});
                match self.chance(3) {
                    true => self.command(org, Op::DeleteSnapshot, &[("snapshot", &snapshot)], Value::Null),
                    false => self.command(org, Op::SetRestoreStatus, &[("job", &job)], status),
                }
            }
            0 | 1 => {
                let mut body = json!({"listen_port": 400 + self.rng.below(2), "ipv4_required": self.chance(3)});
                if self.chance(2) {
                    body["hostname"] = json!(self.one_of(&["a.example.com", "b.example.com"]));
                }
                self.command(org, Op::CreateRoute, &path, body);
            }
            2 => {
                let route = self.some(ROUTES, org);
                let path = [path[0], path[1], ("route", route.as_str())];
                self.command(org, Op::DeleteRoute, &path, Value::Null);
            }
            3 => self.command(org, Op::EnableIpv4, &path, Value::Null),
            4 => self.command(org, Op::DisableIpv4, &path, Value::Null),
            5 => {
                let size = (1 + self.rng.below(4)) << 30;
                self.command(org, Op::CreateVolume, &[], json!({"size_bytes": size}));
            }
            6 => self.command(org, Op::DeleteVolume, &[("volume", &volume)], Value::Null),
            7 => self.command(org, Op::CreateSnapshot, &[("volume", &volume)], Value::Null),
            8 => {
                let snapshot = self.some(SNAPSHOTS, org);
                let status = json!({"status": self.one_of(&["running", "succeeded", "failed"])});
                self.command(org, Op::SetSnapshotStatus, &[("snapshot", &snapshot)], status);
            }
            9 => {
                let instance = self.some(INSTANCES, org);
                self.command(org, Op::GrantExec, &[("instance", &instance)], Value::Null);
            }
            10 => {
                let session = self.some(EXEC_SESSIONS, org);
                let op = if self.chance(2) { Op::ConnectExec } else { Op::EndExec };
                self.command(org, op, &[("session", &session)], Value::Null);
            }
            11 => self.command(org, Op::OpenLogStream, &path, Value::Null),
            _ => {
                let stream = self.some(LOG_STREAMS, org);
                let op = if self.chance(2) { Op::RenewLogStream } else { Op::CloseLogStream };
                self.command(org, op, &[("stream", &stream)], Value::Null);
            }
        }
    }

    fn operator(&mut self, org: &str) {
        let dimension = Dimension::ALL[self.rng.index(17)].name();
        let path = [("dimension", dimension)];
        match self.rng.below(6) {
            0..=2 => {
                let shift = if dimension.contains("bytes") { 30 } else { 0 };
                let limit = self.rng.below(7) << shift;
                let mut body = json!({"limit": limit, "reason": "weather"});
                if self.chance(3) {
                    let ends = self.now_ms + 1000 * (1 + i64::try_from(self.rng.below(120)).unwrap_or(0));
                    body["expires_at"] = json!(kinds::time::text(ends));
                }
                self.command(org, Op::SetQuota, &path, body);
            }
            3 => self.command(org, Op::DeleteQuota, &path, Value::Null),
            4 => {
                let tier = self.one_of(&["free", "standard"]);
                self.command(org, Op::SetTier, &[], json!({"tier": tier, "reason": "weather"}));
            }
            _ if self.chance(3) => self.command(org, Op::DeleteOrg, &[], Value::Null),
            _ => {
                let reservations = self.one_of(&["exact", "check"]);
                self.command(org, Op::SetPolicy, &[], json!({"reservations": reservations}));
            }
        }
        if self.chance(4) {
            let (name, mut spec) = tiers::built_in().remove(self.rng.index(2));
            spec["limits"]["max_apps"] = json!(self.rng.below(4));
            spec["limits"]["max_snapshots_per_volume"] = json!(self.rng.below(3));
            self.put(GROUP, "tiers", "", &name, json!({"spec": spec}));
        }
    }

    /// What a node says of an instance, and what nobody but an operator would do with one.
    fn agent(&mut self, org: &str) {
        let id = self.some(INSTANCES, org);
        let path = [("instance", id.as_str())];
        match self.rng.below(5) {
            0 => {
                let body =
                    json!({"desired_state": self.one_of(&["draining", "stopped"]), "reason": self.one_of(&DRAIN)});
                self.command(org, Op::SetInstanceState, &path, body);
            }
            1 => {
                let state = json!({"state": self.one_of(&["active", "draining", "offline"])});
                self.command("", Op::SetNodeState, &[("node", "m1")], state);
            }
            _ => {
                let status = json!({"status": self.one_of(&["ready", "ready", "failed", "stopped"])});
                self.command(org, Op::ReportInstance, &path, status);
            }
        }
    }

    /// One thing of all that the scheduler would do now.
    fn schedule(&mut self) {
        let read = |plural: Plural| -> Vec<Seen> {
            let all = self.seen.of(GROUP, plural.1).map(|kept| Seen {
                org: kept.key.namespace.to_string(),
                name: kept.key.name.to_string(),
                spec: kept.value["spec"].clone(),
                status: if plural == NODES {
                    json!({"heartbeat_at_ms": self.now_ms})
                } else {
                    kept.value["status"].clone()
                },
            });
            all.collect()
        };
        let objects = Objects {
            nodes: read(NODES),
            orgs: read(ORGS),
            envs: read(ENVS),
            instances: read(INSTANCES),
            attachments: read(ATTACHMENTS),
            volumes: read(VOLUMES),
            deploys: read(DEPLOYS),
            sessions: read(EXEC_SESSIONS),
        };
        let mut actions = plan(&objects, &Memory::default(), self.now_ms);
        actions.retain(|action| !matches!(action, Action::Status { .. }));
        if actions.is_empty() {
            return;
        }
        match actions.swap_remove(self.rng.index(actions.len())) {
            Action::Allocate { org, body, .. } => self.command(&org, Op::AllocateInstance, &[], body),
            Action::SetState { org, instance, state, reason } => {
                let body = json!({"desired_state": state, "reason": reason});
                self.command(&org, Op::SetInstanceState, &[("instance", &instance)], body);
            }
            Action::Remove { org, instance } => {
                self.command(&org, Op::RemoveInstance, &[("instance", &instance)], Value::Null);
            }
            Action::Deploy { org, deploy, state, drains_first, .. } => {
                let mut body = json!({"state": state});
                if drains_first {
                    body["mode"] = json!("drain_first");
                }
                self.command(&org, Op::SetDeployState, &[("deploy", &deploy)], body);
            }
            Action::Replace { org, app, env, why, process_types } => {
                let body = json!({"reason": why, "process_types": process_types});
                self.command(&org, Op::CreateReplacement, &[("app", &app), ("env", &env)], body);
            }
            Action::Fail { org, instance, reason } => {
                let body = json!({"status": "failed", "reason": reason});
                self.command(&org, Op::ReportInstance, &[("instance", &instance)], body);
            }
            Action::EndSession { org, session, .. } => {
                self.command(&org, Op::EndExec, &[("session", &session)], Value::Null);
            }
            Action::Status { .. } => {}
        }
    }

    /// Asks for a command, unless what is known already forbids it.
    fn command(&mut self, org: &str, op: Op, path: &[(&'static str, &str)], body: Value) {
        let actor = Actor { kind: "user", id: "weather".into() };
        let given = Given {
            path: path.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<BTreeMap<_, _>>(),
            body: &body,
        };
        let request = self.rng.draw().to_string();
        let has_key = !org.is_empty() && op != Op::CreateOrg && self.chance(4);
        let key = has_key.then(|| self.one_of(&KEYS));
        // Some surge, and some would rather not try.
        let surges_max = if self.chance(3) { 0 } else { usize::MAX };
        // The server's clock does not go back while it runs.
        let (known, now_ms, rng) = (Known(self.seen), self.now_ms.max(self.seen.told_ms), &mut *self.rng);
        let mut ids = || u128::from(rng.draw()) << 64 | u128::from(rng.draw());
        let around = Around {
            world: &known,
            balances: &known,
            now_ms,
            ids: &mut ids,
            surges_max,
            no_surge_for: Vec::new(),
            journals_from: [0; 2],
        };
        let mut asking =
            Asking { org, actor: &actor, request_id: &request, idempotency_key: key, expected_version: None, around };
        let outcome = run(op, &given, &mut asking);
        if let Ok(mut outcome) = outcome {
            if let Some(key) = key {
                // Who finds it knows that it was done. What takes several steps is remembered with the last, and told with all.
                if outcome.goes_on || self.seen.get(GROUP, IDEMPOTENCY_KEYS.1, org, key).is_some() {
                    return;
                }
                outcome.steps.push(self.key_step(org, key, now_ms));
            }
            self.ask_for(&outcome);
        }
    }

    /// What remembers that a command was done under a key.
    fn key_step(&mut self, org: &str, key: &str, now_ms: i64) -> Step {
        let uid = u128::from(self.rng.draw()) << 64 | u128::from(self.rng.draw());
        let life_ms = if key == SHORT_LIVED { 60_000 } else { 1000 * DAY_MS };
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind_of(IDEMPOTENCY_KEYS),
            "metadata": {"name": key, "namespace": org, "uid": kinds::uid::text(ledger::SubjectId(uid)),
                "creationTimestamp": kinds::time::text(now_ms)},
            "spec": {"request_hash": "x", "status": 200, "answer": {}, "expires_at_ms": now_ms + life_ms},
        });
        let place = families::Place::new(IDEMPOTENCY_KEYS.resource(), org, key);
        Step { place, kind: StepKind::Create, object }
    }

    fn ask_for(&mut self, outcome: &Outcome) {
        let mut parts = outcome.steps.iter().map(|step| (ObjectKey::from(step.place.clone()), verb_of(step)));
        let Some((key, verb)) = parts.next() else { return };
        let entries = outcome.events.iter().map(|told| String::from_utf8_lossy(&told.line).into_owned()).collect();
        let together = Some(Together { others: parts.collect(), entries });
        let (now_ms, dry_run) = (self.now_ms, self.chance(12));
        self.requests.push(Request { key, verb, together, dry_run, at_once: true, now_ms, is_service: true });
    }
}

/// Nothing is done twice under a key that is remembered. With an organization its keys go.
fn judge_keys(events: &[Value]) -> Result<(), String> {
    let mut done: BTreeMap<(&str, &str), &Value> = BTreeMap::new();
    for event in events {
        let org = event["org_id"].as_str().unwrap_or_default();
        if event["event_type"] == "org.deleted" {
            done.retain(|(of, _), _| *of != org);
            continue;
        }
        let Some(key) = event["idempotency_key"].as_str().filter(|key| *key != SHORT_LIVED) else { continue };
        let request = &event["request_id"];
        if *done.entry((org, key)).or_insert(request) != request {
            return Err(format!("C1: two commands were done under the key {key} of {org}: {event}"));
        }
    }
    Ok(())
}

/// The views are what the events tell, and no event is missing.
pub fn judge_views(durable: &Durable) -> Result<(), String> {
    let events: Vec<Value> = durable
        .entries
        .iter()
        .filter_map(|entry| serde_json::from_slice::<Value>(entry).ok())
        .filter(|event| event["event_type"].is_string())
        .collect();
    let Rebuilt { views, gaps, .. } = rebuild(&events);
    if !gaps.is_empty() {
        return Err(format!("C1: events are missing: {gaps:?}"));
    }
    judge_keys(&events)?;
    let mut live = BTreeMap::new();
    for (kind, plural) in KINDS.iter().filter(|(_, plural)| is_rebuilt(*plural)) {
        for kept in durable.of(GROUP, plural.1) {
            // What is left in a namespace that goes has gone with its organization.
            let namespace = durable.get("", "namespaces", "", &kept.key.namespace);
            let leaves = namespace.is_none_or(|one| one.value["metadata"]["deletionTimestamp"].is_string());
            if leaves && !is_global(*plural) {
                continue;
            }
            let kind = kind.chars().enumerate().fold(String::new(), |word, (at, c)| {
                let edge = if c.is_ascii_uppercase() && at > 0 { "_" } else { "" };
                format!("{word}{edge}{}", c.to_ascii_lowercase())
            });
            let key = (kind, kept.key.namespace.to_string(), kept.key.name.to_string());
            live.insert(key, state(&kept.value));
        }
    }
    let differs = views.keys().chain(live.keys()).find(|key| views.get(*key) != live.get(*key));
    match differs {
        None => Ok(()),
        Some(key) => Err(format!("C1: {key:?} is {:?}, and events tell {:?}", live.get(key), views.get(key))),
    }
}
