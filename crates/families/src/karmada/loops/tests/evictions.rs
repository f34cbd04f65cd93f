//! Clusters that failed are left by everybody who is to leave.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::applications::Applications;
use super::super::kind::taint_policies;
use super::super::taints::Taints;
use super::*;

/// An eviction that is refused keeps no other in a cluster that failed; and what nobody knows is no way to end one.
#[tokio::test]
async fn a_refused_eviction_keeps_no_other_from_leaving() {
    const ALL: usize = 8;
    let (refused, tried) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::new(BTreeSet::new())));
    let (client, _asked) = api({
        let (refused, tried) = (refused.clone(), tried.clone());
        move |(method, place, body)| {
            if *method == Method::PATCH && place.contains("/resourcebindings/") {
                assert_eq!(body["spec"]["gracefulEvictionTasks"][0]["purgeMode"], "Gracefully");
                tried.lock().expect("a list").insert(place.clone());
                // Whoever comes first is refused.
                return Some(if refused.fetch_add(1, Ordering::Relaxed) == 0 { refusal(422) } else { body.clone() });
            }
            Some(body.clone())
        }
    });
    let taints = json!([{"key": "failed", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
    let cluster = object(&clusters(), "", "m1", json!({"spec": {"taints": taints}}));
    let all = (0..ALL).map(|one| {
        let spec = json!({
            "resource": {}, "clusters": [{"name": "m1", "replicas": 1}], "failover": {"cluster": {"purgeMode": "Bogus"}},
        });
        object(&bindings(), "team", &format!("b{one}"), json!({ "spec": spec }))
    });
    let mirrors = [
        Mirror::of(clusters(), vec![cluster]),
        Mirror::of(taint_policies(), Vec::new()),
        Mirror::of(bindings(), all.collect()),
    ];
    let rest = Taints::new(client, Arc::new(Settings::default()), mirrors).look().await;
    assert_eq!(tried.lock().expect("a list").len(), ALL);
    assert!(rest <= Duration::from_secs(1), "the one that was refused is tried again");
}

/// What ran to its end in a cluster that fails then has nothing there to lose: elsewhere it would run again.
#[tokio::test]
async fn a_finished_job_is_not_run_again_elsewhere() {
    let bound = |name: &str, condition: &str| {
        let spec = json!({
            "resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": name},
            "clusters": [{"name": "m1", "replicas": 1}],
        });
        let status = json!({"conditions": [{"type": condition, "status": "True"}]});
        let told = json!([{"clusterName": "m1", "status": status}]);
        object(&bindings(), "team", name, json!({"spec": spec, "status": {"aggregatedStatus": told}}))
    };
    let taints = json!([{"key": "failed", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
    let cluster = object(&clusters(), "", "m1", json!({"spec": {"taints": taints}}));
    let (client, mut asked) = api(|(_, _, body)| Some(body.clone()));
    let mirrors = [
        Mirror::of(clusters(), vec![cluster]),
        Mirror::of(taint_policies(), Vec::new()),
        Mirror::of(bindings(), vec![bound("done", "Complete"), bound("runs", "Suspended")]),
    ];
    Taints::new(client, Arc::new(Settings::default()), mirrors).look().await;
    let mut evicted = Vec::new();
    while let Ok((method, place, _)) = asked.try_recv() {
        evicted.extend((method == Method::PATCH).then_some(place));
    }
    assert!(evicted.len() == 1 && evicted[0].contains("/runs"), "{evicted:?}");
}

/// Where a policy says so, a workload leaves a cluster in which it is not well; elsewhere it stays, and once it has left it is not
/// chased to and fro.
#[tokio::test]
async fn a_workload_leaves_where_it_is_not_well() {
    let bound = |name: &str, application: Value, health: &str| {
        let spec = json!({
            "resource": {}, "failover": {"application": application},
            "clusters": [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 2}],
        });
        let told = json!([{"clusterName": "m1", "health": health}, {"clusterName": "m2", "health": "Healthy"}]);
        object(&bindings(), "team", name, json!({"spec": spec, "status": {"aggregatedStatus": told}}))
    };
    let at_once =
        || json!({"decisionConditions": {"tolerationSeconds": 0}, "purgeMode": "Directly", "gracePeriodSeconds": 7});
    let all = vec![
        bound("sick", at_once(), "Unhealthy"),
        bound("well", at_once(), "Healthy"),
        bound("silent", at_once(), "Unknown"),
        bound("patient", json!({"decisionConditions": {"tolerationSeconds": 200}}), "Unhealthy"),
        bound("plain", Value::Null, "Unhealthy"),
    ];
    let (client, mut asked) = api(|(_, _, body)| Some(body.clone()));
    let mut applications = Applications::new(client, Mirror::of(bindings(), all));
    let rest = applications.look().await;
    assert!(rest <= Duration::from_secs(200) && rest > Duration::from_secs(150), "{rest:?}: the patient one");
    assert!(applications.look().await <= Duration::from_secs(60), "not again at once");
    let mut written = Vec::new();
    while let Ok((method, place, body)) = asked.try_recv() {
        if method == Method::PATCH && place.contains("/resourcebindings/") {
            written.push((place, body));
        }
    }
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].0.contains("/sick"), "{}", written[0].0);
    let spec = &written[0].1["spec"];
    assert_eq!(spec["clusters"], json!([{"name": "m2", "replicas": 2}]));
    let task = &spec["gracefulEvictionTasks"][0];
    assert_eq!(
        (&task["fromCluster"], &task["replicas"], &task["purgeMode"]),
        (&json!("m1"), &json!(3), &json!("Directly"))
    );
    assert_eq!((&task["reason"], &task["gracePeriodSeconds"]), (&json!("ApplicationFailure"), &json!(7)));
}
