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
        let mut value = self.cache.get(key).unwrap().value();
        self.families.of_projected(&key.resource).unwrap().project(&key.resource, &mut value, &self.cache);
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

#[test]
fn a_cluster_quota_lists_every_namespace_it_selects() {
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
    bench.run(Command::PublishStatus { now_ms: 0 });
    assert_eq!(listed(&bench), ["b=0", "c=1"]);
    let namespace = |name: &str| ObjectKey::new(GroupResource::core("namespaces"), "", name);
    bench.change(&namespace("a"), |one| one["metadata"]["labels"] = json!({"org": "x"})).unwrap();
    bench.change(&namespace("b"), |one| one["metadata"]["labels"] = json!({})).unwrap();
    bench.run(Command::PublishStatus { now_ms: 0 });
    assert_eq!(listed(&bench), ["a=0", "c=1"]);
}
