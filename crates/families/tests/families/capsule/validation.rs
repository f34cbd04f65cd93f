//! What is refused when a quota is written.

use families::capsule::{Reading, Settings};
use serde_json::{Value, json};

use super::{claims, desk_with, pools, quotas};
use crate::desk::{Desk, resource};

fn refusal(spec: Value) -> String {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    match desk.apply(&quotas(), "a", "q", json!({ "spec": spec })) {
        Err(why) => why,
        Ok(()) => panic!("should be refused: {spec}"),
    }
}

fn with_source(source: Value) -> Value {
    json!({"limit": "1", "sources": [source]})
}

fn with_path(path: &str) -> Value {
    with_source(json!({"kind": "Pod", "path": path}))
}

fn with_cel(cel: &str) -> Value {
    with_source(json!({"kind": "Pod", "cel": cel}))
}

#[test]
fn an_expression_that_can_give_no_amount_is_refused_with_its_type() {
    for (cel, ty) in [
        ("true", "bool"),
        ("1.5", "double"),
        ("object.spec.replicas > 2", "bool"),
        ("quantity('1Gi').asApproximateFloat()", "double"),
        ("{'a': 1}", "map(string, int)"),
        ("[1.5]", "list(double)"),
        ("object.spec.containers.map(c, c.name == 'a')", "list(bool)"),
        ("duration('1h')", "google.protobuf.Duration"),
        ("object.spec.a == 1 ? true : false", "bool"),
        ("null", "null"),
    ] {
        let why = refusal(with_cel(cel));
        assert!(why.contains(&format!("but gives {ty}")), "{cel}: {why}");
    }
    for cel in [
        "1",
        "'1Gi'",
        "object.spec.replicas",
        "quantity(object.spec.storage)",
        "object.spec.containers.map(c, quantity(c.resources.requests.cpu))",
        "[object.spec.a, quantity('1')]",
        "object.?spec.?replicas.orValue(0)",
        "size(object.spec.containers)",
        "math.greatest([1, 2])",
        "dyn(true)",
    ] {
        let mut desk = Desk::new();
        desk.namespace("a", &[]);
        let applied = desk.apply(&quotas(), "a", "q", json!({"spec": with_cel(cel)}));
        assert_eq!(applied.err(), None, "{cel}");
    }
    let selected = |condition: &str| {
        with_source(json!({
            "kind": "Pod", "op": "count", "selectors": [{"celExpressions": [condition]}],
        }))
    };
    assert!(refusal(selected("object.spec.size() + 1")).contains("must evaluate to a bool, but gives int"));
}

#[test]
fn paths_are_checked_in_capsules_words() {
    for (path, expected) in [
        (" ", "sourcePath must not be empty"),
        ("spec.a", "sourcePath must start with '.'"),
        (".a\tb", "must not contain control whitespace"),
        (".a[", "parse usage jsonpath"),
        (".a}5{.b", "parse usage jsonpath"),
    ] {
        let why = refusal(with_path(path));
        assert!(why.contains(expected), "{path:?}: {why}");
    }
    let long = format!(".{}", "a".repeat(1024));
    assert!(refusal(with_path(&long)).contains("exceeds max length of 1024"));
}

#[test]
fn hostile_expressions_are_refused_with_their_quota() {
    for path in ["........", "..*..*..*"] {
        let why = refusal(with_path(path));
        assert!(why.contains("parse usage jsonpath"), "{path}: {why}");
    }
    let nested = "object.a.all(a, object.b.all(b, object.c.all(c, object.d.all(d, a == b && c == d))))";
    for cel in [nested, "nothing.here", "unknown(object)", "object.", &"(".repeat(5000)] {
        let why = refusal(with_cel(cel));
        assert!(why.contains("invalid CEL expression"), "{cel}: {why}");
    }
}

#[test]
fn sources_limits_and_selectors_are_checked() {
    let both = "exactly one of path or cel must be set";
    assert!(refusal(with_source(json!({"kind": "Pod", "op": "count", "path": ".a"}))).contains(both));
    assert!(refusal(with_source(json!({"kind": "Pod"}))).contains(both));
    assert!(refusal(with_source(json!({"kind": "Pod", "path": ".a", "cel": "1"}))).contains(both));
    assert!(refusal(with_source(json!({"op": "count"}))).contains("spec.sources[0].kind: Required value"));
    assert!(refusal(json!({"limit": "-1", "sources": []})).contains("must not be negative"));
    assert!(refusal(json!({"limit": "lots", "sources": []})).contains("spec.limit: Invalid value"));
    let sources: Vec<Value> = (0..65).map(|_| json!({"kind": "Pod", "op": "count"})).collect();
    assert!(refusal(json!({"limit": "1", "sources": sources})).contains("Too many: 65"));
    let bad = json!([{"matchExpressions": [{"key": "a", "operator": "View"}]}]);
    assert!(refusal(json!({"limit": "1", "sources": [], "scopeSelectors": bad})).contains("spec.scopeSelectors[0]"));
    let bad = with_source(json!({"kind": "Pod", "op": "count", "selectors": [{"fieldSelectors": ["a"]}]}));
    assert!(refusal(bad).contains("spec.sources[0].selectors[0].fieldSelectors[0]"));
}

#[test]
fn releases_guard_a_quota_in_use() {
    let mut desk = desk_with(Settings { reading: Reading::Releases, ..Settings::default() });
    desk.namespace("a", &[]);
    let quota = |limit: &str, kind: &str| json!({"spec": {"limit": limit, "sources": [{"kind": kind, "op": "count"}]}});
    assert!(desk.apply(&quotas(), "a", "q", quota("0", "Pod")).unwrap_err().contains("must not be negative or 0"));
    desk.apply(&quotas(), "a", "q", quota("3", "Pod")).unwrap();
    desk.apply(&quotas(), "a", "q", quota("3", "Service")).unwrap();
    desk.apply(&quotas(), "a", "q", quota("3", "Pod")).unwrap();
    for name in ["one", "two"] {
        desk.apply(&resource("pods"), "a", name, json!({})).unwrap();
    }
    assert_eq!(
        desk.apply(&quotas(), "a", "q", quota("1", "Pod")).unwrap_err(),
        "spec.limit cannot be lowered below current usage (2); requested limit: 1"
    );
    assert_eq!(
        desk.apply(&quotas(), "a", "q", quota("3", "Service")).unwrap_err(),
        "spec.sources cannot be changed while usage is recorded (usage: 2); create a new CustomQuota instead"
    );
    desk.apply(&quotas(), "a", "q", quota("2", "Pod")).unwrap();
}

#[test]
fn a_pool_is_what_a_resource_quota_can_be() {
    let pool = |quota: Value| json!({"spec": {"quota": quota, "selectors": [{"matchLabels": {"tenant": "solar"}}]}});
    let selector = |scope: &str, operator: &str| json!({"matchExpressions": [{"scopeName": scope, "operator": operator, "values": []}]});
    for (quota, expected) in [
        (json!({"hard": {"pods": "1"}, "scopes": ["Sometimes"]}), "spec.quota.scopes: Invalid value"),
        (json!({"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}), "conflicting scopes"),
        (json!({"hard": {"services": "1"}, "scopes": ["BestEffort"]}), "unsupported scope applied to resource"),
        (
            json!({"hard": {"pods": "1"}, "scopeSelector": selector("PriorityClass", "Sometimes")}),
            "spec.quota.scopeSelector",
        ),
        (json!({"hard": {"pods": "1"}, "scopeSelector": selector("Moon", "Exists")}), "spec.quota.scopeSelector"),
        (json!({"hard": {"pods": "500m"}}), "spec.quota.hard[pods]: Invalid value: \"500m\": must be an integer"),
        (json!({"hard": {"shoes": "1"}}), "must be a standard resource"),
    ] {
        let mut desk = Desk::new();
        let why = desk.apply(&pools(), "", "p", pool(quota.clone())).expect_err("should be refused");
        assert!(why.contains(expected), "{quota}: {why}");
    }
    let mut desk = Desk::new();
    desk.namespace("a", &[("tenant", "solar")]);
    desk.apply(&pools(), "", "p", pool(json!({"hard": {"pods": "5"}, "scopes": ["NotTerminating"]}))).unwrap();
    for (amounts, expected) in [
        (json!({"pods": "500m"}), "spec.claim[pods]: Invalid value: \"500m\": must be an integer"),
        (json!({"shoes": "1"}), "spec.claim[shoes]: Invalid value"),
    ] {
        let claim = json!({"spec": {"pool": "p", "claim": amounts}});
        let why = desk.apply(&claims(), "a", "c", claim).expect_err("should be refused");
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn what_quotas_tell_is_not_counted_by_quotas() {
    let bound = r#".status.conditions[?(@.type=="Bound")].status==True"#;
    let capsule = "capsule.clastix.io/v1beta2";
    for source in [
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "path": ".status.used.pods"}),
        json!({"apiVersion": capsule, "kind": "CustomQuota", "cel": "object.status.usage.used"}),
        json!({"apiVersion": capsule, "kind": "ResourcePoolClaim", "op": "count", "selectors": [{"fieldSelectors": [bound]}]}),
    ] {
        let why = refusal(with_source(source));
        assert!(why.contains("spec.sources[0]") && why.contains("is not counted"), "{why}");
    }
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let status = json!({"kind": "Pod", "op": "count", "selectors": [{"fieldSelectors": [".status.phase!=Succeeded"]}]});
    desk.apply(&quotas(), "a", "q", json!({"spec": with_source(status)})).unwrap();
}
