//! How many instances of each process type an environment wants.

use kinds::fields::text;
use serde_json::{Value, json};

use super::super::footprint::Footprint;
use super::super::names::*;
use super::super::{groups, numbers};
use super::Given;
use super::body::Body;
use super::deploys::is_leaving;
use super::problem::Problem;
use super::work::{Asking, Done, Outcome};

/// Replicas of one process type.
pub const REPLICAS_MAX: i64 = 100;

pub fn set_scale(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let name = env_name(given.name("app"), given.name("env"));
    let body = Body::of(given.body, &["scales"])?;
    let scales = read_scales(body.required("scales")?)?;
    let stored = asking.load_to_change(ENVS, &name)?;
    let mut spec = stored.spec().clone();
    let (mut more, mut is_mixed, mut old) = (Footprint::NONE, false, Vec::new());
    let mut held = Footprint::read(&spec["held"]).ok();
    let mut attached = None;
    for (process_type, desired) in &scales {
        // What the release has no more is only waited for until it is gone.
        let process = spec["processes"].get_mut(process_type.as_str());
        let process = process.filter(|process| process.is_object() && !is_leaving(process));
        let Some(process) = process else {
            let why = format!("there is no process type {process_type:?} in what is deployed here");
            return Err(Problem::invalid("scales", why));
        };
        let before = process["desired"].as_i64().unwrap_or(0);
        old.push(json!({"process_type": process_type, "desired": before}));
        let unit = Footprint::of_one(&process["unit"]);
        let other = unit.as_ref().ok().and_then(|unit| unit.times(desired - before));
        held = held.zip(other).and_then(|(held, other)| held.plus(other));
        if *desired > before {
            let unit = unit.map_err(|why| Problem::invalid("scales", why))?;
            let growth = unit.times(desired - before).and_then(|growth| more.plus(growth));
            more = growth.ok_or_else(|| Problem::invalid("scales", "it asks for more than can be counted"))?;
        }
        is_mixed |= *desired < before;
        if *desired > 1 {
            let attachments = attached.get_or_insert_with(|| asking.list(ATTACHMENTS));
            let mounts = |one: &&super::work::Stored| {
                let spec = one.spec();
                env_name(text(spec, &["app"]), text(spec, &["env"])) == name
                    && text(spec, &["process_type"]) == process_type
            };
            if attachments.iter().any(|one| mounts(&one)) {
                let why = format!("process type {process_type:?} has a volume: it has at most one replica");
                return Err(Problem::conflict("volume_replica_limit", why));
            }
        }
        process["desired"] = json!(desired);
    }
    if spec == *stored.spec() {
        return Ok(Outcome::as_it_was(&stored));
    }
    // What is scaled down in the same request gives no credit: it still runs.
    let reserves = asking.reserves();
    if is_mixed || !reserves {
        asking.look(more)?;
    }
    // What it will take, unless more run than are wanted: the step says how it is, and has nothing to write again where this is right.
    if let Some(held) = held.filter(|_| reserves) {
        spec["held"] = held.shown();
    }
    spec["changed_seq"] = json!(asking.around.now_ms);
    let told: Vec<Value> =
        scales.iter().map(|(name, desired)| json!({"process_type": name, "desired": desired})).collect();
    let payload = json!({"scales": told, "old_scales": old});
    let mut out = Outcome::new(Done::Changed);
    let row = asking.change(&mut out, &stored, spec, &[("env.scale_set", payload)]);
    // It would be refused later, and in other words.
    for process in row["processes"].as_object().into_iter().flatten().map(|(_, process)| process) {
        groups::target(process).map_err(|why| Problem::invalid("scales", why))?;
    }
    Ok(out.showing(row))
}

/// `[{"process_type": "web", "desired": 3}]`, each process type once.
fn read_scales(value: &Value) -> Result<Vec<(String, i64)>, Problem> {
    let list = value.as_array().filter(|list| !list.is_empty() && list.len() <= 64);
    let list = list.ok_or_else(|| Problem::invalid("scales", "it is not a list of 1 to 64 scales"))?;
    let mut scales: Vec<(String, i64)> = Vec::with_capacity(list.len());
    for one in list {
        let body = Body::of(one, &["process_type", "desired"])?;
        let name = body.name("process_type")?;
        let desired = numbers::whole(body.required("desired")?).ok().filter(|number| *number <= REPLICAS_MAX);
        let wrong = || Problem::invalid("desired", format!("it is not a whole number from 0 to {REPLICAS_MAX}"));
        if scales.iter().any(|(known, _)| known == name) {
            return Err(Problem::invalid("scales", format!("process type {name:?} is there twice")));
        }
        scales.push((name.into(), desired.ok_or_else(wrong)?));
    }
    Ok(scales)
}
