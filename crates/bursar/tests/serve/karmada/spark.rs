//! Spark: executors that are said at the control plane, and those that may come to run.

use std::time::Duration;

use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use super::elastic::pods;
use super::fleet::{Fleet, until};
use super::{api, bindings, edit, policies, quotas, scheduled, sparks, told};

const POTENTIAL: &str = "resourcetemplate.karmada.io/potential-replicas";

/// A stand-in for Spark's operator in a member, until it is dropped: the driver and the executors that a job begins with.
pub fn tend(client: kube::Client) -> tokio::task::JoinHandle<()> {
    let pod = |name: &str| {
        let resources = json!({"requests": {"cpu": "1", "memory": "896Mi"}});
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
    };
    tokio::spawn(async move {
        loop {
            for job in
                api(&client, &sparks()).list(&Default::default()).await.map(|list| list.items).unwrap_or_default()
            {
                let name = job.metadata.name.as_deref().unwrap_or("");
                let instances = job.data["spec"]["executor"]["instances"].as_u64().unwrap_or(0);
                let executors = (1..=instances).map(|number| format!("{name}-exec-{number}"));
                for name in std::iter::once(format!("{name}-driver")).chain(executors) {
                    // It is there already, or does not fit yet.
                    let _ = pods(&client).create(&PostParams::default(), &crate::object(pod(&name))).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
}

pub fn application(executors: u32, dynamic: Value) -> Value {
    json!({
        "type": "Scala",
        "driver": {"cores": 1, "memory": "512m"},
        "executor": {"cores": 1, "memory": "512m", "instances": executors},
        "dynamicAllocation": dynamic,
    })
}

async fn fleet_with(cpu: &str, settings: &str) -> Fleet {
    let fleet = Fleet::start(&["m1"], settings).await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": cpu}})).await;
    let selectors = json!([{"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}]);
    fleet.create(&policies(), "p", json!({"resourceSelectors": selectors})).await;
    fleet
}

fn executors(binding: &DynamicObject) -> Value {
    binding.data["spec"]["components"][1]["replicas"].clone()
}

/// 2d: more executors, said at the control plane, are checked like any update; what runs stays.
#[tokio::test(flavor = "multi_thread")]
async fn case_2d_more_executors_are_checked_like_any_update() {
    let fleet = fleet_with("4", "").await;
    fleet.create(&sparks(), "job", application(2, Value::Null)).await;
    let there = fleet.members[0].client.clone();
    let instances = |wanted: u32| move |job: &DynamicObject| job.data["spec"]["executor"]["instances"] == wanted;
    until(&there, &sparks(), "job", instances(2)).await;
    edit(&fleet.client, &sparks(), "job", json!({"spec": {"executor": {"instances": 4}}})).await.expect("a template");
    told(&fleet.client, "ApplyPolicyFailed", "exceeded for resource cpu: requested sum 5, limit 4.").await;
    assert!(instances(2)(&api(&there, &sparks()).get("job").await.expect("it runs")));
    // What fits arrives, and so does less.
    for (wanted, used) in [(3, "4"), (1, "2")] {
        let patch = json!({"spec": {"executor": {"instances": wanted}}});
        edit(&fleet.client, &sparks(), "job", patch).await.expect("a template");
        until(&there, &sparks(), "job", instances(wanted)).await;
        fleet.until(&quotas(), "q", |quota| quota.data["status"]["overallUsed"]["cpu"] == used).await;
    }
}

/// 2e: how many may come to run is shown, and reserved where that is wished.
#[tokio::test(flavor = "multi_thread")]
async fn case_2e_how_many_executors_may_come_is_shown_and_reserved_where_that_is_wished() {
    let dynamic = json!({"enabled": true, "initialExecutors": 2, "minExecutors": 1, "maxExecutors": 6});
    for (reserve, reserved, used) in [("initial", 2, "3"), ("min", 1, "2"), ("max", 6, "7")] {
        let fleet = fleet_with("8", &format!(", reserve: {reserve}")).await;
        fleet.create(&sparks(), "job", application(1, dynamic.clone())).await;
        let binding = fleet.until(&bindings(), "job-sparkapplication", |one| scheduled(one).0 == "Success").await;
        assert_eq!(executors(&binding), json!(reserved), "{reserve}");
        assert_eq!(
            binding.metadata.annotations.unwrap_or_default().get(POTENTIAL).map(String::as_str),
            Some("executor=6")
        );
        let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
        assert_eq!(quota.data["status"]["overallUsed"]["cpu"], used, "{reserve}");
    }
}
