//! What an environment takes: what is allocated for it, and what it was promised and does not have yet.
//!
//! A group is the instances of one process type of one environment. It has as many slots as were asked for, and one more while
//! a rollout surges. A slot is charged for what fills it or for one of the desired release, whichever is more; instances beyond
//! the slots, and those that drain because the group was scaled down, count beside them until they are stopped.
//!
//! So what was accepted is charged before anything is allocated, whatever the sizes are that a rollout comes from and goes to,
//! and nothing that becomes of an instance takes more: what follows from a write is never refused, and so it must not grow.
//! That holds because an instance comes only into a slot that is free ([`enters`]), and is scaled down only where there are more
//! than slots ([`leaves`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::fields::{given, text};
use quantity::Amount;
use serde_json::{Map, Value};

use super::OrgFacts;
use super::footprint::Footprint;
use super::guard::conflict;
use super::names::{ENVS, INSTANCES, env_name};
use super::numbers::{self, NUMBER_MAX};
use super::usage::counts;
use crate::{Change, Must, Parsed, PolicyObject, Refusal, View};

/// What of an instance its group asks for.
#[derive(Clone, Debug)]
pub struct InstanceFacts {
    pub name: String,
    pub env: String,
    pub process_type: String,
    pub node: String,
    /// Whether its node said that it runs no more: then it has no address either.
    pub has_stopped: bool,
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
            name: text(object, &["metadata", "name"]).into(),
            env: env_name(text(spec, &["app"]), text(spec, &["env"])),
            process_type: text(spec, &["process_type"]).into(),
            node: text(spec, &["node"]).into(),
            has_stopped: text(spec, &["reported", "status"]) == "stopped",
            counts: counts(state),
            fills: counts(state) && !scaled_down,
            footprint: Footprint::of_one(&spec["resources"]).ok(),
        }
    }

    pub fn parse(object: &Value) -> Parsed {
        Arc::new(InstanceFacts::read(object))
    }
}

/// What the instances of one group take.
#[derive(Clone, Debug, Default)]
struct Allocated {
    /// Of all of them: those that fill slots or are more than there are, and those that drain because the group was scaled down.
    sum: Footprint,
    /// Of the former, each, the smallest first.
    memory: Vec<i64>,
    cpu: Vec<Amount>,
}

impl Allocated {
    fn add(&mut self, footprint: Footprint, fills: bool) -> Option<()> {
        self.sum = self.sum.plus(footprint)?;
        if fills {
            self.memory.push(footprint.memory_bytes);
            self.cpu.push(footprint.cpu);
        }
        Some(())
    }

    fn sort(&mut self) {
        self.memory.sort_unstable();
        self.cpu.sort_unstable();
    }
}

/// What all instances of an organization take: by environment, and by process type.
#[derive(Debug, Default)]
struct Holdings(BTreeMap<String, Result<BTreeMap<String, Allocated>, &'static str>>);

const TOO_MUCH: &str = "it takes more than can be counted";

impl Holdings {
    /// Those of an organization, made once for as long as its instances stay as they are.
    fn of(org: &str, view: &dyn View) -> Arc<Holdings> {
        let resource = INSTANCES.resource();
        let read = || {
            let instances = view.parsed(&resource, org, &InstanceFacts::parse);
            Holdings::read(instances.iter().filter_map(|one| one.downcast_ref::<InstanceFacts>()))
        };
        let made = view.gathered(&resource, org, &|| Arc::new(read()));
        made.downcast::<Holdings>().unwrap_or_else(|_| Arc::new(read()))
    }

    fn read<'a>(instances: impl Iterator<Item = &'a InstanceFacts>) -> Holdings {
        let mut holdings = Holdings::default();
        for one in instances.filter(|one| one.counts) {
            if !holdings.0.contains_key(&one.env) {
                holdings.0.insert(one.env.clone(), Ok(BTreeMap::new()));
            }
            let Some(of_env) = holdings.0.get_mut(&one.env) else { continue };
            if let Ok(groups) = of_env
                && let Err(why) = add(groups, one)
            {
                *of_env = Err(why);
            }
        }
        holdings.0.values_mut().flatten().flat_map(BTreeMap::values_mut).for_each(Allocated::sort);
        holdings
    }
}

fn add(groups: &mut BTreeMap<String, Allocated>, one: &InstanceFacts) -> Result<(), &'static str> {
    let footprint = one.footprint.ok_or("one of its instances does not say what it takes")?;
    if !groups.contains_key(&one.process_type) {
        groups.insert(one.process_type.clone(), Allocated::default());
    }
    let Some(group) = groups.get_mut(&one.process_type) else { return Ok(()) };
    group.add(footprint, one.fills).ok_or(TOO_MUCH)
}

struct Group<'a> {
    allocated: &'a Allocated,
    slots: i64,
    /// One of the desired release.
    unit: Footprint,
}

impl Group<'_> {
    /// What it takes; nothing where that is more than can be counted.
    fn taken(&self) -> Option<Footprint> {
        let slots = usize::try_from(self.slots).ok()?;
        let filled = self.allocated.memory.len().min(slots);
        let free = i64::try_from(slots - filled).ok()?;
        self.allocated.sum.plus(self.unit.times(free)?)?.plus(self.lacking(filled)?)
    }

    /// What the slots that are filled would take more if they all had the desired release. Of too many the smallest are taken for
    /// those that stay: whoever goes, it is no more.
    fn lacking(&self, filled: usize) -> Option<Footprint> {
        let mut lacking = Footprint::NONE;
        let memory = self.allocated.memory.iter().take(filled);
        for has in memory.take_while(|has| **has < self.unit.memory_bytes) {
            lacking.memory_bytes = lacking.memory_bytes.checked_add(self.unit.memory_bytes.checked_sub(*has)?)?;
        }
        let cpu = self.allocated.cpu.iter().take(filled);
        for has in cpu.take_while(|has| **has < self.unit.cpu) {
            lacking.cpu = lacking.cpu.checked_add(self.unit.cpu.checked_sub(*has)?)?;
        }
        Some(lacking)
    }
}

/// Whether an organization reserves what it accepts.
pub fn reserves(org: &Value) -> bool {
    text(org, &["spec", "reservations"]) != "check"
}

/// How many slots a process type has, and what one of the desired release takes.
fn slots(process: &Value) -> Result<(i64, Footprint), String> {
    let desired = match given(process, &["desired"]) {
        None => 0,
        Some(value) => numbers::whole(value).map_err(|why| format!("desired: {why}"))?,
    };
    let unit = match given(process, &["unit"]) {
        None => Footprint::NONE,
        Some(unit) => Footprint::of_one(unit)?,
    };
    let surge = i64::from(text(process, &["rollout", "mode"]) == "surge");
    Ok((desired.saturating_add(surge), unit))
}

/// What one process type wants: all its slots, with the desired release.
pub fn target(process: &Value) -> Result<Footprint, String> {
    let (slots, unit) = slots(process)?;
    unit.times(slots).ok_or_else(|| "it asks for more than can be counted".into())
}

/// What an environment takes with these instances.
fn held(env: &str, spec: &Value, instances: &Holdings, reserves: bool) -> Result<Footprint, String> {
    let too_much = || String::from(TOO_MUCH);
    let (none, nothing) = (BTreeMap::new(), Allocated::default());
    let allocated = match instances.0.get(env) {
        None => &none,
        Some(Ok(groups)) => groups,
        Some(Err(why)) => return Err((*why).into()),
    };
    let group = |allocated| Group { allocated, slots: 0, unit: Footprint::NONE };
    let mut groups: BTreeMap<&str, Group<'_>> =
        allocated.iter().map(|(name, allocated)| (name.as_str(), group(allocated))).collect();
    let no_processes = Map::new();
    let processes = given(spec, &["processes"]).and_then(Value::as_object).unwrap_or(&no_processes);
    if reserves {
        for (name, process) in processes {
            let (slots, unit) = slots(process).map_err(|why| format!("process type {name:?}: {why}"))?;
            let group = groups.entry(name).or_insert_with(|| group(&nothing));
            (group.slots, group.unit) = (slots, unit);
        }
    }
    let mut sum = Footprint::NONE;
    for group in groups.values() {
        sum = group.taken().and_then(|taken| sum.plus(taken)).ok_or_else(too_much)?;
    }
    let fits = sum.instances <= NUMBER_MAX && sum.memory_bytes <= NUMBER_MAX;
    if fits { Ok(sum) } else { Err(too_much()) }
}

/// An environment says what it takes, whoever wrote it.
pub fn env(object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
    if object.object.is_null() {
        return Ok(Must::AsItIs);
    }
    let instances = Holdings::of(object.namespace, view);
    let reserves = OrgFacts::reserves(object.namespace, view);
    let held = held(object.name, &object.object["spec"], &instances, reserves)
        .map_err(|why| Refusal::forbidden(format!("environment {:?}: {why}", object.name)))?;
    let held = held.shown();
    // Most changes of an environment leave what it takes as it is.
    if given(object.object, &["spec", "held"]) == Some(&held) {
        return Ok(Must::AsItIs);
    }
    let mut env = object.object.clone();
    match env.get_mut("spec") {
        Some(Value::Object(spec)) => drop(spec.insert("held".into(), held)),
        _ => return Err(Refusal::forbidden(format!("environment {:?} has no spec", object.name))),
    }
    Ok(Must::Be(env))
}

/// How a group stands in a step: its slots, what fills them, and its process type as its environment has it.
struct Standing {
    slots: i64,
    filled: i64,
    process: Value,
    /// Whether the instance that is asked about fills one of them.
    has: bool,
}

/// The group of an instance with this spec; `one` is the instance that is asked about.
fn standing(org: &str, spec: &Value, one: &str, view: &dyn View) -> Result<Standing, Refusal> {
    let env = env_name(text(spec, &["app"]), text(spec, &["env"]));
    let process_type = text(spec, &["process_type"]);
    let stored = view.get(&ENVS.resource(), org, &env).unwrap_or_default();
    let process = stored["spec"]["processes"][process_type].clone();
    let (slots, _) = slots(&process).map_err(|why| Refusal::forbidden(format!("environment {env:?}: {why}")))?;
    let instances = view.parsed(&INSTANCES.resource(), org, &InstanceFacts::parse);
    let filling = instances.iter().filter_map(|one| one.downcast_ref::<InstanceFacts>());
    let filling = filling.filter(|one| one.fills && one.env == env && one.process_type == process_type);
    let (mut filled, mut has) = (0, false);
    for instance in filling {
        filled += 1;
        has |= instance.name == one;
    }
    Ok(Standing { slots, filled, process, has })
}

/// A new instance comes into a free slot of its group, or into that of the one it replaces, with what the group wants now.
pub fn enters(change: &Change<'_>, spec: &Value, view: &dyn View) -> Result<(), Refusal> {
    let group = standing(change.namespace, spec, text(spec, &["replaces"]), view)?;
    let filled = group.filled - i64::from(group.has);
    if filled >= group.slots {
        let why = format!("its group wants {} instances, and they are there", group.slots);
        return Err(conflict("nothing_wanted", why));
    }
    let wanted = Footprint::of_one(&group.process["unit"]).ok();
    if wanted != Footprint::of_one(&spec["resources"]).ok() || group.process["release"] != spec["release"] {
        return Err(conflict("group_changed", "its group wants another release by now"));
    }
    Ok(())
}

/// An instance drains because its group was scaled down where there are more than are wanted.
pub fn leaves(change: &Change<'_>, new: &Value, view: &dyn View) -> Result<(), Refusal> {
    let (was, is) = (InstanceFacts::read(change.old), InstanceFacts::read(new));
    if !was.fills || is.fills || !is.counts {
        return Ok(());
    }
    let group = standing(change.namespace, &new["spec"], "", view)?;
    if group.filled > group.slots {
        return Ok(());
    }
    let why = format!("its group wants {} instances and has {}: none is to go", group.slots, group.filled);
    Err(conflict("instance_wanted", why))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size() -> impl Strategy<Value = Footprint> {
        (1i64..6, 1i64..6).prop_map(|(memory_bytes, cpu)| Footprint {
            instances: 1,
            memory_bytes,
            cpu: Amount::from_units(cpu),
        })
    }

    fn is_within(one: Footprint, other: Footprint) -> bool {
        one.max(other) == other
    }

    proptest! {
        /// Of whatever sizes a group is: what becomes of one of its instances takes no more than was charged.
        #[test]
        fn nothing_that_becomes_of_an_instance_takes_more(
            filling in prop::collection::vec(size(), 0..6), unit in size(), slots in 0i64..6, at in 0usize..6,
        ) {
            let taken = |filling: Vec<Footprint>, beside: Footprint| {
                let mut allocated = Allocated { sum: beside, ..Allocated::default() };
                filling.into_iter().for_each(|one| allocated.add(one, true).unwrap());
                allocated.sort();
                Group { allocated: &allocated, slots, unit }.taken().unwrap()
            };
            let before = taken(filling.clone(), Footprint::NONE);
            let sum = filling.iter().fold(Footprint::NONE, |sum, one| sum.plus(*one).unwrap());
            prop_assert!(is_within(sum, before), "all that is there is charged");
            prop_assert!(is_within(unit.times(slots).unwrap(), before), "all that is wanted is charged");
            let count = i64::try_from(filling.len()).unwrap();
            if count < slots {
                let more = [filling.clone(), vec![unit]].concat();
                prop_assert_eq!(taken(more, Footprint::NONE), before, "it comes");
            }
            if at < filling.len() {
                let mut fewer = filling.clone();
                let one = fewer.remove(at);
                prop_assert!(is_within(taken(fewer.clone(), Footprint::NONE), before), "it stops");
                if count > slots {
                    prop_assert!(is_within(taken(fewer.clone(), one), before), "it drains");
                } else {
                    fewer.push(unit);
                    prop_assert!(is_within(taken(fewer, Footprint::NONE), before), "it is replaced");
                }
            }
        }
    }
}
