//! FlinkDeployment: one or more job managers, and as many task managers as its parallelism needs.

use kinds::fields::{at, text};
use kinds::resources::quantity_of;
use serde_json::{Map, Value};

use super::{Component, Requirements, add, add_sidecars, count, memory};

/// The container that the operator makes itself.
const MAIN: &str = "flink-main-container";

pub fn components(deployment: &Value) -> Result<Vec<Component>, String> {
    let managers = count(at(deployment, &["spec", "jobManager", "replicas"]), 1, "spec.jobManager.replicas")?;
    let slots_field = "spec.flinkConfiguration[taskmanager.numberOfTaskSlots]";
    let slots =
        count(at(deployment, &["spec", "flinkConfiguration", "taskmanager.numberOfTaskSlots"]), 1, slots_field)?;
    if slots == 0 {
        return Err(format!("{slots_field} is 0: a task manager has a slot at least"));
    }
    let parallelism = count(at(deployment, &["spec", "job", "parallelism"]), 1, "spec.job.parallelism")?;
    let needed = parallelism.div_ceil(slots).max(1);
    let workers = count(at(deployment, &["spec", "taskManager", "replicas"]), needed, "spec.taskManager.replicas")?;
    Ok(vec![
        component("jobmanager", managers, "jobManager", deployment)?,
        component("taskmanager", workers, "taskManager", deployment)?,
    ])
}

fn component(name: &str, replicas: u32, field: &str, deployment: &Value) -> Result<Component, String> {
    let part = at(deployment, &["spec", field]);
    let resource = part.and_then(|part| part.get("resource"));
    let mut request = Map::new();
    if let Some(cpu) = resource.and_then(|resource| resource.get("cpu")).filter(|cpu| !cpu.is_null()) {
        add(&mut request, "cpu", quantity_of("cpu", cpu).map_err(|error| format!("spec.{field}.resource: {error}"))?)?;
    }
    for (field_of, resource_name) in [("memory", "memory"), ("ephemeralStorage", "ephemeral-storage")] {
        let Some(size) = resource.and_then(|resource| resource.get(field_of)).filter(|size| !size.is_null()) else {
            continue;
        };
        let size = match size {
            Value::String(text) => memory::flink(text),
            other => memory::flink(&other.to_string()),
        };
        add(&mut request, resource_name, size.map_err(|why| format!("spec.{field}.resource.{why}"))?)?;
    }
    let shared = at(deployment, &["spec", "podTemplate"]);
    let own = part.and_then(|part| part.get("podTemplate"));
    for template in [shared, own] {
        add_sidecars(&mut request, template, MAIN)?;
    }
    let class = |template: Option<&Value>| {
        let class = template.map(|template| text(template, &["spec", "priorityClassName"]));
        class.filter(|class| !class.is_empty()).map(str::to_owned)
    };
    let priority_class_name = class(own).or_else(|| class(shared)).unwrap_or_default();
    let requirements = Requirements { resource_request: request, priority_class_name };
    Ok(Component { name: name.into(), replicas, replica_requirements: Some(requirements) })
}
