//! Expressions and paths that tenants write into quotas: whatever they are, nobody waits for them, and what was not evaluated is
//! never taken for an answer.

use rules::cel::{WRITE_STEPS_MAX, evaluations};
use rules::jsonpath::steps_taken;

use super::slices::{Course, at_length};
use super::*;

const CAPSULE: &str = "capsule.clastix.io";

/// Takes more than the thread that decides has time for.
fn long(other: u32) -> String {
    format!("lists.range(9000).all(x, x < 10000{other}) ? object.data.size : '0'")
}

fn rig() -> Bench {
    Bench::with(families::all(&families::Settings::default()))
}

fn quota_key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::new(CAPSULE, "customquotas"), "a", name)
}

fn map_key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("configmaps"), "a", name)
}

fn source(kind: &str, field: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, field: value})
}

impl Bench {
    /// Writes a quota as a request does, until it is decided.
    fn quota_at_length(&mut self, name: &str, limit: u32, sources: Vec<Value>) -> Course {
        let draft = self.draft("a", name, json!({"spec": {"limit": limit.to_string(), "sources": sources}}));
        at_length(self, quota_key(name), WriteKind::Create(draft), |_, _| {})
    }

    fn usage(&self, name: &str) -> Vec<String> {
        let lines = self.desk.of(&policy_name(&quota_key(name).resource, "a", name));
        lines.iter().map(|line| format!("{}={}", line.resource, line.balance.used)).collect()
    }

    /// A write that was asked for expressions before, and brings none of them.
    fn last_try(&mut self, key: ObjectKey, kind: WriteKind) -> Result<Written, Refused> {
        let foresight = Foresight::Last(Box::default());
        self.desk.write(Write { key, kind, dry_run: false, now_ms: 0, foresight, origin: Origin::default() })
    }
}

#[test]
fn what_was_not_evaluated_is_refused_and_not_taken_for_what_cannot_be() {
    let mut bench = rig();
    bench.create("", "configmaps", "a", "odd", json!({"data": {}})).unwrap();
    bench.quota_at_length("x", 10, vec![source("ConfigMap", "cel", &long(1))]).written.unwrap();
    assert_eq!(bench.usage("x"), ["unevaluated=1", "usage=0"]);
    let (revision, before) = (bench.desk.revision(), evaluations());
    for (size, status) in [("1000", false), ("5", false), ("5", true)] {
        let mut value = bench.desk.get(&map_key("odd")).unwrap().value();
        value["data"]["size"] = size.into();
        let update = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status };
        let Err(Refused::Said { refusal, .. }) = bench.last_try(map_key("odd"), update) else { panic!("let in") };
        assert_eq!(refusal.kind, families::RefusalKind::Conflict);
        assert!(refusal.message.contains("try again"), "{}", refusal.message);
    }
    assert_eq!((bench.desk.revision(), evaluations()), (revision, before), "no trace, and nothing evaluated");
    assert_eq!(bench.usage("x"), ["unevaluated=1", "usage=0"]);
    bench.audit();
}

#[test]
fn a_policy_over_long_expressions_is_not_counted_in_its_step_either() {
    let mut bench = rig();
    bench.create("", "configmaps", "a", "one", json!({"data": {"size": "3"}})).unwrap();
    let spec = json!({"limit": "10", "sources": [source("ConfigMap", "cel", &long(1))]});
    let draft = bench.draft("a", "x", json!({"spec": spec}));
    let before = evaluations();
    let written = bench.last_try(quota_key("x"), WriteKind::Create(draft));
    assert!(matches!(written, Err(Refused::Conflict { .. })), "{written:?}");
    assert_eq!(evaluations(), before);
    assert!(bench.usage("x").is_empty());
    bench.audit();
}

#[test]
fn quotas_and_claims_are_measured_by_paths_alone() {
    let mut bench = rig();
    for (version, kind) in [("v1", "ResourceQuota"), (CAPSULE, "CustomQuota"), (CAPSULE, "ResourcePoolClaim")] {
        let of = |field: &str, value: &str| json!({"apiVersion": version, "kind": kind, field: value});
        let Err(Refused::Invalid(errors)) = bench.quota_at_length("x", 10, vec![of("cel", "'1'")]).written else {
            panic!("{kind} by an expression")
        };
        assert!(errors[0].to_string().contains("are not measured by CEL expressions"), "{}", errors[0]);
        bench.quota_at_length(&kind.to_lowercase(), 10, vec![of("op", "count")]).written.unwrap();
    }
    bench.audit();
}

/// A definition that a quota waited for changes what one of its sources means, and nothing of the others.
#[test]
fn what_a_definition_does_not_concern_is_not_measured_again() {
    let mut bench = rig();
    for (name, size) in [("one", "3"), ("two", "4")] {
        bench.create("", "configmaps", "a", name, json!({"data": {"size": size}})).unwrap();
    }
    let widgets = json!({"apiVersion": "x.io/v1", "kind": "Widget", "path": ".spec.size"});
    let sources: Vec<Value> = (1..9).map(|n| source("ConfigMap", "cel", &long(n))).chain([widgets]).collect();
    bench.quota_at_length("x", 100, sources).written.unwrap();
    assert_eq!(bench.usage("x"), ["unevaluated=0", "usage=56"]);
    let before = evaluations();
    let names = json!({"plural": "wdgts", "kind": "Widget"});
    let spec =
        json!({"group": "x.io", "scope": "Namespaced", "names": names, "versions": [{"name": "v1", "served": true}]});
    let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    let definition = ObjectKey::new(definitions, "", "wdgts.x.io");
    bench.create("apiextensions.k8s.io", "customresourcedefinitions", "", "wdgts.x.io", json!({"spec": spec})).unwrap();
    bench.change(&definition, |one| one["metadata"]["labels"] = json!({"a": "b"})).unwrap();
    assert_eq!(evaluations(), before);
    // It is what counts from then on.
    bench.create("x.io", "wdgts", "a", "w", json!({"spec": {"size": "40"}})).unwrap();
    assert_eq!(bench.usage("x"), ["unevaluated=0", "usage=96"]);
    assert!(bench.create("x.io", "wdgts", "a", "v", json!({"spec": {"size": "40"}})).is_err());
    bench.audit();
    // And no longer what it was in another place.
    bench.change(&definition, |one| one["spec"]["names"]["plural"] = "others".into()).unwrap();
    assert_eq!(bench.usage("x"), ["unevaluated=0", "usage=56"]);
    assert_eq!(evaluations() - before, 2 * 8, "by the audit alone");
    bench.audit();
    bench.restart().audit();
}

#[test]
fn what_becomes_due_is_asked_only_of_those_who_look_at_the_time() {
    let mut bench = rig();
    bench.create("", "resourcequotas", "a", "q", json!({"spec": {"hard": {"pods": "9"}}})).unwrap();
    let pod = json!({"spec": {"containers": [{"name": "c"}]}, "data": {"size": "1"}});
    for name in ["one", "two", "three"] {
        bench.create("", "pods", "a", name, pod.clone()).unwrap();
        bench
            .change(&ObjectKey::new(GroupResource::core("pods"), "a", name), |pod| {
                pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
                pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
            })
            .unwrap();
    }
    bench.quota_at_length("x", 100, vec![source("Pod", "cel", &long(1))]).written.unwrap();
    let before = evaluations();
    bench.desk.publish(60_001);
    assert_eq!(evaluations(), before);
    let used = bench.desk.of(&policy_name(&GroupResource::core("resourcequotas"), "a", "q"));
    assert_eq!(used[0].balance.used, Amount::ZERO, "all of them are overdue");
    assert_eq!(bench.usage("x"), ["unevaluated=0", "usage=3"]);
    bench.audit();
}

/// The object, its refusal, the claim that lets it in, and the quota that has other limits then: all in one step.
#[test]
fn an_object_that_brings_its_claim_is_evaluated_once() {
    let mut bench = rig();
    let tenant = json!({"tenant": "solar"});
    let namespace = ObjectKey::new(GroupResource::core("namespaces"), "", "a");
    bench.change(&namespace, |one| one["metadata"]["labels"] = tenant.clone()).unwrap();
    let spec = json!({
        "selectors": [{"matchLabels": tenant}], "quota": {"hard": {"pods": "2"}}, "defaults": {"pods": "0"},
        "config": {"jitClaims": true},
    });
    bench.create(CAPSULE, "resourcepools", "", "p", json!({"spec": spec})).unwrap();
    let sources = (1..5).map(|n| source("Pod", "cel", &long(n))).collect();
    bench.quota_at_length("x", 100, sources).written.unwrap();
    for (name, is_let_in) in [("one", true), ("two", true), ("three", false)] {
        let pod = json!({"spec": {"containers": [{"name": "c"}]}, "data": {"size": "1"}});
        let (draft, key) = (bench.draft("a", name, pod), ObjectKey::new(GroupResource::core("pods"), "a", name));
        let course = at_length(&mut bench, key, WriteKind::Create(draft), |_, _| {});
        assert_eq!((course.written.is_ok(), course.in_steps), (is_let_in, 0), "{name}");
    }
    assert_eq!(bench.usage("x"), ["unevaluated=0", "usage=8"]);
    bench.audit();
}

fn broad(name: &str) -> Value {
    let data: serde_json::Map<String, Value> = (0..4000).map(|n| (format!("k{n}"), n.to_string().into())).collect();
    json!({"data": data, "labels": {"name": name}})
}

/// A source whose selector follows so many paths through all there is.
fn searching(paths: usize) -> Value {
    let fields: Vec<String> = (0..paths).map(|n| format!(".data..q{n}!=1")).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "op": "count", "selectors": [{"fieldSelectors": fields}]})
}

#[test]
fn paths_have_an_end_in_every_step() {
    let mut bench = rig();
    // What one quota follows too far cannot be evaluated by that; what all follow together is refused.
    bench.quota_at_length("far", 1000, vec![searching(30)]).written.unwrap();
    let draft = bench.draft("a", "one", broad("one"));
    let course = at_length(&mut bench, map_key("one"), WriteKind::Create(draft), |_, _| {});
    let Err(Refused::Denied(denials)) = course.written else { panic!("let in") };
    assert!(denials[0].message.as_deref().is_some_and(|why| why.contains("jsonpath")), "{denials:?}");
    let key = quota_key("far");
    bench.write(key, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    for name in 0..25 {
        bench.quota_at_length(&format!("x{name}"), 1000, vec![searching(5)]).written.unwrap();
    }
    let draft = bench.draft("a", "one", broad("one"));
    let before = steps_taken();
    let course = at_length(&mut bench, map_key("one"), WriteKind::Create(draft), |_, _| {});
    let Err(Refused::Said { refusal, .. }) = course.written else { panic!("let in: {:?}", course.written) };
    assert!(refusal.message.contains("paths"), "{}", refusal.message);
    assert!(steps_taken() - before < WRITE_STEPS_MAX * 11 / 10, "{}", steps_taken() - before);
    bench.audit();
}

#[test]
fn paths_have_an_end_in_every_slice() {
    let mut bench = rig();
    bench.desk.engine.count_at_once(100);
    for name in 0..30 {
        bench.create("", "configmaps", "a", &format!("m{name}"), broad("m")).unwrap();
    }
    bench.desk.engine.count_at_once(20);
    let (mut most, mut before) = (0, steps_taken());
    let draft = bench.draft("a", "x", json!({"spec": {"limit": "1000", "sources": [searching(5)]}}));
    let course = at_length(&mut bench, quota_key("x"), WriteKind::Create(draft), |_, slice| {
        if slice > 0 {
            most = most.max(steps_taken() - before);
        }
        before = steps_taken();
    });
    course.written.unwrap();
    assert_eq!(bench.usage("x"), ["unevaluated=0", "usage=30"]);
    assert!(course.slices >= 4 && most < 900_000, "{} slices, {most} steps", course.slices);
    bench.audit();
}

#[test]
fn a_quota_has_so_many_paths_and_expressions() {
    let mut bench = rig();
    let many: Vec<Value> = (0..5).map(|_| searching(55)).collect();
    let Err(Refused::Invalid(errors)) = bench.quota_at_length("x", 10, many).written else { panic!("accepted") };
    assert!(errors[0].to_string().contains("must have at most 256"), "{}", errors[0]);
    let lengthy = format!("'{}' == '' ? '1' : '2'", "x".repeat(4000));
    let many: Vec<Value> = (0..17).map(|_| source("ConfigMap", "cel", &lengthy)).collect();
    let Err(Refused::Invalid(errors)) = bench.quota_at_length("x", 10, many).written else { panic!("accepted") };
    assert!(errors[0].to_string().contains("must have at most 65536"), "{}", errors[0]);
    let descents: Vec<String> = (0..250).map(|n| format!("....q{n}")).collect();
    let one = json!({"apiVersion": "v1", "kind": "ConfigMap", "op": "count", "selectors": [{"fieldSelectors": descents[..64]}]});
    let before = steps_taken();
    let written = bench.quota_at_length("x", 10, vec![one.clone(), one.clone(), one]).written;
    assert!(steps_taken() - before < 1_200_000, "{} {written:?}", steps_taken() - before);
}
