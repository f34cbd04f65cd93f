//! Instances: the scheduler allocates, drains and stops them, nodes report on them. What an instance takes is written down when
//! it is allocated, and given back when it is to be stopped.

use kinds::fields::text;
use serde_json::{Value, json};

use super::super::footprint::Footprint;
use super::super::names::*;
use super::Given;
use super::body::{Body, check_name};
use super::problem::Problem;
use super::work::{Asking, Done, Outcome, Stored};

/// How long a draining instance may take.
pub const DRAIN_GRACE_SECONDS: i64 = 10;
/// Why an instance is to go.
const REASONS: [&str; 6] = ["scale_down", "rollout_replace", "node_draining", "node_offline", "failed", "forced"];
const STATUSES: [&str; 5] = ["booting", "ready", "draining", "failed", "stopped"];

pub fn allocate(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let known = ["app", "env", "process_type", "node", "overlay_ipv6", "volumes", "replaces", "replaces_reason"];
    let body = Body::of(given.body, &known)?;
    let (app, env, process_type) = (body.name("app")?, body.name("env")?, body.name("process_type")?);
    let node = body.name("node")?;
    let stored = asking.load(ENVS, &env_name(app, env))?;
    let process = &stored.spec()["processes"][process_type];
    if !process["release"].is_string() {
        return Err(Problem::conflict(
            "nothing_deployed",
            format!("no release has a process type {process_type:?} here"),
        ));
    }
    asking.load(NODES, node)?;
    let mut resources = process["unit"].clone();
    Footprint::of_one(&resources).map_err(|why| Problem::conflict("unit_unknown", why))?;
    if let Some(fields) = resources.as_object_mut() {
        fields.retain(|field, _| {
            matches!(field.as_str(), "cpu" | "memory_bytes" | "vmm_overhead_bytes" | "ephemeral_disk_bytes")
        });
    }
    let volumes = match body.get("volumes") {
        None => Vec::new(),
        Some(Value::Array(list)) if list.len() <= 16 && list.iter().all(Value::is_string) => {
            let mut names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            names.sort_unstable();
            names.dedup();
            names
        }
        Some(_) => return Err(Problem::invalid("volumes", "it is not a list of at most 16 volumes")),
    };
    let name = asking.new_id("i");
    let mut spec = json!({
        "app": app, "env": env, "process_type": process_type, "node": node, "desired_state": "running",
        "release": process["release"], "deploy": process["rollout"]["deploy"], "resources": resources,
        "secrets_version": process["secrets_version"], "overlay_ipv6": body.text("overlay_ipv6")?,
        "volumes": volumes, "spec_hash": spec_hash(process, &volumes), "allocated_at_ms": asking.around.now_ms,
        "reported": {"status": "booting"},
    });
    let mut out = Outcome::new(Done::Created);
    // What is replaced gives its slot in the same step: a group over a lowered limit does not erode.
    if let Some(replaced) = body.text("replaces")? {
        spec["replaces"] = json!(replaced);
        let replaced = asking.load(INSTANCES, replaced)?;
        let group = |spec: &Value| ["app", "env", "process_type"].map(|field| text(spec, &[field]).to_owned());
        if group(replaced.spec()) != [app, env, process_type].map(str::to_owned) {
            return Err(Problem::invalid("replaces", "it is of another group"));
        }
        if text(replaced.spec(), &["desired_state"]) == "stopped" {
            return Err(Problem::conflict("instance_stopped", "a slot is given on once"));
        }
        let reason = body.word("replaces_reason", &REASONS)?.unwrap_or("rollout_replace");
        change_state(asking, &mut out, &replaced, "stopped", reason);
    }
    // Where a volume is first mounted it is, from then on.
    for volume in &volumes {
        let Some(volume) = asking.find(VOLUMES, volume) else { continue };
        if text(volume.spec(), &["home_node"]).is_empty() {
            let mut spec = volume.spec().clone();
            spec["home_node"] = json!(node);
            asking.change(&mut out, &volume, spec, &[("volume.home_set", json!({"home_node_id": node}))]);
        }
    }
    let payload = json!({
        "instance_id": name, "node_id": node, "desired_state": "running", "release_id": process["release"],
        "resources_snapshot": resources, "overlay_ipv6": spec["overlay_ipv6"], "spec_hash": spec["spec_hash"],
    });
    let row = asking.create(&mut out, INSTANCES, &name, spec, "instance.allocated", payload);
    Ok(out.showing(row))
}

/// What instances of a group have in common: one that differs is replaced. A release never changes, so its name says it all.
pub fn spec_hash(process: &Value, volumes: &[&str]) -> String {
    let mut volumes: Vec<&str> = volumes.to_vec();
    volumes.sort_unstable();
    let secrets = process["secrets_version"].as_i64().unwrap_or(0);
    format!("{}/{secrets}/{}", text(process, &["release"]), volumes.join(","))
}

fn change_state(asking: &mut Asking<'_>, out: &mut Outcome, stored: &Stored, state: &str, reason: &str) -> Value {
    let mut spec = stored.spec().clone();
    let was = text(&spec, &["desired_state"]).to_owned();
    spec["desired_state"] = json!(state);
    if !reason.is_empty() {
        spec["drain_reason"] = json!(reason);
    }
    if state == "draining" {
        let until = asking.around.now_ms.saturating_add(DRAIN_GRACE_SECONDS * 1000);
        spec["drain_until_ms"] = json!(until);
    }
    let payload = json!({
        "old": was, "desired_state": state, "drain_grace_seconds": DRAIN_GRACE_SECONDS, "reason": reason,
    });
    asking.change(out, stored, spec, &[("instance.desired_state_changed", payload)])
}

/// To drain, then to stop: never back.
pub fn set_state(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["desired_state", "reason"])?;
    let state = body.word("desired_state", &["draining", "stopped"])?;
    let state = state.ok_or_else(|| Problem::invalid("desired_state", "it is missing"))?;
    let reason = body.word("reason", &REASONS)?.unwrap_or_default();
    let stored = asking.load_to_change(INSTANCES, given.name("instance"))?;
    let was = text(stored.spec(), &["desired_state"]);
    if was == state {
        return Ok(Outcome::as_it_was(&stored));
    }
    if was == "stopped" {
        return Err(Problem::conflict("instance_stopped", "an instance that is stopped stays so"));
    }
    let mut out = Outcome::new(Done::Changed);
    let row = change_state(asking, &mut out, &stored, state, reason);
    Ok(out.showing(row))
}

/// What the node says of it. It changes no usage: only what is wanted counts.
pub fn report(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["status", "reason", "node"])?;
    let status = body.word("status", &STATUSES)?.ok_or_else(|| Problem::invalid("status", "it is missing"))?;
    let stored = asking.load_to_change(INSTANCES, given.name("instance"))?;
    if let Some(node) = body.text("node")? {
        check_name("node", node)?;
        if node != text(stored.spec(), &["node"]) {
            return Err(Problem::conflict("wrong_node", "the instance is another node's"));
        }
    }
    let was = text(stored.spec(), &["reported", "status"]).to_owned();
    if was == status {
        return Ok(Outcome::as_it_was(&stored));
    }
    if was == "stopped" {
        return Err(Problem::conflict("instance_stopped", "an instance that has stopped stays so"));
    }
    let mut spec = stored.spec().clone();
    let reason = body.text("reason")?;
    // Who stops by itself while it is wanted has failed, however it went.
    let fails = status == "failed" || (status == "stopped" && text(&spec, &["desired_state"]) == "running");
    let failed_at = match fails {
        true => json!(asking.around.now_ms),
        false => spec["reported"]["failed_at_ms"].clone(),
    };
    spec["reported"] = json!({"status": status, "reason": reason, "at_ms": asking.around.now_ms});
    let failed_for = match fails {
        true => json!(reason),
        false => stored.spec()["reported"]["failed_for"].clone(),
    };
    for (field, value) in [("failed_at_ms", failed_at), ("failed_for", failed_for)] {
        if !value.is_null() {
            spec["reported"][field] = value;
        }
    }
    let payload = json!({"old": was, "new": status, "reason": reason});
    let mut out = Outcome::new(Done::Changed);
    let row = asking.change(&mut out, &stored, spec, &[("instance.status_changed", payload)]);
    Ok(out.showing(row))
}

/// An instance that is to be stopped, and has, is forgotten.
pub fn remove(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(INSTANCES, given.name("instance"))?;
    if text(stored.spec(), &["desired_state"]) != "stopped" {
        return Err(Problem::conflict("instance_running", "the instance is not to be stopped"));
    }
    let mut out = Outcome::new(Done::Deleted);
    asking.delete(&mut out, &stored, "instance.removed", json!({}));
    Ok(out)
}
