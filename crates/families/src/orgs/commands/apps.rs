//! Apps, their releases and their environments.

use std::sync::Arc;

use kinds::fields::{items, text};
use serde_json::{Map, Value, json};

use super::super::footprint::{CPU_MAX, MEMORY_BYTES_MAX};
use super::super::names::*;
use super::super::numbers;
use super::body::{Body, check_name};
use super::deploys::{SECRET_NAMES_BYTES_MAX, SECRETS_MAX, is_secret_name};
use super::problem::Problem;
use super::work::{Asking, Done, Outcome, RecordFacts};
use super::{Given, VMM_OVERHEAD_BYTES};
use crate::Plural;

/// Process types of one release.
const PROCESSES_MAX: usize = 16;
/// Words of a command line, and bytes of each.
const COMMAND_WORDS_MAX: usize = 64;

pub fn create_app(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["name"])?;
    let name = body.name("name")?;
    asking.load(ORGS, asking.org)?;
    if asking.find(APPS, name).is_some() {
        return Err(Problem::conflict("app_name_exists", format!("there is an app {name:?} already")));
    }
    let mut out = Outcome::new(Done::Created);
    let row = asking.create(&mut out, APPS, name, json!({"app": name}), "app.created", json!({"name": name}));
    Ok(out.showing(row))
}

pub fn delete_app(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(APPS, given.name("app"))?;
    if asking.list(ENVS).iter().any(|env| text(env.spec(), &["app"]) == stored.name) {
        let why = format!("{:?} still has environments: delete them first", stored.name);
        return Err(Problem::conflict("app_not_empty", why));
    }
    let mut out = Outcome::new(Done::Deleted);
    // Releases of an app that is gone are of no use, and they would be those of the next one of its name: they go before it.
    let mut releases = asking.records(RELEASES);
    releases.retain(|one| one.app == stored.name);
    out.goes_on = delete_some(asking, &mut out, RELEASES, &releases, "release.deleted");
    if !out.goes_on {
        asking.delete(&mut out, &stored, "app.deleted", json!({"name": stored.name}));
    }
    Ok(out)
}

/// What goes with an object in one step; the engine decides 64 writes at once.
const ALONG_MAX: usize = 50;

/// Deletes of these what one step takes; says whether that was not all.
fn delete_some(
    asking: &mut Asking<'_>,
    out: &mut Outcome,
    plural: Plural,
    all: &[Arc<RecordFacts>],
    event: &str,
) -> bool {
    for one in asking.stored(plural, all.iter().take(ALONG_MAX)) {
        asking.delete(out, &one, event, json!({}));
    }
    all.len() > ALONG_MAX
}

pub fn create_release(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let app = asking.load(APPS, given.name("app"))?;
    let body = Body::of(given.body, &["processes"])?;
    let listed = body.required("processes")?.as_object();
    let listed = listed.ok_or_else(|| Problem::invalid("processes", "it is not an object: name each process type"))?;
    if listed.is_empty() || listed.len() > PROCESSES_MAX {
        let why = format!("there are {}: there may be 1 to {PROCESSES_MAX}", listed.len());
        return Err(Problem::invalid("processes", why));
    }
    let mut processes = Map::new();
    for (name, process) in listed {
        check_name("processes", name)?;
        processes.insert(name.clone(), read_process(name, process)?);
    }
    let names = processes.values().flat_map(|process| items(process, &["secrets"])).filter_map(Value::as_str);
    if names.map(str::len).sum::<usize>() > SECRET_NAMES_BYTES_MAX {
        let why = format!("the names of secrets they need take more than {SECRET_NAMES_BYTES_MAX} bytes");
        return Err(Problem::invalid("processes", why));
    }
    let releases = asking.records(RELEASES);
    let last = releases.iter().filter(|one| one.app == app.name).map(|one| one.number).max().unwrap_or(0);
    let number = last.max(app.spec()["releases"].as_i64().unwrap_or(0)).saturating_add(1);
    let name = format!("{}.{number}", app.name);
    let spec = json!({"app": app.name, "number": number, "processes": processes});
    let mut out = Outcome::new(Done::Created);
    let payload = json!({"number": number, "process_types": processes.keys().collect::<Vec<_>>()});
    let row = asking.create(&mut out, RELEASES, &name, spec, "release.created", payload);
    // A number is given once, whoever deletes the release meanwhile; and none comes to an app that goes.
    let mut numbered = app.spec().clone();
    numbered["releases"] = json!(number);
    asking.change(&mut out, &app, numbered, &[("app.release_numbered", json!({"number": number}))]);
    Ok(out.showing(row))
}

/// What one instance of a process type takes, with what runs it: the numbers of this moment stay those of the release.
fn read_process(name: &str, process: &Value) -> Result<Value, Problem> {
    let body = Body::of(process, &["cpu", "memory_bytes", "ephemeral_disk_bytes", "command", "port", "secrets"])?;
    let field = |field: &str| format!("processes.{name}.{field}");
    let one = json!(1);
    let cpu = numbers::decimal(body.get("cpu").unwrap_or(&one)).map_err(|why| Problem::invalid(&field("cpu"), why))?;
    if cpu.is_zero() || cpu > quantity::Amount::from_units(CPU_MAX) {
        return Err(Problem::invalid(&field("cpu"), format!("it is not above 0 and at most {CPU_MAX}")));
    }
    let memory = body.whole("memory_bytes", 1, MEMORY_BYTES_MAX).map_err(|mut problem| {
        problem.fields = vec![(field("memory_bytes"), problem.detail.clone())];
        problem
    })?;
    let memory = memory.ok_or_else(|| Problem::invalid(&field("memory_bytes"), "it is missing"))?;
    let disk = body.whole("ephemeral_disk_bytes", 0, numbers::NUMBER_MAX)?.unwrap_or(0);
    let command = match body.get("command") {
        None => Vec::new(),
        Some(Value::Array(words)) if words.len() <= COMMAND_WORDS_MAX => {
            let words = words.iter().map(|word| word.as_str().filter(|word| word.len() <= 4096).map(str::to_owned));
            let words: Option<Vec<String>> = words.collect();
            words.ok_or_else(|| Problem::invalid(&field("command"), "each word is a text of at most 4096 bytes"))?
        }
        Some(_) => {
            let why = format!("it is not a list of at most {COMMAND_WORDS_MAX} words");
            return Err(Problem::invalid(&field("command"), why));
        }
    };
    let mut read = json!({
        "cpu": numbers::text(cpu), "memory_bytes": memory, "vmm_overhead_bytes": VMM_OVERHEAD_BYTES,
        "ephemeral_disk_bytes": disk, "command": command,
    });
    if let Some(port) = body.whole("port", 1, 65_535)? {
        read["port"] = json!(port);
    }
    // Names of secrets without which it cannot start.
    if let Some(names) = body.get("secrets") {
        let named = |names: &&Vec<Value>| {
            names.len() <= SECRETS_MAX && names.iter().all(|name| name.as_str().is_some_and(is_secret_name))
        };
        let why = format!("it is no list of at most {SECRETS_MAX} names of secrets");
        let names = names.as_array().filter(named).ok_or_else(|| Problem::invalid(&field("secrets"), why))?;
        read["secrets"] = json!(names);
    }
    Ok(read)
}

pub fn delete_release(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let name = format!("{}.{}", given.name("app"), given.name("release"));
    let stored = asking.load_to_change(RELEASES, &name)?;
    for env in asking.list(ENVS) {
        let processes = env.spec()["processes"].as_object().cloned().unwrap_or_default();
        if processes.values().any(|process| text(process, &["release"]) == name) {
            let why = format!("environment {:?} runs it", env.name);
            return Err(Problem::conflict("release_in_use", why));
        }
    }
    let mut out = Outcome::new(Done::Deleted);
    asking.delete(&mut out, &stored, "release.deleted", json!({}));
    // A number is given once: instances, rollouts and whoever rolls back know releases by it.
    let number = stored.spec()["number"].as_i64().unwrap_or(0);
    if let Some(app) = asking.find(APPS, given.name("app"))
        && app.spec()["releases"].as_i64().unwrap_or(0) < number
        && !asking.records(RELEASES).iter().any(|one| one.app == app.name && one.number > number)
    {
        let mut spec = app.spec().clone();
        spec["releases"] = json!(number);
        asking.change(&mut out, &app, spec, &[("app.release_retired", json!({"number": number}))]);
    }
    Ok(out)
}

pub fn create_env(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let app = asking.load(APPS, given.name("app"))?;
    let body = Body::of(given.body, &["name"])?;
    let env = body.name("name")?;
    let name = env_name(&app.name, env);
    if asking.find(ENVS, &name).is_some() {
        return Err(Problem::conflict("env_name_exists", format!("there is an environment {name:?} already")));
    }
    let spec = json!({
        "app": app.name, "env": env, "processes": {}, "ipv4": {"enabled": false}, "secrets_version": 0,
        "changed_seq": asking.around.now_ms,
    });
    let mut out = Outcome::new(Done::Created);
    let row = asking.create(&mut out, ENVS, &name, spec, "env.created", json!({"app": app.name, "name": env}));
    Ok(out.showing(row))
}

/// What an environment is not deleted with.
pub const KEEPING_ENVS: [(Plural, &str); 3] =
    [(INSTANCES, "instances"), (ROUTES, "routes"), (ATTACHMENTS, "volume attachments")];

/// An environment without instances, routes and attachments; its rollouts and the list of its secrets go with it.
pub fn delete_env(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let name = env_name(given.name("app"), given.name("env"));
    let stored = asking.load_to_change(ENVS, &name)?;
    let mut out = Outcome::new(Done::Deleted);
    let of_env = |spec: &Value| env_name(text(spec, &["app"]), text(spec, &["env"])) == name;
    for (plural, what) in KEEPING_ENVS {
        if asking.list(plural).iter().any(|one| of_env(one.spec())) {
            let why = format!("{name:?} still has {what}: delete them first");
            return Err(Problem::conflict("env_not_empty", why));
        }
    }
    let mut deploys = asking.records(DEPLOYS);
    deploys.retain(|one| one.env == name);
    out.goes_on = delete_some(asking, &mut out, DEPLOYS, &deploys, "deploy.deleted");
    if out.goes_on {
        return Ok(out);
    }
    if let Some(bundle) = asking.find(SECRET_BUNDLES, &name) {
        asking.delete(&mut out, &bundle, "secret_bundle.deleted", json!({}));
        super::deploys::drop_secret(asking, &mut out, text(bundle.spec(), &["secret"]));
    }
    asking.delete(&mut out, &stored, "env.deleted", json!({}));
    Ok(out)
}
