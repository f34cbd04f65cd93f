//! The engine under a family made for the purpose: a cap on the number of config maps in a namespace.

use std::sync::Arc;

use families::{
    Balances, Denial, Families, Family, Manifest, Origin, Plural, PolicyObject, Projected, Uncompiled, Words, World,
};
use ledger::Limit;
use quantity::{Amount, Format};
use rules::cel::Foresight;
use rules::{Account, Compiled, GroupResource, Measure, MeasureError, Reach, Rule, Subject, Verdict, policy_name};
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::*;

mod audit;
mod behind;
mod claims;
mod company;
mod datum;
mod edits;
mod expressions;
mod foresight;
mod holds;
mod jit;
mod lines;
mod marks;
mod moments;
mod named;
mod names;
mod pools;
mod quota;
mod rows;
mod see;
mod slices;
mod staging;
mod standing;
mod together;
mod toy;
mod trees;
mod upkeep;

struct Caps;
struct One;

impl Measure for One {
    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        if subject.object.pointer("/data/broken").is_some() {
            return Err(MeasureError { policy: "caps".into(), message: "cannot be weighed".into() });
        }
        let huge = subject.object.pointer("/data/huge").is_some();
        let amount = if huge { Amount::from_nanos(i128::MAX) } else { Amount::from_units(1) };
        out.charge(0, amount, Format::DecimalSi);
        if subject.object.pointer("/data/untold").is_some() {
            out.refuse("must be told");
        }
        Ok(())
    }
}

impl Family for Caps {
    fn manifest(&self) -> &Manifest {
        &Manifest { name: "caps", policies: &[Plural("example.com", "caps")], ..Manifest::EMPTY }
    }

    fn compile(&self, policy: &PolicyObject<'_>, _: &dyn World) -> Result<Compiled, Uncompiled> {
        let limit = Amount::from_units(policy.object["spec"]["limit"].as_i64().unwrap_or(0));
        let selected = policy.object["spec"]["tier"].as_str().map(str::to_owned);
        let reach = match selected.clone() {
            None => Reach::Namespace(policy.namespace.into()),
            Some(tier) => Reach::Selected(Arc::new(move |namespace| namespace.labels.get("tier") == Some(&tier))),
        };
        Ok(Compiled {
            accounts: vec![Account {
                resource: "configmaps".into(),
                limit: Limit::Enforced(limit),
                limit_text: limit.to_string().into(),
                discounts: false,
            }],
            rules: vec![Rule { resources: vec![GroupResource::core("configmaps")], reach, measure: Arc::new(One) }],
            fingerprint: selected.unwrap_or_default().into_bytes(),
            until_ms: None,
        })
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let used = balances.of(&policy_name(resource, &text("namespace"), &text("name")));
        let status = json!({"used": used.first().map(|line| line.balance.used.to_string())});
        if object["status"] == status {
            return Projected::Unchanged;
        }
        object["status"] = status;
        Projected::Changed
    }

    fn words(&self, denial: &Denial) -> Words {
        format!("over the cap {}", denial.name).into()
    }
}

/// A desk, and who sits at it.
struct Bench {
    desk: Desk,
    uids: u128,
}

impl Bench {
    fn new() -> Self {
        Self::with(families())
    }

    fn with(families: Families) -> Self {
        let mut bench = Bench { desk: Desk::new(families), uids: 0 };
        bench.create("", "namespaces", "", "a", json!({})).unwrap();
        bench
    }

    /// Forgets everything in memory and starts again from what is kept.
    fn restart(self) -> Self {
        Bench { desk: self.desk.again(), uids: self.uids }
    }

    /// The same with other settings.
    fn restart_with(self, families: Families) -> Self {
        Bench { desk: self.desk.restart(families), uids: self.uids }
    }

    fn write(&mut self, key: ObjectKey, kind: WriteKind, dry_run: bool) -> Result<Written, Refused> {
        self.write_at(0, key, kind, dry_run)
    }

    fn write_at(&mut self, now_ms: i64, key: ObjectKey, kind: WriteKind, dry_run: bool) -> Result<Written, Refused> {
        self.desk.write(Write { key, kind, dry_run, now_ms, foresight: Foresight::None, origin: Origin::default() })
    }

    fn draft(&mut self, namespace: &str, name: &str, mut object: Value) -> Draft {
        self.uids += 1;
        let uid = kinds::uid::text(ledger::SubjectId(self.uids));
        let labels = object["labels"].take();
        object["metadata"] = json!({"name": name, "namespace": namespace, "uid": uid, "labels": labels});
        Draft::new(object).unwrap()
    }

    fn create(&mut self, group: &str, resource: &str, ns: &str, name: &str, object: Value) -> Result<Written, Refused> {
        let draft = self.draft(ns, name, object);
        let key = ObjectKey::new(GroupResource::new(group, resource), ns, name);
        self.write(key, WriteKind::Create(draft), false)
    }

    fn map(&mut self, name: &str) -> Result<Written, Refused> {
        self.create("", "configmaps", "a", name, json!({}))
    }

    fn cap(&mut self, name: &str, spec: Value) -> Result<Written, Refused> {
        self.create("example.com", "caps", "a", name, json!({"spec": spec}))
    }

    fn change(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Value)) -> Result<Written, Refused> {
        let mut value = self.desk.get(key).unwrap().value();
        change(&mut value);
        let update = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: false };
        self.write(key.clone(), update, false)
    }

    fn delete(&mut self, resource: &str, name: &str) -> Result<Written, Refused> {
        let key = ObjectKey::new(GroupResource::core(resource), "a", name);
        self.write(key, WriteKind::Delete { expect: Expect::default(), last: None }, false)
    }

    fn used(&self, cap: &str) -> Option<String> {
        let lines = self.desk.of(&policy_name(&caps(), "a", cap));
        lines.first().map(|line| line.balance.used.to_string())
    }

    fn audit(&mut self) {
        self.desk.engine.ledger.audit().unwrap();
        assert_eq!(self.report().differences, Vec::<String>::new());
    }

    fn report(&mut self) -> AuditReport {
        self.desk.engine.snapshot().audit()
    }
}

fn families() -> Families {
    Families::new(vec![Arc::new(Caps)])
}

fn caps() -> GroupResource {
    GroupResource::new("example.com", "caps")
}

fn cap_key(name: &str) -> ObjectKey {
    ObjectKey::new(caps(), "a", name)
}

#[test]
fn a_cap_counts_refuses_and_frees_in_the_commit_of_the_object() {
    let mut bench = Bench::new();
    bench.map("before").unwrap();
    bench.cap("two", json!({"limit": 2})).unwrap();
    assert_eq!(bench.used("two").as_deref(), Some("1"), "what was there is counted when the cap appears");
    bench.map("fits").unwrap();
    let revision = bench.desk.revision();
    match bench.map("over") {
        Err(Refused::Denied(denials)) => {
            let line = &denials[0].lines[0];
            assert_eq!((line.requested, line.used, line.limit), (units(1), units(2), units(2)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.desk.revision(), revision, "a refusal changes nothing");
    bench.delete("configmaps", "before").unwrap();
    assert_eq!(bench.used("two").as_deref(), Some("1"));
    bench.map("over").unwrap();
    bench.audit();
}

#[test]
fn refusals_come_most_specific_first_and_change_nothing() {
    let mut bench = Bench::new();
    bench.cap("none", json!({"limit": 0})).unwrap();
    assert_eq!(bench.create("", "configmaps", "nowhere", "x", json!({})).unwrap_err(), Refused::NamespaceNotFound);
    assert_eq!(bench.delete("configmaps", "x").unwrap_err(), Refused::NotFound);
    assert!(matches!(bench.map("x"), Err(Refused::Denied(_))));
    bench.change(&cap_key("none"), |cap| cap["spec"]["limit"] = 5.into()).unwrap();
    bench.map("x").unwrap();
    assert_eq!(bench.map("x").unwrap_err(), Refused::AlreadyExists);
    let untold = bench.create("", "configmaps", "a", "y", json!({"data": {"untold": ""}}));
    assert!(matches!(untold, Err(Refused::Denied(denials)) if denials[0].message.as_deref() == Some("must be told")));
    let broken = bench.create("", "configmaps", "a", "y", json!({"data": {"broken": ""}}));
    assert!(matches!(broken, Err(Refused::Unmeasurable { .. })), "a rule that fails denies");
    assert_eq!(bench.used("none").as_deref(), Some("1"));

    let key = ObjectKey::new(GroupResource::core("configmaps"), "a", "x");
    let value = bench.desk.get(&key).unwrap().value();
    let expect = Expect { revision: Some(1), uid: None };
    let stale = WriteKind::Update { draft: Draft::new(value).unwrap(), expect, status: false };
    assert!(matches!(bench.write(key.clone(), stale, false), Err(Refused::Conflict { .. })));
    let expect = Expect { revision: None, uid: Some(ledger::SubjectId(77)) };
    let other = bench.write(key, WriteKind::Delete { expect, last: None }, false);
    assert!(matches!(other, Err(Refused::UidMismatch { .. })));
}

#[test]
fn on_a_full_disk_only_what_makes_room_is_accepted() {
    let mut bench = Bench::new();
    bench.map("x").unwrap();
    bench.map("z").unwrap();
    let key = ObjectKey::new(GroupResource::core("configmaps"), "a", "x");
    let update = |bench: &mut Bench, change: &dyn Fn(&mut Value)| {
        let mut value = bench.desk.get(&key).unwrap().value();
        change(&mut value);
        let draft = Draft::new(value).unwrap();
        bench.write(key.clone(), WriteKind::Update { draft, expect: Expect::default(), status: false }, false)
    };
    update(&mut bench, &|value| value["data"] = json!({"k": "0123456789"})).unwrap();
    bench.desk.engine.set_room(Room { growth: false, ..Room::default() });
    let data = |text: &'static str| move |value: &mut Value| value["data"] = json!({"k": text});
    let leave = |value: &mut Value| value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(bench.map("y").unwrap_err(), Refused::NoSpace);
    // Growing, and as large as before: each would use the log up.
    assert_eq!(update(&mut bench, &data("0123456789+")).unwrap_err(), Refused::NoSpace);
    assert_eq!(update(&mut bench, &data("9876543210")).unwrap_err(), Refused::NoSpace);
    update(&mut bench, &data("01234")).unwrap();
    update(&mut bench, &leave).unwrap();
    // On its way out already: it does not get there by being written again.
    assert_eq!(update(&mut bench, &leave).unwrap_err(), Refused::NoSpace);
    bench.delete("configmaps", "x").unwrap();
    // A sign of life takes no room for good, unless it is used to store something.
    let lease = ObjectKey::new(GroupResource::new("coordination.k8s.io", "leases"), "a", "l");
    let renew = |bench: &mut Bench, holder: &str| bench.change(&lease, |value| value["spec"]["holder"] = json!(holder));
    bench.desk.engine.set_room(Room::default());
    bench.create("coordination.k8s.io", "leases", "a", "l", json!({"spec": {"holder": "one"}})).unwrap();
    bench.desk.engine.set_room(Room { growth: false, ..Room::default() });
    renew(&mut bench, "two").unwrap();
    renew(&mut bench, "another with a longer name").unwrap();
    assert_eq!(renew(&mut bench, &"x".repeat(5000)).unwrap_err(), Refused::NoSpace);
    bench.desk.engine.set_room(Room { growth: false, renewals: false, ..Room::default() });
    assert_eq!(renew(&mut bench, "another with a name that is longer still").unwrap_err(), Refused::NoSpace);
    // Once the log itself is used up, nothing is accepted, and nothing ends.
    bench.desk.engine.set_room(Room { writes: false, growth: false, renewals: false });
    assert_eq!(bench.delete("configmaps", "z").unwrap_err(), Refused::NoSpace);
    bench.desk.engine.set_room(Room::default());
    bench.delete("configmaps", "z").unwrap();
    bench.map("y").unwrap();
}

#[test]
fn a_dry_run_is_decided_and_leaves_no_trace() {
    let mut bench = Bench::new();
    bench.cap("one", json!({"limit": 1})).unwrap();
    let before = (bench.desk.revision(), bench.desk.engine.ledger.digest());
    let key = ObjectKey::new(GroupResource::core("configmaps"), "a", "x");
    let draft = bench.draft("a", "x", json!({}));
    bench.write(key.clone(), WriteKind::Create(draft), true).unwrap();
    assert_eq!((bench.desk.revision(), bench.desk.engine.ledger.digest()), before);
    bench.map("x").unwrap();
    let draft = bench.draft("a", "z", json!({}));
    let key = ObjectKey::new(GroupResource::core("configmaps"), "a", "z");
    assert!(matches!(bench.write(key, WriteKind::Create(draft), true), Err(Refused::Denied(_))));
}

#[test]
fn a_restart_finds_objects_revisions_and_usage_as_they_were() {
    let mut bench = Bench::new();
    bench.cap("two", json!({"limit": 2})).unwrap();
    bench.map("x").unwrap();
    bench.map("y").unwrap();
    bench.delete("configmaps", "x").unwrap();
    let before = (bench.desk.revision(), bench.desk.engine.ledger.digest(), bench.used("two"));
    let mut bench = bench.restart();
    assert_eq!((bench.desk.revision(), bench.desk.engine.ledger.digest(), bench.used("two")), before);
    bench.audit();
    bench.map("z").unwrap();
    assert!(matches!(bench.map("w"), Err(Refused::Denied(_))));
}

#[test]
fn a_cap_that_selects_namespaces_follows_their_labels() {
    let mut bench = Bench::new();
    bench.map("x").unwrap();
    bench.cap("gold", json!({"limit": 1, "tier": "gold"})).unwrap();
    assert_eq!(bench.used("gold").as_deref(), Some("0"));
    let namespace = ObjectKey::new(GroupResource::core("namespaces"), "", "a");
    bench.change(&namespace, |ns| ns["metadata"]["labels"] = json!({"tier": "gold"})).unwrap();
    assert_eq!(bench.used("gold").as_deref(), Some("1"));
    assert!(matches!(bench.map("y"), Err(Refused::Denied(_))));
    bench.change(&namespace, |ns| ns["metadata"]["labels"] = json!({"tier": "iron"})).unwrap();
    assert_eq!(bench.used("gold").as_deref(), Some("0"));
    bench.map("y").unwrap();
    bench.audit();
}

#[test]
fn a_removed_cap_lets_go_of_everything() {
    let mut bench = Bench::new();
    bench.cap("one", json!({"limit": 1})).unwrap();
    bench.map("x").unwrap();
    let expect = Expect::default();
    bench.write(cap_key("one"), WriteKind::Delete { expect, last: None }, false).unwrap();
    assert_eq!(bench.used("one"), None);
    bench.map("y").unwrap();
    bench.cap("one", json!({"limit": 1})).unwrap();
    assert_eq!(bench.used("one").as_deref(), Some("2"), "a new cap evicts nobody");
    bench.audit();
}

#[test]
fn status_follows_the_ledger_and_a_written_one_is_shown_and_then_mended() {
    let mut bench = Bench::new();
    bench.cap("two", json!({"limit": 2})).unwrap();
    let status = |bench: &Bench| bench.desk.get(&cap_key("two")).unwrap().value()["status"]["used"].clone();
    assert_eq!(status(&bench), Value::Null);
    bench.desk.publish(0);
    assert_eq!(status(&bench), "0");
    let before = bench.desk.revision();
    bench.map("x").unwrap();
    bench.desk.publish(0);
    assert_eq!(status(&bench), "1");
    assert_eq!(bench.desk.revision(), before + 2, "the map, and the status");

    let mut value = bench.desk.get(&cap_key("two")).unwrap().value();
    value["status"]["used"] = "99".into();
    let draft = Draft::new(value).unwrap();
    let update = WriteKind::Update { draft, expect: Expect::default(), status: true };
    bench.write(cap_key("two"), update, false).unwrap();
    bench.desk.publish(1);
    assert_eq!(status(&bench), "99", "shown for a while");
    assert!(bench.desk.status_is_written(&cap_key("two")));
    bench.desk.publish(60_000);
    assert_eq!(status(&bench), "1");
    assert!(!bench.desk.status_is_written(&cap_key("two")));
}

fn units(count: i64) -> Amount {
    Amount::from_units(count)
}
