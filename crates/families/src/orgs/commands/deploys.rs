//! Rollouts: a release, or other secrets, comes to an environment. Whether a group surges is decided with the commit, is held for
//! as long as the rollout lasts, and stands in the deploy.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kinds::fields::text;
use kinds::time;
use serde_json::{Map, Value, json};

use super::super::footprint::Footprint;
use super::super::limits::SurgePolicy;
use super::super::names::*;
use super::super::words::Violation;
use super::Given;
use super::body::Body;
use super::operator::surge_policy;
use super::problem::Problem;
use super::work::{Asking, Done, Outcome, RecordFacts, Step, StepKind, Stored};
use crate::{Place, Plural};

/// Finished rollouts of an environment that are kept.
const DEPLOYS_KEPT: usize = 20;
/// And of those that are not, so many go with one that begins.
const FORGOTTEN_MAX: usize = 10;
/// Secrets of one environment, the bytes of all of them, and those of their names, which stand in every event of the environment.
pub const SECRETS_MAX: usize = 256;
pub const SECRET_NAMES_BYTES_MAX: usize = 16 * 1024;
const SECRET_BYTES_MAX: usize = 256 * 1024;
const SECRETS: Plural = Plural("", "secrets");

pub fn create(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["release"])?;
    let number = release_number(&body)?;
    roll_out(given, asking, &format!("{}.{number}", given.name("app")), "deploy")
}

/// Back to the release before the last one, or to one that is named.
pub fn roll_back(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["release"])?;
    let release = match body.get("release") {
        Some(_) => format!("{}.{}", given.name("app"), release_number(&body)?),
        None => before_the_last(given, asking)?,
    };
    roll_out(given, asking, &release, "rollback")
}

fn release_number(body: &Body<'_>) -> Result<i64, Problem> {
    let number = body.whole("release", 1, super::super::numbers::NUMBER_MAX)?;
    number.ok_or_else(|| Problem::invalid("release", "it is missing: the number of a release of the app"))
}

fn before_the_last(given: &Given<'_>, asking: &Asking<'_>) -> Result<String, Problem> {
    let env = env_name(given.name("app"), given.name("env"));
    let stored = asking.load(ENVS, &env)?;
    let current = releases(stored.spec());
    let mut deploys = deploys_of(asking, &env);
    deploys.sort_by_key(|deploy| std::cmp::Reverse(deploy.started_at_ms));
    let before = deploys.iter().map(|deploy| deploy.release.clone());
    let is_there = |release: &String| asking.find(RELEASES, release).is_some();
    let mut before = before.filter(|release| !current.contains(release) && is_there(release));
    before.next().ok_or_else(|| Problem::conflict("nothing_to_roll_back", "no other release was deployed here before"))
}

/// What an environment runs; what it only still has of an earlier release is not of it.
fn releases(env: &Value) -> Vec<String> {
    let processes = env["processes"].as_object().into_iter().flatten().map(|(_, process)| process);
    let running = processes.filter(|process| !is_leaving(process));
    running.map(|process| text(process, &["release"]).to_owned()).collect()
}

/// Whether the release of its environment has a process type no more.
pub fn is_leaving(process: &Value) -> bool {
    process.get("desired_before").is_some()
}

fn deploys_of(asking: &Asking<'_>, env: &str) -> Vec<Arc<RecordFacts>> {
    asking.records(DEPLOYS).into_iter().filter(|one| one.env == env).collect()
}

fn is_stateful(asking: &Asking<'_>, env: &str, process_type: &str) -> bool {
    asking.list(ATTACHMENTS).iter().any(|one| {
        let spec = one.spec();
        env_name(text(spec, &["app"]), text(spec, &["env"])) == env && text(spec, &["process_type"]) == process_type
    })
}

fn roll_out(given: &Given<'_>, asking: &mut Asking<'_>, release: &str, kind: &str) -> Result<Outcome, Problem> {
    let name = env_name(given.name("app"), given.name("env"));
    let release = asking.load(RELEASES, release)?;
    let stored = asking.load_to_change(ENVS, &name)?;
    let mut spec = stored.spec().clone();
    let mut processes = Map::new();
    let released = release.spec()["processes"].as_object().cloned().unwrap_or_default();
    for (process_type, unit) in &released {
        let old = stored.spec()["processes"].get(process_type).cloned().unwrap_or(Value::Null);
        // What an earlier release took away comes back as it was.
        let desired = ["desired_before", "desired"].iter().find_map(|field| old[field].as_i64()).unwrap_or(1);
        processes.insert(
            process_type.clone(),
            json!({
                "desired": desired, "release": release.name, "unit": takes(unit), "secrets_version": spec["secrets_version"],
            }),
        );
    }
    // What the release no longer has is scaled to nothing, and drains; when nothing is left of it, it is forgotten.
    let instances = asking.list(INSTANCES);
    let is_left = |process_type: &str| {
        instances.iter().any(|one| {
            let spec = one.spec();
            env_name(text(spec, &["app"]), text(spec, &["env"])) == name
                && text(spec, &["process_type"]) == process_type
        })
    };
    for (process_type, old) in stored.spec()["processes"].as_object().into_iter().flatten() {
        let had = old["desired"].as_i64().unwrap_or(0) > 0;
        if !released.contains_key(process_type) && (had || is_left(process_type)) {
            let mut gone = old.clone();
            if !is_leaving(old) {
                gone["desired_before"] = old["desired"].clone();
            }
            gone["desired"] = json!(0);
            if let Some(fields) = gone.as_object_mut() {
                fields.remove("rollout");
            }
            processes.insert(process_type.clone(), gone);
        }
    }
    spec["processes"] = Value::Object(processes);
    begin(asking, &stored, spec, &release.name, kind, Begun::default())
}

/// Instances go elsewhere and run what they did: a rollout of some process types in which nothing else is wanted.
pub fn replace(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["reason", "process_types"])?;
    let kind = body.word("reason", &["node_drain", "volumes_changed"])?;
    let kind = kind.ok_or_else(|| Problem::invalid("reason", "it is missing"))?;
    let stored = asking.load_to_change(ENVS, &env_name(given.name("app"), given.name("env")))?;
    let processes = &stored.spec()["processes"];
    let listed = body.required("process_types")?.as_array().filter(|list| !list.is_empty() && list.len() <= 64);
    let named = listed.and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<&str>>>());
    let named = named.filter(|names| names.iter().all(|name| processes[*name]["release"].is_string()));
    let why = "it is no list of process types that are deployed here";
    let named = named.ok_or_else(|| Problem::invalid("process_types", why))?;
    if processes.as_object().is_some_and(|all| all.values().any(|process| process.get("rollout").is_some())) {
        return Err(Problem::conflict("rollout_under_way", "its instances are being replaced already"));
    }
    let release = text(&processes[named[0]], &["release"]).to_owned();
    let spec = stored.spec().clone();
    begin(asking, &stored, spec, &release, kind, Begun { only: Some(named), told_first: None })
}

/// What of a process an environment repeats: what one instance takes, and which secrets it needs. An environment stands in each of
/// its events, before and after, so that what only instances want to know, such as a long command, stays with the release.
fn takes(process: &Value) -> Value {
    let mut unit = process.clone();
    if let Some(fields) = unit.as_object_mut() {
        fields.retain(|field, _| !matches!(field.as_str(), "command" | "port"));
    }
    unit
}

/// What a rollout begins with.
#[derive(Default)]
struct Begun<'a> {
    /// Of these process types alone; it is nobody's wish, and goes on where there is no room to surge.
    only: Option<Vec<&'a str>>,
    told_first: Option<(&'a str, Value)>,
}

/// Begins a rollout towards what `spec` says.
fn begin(
    asking: &mut Asking<'_>,
    stored: &Stored,
    mut spec: Value,
    release: &str,
    kind: &str,
    Begun { only, told_first }: Begun<'_>,
) -> Result<Outcome, Problem> {
    let deploy = asking.new_id("d");
    let policy = surge_policy(asking);
    let mut out = Outcome::new(Done::Created);
    let (mut modes, mut more) = (Map::new(), Footprint::NONE);
    let mut events: Vec<(&str, Value)> = told_first.into_iter().collect();
    let old = stored.spec()["processes"].clone();
    let mut drained = Vec::new();
    let is_meant = |name: &str| only.as_ref().is_none_or(|only| only.contains(&name));
    let processes = spec["processes"].as_object_mut().into_iter().flatten();
    for (process_type, process) in processes.filter(|(name, _)| is_meant(name)) {
        let before = old.get(process_type).cloned().unwrap_or(Value::Null);
        let desired = process["desired"].as_i64().unwrap_or(0);
        let had = before["desired"].as_i64().unwrap_or(0);
        let running = before["release"].is_string() && had > 0;
        let mode = match () {
            () if is_stateful(asking, &stored.name, process_type) => "in_place",
            // Nothing is replaced.
            () if desired == 0 || !running => "in_place",
            () if out.surges < asking.around.surges_max => "surge",
            () => "drain_first",
        };
        out.surges += usize::from(mode == "surge");
        if mode == "drain_first" {
            drained.push(format!("{process_type}: expect up to 1 of {desired} replicas unavailable"));
        }
        if desired > 0 {
            process["rollout"] = json!({"deploy": deploy, "mode": mode});
        }
        let unit = |process: &Value| Footprint::of_one(&process["unit"]).unwrap_or_default();
        let (target, was) = (unit(process).times(desired), unit(&before).times(had));
        if let Some(growth) = target.zip(was).and_then(|(target, was)| target.max(was).minus(was)) {
            more = more.plus(growth).unwrap_or(more);
        }
        modes.insert(process_type.clone(), json!({"mode": mode, "from": before["release"], "replicas": desired}));
        events.push((
            "env.desired_release_set",
            json!({
                "process_type": process_type, "release_id": process["release"], "deploy_id": deploy, "mode": mode,
            }),
        ));
    }
    if !asking.reserves() {
        asking.look(more)?;
    }
    spec["changed_seq"] = json!(asking.around.now_ms);
    out.surges_or_nothing = policy == SurgePolicy::Reject && only.is_none();
    let message = message(&modes, &asking.around.no_surge_for, &drained);
    // Whoever sees an environment of an earlier version does not see this rollout in it yet.
    let env_version = stored.version().saturating_add(i64::try_from(events.len()).unwrap_or(i64::MAX));
    let body = json!({
        "app": spec["app"], "env": spec["env"], "kind": kind, "release": release, "processes": modes,
        "state": if modes.is_empty() { "succeeded" } else { "queued" }, "message": message,
        "started_at_ms": asking.around.now_ms, "env_version": env_version,
    });
    let payload = json!({"release": release, "kind": kind, "message": message});
    let row = asking.create(&mut out, DEPLOYS, &deploy, body, "deploy.created", payload);
    asking.change(&mut out, stored, spec, &events);
    forget_old(asking, &mut out, &stored.name);
    Ok(out.showing(row))
}

/// Which way it goes and, where it cannot surge, for which limit.
fn message(modes: &Map<String, Value>, why: &[Violation], drained: &[String]) -> String {
    let Some(first) = why.first().filter(|_| !drained.is_empty()) else {
        let mode = modes.values().map(|mode| text(mode, &["mode"])).find(|mode| *mode == "surge");
        return format!("rollout_mode={}", mode.unwrap_or("in_place"));
    };
    let [limit, current, delta] = [first.limit, first.current, first.requested].map(super::super::numbers::text);
    format!(
        "rollout_mode=drain_first reason=org_quota_exceeded:{} limit={limit} current_usage={current} \
         surge_delta={delta}; {}",
        first.dimension,
        drained.join("; "),
    )
}

/// Of the rollouts that have ended, the last ones are kept.
fn forget_old(asking: &mut Asking<'_>, out: &mut Outcome, env: &str) {
    let mut ended = deploys_of(asking, env);
    ended.retain(|deploy| !deploy.is_open);
    ended.sort_by_key(|deploy| deploy.started_at_ms);
    let beyond = ended.len().saturating_sub(DEPLOYS_KEPT);
    for deploy in asking.stored(DEPLOYS, ended.iter().take(beyond.min(FORGOTTEN_MAX))) {
        asking.delete(out, &deploy, "deploy.deleted", json!({}));
    }
}

/// How a rollout goes, as the scheduler finds: forward only. One that surges may come to drain first; none goes back to a surge.
pub fn set_state(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["state", "message", "mode"])?;
    let state = body.word("state", &["rolling", "succeeded", "failed"])?;
    let state = state.ok_or_else(|| Problem::invalid("state", "it is missing"))?;
    let mode = body.word("mode", &["drain_first"])?;
    let stored = asking.load_to_change(DEPLOYS, given.name("deploy"))?;
    let order = ["queued", "rolling", "succeeded", "failed"];
    let place = |state: &str| order.iter().position(|one| *one == state).unwrap_or(0).min(2);
    let was = text(stored.spec(), &["state"]).to_owned();
    let surges = |one: &Value| text(one, &["mode"]) == "surge";
    let downgrades =
        mode.is_some() && stored.spec()["processes"].as_object().is_some_and(|all| all.values().any(surges));
    if was == state && !downgrades {
        return Ok(Outcome::as_it_was(&stored));
    }
    if place(state) < place(&was) || (place(state) == place(&was) && place(state) == 2) {
        return Err(Problem::conflict("deploy_ended", format!("the deploy is {was} already")));
    }
    let mut spec = stored.spec().clone();
    spec["state"] = json!(state);
    if let Some(message) = body.text("message")? {
        spec["message"] = json!(message);
    }
    let mut out = Outcome::new(Done::Changed);
    let ended = place(state) == 2;
    if ended {
        spec["ended_at"] = json!(time::text(asking.around.now_ms));
        let payload = json!({"deploy_id": stored.name, "state": state});
        let end = |process: &mut Map<String, Value>| drop(process.remove("rollout"));
        change_rollout(asking, &mut out, &stored, ("env.rollout_ended", payload), end);
    } else if downgrades {
        for mode in
            spec["processes"].as_object_mut().into_iter().flatten().map(|(_, mode)| mode).filter(|one| surges(one))
        {
            mode["mode"] = json!("drain_first");
        }
        let payload = json!({"deploy_id": stored.name, "mode": "drain_first"});
        let slow = |process: &mut Map<String, Value>| {
            if process.get("rollout").is_some_and(surges) {
                process["rollout"]["mode"] = json!("drain_first");
            }
        };
        change_rollout(asking, &mut out, &stored, ("env.rollout_downgraded", payload), slow);
    }
    let payload = json!({"old": was, "new": state, "mode": mode});
    let row = asking.change(&mut out, &stored, spec, &[("deploy.status_changed", payload)]);
    Ok(out.showing(row))
}

/// Changes what an environment's process types say of one rollout.
fn change_rollout(
    asking: &mut Asking<'_>,
    out: &mut Outcome,
    deploy: &Stored,
    event: (&str, Value),
    change: impl Fn(&mut Map<String, Value>),
) {
    let name = env_name(text(deploy.spec(), &["app"]), text(deploy.spec(), &["env"]));
    let Some(env) = asking.find(ENVS, &name) else { return };
    let mut spec = env.spec().clone();
    for process in spec["processes"].as_object_mut().into_iter().flatten().map(|(_, process)| process) {
        if text(process, &["rollout", "deploy"]) == deploy.name
            && let Some(fields) = process.as_object_mut()
        {
            change(fields);
        }
    }
    if spec != *env.spec() {
        asking.change(out, &env, spec, &[event]);
    }
}

pub fn is_secret_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 253 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// New secrets: their values go into a Secret, their names into the bundle, and what runs is replaced.
pub fn set_secrets(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["secrets"])?;
    let values = body.required("secrets")?.as_object();
    let values = values.ok_or_else(|| Problem::invalid("secrets", "it is not an object of names and texts"))?;
    let bytes: usize = values.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    let names: usize = values.keys().map(String::len).sum();
    if values.len() > SECRETS_MAX || bytes > SECRET_BYTES_MAX || names > SECRET_NAMES_BYTES_MAX {
        let why = format!(
            "there may be {SECRETS_MAX} of them, {SECRET_BYTES_MAX} bytes in all and {SECRET_NAMES_BYTES_MAX} in their names"
        );
        return Err(Problem::invalid("secrets", why));
    }
    if let Some((name, _)) = values.iter().find(|(name, value)| !is_secret_name(name) || !value.is_string()) {
        let shown: String = name.chars().take(64).collect();
        return Err(Problem::invalid("secrets", format!("{shown:?} is no name of a secret, or its value is no text")));
    }
    let name = env_name(given.name("app"), given.name("env"));
    let stored = asking.load_to_change(ENVS, &name)?;
    let version = stored.spec()["secrets_version"].as_i64().unwrap_or(0).saturating_add(1);
    let secret = format!("secrets.{name}.{version}");
    if asking.around.world.get(&SECRETS.resource(), asking.org, &secret).is_some() {
        let why = format!("there is a Secret {secret:?} that this service has not made: delete it first");
        return Err(Problem::conflict("secret_exists", why));
    }
    let keys: Vec<&String> = values.keys().collect();
    let payload = json!({"version": version, "keys": keys});
    let bundle = json!({"app": given.name("app"), "env": given.name("env"), "keys": keys, "secret": secret,
        "secrets_version": version});
    let mut spec = stored.spec().clone();
    spec["secrets_version"] = json!(version);
    spec["secret_keys"] = json!(keys);
    let release = releases(&spec).into_iter().next().unwrap_or_default();
    for process in spec["processes"].as_object_mut().into_iter().flatten().map(|(_, process)| process) {
        process["secrets_version"] = json!(version);
    }
    // Also where nothing runs yet: every change of an environment is told.
    let told = ("env.secrets_set", json!({"version": version, "keys": keys}));
    let mut out = begin(asking, &stored, spec, &release, "secrets", Begun { only: None, told_first: Some(told) })?;
    match asking.find(SECRET_BUNDLES, &name) {
        Some(old) => {
            let kept = text(old.spec(), &["secret"]).to_owned();
            asking.change(&mut out, &old, bundle, &[("secret_bundle.version_set", payload)]);
            drop_secret(asking, &mut out, &kept);
        }
        None => drop(asking.create(&mut out, SECRET_BUNDLES, &name, bundle, "secret_bundle.version_set", payload)),
    }
    let uid = kinds::uid::text(ledger::SubjectId((asking.around.ids)()));
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": secret, "namespace": asking.org, "uid": uid,
            "creationTimestamp": time::text(asking.around.now_ms)},
        "data": values.iter().map(|(name, value)| {
            (name.clone(), json!(STANDARD.encode(value.as_str().unwrap_or_default())))
        }).collect::<Map<String, Value>>(),
    });
    let place = Place::new(SECRETS.resource(), asking.org, &secret);
    out.steps.push(Step { place, kind: StepKind::Create, object });
    Ok(out)
}

/// The values of an environment's secrets go.
pub fn drop_secret(asking: &Asking<'_>, out: &mut Outcome, name: &str) {
    if let Some(secret) = asking.around.world.get(&SECRETS.resource(), asking.org, name) {
        let place = Place::new(SECRETS.resource(), asking.org, name);
        let metadata = json!({"metadata": secret["metadata"]});
        out.steps.push(Step { place, kind: StepKind::DeleteAny, object: metadata });
    }
}
