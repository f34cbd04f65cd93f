//! Who waits for a quota, in which order, and what wakes them.

use futures::StreamExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, until};
use super::observer::Observer;
use super::{
    TEAM, api, bindings, clusters, create, deployment, deployments, edit, everything, flink, flinks, placed, policies,
    quotas, scheduled, told,
};

fn policy(priority: Option<i32>, names: &[&str]) -> Value {
    let one = |name: &&str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let mut selectors: Value = names.iter().map(one).collect();
    if names.is_empty() {
        selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    }
    let mut spec = json!({
        "resourceSelectors": selectors,
        "placement": {
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
            "clusterTolerations": [{"operator": "Exists"}],
        },
        // Nobody would take it away again.
        "suspension": {"dispatching": true},
    });
    if let Some(priority) = priority {
        spec["schedulePriority"] = json!({ "priority": priority });
    }
    spec
}

/// A control plane with a cluster that nobody answers for: placing needs no member.
async fn lonely() -> Fleet {
    let fleet = Fleet::start(&[], ", evict: false").await;
    create(&fleet.client, &clusters(), "far", json!({"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:9"}))
        .await
        .expect("a cluster");
    fleet
}

async fn all(fleet: &Fleet) -> Vec<DynamicObject> {
    api(&fleet.client, &bindings()).list(&ListParams::default()).await.expect("bindings").items
}

/// Five hundred workloads of a CPU each, so many creates at a time; when each was made, the oldest first.
async fn make_five_hundred(fleet: &Fleet, at_once: usize) -> Vec<(String, String)> {
    let templates = futures::stream::iter(0..500).map(|number| {
        let client = fleet.client.clone();
        async move { create(&client, &deployments(), &format!("w{number:03}"), deployment(1)).await }
    });
    let made = templates.buffered(at_once).map(|made| made_at(&made.expect("a template")));
    let mut age: Vec<(String, String)> = made.collect().await;
    age.sort();
    age
}

fn made_at(one: &DynamicObject) -> (String, String) {
    let metadata = one.metadata.clone();
    (metadata.creation_timestamp.expect("a time").0.to_string(), metadata.name.expect("a name"))
}

/// Of the five hundred the two hundred that fit are placed, and each of the others says why it waits: those and these.
async fn settled(fleet: &Fleet) -> (Vec<DynamicObject>, Vec<DynamicObject>) {
    let settled = async {
        loop {
            let all = all(fleet).await;
            let told = all.iter().filter(|one| !scheduled(one).0.is_empty()).count();
            if told == 500 {
                return all;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let all = tokio::time::timeout(crate::harness::PATIENCE, settled).await.expect("all are told in time");
    let (granted, waiting): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| scheduled(one).0 == "Success");
    assert_eq!((granted.len(), waiting.len()), (200, 300));
    let words = "FederatedResourceQuota(team/q) exceeded for resource cpu: requested sum 201, limit 200.";
    let is_told = |one: &DynamicObject| scheduled(one).0 == "QuotaExceeded" && scheduled(one).1.contains(words);
    assert!(waiting.iter().all(is_told), "{:?}", scheduled(&waiting[0]));
    assert!(granted.iter().all(|one| placed(one) == ["far"]) && waiting.iter().all(|one| placed(one).is_empty()));
    let quota = api(&fleet.client, &quotas()).get("q").await.expect("the quota");
    assert_eq!(quota.data["status"]["overallUsed"]["cpu"], "200");
    (granted, waiting)
}

/// Five hundred workloads against a quota that fits two hundred, all there before anybody may have them.
#[tokio::test(flavor = "multi_thread")]
async fn of_five_hundred_the_oldest_two_hundred_are_scheduled() {
    let fleet = lonely().await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "200"}})).await;
    let age = make_five_hundred(&fleet, 16).await;
    fleet.create(&policies(), "p", policy(None, &[])).await;
    let (granted, _) = settled(&fleet).await;
    let mut names: Vec<String> = granted.iter().filter_map(|one| one.metadata.name.clone()).collect();
    names.sort();
    let mut oldest: Vec<String> = age[..200].iter().map(|(_, name)| format!("{name}-deployment")).collect();
    oldest.sort();
    assert_eq!(names, oldest, "the oldest are served first");
}

/// The same five hundred at once, each of them served as it comes.
#[tokio::test(flavor = "multi_thread")]
async fn of_five_hundred_that_come_at_once_nobody_younger_is_served_before_an_older_one() {
    let fleet = lonely().await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "200"}})).await;
    fleet.create(&policies(), "p", policy(None, &[])).await;
    make_five_hundred(&fleet, 64).await;
    let (granted, waiting) = settled(&fleet).await;
    let youngest = granted.iter().map(made_at).max().expect("some are served").0;
    let oldest = waiting.iter().map(made_at).min().expect("some wait").0;
    assert!(youngest <= oldest, "one of {youngest} is served, and one of {oldest} waits");
}

/// A release, a raise, and the end of a quota wake who waits: first the highest priority, then the oldest.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_woken_by_priority_then_age() {
    let fleet = lonely().await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4"}})).await;
    fleet.create(&policies(), "plain", policy(None, &["first", "old", "young"])).await;
    fleet.create(&policies(), "urgent", policy(Some(10), &["urgent"])).await;
    let name = |of: &str| format!("{of}-deployment");
    let is = |reason: &'static str| move |one: &DynamicObject| scheduled(one).0 == reason;
    fleet.create(&deployments(), "first", deployment(4)).await;
    fleet.until(&bindings(), &name("first"), is("Success")).await;
    for one in ["old", "young", "urgent"] {
        fleet.create(&deployments(), one, deployment(3)).await;
        let waiting = fleet.until(&bindings(), &name(one), is("QuotaExceeded")).await;
        assert!(scheduled(&waiting).1.contains("requested sum 7, limit 4."), "{}", scheduled(&waiting).1);
    }
    api(&fleet.client, &deployments()).delete("first", &DeleteParams::default()).await.expect("deleted");
    fleet.until(&bindings(), &name("urgent"), is("Success")).await;
    fleet.until(&bindings(), &name("old"), is("QuotaExceeded")).await;
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"overall": {"cpu": "6"}}})).await.expect("a raise");
    fleet.until(&bindings(), &name("old"), is("Success")).await;
    fleet.until(&bindings(), &name("young"), is("QuotaExceeded")).await;
    api(&fleet.client, &quotas()).delete("q", &DeleteParams::default()).await.expect("deleted");
    fleet.until(&bindings(), &name("young"), is("Success")).await;
}

/// A workload that grows beyond the quota waits with what it has, and gets the rest when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_more_keeps_what_it_has() {
    let fleet = lonely().await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4"}})).await;
    fleet.create(&policies(), "p", policy(None, &[])).await;
    fleet.create(&deployments(), "web", deployment(3)).await;
    let replicas = |one: &DynamicObject| one.data["spec"]["clusters"][0]["replicas"].clone();
    fleet.until(&bindings(), "web-deployment", |one| replicas(one) == 3).await;
    edit(&fleet.client, &deployments(), "web", json!({"spec": {"replicas": 6}})).await.expect("a template");
    let waiting = fleet.until(&bindings(), "web-deployment", |one| scheduled(one).0 == "QuotaExceeded").await;
    assert_eq!((replicas(&waiting), &waiting.data["spec"]["replicas"]), (json!(3), &json!(6)));
    edit(&fleet.client, &quotas(), "q", json!({"spec": {"overall": {"cpu": "6"}}})).await.expect("a raise");
    until(&fleet.client, &bindings(), "web-deployment", |one| replicas(one) == 6).await;
    // No cluster at all is another matter than no room.
    let far = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
        "placement": {"clusterAffinity": {"clusterNames": ["nowhere"]}}});
    fleet.create(&policies(), "nowhere", far).await;
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(fleet.client.clone(), TEAM);
    maps.create(&PostParams::default(), &crate::object(json!({"metadata": {"name": "m"}}))).await.expect("a map");
    let unfit = fleet.until(&bindings(), "m-configmap", |one| scheduled(one).0 == "NoClusterFit").await;
    assert!(
        scheduled(&unfit).1.starts_with("0/1 clusters are available: 1 cluster(s) did not match"),
        "{}",
        scheduled(&unfit).1
    );
}

/// A pod of ten CPUs becomes ten of one, and again one: the quota stays full all the while, and who waits at the door does not get in.
#[tokio::test(flavor = "multi_thread")]
async fn another_size_and_number_leave_nothing_to_steal() {
    let fleet = Fleet::start(&["m1"], "").await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "10"}})).await;
    fleet.create(&policies(), "p", everything("apps/v1", "Deployment")).await;
    let sized = |replicas: u32, cpu: &str| {
        let mut spec = deployment(replicas);
        spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        spec
    };
    fleet.create(&deployments(), "web", sized(1, "10")).await;
    fleet.until(&quotas(), "q", |quota| quota.data["status"]["overallUsed"]["cpu"] == "10").await;
    fleet.create(&deployments(), "thief", deployment(3)).await;
    fleet.until(&bindings(), "thief-deployment", |one| scheduled(one).0 == "QuotaExceeded").await;
    let observer = Observer::of_quota(&fleet.client, |quota| quota.data["status"]["overallUsed"]["cpu"] == "10");
    let there = fleet.members[0].client.clone();
    for (replicas, cpu) in [(10, "1"), (2, "5"), (5, "2"), (1, "10")] {
        edit(&fleet.client, &deployments(), "web", json!({"spec": sized(replicas, cpu)})).await.expect("a template");
        until(&there, &deployments(), "web", |one| {
            let asked = &one.data["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"];
            one.data["spec"]["replicas"] == replicas && *asked == cpu
        })
        .await;
    }
    // More than there is changes nothing.
    edit(&fleet.client, &deployments(), "web", json!({"spec": sized(11, "1")})).await.expect("a template");
    told(&fleet.client, "ApplyPolicyFailed", "exceeded for resource cpu: requested sum 11, limit 10.").await;
    let thief = fleet.until(&bindings(), "thief-deployment", |_| true).await;
    assert!(placed(&thief).is_empty(), "{:?}", placed(&thief));
    observer.end(100).await;
}

/// Each reason why a template is not applied is told, also one that comes soon after another.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_refusal_is_told_in_its_own_words() {
    let fleet = Fleet::start(&["m1"], "").await;
    fleet.create(&quotas(), "q", json!({"overall": {"cpu": "4", "memory": "50Gi"}})).await;
    fleet.create(&policies(), "p", everything("flink.apache.org/v1beta1", "FlinkDeployment")).await;
    fleet.create(&flinks(), "a", flink::job(3, 3)).await;
    fleet.until(&bindings(), "a-flinkdeployment", |one| placed(one) == ["m1"]).await;
    for (workers, sum) in [(4, 9), (5, 11)] {
        let patch = json!({"spec": {"taskManager": {"replicas": workers}}});
        edit(&fleet.client, &flinks(), "a", patch).await.expect("a template");
        told(&fleet.client, "ApplyPolicyFailed", &format!("requested sum {sum}, limit 4.")).await;
    }
}
