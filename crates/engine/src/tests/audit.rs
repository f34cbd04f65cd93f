//! The audit sees what is wrong, wherever it is, and names it.

use families::capsule::Reading;
use ledger::{AccountKey, Charge, Limit, Standing, Terms};
use serde_json::json;

use super::*;

const CAPSULE: &str = "capsule.clastix.io";

fn settings(reading: Reading) -> Families {
    let mut settings = families::Settings::default();
    settings.capsule.reading = reading;
    families::all(&settings)
}

fn rig() -> Bench {
    let mut bench = Bench::with(settings(Reading::Documentation));
    bench.create("", "namespaces", "", "n0", json!({"labels": {"tenant": "solar"}})).unwrap();
    let hard = json!({"spec": {"hard": {"configmaps": "3"}}});
    bench.create("", "resourcequotas", "n0", "q", hard).unwrap();
    let selectors = json!([{"matchLabels": {"tenant": "solar"}}]);
    let pool = json!({"spec": {"quota": {"hard": {"pods": "6"}}, "selectors": selectors}});
    bench.create(CAPSULE, "resourcepools", "", "p", pool).unwrap();
    let claim = |pods: &str| json!({"spec": {"pool": "p", "claim": {"pods": pods}}});
    bench.create(CAPSULE, "resourcepoolclaims", "n0", "has", claim("4")).unwrap();
    bench.create(CAPSULE, "resourcepoolclaims", "n0", "waits", claim("5")).unwrap();
    bench.create("", "configmaps", "n0", "x", json!({})).unwrap();
    bench.desk.publish(0);
    bench
}

impl Bench {
    fn uid(&self, resource: GroupResource, namespace: &str, name: &str) -> ledger::SubjectId {
        self.desk.get(&ObjectKey::new(resource, namespace, name)).unwrap().uid
    }

    fn differences(&mut self) -> String {
        self.report().differences.join("\n")
    }

    /// Changes a stored object behind the engine's back.
    fn forge(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
        let mut value = self.desk.engine.stored(key).unwrap().value();
        change(&mut value);
        let (object, _) = Draft::new(value).unwrap().finish(key.clone(), self.desk.engine.revision(), 1);
        self.desk.engine.shelves.put(object.into());
    }
}

#[test]
fn all_is_well_where_it_is() {
    let mut bench = rig();
    let report = bench.report();
    assert_eq!((report.differences.len(), report.differing, report.kept, report.missing), (0, 0, 1, 0));
    assert!(report.accounts >= 6 && report.subjects == 3 && report.broken.is_empty(), "{report:?}");
}

#[test]
fn a_wrong_charge_is_named_with_its_object_policy_resource_and_part() {
    let mut bench = rig();
    let uid = bench.uid(GroupResource::core("configmaps"), "n0", "x");
    let account = bench.desk.engine.ledger.account(&AccountKey::new("resourcequotas/n0/q", "configmaps", "")).unwrap();
    let charge = Charge::new(account, units(2), Format::DecimalSi).on(Terms::Adopted);
    let _ = bench.desk.engine.ledger.charge(uid, &[charge], &Standing::Stored).unwrap();
    assert_eq!(
        bench.differences().lines().next(),
        Some("configmaps/n0/x: quota \"resourcequotas/n0/q\" configmaps expected 1 found 2")
    );

    // A part of an account on which somebody waits is looked at like any other.
    let mut bench = rig();
    let claim = bench.uid(GroupResource::new(CAPSULE, "resourcepoolclaims"), "n0", "has");
    let of = |resource: &str, bucket: &str| AccountKey::new(&format!("resourcepools.{CAPSULE}//p"), resource, bucket);
    let keep = [of("pods", ""), of("#claims", ""), of("#claims", "n0")]
        .map(|key| bench.desk.engine.ledger.account(&key).unwrap());
    let had = bench.desk.engine.ledger.subject(claim).unwrap().charges;
    let kept = had.into_iter().filter(|charge| keep.contains(&charge.account));
    let kept: Vec<Charge> = kept.map(|charge| charge.on(Terms::Adopted)).collect();
    let _ = bench.desk.engine.ledger.charge(claim, &kept, &Standing::Stored).unwrap();
    let told = bench.differences();
    assert!(told.contains("resourcepoolclaims.capsule.clastix.io/n0/has: quota"), "{told}");
    assert!(told.contains("pods of \"n0\" expected 4 found 0"), "{told}");
    assert!(told.contains("resourcequotas/n0/capsule-pool-p is stored as"), "the kept quota follows the part: {told}");
}

#[test]
fn what_nobody_expects_is_a_difference() {
    let mut bench = rig();
    let key = AccountKey::new("resourcequotas/n0/q", "secrets", "");
    let account = bench.desk.engine.ledger.open(key, Limit::Unlimited).unwrap();
    let charge = Charge::new(account, units(1), Format::DecimalSi).on(Terms::Adopted);
    let _ = bench.desk.engine.ledger.charge(ledger::SubjectId(0xdead), &[charge], &Standing::Stored).unwrap();
    let told = bench.differences();
    assert!(told.contains("secrets is open, and no policy lists it"), "{told}");
    assert!(told.contains("dead: quota \"resourcequotas/n0/q\" secrets 1 although no object is counted so"), "{told}");
}

#[test]
fn what_is_too_much_for_the_number_type_hides_nobody() {
    let mut bench = Bench::new();
    for name in ["huge", "other"] {
        bench.create("", "configmaps", "a", name, json!({"data": {"huge": "1"}})).unwrap();
    }
    bench.map("zero").unwrap();
    bench.create("example.com", "caps", "a", "cap", json!({"spec": {"limit": 5}})).unwrap();
    bench.desk.publish(0);
    let report = bench.report();
    assert_eq!((report.differing, report.over.len()), (0, 1), "{report:?}");
    // What was counted after them is counted still when they go.
    bench.delete("configmaps", "huge").unwrap();
    bench.delete("configmaps", "other").unwrap();
    assert_eq!(bench.used("cap").as_deref(), Some("1"));
    bench.desk.publish(0);
    bench.audit();
    // Nobody comes in with more than can be counted, whatever the limit; what is there is not stuck.
    bench.change(&cap_key("cap"), |cap| cap["spec"]["limit"] = i64::MAX.into()).unwrap();
    let huge = bench.create("", "configmaps", "a", "huge", json!({"data": {"huge": "1"}}));
    let Err(Refused::Denied(denials)) = huge else { panic!("let in") };
    let told = denials[0].message.as_ref().unwrap();
    assert!(told.contains("is more than can be counted of one object"), "{told}");
}

#[test]
fn limits_kept_objects_and_statuses_are_compared_as_well() {
    let mut bench = rig();
    let quota = ObjectKey::new(GroupResource::core("resourcequotas"), "n0", "capsule-pool-p");
    bench.forge(&quota, |quota| quota["spec"]["hard"]["pods"] = json!("9"));
    let told = bench.differences();
    assert!(
        told.contains("resourcequotas/n0/capsule-pool-p is stored as {\"hard\":{\"pods\":\"9\"}}, and has to be"),
        "{told}"
    );
    assert!(told.contains("capsule-pool-p\" pods is limited to Enforced"), "{told}");

    let mut bench = rig();
    let quota = ObjectKey::new(GroupResource::core("resourcequotas"), "n0", "q");
    bench.forge(&quota, |quota| quota["status"]["used"]["configmaps"] = json!("0"));
    assert!(bench.differences().contains("the status of resourcequotas/n0/q says"));
}

#[test]
fn a_policy_that_no_longer_compiles_refuses_in_its_place_and_says_so() {
    let mut bench = Bench::with(settings(Reading::Documentation));
    let sources = json!([{"version": "v1", "kind": "ConfigMap", "op": "count"}]);
    let spec = json!({"spec": {"limit": "0", "sources": sources}});
    bench.map("before").unwrap();
    bench.create(CAPSULE, "customquotas", "a", "none", spec).unwrap();
    assert!(matches!(bench.map("x"), Err(Refused::Denied(_))));
    // By the releases' reading a limit is above zero.
    let mut bench = bench.restart_with(settings(Reading::Releases));
    let Err(Refused::Denied(denials)) = bench.map("x") else { panic!("let in") };
    assert!(denials[0].message.as_ref().unwrap().contains("cannot be evaluated"), "{denials:?}");
    let key = ObjectKey::new(GroupResource::core("configmaps"), "a", "before");
    assert!(bench.change(&key, |map| map["data"] = json!({"k": "v"})).is_err(), "nor can it be changed");
    bench.desk.publish(0);
    let quota = ObjectKey::new(GroupResource::new(CAPSULE, "customquotas"), "a", "none");
    let shown = bench.desk.get(&quota).unwrap().value();
    let conditions = shown["status"]["conditions"].as_array().unwrap().clone();
    assert!(conditions.iter().any(|one| one["reason"] == "CannotBeEvaluated"), "{conditions:?}");
    let report = bench.report();
    assert_eq!((report.differing, report.broken.len()), (0, 1), "{report:?}");
    // What is there can go, and a mended policy counts again.
    bench.change(&quota, |quota| quota["spec"]["limit"] = json!("2")).unwrap();
    bench.map("x").unwrap();
    assert!(matches!(bench.map("y"), Err(Refused::Denied(_))));
    bench.delete("configmaps", "before").unwrap();
    bench.map("y").unwrap();
    bench.audit();
}

#[test]
fn other_settings_count_everything_again_at_the_start() {
    let mut bench = Bench::with(settings(Reading::Documentation));
    let sources = json!([{"version": "v1", "kind": "ConfigMap", "op": "add", "path": ".data.size"}]);
    bench.create("", "configmaps", "a", "x", json!({"data": {}})).unwrap();
    bench.create(CAPSULE, "customquotas", "a", "u", json!({"spec": {"limit": "5", "sources": sources}})).unwrap();
    let unevaluated = |bench: &Bench| {
        let lines = bench.desk.of("customquotas.capsule.clastix.io/a/u");
        lines.iter().find(|line| &*line.resource == "unevaluated").unwrap().balance.used
    };
    assert_eq!(unevaluated(&bench), units(0), "what is missing is zero, by the documentation");
    let mut bench = bench.restart_with(settings(Reading::Releases));
    assert_eq!(unevaluated(&bench), units(1), "and cannot be evaluated, by the releases");
    bench.audit();
    let digest = bench.desk.engine.ledger.digest();
    bench.map("y").unwrap_err();
    let mut bench = bench.restart();
    assert_eq!(bench.desk.engine.ledger.digest(), digest);
    bench.audit();
}

#[test]
fn too_many_quotas_are_refused_and_too_many_amounts_are_told_as_such() {
    let mut bench = Bench::with(settings(Reading::Documentation));
    let hard = json!({"spec": {"hard": {
        "pods": "9", "count/pods": "9", "requests.cpu": "9", "requests.memory": "9Gi", "limits.cpu": "9",
    }}});
    let made = (0..1100).filter(|n| bench.create("", "resourcequotas", "a", &format!("q{n}"), hard.clone()).is_ok());
    assert_eq!(made.count(), 1000);
    let amounts = json!({"cpu": "1", "memory": "1"});
    let spec = json!({"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]});
    let Err(Refused::Denied(denials)) = bench.create("", "pods", "a", "p", json!({"spec": spec})) else {
        panic!("let in")
    };
    let told = denials[0].message.as_ref().unwrap();
    assert!(told.starts_with("more than 4096 amounts of quotas apply to this object (5000)"), "{told}");
}

#[test]
fn a_limited_resource_is_covered_by_a_quota_of_the_same_group_of_writes() {
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"resource": "services", "matchContains": ["loadbalancers"]}],
    });
    let mut settings = families::Settings::default();
    settings.kubernetes.limited = families::kubernetes::limited::read_configuration(&document).unwrap();
    let mut bench = Bench::with(families::all(&settings));
    let balancer = || json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}]}});
    let one = bench.create("", "services", "a", "one", balancer());
    let Err(Refused::Said { refusal, .. }) = one else { panic!("let in") };
    assert_eq!(refusal.message, "insufficient quota to consume: services.loadbalancers");

    // Decided in one group: nothing of the first is durable, or to be seen by readers, when the second is decided.
    let quota = bench.draft("a", "q", json!({"spec": {"hard": {"services.loadbalancers": "1"}}}));
    let service = bench.draft("a", "one", balancer());
    for (resource, name, draft) in [("resourcequotas", "q", quota), ("services", "one", service)] {
        let key = ObjectKey::new(GroupResource::core(resource), "a", name);
        let write = Write {
            key,
            kind: WriteKind::Create(draft),
            dry_run: false,
            now_ms: 0,
            foresight: Foresight::None,
            origin: Origin::default(),
        };
        bench.desk.engine.write(write).unwrap().unwrap();
    }
    bench.desk.keep();
    bench.audit();
}

/// Others write in the same group, before the audit's moment and after it.
#[test]
fn what_moved_in_the_same_group_is_no_difference() {
    let mut bench = Bench::new();
    bench.cap("cap", json!({"limit": 5})).unwrap();
    while bench.desk.publish(0) > 0 {}
    let draft = bench.draft("a", "m", json!({}));
    let key = ObjectKey::new(GroupResource::core("configmaps"), "a", "m");
    let (foresight, origin) = (Foresight::None, Origin::default());
    let write = Write { key, kind: WriteKind::Create(draft), dry_run: false, now_ms: 0, foresight, origin };
    bench.desk.engine.write(write).unwrap().unwrap();
    assert_eq!(bench.desk.engine.snapshot().audit().differences, Vec::<String>::new());
}
