//! The tree of namespaces: labels are the tree's to say, and quotas over it hold from the commit that changes it.

use serde_json::{Value, json};

use super::*;

const GROUP: &str = "hnc.x-k8s.io";

fn rig() -> Bench {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    for name in ["org", "team", "other"] {
        bench.create("", "namespaces", "", name, json!({})).unwrap();
    }
    let spec = json!({"spec": {"hard": {"secrets": "1"}}});
    bench.create(GROUP, "hierarchicalresourcequotas", "org", "whole", spec).unwrap();
    bench
}

fn namespace(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("namespaces"), "", name)
}

fn configuration(namespace: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::new(GROUP, "hierarchyconfigurations"), namespace, "hierarchy")
}

impl Bench {
    pub(super) fn put_below(&mut self, child: &str, parent: &str) -> Result<Written, Refused> {
        let spec = json!({"spec": {"parent": parent}});
        self.create(GROUP, "hierarchyconfigurations", child, "hierarchy", spec)
    }

    /// `ancestor=depth` of a namespace, as its labels say.
    fn labels(&self, name: &str) -> String {
        let value = self.desk.get(&namespace(name)).unwrap().value();
        let labels = value["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        let show = |(label, depth): (&String, &Value)| {
            format!("{}={}", label.trim_end_matches(".tree.hnc.x-k8s.io/depth"), depth.as_str().unwrap())
        };
        labels.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    fn secret(&mut self, namespace: &str, name: &str) -> bool {
        match self.create("", "secrets", namespace, name, json!({})) {
            Ok(_) => true,
            Err(Refused::Denied(_)) => false,
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_quota_holds_from_the_commit_that_puts_a_namespace_below() {
    let mut bench = rig();
    bench.secret("team", "before");
    bench.put_below("team", "org").unwrap();
    assert_eq!(bench.labels("team"), "org=1 team=0");
    assert_eq!(bench.labels("org"), "org=0");
    assert!(!bench.secret("team", "x") && !bench.secret("org", "x"), "what was there is counted at once");
    // Whoever is below moves along.
    bench.put_below("other", "team").unwrap();
    assert_eq!(bench.labels("other"), "org=2 other=0 team=1");
    assert!(!bench.secret("other", "x"));
    let key = configuration("team");
    bench.write(key, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    assert_eq!(
        (bench.labels("org"), bench.labels("team"), bench.labels("other")),
        (String::new(), "team=0".into(), "other=0 team=1".into())
    );
    assert!(bench.secret("other", "x") && bench.secret("org", "x"));
    bench.audit();
    let mut bench = bench.restart();
    assert_eq!(bench.labels("other"), "other=0 team=1");
    bench.audit();
}

#[test]
fn nobody_leaves_the_tree_or_enters_it_by_editing_labels() {
    let mut bench = rig();
    bench.put_below("team", "org").unwrap();
    assert!(bench.secret("team", "x"));
    bench.change(&namespace("team"), |one| one["metadata"]["labels"] = json!({"mine": "7"})).unwrap();
    assert_eq!(bench.labels("team"), "mine=7 org=1 team=0");
    assert!(!bench.secret("team", "y"));
    let wrong = json!({"org.tree.hnc.x-k8s.io/depth": "9", "x.tree.hnc.x-k8s.io/depth": "1"});
    bench.change(&namespace("team"), |one| one["metadata"]["labels"] = wrong.clone()).unwrap();
    assert_eq!(bench.labels("team"), "org=1 team=0");
    bench.change(&namespace("other"), |one| one["metadata"]["labels"] = wrong.clone()).unwrap();
    bench.create("", "namespaces", "", "fresh", json!({"labels": wrong})).unwrap();
    assert_eq!((bench.labels("other"), bench.labels("fresh")), (String::new(), String::new()));
    assert!(bench.secret("other", "y") && bench.secret("fresh", "y"), "nor is a foreign quota used up so");
    bench.audit();
}

#[test]
fn circles_are_refused_where_they_are_decided() {
    let mut bench = rig();
    bench.put_below("team", "org").unwrap();
    bench.put_below("other", "team").unwrap();
    let refused = bench.put_below("org", "other").unwrap_err();
    let Refused::Said { refusal, .. } = refused else { panic!("{refused:?}") };
    let words = "cycle when setting parent: \"other\" is a descendant of \"org\"";
    assert_eq!(refusal.message, words);
    assert!(matches!(bench.put_below("org", "org"), Err(Refused::Said { .. })));
    // The tree has a bottom.
    for level in 0..70 {
        bench.create("", "namespaces", "", &format!("n{level}"), json!({})).unwrap();
    }
    let mut deepest = 0;
    while deepest < 69 && bench.put_below(&format!("n{}", deepest + 1), &format!("n{deepest}")).is_ok() {
        deepest += 1;
    }
    assert_eq!(deepest, 64);
    assert!(matches!(bench.put_below("n0", "org"), Err(Refused::Said { .. })), "nor does it grow at the top");
    bench.audit();
}

#[test]
fn a_subnamespace_is_below_its_anchor_from_the_start_and_stays_there() {
    let mut bench = rig();
    bench.create(GROUP, "subnamespaceanchors", "org", "sub", json!({})).unwrap();
    let annotated = json!({"hnc.x-k8s.io/subnamespace-of": "org"});
    let mut draft = bench.draft("", "sub", json!({})).value;
    draft["metadata"]["annotations"] = annotated.clone();
    bench.write(namespace("sub"), WriteKind::Create(Draft::new(draft).unwrap()), false).unwrap();
    assert_eq!(bench.labels("sub"), "org=1 sub=0");
    assert!(bench.secret("sub", "x") && !bench.secret("sub", "y"));
    bench.change(&namespace("sub"), |one| one["metadata"]["annotations"] = json!({})).unwrap();
    assert_eq!(bench.labels("sub"), "org=1 sub=0");
    assert_eq!(bench.desk.get(&namespace("sub")).unwrap().value()["metadata"]["annotations"], annotated);
    let refused = bench.put_below("sub", "other").unwrap_err();
    assert!(format!("{refused:?}").contains("is a subnamespace of"), "{refused:?}");
    bench.put_below("sub", "org").unwrap();
    // An anchor for a namespace that was there before asks in vain.
    bench.create(GROUP, "subnamespaceanchors", "org", "team", json!({})).unwrap();
    assert_eq!(bench.labels("team"), "");
    let anchor = ObjectKey::new(GroupResource::new(GROUP, "subnamespaceanchors"), "org", "sub");
    bench.write(anchor, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    assert_eq!(bench.labels("sub"), "org=1 sub=0", "the configuration still says so");
    bench.audit();
}
