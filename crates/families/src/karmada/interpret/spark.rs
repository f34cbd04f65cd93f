//! SparkApplication: a driver, and executors, of which there may come to be more or fewer while it runs.
//!
//! What its fields leave open may be said in `sparkConf`. Where both say something, the operator goes by the field; the larger counts,
//! whoever is asked.

use kinds::fields::{at, items, text};
use kinds::resources::quantity_of;
use quantity::{Amount, Quantity};
use serde_json::{Map, Value};

use super::conf::Conf;
use super::pods::Made;
use super::{Component, Reserve, add, count, memory};

const MEBIBYTE: u32 = 20;
/// What Spark adds to the memory of a Java process at least.
const OVERHEAD_MEBIBYTES_MIN: u64 = 384;

pub fn components(application: &Value, reserve: Reserve) -> Result<Vec<Component>, String> {
    let conf = conf(application);
    for part in ["driver", "executor"] {
        let key = format!("spark.kubernetes.{part}.podTemplateFile");
        if conf.get(&key).is_some() {
            return Err(format!("{} is a file that is not read here: use spec.{part}.template", conf.place(&key)));
        }
    }
    let executors = executors(application, &conf, reserve)?;
    Ok(vec![
        component("driver", 1, "spark-kubernetes-driver", application, &conf)?,
        component("executor", executors, "spark-kubernetes-executor", application, &conf)?,
    ])
}

fn conf(application: &Value) -> Conf {
    Conf::of(application, "sparkConf")
}

fn is_dynamic(application: &Value, conf: &Conf) -> bool {
    at(application, &["spec", "dynamicAllocation", "enabled"]) == Some(&Value::Bool(true))
        || conf.is("spark.dynamicAllocation.enabled")
}

/// A number of executors, from the field of `dynamicAllocation` and from the setting of that name.
fn dynamic(application: &Value, conf: &Conf, field: &str) -> Result<Option<u32>, String> {
    let value = at(application, &["spec", "dynamicAllocation", field]).filter(|value| !value.is_null());
    let value = value.map(|value| count(Some(value), 0, &format!("spec.dynamicAllocation.{field}"))).transpose()?;
    Ok(value.max(conf.count(&format!("spark.dynamicAllocation.{field}"))?))
}

fn executors(application: &Value, conf: &Conf, reserve: Reserve) -> Result<u32, String> {
    let written = at(application, &["spec", "executor", "instances"]).filter(|value| !value.is_null());
    let written = written.map(|value| count(Some(value), 0, "spec.executor.instances")).transpose()?;
    let instances = written.max(conf.count("spark.executor.instances")?).unwrap_or(1);
    if !is_dynamic(application, conf) {
        return Ok(instances);
    }
    let of = |field: &str| dynamic(application, conf, field);
    let (min, initial) = (of("minExecutors")?.unwrap_or(0), of("initialExecutors")?.unwrap_or(0));
    match reserve {
        Reserve::Initial => Ok(instances.max(initial).max(min)),
        Reserve::Min => Ok(min),
        Reserve::Max => of("maxExecutors")?.ok_or_else(|| {
            "spec.dynamicAllocation.maxExecutors is not set: what may come to run cannot be reserved".into()
        }),
    }
}

/// How many executors there may come to be, where that is said.
pub fn executors_max(application: &Value) -> Option<u32> {
    let conf = conf(application);
    let most = dynamic(application, &conf, "maxExecutors").ok().flatten();
    most.filter(|_| is_dynamic(application, &conf))
}

fn component(
    name: &str,
    replicas: u32,
    container: &str,
    application: &Value,
    conf: &Conf,
) -> Result<Component, String> {
    let nothing = Value::Null;
    let part = at(application, &["spec", name]).unwrap_or(&nothing);
    let mut request = Map::new();
    let given = |field: &str| part.get(field).filter(|value| !value.is_null());
    add(&mut request, "cpu", cores(name, part, conf)?)?;
    add(&mut request, "memory", memory::quantity(mebibytes(name, part, application, conf)? << MEBIBYTE))?;
    if let Some(gpu) = given("gpu") {
        let (resource, quantity) = (text(gpu, &["name"]), count(gpu.get("quantity"), 0, "gpu.quantity")?);
        if resource.is_empty() {
            return Err(format!("spec.{name}.gpu.name is empty: name the resource, such as nvidia.com/gpu"));
        }
        add(&mut request, resource, Quantity::parse(&quantity.to_string()).unwrap_or_default())?;
    }
    add_devices(name, &mut request, conf)?;
    let template = part.get("template").unwrap_or(&nothing);
    let more = [items(part, &["sidecars"]), items(part, &["initContainers"])];
    let mut requirements = Made { main: container, request, template, more }.pod()?;
    let class = text(part, &["priorityClassName"]);
    let shared = text(application, &["spec", "batchSchedulerOptions", "priorityClassName"]);
    let said = if class.is_empty() { shared } else { class };
    if !said.is_empty() {
        requirements.priority_class_name = said.to_owned();
    }
    Ok(Component { name: name.into(), replicas, replica_requirements: Some(requirements) })
}

/// What a pod requests of CPUs, or else how many tasks it runs at once.
fn cores(name: &str, part: &Value, conf: &Conf) -> Result<Quantity, String> {
    let settings = [format!("spark.kubernetes.{name}.request.cores"), format!("spark.{name}.cores")];
    for (field, key) in ["coreRequest", "cores"].into_iter().zip(&settings) {
        let read =
            |value: &Value, place: String| quantity_of("cpu", value).map_err(|error| format!("{place}: {error}"));
        let written = part.get(field).filter(|value| !value.is_null());
        let written = written.map(|value| read(value, format!("spec.{name}.{field}"))).transpose()?;
        let set = conf.get(key).map(|text| read(&Value::from(text), conf.place(key))).transpose()?;
        if let Some(cores) = written.into_iter().chain(set).max() {
            return Ok(cores);
        }
    }
    Ok(Quantity::parse("1").unwrap_or_default())
}

/// Devices that settings ask for, as `vendor/name`.
fn add_devices(name: &str, request: &mut Map<String, Value>, conf: &Conf) -> Result<(), String> {
    for (rest, _) in conf.under(&format!("spark.{name}.resource.")) {
        let Some(device) = rest.strip_suffix(".amount") else { continue };
        let of = |field: &str| format!("spark.{name}.resource.{device}.{field}");
        let amount = conf.count(&of("amount"))?.unwrap_or(0);
        let vendor = conf.get(&of("vendor"));
        let vendor =
            vendor.ok_or_else(|| format!("{} is not set: the resource has no name", conf.place(&of("vendor"))))?;
        let resource = format!("{vendor}/{device}");
        let more = Quantity::parse(&amount.to_string()).unwrap_or_default();
        // The field `gpu` becomes these settings: what both say is said once.
        let had = request.get(&resource).and_then(|had| quantity_of(&resource, had).ok());
        if had.is_none_or(|had| had < more) {
            request.remove(&resource);
            add(request, &resource, more)?;
        }
    }
    Ok(())
}

/// Memory and what Spark adds to it, in whole mebibytes as Spark counts.
fn mebibytes(name: &str, part: &Value, application: &Value, conf: &Conf) -> Result<u64, String> {
    let read = |text: &str, place: &str| {
        let why = "use a number with k, m, g or t, as Java writes sizes";
        let bytes = memory::bytes(text, MEBIBYTE).ok_or_else(|| format!("{place} is {text:?}: {why}"))?;
        // Spark rounds down, and a pod gets what that is.
        Ok::<u64, String>(bytes >> MEBIBYTE)
    };
    let set = |key: &str| conf.get(key).map(|text| read(text, &conf.place(key))).transpose();
    let size = |field: &str| -> Result<Option<u64>, String> {
        let value = part.get(field).filter(|value| !value.is_null());
        let text = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let written = text.map(|text| read(&text, &format!("spec.{name}.{field}"))).transpose()?;
        Ok(written.max(set(&format!("spark.{name}.{field}"))?))
    };
    let is_java = matches!(text(application, &["spec", "type"]), "Java" | "Scala" | "java" | "scala");
    let memory = size("memory")?.unwrap_or(1024);
    let overhead = match size("memoryOverhead")? {
        Some(overhead) => overhead,
        None => {
            let least = set(&format!("spark.{name}.minMemoryOverhead"))?.unwrap_or(OVERHEAD_MEBIBYTES_MIN);
            overhead(name, memory, application, conf, is_java)?.max(least)
        }
    };
    let mut sum = memory.checked_add(overhead);
    if name == "executor" && conf.is("spark.memory.offHeap.enabled") {
        let key = "spark.memory.offHeap.size";
        // In bytes, where no unit is said.
        let bytes = |text: &str| memory::bytes(text, 0).ok_or_else(|| format!("{} is {text:?}", conf.place(key)));
        let bytes = conf.get(key).map(bytes).transpose()?.unwrap_or(0);
        sum = sum.and_then(|sum| sum.checked_add(bytes >> MEBIBYTE));
    }
    if name == "executor" && !is_java {
        let python = set("spark.executor.pyspark.memory")?.unwrap_or(0);
        sum = sum.and_then(|sum| sum.checked_add(python));
    }
    let sum = sum.filter(|sum| *sum < 1 << 40);
    sum.ok_or_else(|| format!("spec.{name}: more memory than can be counted"))
}

/// The part of the memory that Spark adds; the largest of what is said of it.
fn overhead(name: &str, memory: u64, application: &Value, conf: &Conf, is_java: bool) -> Result<u64, String> {
    let own = format!("spark.{name}.memoryOverheadFactor");
    let factor = text(application, &["spec", "memoryOverheadFactor"]);
    let keys = ["spark.kubernetes.memoryOverheadFactor", &own];
    let set = keys.into_iter().filter_map(|key| Some((conf.place(key), conf.get(key)?)));
    let written = Some(factor).filter(|factor| !factor.is_empty()).map(|one| ("spec.memoryOverheadFactor".into(), one));
    let mut said: Vec<(String, &str)> = written.into_iter().chain(set).collect();
    if said.is_empty() {
        said.push((String::new(), if is_java { "0.1" } else { "0.4" }));
    }
    let mut most = 0;
    for (place, factor) in said {
        let wrong = || format!("{place} is {factor:?}: use a number such as 0.1");
        let amount = Quantity::parse(factor).map_err(|_| wrong())?.amount();
        let nanos = Some(amount).filter(|amount| *amount >= Amount::ZERO).ok_or_else(wrong)?.nanos();
        let part = i128::from(memory).checked_mul(nanos).ok_or_else(wrong)? / 1_000_000_000;
        most = most.max(u64::try_from(part).map_err(|_| wrong())?);
    }
    Ok(most)
}
