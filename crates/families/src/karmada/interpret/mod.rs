//! What a workload asks for, how a part of it is written for one cluster, and whether it is well: by kind, without a clock and
//! without anything but the object.
//!
//! Deployment, StatefulSet, ReplicaSet, ReplicationController, Job and Pod have one pod template; FlinkDeployment and SparkApplication have
//! components, in units of their own, and what a CronJob runs is one. Anything else asks for nothing and goes to every cluster as it is.

mod conf;
mod flink;
mod memory;
mod pods;
mod spark;

use kinds::fields::{at, items, text};
use kinds::resources::quantity_of;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::binding::{Component, Requirements, Target};
use pods::{add_claims, pods};

/// How many executors of a SparkApplication that grows by itself are reserved.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reserve {
    /// As many as it starts with.
    #[default]
    Initial,
    /// As few as it may have.
    Min,
    /// As many as it may come to have.
    Max,
}

/// What a workload asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    pub replicas: u32,
    pub requirements: Option<Requirements>,
    pub components: Vec<Component>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Deployment,
    StatefulSet,
    ReplicaSet,
    ReplicationController,
    Job,
    CronJob,
    Pod,
    Flink,
    Spark,
    Other,
}

impl Kind {
    fn of(object: &Value) -> Kind {
        let (group, _) = text(object, &["apiVersion"]).split_once('/').unwrap_or(("", ""));
        match (group, text(object, &["kind"])) {
            ("apps", "Deployment") => Kind::Deployment,
            ("apps", "StatefulSet") => Kind::StatefulSet,
            ("apps", "ReplicaSet") => Kind::ReplicaSet,
            ("", "ReplicationController") => Kind::ReplicationController,
            ("batch", "Job") => Kind::Job,
            ("batch", "CronJob") => Kind::CronJob,
            ("", "Pod") => Kind::Pod,
            ("flink.apache.org", "FlinkDeployment") => Kind::Flink,
            ("sparkoperator.k8s.io", "SparkApplication") => Kind::Spark,
            _ => Kind::Other,
        }
    }
}

/// What a template asks for. An error names what cannot be counted; such a template is not placed anywhere.
pub fn wants(template: &Value, reserve: Reserve) -> Result<Wants, String> {
    match Kind::of(template) {
        Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet | Kind::ReplicationController => {
            let replicas = count(at(template, &["spec", "replicas"]), 1, "spec.replicas")?;
            let mut requirements = pods(at(template, &["spec", "template"]))?;
            let claims = items(template, &["spec", "volumeClaimTemplates"]).len();
            if let Some(requirements) = requirements.as_mut().filter(|_| Kind::of(template) == Kind::StatefulSet) {
                add_claims(&mut requirements.resource_request, claims)?;
            }
            Ok(Wants { replicas, requirements, components: Vec::new() })
        }
        Kind::Job => {
            let requirements = pods(at(template, &["spec", "template"]))?;
            Ok(Wants { replicas: at_once(template)?, requirements, components: Vec::new() })
        }
        // One run, which a cluster has as a whole.
        Kind::CronJob => {
            let nothing = Value::Null;
            let job = at(template, &["spec", "jobTemplate"]).unwrap_or(&nothing);
            let replica_requirements = pods(at(job, &["spec", "template"]))?;
            let run = Component { name: "job".into(), replicas: at_once(job)?, replica_requirements };
            Ok(Wants { components: vec![run], ..Wants::default() })
        }
        Kind::Pod => Ok(Wants { replicas: 1, requirements: pods(Some(template))?, components: Vec::new() }),
        Kind::Flink => Ok(Wants { components: flink::components(template)?, ..Wants::default() }),
        Kind::Spark => Ok(Wants { components: spark::components(template, reserve)?, ..Wants::default() }),
        Kind::Other => Ok(Wants::default()),
    }
}

/// Which part of a template says what its pods ask for, where that may change while it is there.
pub fn what_it_asks(template: &Value) -> Option<&'static str> {
    match Kind::of(template) {
        Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet | Kind::ReplicationController => Some("/spec/template"),
        Kind::CronJob => Some("/spec/jobTemplate/spec"),
        Kind::Flink | Kind::Spark => Some("/spec"),
        // Of a Job and of a Pod it does not change.
        Kind::Job | Kind::Pod | Kind::Other => None,
    }
}

/// How many pods of a Job run at the same time.
fn at_once(job: &Value) -> Result<u32, String> {
    let parallelism = count(at(job, &["spec", "parallelism"]), 1, "spec.parallelism")?;
    let completions = count(at(job, &["spec", "completions"]), u32::MAX, "spec.completions")?;
    Ok(parallelism.min(completions))
}

/// How many pods of a component may come to run beside those that are asked for, where the template says so.
pub fn potential(template: &Value) -> Option<String> {
    match Kind::of(template) {
        Kind::Spark => spark::executors_max(template).map(|executors| format!("executor={executors}")),
        _ => None,
    }
}

/// A number of pods, or the default where nothing is said.
fn count(value: Option<&Value>, default: u32, field: &str) -> Result<u32, String> {
    let value = value.filter(|value| !value.is_null());
    let number = |value: &Value| match value {
        Value::String(text) => text.trim().parse::<i64>().ok(),
        other => other.as_i64(),
    };
    match value {
        None => Ok(default),
        Some(value) => {
            let read =
                number(value).and_then(|number| u32::try_from(number).ok()).filter(|one| *one <= i32::MAX as u32);
            read.ok_or_else(|| format!("{field} is {value}: use a whole number from 0 to {}", i32::MAX))
        }
    }
}

/// Adds an amount to a list; none below zero.
fn add(list: &mut Map<String, Value>, name: &str, more: quantity::Quantity) -> Result<(), String> {
    if more.amount().is_negative() {
        return Err(format!("{name} is {more}: an amount is not below zero"));
    }
    let sum = match list.get(name) {
        None => more,
        Some(had) => {
            let had = quantity_of(name, had).map_err(|error| error.to_string())?;
            had.checked_add(&more).ok_or_else(|| format!("{name} is more than can be counted"))?
        }
    };
    list.insert(name.to_owned(), Value::String(sum.canonical().to_string()));
    Ok(())
}

/// Takes out of a template what the server it was written to gave it, and another server gives it anew: addresses of a Service,
/// what makes a Job's pods its own.
pub fn prune(template: &mut Value) {
    let core = text(template, &["apiVersion"]) == "v1";
    if core && text(template, &["kind"]) == "Service" && text(template, &["spec", "clusterIP"]) != "None" {
        let spec = template.get_mut("spec").and_then(Value::as_object_mut);
        spec.into_iter().for_each(|spec| spec.retain(|field, _| !matches!(&**field, "clusterIP" | "clusterIPs")));
    }
    if Kind::of(template) == Kind::Job && at(template, &["spec", "manualSelector"]) != Some(&Value::Bool(true)) {
        let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return };
        spec.remove("selector");
        let labels =
            spec.get_mut("template").and_then(|one| one.pointer_mut("/metadata/labels")).and_then(Value::as_object_mut);
        let is_made = |label: &str| {
            let name = label.strip_prefix("batch.kubernetes.io/").unwrap_or(label);
            matches!(name, "controller-uid" | "job-name")
        };
        labels.into_iter().for_each(|labels| labels.retain(|label, _| !is_made(label)));
    }
}

/// Writes one cluster's part into a template: of a Job that is divided among `all`, its part of the completions, too. What has
/// components goes as a whole.
pub fn revise(template: &mut Value, target: &Target, all: &[Target]) {
    if !template.get("spec").is_some_and(Value::is_object) {
        return;
    }
    match Kind::of(template) {
        Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet | Kind::ReplicationController => {
            template["spec"]["replicas"] = json!(target.replicas);
        }
        Kind::Job => {
            template["spec"]["parallelism"] = json!(target.replicas);
            let completions = at(template, &["spec", "completions"]).and_then(Value::as_u64);
            if let Some(completions) = completions.filter(|_| all.len() > 1) {
                let weights: Vec<(&str, u64)> = all.iter().map(|one| (&*one.name, u64::from(one.replicas))).collect();
                let shares = super::schedule::largest_remainder(completions, &weights, "");
                let own = shares.iter().find(|(name, _)| **name == *target.name).map_or(0, |(_, share)| *share);
                template["spec"]["completions"] = json!(own);
            }
        }
        _ => {}
    }
}

/// How an object does in a member.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Health {
    Healthy,
    Unhealthy,
    Unknown,
}

impl Health {
    pub fn name(self) -> &'static str {
        match self {
            Health::Healthy => "Healthy",
            Health::Unhealthy => "Unhealthy",
            Health::Unknown => "Unknown",
        }
    }
}

pub fn health(object: &Value) -> Health {
    let number = |path: &[&str]| at(object, path).and_then(Value::as_i64).unwrap_or(0);
    let is = |good: bool| if good { Health::Healthy } else { Health::Unhealthy };
    if object.get("status").is_none_or(Value::is_null) {
        return if Kind::of(object) == Kind::Other { Health::Healthy } else { Health::Unknown };
    }
    let wanted = at(object, &["spec", "replicas"]).and_then(Value::as_i64).unwrap_or(1);
    match Kind::of(object) {
        Kind::Deployment => {
            let seen = number(&["status", "observedGeneration"]) >= number(&["metadata", "generation"]);
            is(seen && number(&["status", "availableReplicas"]) >= wanted)
        }
        Kind::StatefulSet | Kind::ReplicaSet | Kind::ReplicationController => {
            is(number(&["status", "readyReplicas"]) >= wanted)
        }
        Kind::Job => is(!kinds::conditions::of(object, "Failed").is_some_and(|one| one["status"] == "True")),
        Kind::Pod => match text(object, &["status", "phase"]) {
            "Running" | "Succeeded" => Health::Healthy,
            "Failed" => Health::Unhealthy,
            _ => Health::Unknown,
        },
        Kind::Flink => {
            let state = text(object, &["status", "jobStatus", "state"]);
            match text(object, &["status", "lifecycleState"]) {
                "FAILED" => Health::Unhealthy,
                "STABLE" | "DEPLOYED" if state == "RUNNING" || state == "FINISHED" => Health::Healthy,
                _ if state == "FAILED" => Health::Unhealthy,
                _ => Health::Unknown,
            }
        }
        Kind::Spark => match text(object, &["status", "applicationState", "state"]) {
            "RUNNING" | "COMPLETED" => Health::Healthy,
            "FAILED" | "SUBMISSION_FAILED" => Health::Unhealthy,
            _ => Health::Unknown,
        },
        Kind::CronJob | Kind::Other => Health::Healthy,
    }
}

/// Whether a workload ran to its end: nobody is to run it once more.
pub fn is_finished(object: &Value) -> bool {
    let is = |condition: &str| kinds::conditions::of(object, condition).is_some_and(|one| one["status"] == "True");
    match Kind::of(object) {
        Kind::Job => is("Complete") || is("Failed"),
        Kind::Pod => matches!(text(object, &["status", "phase"]), "Succeeded" | "Failed"),
        Kind::Spark => matches!(text(object, &["status", "applicationState", "state"]), "COMPLETED" | "FAILED"),
        _ => false,
    }
}

/// Whether it is taken away by itself some time after its end.
pub fn goes_by_itself(template: &Value) -> bool {
    let says = |field: &str| at(template, &["spec", field]).is_some_and(|one| !one.is_null());
    match Kind::of(template) {
        Kind::Job => says("ttlSecondsAfterFinished"),
        Kind::Spark => says("timeToLiveSeconds"),
        _ => false,
    }
}

/// The numbers of a workload's status that are added up over clusters.
const ADDED: [&str; 9] = [
    "replicas",
    "readyReplicas",
    "updatedReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "currentReplicas",
    "active",
    "succeeded",
    "failed",
];

/// What a template's status says of all clusters together; `None` where that is nothing.
pub fn aggregate(template: &Value, told: &[(&str, &Value)]) -> Option<Value> {
    match (Kind::of(template), told) {
        (Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet | Kind::ReplicationController | Kind::Job, _) => {
            let mut status = Map::new();
            for field in ADDED {
                let values = told.iter().filter_map(|(_, status)| status.get(field)?.as_i64());
                let sum = values.reduce(|sum, more| sum.saturating_add(more));
                // What nobody tells is none: a number that was told before says nothing any more.
                status.insert(field.into(), json!(sum));
            }
            Some(Value::Object(status))
        }
        (Kind::Flink | Kind::Spark, [(_, status)]) => Some(Value::clone(status)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
