//! FlinkDeployment: one or more job managers, and as many task managers as its parallelism needs.

use kinds::fields::{at, text};
use kinds::resources::quantity_of;
use quantity::Quantity;
use serde_json::{Map, Value};

use super::conf::Conf;
use super::pods::Made;
use super::{Component, Requirements, add, count, memory};

/// The container that the operator makes itself.
const MAIN: &str = "flink-main-container";

/// One of the two parts of a deployment, as its fields and as Flink's settings name it.
struct Part {
    field: &'static str,
    name: &'static str,
    /// The settings that say how many CPUs; the later one counts.
    cpu: [&'static str; 2],
    /// The setting by which Flink goes before those, and before what the operator makes of the field.
    cpu_first: Option<&'static str>,
    memory: &'static str,
    /// What else settings may say of memory, out of which Flink makes a whole that is not counted here.
    memory_prefix: &'static str,
    /// What Flink takes where nothing is said.
    memory_default: &'static str,
}

const JOB_MANAGER: Part = Part {
    field: "jobManager",
    name: "jobmanager",
    cpu: ["kubernetes.jobmanager.cpu", "kubernetes.jobmanager.cpu.amount"],
    cpu_first: None,
    memory: "jobmanager.memory.process.size",
    memory_prefix: "jobmanager.memory.",
    memory_default: "1600m",
};

const TASK_MANAGER: Part = Part {
    field: "taskManager",
    name: "taskmanager",
    cpu: ["kubernetes.taskmanager.cpu", "kubernetes.taskmanager.cpu.amount"],
    cpu_first: Some("taskmanager.cpu.cores"),
    memory: "taskmanager.memory.process.size",
    memory_prefix: "taskmanager.memory.",
    memory_default: "1728m",
};

pub fn components(deployment: &Value) -> Result<Vec<Component>, String> {
    let conf = Conf::of(deployment, "flinkConfiguration");
    if let Some((rest, _)) = conf.under("kubernetes.pod-template-file").next() {
        let key = format!("kubernetes.pod-template-file{rest}");
        return Err(format!("{} is a file that is not read here: use podTemplate", conf.place(&key)));
    }
    let standby = conf.count("kubernetes.jobmanager.replicas")?.unwrap_or(1);
    let managers = count(at(deployment, &["spec", "jobManager", "replicas"]), standby, "spec.jobManager.replicas")?;
    let slots = conf.count(SLOTS)?.unwrap_or(1);
    if slots == 0 {
        return Err(format!("{} is 0: a task manager has a slot at least", conf.place(SLOTS)));
    }
    let default = conf.count("parallelism.default")?.unwrap_or(1);
    let parallelism = count(at(deployment, &["spec", "job", "parallelism"]), default, "spec.job.parallelism")?;
    let least = conf.count("slotmanager.number-of-slots.min")?.unwrap_or(0);
    let needed = parallelism.max(least).div_ceil(slots).max(1);
    let workers = count(at(deployment, &["spec", "taskManager", "replicas"]), needed, "spec.taskManager.replicas")?;
    // What settings say of single parts of a job is asked for beside all that.
    let workers = workers.max(overrides(&conf)?.div_ceil(slots));
    let spare = conf.count("slotmanager.redundant-taskmanager-num")?.unwrap_or(0);
    let workers = workers.checked_add(spare).ok_or("more task managers than can be counted")?;
    Ok(vec![
        component(&JOB_MANAGER, managers, 1, deployment, &conf)?,
        component(&TASK_MANAGER, workers, slots, deployment, &conf)?,
    ])
}

const SLOTS: &str = "taskmanager.numberOfTaskSlots";
const OVERRIDES: &str = "pipeline.jobvertex-parallelism-overrides";

/// The largest parallelism of a part of the job: a list of `part:number`, or a setting each.
fn overrides(conf: &Conf) -> Result<u32, String> {
    let listed = conf.get(OVERRIDES).into_iter().flat_map(|list| list.split([',', ';']));
    let listed = listed.map(|one| one.rsplit(':').next().unwrap_or(one));
    let tree = format!("{OVERRIDES}.");
    let each = conf.under(&tree).map(|(_, number)| number);
    let mut most = 0;
    for number in listed.chain(each) {
        let number = number.trim_matches(|one: char| one.is_whitespace() || "'\"{}".contains(one));
        most = most.max(count(Some(&Value::from(number)), 0, &conf.place(OVERRIDES))?);
    }
    Ok(most)
}

fn component(part: &Part, replicas: u32, cpus: u32, deployment: &Value, conf: &Conf) -> Result<Component, String> {
    let own = at(deployment, &["spec", part.field]);
    let mut request = Map::new();
    add(&mut request, "cpu", cpu(part, cpus, own, conf)?)?;
    add(&mut request, "memory", memory_of(part, own, conf)?)?;
    if let Some(size) = resource(own, "ephemeralStorage") {
        let size = memory::flink(&size).map_err(|why| format!("spec.{}.resource.{why}", part.field))?;
        add(&mut request, "ephemeral-storage", size)?;
    }
    if part.name == TASK_MANAGER.name {
        add_external(&mut request, conf)?;
    }
    let requirements = pod(request, deployment, own)?;
    Ok(Component { name: part.name.into(), replicas, replica_requirements: Some(requirements) })
}

/// A field of `resource`, which comes before what settings say.
fn resource(own: Option<&Value>, field: &str) -> Option<String> {
    let value = own?.get("resource")?.get(field).filter(|value| !value.is_null())?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn cpu(part: &Part, cpus: u32, own: Option<&Value>, conf: &Conf) -> Result<Quantity, String> {
    let set = |key: &&str| {
        let text = conf.get(key)?;
        let wrong = |_| format!("{} is {text:?}: use a number such as 1.5", conf.place(key));
        Some(Quantity::parse(text).map_err(wrong))
    };
    // By whom Flink goes depends on its version: the larger counts.
    let first = part.cpu_first.as_ref().and_then(set).transpose()?;
    if let Some(cpu) = resource(own, "cpu") {
        let cpu = quantity_of("cpu", &Value::from(cpu));
        let cpu = cpu.map_err(|error| format!("spec.{}.resource: {error}", part.field))?;
        return Ok(first.map_or(cpu.clone(), |first| first.max(cpu)));
    }
    let said = part.cpu.iter().rev().find_map(set).transpose()?;
    // Flink writes -1 for what it takes where nothing is said.
    let said = first.max(said).filter(|cpu| !cpu.amount().is_negative());
    Ok(said.unwrap_or_else(|| Quantity::parse(&cpus.to_string()).unwrap_or_default()))
}

fn memory_of(part: &Part, own: Option<&Value>, conf: &Conf) -> Result<Quantity, String> {
    if let Some(size) = resource(own, "memory") {
        return memory::flink(&size).map_err(|why| format!("spec.{}.resource.{why}", part.field));
    }
    if let Some(size) = conf.get(part.memory) {
        return memory::flink(size).map_err(|why| format!("{}: {why}", conf.place(part.memory)));
    }
    if let Some((rest, _)) = conf.under(part.memory_prefix).find(|(rest, _)| rest.ends_with(".size")) {
        let key = format!("{}{rest}", part.memory_prefix);
        let field = part.field;
        return Err(format!("{} is a part only: say the whole in spec.{field}.resource.memory", conf.place(&key)));
    }
    memory::flink(part.memory_default)
}

/// Devices of task managers.
fn add_external(request: &mut Map<String, Value>, conf: &Conf) -> Result<(), String> {
    for (rest, name) in conf.under("external-resource.") {
        let Some(device) = rest.strip_suffix(".kubernetes.config-key") else { continue };
        let key = format!("external-resource.{device}.amount");
        let amount = conf.count(&key)?.unwrap_or(0);
        add(request, name, Quantity::parse(&amount.to_string()).unwrap_or_default())?;
    }
    Ok(())
}

/// The operator merges the part's pod template into the one that both share: element by element, or by name where it is told so.
/// That may be said where it is not seen here, so that of each resource the larger counts.
fn pod(request: Map<String, Value>, deployment: &Value, own: Option<&Value>) -> Result<Requirements, String> {
    let nothing = Value::Null;
    let shared = at(deployment, &["spec", "podTemplate"]).unwrap_or(&nothing);
    let own = own.and_then(|own| own.get("podTemplate")).unwrap_or(&nothing);
    let mut larger: Option<Requirements> = None;
    for by_name in [false, true] {
        let template = merged(shared, own, by_name);
        let made = Made { main: MAIN, request: request.clone(), template: &template, more: [&[], &[]] };
        let pod = made.pod()?;
        let Some(larger) = &mut larger else {
            larger = Some(pod);
            continue;
        };
        for (name, value) in pod.resource_request {
            let amount = |value: &Value| quantity_of(&name, value).map(|one| one.amount()).unwrap_or_default();
            if larger.resource_request.get(&name).is_none_or(|had| amount(had) < amount(&value)) {
                larger.resource_request.insert(name, value);
            }
        }
    }
    Ok(larger.unwrap_or_default())
}

fn merged(to: &Value, from: &Value, by_name: bool) -> Value {
    match (to, from) {
        (to, Value::Null) => to.clone(),
        (Value::Object(to), Value::Object(from)) => {
            let mut all = to.clone();
            for (field, value) in from {
                let had = all.get(field).unwrap_or(&Value::Null);
                let value = merged(had, value, by_name);
                all.insert(field.clone(), value);
            }
            Value::Object(all)
        }
        (Value::Array(to), Value::Array(from)) => {
            let mut all = to.clone();
            for (place, value) in from.iter().enumerate() {
                let name = text(value, &["name"]);
                let same = match by_name {
                    true => all.iter().position(|one| !name.is_empty() && text(one, &["name"]) == name),
                    false => Some(place).filter(|place| *place < all.len()),
                };
                match same {
                    Some(place) => all[place] = merged(&all[place], value, by_name),
                    None => all.push(value.clone()),
                }
            }
            Value::Array(all)
        }
        (_, from) => from.clone(),
    }
}
