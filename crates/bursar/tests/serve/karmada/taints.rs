//! Clusters that are not well, and clusters that an administrator wants emptied: who has to leave, when, and what stays behind.

use std::time::SystemTime;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, TOKEN, condition, until, until_gone};
use super::observer::Observer;
use super::{
    api, bindings, clusters, deployment, deployments, edit, everything, flink, flinks, placed, policies, quotas,
    scheduled,
};

const NOT_READY: &str = "cluster.karmada.io/not-ready";

async fn show_token(fleet: &Fleet, token: &str) {
    let secrets: Api<Secret> = Api::namespaced(fleet.client.clone(), "default");
    let patch = Patch::Merge(json!({"stringData": {"token": token}}));
    secrets.patch("m1", &PatchParams::default(), &patch).await.expect("a token");
    // Secrets are not watched; clusters are.
    let looked_at = json!({"metadata": {"labels": {"token": token}}});
    edit(&fleet.client, &clusters(), "m1", looked_at).await.expect("a label");
}

fn reason(cluster: &DynamicObject) -> String {
    let list = cluster.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = list.into_iter().find(|one| one["type"] == "Ready").unwrap_or_default();
    ready["reason"].as_str().unwrap_or("").to_owned()
}

fn taints(cluster: &DynamicObject) -> Vec<(String, String)> {
    let list = cluster.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let of = |taint: &Value, field: &str| taint[field].as_str().unwrap_or("").to_owned();
    list.iter().map(|taint| (of(taint, "key"), of(taint, "effect"))).collect()
}

/// A member that answers and says no is not ready: it gets nothing new, and keeps what it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_says_no_gets_nothing_new() {
    let fleet = Fleet::start(&["m1"], "").await;
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    fleet.create(&policies(), "p", json!({"resourceSelectors": selectors})).await;
    fleet.create(&deployments(), "there", deployment(1)).await;
    fleet.until(&bindings(), "there-deployment", |one| placed(one) == ["m1"]).await;
    show_token(&fleet, "of-somebody-else").await;
    let unwell = fleet.until(&clusters(), "m1", |one| !taints(one).is_empty()).await;
    assert_eq!((condition(&unwell, "Ready"), reason(&unwell)), ("False".into(), "ClusterNotReady".into()));
    assert_eq!(taints(&unwell), [(NOT_READY.into(), "NoSchedule".into())]);
    fleet.create(&deployments(), "new", deployment(1)).await;
    let waits = fleet.until(&bindings(), "new-deployment", |one| scheduled(one).0 == "NoClusterFit").await;
    let words = format!("0/1 clusters are available: 1 cluster(s) had untolerated taint {{{NOT_READY}: NoSchedule}}.");
    assert_eq!(scheduled(&waits).1, words);
    let there = fleet.until(&bindings(), "there-deployment", |_| true).await;
    assert_eq!(placed(&there), ["m1"]);
    show_token(&fleet, TOKEN).await;
    let well = fleet.until(&clusters(), "m1", |one| condition(one, "Ready") == "True" && taints(one).is_empty()).await;
    assert_eq!(reason(&well), "ClusterReady");
    fleet.until(&bindings(), "new-deployment", |one| placed(one) == ["m1"]).await;
}

fn read(time: &Value) -> i64 {
    serde_json::from_value::<Time>(time.clone()).expect("a time").0.as_second()
}

/// Who tolerates a taint stays, for as long as it says; and where the old copy is never to go, it goes when somebody says so.
#[tokio::test(flavor = "multi_thread")]
async fn who_tolerates_a_taint_stays_for_as_long_as_it_says() {
    const SECONDS: i64 = 3;
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "6"}})).await;
    let closed = json!({"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}]}});
    edit(&fleet.client, &clusters(), "m2", closed).await.expect("a taint");
    let tolerates = |seconds: Value| json!([{"key": "leave", "operator": "Exists", "tolerationSeconds": seconds}]);
    let cases = [
        ("stays", tolerates(Value::Null), "Gracefully"),
        ("waits", tolerates(json!(SECONDS)), "Directly"),
        ("goes", json!([]), "Directly"),
        ("copied", json!([]), "Never"),
    ];
    for (name, mut tolerations, mode) in cases {
        for one in tolerations.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            one.retain(|_, value| !value.is_null());
        }
        let placement = json!({
            "clusterTolerations": tolerations,
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
        });
        let policy = json!({
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
            "placement": placement, "failover": {"cluster": {"purgeMode": mode}},
        });
        fleet.create(&policies(), name, policy).await;
        fleet.create(&deployments(), name, deployment(1)).await;
        fleet.until(&bindings(), &binding(name), |one| placed(one) == ["m1"]).await;
        until(&clients[0], &deployments(), name, |_| true).await;
    }
    edit(&fleet.client, &clusters(), "m2", json!({"spec": {"taints": null}})).await.expect("no taint");
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_secs();
    let since = Time(k8s_openapi::jiff::Timestamp::from_second(i64::try_from(since).expect("a time")).expect("a time"));
    let taint = json!({"spec": {"taints": [{"key": "leave", "effect": "NoExecute", "timeAdded": since}]}});
    edit(&fleet.client, &clusters(), "m1", taint).await.expect("a taint");
    for name in ["goes", "copied", "waits"] {
        fleet.until(&bindings(), &binding(name), |one| placed(one) == ["m2"]).await;
        until(&clients[1], &deployments(), name, |_| true).await;
    }
    for name in ["goes", "waits"] {
        until_gone(&clients[0], &deployments(), name).await;
    }
    let history = api(&fleet.client, &bindings()).get(&binding("waits")).await.expect("a binding");
    let told = api(&fleet.client, &clusters()).get("m1").await.expect("a cluster");
    let events = super::events(&fleet.client).await;
    let evicted = events.iter().find(|event| {
        event.reason.as_deref() == Some("EvictWorkloadFromClusterSucceed")
            && event.regarding.as_ref().and_then(|one| one.name.as_deref()) == history.metadata.name.as_deref()
    });
    let evicted = evicted.and_then(|event| event.event_time.clone()).expect("it was told").0.as_second();
    assert!(evicted - read(&told.data["spec"]["taints"][0]["timeAdded"]) >= SECONDS, "it tolerates {SECONDS} s");
    let stays = fleet.until(&bindings(), &binding("stays"), |_| true).await;
    assert_eq!(placed(&stays), ["m1"]);
    // The copy that is never to go is there beside the new one, until somebody takes the task away; the charge is one all the while.
    let copied = fleet.until(&bindings(), &binding("copied"), |_| true).await;
    assert_eq!(copied.data["spec"]["gracefulEvictionTasks"][0]["purgeMode"], "Never");
    let there = api(&clients[0], &deployments()).get("copied").await.expect("the old copy");
    assert!(there.metadata.deletion_timestamp.is_none());
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert_eq!(quota.data["status"]["overallUsed"]["cpu"], "4");
    let done = json!({"spec": {"gracefulEvictionTasks": null}});
    edit(&fleet.client, &bindings(), &binding("copied"), done).await.expect("an edit");
    until_gone(&clients[0], &deployments(), "copied").await;
    api(&clients[0], &deployments()).get("stays").await.expect("it stays");
}

fn binding(name: &str) -> String {
    format!("{name}-deployment")
}

/// A taint by hand says nothing of when it was put there; who tolerates it for a while stays for that while.
#[tokio::test(flavor = "multi_thread")]
async fn a_taint_by_hand_is_tolerated_from_when_it_was_put_there() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let mut policy = everything("apps/v1", "Deployment");
    policy["placement"]["clusterTolerations"] =
        json!([{"key": "leave", "operator": "Exists", "tolerationSeconds": 600}]);
    policy["placement"]["replicaScheduling"]["replicaDivisionPreference"] = json!("Aggregated");
    fleet.create(&policies(), "p", policy).await;
    fleet.create(&deployments(), "web", deployment(1)).await;
    let binding = fleet.until(&bindings(), "web-deployment", |one| placed(one).len() == 1).await;
    let cluster = placed(&binding)[0].clone();
    let taint = json!({"spec": {"taints": [{"key": "leave", "effect": "NoExecute"}]}});
    edit(&fleet.client, &clusters(), &cluster, taint).await.expect("a taint");
    let is_dated = |one: &DynamicObject| one.data["spec"]["taints"][0]["timeAdded"].is_string();
    fleet.until(&clusters(), &cluster, is_dated).await;
    let binding = fleet.until(&bindings(), "web-deployment", |_| true).await;
    assert_eq!(placed(&binding), [cluster]);
}

/// What every cluster has all of comes back to one that lost it, as soon as that is well again; and it is charged for it no longer
/// than that cluster is chosen.
#[tokio::test(flavor = "multi_thread")]
async fn what_every_cluster_has_comes_back_to_one_that_is_well_again() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4"}})).await;
    let policy = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]});
    fleet.create(&policies(), "p", policy).await;
    fleet.create(&deployments(), "web", deployment(2)).await;
    let is_on = |names: &'static [&str]| move |one: &DynamicObject| placed(one) == names;
    let tasks = |one: &DynamicObject| one.data["spec"]["gracefulEvictionTasks"].as_array().map_or(0, Vec::len);
    let charged = async || {
        api(&fleet.client, &quotas()).get("q").await.expect("the quota").data["status"]["overallUsed"]["cpu"].clone()
    };
    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    let leave = || taints(json!([{"key": "leave", "effect": "NoExecute"}]));
    fleet.until(&bindings(), "web-deployment", is_on(&["m1", "m2"])).await;
    edit(&fleet.client, &clusters(), "m1", leave()).await.expect("a taint");
    fleet.until(&bindings(), "web-deployment", is_on(&["m2"])).await;
    assert_eq!(charged().await, "4", "nobody gets what m1 needs when it is well again");
    edit(&fleet.client, &clusters(), "m1", taints(Value::Null)).await.expect("no taint");
    fleet.until(&bindings(), "web-deployment", |one| placed(one) == ["m1", "m2"] && tasks(one) == 0).await;
    assert_eq!(charged().await, "4");
    // What is not chosen any more has nothing to come back to.
    edit(&fleet.client, &clusters(), "m1", leave()).await.expect("a taint");
    fleet.until(&bindings(), "web-deployment", is_on(&["m2"])).await;
    let only = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["m2"]}}}});
    edit(&fleet.client, &policies(), "p", only).await.expect("a policy");
    fleet.until(&bindings(), "web-deployment", |one| placed(one) == ["m2"] && tasks(one) == 0).await;
    assert_eq!(charged().await, "2");
    until_gone(&fleet.members[0].client, &deployments(), "web").await;
}

/// A job that fails in a cluster that is well goes elsewhere where its policy says so: to the next of its affinities, in which it then
/// stays, and the total stays the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_not_well_goes_to_the_next_affinity_and_stays_there() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "3", "memory": "3Gi"}})).await;
    let affinity = |name: &str, cluster: &str| json!({"affinityName": name, "clusterNames": [cluster]});
    let mut policy = everything("flink.apache.org/v1beta1", "FlinkDeployment");
    policy["placement"]["clusterAffinities"] = json!([affinity("near", "m1"), affinity("far", "m2")]);
    policy["failover"] =
        json!({"application": {"decisionConditions": {"tolerationSeconds": 1}, "purgeMode": "Directly"}});
    fleet.create(&policies(), "p", policy).await;
    fleet.create(&flinks(), "a", flink::job(3, 3)).await;
    let is_by = |name: &'static str, cluster: &'static str| {
        move |one: &DynamicObject| {
            placed(one) == [cluster] && one.data["status"]["schedulerObservingAffinityName"] == name
        }
    };
    fleet.until(&bindings(), "a-flinkdeployment", is_by("near", "m1")).await;
    let is_full = |quota: &DynamicObject| quota.data["status"]["overallUsed"]["cpu"] == "3";
    fleet.until(&quotas(), "q", is_full).await;
    let observer = Observer::of_quota(&fleet.client, is_full);
    let first = fleet.members[0].client.clone();
    until(&first, &flinks(), "a", |_| true).await;
    let failed = Patch::Merge(json!({"status": {"lifecycleState": "FAILED", "jobStatus": {"state": "FAILED"}}}));
    api(&first, &flinks()).patch_status("a", &PatchParams::default(), &failed).await.expect("it fails");
    fleet.until(&bindings(), "a-flinkdeployment", is_by("far", "m2")).await;
    until(&fleet.members[1].client, &flinks(), "a", |_| true).await;
    until_gone(&first, &flinks(), "a").await;
    let is_done = |one: &DynamicObject| one.data["spec"].get("gracefulEvictionTasks").is_none();
    fleet.until(&bindings(), "a-flinkdeployment", is_done).await;
    // The near one may be had again, and what is placed stays.
    edit(&fleet.client, &clusters(), "m1", json!({"metadata": {"labels": {"a": "b"}}})).await.expect("a label");
    fleet.create(&flinks(), "b", flink::job(3, 3)).await;
    fleet.until(&bindings(), "b-flinkdeployment", |one| scheduled(one).0 == "QuotaExceeded").await;
    let there = fleet.until(&bindings(), "a-flinkdeployment", |_| true).await;
    assert_eq!(placed(&there), ["m2"]);
    observer.end(50).await;
}
