//! Nodes: machines that run instances. They belong to the platform and to no organization.

use kinds::fields::text;
use serde_json::json;

use super::super::names::*;
use super::super::numbers::NUMBER_MAX;
use super::super::scheduler::board::{NO_PREFIX, prefix_of, said_prefix};
use super::Given;
use super::body::{Body, check_name};
use super::problem::Problem;
use super::work::{Asking, Done, Outcome, Stored};

pub fn register(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let known = ["allocatable_memory_bytes", "cpu_cores", "ipv6_prefix", "addresses_max"];
    let body = Body::of(given.body, &known)?;
    let name = given.name("node");
    check_name("node", name)?;
    let memory = body.whole("allocatable_memory_bytes", 0, NUMBER_MAX)?;
    let memory = memory.ok_or_else(|| Problem::invalid("allocatable_memory_bytes", "it is missing"))?;
    let cores = body.whole("cpu_cores", 1, 65_536)?.ok_or_else(|| Problem::invalid("cpu_cores", "it is missing"))?;
    let stored = asking.find(NODES, name);
    // Whoever tells only its capacity says nothing of its prefix.
    let kept = stored.as_ref().map_or(NO_PREFIX, |node| text(node.spec(), &["ipv6_prefix"])).to_owned();
    let prefix = body.text("ipv6_prefix")?.unwrap_or(&kept);
    check_prefix(asking, name, prefix)?;
    let mut spec = json!({
        "allocatable_memory_bytes": memory, "cpu_cores": cores, "state": "active", "ipv6_prefix": prefix,
        "addresses_max": body.whole("addresses_max", 0, 65_535)?.unwrap_or(65_535),
    });
    let mut out = Outcome::new(Done::Created);
    let row = match stored {
        None => asking.create(&mut out, NODES, name, spec, "node.registered", json!({"cpu_cores": cores})),
        Some(stored) => {
            asking.check_version(&stored)?;
            spec["state"] = stored.spec()["state"].clone();
            spec["version"] = stored.spec()["version"].clone();
            if let Some(reason) = stored.spec().get("reason") {
                spec["reason"] = reason.clone();
            }
            if spec == *stored.spec() {
                return Ok(Outcome::as_it_was(&stored));
            }
            out.done = Done::Changed;
            asking.change(&mut out, &stored, spec, &[("node.capacity_changed", json!({"cpu_cores": cores}))])
        }
    };
    Ok(out.showing(row))
}

/// No two instances have one address, and so no two nodes one prefix.
fn check_prefix(asking: &Asking<'_>, node: &str, prefix: &str) -> Result<(), Problem> {
    let wrong = || Problem::invalid("ipv6_prefix", "it is no prefix of 64 bits: write fd12:3456:789a:1::/64");
    if prefix != NO_PREFIX && said_prefix(prefix).is_none() {
        return Err(wrong());
    }
    let bits = prefix_of(node, prefix);
    let same = |one: &&Stored| one.name != node && prefix_of(&one.name, text(one.spec(), &["ipv6_prefix"])) == bits;
    match asking.list(NODES).iter().find(same) {
        None => Ok(()),
        Some(other) => Err(prefix_in_use(&other.name)),
    }
}

pub fn prefix_in_use(other: &str) -> Problem {
    Problem::conflict("prefix_in_use", format!("node {other:?} has this prefix"))
}

pub fn set_state(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["state", "reason"])?;
    let state = body.word("state", &["active", "draining", "disabled", "degraded", "offline"])?;
    let state = state.ok_or_else(|| Problem::invalid("state", "it is missing"))?;
    let stored = asking.load_to_change(NODES, given.name("node"))?;
    let was = text(stored.spec(), &["state"]).to_owned();
    let mut spec = stored.spec().clone();
    spec["state"] = json!(state);
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("reason");
    }
    if let Some(reason) = body.text("reason")? {
        spec["reason"] = json!(reason);
    }
    if spec == *stored.spec() {
        return Ok(Outcome::as_it_was(&stored));
    }
    let payload = json!({"old": was, "new": state, "reason": spec["reason"]});
    let mut out = Outcome::new(Done::Changed);
    let row = asking.change(&mut out, &stored, spec, &[("node.state_changed", payload)]);
    Ok(out.showing(row))
}
