use serde_json::{Value, json};

use super::pod;
use crate::desk::Desk;

/// Whether a quota with this spec counts this object.
fn counts(spec: Value, resource: &str, object: Value) -> bool {
    let mut desk = Desk::in_ns();
    desk.scoped_quota("q", spec);
    desk.create(resource, object).unwrap();
    desk.used("q").split('=').nth(1).unwrap().starts_with('1')
}

fn scope(name: &str) -> Value {
    json!({"hard": {"pods": "9"}, "scopes": [name]})
}

fn selector(name: &str, operator: &str, values: &[&str]) -> Value {
    let mut expression = json!({"scopeName": name, "operator": operator});
    if !values.is_empty() {
        expression["values"] = json!(values);
    }
    json!({"hard": {"pods": "9"}, "scopeSelector": {"matchExpressions": [expression]}})
}

fn with(field: &str, value: Value) -> Value {
    let mut pod = pod(json!({"cpu": "1"}));
    pod["spec"][field] = value;
    pod
}

#[test]
fn every_scope_matches_what_it_says() {
    let plain = || pod(json!({"cpu": "1"}));
    let best_effort = || pod(json!({}));
    let term = |extra: Value| {
        with("affinity", json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [extra]}}))
    };
    let weighted = |extra: Value| {
        let list = json!([{"weight": 1, "podAffinityTerm": extra}]);
        with("affinity", json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list}}))
    };
    let class = |name: &str| with("priorityClassName", json!(name));
    let cases = vec![
        ("deadline", scope("Terminating"), with("activeDeadlineSeconds", json!(5)), true),
        ("deadline of zero", scope("Terminating"), with("activeDeadlineSeconds", json!(0)), true),
        ("no deadline", scope("Terminating"), plain(), false),
        ("deadline", scope("NotTerminating"), with("activeDeadlineSeconds", json!(5)), false),
        ("no deadline", scope("NotTerminating"), plain(), true),
        ("best effort", scope("BestEffort"), best_effort(), true),
        ("not best effort", scope("BestEffort"), plain(), false),
        ("best effort", scope("NotBestEffort"), best_effort(), false),
        ("not best effort", scope("NotBestEffort"), plain(), true),
        ("a class", scope("PriorityClass"), class("high"), true),
        ("no class", scope("PriorityClass"), plain(), false),
        ("own namespace", scope("CrossNamespacePodAffinity"), term(json!({"topologyKey": "x"})), false),
        ("empty list", scope("CrossNamespacePodAffinity"), term(json!({"namespaces": []})), false),
        ("namespaces", scope("CrossNamespacePodAffinity"), term(json!({"namespaces": ["b"]})), true),
        ("empty selector", scope("CrossNamespacePodAffinity"), term(json!({"namespaceSelector": {}})), true),
        ("weighted", scope("CrossNamespacePodAffinity"), weighted(json!({"namespaces": ["b"]})), true),
        ("no affinity", scope("CrossNamespacePodAffinity"), plain(), false),
        ("in", selector("PriorityClass", "In", &["high", "low"]), class("low"), true),
        ("not in", selector("PriorityClass", "In", &["high"]), class("low"), false),
        ("no class in", selector("PriorityClass", "In", &["high"]), plain(), false),
        ("notin", selector("PriorityClass", "NotIn", &["high"]), class("low"), true),
        ("notin listed", selector("PriorityClass", "NotIn", &["high"]), class("high"), false),
        ("notin without class", selector("PriorityClass", "NotIn", &["high"]), plain(), true),
        ("exists", selector("PriorityClass", "Exists", &[]), class("high"), true),
        ("does not exist", selector("PriorityClass", "DoesNotExist", &[]), plain(), true),
        ("does not exist, has one", selector("PriorityClass", "DoesNotExist", &[]), class("high"), false),
        (
            "terminating by selector",
            selector("Terminating", "Exists", &[]),
            with("activeDeadlineSeconds", json!(5)),
            true,
        ),
        ("best effort by selector", selector("BestEffort", "Exists", &[]), plain(), false),
        (
            "all must match",
            json!({"hard": {"pods": "9"}, "scopes": ["NotTerminating", "BestEffort"]}),
            best_effort(),
            true,
        ),
        (
            "scopes and selector must match",
            json!({"hard": {"pods": "9"}, "scopes": ["BestEffort"], "scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "Exists"},
            ]}}),
            best_effort(),
            false,
        ),
        ("an empty selector matches all", json!({"hard": {"pods": "9"}, "scopeSelector": {}}), plain(), true),
    ];
    for (name, spec, pod, wanted) in cases {
        assert_eq!(counts(spec.clone(), "pods", pod), wanted, "{name}: {spec}");
    }
}

#[test]
fn volume_attributes_classes() {
    let spec = |operator: &str, values: &[&str]| {
        let mut spec = selector("VolumeAttributesClass", operator, values);
        spec["hard"] = json!({"persistentvolumeclaims": "9"});
        spec
    };
    let claim = |class: &str, current: &str| json!({"spec": {"volumeAttributesClassName": class}, "status": {"currentVolumeAttributesClassName": current}});
    for (operator, values, claim, wanted) in [
        ("Exists", &[][..], claim("gold", ""), true),
        ("Exists", &[], claim("", "gold"), true),
        ("Exists", &[], claim("", ""), false),
        ("DoesNotExist", &[], claim("", ""), true),
        ("DoesNotExist", &[], claim("gold", ""), false),
        ("In", &["gold"], claim("silver", "gold"), true),
        ("In", &["gold"], claim("silver", ""), false),
        ("NotIn", &["gold"], claim("silver", "gold"), true),
        ("NotIn", &["gold"], claim("gold", ""), false),
        ("NotIn", &["gold"], claim("", ""), true),
    ] {
        let found = counts(spec(operator, values), "persistentvolumeclaims", claim.clone());
        assert_eq!(found, wanted, "{operator} {values:?} {claim}");
    }
    // A scope of pods never matches a claim, nor the other way round.
    let mut desk = Desk::in_ns();
    let names =
        json!({"count/pods": "9", "count/persistentvolumeclaims": "9", "count/configmaps": "9", "count/services": "9"});
    desk.scoped_quota("pods", json!({"hard": names, "scopes": ["NotTerminating"]}));
    desk.scoped_quota("claims", json!({"hard": names, "scopes": ["VolumeAttributesClass"]}));
    desk.create("pods", pod(json!({}))).unwrap();
    desk.create("persistentvolumeclaims", claim("gold", "")).unwrap();
    desk.create("configmaps", json!({})).unwrap();
    desk.create("services", json!({})).unwrap();
    assert_eq!(desk.used("pods"), "count/configmaps=0 count/persistentvolumeclaims=0 count/pods=1 count/services=0");
    assert_eq!(desk.used("claims"), "count/configmaps=0 count/persistentvolumeclaims=1 count/pods=0 count/services=0");
}

#[test]
fn a_pod_that_gets_a_deadline_moves_to_the_other_quota() {
    let mut desk = Desk::in_ns();
    desk.scoped_quota("ending", json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]}));
    desk.scoped_quota("lasting", json!({"hard": {"pods": "2"}, "scopes": ["NotTerminating"]}));
    let first = desk.create("pods", pod(json!({}))).unwrap();
    let second = desk.create("pods", pod(json!({}))).unwrap();
    let ending = with("activeDeadlineSeconds", json!(30));
    desk.update(&first, ending.clone()).unwrap();
    assert_eq!((desk.used("ending"), desk.used("lasting")), ("pods=1".into(), "pods=1".into()));
    let refused = "exceeded quota: ending, requested: pods=1, used: pods=1, limited: pods=1";
    assert_eq!(desk.update(&second, ending.clone()).unwrap_err(), refused);
    assert_eq!(desk.create("pods", ending).unwrap_err(), refused);
    assert_eq!((desk.used("ending"), desk.used("lasting")), ("pods=1".into(), "pods=1".into()));
}

#[test]
fn an_edited_scope_selector_counts_anew() {
    let mut desk = Desk::in_ns();
    desk.scoped_quota("q", selector("PriorityClass", "In", &["one"]));
    for _ in 0..3 {
        desk.create("pods", with("priorityClassName", json!("two"))).unwrap();
    }
    assert_eq!(desk.used("q"), "pods=0");
    desk.scoped_quota("q", selector("PriorityClass", "In", &["two"]));
    assert_eq!(desk.used("q"), "pods=3");
}
