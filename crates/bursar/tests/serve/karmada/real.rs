//! A real kube-apiserver as a member.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ResourceQuota, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, condition, until, until_gone};
use super::{TEAM, api, bindings, clusters, create, deployments, edit, placed, policies, quotas};
use crate::peer::Kubernetes;
use crate::proxy::{Mode, Proxy};

/// Makes it a member, behind something that can be cut off.
async fn join(fleet: &Fleet, real: &Kubernetes) -> Proxy {
    let (address, token) = real.access();
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let proxy = Proxy::to(port);
    let secrets: Api<Secret> = Api::namespaced(fleet.client.clone(), "default");
    let secret = json!({"metadata": {"name": "real"}, "stringData": {"token": token}});
    secrets.create(&PostParams::default(), &crate::object(secret)).await.expect("a secret");
    let spec = json!({
        "syncMode": "Push", "apiEndpoint": format!("https://127.0.0.1:{}", proxy.port),
        "insecureSkipTLSVerification": true, "secretRef": {"namespace": "default", "name": "real"},
    });
    create(&fleet.client, &clusters(), "real", spec).await.expect("a cluster");
    fleet.until(&clusters(), "real", |cluster| condition(cluster, "Ready") == "True").await;
    proxy
}

/// Three pods of a CPU each.
fn deployment() -> Value {
    let resources = json!({"requests": {"cpu": "1"}});
    let template = json!({
        "metadata": {"labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    });
    json!({"replicas": 3, "selector": {"matchLabels": {"app": "w"}}, "template": template})
}

/// What is placed arrives there, is kept as it is written, and is charged until the cluster has really let go of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_kube_apiserver_is_a_member() {
    let fleet = Fleet::start(&[], "").await;
    let real = Kubernetes::start();
    let _proxy = join(&fleet, &real).await;
    let ready = fleet.until(&clusters(), "real", |cluster| condition(cluster, "Ready") == "True").await;
    assert!(ready.data["status"]["kubernetesVersion"].as_str().is_some_and(|version| version.starts_with("v1.")));
    let assignments = json!([{"clusterName": "real", "hard": {"cpu": "4"}}]);
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "6"}, "staticAssignments": assignments})).await;
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    fleet.create(&policies(), "p", json!({"resourceSelectors": selectors, "placement": placement})).await;
    fleet.create(&deployments(), "web", deployment()).await;
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

/// One that is cut off fails over to another kind of member, and when it is back its copy goes; the total never moves.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_kube_apiserver_that_is_cut_off_fails_over_and_returns() {
    let fleet = Fleet::start(&["m1"], "").await;
    let real = Kubernetes::start();
    let proxy = join(&fleet, &real).await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "3"}})).await;
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let placement = json!({
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
    });
    fleet.create(&policies(), "p", json!({"resourceSelectors": selectors, "placement": placement})).await;
    // Until the other one may be had, there is only this one.
    let closed = json!({"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}]}});
    edit(&fleet.client, &clusters(), "m1", closed).await.expect("a taint");
    fleet.create(&deployments(), "web", deployment()).await;
    let there = real.client();
    until(&there, &deployments(), "web", |one| one.data["spec"]["replicas"] == 3).await;
    edit(&fleet.client, &clusters(), "m1", json!({"spec": {"taints": null}})).await.expect("no taint");
    fleet.fail_over().await;
    proxy.set(Mode::Silent);
    proxy.reset();
    fleet.until(&bindings(), "web-deployment", |one| placed(one) == ["m1"]).await;
    until(&fleet.members[0].client, &deployments(), "web", |one| one.data["spec"]["replicas"] == 3).await;
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert_eq!(quota.data["status"]["overallUsed"]["cpu"], "3");
    proxy.set(Mode::Open);
    proxy.reset();
    fleet.until(&clusters(), "real", |cluster| condition(cluster, "Ready") == "True").await;
    // Nobody makes the pods of a Deployment well here: an administrator says that its old copy may go.
    edit(&fleet.client, &bindings(), "web-deployment", json!({"spec": {"gracefulEvictionTasks": null}}))
        .await
        .expect("an edit");
    until(&there, &deployments(), "web", |one| one.metadata.deletion_timestamp.is_some()).await;
    let binding = fleet.until(&bindings(), "web-deployment", |_| true).await;
    assert_eq!(placed(&binding), ["m1"]);
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert_eq!(quota.data["status"]["overallUsed"]["cpu"], "3");
}
