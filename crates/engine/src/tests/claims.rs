//! Claims that objects come with, as Datum's policies make them: nobody waits for what a policy has to find out, and what comes
//! with a claim is otherwise written as anything is.

use rules::cel::evaluations;

use super::slices::at_length;
use super::*;

const QUOTA: &str = "quota.datumapis.com";
const MAPS: &str = "example.com/maps";

/// Takes more than the thread that decides has time for.
const LONG: &str = "object.data.all(a, object.data.all(b, a.size() + b.size() > 0)) && user.name != 'nobody'";

/// The name of the claim takes no time.
const SHORT: u64 = 1;

/// A namespace that has so many maps, which a policy claims, and the conditions of that.
fn rig(limit: u32, constraints: &[&str], kind: &str) -> Bench {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let definition = json!({"serviceRef": {"name": "maps"}, "resourceName": MAPS, "unit": "count"});
    bench.create(QUOTA, "servicequotadefinitions", "", "maps", json!({"spec": definition})).unwrap();
    let limits = json!([{"name": MAPS, "buckets": [{"value": limit.to_string(), "selector": {}}]}]);
    let grant = json!({"resourceRef": {"kind": "Project", "name": "a"}, "limits": limits});
    bench.create(QUOTA, "resourcequotagrants", "a", "g", json!({"spec": grant})).unwrap();
    let constraints: Vec<Value> = constraints.iter().map(|one| json!({"expression": one})).collect();
    let policy = json!({
        "trigger": {"resource": {"apiVersion": "v1", "kind": kind}, "constraints": constraints},
        "target": {"resourceClaimTemplate": {"spec": {"resources": [{"name": MAPS, "quantity": "1"}]}}},
    });
    bench.create(QUOTA, "claimcreationpolicies", "", "maps", json!({"spec": policy})).unwrap();
    bench
}

fn key(resource: &str, name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core(resource), "a", name)
}

fn large(size: usize) -> Value {
    let data: serde_json::Map<String, Value> = (0..size).map(|n| (format!("k{n}"), n.to_string().into())).collect();
    json!({"data": data})
}

impl Bench {
    fn claims_made(&self) -> Vec<String> {
        let claims = GroupResource::new(QUOTA, "resourcequotaclaims");
        self.desk.list(&claims).map(|claim| claim.key.name.to_string()).collect()
    }
}

#[test]
fn nobody_waits_for_the_conditions_of_claims() {
    let mut bench = rig(2, &[LONG], "ConfigMap");
    for (name, is_let_in) in [("one", true), ("two", true), ("three", false)] {
        let draft = bench.draft("a", name, large(100));
        let course = at_length(&mut bench, key("configmaps", name), WriteKind::Create(draft), |_, _| {});
        assert_eq!((course.written.is_ok(), course.in_steps), (is_let_in, SHORT), "{name}");
    }
    assert_eq!(bench.claims_made(), ["one-claim", "two-claim"]);
    // Nor for those of an update, of a restart, or of the audit.
    let mut value = bench.desk.get(&key("configmaps", "one")).unwrap().value();
    value["metadata"]["labels"] = json!({"a": "b"});
    let update = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: false };
    let course = at_length(&mut bench, key("configmaps", "one"), update, |_, _| {});
    assert_eq!((course.written.is_ok(), course.in_steps), (true, SHORT));
    let before = evaluations();
    bench.audit();
    let mut bench = bench.restart();
    bench.audit();
    assert_eq!((bench.claims_made().len(), evaluations() - before), (2, 0));
}

#[test]
fn conditions_that_nobody_evaluated_refuse() {
    let mut bench = rig(9, &[LONG], "ConfigMap");
    let (before, draft) = (evaluations(), bench.draft("a", "one", large(100)));
    let foresight = Foresight::Last(Box::default());
    let (key, kind) = (key("configmaps", "one"), WriteKind::Create(draft));
    let write = Write { key, kind, dry_run: false, now_ms: 0, foresight, origin: Origin::default() };
    let Err(Refused::Said { refusal, .. }) = bench.desk.write(write) else { panic!("let in") };
    assert!(refusal.message.contains("try again"), "{}", refusal.message);
    assert_eq!((bench.claims_made(), evaluations()), (Vec::new(), before));
}

#[test]
fn what_was_there_before_its_policy_is_not_looked_at_for_long_either() {
    let mut bench = rig(9, &["object.data.size() < 0"], "ConfigMap");
    bench.create("", "configmaps", "a", "one", large(100)).unwrap();
    let policy = ObjectKey::new(GroupResource::new(QUOTA, "claimcreationpolicies"), "", "maps");
    bench.change(&policy, |one| one["spec"]["trigger"]["constraints"][0]["expression"] = LONG.into()).unwrap();
    let mut value = bench.desk.get(&key("configmaps", "one")).unwrap().value();
    value["metadata"]["labels"] = json!({"a": "b"});
    let update = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: false };
    let course = at_length(&mut bench, key("configmaps", "one"), update, |_, _| {});
    assert_eq!((course.written.is_ok(), course.in_steps), (true, SHORT));
    assert_eq!(bench.claims_made(), ["one-claim"], "what cannot be told in time is asked for");
    bench.audit();
}

/// A quota that comes with a claim counts what is stored before its step, too.
#[test]
fn a_policy_that_comes_with_a_claim_is_staged() {
    let mut bench = rig(1, &[], "ResourceQuota");
    bench.desk.engine.count_at_once(3);
    for number in 0..9 {
        bench.create("", "configmaps", "a", &format!("m{number}"), json!({})).unwrap();
    }
    let quota = |bench: &mut Bench, name: &str| {
        let draft = bench.draft("a", name, json!({"spec": {"hard": {"configmaps": "20"}}}));
        at_length(bench, key("resourcequotas", name), WriteKind::Create(draft), |_, _| {})
    };
    let course = quota(&mut bench, "q");
    assert!(course.written.is_ok() && course.slices > 1, "{} slices", course.slices);
    let lines = bench.desk.of(&policy_name(&GroupResource::core("resourcequotas"), "a", "q"));
    assert_eq!(lines[0].balance.used, Amount::from_units(9));
    assert_eq!(bench.claims_made(), ["q-claim"]);
    let course = quota(&mut bench, "second");
    assert!(
        matches!(course.written, Err(Refused::Denied(_))) && course.slices == 0,
        "refused before it is counted for"
    );
    bench.audit();
}
