//! SparkApplication: a driver, and executors, of which there may come to be more or fewer while it runs.

use kinds::fields::{at, text};
use kinds::resources::quantity_of;
use quantity::Quantity;
use serde_json::{Map, Value};

use super::{Component, Requirements, Reserve, add, add_sidecars, count, memory};

const MEBIBYTE: u32 = 20;
/// What Spark adds to the memory of a Java process at least.
const OVERHEAD_MEBIBYTES_MIN: u64 = 384;

pub fn components(application: &Value, reserve: Reserve) -> Result<Vec<Component>, String> {
    let executors = executors(application, reserve)?;
    Ok(vec![
        component("driver", 1, "spark-kubernetes-driver", application)?,
        component("executor", executors, "spark-kubernetes-executor", application)?,
    ])
}

fn executors(application: &Value, reserve: Reserve) -> Result<u32, String> {
    let instances = count(at(application, &["spec", "executor", "instances"]), 1, "spec.executor.instances")?;
    if at(application, &["spec", "dynamicAllocation", "enabled"]) != Some(&Value::Bool(true)) {
        return Ok(instances);
    }
    let of = |field: &str, default: u32| {
        let value = at(application, &["spec", "dynamicAllocation", field]);
        count(value, default, &format!("spec.dynamicAllocation.{field}"))
    };
    let (min, initial) = (of("minExecutors", 0)?, of("initialExecutors", 0)?);
    let start = instances.max(initial).max(min);
    match reserve {
        Reserve::Initial => Ok(start),
        Reserve::Min => Ok(min),
        Reserve::Max => match at(application, &["spec", "dynamicAllocation", "maxExecutors"]) {
            Some(_) => of("maxExecutors", start),
            None => {
                Err("spec.dynamicAllocation.maxExecutors is not set: what may come to run cannot be reserved".into())
            }
        },
    }
}

/// How many executors there may come to be, where that is said.
pub fn executors_max(application: &Value) -> Option<u32> {
    let is_dynamic = at(application, &["spec", "dynamicAllocation", "enabled"]) == Some(&Value::Bool(true));
    let most = at(application, &["spec", "dynamicAllocation", "maxExecutors"]).filter(|most| !most.is_null());
    most.filter(|_| is_dynamic).and_then(|most| count(Some(most), 0, "spec.dynamicAllocation.maxExecutors").ok())
}

fn component(name: &str, replicas: u32, container: &str, application: &Value) -> Result<Component, String> {
    let nothing = Value::Null;
    let part = at(application, &["spec", name]).unwrap_or(&nothing);
    let mut request = Map::new();
    let given = |field: &str| part.get(field).filter(|value| !value.is_null());
    let cores = match given("coreRequest").or(given("cores")) {
        Some(cores) => quantity_of("cpu", cores).map_err(|error| format!("spec.{name}: {error}"))?,
        None => Quantity::parse("1").unwrap_or_default(),
    };
    add(&mut request, "cpu", cores)?;
    add(&mut request, "memory", memory::quantity(mebibytes(name, part, application)? << MEBIBYTE))?;
    if let Some(gpu) = given("gpu") {
        let (resource, quantity) = (text(gpu, &["name"]), count(gpu.get("quantity"), 0, "gpu.quantity")?);
        if resource.is_empty() {
            return Err(format!("spec.{name}.gpu.name is empty: name the resource, such as nvidia.com/gpu"));
        }
        add(&mut request, resource, Quantity::parse(&quantity.to_string()).unwrap_or_default())?;
    }
    add_sidecars(&mut request, part.get("template"), container)?;
    let class = text(part, &["priorityClassName"]);
    let shared = text(application, &["spec", "batchSchedulerOptions", "priorityClassName"]);
    let priority_class_name = if class.is_empty() { shared } else { class }.to_owned();
    let requirements = Requirements { resource_request: request, priority_class_name };
    Ok(Component { name: name.into(), replicas, replica_requirements: Some(requirements) })
}

/// Memory and what Spark adds to it, in whole mebibytes as Spark counts.
fn mebibytes(name: &str, part: &Value, application: &Value) -> Result<u64, String> {
    let size = |field: &str| -> Result<Option<u64>, String> {
        let Some(value) = part.get(field).filter(|value| !value.is_null()) else { return Ok(None) };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let why = "use a number with k, m, g or t, as Java writes sizes";
        let bytes = memory::bytes(&text, MEBIBYTE).ok_or_else(|| format!("spec.{name}.{field} is {text:?}: {why}"))?;
        // Spark rounds down, and a pod gets what that is.
        Ok(Some(bytes >> MEBIBYTE))
    };
    let memory = size("memory")?.unwrap_or(1024);
    let overhead = match size("memoryOverhead")? {
        Some(overhead) => overhead,
        None => {
            let is_java = matches!(text(application, &["spec", "type"]), "Java" | "Scala" | "java" | "scala");
            let factor = text(application, &["spec", "memoryOverheadFactor"]);
            let factor = match (factor, is_java) {
                ("", true) => "0.1",
                ("", false) => "0.4",
                (factor, _) => factor,
            };
            let wrong = || format!("spec.memoryOverheadFactor is {factor:?}: use a number such as 0.1");
            let nanos = Quantity::parse(factor).map_err(|_| wrong())?.amount().nanos();
            let part = i128::from(memory).checked_mul(nanos).ok_or_else(wrong)? / 1_000_000_000;
            u64::try_from(part).map_err(|_| wrong())?.max(OVERHEAD_MEBIBYTES_MIN)
        }
    };
    let sum = memory.checked_add(overhead).filter(|sum| *sum < 1 << 40);
    sum.ok_or_else(|| format!("spec.{name}: more memory than can be counted"))
}
