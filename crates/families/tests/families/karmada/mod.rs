//! Karmada: a quota over many clusters, charged by bindings.

use rules::GroupResource;
use serde_json::{Value, json};

use crate::desk::{Desk, resource};

mod failover;
mod leases;
mod quotas;
mod slices;
mod storm;
mod templates;
mod validation;

fn quotas() -> GroupResource {
    resource("federatedresourcequotas.policy.karmada.io")
}

fn bindings() -> GroupResource {
    resource("resourcebindings.work.karmada.io")
}

fn policies() -> GroupResource {
    resource("propagationpolicies.policy.karmada.io")
}

fn desk() -> Desk {
    desk_with(families::karmada::Settings::default())
}

fn desk_with(karmada: families::karmada::Settings) -> Desk {
    let mut desk = Desk::with(families::Settings { karmada, ..families::Settings::default() });
    desk.namespace("a", &[]);
    desk.namespace("b", &[]);
    desk
}

fn quota(overall: Value) -> Value {
    json!({"spec": {"overall": overall}})
}

fn on(clusters: &[(&str, u32)]) -> Value {
    clusters.iter().map(|(name, replicas)| json!({"name": name, "replicas": replicas})).collect()
}

/// A divided workload of so many replicas of this size.
fn binding(replicas: u32, request: Value, clusters: &[(&str, u32)]) -> Value {
    json!({"spec": {
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "a", "name": "web"},
        "replicas": replicas,
        "replicaRequirements": {"resourceRequest": request},
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
        "clusters": on(clusters),
    }})
}

fn flink(cpu: u32, clusters: &[(&str, u32)]) -> Value {
    json!({"spec": {
        "resource": {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "namespace": "a", "name": "f"},
        "components": [
            {"name": "jobmanager", "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}},
            {"name": "taskmanager", "replicas": cpu - 1, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}},
        ],
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
        "clusters": on(clusters),
    }})
}

fn used(desk: &Desk, namespace: &str, name: &str) -> Value {
    desk.status(&quotas(), namespace, name)["overallUsed"].clone()
}
