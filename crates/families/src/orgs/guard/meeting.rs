//! What two commands that read the same state would come to together. Each of them looked before its step, where it could say more
//! about it; here the same is asked of the state that the step is decided on.

use kinds::fields::{given, text};
use serde_json::Value;

use super::super::commands::{exec_room, instance_stopped, no_ipv4, port_in_use, prefix_in_use};
use super::super::groups::InstanceFacts;
use super::super::names::*;
use super::super::scheduler::board::prefix_of;
use super::super::usage::counts;
use super::{conflict, has, lasts};
use crate::{Change, Plural, Refusal, View};

/// An object as it is to be, new or changed.
pub(super) fn check(change: &Change<'_>, new: &Value, view: &dyn View) -> Result<(), Refusal> {
    let is = |plural: Plural| plural.is(change.resource);
    // What only says how it stands changes nothing that others look at.
    if change.old["spec"] == new["spec"] {
        return Ok(());
    }
    match () {
        () if is(ENVS) => env(change, new, view),
        () if is(ROUTES) => route(change, new, view),
        () if is(NODES) => node(change, new, view),
        () if is(EXEC_SESSIONS) => session(change, new, view),
        () => Ok(()),
    }
}

fn own_env(spec: &Value) -> String {
    env_name(text(spec, &["app"]), text(spec, &["env"]))
}

fn env(change: &Change<'_>, new: &Value, view: &dyn View) -> Result<(), Refusal> {
    scaled(change, new, view)?;
    let release = |object: &Value, name: &str| text(&object["spec"]["processes"][name], &["release"]).to_owned();
    for name in new["spec"]["processes"].as_object().into_iter().flatten().map(|(name, _)| name) {
        let wanted = release(new, name);
        if !wanted.is_empty() && wanted != release(change.old, name) && !has(view, RELEASES, change.namespace, &wanted)
        {
            return Err(conflict("release_not_found", format!("there is no release {wanted:?} any more")));
        }
    }
    let has_ipv4 = |object: &Value| given(object, &["spec", "ipv4", "enabled"]) == Some(&Value::Bool(true));
    if has_ipv4(change.old) && !has_ipv4(new) {
        for route in view.list(&ROUTES.resource(), change.namespace) {
            if own_env(&route["spec"]) == change.name && route["spec"]["ipv4_required"] == true {
                let why = format!("route {:?} requires it", text(&route, &["metadata", "name"]));
                return Err(conflict("routes_require_ipv4", why));
            }
        }
    }
    Ok(())
}

/// A process type with a volume has at most one replica: also where the volume came between the request and this step.
fn scaled(change: &Change<'_>, new: &Value, view: &dyn View) -> Result<(), Refusal> {
    let none = serde_json::Map::new();
    let processes = new["spec"]["processes"].as_object().unwrap_or(&none);
    let desired = |object: &Value, name: &str| object["spec"]["processes"][name]["desired"].as_i64().unwrap_or(0);
    let grown = processes.keys().filter(|name| desired(new, name) > 1.max(desired(change.old, name)));
    let grown: Vec<&String> = grown.collect();
    if grown.is_empty() {
        return Ok(());
    }
    for one in view.list(&ATTACHMENTS.resource(), change.namespace) {
        let spec = &one["spec"];
        if own_env(spec) == change.name && grown.iter().any(|name| *name == text(spec, &["process_type"])) {
            let why =
                format!("process type {:?} has a volume: it has at most one replica", text(spec, &["process_type"]));
            return Err(conflict("volume_replica_limit", why));
        }
    }
    Ok(())
}

/// A route that requires IPv4 is in an environment that has it, and no two raw TCP routes of one have one port.
fn route(change: &Change<'_>, new: &Value, view: &dyn View) -> Result<(), Refusal> {
    let (old, spec) = (&change.old["spec"], &new["spec"]);
    if spec["ipv4_required"] == true && old["ipv4_required"] != true {
        let env = view.get(&ENVS.resource(), change.namespace, &own_env(spec)).unwrap_or_default();
        if env.pointer("/spec/ipv4/enabled") != Some(&Value::Bool(true)) {
            return Err(no_ipv4().into());
        }
    }
    let is_raw = |spec: &Value| text(spec, &["hostname"]).is_empty();
    if is_raw(spec) && spec["listen_port"] != old["listen_port"] {
        let (env, port) = (own_env(spec), &spec["listen_port"]);
        let same = |spec: &Value| is_raw(spec) && spec["listen_port"] == *port && own_env(spec) == env;
        let others = view.list(&ROUTES.resource(), change.namespace);
        let mut others = others.iter().filter(|one| text(one, &["metadata", "name"]) != change.name);
        if others.any(|one| same(&one["spec"])) {
            return Err(port_in_use(port).into());
        }
    }
    Ok(())
}

/// No two nodes give the same addresses, not even one after the other.
fn node(change: &Change<'_>, new: &Value, view: &dyn View) -> Result<(), Refusal> {
    let said = |object: &Value| text(object, &["spec", "ipv6_prefix"]).to_owned();
    if !change.old.is_null() && said(change.old) == said(new) {
        return Ok(());
    }
    let prefix = prefix_of(change.name, &said(new));
    // What runs there keeps its address: nobody else may come to give it.
    if !change.old.is_null() && prefix_of(change.name, &said(change.old)) != prefix {
        let instances = view.parsed_everywhere(&INSTANCES.resource(), &InstanceFacts::parse);
        let mut facts = instances.iter().filter_map(|one| one.downcast_ref::<InstanceFacts>());
        if let Some(one) = facts.find(|one| one.node == change.name && !one.has_stopped) {
            let why = format!("instance {:?} has an address behind the prefix of this node: it goes first", one.name);
            return Err(conflict("prefix_in_use", why));
        }
    }
    for other in view.list(&NODES.resource(), "") {
        let name = text(&other, &["metadata", "name"]);
        if name != change.name && prefix_of(name, &said(&other)) == prefix {
            return Err(prefix_in_use(name).into());
        }
    }
    Ok(())
}

/// A session is granted, or connected to, while its instance runs, and while there is room beside the others.
fn session(change: &Change<'_>, new: &Value, view: &dyn View) -> Result<(), Refusal> {
    let spec = &new["spec"];
    let state = text(spec, &["state"]);
    let instance = view.get(&INSTANCES.resource(), change.namespace, text(spec, &["instance"])).unwrap_or_default();
    if state != "ended" && !counts(text(&instance, &["spec", "desired_state"])) {
        return Err(instance_stopped().into());
    }
    if !change.old.is_null() {
        return if state == "ended" { Ok(()) } else { lasts(spec, view) };
    }
    let others = view.list(&EXEC_SESSIONS.resource(), change.namespace);
    let others = others.iter().filter(|one| text(one, &["metadata", "name"]) != change.name);
    exec_room(spec, others.map(|one| &one["spec"]), view.now_ms()).map_err(Refusal::from)
}
