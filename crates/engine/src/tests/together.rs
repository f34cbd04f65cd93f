//! Several writes that are decided at once.

use serde_json::json;

use super::toy::{GROUP, open};
use super::*;

impl Bench {
    fn maps(&mut self, names: &[&str]) -> Vec<(ObjectKey, WriteKind)> {
        let one = |name: &&str| (map_key(name), WriteKind::Create(self.draft("a", name, json!({}))));
        names.iter().map(one).collect()
    }

    fn together(&mut self, writes: Vec<(ObjectKey, WriteKind)>) -> Result<Vec<Written>, (usize, Refused)> {
        self.desk.write_all(Writes { writes, dry_run: false, now_ms: 0, origin: Origin::default() })
    }
}

fn map_key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("configmaps"), "a", name)
}

fn gone(name: &str) -> (ObjectKey, WriteKind) {
    (map_key(name), WriteKind::Delete { expect: Expect::default(), last: None })
}

#[test]
fn all_of_them_happen_or_none() {
    let mut bench = Bench::new();
    bench.cap("two", json!({"limit": 2})).unwrap();
    let three = bench.maps(&["a", "b", "c"]);
    let before = bench.traces().but_for_refusals();
    let (_, refused) = bench.together(three).unwrap_err();
    let Refused::Denied(denials) = refused else { panic!("{refused:?}") };
    assert_eq!((denials[0].lines[0].requested, denials[0].lines[0].limit), (units(3), units(2)));
    assert_eq!(bench.traces().but_for_refusals(), before, "nothing tells that anybody asked");
    let two = bench.maps(&["a", "b"]);
    let written = bench.together(two).unwrap();
    assert_eq!(written.iter().map(|one| &*one.object.key.name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(bench.used("two").as_deref(), Some("2"));
    // What one gives back another of the same step takes.
    let mut exchange = bench.maps(&["c"]);
    exchange.push(gone("a"));
    bench.together(exchange).unwrap();
    assert_eq!(bench.used("two").as_deref(), Some("2"));
    bench.audit();
    bench.restart().audit();
}

#[test]
fn the_first_that_is_refused_is_named_and_the_others_left_alone() {
    let mut bench = Bench::new();
    bench.map("there").unwrap();
    let before = bench.traces();
    for (name, why) in [("there", Refused::AlreadyExists), ("x\0y", Refused::Invalid(Vec::new()))] {
        let writes = bench.maps(&["first", name, "last"]);
        let (place, refused) = bench.together(writes).unwrap_err();
        assert_eq!((place, std::mem::discriminant(&refused)), (1, std::mem::discriminant(&why)), "{refused:?}");
    }
    let twice = bench.maps(&["x", "x"]);
    assert!(matches!(bench.together(twice), Err((1, Refused::Bug(_)))));
    let absent = vec![gone("there"), gone("nobody")];
    assert!(matches!(bench.together(absent), Err((1, Refused::NotFound))));
    let many: Vec<String> = (0..=WRITES_MAX).map(|number| format!("m{number}")).collect();
    let many = bench.maps(&many.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(bench.together(many).is_err(), "bounded");
    assert_eq!(bench.traces(), before);
}

#[test]
fn a_namespace_is_there_for_what_is_made_with_it() {
    let mut bench = Bench::new();
    let (namespace, inside) = (bench.draft("", "b", json!({})), bench.draft("b", "x", json!({})));
    let space = (ObjectKey::new(GroupResource::core("namespaces"), "", "b"), WriteKind::Create(namespace));
    let inside = (ObjectKey::new(GroupResource::core("configmaps"), "b", "x"), WriteKind::Create(inside));
    bench.together(vec![space, inside]).unwrap();
    let late = bench.draft("c", "x", json!({}));
    let late = (ObjectKey::new(GroupResource::core("configmaps"), "c", "x"), WriteKind::Create(late));
    let namespace = bench.draft("", "c", json!({}));
    let space = (ObjectKey::new(GroupResource::core("namespaces"), "", "c"), WriteKind::Create(namespace));
    assert!(matches!(bench.together(vec![late, space]), Err((0, Refused::NamespaceNotFound))));
}

#[test]
fn a_policy_counts_what_is_made_with_it() {
    let mut bench = Bench::new();
    let mut writes = bench.maps(&["x", "y"]);
    let cap = bench.draft("a", "one", json!({"spec": {"limit": 1}}));
    writes.push((cap_key("one"), WriteKind::Create(cap)));
    bench.together(writes).unwrap();
    assert_eq!(bench.used("one").as_deref(), Some("2"));
    bench.audit();
    // Lifted in the step that needs it, it is still judged by what it was.
    let mut writes = bench.maps(&["z"]);
    let mut value = bench.desk.get(&cap_key("one")).unwrap().value();
    value["spec"]["limit"] = 9.into();
    let draft = Draft::new(value).unwrap();
    writes.insert(0, (cap_key("one"), WriteKind::Update { draft, expect: Expect::default(), status: false }));
    assert!(matches!(bench.together(writes), Err((1, Refused::Denied(_)))));
    bench.audit();
}

#[test]
fn a_dry_run_of_several_leaves_no_trace() {
    let mut bench = Bench::new();
    bench.cap("two", json!({"limit": 2})).unwrap();
    let writes = bench.maps(&["x", "y"]);
    let before = bench.traces();
    let asked = Writes { writes, dry_run: true, now_ms: 0, origin: Origin::default() };
    assert_eq!(bench.desk.write_all(asked).unwrap().len(), 2);
    assert_eq!(bench.traces(), before);
    let writes = bench.maps(&["x", "y", "z"]);
    let asked = Writes { writes, dry_run: true, now_ms: 0, origin: Origin::default() };
    assert!(bench.desk.write_all(asked).is_err());
    assert_eq!(bench.traces(), before);
}

/// Random groups of creates, updates and deletions under caps that come and go, against a count of names.
#[test]
fn whatever_is_written_together_adds_up() {
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut bench = Bench::new();
    bench.cap("some", json!({"limit": 5})).unwrap();
    let (mut there, mut refused) = (std::collections::BTreeSet::new(), 0);
    for _ in 0..400 {
        let mut then = there.clone();
        let mut writes = Vec::new();
        for number in 0..8_u64 {
            let name = format!("m{number}");
            match draw(4) {
                0 if then.insert(name.clone()) => writes.extend(bench.maps(&[&name])),
                1 if then.remove(&name) => writes.push(gone(&name)),
                _ => {}
            }
        }
        let fits = then.len() <= 5 || then.len() <= there.len();
        match bench.together(writes) {
            Ok(_) => {
                assert!(fits, "{there:?} became {then:?}");
                there = then;
            }
            Err((_, Refused::Denied(_))) => {
                assert!(!fits, "{there:?} could have become {then:?}");
                refused += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(bench.used("some"), Some(there.len().to_string()));
    }
    assert!(refused > 20, "{refused}");
    bench.audit();
}

#[test]
fn what_follows_from_a_write_has_its_origin() {
    let mut bench = open(2);
    let origin = Origin { identity: Arc::new(families::Identity::authenticated("ann", ["cooks"])), request: 7 };
    let kind = WriteKind::Create(bench.draft("a", "soup", json!({})));
    let write = Write {
        key: map_key("soup"),
        kind,
        dry_run: false,
        now_ms: 0,
        foresight: Foresight::None,
        origin: origin.clone(),
    };
    bench.desk.engine.write(write).unwrap().unwrap();
    let told: Vec<(String, bool)> = bench
        .desk
        .engine
        .take_writes()
        .map(|one| (one.object.key.resource.to_string(), one.origin == origin))
        .collect();
    for kind in ["configmaps", &*format!("bookings.{GROUP}"), &*format!("menus.{GROUP}")] {
        assert!(told.contains(&(kind.to_owned(), true)), "{kind}: {told:?}");
    }
    assert!(told.iter().all(|(_, same)| *same), "{told:?}");
    bench.desk.engine.publish_status(0);
    assert!(bench.desk.engine.take_writes().all(|one| one.origin.identity.user == "system:bursar:engine"));
}

/// What is charged to an object stays charged to it.
#[test]
fn an_update_with_the_uid_of_another_object_is_refused() {
    let mut bench = Bench::new();
    bench.cap("cap", json!({"limit": 5})).unwrap();
    bench.map("m").unwrap();
    let mut value = bench.desk.get(&map_key("m")).unwrap().value();
    value["metadata"]["uid"] = kinds::uid::text(ledger::SubjectId(77)).into();
    for status in [false, true] {
        let draft = Draft::new(value.clone()).unwrap();
        let kind = WriteKind::Update { draft, expect: Expect::default(), status };
        let refused = bench.write(map_key("m"), kind, false);
        assert!(matches!(refused, Err(Refused::UidMismatch { .. })), "{refused:?}");
    }
    assert_eq!(bench.used("cap").as_deref(), Some("1"));
    bench.audit();
}

/// A policy that names a kind which goes with the same command is as one that is written after it.
#[test]
fn a_policy_means_what_it_says_at_the_end_of_its_command() {
    const CAPSULE: &str = "capsule.clastix.io";
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let names = json!({"kind": "Widget", "plural": "widgets"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names,
        "versions": [{"name": "v1", "served": true, "storage": true}]});
    let definition = ObjectKey::new(
        GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"),
        "",
        "widgets.example.com",
    );
    bench
        .create("apiextensions.k8s.io", "customresourcedefinitions", "", "widgets.example.com", json!({"spec": spec}))
        .unwrap();
    bench.create("example.com", "widgets", "a", "w", json!({"spec": {"size": "3"}})).unwrap();
    let source = json!({"group": "example.com", "version": "v1", "kind": "Widget", "op": "add", "path": ".spec.size"});
    let quota = bench.draft("a", "q", json!({"spec": {"limit": "9", "sources": [source]}}));
    let key = ObjectKey::new(GroupResource::new(CAPSULE, "customquotas"), "a", "q");
    let gone = (definition, WriteKind::Delete { expect: Expect::default(), last: None });
    bench.together(vec![gone, (key, WriteKind::Create(quota))]).unwrap();
    bench.audit();
    bench.restart().audit();
}
