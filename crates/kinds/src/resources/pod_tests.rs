use serde_json::{Value, json};

use super::pod::{Needs, pod_asks, pod_usage, pod_usage_at};
use super::{QosClass, Resources, computed_qos_class, qos_class};

fn shown(resources: &Resources) -> String {
    let parts: Vec<_> = resources.iter().map(|(name, value)| format!("{name}={}", value.to_quantity())).collect();
    parts.join(" ")
}

fn container(name: &str, requests: &str, limits: &str) -> Value {
    let list = |text: &str| -> Value {
        let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
        Value::Object(pairs.map(|(name, value)| (name.to_string(), json!(value))).collect())
    };
    json!({"name": name, "resources": {"requests": list(requests), "limits": list(limits)}})
}

fn sidecar(name: &str, requests: &str, limits: &str) -> Value {
    let mut container = container(name, requests, limits);
    container["restartPolicy"] = json!("Always");
    container
}

#[test]
fn a_pod_needs_what_runs_at_the_same_time() {
    let overhead = json!({"cpu": "10m", "memory": "1Mi"});
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        ("nothing stated", json!({"containers": [container("a", "", "")]}), "", ""),
        (
            "containers are added",
            json!({"containers": [container("a", "cpu=1 memory=1Gi", "cpu=2"), container("b", "cpu=500m", "cpu=1")]}),
            "cpu=1500m memory=1Gi",
            "cpu=3",
        ),
        (
            "of init containers the largest counts, by resource",
            json!({
                "containers": [container("a", "cpu=1 memory=1Gi", "cpu=1")],
                "initContainers": [container("i", "cpu=3 memory=1Mi", "cpu=4"), container("j", "cpu=2 memory=2Gi", "")],
            }),
            "cpu=3 memory=2Gi",
            "cpu=4",
        ),
        (
            "a sidecar runs beside the containers",
            json!({"containers": [container("a", "cpu=1", "")], "initContainers": [sidecar("s", "cpu=2", "cpu=3")]}),
            "cpu=3",
            "cpu=3",
        ),
        (
            "an init container runs beside the sidecars before it",
            json!({
                "containers": [container("a", "cpu=1", "")],
                "initContainers": [sidecar("s", "cpu=2", ""), container("i", "cpu=4", ""), sidecar("t", "cpu=1", "")],
            }),
            "cpu=6",
            "",
        ),
        (
            "sidecars after an init container do not count with it",
            json!({
                "containers": [container("a", "cpu=1", "")],
                "initContainers": [container("i", "cpu=4", ""), sidecar("s", "cpu=2", "")],
            }),
            "cpu=4",
            "",
        ),
        (
            "overhead comes on top of requests, and of limits that there are",
            json!({"containers": [container("a", "cpu=1", "cpu=2")], "overhead": overhead}),
            "cpu=1010m memory=1Mi",
            "cpu=2010m",
        ),
        (
            "a limit of zero is no limit for overhead to add to",
            json!({"containers": [container("a", "cpu=1", "cpu=0")], "overhead": overhead}),
            "cpu=1010m memory=1Mi",
            "cpu=0",
        ),
        (
            "what the pod states as a whole replaces the sum",
            json!({
                "containers": [container("a", "cpu=1 memory=1Gi ephemeral-storage=1Gi", "cpu=2")],
                "resources": {
                    "requests": {"cpu": "3", "hugepages-2Mi": "4Mi", "ephemeral-storage": "5Gi"},
                    "limits": {"memory": "6Gi"},
                },
                "overhead": overhead,
            }),
            "cpu=3010m memory=1025Mi ephemeral-storage=1Gi hugepages-2Mi=4Mi",
            "cpu=2010m memory=6145Mi",
        ),
        (
            "huge pages and extended resources",
            json!({"containers": [container("a", "hugepages-2Mi=2Mi example.com/gpu=1", ""), container("b", "example.com/gpu=2", "")]}),
            "example.com/gpu=3 hugepages-2Mi=2Mi",
            "",
        ),
        ("amounts are rounded up to a thousandth", json!({"containers": [container("a", "cpu=1u", "")]}), "cpu=1m", ""),
    ];
    for (name, spec, requests, limits) in cases {
        let usage = pod_usage(&json!({"spec": spec})).unwrap();
        assert!(usage.live);
        assert_eq!(shown(&usage.requests), requests, "{name}: requests");
        assert_eq!(shown(&usage.limits), limits, "{name}: limits");
    }
}

#[test]
fn a_pod_under_resize_needs_the_larger_of_asked_and_given() {
    let spec = json!({
        "containers": [container("a", "cpu=1 memory=1Gi", "cpu=1")],
        "initContainers": [sidecar("s", "cpu=1", ""), container("i", "cpu=1", "")],
    });
    let given = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    let status = |infeasible: bool| {
        json!({
            "containerStatuses": [{"name": "a", "resources": given("2"), "allocatedResources": {"cpu": "3"}}],
            "initContainerStatuses": [
                {"name": "s", "resources": given("500m")},
                {"name": "i", "resources": given("100")},
            ],
            "conditions": [{"type": "PodResizePending", "reason": if infeasible { "Infeasible" } else { "Deferred" }}],
        })
    };
    // a: max(1, 2, 3) = 3; the sidecar: max(1, 500m) = 1. An ordinary init container's status does not matter.
    let usage = pod_usage(&json!({"spec": spec, "status": status(false)})).unwrap();
    assert_eq!((shown(&usage.requests), shown(&usage.limits)), ("cpu=4 memory=1Gi".into(), "cpu=2500m".into()));
    // What can never be given does not count: the asked memory goes, the sidecar keeps its 500m.
    let usage = pod_usage(&json!({"spec": spec, "status": status(true)})).unwrap();
    assert_eq!((shown(&usage.requests), shown(&usage.limits)), ("cpu=3500m".into(), "cpu=2500m".into()));
    // A LimitRange looks at the spec only.
    let (requests, limits) = pod_asks(&json!({"spec": spec, "status": status(false)})).unwrap();
    assert_eq!((shown(&requests), shown(&limits)), ("cpu=2 memory=1Gi".into(), "cpu=1".into()));
}

#[test]
fn a_pod_that_has_ended_needs_nothing() {
    for phase in ["Succeeded", "Failed"] {
        let pod = json!({"spec": {"containers": [container("a", "cpu=1", "")]}, "status": {"phase": phase}});
        let usage = pod_usage(&pod).unwrap();
        assert!(!usage.live && usage.requests.is_empty() && usage.limits.is_empty(), "{phase}");
    }
    for phase in ["Pending", "Running", "Unknown", ""] {
        assert!(pod_usage(&json!({"status": {"phase": phase}})).unwrap().live, "{phase}");
    }
}

#[test]
fn a_pod_whose_deletion_is_overdue_holds_nothing_any_more() {
    let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30});
    let pod = json!({"metadata": metadata, "spec": {"containers": [container("a", "cpu=1", "")]}});
    let deleted: jiff::Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
    let twice = deleted.as_millisecond() + 30_000;
    let waited_for = pod_usage_at(&pod, twice).unwrap();
    assert!(waited_for.live && waited_for.overdue_ms == Some(twice + 1), "{waited_for:?}");
    let overdue = pod_usage_at(&pod, twice + 1).unwrap();
    assert!(!overdue.live && overdue.requests == Resources::default() && overdue.overdue_ms == Some(twice + 1));
    for odd in [
        json!({"deletionTimestamp": "2026-01-01T00:00:30Z"}),
        json!({"deletionTimestamp": "soon", "deletionGracePeriodSeconds": 30}),
        json!({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": i64::MAX}),
    ] {
        assert!(pod_usage_at(&json!({"metadata": odd}), i64::MAX).unwrap().live, "{odd}");
    }
}

#[test]
fn a_broken_pod_is_an_error_and_no_panic() {
    for spec in [
        json!({"containers": [{"resources": {"requests": {"cpu": "x"}}}]}),
        json!({"overhead": {"cpu": []}}),
        json!({"containers": [container("a", "cpu=9e28", ""), container("b", "cpu=9e28", "")]}),
    ] {
        assert!(pod_usage(&json!({"spec": spec})).is_err(), "{spec}");
    }
    for odd in [json!(null), json!([]), json!("pod"), json!({"spec": {"containers": {}}}), json!({"spec": 7})] {
        assert!(pod_usage(&odd).unwrap().live);
    }
}

#[test]
fn what_some_container_leaves_unstated() {
    let open = |spec: Value| pod_usage(&json!({"spec": spec})).unwrap().unstated;
    let all = container("a", "cpu=1 memory=1", "cpu=1 memory=1");
    assert_eq!(open(json!({"containers": [all]})), Needs::NONE);
    let some = open(json!({"containers": [all], "initContainers": [container("i", "cpu=1", "memory=1")]}));
    assert_eq!(some, Needs::REQUEST_MEMORY.with(Needs::LIMIT_CPU));
    let whole = json!({"containers": [container("a", "", "")], "resources": {"limits": {"hugepages-2Mi": "2Mi"}}});
    assert_eq!(open(whole), Needs::NONE);
    let unsupported = json!({"containers": [all], "resources": {"requests": {"ephemeral-storage": "1"}}});
    assert_eq!(open(unsupported), Needs::NONE);
}

#[test]
fn quality_of_service() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let cases = vec![
        ("nothing", json!({"containers": [container("a", "", "")]}), BestEffort),
        ("zero is nothing", json!({"containers": [container("a", "cpu=0", "memory=0")]}), BestEffort),
        ("other resources do not matter", json!({"containers": [container("a", "a/b=1", "a/b=1")]}), BestEffort),
        ("equal", json!({"containers": [container("a", "cpu=1 memory=1", "cpu=1 memory=1")]}), Guaranteed),
        ("unequal", json!({"containers": [container("a", "cpu=1 memory=1", "cpu=2 memory=1")]}), Burstable),
        (
            "one without",
            json!({"containers": [container("a", "cpu=1 memory=1", "cpu=1 memory=1"), container("b", "", "")]}),
            Burstable,
        ),
        (
            "init without",
            json!({"containers": [container("a", "cpu=1 memory=1", "cpu=1 memory=1")], "initContainers": [container("b", "", "")]}),
            Burstable,
        ),
        ("only cpu limited", json!({"containers": [container("a", "cpu=1", "cpu=1")]}), Burstable),
        (
            "as a whole",
            json!({"containers": [container("a", "", "")], "resources": {"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}}}),
            Guaranteed,
        ),
        ("as a whole, requests only", json!({"resources": {"requests": {"cpu": "1"}}, "containers": []}), Burstable),
        ("as a whole, nothing", json!({"resources": {}, "containers": [container("a", "cpu=1", "")]}), BestEffort),
    ];
    for (name, spec, wanted) in cases {
        assert_eq!(computed_qos_class(&json!({"spec": spec})), Ok(wanted), "{name}");
    }
    let stored = json!({"spec": {"containers": []}, "status": {"qosClass": "Burstable"}});
    assert_eq!(qos_class(&stored), Ok(Burstable));
    assert_eq!(computed_qos_class(&stored).unwrap().as_str(), "BestEffort");
}
