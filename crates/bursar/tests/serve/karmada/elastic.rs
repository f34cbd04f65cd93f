//! Executors that appear in members at run time: each member is lent a slice of the quota, and all of them together never run
//! more than it allows.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use super::fleet::{Fleet, until};
use super::{TEAM, api, bindings, deployments, placed, policies, quotas, slices};
use crate::harness::PATIENCE;

pub fn pods(client: &kube::Client) -> Api<Pod> {
    Api::namespaced(client.clone(), TEAM)
}

pub fn executor() -> Value {
    let resources = json!({"requests": {"cpu": "1"}});
    json!({
        "metadata": {"generateName": "executor-", "labels": {"role": "executor"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    })
}

/// One executor more, at the gate or not.
async fn add(client: &kube::Client) -> Pod {
    pods(client).create(&PostParams::default(), &crate::object(executor())).await.expect("a pod")
}

fn is_gated(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty())
}

async fn all(client: &kube::Client) -> Vec<Pod> {
    pods(client).list(&ListParams::default()).await.expect("pods").items
}

/// Pods that may run.
async fn running(client: &kube::Client) -> Vec<Pod> {
    all(client).await.into_iter().filter(|pod| !is_gated(pod)).collect()
}

async fn remove(client: &kube::Client, pod: &Pod) {
    let name = pod.metadata.name.as_deref().expect("a name");
    pods(client).delete(name, &DeleteParams::default().grace_period(0)).await.expect("deleted");
}

pub fn used(quota: &DynamicObject) -> u32 {
    quota.data["status"]["overallUsed"]["cpu"].as_str().unwrap_or("").parse().expect("a number")
}

/// A quota of so much, lent to both members; every member has its slice.
pub async fn lending(fleet: &Fleet, cpu: &str, elastic: Value) {
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": cpu}, "elastic": elastic})).await;
    for member in &fleet.members {
        // Until then nothing limits what appears there.
        until(&member.client, &slices(), "q-elastic", |slice| slice.data["status"]["hard"].is_object()).await;
    }
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// 2a: whatever comes and goes in both members, what runs never is more than the quota, and in the end it says what runs.
#[tokio::test(flavor = "multi_thread")]
async fn case_2a_executors_of_all_members_stay_inside_the_quota() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    // Nothing in hand: each executor waits until there is room for it, and then that is lent.
    lending(&fleet, "9", json!({"chunk": {"cpu": "0"}, "whenFull": "Gate"})).await;
    // The driver is placed by the control plane, and charged by its binding.
    let policy = json!({
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        "placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
    });
    fleet.create(&policies(), "p", policy).await;
    let template = json!({
        "metadata": {"labels": {"app": "driver"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    });
    let driver = json!({"replicas": 1, "selector": {"matchLabels": {"app": "driver"}}, "template": template});
    fleet.create(&deployments(), "driver", driver).await;
    fleet.until(&bindings(), "driver-deployment", |one| placed(one) == ["m1"]).await;
    let mut dice = Dice(7);
    let (mut most, mut waited) = (0, false);
    for _ in 0..400 {
        let client = &clients[usize::from(dice.below(2) == 0)];
        let executors: Vec<Pod> = all(client)
            .await
            .into_iter()
            .filter(|pod| pod.metadata.generate_name.as_deref() == Some("executor-"))
            .collect();
        if dice.below(3) == 0 && !executors.is_empty() {
            remove(client, &executors[dice.below(executors.len() as u64) as usize]).await;
        } else {
            waited |= is_gated(&add(client).await);
        }
        let sum = running(&clients[0]).await.len() + running(&clients[1]).await.len();
        assert!(sum <= 9, "{sum} run where 9 may");
        most = most.max(sum);
        let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
        assert!(used(&quota) <= 9, "{} are charged where there are 9", used(&quota));
    }
    assert!(waited, "somebody had to wait");
    // More want to run than may: all of the quota is used in the end.
    for client in &clients {
        for _ in 0..9 {
            add(client).await;
        }
    }
    let full = async {
        loop {
            let sum = running(&clients[0]).await.len() + running(&clients[1]).await.len();
            assert!(sum <= 9, "{sum} run where 9 may");
            if sum == 9 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, full).await.unwrap_or_else(|_| panic!("all of the quota is used, {most} at most"));
    // And when only some are left, it says what those take.
    for client in &clients {
        for pod in all(client).await.iter().filter(|pod| pod.metadata.generate_name.as_deref() == Some("executor-")) {
            remove(client, pod).await;
        }
        add(client).await;
    }
    fleet.until(&quotas(), "q", |quota| used(quota) == 3).await;
    let sum = running(&clients[0]).await.len() + running(&clients[1]).await.len();
    assert_eq!(sum, 3, "a driver and two executors");
}

/// 2b: what one member lets go of starts what waits at the gate of the other, within seconds.
#[tokio::test(flavor = "multi_thread")]
async fn case_2b_a_release_in_one_member_starts_what_waits_in_another() {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    lending(&fleet, "4", json!({"chunk": {"cpu": "0"}, "whenFull": "Gate"})).await;
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
    assert!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
    assert_eq!(running(&clients[0]).await.len() + running(&clients[1]).await.len(), 4);
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
        super::edit(&fleet.client, &quotas(), "q", overall(memory)).await.expect("an edit");
        until(&there, &slices(), "q-elastic", limits(names)).await;
    }
}
