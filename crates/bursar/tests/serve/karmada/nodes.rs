//! Members with nodes: what they have left decides how a workload is divided, and whether it is placed at all.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, until};
use super::{bindings, clusters, deployment, deployments, edit, policies, scheduled};

/// A node of four CPUs.
async fn add_node(client: &kube::Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = crate::object(json!({"metadata": {"name": "n"}}));
    nodes.create(&PostParams::default(), &node).await.expect("a node");
    let resources = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    let status = json!({"status": {
        "capacity": resources, "allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}],
    }});
    nodes.patch_status("n", &PatchParams::default(), &Patch::Merge(status)).await.expect("what it has");
}

fn spread(binding: &DynamicObject) -> Vec<(String, u64)> {
    let list = binding.data["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let one = |one: &Value| (one["name"].as_str().unwrap_or("").to_owned(), one["replicas"].as_u64().unwrap_or(0));
    list.iter().map(one).collect()
}

/// Nine do not fit into two members of four CPUs each; six do, and are divided by what is left.
#[tokio::test(flavor = "multi_thread")]
async fn what_members_have_left_divides_a_workload() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    for member in &fleet.members {
        add_node(&member.client).await;
    }
    for name in ["m1", "m2"] {
        let has = |one: &DynamicObject| one.data["status"]["resourceSummary"]["allocatable"]["cpu"] == "4";
        fleet.until(&clusters(), name, has).await;
    }
    let placement = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    }});
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    fleet.create(&policies(), "p", json!({"resourceSelectors": selectors, "placement": placement})).await;
    fleet.create(&deployments(), "web", deployment(9)).await;
    let waiting = fleet.until(&bindings(), "web-deployment", |one| scheduled(one).0 == "Unschedulable").await;
    assert_eq!(scheduled(&waiting).1, "Clusters available replicas 8 are not enough to schedule.");
    assert!(spread(&waiting).is_empty());
    edit(&fleet.client, &deployments(), "web", json!({"spec": {"replicas": 6}})).await.expect("a template");
    let placed = fleet.until(&bindings(), "web-deployment", |one| scheduled(one).0 == "Success").await;
    assert_eq!(spread(&placed), [("m1".into(), 3), ("m2".into(), 3)]);
    for (member, name) in fleet.members.iter().zip(["m1", "m2"]) {
        until(&member.client, &deployments(), "web", |one| one.data["status"]["replicas"] == 3).await;
        // Its pods wait for somebody to put them on the node, and are not to be promised again.
        let takes = |one: &DynamicObject| one.data["status"]["resourceSummary"]["allocating"]["cpu"] == "3";
        fleet.until(&clusters(), name, takes).await;
    }
    // A CPU is left in each: two more fit, and not three.
    fleet.create(&deployments(), "more", deployment(3)).await;
    fleet.until(&bindings(), "more-deployment", |one| scheduled(one).0 == "Unschedulable").await;
    edit(&fleet.client, &deployments(), "more", json!({"spec": {"replicas": 2}})).await.expect("a template");
    let placed = fleet.until(&bindings(), "more-deployment", |one| scheduled(one).0 == "Success").await;
    assert_eq!(spread(&placed), [("m1".into(), 1), ("m2".into(), 1)]);
}
