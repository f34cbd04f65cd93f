//! What bindings are charged, and what is refused.

use families::karmada::Settings;
use serde_json::json;

use super::*;

#[test]
fn a_binding_is_charged_for_what_is_placed() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "10", "requests.memory": "10Gi", "pods": "20"}))).unwrap();
    let request = json!({"cpu": "500m", "memory": "1Gi"});
    desk.apply(&bindings(), "a", "web", binding(3, request.clone(), &[])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "0", "pods": "0", "requests.memory": "0"}));
    desk.apply(&bindings(), "a", "web", binding(3, request.clone(), &[("m1", 2), ("m2", 1)])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "1500m", "pods": "3", "requests.memory": "3Gi"}));
    assert_eq!(
        desk.status(&quotas(), "a", "q")["overall"],
        json!({"cpu": "10", "pods": "20", "requests.memory": "10Gi"})
    );
    // Another namespace has nothing to do with it.
    let mut other = binding(9, request, &[("m1", 9)]);
    other["spec"]["resource"]["namespace"] = json!("b");
    desk.apply(&bindings(), "b", "web", other).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("1500m"));
    desk.delete(&bindings(), "a", "web").unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("0"));
}

#[test]
fn growth_that_does_not_fit_is_refused_in_karmadas_words_and_changes_nothing() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "federated-quota", quota(json!({"cpu": "4", "memory": "4Gi"}))).unwrap();
    let request = json!({"cpu": "1", "memory": "1Gi"});
    desk.apply(&bindings(), "a", "web", binding(3, request.clone(), &[("m1", 3)])).unwrap();
    let refused = desk.apply(&bindings(), "a", "api", binding(3, request.clone(), &[("m2", 3)])).unwrap_err();
    assert_eq!(
        refused,
        "FederatedResourceQuota(a/federated-quota) exceeded for resource cpu: requested sum 6, limit 4. \
         FederatedResourceQuota(a/federated-quota) exceeded for resource memory: requested sum 6Gi, limit 4Gi."
    );
    assert_eq!(used(&desk, "a", "federated-quota")["cpu"], json!("3"));
    // It waits with what it has.
    desk.apply(&bindings(), "a", "api", binding(3, request.clone(), &[("m2", 1)])).unwrap();
    assert!(desk.apply(&bindings(), "a", "api", binding(3, request.clone(), &[("m2", 2)])).is_err());
    assert_eq!(desk.stored(&bindings(), "a")[0]["spec"]["clusters"], on(&[("m2", 1)]));
    assert_eq!(used(&desk, "a", "federated-quota")["cpu"], json!("4"));
    // Room for it comes with a release, a raise, or no quota at all.
    desk.apply(&quotas(), "a", "federated-quota", quota(json!({"cpu": "5", "memory": "5Gi"}))).unwrap();
    desk.apply(&bindings(), "a", "api", binding(3, request.clone(), &[("m2", 2)])).unwrap();
    desk.delete(&quotas(), "a", "federated-quota").unwrap();
    desk.apply(&bindings(), "a", "api", binding(3, request, &[("m2", 3)])).unwrap();
}

#[test]
fn moves_shrinks_and_deletes_pass_over_a_lowered_limit() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "80", "memory": "80Gi"}))).unwrap();
    let request = json!({"cpu": "1", "memory": "1Gi"});
    desk.apply(&bindings(), "a", "one", binding(40, request.clone(), &[("m1", 40)])).unwrap();
    desk.apply(&bindings(), "a", "two", binding(40, request.clone(), &[("m1", 40)])).unwrap();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "50", "memory": "1Gi"}))).unwrap();
    desk.apply(&bindings(), "a", "one", binding(40, request.clone(), &[("m2", 30), ("m1", 10)])).unwrap();
    desk.apply(&bindings(), "a", "one", binding(20, request.clone(), &[("m2", 20)])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "60", "memory": "60Gi"}));
    // Less of one and more of another: only what grows is looked at.
    desk.apply(&bindings(), "a", "one", binding(20, json!({"cpu": "500m", "memory": "1Gi"}), &[("m2", 20)])).unwrap();
    let refused =
        desk.apply(&bindings(), "a", "one", binding(20, json!({"cpu": "100m", "memory": "2Gi"}), &[("m2", 20)]));
    assert_eq!(
        refused.unwrap_err(),
        "FederatedResourceQuota(a/q) exceeded for resource memory: requested sum 80Gi, limit 1Gi."
    );
    desk.delete(&bindings(), "a", "two").unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "10", "memory": "20Gi"}));
}

#[test]
fn a_new_quota_and_a_new_key_start_from_a_true_count() {
    let mut desk = desk();
    desk.apply(&bindings(), "a", "web", binding(3, json!({"cpu": "1", "memory": "1Gi"}), &[("m1", 3)])).unwrap();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "2"}))).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "3"}));
    assert!(desk.apply(&bindings(), "a", "new", binding(1, json!({"cpu": "1m"}), &[("m1", 1)])).is_err());
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "4", "memory": "2Gi"}))).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "3", "memory": "3Gi"}));
    desk.apply(&bindings(), "a", "new", binding(1, json!({"cpu": "1"}), &[("m1", 1)])).unwrap();
    assert!(desk.apply(&bindings(), "a", "more", binding(1, json!({"memory": "1"}), &[("m1", 1)])).is_err());
}

#[test]
fn decimals_are_exact_and_large_numbers_are_not_wrapped() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "1", "pods": "10G"}))).unwrap();
    desk.apply(&bindings(), "a", "tiny", binding(1000, json!({"cpu": "100u"}), &[("m1", 1000)])).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("100m"));
    let most = i32::MAX as u32;
    let mut twice = binding(most, json!({"cpu": "1n"}), &[("m1", most), ("m2", most)]);
    let refused = desk.apply(&bindings(), "a", "huge", twice.clone()).unwrap_err();
    assert!(refused.contains("exceeded for resource cpu: requested sum 4394967294n, limit 1."), "{refused}");
    twice["spec"]["replicaRequirements"] = json!({});
    desk.apply(&bindings(), "a", "huge", twice).unwrap();
    assert_eq!(used(&desk, "a", "q")["pods"], json!("4294968294"));
}

#[test]
fn components_count_as_a_set_in_each_cluster() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "40", "pods": "100"}))).unwrap();
    desk.apply(&bindings(), "a", "f", flink(12, &[("m1", 0)])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "12", "pods": "12"}));
    desk.apply(&bindings(), "a", "f", flink(12, &[("m1", 0), ("m2", 0)])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "24", "pods": "24"}));
    // A cluster gets all components: what the binding says of less of them there saves nothing, and what it says of more counts.
    for (replicas, expected) in [(0, "24"), (2, "24"), (13, "26")] {
        let mut own = flink(12, &[("m1", 0), ("m2", 0)]);
        own["spec"]["clusters"][1]["components"] = json!([{"name": "taskmanager", "replicas": replicas}]);
        desk.apply(&bindings(), "a", "f", own).unwrap();
        assert_eq!(used(&desk, "a", "q")["cpu"], json!(expected));
    }
    // Parallelism beyond the limit is refused, and the old stays.
    assert!(desk.apply(&bindings(), "a", "f", flink(41, &[("m1", 0)])).is_err());
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("26"));
}

/// A Pod goes to a cluster as it is: it is one there, whatever is said of its replicas, and one while it is evicted.
#[test]
fn a_pod_is_one_wherever_it_is() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "8", "pods": "100"}))).unwrap();
    let pod = |clusters: &[(&str, u32)]| {
        let mut pod = binding(1, json!({"cpu": "4"}), clusters);
        pod["spec"]["resource"] = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "a", "name": "p"});
        pod
    };
    desk.apply(&bindings(), "a", "p", pod(&[("m1", 0)])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "4", "pods": "1"}));
    assert!(desk.apply(&bindings(), "a", "p", pod(&[("m1", 0), ("m2", 0), ("m3", 0)])).is_err());
    let mut evicted = pod(&[]);
    evicted["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1", "reason": "r", "producer": "p"}]);
    desk.apply(&bindings(), "a", "p", evicted).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"cpu": "4", "pods": "1"}));
}

#[test]
fn several_quotas_all_have_to_agree() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "first", quota(json!({"cpu": "10"}))).unwrap();
    desk.apply(&quotas(), "a", "second", quota(json!({"memory": "1Gi"}))).unwrap();
    let refused = desk.apply(&bindings(), "a", "web", binding(1, json!({"cpu": "1", "memory": "2Gi"}), &[("m1", 1)]));
    assert!(refused.unwrap_err().contains("FederatedResourceQuota(a/second)"));
    assert_eq!(used(&desk, "a", "first"), json!({"cpu": "0"}));
}

#[test]
fn scopes_choose_bindings_by_priority_class() {
    let mut desk = desk();
    let with = |class: &str| {
        let mut binding = binding(1, json!({"cpu": "1"}), &[("m1", 1)]);
        binding["spec"]["replicaRequirements"]["priorityClassName"] = json!(class);
        binding
    };
    let scoped = |operator: &str, values: Value| {
        let mut expression = json!({"scopeName": "PriorityClass", "operator": operator});
        if !values.is_null() {
            expression["values"] = values;
        }
        json!({"spec": {"overall": {"cpu": "9"}, "scopeSelector": {"matchExpressions": [expression]}}})
    };
    desk.apply(&bindings(), "a", "gold", with("gold")).unwrap();
    desk.apply(&bindings(), "a", "iron", with("iron")).unwrap();
    desk.apply(&bindings(), "a", "none", with("")).unwrap();
    let exists = json!({"spec": {"overall": {"cpu": "9"}, "scopes": ["PriorityClass"]}});
    for (name, spec, expected) in [
        ("exists", exists, "2"),
        ("in", scoped("In", json!(["gold"])), "1"),
        ("not-in", scoped("NotIn", json!(["gold"])), "2"),
        ("absent", scoped("DoesNotExist", Value::Null), "1"),
        ("all", quota(json!({"cpu": "9"})), "3"),
    ] {
        desk.apply(&quotas(), "a", name, spec).unwrap();
        assert_eq!(used(&desk, "a", name), json!({ "cpu": expected }), "{name}");
    }
    // Edited, it counts others; and a class that changes takes its binding along.
    desk.apply(&quotas(), "a", "in", scoped("In", json!(["gold", "iron"]))).unwrap();
    assert_eq!(used(&desk, "a", "in"), json!({"cpu": "2"}));
    desk.apply(&bindings(), "a", "gold", with("")).unwrap();
    assert_eq!(used(&desk, "a", "in"), json!({"cpu": "1"}));
    assert_eq!(used(&desk, "a", "absent"), json!({"cpu": "2"}));
}

#[test]
fn objects_are_counted_in_each_cluster_they_are_in() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"services": "2"}))).unwrap();
    let service = |clusters: &[(&str, u32)]| json!({"spec": {"resource": {"apiVersion": "v1", "kind": "Service", "name": "s"}, "clusters": on(clusters)}});
    desk.apply(&bindings(), "a", "s", service(&[("m1", 0), ("m2", 0)])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"services": "2"}));
    assert!(desk.apply(&bindings(), "a", "t", service(&[("m1", 0)])).is_err());
    desk.apply(&bindings(), "a", "web", binding(1, json!({}), &[("m1", 1)])).unwrap();
}

#[test]
fn without_enforcement_nothing_is_refused_and_members_tell_what_is_used() {
    let mut desk = desk_with(Settings { enforcement: false, ..Settings::default() });
    let mut spec = quota(json!({"cpu": "4", "limits.cpu": "8"}));
    spec["spec"]["staticAssignments"] = json!([{"clusterName": "m1", "hard": {"cpu": "2"}}]);
    spec["status"] = json!({"overallUsed": {"cpu": "77"}, "aggregatedStatus": [
        {"clusterName": "m1", "hard": {"cpu": "2"}, "used": {"cpu": "1500m"}},
        {"clusterName": "m2", "hard": {"cpu": "2"}, "used": {"cpu": "250m"}},
    ]});
    desk.apply(&quotas(), "a", "q", spec).unwrap();
    desk.apply(&bindings(), "a", "web", binding(9, json!({"cpu": "1"}), &[("m1", 9)])).unwrap();
    assert_eq!(used(&desk, "a", "q")["cpu"], json!("1750m"));
    assert_eq!(desk.status(&quotas(), "a", "q")["aggregatedStatus"][0]["clusterName"], json!("m1"));
}

#[test]
fn monitoring_is_told_exact_amounts_and_how_bindings_stand() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "4", "memory": "1Gi"}))).unwrap();
    let mut web = binding(3, json!({"cpu": "100u"}), &[("m2", 3)]);
    web["status"] = json!({"conditions": [{"type": "Scheduled", "status": "False", "reason": "QuotaExceeded"}]});
    web["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m9", "reason": "r", "producer": "p"}]);
    desk.apply(&bindings(), "a", "web", web).unwrap();
    let mut odd = binding(0, json!({}), &[]);
    odd["status"] = json!({"conditions": [{"type": "Scheduled", "status": "False", "reason": "My own"}]});
    desk.apply(&bindings(), "a", "odd", odd).unwrap();
    let mut lease = json!({"spec": {"quota": "q", "clusterName": "m1", "hard": {"cpu": "1500m"}}});
    lease["status"] = json!({"used": {"cpu": "250m"}, "waiting": {"cpu": "2", "odd": "1"}});
    desk.apply(&leases::leases(), "a", "q.m1", lease).unwrap();
    let told = desk.sample();
    let of_m1 = "{cluster=\"m1\",federatedresourcequota=\"q\",namespace=\"a\",resource=\"cpu\"}";
    for (metric, amount) in [("lent", "1.5"), ("lent_used", "0.25"), ("waiting", "2")] {
        let line = format!("bursar_federated_quota_{metric}{of_m1} {amount}");
        assert!(told.lines().any(|one| one == line), "{line}\n{told}");
    }
    assert!(!told.contains("resource=\"odd\""), "{told}");
    for line in [
        "bursar_federated_quota_limit{federatedresourcequota=\"q\",namespace=\"a\",resource=\"memory\"} 1073741824",
        "bursar_federated_quota_used{federatedresourcequota=\"q\",namespace=\"a\",resource=\"cpu\"} 1.5003",
        "bursar_resource_bindings{namespace=\"a\",reason=\"QuotaExceeded\"} 1",
        "bursar_resource_bindings{namespace=\"a\",reason=\"Pending\"} 1",
        "bursar_resource_bindings_evicting{namespace=\"a\"} 1",
    ] {
        assert!(told.lines().any(|one| one == line), "{line}\n{told}");
    }
}

/// Claims count where they are templates themselves, and where they come with pods: in all clusters, and for what was evicted.
#[test]
fn claims_are_counted_with_the_pods_they_come_with() {
    let mut desk = desk();
    desk.apply(&quotas(), "a", "q", quota(json!({"persistentvolumeclaims": "7"}))).unwrap();
    let mut claim = binding(0, json!({}), &[("m1", 0)]);
    claim["spec"]["resource"] = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "c"});
    desk.apply(&bindings(), "a", "c", claim).unwrap();
    let set = |clusters: &[(&str, u32)]| binding(3, json!({"persistentvolumeclaims": "2"}), clusters);
    desk.apply(&bindings(), "a", "s", set(&[("m1", 2), ("m2", 1)])).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"persistentvolumeclaims": "7"}));
    let said = desk.apply(&bindings(), "a", "s", set(&[("m1", 2), ("m2", 2)])).expect_err("one too many");
    assert!(said.contains("exceeded for resource persistentvolumeclaims: requested sum 9, limit 7."), "{said}");
    let mut evicted = set(&[("m2", 1)]);
    evicted["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1", "reason": "r", "producer": "p"}]);
    desk.apply(&bindings(), "a", "s", evicted).unwrap();
    assert_eq!(used(&desk, "a", "q"), json!({"persistentvolumeclaims": "7"}));
}
