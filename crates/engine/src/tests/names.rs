//! Quotas whose meaning depends on other objects: device classes with the name of an extended resource, selected
//! namespaces.

use serde_json::{Value, json};

use super::*;

fn rig() -> Bench {
    Bench::with(families::all(&families::Settings::default()))
}

impl Bench {
    fn delete_at(&mut self, key: ObjectKey) -> Result<Written, Refused> {
        self.write(key, WriteKind::Delete { expect: Expect::default(), last: None }, false)
    }

    /// What an object's status says, as readers see it.
    fn status_of(&self, key: &ObjectKey) -> Value {
        let mut value = self.desk.get(key).unwrap().value();
        self.desk.engine.families.of_projected(&key.resource).unwrap().project(&key.resource, &mut value, &self.desk);
        value["status"].clone()
    }
}

#[test]
fn a_claim_is_charged_under_the_extended_resource_its_class_stands_for() {
    let mut bench = rig();
    let quota = ObjectKey::new(GroupResource::core("resourcequotas"), "a", "q");
    let hard = json!({"requests.example.com/gpu": "3", "gold.deviceclass.resource.k8s.io/devices": "9"});
    bench.create("", "resourcequotas", "a", "q", json!({"spec": {"hard": hard}})).unwrap();
    let used = |bench: &Bench| bench.status_of(&quota)["used"]["requests.example.com/gpu"].clone();
    let claim = |class: &str, count: i64| {
        let request = json!({"name": "r", "exactly": {"deviceClassName": class, "count": count}});
        json!({"spec": {"devices": {"requests": [request]}}})
    };
    let of = "resource.k8s.io";
    bench.create(of, "resourceclaims", "a", "before", claim("gold", 1)).unwrap();
    assert_eq!(used(&bench), "0");
    // The class comes, and with it the charge of what is there already.
    let class = |extended: &str| json!({"spec": {"extendedResourceName": extended}});
    bench.create(of, "deviceclasses", "", "gold", class("example.com/gpu")).unwrap();
    bench.create(of, "deviceclasses", "", "silver", class("example.com/gpu")).unwrap();
    bench.create(of, "deviceclasses", "", "other", class("example.com/fpga")).unwrap();
    assert_eq!(used(&bench), "1");
    bench.create(of, "resourceclaims", "a", "silver", claim("silver", 1)).unwrap();
    bench.create(of, "resourceclaims", "a", "other", claim("other", 8)).unwrap();
    // Pods and claims share the name.
    let limits = json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}});
    let pod = json!({"spec": {"containers": [{"name": "c", "resources": limits}]}});
    bench.create("", "pods", "a", "p", pod).unwrap();
    assert_eq!(used(&bench), "3");
    assert!(matches!(bench.create(of, "resourceclaims", "a", "more", claim("gold", 1)), Err(Refused::Denied(_))));
    // Under another name, or gone, a class no longer charges this one.
    let silver = ObjectKey::new(GroupResource::new(of, "deviceclasses"), "", "silver");
    bench.change(&silver, |class| class["spec"]["extendedResourceName"] = "example.com/fpga".into()).unwrap();
    assert_eq!(used(&bench), "2");
    bench.delete_at(ObjectKey::new(GroupResource::new(of, "deviceclasses"), "", "gold")).unwrap();
    assert_eq!(used(&bench), "1");
    bench.audit();
    let mut bench = bench.restart();
    assert_eq!(used(&bench), "1");
    bench.audit();
}

/// The annotation by which a claim says that its pod is charged already is believed only where it is so.
#[test]
fn nobody_claims_devices_in_the_name_of_a_pod_that_did_not_ask_for_them() {
    let mut bench = rig();
    let name = "requests.deviceclass.resource.kubernetes.io/gold";
    let quota = ObjectKey::new(GroupResource::core("resourcequotas"), "a", "q");
    bench.create("", "resourcequotas", "a", "q", json!({"spec": {"hard": {name: "4"}}})).unwrap();
    let resources = json!({"requests": {"deviceclass.resource.kubernetes.io/gold": "2"}});
    bench
        .create("", "pods", "a", "p", json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}))
        .unwrap();
    let pod = bench.desk.get(&ObjectKey::new(GroupResource::core("pods"), "a", "p")).unwrap().value();
    let used = |bench: &Bench| bench.status_of(&quota)["used"][name].clone();
    let claim = |bench: &mut Bench, name: &str, owner: &str, count: i64| {
        let request = json!({"name": "r", "exactly": {"deviceClassName": "gold", "count": count}});
        let mut value = bench.draft("a", name, json!({"spec": {"devices": {"requests": [request]}}})).value;
        value["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
        value["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]);
        let key = ObjectKey::new(GroupResource::new("resource.k8s.io", "resourceclaims"), "a", name);
        bench.write(key, WriteKind::Create(Draft::new(value).unwrap()), false)
    };
    let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(used(&bench), "2");
    claim(&mut bench, "foreign", "6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11", 1).unwrap();
    assert_eq!(used(&bench), "3", "of another pod of that name");
    assert!(matches!(claim(&mut bench, "larger", &uid, 3), Err(Refused::Denied(_))), "more than the pod asks for");
    claim(&mut bench, "its-own", &uid, 2).unwrap();
    assert_eq!(used(&bench), "3");
    claim(&mut bench, "second", &uid, 1).unwrap();
    assert_eq!(used(&bench), "4", "one is enough");
    bench.audit();
}

/// What a create costs depends on the quotas that look at it, however many there are elsewhere.
#[test]
fn only_quotas_that_match_are_asked() {
    let mut bench = rig();
    for other in 0..500 {
        let namespace = format!("n{other}");
        bench.create("", "namespaces", "", &namespace, json!({})).unwrap();
        bench.create("", "resourcequotas", &namespace, "q", json!({"spec": {"hard": {"pods": "1"}}})).unwrap();
    }
    for number in 0..100 {
        let name = format!("q{number}");
        let hard = if number < 40 { json!({"pods": "9"}) } else { json!({"services": "9"}) };
        bench.create("", "resourcequotas", "a", &name, json!({"spec": {"hard": hard}})).unwrap();
    }
    let (pods, pod) = (GroupResource::core("pods"), json!({"spec": {}}));
    let asked = |namespace: &str| {
        let subject = Subject::new(ledger::SubjectId(1), &pods, namespace, "x", &pod);
        bench.desk.engine.rulebook.measure(&subject).unwrap().lines.len()
    };
    assert_eq!((asked("a"), asked("n7"), asked("nowhere")), (40, 1, 0));
}

#[test]
fn a_cluster_quota_lists_the_namespaces_it_selects() {
    let mut bench = rig();
    bench.create("", "namespaces", "", "b", json!({"labels": {"org": "x"}})).unwrap();
    bench.create("", "namespaces", "", "c", json!({"labels": {"org": "x"}})).unwrap();
    let spec = json!({"selector": {"labels": {"matchLabels": {"org": "x"}}}, "quota": {"hard": {"secrets": "2"}}});
    bench.create("quota.openshift.io", "clusterresourcequotas", "", "q", json!({"spec": spec})).unwrap();
    bench.create("", "secrets", "c", "s", json!({})).unwrap();
    let quota = ObjectKey::new(GroupResource::new("quota.openshift.io", "clusterresourcequotas"), "", "q");
    let listed = |bench: &Bench| -> Vec<String> {
        let status = bench.status_of(&quota);
        let list = status["namespaces"].as_array().cloned().unwrap_or_default();
        let show = |one: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
            format!("{}={}", text(&one["namespace"]), text(&one["status"]["used"]["secrets"]))
        };
        list.iter().map(show).collect()
    };
    bench.desk.publish(0);
    assert_eq!(listed(&bench), ["b=0", "c=1"]);
    let namespace = |name: &str| ObjectKey::new(GroupResource::core("namespaces"), "", name);
    bench.change(&namespace("a"), |one| one["metadata"]["labels"] = json!({"org": "x"})).unwrap();
    bench.change(&namespace("b"), |one| one["metadata"]["labels"] = json!({})).unwrap();
    bench.desk.publish(0);
    assert_eq!(listed(&bench), ["a=0", "c=1"]);
    // Where they are many, only those that use something.
    for number in 0..200 {
        bench.create("", "namespaces", "", &format!("n{number}"), json!({"labels": {"org": "x"}})).unwrap();
    }
    bench.desk.publish(0);
    assert_eq!(listed(&bench), ["c=1"]);
    bench.create("", "secrets", "n7", "s", json!({})).unwrap();
    bench.desk.publish(0);
    assert_eq!(listed(&bench), ["c=1", "n7=1"]);
}
