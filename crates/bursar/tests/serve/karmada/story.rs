//! The story of the proposal: a quota of 40 CPU and 50 GiB, four Flink jobs that fill it, two clusters, of which one fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, condition, until, until_gone};
use super::{TEAM, api, bindings, clusters, create, edit, flink, flinks, placed, policies, quotas, scheduled};

const JOBS: [(&str, u32, u32); 4] = [("a", 12, 15), ("b", 8, 10), ("c", 14, 17), ("d", 6, 8)];

fn selected(names: &[&str]) -> Value {
    let one = |name: &&str| json!({"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "name": name});
    names.iter().map(one).collect()
}

/// A and B in m1, C and D in m2, all of them running.
async fn filled(overall: Value, assignments: Value) -> (Fleet, Vec<tokio::task::JoinHandle<()>>) {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let operators = fleet.members.iter().map(|member| flink::tend(member.client.clone())).collect();
    let mut spec = json!({ "overall": overall });
    if !assignments.is_null() {
        spec["staticAssignments"] = assignments;
    }
    fleet.create(&quotas(), "q", spec).await;
    let anywhere = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let mut second = anywhere.clone();
    second["clusterAffinity"] = json!({"clusterNames": ["m2"]});
    let policy =
        |names: &[&str], placement: Value| json!({"resourceSelectors": selected(names), "placement": placement});
    fleet.create(&policies(), "anywhere", policy(&["a", "b", "e"], anywhere)).await;
    fleet.create(&policies(), "second", policy(&["c", "d"], second)).await;
    for (name, cpu, memory) in JOBS {
        fleet.create(&flinks(), name, flink::job(cpu, memory)).await;
    }
    for (name, _, _) in JOBS {
        let cluster = if matches!(name, "a" | "b") { "m1" } else { "m2" };
        fleet.until(&bindings(), &binding(name), |binding| placed(binding) == [cluster]).await;
        fleet.until(&flinks(), name, is_running).await;
    }
    (fleet, operators)
}

fn binding(job: &str) -> String {
    format!("{job}-flinkdeployment")
}

fn is_running(job: &DynamicObject) -> bool {
    job.data["status"]["jobStatus"]["state"] == "RUNNING"
}

fn used(quota: &DynamicObject) -> (String, String) {
    let text = |name: &str| quota.data["status"]["overallUsed"][name].as_str().unwrap_or("").to_owned();
    (text("cpu"), text("memory"))
}

fn full() -> (String, String) {
    ("40".into(), "50Gi".into())
}

async fn pods(client: &kube::Client) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), TEAM);
    let list = pods.list(&ListParams::default()).await.expect("pods");
    list.items.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

/// Reads the quota again and again; how often, and whether it ever said anything else than this.
fn observed(client: kube::Client) -> (tokio::task::JoinHandle<Option<(String, String)>>, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = looks.clone();
    let task = tokio::spawn(async move {
        loop {
            let quota = api(&client, &quotas()).get("q").await.expect("the quota");
            if used(&quota) != full() {
                return Some(used(&quota));
            }
            if counted.fetch_add(1, Ordering::Relaxed) == usize::MAX / 2 {
                return None;
            }
            tokio::task::yield_now().await;
        }
    });
    (task, looks)
}

/// 1b, 1c and 1e: the failed cluster's jobs run elsewhere, the total never dips, nobody gets in between, and when the cluster is
/// back there is one copy of everything.
#[tokio::test(flavor = "multi_thread")]
async fn case_1b_1c_1e_a_failover_keeps_the_total_and_lets_no_thief_in() {
    let (mut fleet, _operators) = filled(json!({"cpu": "40", "memory": "50Gi"}), Value::Null).await;
    assert_eq!(used(&api(&fleet.client, &quotas()).get("q").await.expect("the quota")), full());
    let (watcher, looks) = observed(fleet.client.clone());
    // The thief stands at the door from now on.
    create(&fleet.client, &flinks(), "e", flink::job(2, 2)).await.expect("a template");
    let refused = fleet.until(&bindings(), &binding("e"), |one| scheduled(one).0 == "QuotaExceeded").await;
    let words = "FederatedResourceQuota(team/q) exceeded for resource cpu: requested sum 42, limit 40.";
    assert!(scheduled(&refused).1.contains(words), "{}", scheduled(&refused).1);
    fleet.fail_over().await;
    fleet.member("m1").kill().await;
    for name in ["a", "b"] {
        fleet.until(&bindings(), &binding(name), |one| placed(one) == ["m2"]).await;
    }
    let second = fleet.member("m2").client.clone();
    for name in ["a", "b", "c", "d"] {
        until(&second, &flinks(), name, is_running).await;
    }
    // Replaced and well: the evictions are done, and m1 has no say in it.
    for name in ["a", "b"] {
        fleet.until(&bindings(), &binding(name), |one| one.data["spec"].get("gracefulEvictionTasks").is_none()).await;
    }
    fleet.member("m1").come_back().await;
    fleet.until(&clusters(), "m1", |cluster| condition(cluster, "Ready") == "True").await;
    let first = fleet.member("m1").client.clone();
    for name in ["a", "b"] {
        until_gone(&first, &flinks(), name).await;
        let there = fleet.until(&bindings(), &binding(name), |_| true).await;
        assert_eq!(placed(&there), ["m2"]);
    }
    assert_eq!(pods(&second).await.len(), 8);
    let thief = fleet.until(&bindings(), &binding("e"), |_| true).await;
    assert!(placed(&thief).is_empty() && scheduled(&thief).0 == "QuotaExceeded");
    assert!(!watcher.is_finished(), "the quota said {:?}", watcher.await);
    assert!(looks.load(Ordering::Relaxed) > 100);
    watcher.abort();
    // What a job lets go of is the thief's, once its pods are gone.
    api(&fleet.client, &flinks()).delete("d", &Default::default()).await.expect("deleted");
    fleet.until(&bindings(), &binding("e"), |one| scheduled(one).0 == "Success").await;
    until_gone(&second, &flinks(), "d").await;
}

/// 1a: the failure that static assignments lead to. Each cluster has half of the quota, so that the second one has no room for what
/// the first one ran.
#[tokio::test(flavor = "multi_thread")]
async fn case_1a_static_assignments_leave_no_room_to_fail_over() {
    let half = json!({"cpu": "20", "memory": "25Gi"});
    let assignments = json!([{"clusterName": "m1", "hard": half}, {"clusterName": "m2", "hard": half}]);
    let (mut fleet, _operators) = filled(json!({"cpu": "40", "memory": "50Gi"}), assignments).await;
    let is_full = |quota: &DynamicObject| {
        let told = quota.data["status"]["aggregatedStatus"].as_array().cloned().unwrap_or_default();
        told.len() == 2 && told.iter().all(|one| one["used"] == one["hard"] && one["hard"]["cpu"] == "20")
    };
    fleet.until(&quotas(), "q", is_full).await;
    for member in &fleet.members {
        let there: Api<ResourceQuota> = Api::namespaced(member.client.clone(), TEAM);
        assert!(there.get("q").await.is_ok());
    }
    fleet.fail_over().await;
    fleet.member("m1").kill().await;
    let second = fleet.member("m2").client.clone();
    let is_refused = |job: &DynamicObject| {
        job.data["status"]["error"].as_str().is_some_and(|error| error.contains("exceeded quota: q"))
    };
    for name in ["a", "b"] {
        fleet.until(&bindings(), &binding(name), |one| placed(one) == ["m2"]).await;
        until(&second, &flinks(), name, is_refused).await;
    }
    // Taken away, an assignment leaves the cluster.
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"staticAssignments": null}})).await.expect("an edit");
    let resource_quotas = super::kind("", "v1", "ResourceQuota", "resourcequotas");
    until_gone(&second, &resource_quotas, "q").await;
    for name in ["a", "b"] {
        until(&second, &flinks(), name, is_running).await;
    }
}

/// 1d: a limit below what is used stops neither eviction nor replacement, nor shrinking. The cluster stands still, and goes on when all
/// is done.
#[tokio::test(flavor = "multi_thread")]
async fn case_1d_a_lowered_quota_fails_over_too() {
    let (mut fleet, _operators) = filled(json!({"cpu": "40", "memory": "50Gi"}), Value::Null).await;
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"overall": {"cpu": "30", "memory": "40Gi"}}}))
        .await
        .expect("an edit");
    fleet.fail_over().await;
    fleet.member("m1").signal("STOP").await;
    for name in ["a", "b"] {
        fleet.until(&bindings(), &binding(name), |one| placed(one) == ["m2"]).await;
    }
    let quota = fleet.until(&quotas(), "q", |quota| quota.data["status"]["overall"]["cpu"] == "30").await;
    assert_eq!(used(&quota), full());
    edit(&fleet.client, &flinks(), "c", json!({"spec": {"taskManager": {"resource": {"cpu": 10}}}}))
        .await
        .expect("a template");
    fleet.until(&quotas(), "q", |quota| used(quota).0 == "37").await;
    fleet.member("m1").signal("CONT").await;
    let first = fleet.member("m1").client.clone();
    for name in ["a", "b"] {
        until_gone(&first, &flinks(), name).await;
    }
    fleet.until(&clusters(), "m1", |cluster| condition(cluster, "Ready") == "True").await;
    assert_eq!(used(&api(&fleet.client, &quotas()).get("q").await.expect("the quota")).0, "37");
}

/// 1f and 1g: memory is read Flink's way, and a raise that does not fit changes nothing that runs.
#[tokio::test(flavor = "multi_thread")]
async fn case_1f_1g_a_raise_that_is_refused_changes_nothing_that_runs() {
    let (fleet, _operators) = filled(json!({"cpu": "40", "memory": "50Gi"}), Value::Null).await;
    edit(&fleet.client, &flinks(), "a", json!({"spec": {"taskManager": {"replicas": 4}}})).await.expect("a template");
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(fleet.client.clone(), TEAM);
    let told = async {
        loop {
            let list = events.list(&ListParams::default()).await.expect("events").items;
            let found = list.into_iter().find(|event| event.reason.as_deref() == Some("ApplyPolicyFailed"));
            if let Some(event) = found {
                return event.note.unwrap_or_default();
            }
            tokio::task::yield_now().await;
        }
    };
    let told = tokio::time::timeout(crate::harness::PATIENCE, told).await.expect("it is told");
    assert!(told.contains("exceeded for resource cpu: requested sum 73, limit 40."), "{told}");
    let first = &fleet.members[0].client;
    let there = api(first, &flinks()).get("a").await.expect("it runs");
    assert_eq!(there.data["spec"]["taskManager"]["replicas"], json!(1));
    // A memory that nobody can read is told too, and what runs stays.
    edit(&fleet.client, &flinks(), "b", json!({"spec": {"taskManager": {"resource": {"memory": "9x"}}}}))
        .await
        .expect("a template");
    edit(&fleet.client, &flinks(), "a", json!({"spec": {"taskManager": {"replicas": 1}}})).await.expect("a template");
    // What fits arrives.
    edit(&fleet.client, &flinks(), "a", json!({"spec": {"image": "flink:2"}})).await.expect("a template");
    until(first, &flinks(), "a", |job| job.data["spec"]["image"] == "flink:2").await;
    let unread = api(first, &flinks()).get("b").await.expect("it runs");
    assert_eq!(unread.data["spec"]["taskManager"]["resource"]["memory"], json!("9g"));
    // What somebody changes in a member is put back.
    edit(first, &flinks(), "a", json!({"spec": {"image": "mine"}})).await.expect("an edit");
    until(first, &flinks(), "a", |job| job.data["spec"]["image"] == "flink:2").await;
}
