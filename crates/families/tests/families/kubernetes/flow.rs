use engine::ObjectKey;
use families::kubernetes::Settings;
use kinds::resources::pod::pod_usage;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{pod, quotas};
use crate::desk::Desk;

#[test]
fn the_life_of_a_pod() {
    let mut desk = Desk::in_ns();
    desk.quota("q", json!({"pods": "2", "cpu": "1", "requests.memory": "1Gi", "count/pods": "5", "limits.cpu": "4"}));
    assert_eq!(desk.used("q"), "count/pods=0 cpu=0 limits.cpu=0 pods=0 requests.memory=0");
    let mut first = pod(json!({"cpu": "600m", "memory": "256Mi"}));
    first["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1"});
    let uid = desk.create("pods", first.clone()).unwrap();
    assert_eq!(desk.used("q"), "count/pods=1 cpu=600m limits.cpu=1 pods=1 requests.memory=256Mi");

    let mut greedy = first.clone();
    greedy["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("1Gi");
    assert_eq!(
        desk.create("pods", greedy).unwrap_err(),
        "exceeded quota: q, requested: cpu=600m,requests.memory=1Gi, used: cpu=600m,requests.memory=256Mi, \
         limited: cpu=1,requests.memory=1Gi"
    );
    first["status"] = json!({"phase": "Succeeded"});
    desk.update(&uid, first).unwrap();
    assert_eq!(desk.used("q"), "count/pods=1 cpu=0 limits.cpu=0 pods=0 requests.memory=0");
    desk.remove(&uid);
    assert_eq!(desk.used("q"), "count/pods=0 cpu=0 limits.cpu=0 pods=0 requests.memory=0");
}

#[test]
fn a_pod_under_three_quotas_passes_all_of_them_or_none() {
    let mut desk = Desk::in_ns();
    desk.quota("a", json!({"pods": "10"}));
    desk.quota("b", json!({"requests.cpu": "1"}));
    desk.quota("c", json!({"requests.memory": "1Gi", "requests.example.com/gpu": "1"}));
    let asks = json!({"cpu": "400m", "memory": "400Mi", "example.com/gpu": "1"});
    desk.create("pods", pod(asks.clone())).unwrap();
    let error = desk.create("pods", pod(asks)).unwrap_err();
    assert_eq!(
        error,
        "exceeded quota: c, requested: requests.example.com/gpu=1, used: requests.example.com/gpu=1, \
         limited: requests.example.com/gpu=1"
    );
    assert_eq!(desk.used("a"), "pods=1");
    assert_eq!(desk.used("b"), "requests.cpu=400m");
    desk.create("pods", pod(json!({"cpu": "600m", "memory": "624Mi"}))).unwrap();
    assert_eq!(desk.used("c"), "requests.example.com/gpu=1 requests.memory=1Gi");
}

#[test]
fn a_quota_on_cpu_asks_every_container_to_state_it() {
    let mut desk = Desk::in_ns();
    desk.quota("q", json!({"requests.cpu": "9", "limits.memory": "9Gi", "cpu": "9", "pods": "9"}));
    let container = |name: &str, resources: Value| json!({"name": name, "resources": resources});
    let all = json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}});
    let spec = json!({
        "containers": [container("c2", json!({})), container("c1", json!({"requests": {"cpu": "1"}})), container("ok", all)],
        "initContainers": [container("i", json!({}))],
    });
    assert_eq!(
        desk.create("pods", json!({"spec": spec})).unwrap_err(),
        "failed quota: q: must specify cpu for: c2,i; limits.memory for: c1,c2,i; requests.cpu for: c2,i"
    );
    let mut whole = spec;
    whole["resources"] = json!({"requests": {"cpu": "2"}});
    desk.create("pods", json!({"spec": whole})).unwrap();
    assert_eq!(desk.used("q"), "cpu=2 limits.memory=1Gi pods=1 requests.cpu=2");
    // Ephemeral storage, huge pages and extended resources ask nothing of anybody.
    let mut desk = Desk::in_ns();
    desk.quota("q", json!({"ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi", "requests.a.b/c": "1", "pods": "1"}));
    desk.create("pods", pod(json!({}))).unwrap();
}

#[test]
fn services_release_ports_when_they_shrink() {
    let mut desk = Desk::in_ns();
    desk.quota(
        "q",
        json!({"services": "3", "services.nodeports": "3", "services.loadbalancers": "1", "count/services": "9"}),
    );
    let service = |kind: &str, ports: usize| json!({"spec": {"type": kind, "ports": vec![json!({"port": 1}); ports]}});
    desk.create("services", service("ClusterIP", 5)).unwrap();
    let ports = desk.create("services", service("NodePort", 3)).unwrap();
    assert_eq!(desk.used("q"), "count/services=2 services=2 services.loadbalancers=0 services.nodeports=3");
    assert_eq!(
        desk.create("services", service("LoadBalancer", 2)).unwrap_err(),
        "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=3, limited: services.nodeports=3"
    );
    desk.update(&ports, service("NodePort", 1)).unwrap();
    desk.create("services", service("LoadBalancer", 2)).unwrap();
    assert_eq!(desk.used("q"), "count/services=3 services=3 services.loadbalancers=1 services.nodeports=3");
}

#[test]
fn volume_claims_are_charged_by_storage_class_too() {
    let mut desk = Desk::in_ns();
    desk.quota(
        "q",
        json!({
            "persistentvolumeclaims": "2", "count/persistentvolumeclaims": "5", "requests.storage": "10Gi",
            "gold.storageclass.storage.k8s.io/requests.storage": "3Gi",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        }),
    );
    let claim = |class: &str, storage: &str| json!({"spec": {"storageClassName": class, "resources": {"requests": {"storage": storage}}}});
    let gold = desk.create("persistentvolumeclaims", claim("gold", "2Gi")).unwrap();
    desk.create("persistentvolumeclaims", claim("iron", "5Gi")).unwrap();
    assert_eq!(
        desk.used("q"),
        "count/persistentvolumeclaims=2 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
         gold.storageclass.storage.k8s.io/requests.storage=2Gi persistentvolumeclaims=2 requests.storage=7Gi"
    );
    assert_eq!(
        desk.update(&gold, claim("gold", "4Gi")).unwrap_err(),
        "exceeded quota: q, requested: gold.storageclass.storage.k8s.io/requests.storage=2Gi, \
         used: gold.storageclass.storage.k8s.io/requests.storage=2Gi, \
         limited: gold.storageclass.storage.k8s.io/requests.storage=3Gi"
    );
    desk.update(&gold, claim("gold", "1Gi")).unwrap();
    assert!(desk.used("q").ends_with("requests.storage=6Gi"));
}

#[test]
fn any_resource_can_be_counted() {
    let mut desk = Desk::in_ns();
    let counts = [
        ("configmaps", "configmaps"),
        ("secrets", "secrets"),
        ("replicationcontrollers", "replicationcontrollers"),
        ("count/deployments.apps", "deployments.apps"),
        ("count/widgets.shop.example.com", "widgets.shop.example.com"),
        ("count/resourceclaims.resource.k8s.io", "resourceclaims.resource.k8s.io"),
    ];
    let hard: serde_json::Map<String, Value> = counts.iter().map(|(name, _)| (name.to_string(), json!("1"))).collect();
    desk.quota("q", Value::Object(hard));
    for (name, resource) in counts {
        desk.create(resource, json!({})).unwrap();
        let error = desk.create(resource, json!({})).unwrap_err();
        assert_eq!(error, format!("exceeded quota: q, requested: {name}=1, used: {name}=1, limited: {name}=1"));
    }
    desk.create("endpoints", json!({})).unwrap();
    desk.namespace("other", &[]);
    desk.create_in("other", "secrets", json!({})).unwrap();
}

#[test]
fn a_quota_counts_itself() {
    let mut desk = Desk::in_ns();
    desk.quota("q", json!({"resourcequotas": "1", "count/resourcequotas": "1"}));
    assert_eq!(desk.used("q"), "count/resourcequotas=1 resourcequotas=1");
}

#[test]
fn devices_are_counted_by_class() {
    let mut desk = Desk::in_ns();
    desk.quota(
        "q",
        json!({"gold.deviceclass.resource.k8s.io/devices": "3", "requests.deviceclass.resource.kubernetes.io/gold": "3"}),
    );
    let claim = |count: i64| json!({"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "gold", "count": count}}]}}});
    desk.create("resourceclaims.resource.k8s.io", claim(2)).unwrap();
    assert!(desk.create("resourceclaims.resource.k8s.io", claim(2)).is_err());
    let asking = desk.create("pods", pod(json!({"deviceclass.resource.kubernetes.io/gold": "1"}))).unwrap();
    assert_eq!(
        desk.used("q"),
        "gold.deviceclass.resource.k8s.io/devices=2 requests.deviceclass.resource.kubernetes.io/gold=3"
    );
    // A claim made for the pod is not charged twice under the name the pod used.
    let mut made = claim(1);
    made["metadata"] = json!({
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "controller": true}],
    });
    assert!(desk.create("resourceclaims.resource.k8s.io", made.clone()).is_err(), "but for no pod it is");
    let uid = desk.projected(&asking.resource, "ns", &asking.name)["metadata"]["uid"].clone();
    made["metadata"]["ownerReferences"][0]["name"] = json!(&*asking.name);
    made["metadata"]["ownerReferences"][0]["uid"] = uid;
    desk.create("resourceclaims.resource.k8s.io", made).unwrap();
    assert_eq!(
        desk.used("q"),
        "gold.deviceclass.resource.k8s.io/devices=3 requests.deviceclass.resource.kubernetes.io/gold=3"
    );
}

#[test]
fn names_nothing_counts_are_kept_and_limit_nothing() {
    let mut desk = Desk::in_ns();
    desk.quota("q", json!({"example.com/gpu": "0", "count/events": "0", "pods": "1"}));
    assert_eq!(desk.used("q"), "pods=0");
    desk.create("events", json!({})).unwrap();
    desk.create("pods", pod(json!({"example.com/gpu": "4"}))).unwrap();
}

#[test]
fn limits_are_shown_and_refused_as_they_are_written() {
    let mut desk = Desk::in_ns();
    desk.quota("q", json!({"requests.cpu": "1.500", "services": "01", "memory": "1e3"}));
    let status = desk.status(&quotas(), "ns", "q");
    assert_eq!(status["hard"], json!({"requests.cpu": "1.500", "services": "01", "memory": "1e3"}));
    let error = desk.create("pods", pod(json!({"cpu": "2", "memory": "1"}))).unwrap_err();
    assert_eq!(
        error,
        "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1.500"
    );
}

#[test]
fn lowering_a_quota_evicts_nobody_and_raising_it_lets_in() {
    let mut desk = Desk::in_ns();
    desk.quota("q", json!({"pods": "2"}));
    let first = desk.create("pods", pod(json!({}))).unwrap();
    desk.create("pods", pod(json!({}))).unwrap();
    desk.quota("q", json!({"pods": "1"}));
    assert_eq!(desk.used("q"), "pods=2");
    desk.update(&first, pod(json!({"cpu": "1"}))).unwrap();
    assert!(desk.create("pods", pod(json!({}))).is_err());
    desk.quota("q", json!({"pods": "3"}));
    desk.create("pods", pod(json!({}))).unwrap();
}

#[test]
fn with_admission_off_usage_is_still_counted() {
    let mut desk = Desk::in_ns_with(Settings { observe_only: true, ..Settings::default() });
    desk.quota("q", json!({"pods": "1", "cpu": "1"}));
    for _ in 0..3 {
        desk.create("pods", pod(json!({}))).unwrap();
    }
    assert_eq!(desk.used("q"), "cpu=0 pods=3");
}

#[test]
fn a_pod_that_cannot_be_measured_is_refused() {
    let mut desk = Desk::in_ns();
    desk.quota("q", json!({"pods": "1"}));
    let error = desk.create("pods", pod(json!({"cpu": "lots"}))).unwrap_err();
    assert!(error.starts_with("resourcequotas/ns/q: cpu: \"lots\": quantities must match"), "{error}");
    let error = desk.create("pods", pod(json!({"cpu": "-1"}))).err();
    assert_eq!(error, None, "cpu is not limited here");
    desk.quota("r", json!({"cpu": "1", "pods": "9"}));
    let error = desk.create("pods", pod(json!({"cpu": "-1"}))).unwrap_err();
    assert_eq!(error, "quota usage is negative for resource(s): cpu");
}

fn containers() -> impl Strategy<Value = Vec<(i64, i64, u8)>> {
    prop::collection::vec((0i64..5000, 0i64..1 << 40, 0u8..3), 0..6)
}

fn pod_of(containers: &[(i64, i64, u8)]) -> Value {
    let of = |kind: u8| -> Vec<Value> {
        let chosen = containers.iter().filter(|(_, _, of)| (*of == 0) == (kind == 0));
        chosen
            .map(|(cpu, memory, kind)| {
                let mut one = json!({"name": "c", "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": memory.to_string()}}});
                if *kind == 2 {
                    one["restartPolicy"] = json!("Always");
                }
                one
            })
            .collect()
    };
    json!({"spec": {"containers": of(0), "initContainers": of(1)}})
}

proptest! {
    /// One more container never makes a pod smaller, and an application container adds exactly what it asks.
    #[test]
    fn measuring_is_monotone(before in containers(), more in (0i64..5000, 0i64..1 << 40, 0u8..3)) {
        let mut after = before.clone();
        after.push(more);
        let (small, large) = (pod_usage(&pod_of(&before)).unwrap(), pod_usage(&pod_of(&after)).unwrap());
        for (name, value) in small.requests.iter() {
            prop_assert!(large.requests.get(name).unwrap().amount >= value.amount);
        }
        let only_apps = before.iter().all(|(_, _, kind)| *kind == 0) && more.2 == 0;
        if only_apps {
            let cpu: i64 = after.iter().map(|(cpu, _, _)| cpu).sum();
            prop_assert_eq!(large.requests.get("cpu").unwrap().amount, quantity::Amount::from_millis(cpu));
        }
    }

    /// Whatever comes and goes, a quota shows the sum of what is there.
    #[test]
    fn usage_is_the_sum_of_live_pods(steps in prop::collection::vec((0u8..4, 1i64..900), 1..40)) {
        let mut desk = Desk::in_ns();
        desk.quota("q", json!({"cpu": "3", "pods": "6"}));
        let mut live: Vec<(ObjectKey, i64)> = Vec::new();
        for (step, cpu) in steps {
            if step == 0 && !live.is_empty() {
                desk.remove(&live.remove(0).0);
            } else if step == 1 && !live.is_empty() {
                let last = live.len() - 1;
                if desk.update(&live[last].0, pod(json!({"cpu": format!("{cpu}m")}))).is_ok() {
                    live[last].1 = cpu;
                }
            } else if let Ok(uid) = desk.create("pods", pod(json!({"cpu": format!("{cpu}m")}))) {
                live.push((uid, cpu));
            }
            let sum: i64 = live.iter().map(|(_, cpu)| cpu).sum();
            prop_assert!(sum <= 3000 && live.len() <= 6);
            let shown = quantity::Amount::from_millis(sum);
            prop_assert_eq!(desk.used("q"), format!("cpu={shown} pods={}", live.len()));
        }
    }
}
