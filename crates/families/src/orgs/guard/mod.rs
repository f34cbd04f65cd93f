//! What the state as it is forbids: references to what is not there, and deletions of what others need. And who may write at
//! all: every change of an organization is an event, so that only the service that appends events writes its objects.

mod meeting;

use std::sync::Arc;

use kinds::fields::{items, text};
use rules::GroupResource;
use serde_json::Value;

use super::commands::KEEPING_ENVS;
use super::groups;
use super::names::*;
use super::usage::{counts, is_under_way};
use crate::{Admission, Change, Operation, Plural, Plurals, Refusal, RefusalCause, View};

/// Who the service writes as.
pub const SERVICE: &str = "system:bursar:orgs";

/// What is asked about: all kinds of this family, what defines them, and the namespaces that organizations live in.
pub const CHECKED: Plurals = &[
    NAMESPACES,
    DEFINITIONS,
    TIERS,
    NODES,
    HOSTNAMES,
    ORGS,
    APPS,
    ENVS,
    RELEASES,
    DEPLOYS,
    INSTANCES,
    ROUTES,
    SECRET_BUNDLES,
    VOLUMES,
    ATTACHMENTS,
    SNAPSHOTS,
    RESTORE_JOBS,
    EXEC_SESSIONS,
    LOG_STREAMS,
    IDEMPOTENCY_KEYS,
];

/// Whether objects of this resource are written by the service alone. Tiers are an operator's to write.
pub fn is_kept(resource: &GroupResource) -> bool {
    *resource.group == *GROUP && !TIERS.is(resource)
}

/// A conflict with a code that programs go by.
pub fn conflict(code: &str, message: impl Into<String>) -> Refusal {
    let message = message.into();
    let cause = RefusalCause { reason: code.into(), message: message.clone(), field: Arc::from("") };
    Refusal { causes: vec![cause], ..Refusal::conflict(message) }
}

pub fn check(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    if TIERS.is(change.resource) {
        return tier(change, view);
    }
    if NAMESPACES.is(change.resource) {
        return namespace(change, view);
    }
    if DEFINITIONS.is(change.resource) {
        return definition(change);
    }
    if !is_kept(change.resource) {
        return Ok(());
    }
    let leaves = || {
        let namespace = view.get(&GroupResource::core("namespaces"), "", change.namespace);
        namespace.is_some_and(|one| one.pointer("/metadata/deletionTimestamp").is_some())
    };
    if change.new.is_none() && leaves() {
        return Ok(());
    }
    if change.origin.identity.user != SERVICE {
        let why = format!(
            "{} are written through /v1/orgs/{{org}}, so that every change is an event; here they can be read",
            change.resource.resource
        );
        return Err(Refusal::forbidden(why));
    }
    match change.new {
        None => deleted(change, view),
        Some(new) if change.old.is_null() => {
            created(change, &new["spec"], view)?;
            meeting::check(change, new, view)
        }
        Some(new) if INSTANCES.is(change.resource) => groups::leaves(change, new, view),
        Some(new) => meeting::check(change, new, view),
    }
}

/// Whether an object comes to be deleted, with its finalizers or without.
fn goes(change: &Change<'_>) -> bool {
    let leaves = |object: &Value| object.pointer("/metadata/deletionTimestamp").is_some();
    change.new.is_none_or(leaves) && !leaves(change.old)
}

/// The kinds are the server's own: what is of them leaves by commands alone, and without a definition nothing of it could be written any
/// more.
fn definition(change: &Change<'_>) -> Result<(), Refusal> {
    let is_ours = |(_, plural): &(&str, Plural)| change.name == format!("{}.{}", plural.1, plural.0);
    if goes(change) && KINDS.iter().any(is_ours) {
        let why = "it defines a kind of organizations, whose objects only /v1/orgs/{org} writes: it stays";
        return Err(Refusal::forbidden(why));
    }
    Ok(())
}

/// An organization leaves by a command, with events for all that goes; with its namespace everything would go without a word.
fn namespace(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    if goes(change) && change.origin.identity.user != SERVICE && has(view, ORGS, change.name, change.name) {
        let why = "an organization lives in this namespace: delete it with DELETE /v1/orgs/{org}, and its namespace goes with it";
        return Err(Refusal::forbidden(why));
    }
    Ok(())
}

/// A status is what the platform says. Whoever may write in an organization's namespace is not the platform.
pub fn admit(request: &Admission<'_>) -> Result<(), String> {
    let is_ours = request.origin.identity.is_internal();
    if request.operation == Operation::Status && is_kept(request.resource) && !is_ours {
        return Err(format!(
            "the status of {} is written by the platform; here it can be read",
            request.resource.resource
        ));
    }
    Ok(())
}

/// A tier that organizations have stays.
fn tier(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    if change.new.is_some() {
        return Ok(());
    }
    let parsed = view.parsed_everywhere(&ORGS.resource(), &super::parse_org);
    let orgs = parsed.iter().filter_map(|one| one.downcast_ref::<super::OrgFacts>());
    match orgs.into_iter().find(|org| org.tier == change.name) {
        None => Ok(()),
        Some(org) => {
            let why = format!("organization {:?} has the tier {:?}: give it another first", org.name, change.name);
            Err(Refusal::forbidden(why))
        }
    }
}

fn has(view: &dyn View, plural: Plural, namespace: &str, name: &str) -> bool {
    view.get(&plural.resource(), namespace, name).is_some()
}

/// What a new object refers to is there at the moment it is stored.
fn created(change: &Change<'_>, spec: &Value, view: &dyn View) -> Result<(), Refusal> {
    let org = change.namespace;
    // An organization comes with the key of the command that makes it.
    let comes_first = ORGS.is(change.resource) || IDEMPOTENCY_KEYS.is(change.resource);
    if !is_global(Plural(GROUP, plural_of(change.resource))) && !comes_first && !has(view, ORGS, org, org) {
        return Err(conflict("org_not_found", format!("there is no organization {org:?}")));
    }
    let missing = |code: &str, what: &str, name: &str| Err(conflict(code, format!("there is no {what} {name:?}")));
    let app = text(spec, &["app"]);
    let env = env_name(app, text(spec, &["env"]));
    let is = |plural: Plural| plural.is(change.resource);
    if (is(ENVS) || is(RELEASES)) && !has(view, APPS, org, app) {
        return missing("app_not_found", "app", app);
    }
    let of_env = is(INSTANCES) || is(ROUTES) || is(ATTACHMENTS) || is(DEPLOYS) || is(LOG_STREAMS) || is(SECRET_BUNDLES);
    if of_env && !has(view, ENVS, org, &env) {
        return missing("env_not_found", "environment", &env);
    }
    let volume = text(spec, &["volume"]);
    if (is(ATTACHMENTS) || is(SNAPSHOTS)) && !has(view, VOLUMES, org, volume) {
        return missing("volume_not_found", "volume", volume);
    }
    if is(ATTACHMENTS) {
        return attached(change, spec, view);
    }
    if is(INSTANCES) {
        groups::enters(change, spec, view)?;
        return allocated(change, spec, view);
    }
    if is(RESTORE_JOBS) && !has(view, SNAPSHOTS, org, text(spec, &["snapshot"])) {
        return missing("snapshot_not_found", "snapshot", text(spec, &["snapshot"]));
    }
    if is(EXEC_SESSIONS) && !has(view, INSTANCES, org, text(spec, &["instance"])) {
        return missing("instance_not_found", "instance", text(spec, &["instance"]));
    }
    if is(EXEC_SESSIONS) || is(LOG_STREAMS) || is(IDEMPOTENCY_KEYS) {
        return lasts(spec, view);
    }
    Ok(())
}

/// What counts until some moment begins before it: otherwise it would count for nothing, as where the clock of whoever asks is behind
/// the one that is decided by.
fn lasts(spec: &Value, view: &dyn View) -> Result<(), Refusal> {
    match spec["expires_at_ms"].as_i64() {
        Some(at) if at <= view.now_ms() => Err(conflict(MOMENT_PASSED, view.now_ms().to_string())),
        _ => Ok(()),
    }
}

/// The moment by which a refusal for a clock that is behind was decided.
pub fn moment_passed(refusal: &Refusal) -> Option<i64> {
    let cause = refusal.causes.iter().find(|cause| &*cause.reason == MOMENT_PASSED)?;
    cause.message.parse().ok()
}

const MOMENT_PASSED: &str = "moment_passed";

fn plural_of(resource: &GroupResource) -> &'static str {
    KINDS.iter().find(|(_, plural)| plural.is(resource)).map_or("", |(_, plural)| plural.1)
}

/// A volume is attached once, and to a process type with at most one replica.
fn attached(change: &Change<'_>, spec: &Value, view: &dyn View) -> Result<(), Refusal> {
    let volume = text(spec, &["volume"]);
    let all = view.list(&ATTACHMENTS.resource(), change.namespace);
    if all.iter().any(|one| text(one, &["spec", "volume"]) == volume) {
        return Err(conflict("attachment_exists", format!("volume {volume:?} is attached already")));
    }
    let env = env_name(text(spec, &["app"]), text(spec, &["env"]));
    let env = view.get(&ENVS.resource(), change.namespace, &env).unwrap_or_default();
    let desired = env["spec"]["processes"][text(spec, &["process_type"])]["desired"].as_i64().unwrap_or(0);
    if desired > 1 {
        let why = format!("a process type with a volume has at most one replica, and this one has {desired}");
        return Err(conflict("volume_replica_limit", why));
    }
    Ok(())
}

/// A volume is used by one instance at a time; who is replaced gives it on.
fn allocated(change: &Change<'_>, spec: &Value, view: &dyn View) -> Result<(), Refusal> {
    let volumes: Vec<&str> = items(spec, &["volumes"]).iter().filter_map(Value::as_str).collect();
    if volumes.is_empty() {
        return Ok(());
    }
    for one in view.list(&INSTANCES.resource(), change.namespace) {
        let theirs = items(&one, &["spec", "volumes"]);
        let uses = |volume: &&&str| theirs.iter().any(|their| their.as_str() == Some(**volume));
        let given_on = text(spec, &["replaces"]) == text(&one, &["metadata", "name"]);
        let has = counts(text(&one, &["spec", "desired_state"])) && !has_stopped(&one) && !given_on;
        if let Some(volume) = volumes.iter().find(uses).filter(|_| has) {
            return Err(conflict("volume_in_use", format!("volume {volume:?} is in use by an instance")));
        }
    }
    Ok(())
}

/// Whether its node said that it runs no more.
fn has_stopped(instance: &Value) -> bool {
    text(instance, &["spec", "reported", "status"]) == "stopped"
}

/// What others refer to stays until they are gone: nothing is released but by an event of its own.
fn deleted(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    let (org, name) = (change.namespace, change.name);
    let uses = |plural: Plural, of: &dyn Fn(&Value) -> bool| {
        view.list(&plural.resource(), org).iter().any(|object| of(&object["spec"]))
    };
    let busy = |code: &str, what: &str| Err(conflict(code, format!("{name:?} still has {what}: delete them first")));
    let is = |plural: Plural| plural.is(change.resource);
    // Releases and rollouts come with a change of their app or environment, so that none comes beside its deletion.
    if is(APPS) && uses(ENVS, &|spec| text(spec, &["app"]) == name) {
        return busy("app_not_empty", "environments");
    }
    if is(RELEASES) {
        let runs = |spec: &Value| {
            let processes = spec["processes"].as_object();
            processes.into_iter().flatten().any(|(_, process)| text(process, &["release"]) == name)
        };
        if uses(ENVS, &runs) {
            return Err(conflict("release_in_use", format!("an environment runs {name:?}")));
        }
    }
    if is(ENVS) {
        let within = |spec: &Value| env_name(text(spec, &["app"]), text(spec, &["env"])) == name;
        for (plural, what) in KEEPING_ENVS {
            if uses(plural, &within) {
                return busy("env_not_empty", what);
            }
        }
    }
    if is(VOLUMES) {
        // A snapshot is restored through its volume: without it, it would be of no use to anybody.
        for (plural, what) in [(ATTACHMENTS, "attachments"), (SNAPSHOTS, "snapshots")] {
            if uses(plural, &|spec| text(spec, &["volume"]) == name) {
                return busy("volume_in_use", what);
            }
        }
        // What is written to takes its bytes, whatever the volume is attached to by now.
        let mounts = |one: &Value| items(one, &["spec", "volumes"]).iter().any(|volume| volume.as_str() == Some(name));
        if view.list(&INSTANCES.resource(), org).iter().any(|one| mounts(one) && !has_stopped(one)) {
            return Err(conflict("volume_in_use", format!("an instance that has not stopped mounts {name:?}")));
        }
        let comes_to_it =
            |spec: &Value| text(spec, &["target_volume"]) == name && is_under_way(text(spec, &["status"]));
        if uses(RESTORE_JOBS, &comes_to_it) {
            return Err(conflict("volume_in_use", format!("{name:?} is being restored")));
        }
    }
    let restores = |spec: &Value| text(spec, &["snapshot"]) == name && is_under_way(text(spec, &["status"]));
    if is(SNAPSHOTS) && uses(RESTORE_JOBS, &restores) {
        return busy("snapshot_in_use", "restores under way");
    }
    if is(ORGS) {
        for plural in [APPS, VOLUMES, INSTANCES] {
            if !view.list(&plural.resource(), org).is_empty() {
                return busy("org_not_empty", plural.1);
            }
        }
    }
    if is(EXEC_SESSIONS)
        && change.old["spec"]["granted_at_ms"]
            .as_i64()
            .is_some_and(|at| view.now_ms() < at.saturating_add(super::usage::HOUR_MS))
    {
        return Err(conflict("session_is_counted", "a session is counted for an hour; end it instead"));
    }
    Ok(())
}
