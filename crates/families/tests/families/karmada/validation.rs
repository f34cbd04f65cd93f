//! What may not be written, and what is said about it.

use serde_json::json;

use super::*;

#[test]
fn quotas_that_cannot_be_enforced_are_refused() {
    let mut desk = desk();
    let with =
        |overall: Value, assignments: Value| json!({"spec": {"overall": overall, "staticAssignments": assignments}});
    let one = |name: &str, hard: Value| json!([{"clusterName": name, "hard": hard}]);
    for (spec, expected) in [
        (quota(json!({"cpu": "-1"})), "spec.overall[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"),
        (quota(json!({"pods": "1500m"})), "must be an integer"),
        (quota(json!({"gold": "1"})), "must be a standard resource for quota"),
        (
            quota(json!({"limits.cpu": "1"})),
            "spec.overall[limits.cpu]: Invalid value: \"limits.cpu\": cannot be enforced",
        ),
        (quota(json!({"requests.storage": "1"})), "cannot be enforced"),
        (quota(json!({"count/pods": "1"})), "cannot be enforced"),
        (quota(json!({"cpu": "lots"})), "spec.overall[cpu]"),
        (
            with(
                json!({"cpu": "5"}),
                json!([{"clusterName": "m1", "hard": {"cpu": "3"}}, {"clusterName": "m2", "hard": {"cpu": "2001m"}}]),
            ),
            "spec.overall[cpu]: Invalid value: \"5\": overall is less than assignments",
        ),
        (
            with(json!({"cpu": "5"}), one("m1", json!({"memory": "1"}))),
            "spec.staticAssignments[0].hard[memory]: Invalid value: \"memory\": assignment resourceName is not exist in overall",
        ),
        (
            with(json!({}), one("", json!({}))),
            "spec.staticAssignments[0].clusterName: Invalid value: \"\": must be not empty",
        ),
        (with(json!({}), one(&"m".repeat(49), json!({}))), "must be no more than 48 characters"),
        (with(json!({}), one("M_1", json!({}))), "a lowercase RFC 1123 label"),
        (
            with(json!({}), json!([{"clusterName": "m1", "hard": {}}, {"clusterName": "m1", "hard": {}}])),
            "spec.staticAssignments[1].clusterName: Duplicate value: \"m1\"",
        ),
        (
            json!({"spec": {"overall": {}, "scopes": ["BestEffort"]}}),
            "spec.scopes[0]: Unsupported value: \"BestEffort\"",
        ),
        (
            json!({"spec": {"overall": {}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}}),
            "must be at least one scope value",
        ),
        (
            json!({"spec": {"overall": {}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Like"}]}}}),
            "spec.scopeSelector.matchExpressions[0].operator: Unsupported value: \"Like\"",
        ),
    ] {
        let said = desk.apply(&quotas(), "a", "q", spec.clone()).expect_err(&spec.to_string());
        assert!(said.contains(expected), "{spec}: {said}");
    }
    let long = desk.apply(&quotas(), "a", &"q".repeat(64), quota(json!({}))).unwrap_err();
    assert!(
        long.contains("metadata.name: Invalid value") && long.contains("must be no more than 63 characters"),
        "{long}"
    );
    // What clusters enforce by themselves may be assigned to them.
    desk.apply(&quotas(), "a", "q", with(json!({"limits.cpu": "5"}), one("m1", json!({"limits.cpu": "5"})))).unwrap();
    desk.apply(&quotas(), "a", "empty", quota(json!({}))).unwrap();
}

/// What is changed in a binding, and what is said about it.
type Case<'a> = (&'a dyn Fn(&mut Value), &'a str);

#[test]
fn bindings_that_cannot_be_counted_are_refused() {
    let mut desk = desk();
    let mut spec = |change: &dyn Fn(&mut Value)| {
        let mut binding = binding(1, json!({"cpu": "1"}), &[("m1", 1)]);
        change(&mut binding["spec"]);
        desk.apply(&bindings(), "a", "web", binding)
    };
    spec(&|_| ()).unwrap();
    let cases: [Case<'_>; 17] = [
        (
            &|spec| spec["replicaRequirements"]["resourceRequest"]["cpu"] = json!("-1"),
            "must be greater than or equal to 0",
        ),
        (&|spec| spec["replicaRequirements"]["resourceRequest"]["cpu"] = json!("much"), "resourceRequest[cpu]"),
        (&|spec| spec["replicas"] = json!(-1), "spec cannot be read"),
        (&|spec| spec["clusters"][0]["replicas"] = json!(1_u64 << 33), "spec cannot be read"),
        (&|spec| spec["clusters"] = json!([{"name": "m1"}, {"name": "m1"}]), "spec.clusters[1].name: Duplicate value"),
        (
            &|spec| spec["components"] = json!([{"name": "", "replicas": 1}]),
            "spec.components[0].name: Invalid value: \"\": component names must be non-empty",
        ),
        (
            &|spec| spec["components"] = json!([{"name": "foo", "replicas": 1}, {"name": "foo", "replicas": 1}]),
            "spec.components[1].name: Invalid value: \"foo\": component names must be unique",
        ),
        (
            &|spec| spec["clusters"][0]["components"] = json!([{"name": "x", "replicas": 1}]),
            "spec.clusters[0].components[0].name: Not found",
        ),
        (
            &|spec| spec["gracefulEvictionTasks"] = json!([{"fromCluster": "m2"}, {"fromCluster": "m2"}]),
            "gracefulEvictionTasks[1].fromCluster: Duplicate",
        ),
        (
            &|spec| {
                spec["replicaRequirements"]["resourceRequest"]["cpu"] = json!("9E");
                spec["clusters"] =
                    (0..16).map(|number| json!({"name": format!("m{number}"), "replicas": i32::MAX})).collect();
                spec["replicas"] = json!(i32::MAX);
            },
            "can be counted",
        ),
        (&|spec| spec["resource"] = json!("web"), "spec cannot be read"),
        // What others run is theirs.
        (
            &|spec| spec["resource"]["namespace"] = json!("b"),
            "spec.resource.namespace: Invalid value: \"b\": a ResourceBinding is for a template of its own namespace",
        ),
        // A cluster's name goes into the names of accounts.
        (&|spec| spec["clusters"][0]["name"] = json!("m1/evicted"), "spec.clusters[0].name: Invalid value"),
        (&|spec| spec["clusters"][0]["name"] = json!("M1"), "spec.clusters[0].name: Invalid value"),
        (&|spec| spec["clusters"][0]["name"] = json!(""), "must be not empty"),
        (&|spec| spec["clusters"][0]["name"] = json!("m".repeat(49)), "must be no more than 48 characters"),
        (
            &|spec| spec["gracefulEvictionTasks"] = json!([{"fromCluster": "m1/evicted"}]),
            "spec.gracefulEvictionTasks[0].fromCluster: Invalid value",
        ),
    ];
    for (change, expected) in cases {
        let said = spec(change).expect_err(expected);
        assert!(said.contains(expected), "{said}");
    }
    let mut odd = binding(1, json!({}), &[]);
    odd["metadata"]["annotations"] = json!({"resourcebinding.karmada.io/dependencies": "{"});
    let said = desk.apply(&bindings(), "a", "web", odd).unwrap_err();
    assert!(said.contains("annotation value must be a valid JSON"), "{said}");
}

#[test]
fn policies_stay_in_their_namespace_and_clusters_have_addresses() {
    let mut desk = desk();
    let policy =
        |selector: Value, placement: Value| json!({"spec": {"resourceSelectors": [selector], "placement": placement}});
    let deployments = || json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    let mut elsewhere = deployments();
    elsewhere["namespace"] = json!("b");
    let mut odd = deployments();
    odd["labelSelector"] = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
    for (spec, expected) in [
        (policy(elsewhere, json!({})), "selects objects of its own namespace only"),
        (policy(odd, json!({})), "labelSelector"),
        (
            policy(deployments(), json!({"replicaScheduling": {"replicaSchedulingType": "Halved"}})),
            "Unsupported value: \"Halved\"",
        ),
        (
            policy(
                deployments(),
                json!({"replicaScheduling": {"weightPreference": {"staticWeightList": [{"weight": 0}]}}}),
            ),
            "must be a whole number above 0",
        ),
        (
            policy(deployments(), json!({"spreadConstraints": [{"spreadByField": "region"}]})),
            "Unsupported value: \"region\"",
        ),
        (
            policy(deployments(), json!({"clusterAffinities": [{"clusterNames": ["m1"]}]})),
            "spec.placement.clusterAffinities[0].affinityName: Required value",
        ),
        (
            policy(deployments(), json!({"clusterAffinities": [{"affinityName": "a"}, {"affinityName": "a"}]})),
            "spec.placement.clusterAffinities[1].affinityName: Duplicate value: \"a\"",
        ),
        (
            policy(deployments(), json!({"clusterAffinity": {}, "clusterAffinities": [{"affinityName": "a"}]})),
            "clusterAffinities cannot co-exist with clusterAffinity",
        ),
    ] {
        let said = desk.apply(&policies(), "a", "p", spec).expect_err(expected);
        assert!(said.contains(expected), "{said}");
    }
    desk.apply(&policies(), "a", "p", policy(deployments(), json!({}))).unwrap();
    let clusters = resource("clusters.cluster.karmada.io");
    for (name, endpoint, good) in [
        ("m1", "https://10.0.0.1:6443", true),
        ("m2", "http://10.0.0.1", false),
        ("m3", "https://user@host", false),
        ("m4", "", false),
        ("M4", "https://a:1", false),
    ] {
        let spec = json!({"spec": {"syncMode": "Push", "apiEndpoint": endpoint}});
        assert_eq!(desk.apply(&clusters, "", name, spec).is_ok(), good, "{name} {endpoint}");
    }
}

/// Nobody fetches workloads from here: a cluster that waits to be asked would be given what it never gets.
#[test]
fn a_cluster_is_pushed_to_or_is_none() {
    let mut desk = desk();
    let clusters = resource("clusters.cluster.karmada.io");
    let said = desk.apply(&clusters, "", "m1", json!({"spec": {"syncMode": "Pull"}})).expect_err("nobody pulls");
    let words = "spec.syncMode: Invalid value: \"Pull\": nobody fetches workloads from here: use Push";
    assert!(said.contains(words), "{said}");
}

/// Every binding under a policy has a copy of what it says beside its selectors: that has an end.
#[test]
fn what_is_copied_into_every_binding_is_not_long() {
    let mut desk = desk();
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let long = |names: usize| {
        let list: Vec<String> = (0..names).map(|name| format!("cluster-{name:040}")).collect();
        json!({"clusterNames": list})
    };
    for (field, value) in [
        ("placement", json!({"clusterAffinity": long(2000)})),
        ("suspension", json!({"dispatchingOnClusters": long(2000)})),
        ("failover", json!({"cluster": long(2000)})),
    ] {
        let words = format!("spec.{field}: Too long: may not be more than 65536 bytes");
        let mut policy = json!({"spec": {"resourceSelectors": selectors}});
        policy["spec"][field] = value.clone();
        let said = desk.apply(&policies(), "a", "p", policy).expect_err(field);
        assert!(said.contains(&words), "{said}");
        let mut by_hand = binding(1, json!({"cpu": "1"}), &[]);
        by_hand["spec"][field] = value;
        let said = desk.apply(&bindings(), "a", "w", by_hand).expect_err(field);
        assert!(said.contains(&words), "{said}");
    }
    let thousand = json!({"spec": {"resourceSelectors": selectors, "placement": {"clusterAffinity": long(1000)}}});
    desk.apply(&policies(), "a", "p", thousand).expect("a thousand clusters by name");
}

/// What a policy says and nobody heeds is said to whoever writes it.
#[test]
fn what_a_policy_says_without_effect_is_told() {
    let desk = desk();
    let warnings = |spec: Value| {
        let mut object = json!({"metadata": {"name": "p"}, "spec": spec});
        let (origin, resource) = (families::Origin::default(), policies());
        let request = families::Admission {
            operation: families::Operation::Create,
            resource: &resource,
            subresource: "",
            namespace: "a",
            name: "p",
            object: &mut object,
            old: None,
            origin: &origin,
        };
        let all = desk.families.iter().map(|family| family.validate(&request, &Nothing));
        all.flat_map(|remarks| remarks.warnings).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(warnings(json!({"conflictResolution": "Abort", "placement": {"clusterAffinities": [{}, {}]}})), "");
    for (spec, expected) in [
        (
            json!({"failover": {"application": {"statePreservation": {"rules": []}}}}),
            "spec.failover.application.statePreservation has no effect",
        ),
        (json!({"conflictResolution": "Overwrite"}), "spec.conflictResolution has no effect"),
        (json!({"propagateDeps": true}), "spec.propagateDeps has no effect"),
    ] {
        let said = warnings(spec);
        assert!(said.contains(expected) && !said.contains(';'), "{said}");
    }
}

/// A world without objects.
struct Nothing;

impl families::World for Nothing {
    fn list(&self, _resource: &GroupResource, _namespace: &str) -> Vec<std::sync::Arc<Value>> {
        Vec::new()
    }

    fn get(&self, _resource: &GroupResource, _namespace: &str, _name: &str) -> Option<std::sync::Arc<Value>> {
        None
    }
}

/// To a member some names are the same: what says one of them twice cannot be lent, nor kept to.
#[test]
fn a_name_that_is_said_twice_is_not_lent() {
    let mut desk = desk();
    let both = json!({"nvidia.com/gpu": "4", "requests.nvidia.com/gpu": "2"});
    desk.apply(&quotas(), "a", "q", quota(both.clone())).unwrap();
    let said = desk.apply(&quotas(), "a", "q", json!({"spec": {"overall": both, "elastic": {}}})).unwrap_err();
    assert!(said.contains("says the same as nvidia.com/gpu"), "{said}");
    let slices = resource("federatedquotaslices.policy.karmada.io");
    let said = desk.apply(&slices, "a", "s", json!({"spec": {"hard": both}})).unwrap_err();
    assert!(said.contains("says the same as nvidia.com/gpu"), "{said}");
    let other = json!({"cpu": "1", "requests.cpu": "1"});
    desk.apply(&quotas(), "a", "q", json!({"spec": {"overall": other, "elastic": {}}})).unwrap();
}

/// Every template is held against every selector of its namespace: there is an end to them, in all policies together.
#[test]
fn policies_of_a_namespace_have_no_end_of_selectors() {
    let mut desk = desk();
    let policy = |count: usize| {
        let selectors: Vec<Value> = (0..count)
            .map(|one| json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"a": one.to_string()}}}))
            .collect();
        json!({"spec": {"resourceSelectors": selectors}})
    };
    for name in ["one", "two", "three", "four"] {
        desk.apply(&policies(), "a", name, policy(1000)).unwrap();
    }
    let said = desk.apply(&policies(), "a", "five", policy(97)).unwrap_err();
    assert!(said.contains("would have 4097 selectors together, and may have 4096"), "{said}");
    desk.apply(&policies(), "a", "five", policy(96)).unwrap();
    // Elsewhere there are others, and fewer is always well.
    desk.apply(&policies(), "b", "one", policy(1000)).unwrap();
    desk.apply(&policies(), "a", "one", policy(999)).unwrap();
}

/// A policy by which members keep what the quota lets go of is for those to write who may change the quota.
#[test]
fn who_has_members_keep_what_is_charged_no_more_may_change_the_quota() {
    let mut desk = desk();
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let policy = |more: Value| {
        let mut policy = json!({"spec": {"resourceSelectors": selectors}});
        more.as_object().unwrap().iter().for_each(|(field, value)| policy["spec"][field] = value.clone());
        policy
    };
    let asks = |desk: &Desk, policy: &Value| desk.rights(&policies(), "a", "p", Some(policy)).join(", ");
    let right = "update federatedresourcequotas.policy.karmada.io a/";
    for (more, takes) in [
        (json!({}), ""),
        (json!({"suspension": {"scheduling": true}, "failover": {"cluster": {"purgeMode": "Directly"}}}), ""),
        (json!({"preserveResourcesOnDeletion": false, "suspension": {"dispatching": false}}), ""),
        (json!({"preserveResourcesOnDeletion": true}), right),
        (json!({"suspension": {"dispatching": true}}), right),
        (json!({"suspension": {"dispatchingOnClusters": {"clusterNames": ["m1"]}}}), right),
        (json!({"failover": {"cluster": {"purgeMode": "Never"}}}), right),
        (json!({"failover": {"application": {"purgeMode": "Never"}}}), right),
    ] {
        assert_eq!(asks(&desk, &policy(more.clone())), takes, "{more}");
    }
    // Written by somebody who may, it is for others neither to turn to what they like, nor in their way when it goes.
    let preserving = policy(json!({"preserveResourcesOnDeletion": true}));
    desk.apply(&policies(), "a", "p", preserving.clone()).unwrap();
    let mut labelled = preserving.clone();
    labelled["metadata"] = json!({"labels": {"a": "b"}});
    assert_eq!(asks(&desk, &labelled), "");
    let mut more = preserving;
    more["spec"]["resourceSelectors"] = json!([{"apiVersion": "batch/v1", "kind": "Job"}]);
    assert_eq!(asks(&desk, &more), right);
    assert_eq!(asks(&desk, &policy(json!({}))), "");
    assert_eq!(desk.rights(&policies(), "a", "p", None), Vec::<String>::new());
}

/// What a task may not say cannot be a policy's wish.
#[test]
fn a_policy_says_what_may_become_of_an_old_copy() {
    let mut desk = desk();
    for (mode, is_known) in [
        (json!("Gracefully"), true),
        (json!("Never"), true),
        (json!(""), true),
        (json!("Bogus"), false),
        (json!(1), false),
    ] {
        let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
        let spec = json!({"resourceSelectors": selectors, "failover": {"cluster": {"purgeMode": mode}}});
        let done = desk.apply(&policies(), "a", "p", json!({ "spec": spec }));
        let words = "spec.failover.cluster.purgeMode: Unsupported value";
        assert_eq!(done.is_ok(), is_known, "{mode}");
        assert!(done.err().is_none_or(|said| said.contains(words)), "{mode}");
        let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
        let spec = json!({"resourceSelectors": selectors, "failover": {"application": {"purgeMode": mode}}});
        assert_eq!(desk.apply(&policies(), "a", "p", json!({ "spec": spec })).is_ok(), is_known, "{mode}");
    }
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let wish = json!({"decisionConditions": {"tolerationSeconds": -1}});
    let spec = json!({"resourceSelectors": selectors, "failover": {"application": wish}});
    let said = desk.apply(&policies(), "a", "p", json!({ "spec": spec })).expect_err("no number of seconds");
    assert!(
        said.contains("spec.failover.application.decisionConditions.tolerationSeconds: Invalid value: -1"),
        "{said}"
    );
}
