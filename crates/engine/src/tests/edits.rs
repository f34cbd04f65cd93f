//! Edits of policies, and of what they depend on, at moments in which something hangs on them: nothing comes loose, is
//! counted twice or is left behind, and the audit says the same.

use serde_json::{Value, json};

use super::*;

const CAPSULE: &str = "capsule.clastix.io";
const HNC: &str = "hnc.x-k8s.io";
const DEVICES: &str = "resource.k8s.io";

fn bench() -> Bench {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    for name in ["n0", "n1"] {
        bench.create("", "namespaces", "", name, json!({"labels": {"tenant": "solar"}})).unwrap();
    }
    bench
}

fn key(group: &str, resource: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::new(group, resource), namespace, name)
}

fn pool(quota: Value) -> Value {
    json!({"spec": {"quota": quota, "selectors": [{"matchLabels": {"tenant": "solar"}}]}})
}

impl Bench {
    fn has(&mut self, pool: &str, namespace: &str, name: &str, amounts: Value) {
        let spec = json!({"pool": pool, "claim": amounts});
        self.create(CAPSULE, "resourcepoolclaims", namespace, name, json!({"spec": spec})).unwrap();
    }

    fn runs(&mut self, namespace: &str, name: &str, requests: Value) -> Result<Written, Refused> {
        let container = json!({"name": "c", "resources": {"requests": requests, "limits": requests}});
        self.create("", "pods", namespace, name, json!({"spec": {"containers": [container]}}))
    }

    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Value {
        self.desk.get(&key(group, resource, namespace, name)).map_or(Value::Null, |object| object.value())
    }

    fn kept(&self, namespace: &str, pool: &str) -> Value {
        self.get("", "resourcequotas", namespace, &format!("capsule-pool-{pool}"))["spec"].clone()
    }

    /// Lets everything be published, and finds nothing wrong.
    fn sound(&mut self) {
        while self.desk.publish(60_000) > 0 {}
        self.audit();
        assert_eq!(self.report().missing, 0);
    }

    fn is_bound(&self, namespace: &str, name: &str) -> bool {
        let claim = self.get(CAPSULE, "resourcepoolclaims", namespace, name);
        let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Bound" && one["status"] == "True")
    }

    fn used_of(&self, policy: &str, resource: &str) -> String {
        let line = self.desk.of(policy).into_iter().find(|line| &*line.resource == resource && line.bucket.is_empty());
        line.map_or_else(|| "none".into(), |line| line.balance.used.to_string())
    }
}

#[test]
fn usage_binds_the_claims_that_were_made_first_though_the_clock_saw_no_difference() {
    let mut bench = bench();
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({"hard": {"pods": "9"}}))).unwrap();
    for name in ["z", "m", "a"] {
        bench.has("p", "n0", name, json!({"pods": "1"}));
    }
    bench.runs("n0", "x", json!({})).unwrap();
    bench.runs("n0", "y", json!({})).unwrap();
    bench.sound();
    assert_eq!(["z", "m", "a"].map(|name| bench.is_bound("n0", name)), [true, true, false]);
    let mut bench = bench.restart();
    bench.sound();
    assert_eq!(["z", "m", "a"].map(|name| bench.is_bound("n0", name)), [true, true, false]);
}

#[test]
fn a_kept_quota_that_cannot_be_compiled_refuses_instead_of_being_absent() {
    let mut bench = bench();
    // As an older version may have stored it.
    let mut odd = pool(json!({"hard": {"pods": "9"}, "scopes": ["Sometimes"]}));
    odd["spec"]["defaults"] = json!({"pods": "0"});
    bench.create(CAPSULE, "resourcepools", "", "odd", odd).unwrap();
    let Err(Refused::Denied(denials)) = bench.runs("n0", "x", json!({})) else { panic!("let in") };
    assert!(denials[0].message.as_ref().unwrap().contains("cannot be evaluated"), "{denials:?}");
    bench.has("odd", "n0", "c", json!({"pods": "1"}));
    assert_eq!(bench.kept("n0", "odd"), json!({"hard": {"pods": "1"}, "scopes": ["Sometimes"]}));
    bench.sound();
    assert_eq!(bench.report().broken.len(), 2, "one in each namespace");
    let pool = key(CAPSULE, "resourcepools", "", "odd");
    bench.change(&pool, |pool| pool["spec"]["quota"]["scopes"] = json!(["NotTerminating"])).unwrap();
    bench.runs("n0", "x", json!({})).unwrap();
    assert!(bench.runs("n0", "y", json!({})).is_err(), "one is claimed");
    bench.sound();
    assert!(bench.report().broken.is_empty());
}

#[test]
fn a_namespace_that_the_tree_brings_under_a_pool_has_its_quota_in_that_commit() {
    let mut bench = bench();
    let selector = json!([{"matchExpressions": [{"key": "n0.tree.hnc.x-k8s.io/depth", "operator": "Exists"}]}]);
    let spec = json!({"quota": {"hard": {"pods": "9"}}, "selectors": selector, "defaults": {"pods": "0"}});
    bench.create(CAPSULE, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    bench.create("", "namespaces", "", "n2", json!({})).unwrap();
    let below = |parent: &str| json!({"spec": {"parent": parent}});
    bench.create(HNC, "hierarchyconfigurations", "n2", "hierarchy", below("n1")).unwrap();
    bench.create(HNC, "hierarchyconfigurations", "n1", "hierarchy", below("n0")).unwrap();
    for namespace in ["n0", "n1", "n2"] {
        assert_eq!(bench.kept(namespace, "p"), json!({"hard": {"pods": "0"}}), "{namespace}");
    }
    assert!(bench.runs("n2", "x", json!({})).is_err());
    bench.sound();
}

#[test]
fn a_pool_over_many_namespaces_has_a_quota_in_each_without_a_controller() {
    let mut bench = bench();
    for number in 0..600 {
        let labels = json!({"labels": {"tenant": "solar"}});
        bench.create("", "namespaces", "", &format!("m{number}"), labels).unwrap();
    }
    let mut spec = pool(json!({"hard": {"pods": "9"}}));
    spec["spec"]["defaults"] = json!({"pods": "0"});
    bench.create(CAPSULE, "resourcepools", "", "p", spec).unwrap();
    assert!(bench.report().missing > 300, "some are still to be made");
    assert_eq!(bench.report().differing, 0, "which is known");
    bench.desk.publish(0);
    // What is still to be made is found again.
    let mut bench = bench.restart();
    bench.sound();
    assert_eq!(bench.report().kept, 602);
    for number in 0..600 {
        assert_eq!(bench.kept(&format!("m{number}"), "p"), json!({"hard": {"pods": "0"}}));
    }
    // One that is missing otherwise is a difference.
    let lost = ObjectKey::new(GroupResource::core("resourcequotas"), "m7", "capsule-pool-p");
    bench.desk.engine.shelves.remove(&lost);
    let told = bench.report().differences.join("\n");
    assert!(told.contains("resourcequotas/m7/capsule-pool-p is not there, and has to be"), "{told}");
}

#[test]
fn what_the_server_writes_is_counted_as_it_is_or_not_at_all() {
    let mut bench = bench();
    let over = |kind: &str, api: &str, path: &str| {
        let sources = json!([{"apiVersion": api, "kind": kind, "op": "add", "path": path}]);
        json!({"spec": {"limit": "90", "sources": sources}})
    };
    let capsule = "capsule.clastix.io/v1beta2";
    for (name, spec) in [
        ("granted", over("ResourceQuota", "v1", ".spec.hard.pods")),
        ("used", over("ResourceQuota", "v1", ".status.used.pods")),
        ("says", over("CustomQuota", capsule, ".status.usage.used")),
        ("revision", over("ConfigMap", "v1", ".metadata.resourceVersion")),
        ("managed", over("ConfigMap", "v1", ".metadata.managedFields[*].time")),
    ] {
        bench.create(CAPSULE, "customquotas", "n0", name, spec).unwrap();
    }
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({"hard": {"pods": "9"}}))).unwrap();
    bench.has("p", "n0", "c", json!({"pods": "3"}));
    bench.runs("n0", "x", json!({})).unwrap();
    let map = json!({"data": {"k": "v"}});
    bench.create("", "configmaps", "n0", "m", map).unwrap();
    let marked = json!([{"time": "7"}]);
    bench.change(&key("", "configmaps", "n0", "m"), |map| map["metadata"]["managedFields"] = marked).unwrap();
    bench.sound();
    let used = |bench: &Bench, name: &str| bench.used_of(&format!("customquotas.{CAPSULE}/n0/{name}"), "usage");
    let all = ["granted", "used", "says", "revision", "managed"];
    assert_eq!(all.map(|name| used(&bench, name)), ["3", "0", "0", "0", "0"]);
    // The quota that the pool keeps follows its claims, and so does what counts it.
    bench.has("p", "n0", "d", json!({"pods": "2"}));
    assert_eq!(used(&bench, "granted"), "5");
    for name in all {
        let label = |quota: &mut Value| quota["metadata"]["labels"] = json!({"touched": "yes"});
        bench.change(&key(CAPSULE, "customquotas", "n0", name), label).unwrap();
    }
    bench.sound();
    assert_eq!(all.map(|name| used(&bench, name)), ["5", "0", "0", "0", "0"]);
}

#[test]
fn parts_of_accounts_go_with_their_namespaces() {
    let mut bench = bench();
    let selector = json!({"labels": {"matchLabels": {"tenant": "solar"}}});
    let wide = json!({"spec": {"selector": selector, "quota": {"hard": {"count/configmaps": "99"}}}});
    bench.create("quota.openshift.io", "clusterresourcequotas", "", "wide", wide).unwrap();
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({"hard": {"pods": "9"}}))).unwrap();
    bench.create("", "configmaps", "n1", "m", json!({})).unwrap();
    bench.sound();
    let accounts = bench.report().accounts;
    for number in 0..20 {
        let (name, labels) = (format!("m{number}"), json!({"labels": {"tenant": "solar"}}));
        bench.create("", "namespaces", "", &name, labels).unwrap();
        bench.create("", "configmaps", &name, "m", json!({})).unwrap();
        bench.has("p", &name, "c", json!({"pods": "1"}));
        let namespace = key("", "namespaces", "", &name);
        if number % 2 == 0 {
            // It leaves, with everything in it.
            bench.change(&namespace, |one| one["metadata"]["labels"] = json!({})).unwrap();
            bench.sound();
        }
        let gone = "2026-01-01T00:00:00Z";
        bench.change(&namespace, |one| one["metadata"]["deletionTimestamp"] = json!(gone)).unwrap();
        for (group, resource, one) in
            [("", "configmaps", "m"), (CAPSULE, "resourcepoolclaims", "c"), ("", "resourcequotas", "capsule-pool-p")]
        {
            let delete = WriteKind::Delete { expect: Expect::default(), last: None };
            let _ = bench.write(key(group, resource, &name, one), delete, false);
        }
        bench.write(namespace, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    }
    bench.sound();
    assert_eq!(bench.report().accounts, accounts);
    // A policy that looks elsewhere leaves nothing behind either.
    bench.has("p", "n0", "c", json!({"pods": "1"}));
    let pool = key(CAPSULE, "resourcepools", "", "p");
    let elsewhere = json!([{"matchLabels": {"tenant": "wind"}}]);
    bench.change(&pool, |pool| pool["spec"]["selectors"] = elsewhere).unwrap();
    bench.sound();
    assert_eq!(bench.report().accounts, accounts, "not even the quota that it kept there");
    let wide = bench.desk.of("clusterresourcequotas.quota.openshift.io//wide");
    assert_eq!(wide.iter().map(|line| &*line.bucket).collect::<Vec<_>>(), ["", "n1"], "what readers know");
}

#[test]
fn a_claim_keeps_what_it_has_when_the_pool_loses_what_it_asks_nothing_of() {
    let mut bench = bench();
    let hard = json!({"hard": {"pods": "9", "requests.cpu": "4"}});
    bench.create(CAPSULE, "resourcepools", "", "p", pool(hard)).unwrap();
    bench.has("p", "n0", "c", json!({"pods": "0", "requests.cpu": "4"}));
    bench.runs("n0", "x", json!({"cpu": "4"})).unwrap();
    bench.sound();
    let pool = key(CAPSULE, "resourcepools", "", "p");
    bench.change(&pool, |pool| pool["spec"]["quota"]["hard"] = json!({"requests.cpu": "4"})).unwrap();
    assert_eq!(bench.kept("n0", "p"), json!({"hard": {"requests.cpu": "4"}}));
    bench.sound();
    assert!(bench.is_bound("n0", "c"));
    assert_eq!(bench.used_of("resourcepools.capsule.clastix.io//p", "requests.cpu"), "4");
}

#[test]
fn claims_are_counted_in_the_thousandths_their_quota_counts_in() {
    let mut bench = bench();
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({"hard": {"requests.cpu": "1m"}}))).unwrap();
    bench.has("p", "n0", "c", json!({"requests.cpu": "100u"}));
    bench.has("p", "n1", "d", json!({"requests.cpu": "100u"}));
    bench.sound();
    assert_eq!(bench.kept("n0", "p"), json!({"hard": {"requests.cpu": "1m"}}));
    assert_eq!(bench.kept("n1", "p"), json!({}), "that is all there was");
}

#[test]
fn a_sum_without_a_suffix_is_kept_all_the_same() {
    let mut bench = bench();
    bench.create(CAPSULE, "resourcepools", "", "p", pool(json!({"hard": {"requests.memory": "1500E"}}))).unwrap();
    for number in 0..20 {
        bench.has("p", "n0", &format!("c{number}"), json!({"requests.memory": "50E"}));
    }
    assert_eq!(bench.kept("n0", "p"), json!({"hard": {"requests.memory": "1e21"}}));
    bench.runs("n0", "x", json!({"memory": "60E"})).unwrap();
    bench.sound();
}

/// A claim of two devices that says that its pod, which asked for them by another name, is charged already.
fn stands_for(bench: &mut Bench, name: &str) {
    stands_for_all(bench, name, &["gpu"]);
}

/// The same with two devices of each of these classes.
fn stands_for_all(bench: &mut Bench, name: &str, classes: &[&str]) {
    let pod = bench.get("", "pods", "n0", "x")["metadata"]["uid"].clone();
    let request = |class: &&str| json!({"name": class, "exactly": {"deviceClassName": class, "count": 2}});
    let requests: Vec<Value> = classes.iter().map(request).collect();
    let mut draft = bench.draft("n0", name, json!({"spec": {"devices": {"requests": requests}}})).value;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": pod, "controller": true});
    draft["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    draft["metadata"]["ownerReferences"] = json!([owner]);
    let create = WriteKind::Create(Draft::new(draft).unwrap());
    bench.write(key(DEVICES, "resourceclaims", "n0", name), create, false).unwrap();
}

#[test]
fn a_claim_that_stands_for_its_pod_is_charged_when_the_pod_no_longer_is() {
    type Edit = fn(&mut Bench);
    let ends: Edit = |bench| {
        let mut value = bench.get("", "pods", "n0", "x");
        value["status"] = json!({"phase": "Succeeded"});
        let update = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: true };
        bench.write(key("", "pods", "n0", "x"), update, false).unwrap();
    };
    let goes: Edit = |bench| {
        let delete = WriteKind::Delete { expect: Expect::default(), last: None };
        bench.write(key("", "pods", "n0", "x"), delete, false).unwrap();
    };
    // Somebody holds the pod back, and its deletion is overdue: it is let go at a moment, in a commit without a write.
    let is_overdue: Edit = |bench| {
        let overdue = |pod: &mut Value| {
            pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:30Z".into();
            pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        };
        bench.change(&key("", "pods", "n0", "x"), overdue).unwrap();
        bench.sound();
        bench.desk.publish(120_001);
    };
    for (edit, used) in [(ends, "2"), (goes, "2"), (is_overdue, "2")] {
        let mut bench = bench();
        let class = json!({"spec": {"extendedResourceName": "example.com/gpu"}});
        bench.create(DEVICES, "deviceclasses", "", "gpu", class).unwrap();
        let hard = json!({"spec": {"hard": {"requests.example.com/gpu": "2"}}});
        bench.create("", "resourcequotas", "n0", "q", hard).unwrap();
        bench.runs("n0", "x", json!({"example.com/gpu": "2"})).unwrap();
        stands_for(&mut bench, "c");
        let gpus = |bench: &Bench| bench.used_of("resourcequotas/n0/q", "requests.example.com/gpu");
        bench.sound();
        assert_eq!(gpus(&bench), "2", "both together");
        edit(&mut bench);
        assert_eq!(gpus(&bench), used);
        assert!(bench.runs("n0", "y", json!({"example.com/gpu": "2"})).is_err());
        bench.sound();
    }
    // Two classes of one name: what the pod asked for is there once.
    for (asked, used) in [("2", "6"), ("4", "4")] {
        let mut bench = bench();
        for class in ["gpu", "gpu2"] {
            let spec = json!({"spec": {"extendedResourceName": "example.com/gpu"}});
            bench.create(DEVICES, "deviceclasses", "", class, spec).unwrap();
        }
        let hard = json!({"spec": {"hard": {"requests.example.com/gpu": "9"}}});
        bench.create("", "resourcequotas", "n0", "q", hard).unwrap();
        bench.runs("n0", "x", json!({"example.com/gpu": asked})).unwrap();
        stands_for_all(&mut bench, "c", &["gpu", "gpu2"]);
        bench.sound();
        assert_eq!(bench.used_of("resourcequotas/n0/q", "requests.example.com/gpu"), used);
    }
    // Another name of the class: what the pod asked for is no longer what the claim takes.
    let mut bench = bench();
    let class = json!({"spec": {"extendedResourceName": "example.com/gpu"}});
    bench.create(DEVICES, "deviceclasses", "", "gpu", class).unwrap();
    let hard = json!({"requests.example.com/gpu": "2", "requests.example.com/tpu": "2"});
    bench.create("", "resourcequotas", "n0", "q", json!({"spec": {"hard": hard}})).unwrap();
    bench.runs("n0", "x", json!({"example.com/gpu": "2"})).unwrap();
    stands_for(&mut bench, "c");
    let renamed = |class: &mut Value| class["spec"]["extendedResourceName"] = json!("example.com/tpu");
    bench.change(&key(DEVICES, "deviceclasses", "", "gpu"), renamed).unwrap();
    assert_eq!(bench.used_of("resourcequotas/n0/q", "requests.example.com/tpu"), "2");
    bench.sound();
}
