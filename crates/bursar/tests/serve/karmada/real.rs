//! A real kube-apiserver as a member.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ResourceQuota, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::fleet::{Fleet, condition, until, until_gone};
use super::{TEAM, api, bindings, clusters, create, deployments, policies, quotas};
use crate::peer::Kubernetes;

/// What is placed arrives there, is kept as it is written, and is charged until the cluster has really let go of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_kube_apiserver_is_a_member() {
    let fleet = Fleet::start(&[], "").await;
    let real = Kubernetes::start();
    let (address, token) = real.access();
    let secrets: Api<Secret> = Api::namespaced(fleet.client.clone(), "default");
    let secret = json!({"metadata": {"name": "real"}, "stringData": {"token": token}});
    secrets.create(&PostParams::default(), &crate::object(secret)).await.expect("a secret");
    let spec = json!({
        "syncMode": "Push", "apiEndpoint": address, "insecureSkipTLSVerification": true,
        "secretRef": {"namespace": "default", "name": "real"},
    });
    create(&fleet.client, &clusters(), "real", spec).await.expect("a cluster");
    let ready = fleet.until(&clusters(), "real", |cluster| condition(cluster, "Ready") == "True").await;
    assert!(ready.data["status"]["kubernetesVersion"].as_str().is_some_and(|version| version.starts_with("v1.")));
    let assignments = json!([{"clusterName": "real", "hard": {"cpu": "4"}}]);
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "6"}, "staticAssignments": assignments})).await;
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    fleet.create(&policies(), "p", json!({"resourceSelectors": selectors, "placement": placement})).await;
    let resources = json!({"requests": {"cpu": "1"}});
    let template = json!({
        "metadata": {"labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    });
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "w"}}, "template": template});
    fleet.create(&deployments(), "web", spec).await;
    let there = real.client();
    until(&there, &deployments(), "web", |one| one.data["spec"]["replicas"] == 3).await;
    let is_applied = |one: &DynamicObject| condition(one, "FullyApplied") == "True";
    fleet.until(&bindings(), "web-deployment", is_applied).await;
    let in_cluster: Api<ResourceQuota> = Api::namespaced(there.clone(), TEAM);
    until(&there, &super::kind("", "v1", "ResourceQuota", "resourcequotas"), "q", |_| true).await;
    let hard = in_cluster.get("q").await.expect("a quota").spec.and_then(|spec| spec.hard).expect("limits");
    assert_eq!(hard["cpu"].0, "4");
    // What somebody changes there is put back.
    let web: Api<Deployment> = Api::namespaced(there.clone(), TEAM);
    let patch = Patch::Merge(json!({"spec": {"replicas": 9}}));
    web.patch("web", &PatchParams::default(), &patch).await.expect("an edit");
    until(&there, &deployments(), "web", |one| one.data["spec"]["replicas"] == 3).await;
    // Nobody collects garbage there, so that the Deployment waits for it: and so long it is charged.
    api(&fleet.client, &deployments()).delete("web", &DeleteParams::default()).await.expect("deleted");
    until(&there, &deployments(), "web", |one| one.metadata.deletion_timestamp.is_some()).await;
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert_eq!(quota.data["status"]["overallUsed"]["cpu"], "3");
    let collected = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    web.patch("web", &PatchParams::default(), &collected).await.expect("collected");
    until_gone(&fleet.client, &bindings(), "web-deployment").await;
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert_eq!(quota.data["status"]["overallUsed"]["cpu"], "0");
}
