//! Templates that are refused as they are applied.

use families::karmada::Settings;
use serde_json::json;

use super::*;

fn deployment(replicas: u32, cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {
        "replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "resources": resources}]}},
    }})
}

#[test]
fn a_template_that_does_not_fit_is_refused_where_that_is_wished() {
    let deployments = resource("deployments.apps");
    for early in [false, true] {
        let mut desk = desk_with(Settings { deny_templates: early, ..Settings::default() });
        let refused = |desk: &mut Desk, name: &str, replicas: u32, cpu: &str| {
            desk.apply(&deployments, "a", name, deployment(replicas, cpu)).err()
        };
        desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "4"}))).unwrap();
        // Without a policy it goes nowhere, and may be anything.
        assert_eq!(refused(&mut desk, "alone", 100, "1"), None);
        let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
        desk.apply(&policies(), "a", "p", json!({"spec": {"resourceSelectors": [selector], "placement": placement}}))
            .unwrap();
        assert_eq!(refused(&mut desk, "web", 3, "1"), None);
        let words = "FederatedResourceQuota(a/q) exceeded for resource cpu: requested sum 5, limit 4.";
        assert_eq!(refused(&mut desk, "large", 5, "1").as_deref(), early.then_some(words));
        desk.apply(&bindings(), "a", "web-deployment", binding(3, json!({"cpu": "1"}), &[("m1", 2), ("m2", 1)]))
            .unwrap();
        // Growth counts, and what is there already does not count twice.
        assert_eq!(refused(&mut desk, "web", 4, "1"), None);
        assert_eq!(refused(&mut desk, "web", 5, "1").as_deref(), early.then_some(words));
        assert_eq!(refused(&mut desk, "web", 3, "2").is_some(), early);
        assert_eq!(refused(&mut desk, "web", 1, "1"), None);
        // Other namespaces, and what is not selected, are left alone.
        let other = desk.apply(&deployments, "b", "large", deployment(50, "1"));
        assert!(other.is_ok());
    }
}

#[test]
fn a_template_that_comes_under_a_quota_is_asked_for_all_of_it() {
    let deployments = resource("deployments.apps");
    let mut desk = desk_with(Settings { deny_templates: true, ..Settings::default() });
    desk.apply(&quotas(), "a", "q", json!({"spec": {"overall": {"cpu": "4"}, "scopes": ["PriorityClass"]}})).unwrap();
    let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    desk.apply(&policies(), "a", "p", json!({"spec": {"resourceSelectors": [selector]}})).unwrap();
    desk.apply(&deployments, "a", "web", deployment(5, "1")).unwrap();
    desk.apply(&bindings(), "a", "web-deployment", binding(5, json!({"cpu": "1"}), &[("m1", 5)])).unwrap();
    let mut meant = deployment(5, "1");
    meant["spec"]["template"]["spec"]["priorityClassName"] = json!("high");
    let said = desk.apply(&deployments, "a", "web", meant).unwrap_err();
    assert!(said.contains("exceeded for resource cpu: requested sum 5, limit 4."), "{said}");
}

/// A template that waits may be written, and made smaller: only what it asks for beyond what it asked for before is refused.
#[test]
fn a_template_that_waits_is_refused_only_what_it_asks_for_beside_that() {
    let deployments = resource("deployments.apps");
    let mut desk = desk_with(Settings { deny_templates: true, ..Settings::default() });
    desk.apply(&quotas(), "a", "q", quota(json!({"cpu": "10"}))).unwrap();
    let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    desk.apply(&policies(), "a", "p", json!({"spec": {"resourceSelectors": [selector], "placement": placement}}))
        .unwrap();
    for name in ["placed", "waits"] {
        desk.apply(&deployments, "a", name, deployment(8, "1")).unwrap();
    }
    desk.apply(&bindings(), "a", "placed-deployment", binding(8, json!({"cpu": "1"}), &[("m1", 8)])).unwrap();
    desk.apply(&bindings(), "a", "waits-deployment", binding(8, json!({"cpu": "1"}), &[])).unwrap();
    let mut labelled = deployment(8, "1");
    labelled["metadata"] = json!({"labels": {"a": "b"}});
    for (smaller, is_refused) in [
        (labelled, false),
        (deployment(4, "1"), false),
        (deployment(2, "2"), false),
        (deployment(5, "1"), true),
        (deployment(2, "4"), true),
    ] {
        let done = desk.apply(&deployments, "a", "waits", smaller.clone());
        assert_eq!(done.is_err(), is_refused, "{smaller}: {done:?}");
    }
    // Fewer and larger ones are what they come to together.
    desk.apply(&deployments, "a", "placed", deployment(2, "4")).unwrap();
    assert!(desk.apply(&deployments, "a", "placed", deployment(2, "6")).is_err());
}
