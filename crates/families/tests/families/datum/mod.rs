//! Datum: definitions, grants, claims.

use rules::GroupResource;
use serde_json::{Value, json};

use crate::desk::{Desk, resource};

mod buckets;
mod claims;
mod company;
mod edits;
mod growth;
mod levels;
mod measured;
mod meters;
mod policies;
mod records;
mod rights;
mod told;

const CPU: &str = "compute.datumapis.com/instances/cpu";
const MEMORY: &str = "compute.datumapis.com/instances/memoryAllocated";
const COUNT: &str = "compute.datumapis.com/instances/count";
const LOCATION: &str = "compute.datumapis.com/location";
const TYPE: &str = "compute.datumapis.com/instanceType";

fn definitions() -> GroupResource {
    resource("servicequotadefinitions.quota.datumapis.com")
}

fn grants() -> GroupResource {
    resource("resourcequotagrants.quota.datumapis.com")
}

fn claims() -> GroupResource {
    resource("resourcequotaclaims.quota.datumapis.com")
}

fn effective() -> GroupResource {
    resource("effectivequotagrants.quota.datumapis.com")
}

fn projects() -> GroupResource {
    resource("projects.resources.datumapis.com")
}

fn definition(name: &str, unit: &str, default: Option<&str>) -> Value {
    let mut spec = json!({
        "serviceRef": {"apiGroup": "compute.datumapis.com", "kind": "Service", "name": "compute.datumapis.com"},
        "resourceName": name, "unit": unit, "allowedDimensions": [LOCATION, TYPE],
    });
    if let Some(default) = default {
        spec["defaultLimit"] = json!({"value": default});
    }
    json!({"spec": spec})
}

/// Buckets as `(value, selector)`.
fn limit(name: &str, buckets: &[(&str, Value)]) -> Value {
    let buckets: Vec<Value> =
        buckets.iter().map(|(value, selector)| json!({"value": value, "selector": selector})).collect();
    json!({"name": name, "dimensionLabels": ["resources.datumapis.com/project", LOCATION, TYPE], "buckets": buckets})
}

fn grant(kind: &str, name: &str, limits: &[Value]) -> Value {
    json!({"spec": {"resourceRef": {"apiGroup": "compute.datumapis.com", "kind": kind, "name": name}, "limits": limits}})
}

/// Requests as `(name, quantity)`, with these dimensions.
fn claim(requests: &[(&str, &str)], dimensions: Value) -> Value {
    let resources: Vec<Value> =
        requests.iter().map(|(name, quantity)| json!({"name": name, "quantity": quantity})).collect();
    json!({"metadata": {"generation": 1}, "spec": {
        "resourceRef": {"apiGroup": "compute.datumapis.com", "kind": "Instance", "name": "i"},
        "resources": resources, "dimensions": dimensions,
    }})
}

fn at(location: &str, kind: &str) -> Value {
    let mut dimensions = json!({});
    if !location.is_empty() {
        dimensions[LOCATION] = json!(location);
    }
    if !kind.is_empty() {
        dimensions[TYPE] = json!(kind);
    }
    dimensions
}

/// Cpu, memory and instances are defined, in namespace `proj-abc`.
fn desk() -> Desk {
    let mut desk = Desk::new();
    desk.namespace("proj-abc", &[]);
    desk.apply(&definitions(), "", "cpu", definition(CPU, "cores", None)).unwrap();
    desk.apply(&definitions(), "", "memory", definition(MEMORY, "GiB", None)).unwrap();
    desk.apply(&definitions(), "", "count", definition(COUNT, "count", None)).unwrap();
    desk
}

impl Desk {
    fn phase(&self, namespace: &str, name: &str) -> String {
        let status = self.status(&claims(), namespace, name);
        let text = |field: &str| status[field].as_str().unwrap_or("-").to_owned();
        format!("{}/{}", text("phase"), text("reason"))
    }

    fn message(&self, namespace: &str, name: &str) -> String {
        self.status(&claims(), namespace, name)["message"].as_str().unwrap_or_default().to_owned()
    }

    /// `Type=Status/Reason`, one condition after the other.
    fn conditions(&self, of: &GroupResource, namespace: &str, name: &str) -> String {
        let status = self.status(of, namespace, name);
        let list = status["conditions"].as_array().cloned().unwrap_or_default();
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or("").to_owned();
        let show = |one: &Value| format!("{}={}/{}", text(one, "type"), text(one, "status"), text(one, "reason"));
        list.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    /// Claims in `proj-abc`.
    fn ask(&mut self, name: &str, requests: &[(&str, &str)], dimensions: Value) -> String {
        self.apply(&claims(), "proj-abc", name, claim(requests, dimensions)).unwrap();
        self.phase("proj-abc", name)
    }

    /// `used/limit` of the buckets of a resource, the narrowest first.
    fn drawn(&self, entity: &str, name: &str) -> String {
        let status = self.status(&effective(), "", entity);
        let resources = status["resources"].as_array().cloned().unwrap_or_default();
        let one = resources.iter().find(|one| one["name"] == name).cloned().unwrap_or_default();
        let buckets = one["buckets"].as_array().cloned().unwrap_or_default();
        let show = |one: &Value| format!("{}/{}", one["used"].as_str().unwrap(), one["limit"].as_str().unwrap());
        buckets.iter().map(show).collect::<Vec<_>>().join(" ")
    }
}
