//! Quotas over several namespaces, and the resources that are not stored.

use rules::GroupResource;
use serde_json::{Value, json};

use super::pod;
use crate::desk::Desk;

fn cluster_quotas() -> GroupResource {
    GroupResource::new("quota.openshift.io", "clusterresourcequotas")
}

fn hierarchical_quotas() -> GroupResource {
    GroupResource::new("hnc.x-k8s.io", "hierarchicalresourcequotas")
}

fn configurations() -> GroupResource {
    GroupResource::new("hnc.x-k8s.io", "hierarchyconfigurations")
}

#[test]
fn a_cluster_quota_is_shared_by_the_namespaces_it_selects() {
    let mut desk = Desk::in_ns();
    desk.namespace("a", &[("org", "x")]);
    desk.namespace("b", &[("org", "x")]);
    desk.namespace("c", &[("org", "y")]);
    let spec =
        json!({"selector": {"labels": {"matchLabels": {"org": "x"}}}, "quota": {"hard": {"pods": "2", "cpu": "1"}}});
    desk.apply(&cluster_quotas(), "", "org-x", json!({"spec": spec})).unwrap();
    let first = desk.create_in("a", "pods", pod(json!({"cpu": "600m"}))).unwrap();
    desk.create_in("b", "pods", pod(json!({"cpu": "400m"}))).unwrap();
    desk.create_in("c", "pods", pod(json!({"cpu": "9"}))).unwrap();
    assert_eq!(
        desk.create_in("b", "pods", pod(json!({"cpu": "1m"}))).unwrap_err(),
        "exceeded quota: org-x, requested: cpu=1m,pods=1, used: cpu=1,pods=2, limited: cpu=1,pods=2"
    );
    let hard = json!({"pods": "2", "cpu": "1"});
    assert_eq!(
        desk.status(&cluster_quotas(), "", "org-x"),
        json!({
            "total": {"hard": hard, "used": {"pods": "2", "cpu": "1"}},
            "namespaces": [
                {"namespace": "a", "status": {"hard": hard, "used": {"pods": "1", "cpu": "600m"}}},
                {"namespace": "b", "status": {"hard": hard, "used": {"pods": "1", "cpu": "400m"}}},
            ],
        })
    );
    // A namespace that is no longer selected takes its usage with it; one that comes under the quota is counted.
    desk.remove(&first);
    desk.namespace("b", &[]);
    desk.namespace("c", &[("org", "x")]);
    assert_eq!(
        desk.status(&cluster_quotas(), "", "org-x"),
        json!({
            "total": {"hard": hard, "used": {"pods": "1", "cpu": "9"}},
            "namespaces": [
                {"namespace": "a", "status": {"hard": hard, "used": {"pods": "0", "cpu": "0"}}},
                {"namespace": "c", "status": {"hard": hard, "used": {"pods": "1", "cpu": "9"}}},
            ],
        })
    );
}

#[test]
fn a_cluster_quota_must_restrict_its_namespaces() {
    let mut desk = Desk::in_ns();
    let mut write = |selector: Value| {
        let object = json!({"spec": {"selector": selector, "quota": {"hard": {"pods": "1"}}}});
        desk.apply(&cluster_quotas(), "", "q", object).err().unwrap_or_default()
    };
    assert_eq!(write(json!({})), "spec.selector: Required value: must restrict the selected projects");
    assert_eq!(write(json!({"labels": null, "annotations": null})), write(json!({})));
    assert_eq!(
        write(json!({"labels": {}})),
        "spec.selector.labels: Invalid value: {}: must restrict the selected projects"
    );
    assert_eq!(write(json!({"annotations": {"owner": "me"}})), "");
    let bad = json!({"labels": {"matchExpressions": [{"key": "a", "operator": "View"}]}});
    assert!(write(bad).starts_with("spec.selector.labels: Invalid value"));
    let object = json!({"spec": {"selector": {"annotations": {"a": "b"}}, "quota": {"hard": {"foo": "1"}}}});
    let error = desk.apply(&cluster_quotas(), "", "q", object).unwrap_err();
    assert!(error.contains("spec.quota.hard[foo]: Invalid value: \"foo\": must be a standard resource for quota"));
}

#[test]
fn a_hierarchical_quota_is_over_everything_below() {
    let mut desk = Desk::in_ns();
    ["org", "team", "other"].into_iter().for_each(|name| desk.namespace(name, &[]));
    let below_org = json!({"spec": {"parent": "org"}});
    desk.apply(&configurations(), "team", "hierarchy", below_org.clone()).unwrap();
    let hard = |pods: &str| json!({"spec": {"hard": {"pods": pods, "limits.cpu": 4, "secrets": "5"}}});
    desk.apply(&hierarchical_quotas(), "org", "all", hard("2")).unwrap();
    desk.apply(&hierarchical_quotas(), "team", "own", hard("1")).unwrap();
    let mut limited = pod(json!({}));
    limited["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1"});
    desk.create_in("team", "pods", limited.clone()).unwrap();
    assert_eq!(
        desk.create_in("team", "pods", limited.clone()).unwrap_err(),
        "exceeded hierarchical quota in namespace \"team\": \"own\", requested: pods=1, used: pods=1, limited: pods=1"
    );
    desk.create_in("org", "pods", limited.clone()).unwrap();
    assert_eq!(
        desk.create_in("org", "pods", limited.clone()).unwrap_err(),
        "exceeded hierarchical quota in namespace \"org\": \"all\", requested: pods=1, used: pods=2, limited: pods=2"
    );
    desk.create_in("other", "pods", limited).unwrap();
    assert_eq!(
        desk.status(&hierarchical_quotas(), "org", "all"),
        json!({
            "hard": {"pods": "2", "limits.cpu": 4, "secrets": "5"},
            "used": {"pods": "2", "limits.cpu": "2", "secrets": "0"},
            "requestsSummary": "pods: 2/2, secrets: 0/5",
            "limitsSummary": "limits.cpu: 2/4",
        })
    );
    // A namespace that moves takes its usage along, whether or not there is room: nobody is evicted.
    desk.apply(&configurations(), "other", "hierarchy", below_org).unwrap();
    assert_eq!(desk.status(&hierarchical_quotas(), "org", "all")["used"]["pods"], "3");
}

#[test]
fn a_namespace_sees_the_cluster_quotas_that_bind_it() {
    let mut desk = Desk::in_ns();
    desk.namespace("a", &[("org", "x")]);
    let bound = json!({"spec": {
        "selector": {"labels": {"matchLabels": {"org": "x"}}}, "quota": {"hard": {"pods": "2"}},
    }});
    let foreign = json!({"spec": {"selector": {"annotations": {"org": "x"}}, "quota": {}}});
    desk.apply(&cluster_quotas(), "", "q", bound).unwrap();
    desk.apply(&cluster_quotas(), "", "r", foreign).unwrap();
    desk.create_in("a", "pods", pod(json!({}))).unwrap();
    let applied = GroupResource::new("quota.openshift.io", "appliedclusterresourcequotas");
    let seen = desk.virtual_objects(&applied, "a");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["kind"], "AppliedClusterResourceQuota");
    let mut metadata = desk.projected(&cluster_quotas(), "", "q")["metadata"].clone();
    metadata["namespace"] = json!("a");
    assert_eq!((&seen[0]["metadata"], &metadata["name"]), (&metadata, &json!("q")));
    assert_eq!(seen[0]["status"]["total"]["used"], json!({"pods": "1"}));
    assert!(desk.virtual_objects(&applied, "nowhere").is_empty());
    let manifest = desk.families.of_policy(&cluster_quotas()).unwrap().manifest();
    let verbs: Vec<_> = manifest.virtuals.iter().map(|one| (one.resource, one.verbs)).collect();
    assert_eq!(
        verbs,
        [("appliedclusterresourcequotas", &["get", "list"][..]), ("resourcequotausages", &["create"][..])]
    );
}
