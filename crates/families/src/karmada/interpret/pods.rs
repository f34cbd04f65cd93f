//! What one pod of a template requests, counted as any pod is: where an operator makes a container itself, that is put in first.

use kinds::fields::{at, items, text};
use kinds::resources::pod::pod_usage;
use kinds::resources::quantity_of;
use kinds::strategies::default_pod_level;
use serde_json::{Map, Value, json};

use super::super::binding::Requirements;
use super::super::names::CLAIMS;
use super::add;

/// What one pod of a template requests. Where only a limit is stated, that is requested.
pub fn pods(template: Option<&Value>) -> Result<Option<Requirements>, String> {
    let Some(spec) = template.and_then(|template| template.get("spec")) else { return Ok(None) };
    let mut spec = spec.clone();
    for list in LISTS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            fill_requests(container);
            refuse_negative(container)?;
        }
    }
    for stated in ["/resources/requests", "/resources/limits", "/overhead"] {
        refuse_below_zero(spec.pointer(stated))?;
    }
    let class = text(&spec, &["priorityClassName"]).to_owned();
    let mut pod = json!({ "spec": spec });
    default_pod_level(&mut pod);
    let of_all = pod_usage(&pod).map_err(|error| error.to_string())?;
    // Clusters that do not know what is said of a pod as a whole add up its containers: the larger counts.
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("resources");
    }
    let of_each = pod_usage(&pod).map_err(|error| error.to_string())?;
    let mut request = Map::new();
    for (name, measured) in of_all.requests.iter() {
        let each = of_each.requests.get(name).filter(|each| each.amount > measured.amount);
        add(&mut request, name, each.unwrap_or(measured).to_quantity())?;
    }
    let volumes = pod.get("spec").map_or(&[][..], |spec| items(spec, &["volumes"]));
    add_claims(
        &mut request,
        volumes.iter().filter(|one| at(one, &["ephemeral", "volumeClaimTemplate"]).is_some()).count(),
    )?;
    Ok(Some(Requirements { resource_request: request, priority_class_name: class }))
}

/// Claims that are made for each pod, and counted as such.
pub fn add_claims(request: &mut Map<String, Value>, claims: usize) -> Result<(), String> {
    if claims == 0 {
        return Ok(());
    }
    let claims = quantity_of(CLAIMS, &json!(claims)).map_err(|error| error.to_string())?;
    add(request, CLAIMS, claims)
}

const LISTS: [&str; 2] = ["containers", "initContainers"];

/// A container that an operator makes, and the pod template that it merges it with.
pub struct Made<'a> {
    /// Its name; one of that name in the template is it.
    pub main: &'a str,
    /// What the operator has it request, whatever the template says of these names.
    pub request: Map<String, Value>,
    pub template: &'a Value,
    /// Containers that come to the template's, and init containers.
    pub more: [&'a [Value]; 2],
}

impl Made<'_> {
    pub fn pod(&self) -> Result<Requirements, String> {
        let mut spec = self.template.get("spec").filter(|spec| spec.is_object()).cloned().unwrap_or_else(|| json!({}));
        let mut main = json!({"name": self.main});
        let mut containers = Vec::new();
        for container in items(&spec, &["containers"]) {
            match text(container, &["name"]) == self.main {
                true => main = container.clone(),
                false => containers.push(container.clone()),
            }
        }
        fill_requests(&mut main);
        let said = at(&main, &["resources", "requests"]).and_then(Value::as_object);
        let mut request: Map<String, Value> = said.cloned().unwrap_or_default();
        // The operator writes these two, also where nothing is said of them here.
        request.retain(|name, _| !matches!(&**name, "cpu" | "memory"));
        request.extend(self.request.clone());
        containers.insert(0, json!({"name": self.main, "resources": {"requests": request}}));
        containers.extend(self.more[0].iter().cloned());
        let inits: Vec<Value> = items(&spec, &["initContainers"]).iter().chain(self.more[1]).cloned().collect();
        spec["containers"] = Value::Array(containers);
        spec["initContainers"] = Value::Array(inits);
        Ok(pods(Some(&json!({ "spec": spec })))?.unwrap_or_default())
    }
}

fn fill_requests(container: &mut Value) {
    let Some(limits) = at(container, &["resources", "limits"]).and_then(Value::as_object).cloned() else { return };
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if requests.is_null() {
        *requests = json!({});
    }
    if let Some(requests) = requests.as_object_mut() {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn refuse_negative(container: &Value) -> Result<(), String> {
    refuse_below_zero(at(container, &["resources", "requests"]))
}

/// One amount below zero would make the others' less.
fn refuse_below_zero(list: Option<&Value>) -> Result<(), String> {
    for (name, value) in list.and_then(Value::as_object).into_iter().flatten() {
        let amount = quantity_of(name, value).map_err(|error| error.to_string())?;
        if amount.amount().is_negative() {
            return Err(format!("{name} is {amount}: an amount is not below zero"));
        }
    }
    Ok(())
}
