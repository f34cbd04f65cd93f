//! What custom quotas count, refuse and show.

use families::capsule::{Reading, Settings};
use serde_json::{Value, json};

use super::{desk_with, global_quotas, quotas};
use crate::desk::{Desk, resource};

fn quota(limit: &str, sources: Value) -> Value {
    json!({"spec": {"limit": limit, "sources": sources}})
}

fn count(kind: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "op": "count"}])
}

fn create(desk: &mut Desk, of: &str, name: &str, spec: Value) -> Result<(), String> {
    desk.apply(&resource(of), "a", name, json!({"spec": spec}))
}

fn claim(storage: &str) -> Value {
    json!({"resources": {"requests": {"storage": storage}}})
}

fn storage() -> Value {
    json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "path": ".spec.resources.requests.storage"}])
}

#[test]
fn a_count_is_refused_at_the_limit_in_capsules_words() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    desk.apply(&quotas(), "a", "pods", quota("2", count("Pod"))).unwrap();
    create(&mut desk, "pods", "one", json!({})).unwrap();
    create(&mut desk, "pods", "two", json!({})).unwrap();
    assert_eq!(
        create(&mut desk, "pods", "three", json!({})).unwrap_err(),
        "creating resource exceeds limit for CustomQuota \"pods\" (requested=1, currentUsed=3, available=0, limit=2, \
         inflightReserved=0)"
    );
    desk.delete(&resource("pods"), "a", "one").unwrap();
    create(&mut desk, "pods", "three", json!({})).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "pods"), "2/0");
}

#[test]
fn quantities_are_summed_and_growth_is_refused() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    desk.apply(&quotas(), "a", "storage", quota("5Gi", storage())).unwrap();
    create(&mut desk, "persistentvolumeclaims", "one", claim("2Gi")).unwrap();
    create(&mut desk, "persistentvolumeclaims", "two", claim("1Gi")).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "storage"), "3Gi/2Gi");
    let refused = create(&mut desk, "persistentvolumeclaims", "two", claim("4Gi")).unwrap_err();
    assert_eq!(
        refused,
        "updating resource exceeds limit for CustomQuota \"storage\" (requested=3Gi, currentUsed=6Gi, available=2Gi, \
         limit=5Gi, inflightReserved=0)"
    );
    create(&mut desk, "persistentvolumeclaims", "two", claim("3Gi")).unwrap();
    // A limit below usage evicts nobody and lets everyone shrink.
    desk.apply(&quotas(), "a", "storage", quota("1Gi", storage())).unwrap();
    create(&mut desk, "persistentvolumeclaims", "two", claim("2Gi")).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "storage"), "4Gi/0");
}

#[test]
fn several_values_and_several_sources_of_one_kind_are_added_up() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let cpu = |list: &str| json!({"kind": "Pod", "path": format!(".spec.{list}[*].resources.limits.cpu")});
    desk.apply(&quotas(), "a", "cpu", quota("5", json!([cpu("containers"), cpu("initContainers")]))).unwrap();
    let container = |cpu: &str| json!({"resources": {"limits": {"cpu": cpu}}});
    let pod = json!({"containers": [container("250m"), container("1")], "initContainers": [container("500m")]});
    create(&mut desk, "pods", "one", pod).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "cpu"), "1750m/3250m");
    create(&mut desk, "pods", "two", json!({"containers": [container("250m")]})).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "cpu"), "2/3");
}

#[test]
fn a_discount_counts_for_all_objects_and_usage_is_never_below_zero() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let sources = json!([
        {"kind": "ConfigMap", "op": "sub", "path": ".spec.free"},
        {"kind": "ConfigMap", "op": "add", "path": ".spec.size"},
    ]);
    desk.apply(&quotas(), "a", "net", quota("10", sources)).unwrap();
    create(&mut desk, "configmaps", "one", json!({"size": "7", "free": "3"})).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "net"), "4/6");
    create(&mut desk, "configmaps", "two", json!({"size": "1", "free": "100"})).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "net"), "0/10");
    create(&mut desk, "configmaps", "three", json!({"size": "105"})).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "net"), "10/0");
    let refused = create(&mut desk, "configmaps", "four", json!({"size": "1"})).unwrap_err();
    assert!(refused.contains("(requested=1, currentUsed=11, available=0, limit=10,"), "{refused}");
    // Taking a discount back by an edit is growth; deleting it is not refused, and nothing grows until it fits again.
    assert!(create(&mut desk, "configmaps", "two", json!({"size": "1", "free": "99"})).is_err());
    desk.delete(&resource("configmaps"), "a", "two").unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "net"), "109/0");
    assert!(create(&mut desk, "configmaps", "four", json!({"size": "1"})).is_err());
    create(&mut desk, "configmaps", "three", json!({"size": "104"})).unwrap();
}

#[test]
fn a_discount_may_come_from_another_kind_with_other_selectors() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let sources = json!([
        {"kind": "PersistentVolumeClaim", "op": "add", "path": ".spec.resources.requests.storage"},
        {"kind": "ConfigMap", "op": "sub", "path": ".spec.free", "selectors": [{"matchLabels": {"grant": "yes"}}]},
    ]);
    desk.apply(&quotas(), "a", "net", quota("5Gi", sources)).unwrap();
    let grant = |grant: &str| json!({"metadata": {"labels": {"grant": grant}}, "spec": {"free": "2Gi"}});
    desk.apply(&resource("configmaps"), "a", "grant", grant("no")).unwrap();
    create(&mut desk, "persistentvolumeclaims", "one", claim("5Gi")).unwrap();
    assert!(create(&mut desk, "persistentvolumeclaims", "two", claim("1Gi")).is_err());
    desk.apply(&resource("configmaps"), "a", "grant", grant("yes")).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "net"), "3Gi/2Gi");
    create(&mut desk, "persistentvolumeclaims", "two", claim("2Gi")).unwrap();
    assert!(create(&mut desk, "persistentvolumeclaims", "three", claim("1Gi")).is_err());
    // What gives back is shown with what takes.
    let shown = desk.projected(&quotas(), "a", "net");
    let listed: Vec<&str> =
        shown["status"]["claims"].as_array().unwrap().iter().filter_map(|claim| claim["usage"].as_str()).collect();
    assert_eq!(listed, ["-2Gi", "5Gi", "2Gi"]);
    // Leaving the selection is no growth of anything: like deleting, it is not refused.
    desk.apply(&resource("configmaps"), "a", "grant", grant("no")).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "net"), "7Gi/0");
}

#[test]
fn a_part_below_zero_cannot_hide_the_others() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let paths = json!([{"kind": "ConfigMap", "path": ".spec.disks[*].gb"}]);
    let expressions = json!([{"kind": "Secret", "cel": "object.spec.disks.map(d, quantity(string(d.gb)))"}]);
    desk.apply(&quotas(), "a", "paths", quota("10", paths)).unwrap();
    desk.apply(&quotas(), "a", "expressions", quota("10", expressions)).unwrap();
    for kind in ["configmaps", "secrets"] {
        for disks in [json!([{"gb": 100}, {"gb": -100}]), json!([{"gb": -1}])] {
            let refused = create(&mut desk, kind, "odd", json!({"disks": disks})).unwrap_err();
            assert!(refused.contains("must be greater than or equal to 0"), "{refused}");
        }
        create(&mut desk, kind, "even", json!({"disks": [{"gb": 10}]})).unwrap();
    }
}

#[test]
fn selectors_are_alternatives_of_conjunctions() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let selectors = json!([
        {"matchLabels": {"team": "platform"}, "fieldSelectors": [".spec.type=LoadBalancer"]},
        {"celExpressions": ["object.spec.?replicas.orValue(0) > 2"]},
    ]);
    let sources = json!([{"kind": "Service", "op": "count", "selectors": selectors}]);
    desk.apply(&quotas(), "a", "some", quota("9", sources)).unwrap();
    let labelled = |team: &str, spec: Value| json!({"metadata": {"labels": {"team": team}}, "spec": spec});
    let services = resource("services");
    desk.apply(&services, "a", "counted", labelled("platform", json!({"type": "LoadBalancer"}))).unwrap();
    desk.apply(&services, "a", "other-team", labelled("web", json!({"type": "LoadBalancer"}))).unwrap();
    desk.apply(&services, "a", "other-type", labelled("platform", json!({"type": "ClusterIP"}))).unwrap();
    desk.apply(&services, "a", "by-cel", labelled("web", json!({"replicas": 3}))).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "some"), "2/7");
    // An update that leaves the selection gives back.
    desk.apply(&services, "a", "counted", labelled("web", json!({"type": "LoadBalancer"}))).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "some"), "1/8");
}

#[test]
fn scope_selectors_come_before_everything() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let mut spec = quota("1Gi", storage());
    spec["spec"]["scopeSelectors"] = json!([{"matchLabels": {"class": "gold"}}]);
    desk.apply(&quotas(), "a", "gold", spec).unwrap();
    let of_class = |class: &str| json!({"metadata": {"labels": {"class": class}}, "spec": claim("1Gi")});
    let claims = resource("persistentvolumeclaims");
    desk.apply(&claims, "a", "silver", of_class("silver")).unwrap();
    desk.apply(&claims, "a", "gold", of_class("gold")).unwrap();
    assert!(desk.apply(&claims, "a", "silver", of_class("gold")).is_err());
    assert_eq!(desk.usage(&quotas(), "a", "gold"), "1Gi/0");
}

#[test]
fn a_global_quota_follows_its_namespaces() {
    let mut desk = Desk::new();
    desk.namespace("a", &[("tenant", "solar")]);
    desk.namespace("b", &[("tenant", "wind")]);
    let mut spec = quota("2", count("Pod"));
    spec["spec"]["namespaceSelectors"] = json!([{"matchLabels": {"tenant": "solar"}}]);
    desk.apply(&global_quotas(), "", "pods", spec).unwrap();
    let pods = resource("pods");
    for (namespace, name) in [("a", "one"), ("b", "two"), ("b", "three")] {
        desk.apply(&pods, namespace, name, json!({})).unwrap();
    }
    assert_eq!(desk.usage(&global_quotas(), "", "pods"), "1/1");
    desk.namespace("b", &[("tenant", "solar")]);
    assert_eq!(desk.usage(&global_quotas(), "", "pods"), "3/0");
    assert_eq!(desk.status(&global_quotas(), "", "pods")["namespaces"], json!(["a", "b"]));
    assert!(desk.apply(&pods, "a", "four", json!({})).is_err());
    desk.namespace("b", &[]);
    desk.apply(&pods, "a", "four", json!({})).unwrap();
}

#[test]
fn the_quota_with_the_least_left_speaks_first() {
    for (reading, speaker) in [(Reading::Documentation, "GlobalCustomQuota"), (Reading::Releases, "CustomQuota")] {
        let mut desk = desk_with(Settings { reading, ..Settings::default() });
        desk.namespace("a", &[]);
        desk.namespace("b", &[]);
        desk.apply(&quotas(), "a", "own", quota("3", count("Pod"))).unwrap();
        desk.apply(&global_quotas(), "", "all", quota("4", count("Pod"))).unwrap();
        let pods = resource("pods");
        for (namespace, name) in [("a", "1"), ("a", "2"), ("b", "3"), ("b", "4")] {
            desk.apply(&pods, namespace, name, json!({})).unwrap();
        }
        desk.apply(&quotas(), "a", "own", quota("2", count("Pod"))).unwrap();
        desk.apply(&global_quotas(), "", "all", quota("4", count("Pod"))).unwrap();
        // Both are full; over-full would be less still.
        let refused = desk.apply(&pods, "a", "5", json!({})).unwrap_err();
        let expected = if reading == Reading::Releases { "CustomQuota \"own\"" } else { "CustomQuota" };
        assert!(refused.contains(expected), "{refused}");
        desk.apply(&quotas(), "a", "own", json!({"spec": {"limit": "3", "sources": count("Pod")}})).unwrap();
        let refused = desk.apply(&pods, "a", "5", json!({})).unwrap_err();
        assert!(refused.contains("\"all\""), "{speaker}: {refused}");
    }
}

#[test]
fn a_missing_value_is_zero_or_cannot_be_evaluated() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    desk.apply(&quotas(), "a", "storage", quota("5Gi", storage())).unwrap();
    create(&mut desk, "persistentvolumeclaims", "bare", json!({})).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "storage"), "0/5Gi");

    let mut desk = desk_with(Settings { reading: Reading::Releases, ..Settings::default() });
    desk.namespace("a", &[]);
    desk.apply(&quotas(), "a", "storage", quota("5Gi", storage())).unwrap();
    assert_eq!(
        create(&mut desk, "persistentvolumeclaims", "bare", json!({})).unwrap_err(),
        "creating resource a/bare (/v1, Kind=PersistentVolumeClaim) cannot be admitted because custom quota usage \
         could not be calculated: CustomQuota \"storage\" source path \".spec.resources.requests.storage\" cel \"\" op \
         \"add\" did not resolve to a valid quantity: quantity path did not resolve to any value"
    );
}

#[test]
fn an_object_that_cannot_be_evaluated_is_named_and_blocks_nobody() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    create(&mut desk, "persistentvolumeclaims", "odd", claim("much")).unwrap();
    desk.apply(&quotas(), "a", "storage", quota("5Gi", storage())).unwrap();
    let status = desk.status(&quotas(), "a", "storage");
    let ready = &status["conditions"][0];
    assert_eq!((ready["status"].as_str(), ready["reason"].as_str()), (Some("False"), Some("Failed")));
    let message = ready["message"].as_str().unwrap();
    let named = "1 objects cannot be evaluated and are not counted: persistentvolumeclaims a/odd (source path \
                 \".spec.resources.requests.storage\" cel \"\" op \"add\" did not resolve to a valid quantity: invalid \
                 quantity \"much\"";
    assert!(message.starts_with(named), "{message}");
    create(&mut desk, "persistentvolumeclaims", "fine", claim("5Gi")).unwrap();
    // It may be written as it is, and mended; a new one like it is refused.
    create(&mut desk, "persistentvolumeclaims", "odd", claim("plenty")).unwrap();
    assert!(create(&mut desk, "persistentvolumeclaims", "new", claim("much")).is_err());
    create(&mut desk, "persistentvolumeclaims", "odd", claim("0")).unwrap();
    assert_eq!(desk.status(&quotas(), "a", "storage")["conditions"][0]["message"], "reconciled");
}

#[test]
fn a_group_without_version_means_all_of_its_versions() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let sources = json!([{"apiVersion": "apps", "kind": "Deployment", "op": "count"}]);
    desk.apply(&quotas(), "a", "few", quota("1", sources)).unwrap();
    create(&mut desk, "deployments.apps", "one", json!({})).unwrap();
    assert!(create(&mut desk, "deployments.apps", "two", json!({})).is_err());
    let target = &desk.status(&quotas(), "a", "few")["targets"][0];
    assert_eq!((target["group"].as_str(), target["version"].as_str()), (Some("apps"), Some("*")));
}

#[test]
fn a_namespace_selector_that_names_nothing_selects_nothing() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let mut spec = quota("1", count("Pod"));
    spec["spec"]["namespaceSelectors"] = json!([{}]);
    desk.apply(&global_quotas(), "", "none", spec.clone()).unwrap();
    for name in ["one", "two"] {
        create(&mut desk, "pods", name, json!({})).unwrap();
    }
    assert_eq!(desk.usage(&global_quotas(), "", "none"), "0/1");
    // Without any entry the quota is for all.
    spec["spec"]["namespaceSelectors"] = json!([]);
    desk.apply(&global_quotas(), "", "none", spec).unwrap();
    assert_eq!(desk.usage(&global_quotas(), "", "none"), "2/0");
}

#[test]
fn a_kind_without_namespaces_under_namespace_selectors_is_told() {
    let mut desk = Desk::new();
    desk.namespace("a", &[("team", "solar")]);
    let mut spec = quota("1", count("PersistentVolume"));
    spec["spec"]["namespaceSelectors"] = json!([{"matchLabels": {"team": "solar"}}]);
    desk.apply(&global_quotas(), "", "volumes", spec).unwrap();
    let ready = desk.status(&global_quotas(), "", "volumes")["conditions"][0].clone();
    assert_eq!(ready["status"], "False");
    let message = "GVK /v1, Kind=PersistentVolume is not namespaced: namespaceSelectors select none of its objects";
    assert_eq!(ready["message"], message);
}

#[test]
fn observing_counts_and_refuses_nothing() {
    let mut desk = desk_with(Settings { observe_only: true, ..Settings::default() });
    desk.namespace("a", &[]);
    desk.apply(&quotas(), "a", "pods", quota("1", count("Pod"))).unwrap();
    create(&mut desk, "pods", "one", json!({})).unwrap();
    create(&mut desk, "pods", "two", json!({})).unwrap();
    assert_eq!(desk.usage(&quotas(), "a", "pods"), "2/0");
}

#[test]
fn the_status_tells_who_takes_what() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    desk.apply(&quotas(), "a", "pods", quota("3", count("Pod"))).unwrap();
    create(&mut desk, "pods", "web", json!({})).unwrap();
    assert_eq!(
        desk.status(&quotas(), "a", "pods"),
        json!({
            "usage": {"used": "1", "available": "2"},
            "claimCount": 1,
            "claims": [{
                "group": "", "version": "v1", "kind": "Pod", "name": "web", "namespace": "a", "usage": "1",
                "uid": "00000000-0000-0000-0000-000000000003",
            }],
            "targets": [{"group": "", "version": "v1", "kind": "Pod", "op": "count", "scope": "namespace"}],
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Succeeded", "message": "reconciled",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }],
        })
    );
    let ledger = resource("quantityledgers.capsule.clastix.io");
    let shown = desk.virtual_objects(&ledger, "a");
    assert_eq!(shown[0]["spec"]["targetRef"]["name"], "pods");
    assert_eq!(shown[0]["status"], json!({"reserved": "0", "allocated": "1"}));
}

#[test]
fn a_kind_may_be_defined_after_its_quota_and_have_any_plural() {
    let mut desk = Desk::new();
    desk.namespace("a", &[]);
    let sources = json!([{"apiVersion": "db.example.com/v1", "kind": "Index", "op": "count"}]);
    desk.apply(&quotas(), "a", "indices", quota("1", sources)).unwrap();
    let message = desk.status(&quotas(), "a", "indices")["conditions"][0]["message"].clone();
    assert!(message.as_str().unwrap().starts_with("failed to resolve REST mapping for db.example.com/v1, Kind=Index"));
    let definition = json!({"spec": {
        "group": "db.example.com", "scope": "Namespaced", "names": {"kind": "Index", "plural": "indices"},
        "versions": [{"name": "v1", "served": true}],
    }});
    let definitions = resource("customresourcedefinitions.apiextensions.k8s.io");
    desk.apply(&definitions, "", "indices.db.example.com", definition).unwrap();
    create(&mut desk, "indices.db.example.com", "one", json!({})).unwrap();
    assert!(create(&mut desk, "indices.db.example.com", "two", json!({})).is_err());
    assert_eq!(desk.status(&quotas(), "a", "indices")["conditions"][0]["message"], "reconciled");
}

#[test]
fn two_hundred_creates_in_twenty_namespaces_find_exactly_ten_places() {
    let mut desk = Desk::new();
    let names: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
    names.iter().for_each(|name| desk.namespace(name, &[]));
    desk.apply(&global_quotas(), "", "ten", quota("10", count("Pod"))).unwrap();
    let tried = (0..200).map(|n| desk.apply(&resource("pods"), &names[n % 20], &format!("p{n}"), json!({})));
    assert_eq!(tried.filter(Result::is_ok).count(), 10);
    assert_eq!(desk.usage(&global_quotas(), "", "ten"), "10/0");
}

/// Ten thousand quotas are not compiled again because somebody defines a kind that none of them names, or a status is told of one.
#[test]
fn a_definition_means_something_to_quotas_that_name_its_kind_by_what_they_go_by() {
    let definition = |group: &str, kind: &str, scope: &str, served: bool, more: &str| {
        let versions = json!([{"name": "v1", "served": served, "storage": true, "schema": more}]);
        let names = json!({"kind": kind, "plural": "buckets"});
        json!({"spec": {"group": group, "scope": scope, "names": names, "versions": versions}, "status": more})
    };
    let bucket = definition("s3.example.com", "Bucket", "Namespaced", true, "");
    let named = r#"{"spec":{"sources":[{"apiVersion":"s3.example.com/v1","kind":"Bucket","op":"count"}]}}"#;
    let odd = r#"{"spec":{"sources":[{"apiVersion":"s3.example.com/v1","kind":"Bu\"cket","op":"count"}]}}"#;
    let resource = resource("customresourcedefinitions.apiextensions.k8s.io");
    let (families, origin) = (families::all(&Default::default()), families::Origin::default());
    let family = families.of_policy(&quotas()).unwrap();
    let other = |group, kind, scope, served, more| Some(definition(group, kind, scope, served, more));
    for (old, new, policy, expected, what) in [
        (Value::Null, Some(bucket.clone()), named, true, "it is defined"),
        (bucket.clone(), None, named, true, "it is gone"),
        (
            bucket.clone(),
            other("s3.example.com", "Bucket", "Namespaced", false, ""),
            named,
            true,
            "not served any more",
        ),
        (bucket.clone(), other("s3.example.com", "Bucket", "Cluster", true, ""), named, true, "elsewhere"),
        (bucket.clone(), other("s3.example.com", "Pail", "Namespaced", true, ""), named, true, "it was the kind"),
        (other("a.b", "Pail", "Namespaced", true, "").unwrap(), Some(bucket.clone()), named, true, "it is the kind"),
        (
            bucket.clone(),
            other("s3.example.com", "Bucket", "Namespaced", true, "more"),
            named,
            false,
            "a schema, a status",
        ),
        (Value::Null, other("s3.example.com", "Pail", "Namespaced", true, ""), named, false, "another kind"),
        (Value::Null, other("a.b", "Bucket", "Namespaced", true, ""), named, false, "another group"),
        (
            Value::Null,
            other("s3.example.com", "Bu\"cket", "Namespaced", true, ""),
            odd,
            true,
            "what is written otherwise",
        ),
    ] {
        let name = "buckets.s3.example.com";
        let change = families::Change {
            resource: &resource,
            namespace: "",
            name,
            old: &old,
            new: new.as_ref(),
            origin: &origin,
        };
        assert_eq!(family.may_mean_otherwise(&change, policy), expected, "{what}");
    }
}
