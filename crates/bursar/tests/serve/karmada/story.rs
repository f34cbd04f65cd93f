//! The story of the proposal: a quota of 40 CPU and 50 GiB, four Flink jobs that fill it, two clusters, of which one fails.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, condition, until, until_gone};
use super::observer::Observer;
use super::{
    TEAM, api, bindings, clusters, create, edit, flink, flinks, placed, policies, quotas, reasons, scheduled, told,
};
use crate::harness::PATIENCE;

const JOBS: [(&str, u32, u32); 4] = [("a", 12, 15), ("b", 8, 10), ("c", 14, 17), ("d", 6, 8)];

fn selected(names: &[&str]) -> Value {
    let one = |name: &&str| json!({"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "name": name});
    names.iter().map(one).collect()
}

/// A and B in m1, C and D in m2, all of them running.
async fn filled(overall: Value, assignments: Value) -> (Fleet, Vec<tokio::task::JoinHandle<()>>) {
    let fleet = Fleet::start(&["m1", "m2"], "").await;
    let operators = fleet.members.iter().map(|member| flink::tend(member.client.clone())).collect();
    let mut spec = json!({"overall": overall.clone()});
    if assignments.is_null() {
        // Each member has room for all.
        let hard = json!({"hard": overall});
        for member in &fleet.members {
            create(&member.client, &resource_quotas(), "team", hard.clone()).await.expect("a quota of its own");
        }
    } else {
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

fn resource_quotas() -> kube::core::ApiResource {
    super::kind("", "v1", "ResourceQuota", "resourcequotas")
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

/// 1b, 1c and 1e: the failed cluster's jobs run elsewhere, the total never dips, nobody gets in between, and when the cluster is
/// back there is one copy of everything.
#[tokio::test(flavor = "multi_thread")]
async fn case_1b_1c_1e_a_failover_keeps_the_total_and_lets_no_thief_in() {
    let (mut fleet, _operators) = filled(json!({"cpu": "40", "memory": "50Gi"}), Value::Null).await;
    assert_eq!(used(&api(&fleet.client, &quotas()).get("q").await.expect("the quota")), full());
    let observer = Observer::of_quota(&fleet.client, |quota| used(quota) == full());
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
    // That member's own quota is as full as the one over all.
    until(&second, &resource_quotas(), "team", |quota| quota.data["status"]["used"] == quota.data["status"]["hard"])
        .await;
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
    // The pods that m1 was killed with go with their jobs, and do not come again.
    let no_pods = async {
        while !pods(&first).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, no_pods).await.expect("the pods of m1 go");
    let copies = Observer::begin(move || {
        let first = first.clone();
        async move {
            let again: Vec<String> =
                pods(&first).await.into_iter().filter(|pod| pod.starts_with("a-") || pod.starts_with("b-")).collect();
            (!again.is_empty()).then(|| format!("{again:?} run in m1 again"))
        }
    });
    assert_eq!(pods(&second).await.len(), 8);
    let thief = fleet.until(&bindings(), &binding("e"), |_| true).await;
    assert!(placed(&thief).is_empty() && scheduled(&thief).0 == "QuotaExceeded");
    observer.end(100).await;
    // What a job lets go of is the thief's, once its pods are gone.
    api(&fleet.client, &flinks()).delete("d", &Default::default()).await.expect("deleted");
    fleet.until(&bindings(), &binding("e"), |one| scheduled(one).0 == "Success").await;
    until_gone(&second, &flinks(), "d").await;
    fleet.until(&flinks(), "e", is_running).await;
    copies.end(20).await;
    told(&fleet.client, "ScheduleBindingSucceed", "Binding has been scheduled successfully. Result: {m1:").await;
    told(&fleet.client, "ScheduleBindingFailed", words).await;
    told(&fleet.client, "EvictWorkloadFromClusterSucceed", "Evict from cluster m1 succeed.").await;
    let all = ["EvictWorkloadFromClusterSucceed", "ScheduleBindingFailed", "ScheduleBindingSucceed"];
    assert_eq!(reasons(&fleet.client).await, all);
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
    columns_tell(&fleet).await;
    fleet.until(&quotas(), "q", |quota| condition(quota, "AssignmentsApplied") == "True").await;
    fleet.fail_over().await;
    fleet.member("m1").kill().await;
    // What it said last is of before.
    fleet.until(&quotas(), "q", |quota| condition(quota, "AssignmentsApplied") == "Unknown").await;
    let second = fleet.member("m2").client.clone();
    let is_refused = |job: &DynamicObject| {
        job.data["status"]["error"].as_str().is_some_and(|error| error.contains("exceeded quota: q"))
    };
    for name in ["a", "b"] {
        fleet.until(&bindings(), &binding(name), |one| placed(one) == ["m2"]).await;
        until(&second, &flinks(), name, is_refused).await;
    }
    told(&fleet.client, "SyncWorkSucceed", "Sync works for FederatedResourceQuota(team/q) succeed.").await;
    told(&fleet.client, "AggregateStatusSucceed", "Collect status of FederatedResourceQuota(team/q) succeed.").await;
    told(&fleet.client, "EvictWorkloadFromClusterSucceed", "Evict from cluster m1 succeed.").await;
    let all =
        ["AggregateStatusSucceed", "EvictWorkloadFromClusterSucceed", "ScheduleBindingSucceed", "SyncWorkSucceed"];
    assert_eq!(reasons(&fleet.client).await, all);
    // Taken away, an assignment leaves the cluster.
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"staticAssignments": null}})).await.expect("an edit");
    until_gone(&second, &resource_quotas(), "q").await;
    for name in ["a", "b"] {
        until(&second, &flinks(), name, is_running).await;
    }
}

/// What `kubectl get` shows of each kind, as Karmada's own users know it.
async fn columns_tell(fleet: &Fleet) {
    for (kind, name, header, row) in [
        ("federatedresourcequotas", "q", "NAMESPACE NAME OVERALL OVERALL_USED", r#"{"cpu":"40","memory":"50Gi"}"#),
        ("resourcebindings", "a-flinkdeployment", "NAMESPACE NAME SCHEDULED FULLYAPPLIED AGE", " True "),
        ("clusters", "m1", "NAME VERSION MODE READY AGE", " Push "),
        ("works", "q-", "NAMESPACE NAME WORKLOAD-KIND WORKLOAD-NAME APPLIED AGE", " ResourceQuota "),
    ] {
        let said = fleet.kubectl(&["get", kind, "--all-namespaces"]).await;
        let first = said.lines().next().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(first, header, "{said}");
        assert!(said.lines().any(|line| line.contains(name) && line.contains(row)), "{said}");
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

/// 1f and 1g: memory is read Flink's way, and a raise that does not fit changes nothing that runs, whatever happens afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn case_1f_1g_a_raise_that_is_refused_changes_nothing_that_runs() {
    let (fleet, _operators) = filled(json!({"cpu": "40", "memory": "50Gi"}), Value::Null).await;
    let clients = [fleet.members[0].client.clone(), fleet.members[1].client.clone()];
    let parallelism = |wanted: u32| json!({"spec": {"job": {"parallelism": wanted}}});
    let refused = |sum: u32| format!("exceeded for resource cpu: requested sum {sum}, limit 40.");
    edit(&fleet.client, &flinks(), "a", json!({"spec": {"taskManager": {"replicas": 4}}})).await.expect("a template");
    told(&fleet.client, "ApplyPolicyFailed", &refused(73)).await;
    // Where a job does not say how many task managers, its parallelism does.
    let by_parallelism = json!({"spec": {"taskManager": {"replicas": null}, "job": {"parallelism": 40}}});
    edit(&fleet.client, &flinks(), "b", by_parallelism).await.expect("a template");
    told(&fleet.client, "ApplyPolicyFailed", &refused(313)).await;
    // A memory that nobody can read is told too, and what runs stays.
    let unreadable = json!({"spec": {"taskManager": {"resource": {"memory": "9x"}}}});
    edit(&fleet.client, &flinks(), "c", unreadable).await.expect("a template");
    told(&fleet.client, "ApplyPolicyFailed", "9x").await;
    // A control plane that forgot what it refused, a binding that is looked at again, and a member that has to be put right: each
    // would be an occasion to bring what was not charged.
    let fleet = fleet.restart_centre().await;
    fleet.until(&clusters(), "m1", |cluster| condition(cluster, "Ready") == "True").await;
    let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
    edit(&fleet.client, &bindings(), &binding("b"), touched).await.expect("an edit");
    for _ in 0..3 {
        edit(&clients[0], &flinks(), "b", parallelism(39)).await.expect("an edit");
        until(&clients[0], &flinks(), "b", |job| job.data["spec"]["job"]["parallelism"] != 39).await;
        runs_as_charged(&clients).await;
    }
    // What fits arrives; and then everything was looked at.
    let image = json!({"spec": {"image": "flink:2"}});
    edit(&fleet.client, &flinks(), "d", image.clone()).await.expect("a template");
    until(&clients[1], &flinks(), "d", |job| job.data["spec"]["image"] == "flink:2").await;
    runs_as_charged(&clients).await;
    assert_eq!(used(&api(&fleet.client, &quotas()).get("q").await.expect("the quota")), full());
    edit(&fleet.client, &flinks(), "b", parallelism(1)).await.expect("a template");
    edit(&fleet.client, &flinks(), "b", image).await.expect("a template");
    until(&clients[0], &flinks(), "b", |job| job.data["spec"]["image"] == "flink:2").await;
}

/// What members have of A, B and C is what the quota was charged for.
async fn runs_as_charged(clients: &[kube::Client; 2]) {
    let there = async |member: usize, job: &str| api(&clients[member], &flinks()).get(job).await.expect("it runs").data;
    assert_eq!(there(0, "a").await["spec"]["taskManager"]["replicas"], json!(1));
    let second = there(0, "b").await;
    assert_eq!(second["spec"]["job"]["parallelism"], json!(1));
    assert_eq!(second["spec"]["taskManager"]["replicas"], json!(1));
    assert_eq!(there(1, "c").await["spec"]["taskManager"]["resource"]["memory"], json!("16g"));
}

/// A binding in the form of before components, by hand: it says so many pods of one size, which is not what a Flink job is. Members
/// get nothing by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_flink_job_goes_by_its_components_alone() {
    let fleet = Fleet::start(&["m1"], "").await;
    let there = fleet.members[0].client.clone();
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "40", "memory": "50Gi"}})).await;
    fleet.create(&policies(), "p", json!({"resourceSelectors": selected(&["b"])})).await;
    fleet.create(&flinks(), "a", flink::job(12, 15)).await;
    let by_hand = json!({
        "resource": {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "namespace": TEAM, "name": "a"},
        "replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "11", "memory": "14Gi"}},
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
        "clusters": [{"name": "m1", "replicas": 2}], "schedulerName": "mine",
    });
    fleet.create(&bindings(), &binding("a"), by_hand).await;
    fleet.until(&bindings(), &binding("a"), |one| one.metadata.finalizers.is_some()).await;
    fleet.until(&quotas(), "q", |quota| used(quota).0 == "22").await;
    // Another one, of the same size, arrives after it.
    fleet.create(&flinks(), "b", flink::job(12, 15)).await;
    until(&there, &flinks(), "b", |_| true).await;
    assert!(api(&there, &flinks()).get_opt("a").await.expect("an answer").is_none(), "it is not what was charged");
    // What it asks for, in so many components, is all that was missing.
    let known = fleet.until(&bindings(), &binding("b"), |one| placed(one) == ["m1"]).await;
    let components = json!({"replicas": null, "replicaRequirements": null, "components": known.data["spec"]["components"],
        "clusters": [{"name": "m1"}]});
    edit(&fleet.client, &bindings(), &binding("a"), json!({ "spec": components })).await.expect("an edit");
    until(&there, &flinks(), "a", |_| true).await;
    fleet.until(&quotas(), "q", |quota| used(quota).0 == "24").await;
}
