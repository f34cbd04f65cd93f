//! A custom quota names what it counts, wherever that is among however many others.

use serde_json::{Value, json};

use super::*;

const OTHERS: usize = 12_000;
const CAPSULE: &str = "capsule.clastix.io";

fn rig() -> Bench {
    Bench::with(families::all(&families::Settings::default()))
}

impl Bench {
    fn sized(&mut self, name: &str, labels: Value, size: &str) {
        self.create("", "configmaps", "a", name, json!({"labels": labels, "data": {"size": size}})).unwrap();
    }

    fn custom_quota(&mut self) {
        let sources = json!([{
            "kind": "ConfigMap", "path": ".data.size", "selectors": [{"matchLabels": {"counted": "yes"}}],
        }]);
        self.create(CAPSULE, "customquotas", "a", "q", json!({"spec": {"limit": "1M", "sources": sources}})).unwrap();
    }

    /// The names in the quota's status, how many it says there are, and what it says is the matter.
    fn told(&mut self) -> (Vec<String>, Value, String) {
        while self.desk.publish(0) > 0 {}
        let key = ObjectKey::new(GroupResource::new(CAPSULE, "customquotas"), "a", "q");
        let status = self.desk.get(&key).unwrap().value()["status"].take();
        let claims = status["claims"].as_array().cloned().unwrap_or_default();
        let names = claims.iter().map(|claim| claim["name"].as_str().unwrap().to_owned()).collect();
        let message = status["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
        (names, status["claimCount"].clone(), message)
    }
}

#[test]
fn few_among_many_are_named_and_stay_so_through_edits_and_a_restart() {
    let mut bench = rig();
    for at in 0..OTHERS {
        bench.sized(&format!("other-{at:05}"), json!({}), "1");
    }
    bench.sized("z-before", json!({"counted": "yes"}), "1");
    bench.custom_quota();
    bench.sized("z-after", json!({"counted": "yes"}), "2");
    bench.sized("z-later", json!({}), "3");
    assert_eq!(bench.told(), (vec!["z-after".into(), "z-before".into()], json!(2), "reconciled".into()));
    let key = |name: &str| ObjectKey::new(GroupResource::core("configmaps"), "a", name);
    bench.change(&key("z-later"), |map| map["metadata"]["labels"] = json!({"counted": "yes"})).unwrap();
    bench.change(&key("z-before"), |map| map["metadata"]["labels"] = json!({})).unwrap();
    assert_eq!(bench.told().0, ["z-after", "z-later"]);
    let mut bench = bench.restart();
    bench.delete("configmaps", "z-after").unwrap();
    assert_eq!(bench.told().0, ["z-later"]);
    // Another quota in the place of this one starts anew.
    let quota = ObjectKey::new(GroupResource::new(CAPSULE, "customquotas"), "a", "q");
    bench.write(quota, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    bench.custom_quota();
    assert_eq!(bench.told().0, ["z-later"]);
    bench.audit();
}

#[test]
fn what_cannot_be_evaluated_is_named_beside_many_that_can() {
    let mut bench = rig();
    for at in 0..600 {
        bench.sized(&format!("fine-{at:03}"), json!({"counted": "yes"}), "1");
    }
    bench.sized("odd", json!({"counted": "yes"}), "much");
    bench.custom_quota();
    let (names, count, message) = bench.told();
    assert_eq!((names.len(), count), (500, json!(600)));
    let told = "1 objects cannot be evaluated and are not counted: configmaps a/odd (source path ";
    assert!(message.starts_with(told), "{message}");
    assert!(message.contains("did not resolve to a valid quantity: invalid quantity \"much\""), "{message}");
}
