//! A real kube-apiserver as a member.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::elastic_outage::{grow, grow_to};
use super::fleet::{Fleet, condition, until, until_gone};
use super::{TEAM, api, bindings, clusters, create, deployments, edit, leases, placed, policies, quotas};
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

/// What the quota controller of a cluster does, which runs beside its API server: says what is enforced, and what pods take.
fn keep_books(client: kube::Client) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let books: Api<ResourceQuota> = Api::namespaced(client.clone(), TEAM);
        let pods: Api<Pod> = Api::namespaced(client, TEAM);
        loop {
            if let (Ok(quota), Ok(pods)) = (books.get("q-elastic").await, pods.list(&Default::default()).await) {
                let hard = quota.spec.and_then(|spec| spec.hard).unwrap_or_default();
                let used = json!({"cpu": pods.items.len().to_string()});
                let status = json!({"status": {"hard": hard, "used": used}});
                let version = json!({"resourceVersion": quota.metadata.resource_version});
                let patch = json!({"metadata": version, "status": status["status"]});
                let _ = books.patch_status("q-elastic", &PatchParams::default(), &Patch::Merge(patch)).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

/// Any Kubernetes API is lent to, by a ResourceQuota that its own admission keeps to; a member of the other kind gets what is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_kube_apiserver_is_lent_a_part_of_the_quota() {
    let fleet = Fleet::start(&["m1"], "").await;
    let real = Kubernetes::start();
    let proxy = join(&fleet, &real).await;
    let there = real.client();
    let namespaces: Api<Namespace> = Api::all(there.clone());
    let team = crate::object(json!({"metadata": {"name": TEAM}}));
    namespaces.create(&PostParams::default(), &team).await.expect("a namespace");
    let books = keep_books(there.clone());
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "6"}, "elastic": {"chunk": {"cpu": "1"}}})).await;
    let resource_quotas = super::kind("", "v1", "ResourceQuota", "resourcequotas");
    until(&there, &resource_quotas, "q-elastic", |one| one.data["status"]["hard"]["cpu"].is_string()).await;
    until(&fleet.members[0].client, &super::slices(), "q-elastic", |one| one.data["status"]["hard"].is_object()).await;
    grow_to(&there, 4).await;
    let lent = fleet.until(&leases(), "q.real", |one| one.data["spec"]["hard"]["cpu"] == "5").await;
    assert!(lent.data["spec"].get("validUntil").is_none(), "a ResourceQuota has no end");
    until(&there, &resource_quotas, "q-elastic", |one| one.data["status"]["hard"]["cpu"] == "5").await;
    // Cut off, it uses what it was lent and no more; the other member has what is left.
    proxy.set(Mode::Silent);
    proxy.reset();
    grow_to(&there, 5).await;
    assert!(!grow(&there).await, "it was lent five");
    let elsewhere = fleet.members[0].client.clone();
    grow_to(&elsewhere, 1).await;
    assert!(!grow(&elsewhere).await && !grow(&there).await);
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert_eq!(quota.data["status"]["overallUsed"]["cpu"], "6");
    proxy.set(Mode::Open);
    proxy.reset();
    fleet.until(&clusters(), "real", |cluster| condition(cluster, "Ready") == "True").await;
    // What it lets go of goes to the other one.
    let pods: Api<Pod> = Api::namespaced(there.clone(), TEAM);
    for pod in pods.list(&Default::default()).await.expect("pods").items.iter().take(3) {
        let name = pod.metadata.name.as_deref().expect("a name");
        pods.delete(name, &DeleteParams::default().grace_period(0)).await.expect("deleted");
    }
    grow_to(&elsewhere, 3).await;
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert!(super::elastic::used(&quota) <= 6, "{:?}", quota.data["status"]);
    // Lent no more, nothing of it stays there.
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"elastic": null}})).await.expect("an edit");
    until_gone(&there, &resource_quotas, "q-elastic").await;
    until_gone(&fleet.client, &leases(), "q.real").await;
    books.abort();
}
