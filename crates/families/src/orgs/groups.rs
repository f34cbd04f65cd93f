//! What an environment takes: what is allocated for it, and what it was promised and does not have yet.
//!
//! A group is the instances of one process type of one environment. Its target is as many of the desired release as were asked
//! for, with one more while a rollout surges. Instances that fill a slot of the target count once, as part of it; those that
//! drain because the group was scaled down count beside it until they are stopped. So what was accepted is charged before
//! anything is allocated, and to allocate it takes no more.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::fields::{given, text};
use serde_json::{Map, Value};

use super::footprint::Footprint;
use super::names::{INSTANCES, ORGS};
use super::numbers::{self, NUMBER_MAX};
use super::usage::counts;
use crate::{Must, Parsed, PolicyObject, Refusal, View, World};

/// What of an instance its group asks for.
#[derive(Clone, Debug)]
pub struct InstanceFacts {
    pub env: String,
    pub process_type: String,
    pub counts: bool,
    /// Whether it fills a slot of its group's target.
    pub fills: bool,
    pub footprint: Option<Footprint>,
}

impl InstanceFacts {
    pub fn read(object: &Value) -> InstanceFacts {
        let spec = &object["spec"];
        let state = text(spec, &["desired_state"]);
        let scaled_down = state == "draining" && text(spec, &["drain_reason"]) == "scale_down";
        InstanceFacts {
            env: super::names::env_name(text(spec, &["app"]), text(spec, &["env"])),
            process_type: text(spec, &["process_type"]).into(),
            counts: counts(state),
            fills: counts(state) && !scaled_down,
            footprint: Footprint::of_one(&spec["resources"]).ok(),
        }
    }

    fn parse(object: &Value) -> Parsed {
        Arc::new(InstanceFacts::read(object))
    }
}

#[derive(Default)]
struct Group {
    counted: Footprint,
    filled: Footprint,
    target: Footprint,
}

/// Whether an organization reserves what it accepts.
pub fn reserves(org: &Value) -> bool {
    text(org, &["spec", "reservations"]) != "check"
}

/// The target of one process type: so many of its unit, and what a surge holds.
pub fn target(process: &Value) -> Result<Footprint, String> {
    let desired = match given(process, &["desired"]) {
        None => 0,
        Some(value) => numbers::whole(value).map_err(|why| format!("desired: {why}"))?,
    };
    let unit = match given(process, &["unit"]) {
        None => Footprint::NONE,
        Some(unit) => Footprint::of_one(unit)?,
    };
    let surge = i64::from(text(process, &["rollout", "mode"]) == "surge");
    unit.times(desired.saturating_add(surge)).ok_or_else(|| "it asks for more than can be counted".into())
}

/// What an environment takes with these instances.
fn held<'a>(
    env: &str,
    spec: &Value,
    instances: impl Iterator<Item = &'a InstanceFacts>,
    reserves: bool,
) -> Result<Footprint, String> {
    let too_much = || String::from("it takes more than can be counted");
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for one in instances.filter(|one| one.env == env && one.counts) {
        let footprint = one.footprint.ok_or("one of its instances does not say what it takes")?;
        let group = groups.entry(&one.process_type).or_default();
        group.counted = group.counted.plus(footprint).ok_or_else(too_much)?;
        if one.fills {
            group.filled = group.filled.plus(footprint).ok_or_else(too_much)?;
        }
    }
    let none = Map::new();
    let processes = given(spec, &["processes"]).and_then(Value::as_object).unwrap_or(&none);
    if reserves {
        for (name, process) in processes {
            let target = target(process).map_err(|why| format!("process type {name:?}: {why}"))?;
            groups.entry(name).or_default().target = target;
        }
    }
    let mut sum = Footprint::NONE;
    for group in groups.values() {
        let beside = group.counted.minus(group.filled).ok_or_else(too_much)?;
        let taken = beside.plus(group.filled.max(group.target)).ok_or_else(too_much)?;
        sum = sum.plus(taken).ok_or_else(too_much)?;
    }
    let fits = sum.instances <= NUMBER_MAX && sum.memory_bytes <= NUMBER_MAX;
    if fits { Ok(sum) } else { Err(too_much()) }
}

/// An environment says what it takes, whoever wrote it.
pub fn env(object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
    if object.object.is_null() {
        return Ok(Must::AsItIs);
    }
    let org = view.get(&ORGS.resource(), object.namespace, object.namespace);
    let instances = view.parsed(&INSTANCES.resource(), object.namespace, &InstanceFacts::parse);
    let instances = instances.iter().filter_map(|one| one.downcast_ref::<InstanceFacts>());
    let reserves = org.is_none_or(|org| reserves(&org));
    let held = held(object.name, &object.object["spec"], instances, reserves)
        .map_err(|why| Refusal::forbidden(format!("environment {:?}: {why}", object.name)))?;
    let mut env = object.object.clone();
    match env.get_mut("spec") {
        Some(Value::Object(spec)) => drop(spec.insert("held".into(), held.shown())),
        _ => return Err(Refusal::forbidden(format!("environment {:?} has no spec", object.name))),
    }
    Ok(Must::differ(object.object, env))
}

/// What is allocated for an organization and in which groups: for whoever plans.
pub fn instances(world: &dyn World, org: &str) -> Vec<Parsed> {
    world.parsed(&INSTANCES.resource(), org, &InstanceFacts::parse)
}
