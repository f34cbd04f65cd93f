//! Executors that appear in members at run time: each member is lent a slice of the quota, and all of them together never run
//! more than it allows.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use super::elastic_outage::{grow, grow_to};
use super::fleet::{Fleet, until};
use super::observer::Observer;
use super::{TEAM, deployment, deployments, edit, everything, leases, policies, quotas, slices};
use crate::harness::PATIENCE;

pub fn pods(client: &kube::Client) -> Api<Pod> {
    Api::namespaced(client.clone(), TEAM)
}

pub fn executor() -> Value {
    let resources = json!({"requests": {"cpu": "1", "memory": "512Mi"}});
    json!({
        "metadata": {"generateName": "executor-", "labels": {"role": "executor"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    })
}

/// One executor more, at the gate or not.
pub async fn add(client: &kube::Client) -> Pod {
    pods(client).create(&PostParams::default(), &crate::object(executor())).await.expect("a pod")
}

pub fn is_gated(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty())
}

pub async fn all(client: &kube::Client) -> Vec<Pod> {
    pods(client).list(&ListParams::default()).await.expect("pods").items
}

/// Pods that may run.
pub async fn running(client: &kube::Client) -> Vec<Pod> {
    all(client).await.into_iter().filter(|pod| !is_gated(pod)).collect()
}

pub async fn remove(client: &kube::Client, pod: &Pod) {
    let name = pod.metadata.name.as_deref().expect("a name");
    pods(client).delete(name, &DeleteParams::default().grace_period(0)).await.expect("deleted");
}

pub fn used(quota: &DynamicObject) -> u32 {
    quota.data["status"]["overallUsed"]["cpu"].as_str().unwrap_or("").parse().expect("a number")
}

pub fn cpu(amount: &str) -> Value {
    json!({ "cpu": amount })
}

/// A quota of so much, lent to all members; every member has its slice.
pub async fn lending(fleet: &Fleet, overall: Value, elastic: Value) {
    fleet.create(&quotas(), "q", json!({"overall": overall, "elastic": elastic})).await;
    for member in &fleet.members {
        // Until then nothing limits what appears there.
        until(&member.client, &slices(), "q-elastic", |slice| slice.data["status"]["hard"].is_object()).await;
    }
}

/// 2b: what one member lets go of starts what waits at the gate of the other, within seconds.
#[tokio::test(flavor = "multi_thread")]
async fn case_2b_a_release_in_one_member_starts_what_waits_in_another() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    lending(&fleet, cpu("4"), json!({"chunk": {"cpu": "0"}, "whenFull": "Gate"})).await;
    for _ in 0..4 {
        add(&clients[0]).await;
    }
    let full = async {
        while running(&clients[0]).await.len() < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, full).await.expect("four run");
    let waiting = add(&clients[1]).await;
    assert!(is_gated(&waiting), "there is no room for it");
    until(&clients[1], &slices(), "q-elastic", |slice| slice.data["status"]["waiting"]["cpu"] == "1").await;
    let begun = Instant::now();
    remove(&clients[0], &running(&clients[0]).await[0]).await;
    let is_started = |pod: Option<&Pod>| pod.is_some_and(|pod| !is_gated(pod));
    let name = waiting.metadata.name.as_deref().expect("a name");
    let started = await_condition(pods(&clients[1]), name, is_started);
    tokio::time::timeout(PATIENCE, started).await.expect("it starts").expect("a watch");
    assert!(begun.elapsed() < Duration::from_secs(4), "after {:?}", begun.elapsed());
    assert_eq!(running(&clients[0]).await.len() + running(&clients[1]).await.len(), 4);
}

/// A member that got a part of what its large pod needs does not keep it from another whose small pod needs no more than that.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_little_in_one_member_goes_to_another_where_it_is_enough() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    lending(&fleet, cpu("4"), json!({"chunk": {"cpu": "0"}, "whenFull": "Gate"})).await;
    for _ in 0..3 {
        add(&clients[0]).await;
    }
    let observer = Observer::of_quota(&fleet.client, |quota| used(quota) <= 4);
    fleet.until(&leases(), "q.m1", |lease| lease.data["status"]["used"]["cpu"] == "3").await;
    let mut large = executor();
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    pods(&clients[0]).create(&PostParams::default(), &crate::object(large)).await.expect("a pod");
    fleet.until(&leases(), "q.m1", |lease| lease.data["spec"]["hard"]["cpu"] == "4").await;
    let small = add(&clients[1]).await;
    let name = small.metadata.name.as_deref().expect("a name");
    let is_started = |pod: Option<&Pod>| pod.is_some_and(|pod| !is_gated(pod));
    let started = await_condition(pods(&clients[1]), name, is_started);
    tokio::time::timeout(PATIENCE, started).await.expect("it starts").expect("a watch");
    assert_eq!(running(&clients[0]).await.len() + running(&clients[1]).await.len(), 4);
    observer.end(20).await;
}

/// What one member was lent and does not use goes to another that has nothing left, until that has all.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_idle_in_one_member_goes_to_another_that_grows() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    lending(&fleet, cpu("6"), json!({"chunk": {"cpu": "2"}})).await;
    fleet.until(&leases(), "q.m1", |lease| lease.data["spec"]["hard"]["cpu"] == "2").await;
    let observer = Observer::of_quota(&fleet.client, |quota| used(quota) <= 6);
    grow_to(&clients[1], 6).await;
    fleet.until(&leases(), "q.m1", |lease| lease.data["spec"]["hard"]["cpu"] == "0").await;
    assert!(!grow(&clients[0]).await && !grow(&clients[1]).await, "all of it runs in m2");
    // And back again, as soon as that has something to spare.
    for pod in running(&clients[1]).await.iter().take(4) {
        remove(&clients[1], pod).await;
    }
    grow_to(&clients[0], 4).await;
    assert!(!grow(&clients[0]).await && !grow(&clients[1]).await, "six run");
    observer.end(100).await;
}

/// A name that a quota has no more limits nothing in members either; and one it has again does.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_out_of_a_quota_goes_from_its_slices() {
    let fleet = Fleet::start(&["m1"], "").await;
    let there = fleet.members[0].client.clone();
    let overall = |memory: Value| json!({"spec": {"overall": {"cpu": "4", "memory": memory}}});
    let quota = json!({"overall": {"cpu": "4", "memory": "8Gi"}, "elastic": {"chunk": {"cpu": "1"}}});
    fleet.create(&quotas(), "q", quota).await;
    let limits = |names: &'static [&str]| {
        move |slice: &DynamicObject| {
            let hard = slice.data["spec"]["hard"].as_object().cloned().unwrap_or_default();
            hard.keys().map(String::as_str).eq(names.iter().copied())
        }
    };
    for (memory, names) in
        [(json!("8Gi"), &["cpu", "memory"][..]), (Value::Null, &["cpu"]), (json!("8Gi"), &["cpu", "memory"])]
    {
        edit(&fleet.client, &quotas(), "q", overall(memory)).await.expect("an edit");
        until(&there, &slices(), "q-elastic", limits(names)).await;
    }
}

/// What a binding is charged for in a member needs no more room to be told there, however full the quota is.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_placed_in_a_member_may_run_there_though_the_quota_is_full() {
    let fleet = Fleet::start(&["m1"], "").await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4"}})).await;
    fleet.create(&policies(), "p", everything("apps/v1", "Deployment")).await;
    fleet.create(&deployments(), "web", deployment(4)).await;
    let there = &fleet.members[0].client;
    until(there, &deployments(), "web", |one| one.data["status"]["replicas"] == 4).await;
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"elastic": {"chunk": {"cpu": "1"}}}})).await.expect("an edit");
    until(there, &slices(), "q-elastic", |slice| slice.data["status"]["hard"]["cpu"] == "4").await;
}

/// What is brought to a member for the first time finds its namespace limited: the slice is there before what makes pods.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_limited_before_anything_comes_there() {
    let fleet = Fleet::start(&["m1"], "").await;
    let there = fleet.members[0].client.clone();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(fleet.client.clone());
    let fresh = crate::object(json!({"metadata": {"name": "fresh"}}));
    namespaces.create(&PostParams::default(), &fresh).await.expect("a namespace");
    let at = |client: &kube::Client, of| Api::<DynamicObject>::namespaced_with(client.clone(), "fresh", &of);
    for (of, name, spec) in [
        (deployments(), "web", deployment(2)),
        (policies(), "p", everything("apps/v1", "Deployment")),
        (quotas(), "q", json!({"overall": {"cpu": "4"}, "elastic": {"chunk": {"cpu": "1"}}})),
    ] {
        let object = json!({"apiVersion": of.api_version, "kind": of.kind, "metadata": {"name": name}, "spec": spec});
        at(&fleet.client, of).create(&PostParams::default(), &crate::object(object)).await.expect("it is created");
    }
    let comes = await_condition(at(&there, deployments()), "web", |one: Option<&DynamicObject>| one.is_some());
    tokio::time::timeout(PATIENCE, comes).await.expect("it comes").expect("a watch");
    let slice = at(&there, slices()).get("q-elastic").await.expect("it was there before");
    assert!(slice.data["status"]["hard"]["cpu"].is_string(), "{:?}", slice.data);
}
