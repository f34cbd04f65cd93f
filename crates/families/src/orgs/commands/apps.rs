//! Apps, their releases and their environments.

use kinds::fields::{items, text};
use serde_json::{Map, Value, json};

use super::super::footprint::{CPU_MAX, MEMORY_BYTES_MAX};
use super::super::names::*;
use super::super::numbers;
use super::body::{Body, check_name};
use super::deploys::{SECRET_NAMES_BYTES_MAX, SECRETS_MAX, is_secret_name};
use super::problem::Problem;
use super::work::{Asking, Done, Outcome};
use super::{Given, VMM_OVERHEAD_BYTES};

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
    let object = asking.create(&mut out, APPS, name, json!({"app": name}), "app.created", json!({"name": name}));
    Ok(out.showing(&object))
}

pub fn delete_app(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(APPS, given.name("app"))?;
    let mut out = Outcome::new(Done::Deleted);
    asking.delete(&mut out, &stored, "app.deleted", json!({"name": stored.name}));
    // Releases of an app that is gone are of no use: they go as far as one step takes them.
    let releases = asking.list(RELEASES).into_iter().filter(|one| text(one.spec(), &["app"]) == stored.name);
    for release in releases.take(RELEASES_WITH_APP_MAX).collect::<Vec<_>>() {
        asking.delete(&mut out, &release, "release.deleted", json!({}));
    }
    Ok(out)
}

/// Releases that go in the step of their app.
const RELEASES_WITH_APP_MAX: usize = 50;

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
    let numbers = asking.list(RELEASES).into_iter().filter(|one| text(one.spec(), &["app"]) == app.name);
    let last = numbers.filter_map(|one| one.spec()["number"].as_i64()).max().unwrap_or(0);
    let number = last.max(app.spec()["releases"].as_i64().unwrap_or(0)).saturating_add(1);
    let name = format!("{}.{number}", app.name);
    let spec = json!({"app": app.name, "number": number, "processes": processes});
    let mut out = Outcome::new(Done::Created);
    let payload = json!({"number": number, "process_types": processes.keys().collect::<Vec<_>>()});
    let object = asking.create(&mut out, RELEASES, &name, spec, "release.created", payload);
    Ok(out.showing(&object))
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
        && !asking.list(RELEASES).iter().any(|one| {
            text(one.spec(), &["app"]) == app.name && one.spec()["number"].as_i64().is_some_and(|other| other > number)
        })
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
    let object = asking.create(&mut out, ENVS, &name, spec, "env.created", json!({"app": app.name, "name": env}));
    Ok(out.showing(&object))
}

/// An environment without instances, routes and attachments; its rollouts and the list of its secrets go with it.
pub fn delete_env(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let name = env_name(given.name("app"), given.name("env"));
    let stored = asking.load_to_change(ENVS, &name)?;
    let mut out = Outcome::new(Done::Deleted);
    asking.delete(&mut out, &stored, "env.deleted", json!({}));
    let of_env = |spec: &Value| env_name(text(spec, &["app"]), text(spec, &["env"])) == name;
    let deploys = asking.list(DEPLOYS).into_iter().filter(|one| of_env(one.spec())).take(40).collect::<Vec<_>>();
    for deploy in deploys {
        asking.delete(&mut out, &deploy, "deploy.deleted", json!({}));
    }
    if let Some(bundle) = asking.find(SECRET_BUNDLES, &name) {
        asking.delete(&mut out, &bundle, "secret_bundle.deleted", json!({}));
        super::deploys::drop_secret(asking, &mut out, text(bundle.spec(), &["secret"]));
    }
    Ok(out)
}
