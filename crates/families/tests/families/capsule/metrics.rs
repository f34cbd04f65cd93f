//! What monitoring sees, in the numbers that Capsule's documentation shows for the same pools, claims and quotas.

use serde_json::{Value, json};

use super::{claims, global_quotas, pools, quotas};
use crate::desk::{Desk, resource};

/// Every line of a metric, without the metric's name.
fn of(text: &str, metric: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    lines.map(|rest| rest.replace(['"', '}'], "")).collect()
}

fn pool(hard: Value) -> Value {
    json!({"spec": {"quota": {"hard": hard}, "selectors": [{"matchLabels": {"tenant": "solar"}}]}})
}

fn solar() -> Desk {
    let mut desk = Desk::new();
    desk.namespace("solar-prod", &[("tenant", "solar")]);
    desk.namespace("solar-test", &[("tenant", "solar")]);
    let compute = json!({
        "limits.cpu": "2", "limits.memory": "2Gi", "requests.cpu": "2", "requests.memory": "2Gi",
    });
    desk.apply(&pools(), "", "solar-compute", pool(compute)).unwrap();
    desk.apply(&pools(), "", "solar-size", pool(json!({"pods": "7"}))).unwrap();
    let all = |cpu: &str, memory: &str| json!({"limits.cpu": cpu, "limits.memory": memory, "requests.cpu": cpu, "requests.memory": memory});
    for (namespace, name, pool, amounts) in [
        ("solar-prod", "compute", "solar-compute", all("375m", "384Mi")),
        ("solar-prod", "compute-10", "solar-compute", json!({"limits.memory": "10Gi"})),
        ("solar-prod", "compute-2", "solar-compute", all("500m", "512Mi")),
        ("solar-prod", "compute-3", "solar-compute", json!({"requests.cpu": "500m"})),
        ("solar-test", "compute-4", "solar-compute", json!({"requests.cpu": "500m"})),
        ("solar-test", "compute-5", "solar-compute", json!({"requests.cpu": "500m"})),
        ("solar-test", "compute-6", "solar-compute", json!({"requests.cpu": "5"})),
        ("solar-test", "pods", "solar-size", json!({"pods": "3"})),
        ("solar-test", "lost", "nowhere", json!({"pods": "3"})),
    ] {
        desk.apply(&claims(), namespace, name, json!({"spec": {"pool": pool, "claim": amounts}})).unwrap();
    }
    desk
}

#[test]
fn pools_tell_what_the_documentation_shows() {
    let text = solar().sample();
    for (metric, expected) in [
        ("capsule_pool_available", &["1.125", "1207959552", "0.125", "1207959552", "4"][..]),
        ("capsule_pool_limit", &["2", "2147483648", "2", "2147483648", "7"]),
        ("capsule_pool_usage", &["0.875", "939524096", "1.875", "939524096", "3"]),
        ("capsule_pool_usage_percentage", &["43.75", "43.75", "93.75", "43.75", "42.857142857142857142"]),
        ("capsule_pool_resource", &["1", "1", "1", "1", "1"]),
        ("capsule_pool_exhaustion", &["10737418240", "5.5"]),
        ("capsule_pool_exhaustion_percentage", &["788.888888888888888888", "4300"]),
        ("capsule_pool_namespace_usage", &["0.875", "939524096", "1.375", "0.5", "939524096", "3"]),
        (
            "capsule_pool_namespace_usage_percentage",
            &["43.75", "43.75", "68.75", "25", "43.75", "42.857142857142857142"],
        ),
        ("capsule_pool_condition", &["1", "1", "1", "0"]),
    ] {
        let found: Vec<String> =
            of(&text, metric).iter().map(|line| line.rsplit_once(' ').unwrap().1.to_string()).collect();
        assert_eq!(found, expected, "{metric}\n{text}");
    }
    assert_eq!(
        of(&text, "capsule_pool_exhaustion"),
        ["pool=solar-compute,resource=limits.memory 10737418240", "pool=solar-compute,resource=requests.cpu 5.5"]
    );
    assert_eq!(
        of(&text, "capsule_pool_namespace_usage")[5],
        "pool=solar-size,resource=pods,target_namespace=solar-test 3"
    );
    assert_eq!(
        of(&text, "capsule_pool_condition"),
        [
            "condition=Ready,pool=solar-compute 1",
            "condition=Exhausted,pool=solar-compute 1",
            "condition=Ready,pool=solar-size 1",
            "condition=Exhausted,pool=solar-size 0",
        ]
    );
    assert!(text.contains(
        "# HELP capsule_pool_limit Current resource limit for a given resource in a resource pool\n\
         # TYPE capsule_pool_limit gauge\ncapsule_pool_limit{pool=\"solar-compute\",resource=\"limits.cpu\"} 2\n"
    ));
}

#[test]
fn claims_tell_what_they_ask_for_and_how_they_stand() {
    let text = solar().sample();
    let resources = of(&text, "capsule_claim_resource");
    assert_eq!(resources[0], "name=compute,resource=limits.cpu,target_namespace=solar-prod 0.375");
    assert_eq!(resources[1], "name=compute,resource=limits.memory,target_namespace=solar-prod 402653184");
    assert_eq!(resources.len(), 4 + 1 + 4 + 1 + 1 + 1 + 1 + 1 + 1);
    let pools = of(&text, "capsule_claim_pool");
    assert_eq!(pools[0], "name=compute,pool=solar-compute,target_namespace=solar-prod 1");
    assert_eq!(pools.len(), 8, "a claim without a pool tells none");
    let conditions = of(&text, "capsule_claim_condition");
    for expected in [
        "condition=Ready,name=compute,target_namespace=solar-prod 1",
        "condition=Exhausted,name=compute,target_namespace=solar-prod 0",
        "condition=Bound,name=compute,target_namespace=solar-prod 0",
        "condition=Exhausted,name=compute-6,target_namespace=solar-test 1",
        "condition=Ready,name=lost,target_namespace=solar-test 0",
    ] {
        assert!(conditions.iter().any(|line| line == expected), "{expected}\n{conditions:#?}");
    }
}

#[test]
fn custom_quotas_name_their_objects_only_when_asked_to() {
    let mut desk = Desk::new();
    desk.namespace("wind-test", &[]);
    let pods = resource("pods");
    let spec = json!({"limit": 3, "sources": [{"kind": "Pod", "op": "count"}]});
    desk.apply(&quotas(), "wind-test", "pod-count-limit", json!({"spec": spec})).unwrap();
    let path = ".spec.containers[*].resources.limits.cpu";
    let mut spec = json!({"limit": 5, "sources": [{"kind": "Pod", "op": "add", "path": path}]});
    desk.apply(&global_quotas(), "", "cpu-limits", json!({"spec": spec})).unwrap();
    let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "250m"}}}]}});
    for name in ["one", "two", "three"] {
        desk.apply(&pods, "wind-test", name, pod.clone()).unwrap();
    }
    let text = desk.sample();
    for (metric, expected) in [
        ("capsule_custom_quota_condition", "condition=Ready,custom_quota=pod-count-limit,target_namespace=wind-test 1"),
        ("capsule_custom_quota_resource_available", "custom_quota=pod-count-limit,target_namespace=wind-test 0"),
        ("capsule_custom_quota_resource_limit", "custom_quota=pod-count-limit,target_namespace=wind-test 3"),
        ("capsule_custom_quota_resource_usage", "custom_quota=pod-count-limit,target_namespace=wind-test 3"),
        (
            "capsule_custom_quota_resource_usage_percentage",
            "custom_quota=pod-count-limit,target_namespace=wind-test 100",
        ),
        ("capsule_global_custom_quota_condition", "condition=Ready,custom_quota=cpu-limits 1"),
        ("capsule_global_custom_quota_resource_limit", "custom_quota=cpu-limits 5"),
        ("capsule_global_custom_quota_resource_available", "custom_quota=cpu-limits 4.25"),
        ("capsule_global_custom_quota_resource_usage", "custom_quota=cpu-limits 0.75"),
        ("capsule_global_custom_quota_resource_usage_percentage", "custom_quota=cpu-limits 15"),
    ] {
        assert_eq!(of(&text, metric), [expected], "{metric}\n{text}");
    }
    assert!(!text.contains("item_usage"), "{text}");

    spec["options"] = json!({"emitMetricPerClaimUsage": true});
    desk.apply(&global_quotas(), "", "cpu-limits", json!({"spec": spec})).unwrap();
    let items = of(&desk.sample(), "capsule_global_custom_quota_resource_item_usage");
    let item =
        |name: &str| format!("custom_quota=cpu-limits,group=,kind=Pod,name={name},target_namespace=wind-test 0.25");
    assert_eq!(items, [item("one"), item("three"), item("two")]);
    assert!(of(&desk.sample(), "capsule_custom_quota_resource_item_usage").is_empty());
}
