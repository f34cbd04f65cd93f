//! What is too much for one step is counted before it: exact from the commit on, whatever is written meanwhile, and without a
//! trace of it before.

use ledger::AccountKey;
use serde_json::{Value, json};

use super::*;

const QUOTA: &str = "quota.openshift.io";
const CAPSULE: &str = "capsule.clastix.io";

impl Bench {
    /// A bench where no more than two objects are counted at once.
    pub(super) fn narrow(families: Families) -> Bench {
        let mut bench = Bench::with(families);
        bench.desk.engine.count_at_once(2);
        bench
    }

    /// A write by a sender that goes on with what has to be counted before it; and how many slices that took.
    pub(super) fn write_at_length(
        &mut self,
        key: ObjectKey,
        kind: WriteKind,
        mut between: impl FnMut(&mut Bench, usize),
    ) -> (Result<Written, Refused>, usize) {
        let (mut kind, mut begin, mut slices) = (kind, false, 0);
        loop {
            let foresight = if slices < 100 { Foresight::Asked } else { Foresight::None };
            let write =
                Write { key: key.clone(), kind, dry_run: false, now_ms: 0, foresight, origin: Origin::default() };
            let answer = if begin { self.desk.stage(write) } else { self.desk.try_write(write) };
            let postponed = match answer {
                Ok(written) => return (written, slices),
                Err(postponed) => postponed,
            };
            match postponed.recount {
                None => panic!("no expression takes long here"),
                Some(Recount::ToBegin) => begin = true,
                Some(Recount::Begun(ticket)) => loop {
                    between(self, slices);
                    slices += 1;
                    if self.desk.count_on(ticket, Vec::new(), 0).is_last != Some(false) {
                        break;
                    }
                },
            }
            kind = postponed.kind;
        }
    }

    pub(super) fn create_at_length(
        &mut self,
        (group, resource, namespace, name): (&str, &str, &str, &str),
        object: Value,
        between: impl FnMut(&mut Bench, usize),
    ) -> (Result<Written, Refused>, usize) {
        let draft = self.draft(namespace, name, object);
        let key = ObjectKey::new(GroupResource::new(group, resource), namespace, name);
        self.write_at_length(key, WriteKind::Create(draft), between)
    }

    pub(super) fn change_at_length(
        &mut self,
        key: &ObjectKey,
        change: impl FnOnce(&mut Value),
        between: impl FnMut(&mut Bench, usize),
    ) -> (Result<Written, Refused>, usize) {
        let mut value = self.desk.get(key).unwrap().value();
        change(&mut value);
        let kind = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: false };
        self.write_at_length(key.clone(), kind, between)
    }

    fn fill(&mut self, namespace: &str, names: std::ops::Range<usize>) {
        for name in names {
            self.create("", "configmaps", namespace, &format!("m{name}"), json!({})).unwrap();
        }
    }

    /// Accounts that are no policy's.
    fn apart(&self) -> usize {
        self.desk.engine.ledger.balances().filter(|(key, _)| retire::is_nobodys(&key.policy)).count()
    }

    /// Lets go of all that is retired, and finds nothing left, nothing wrong.
    pub(super) fn swept(&mut self) {
        self.swept_at(60_000);
    }

    /// The same before any hold is over.
    fn swept_but_held(&mut self) {
        self.swept_at(0);
    }

    fn swept_at(&mut self, now_ms: i64) {
        let mut steps = 0;
        while self.desk.publish(now_ms) > 0 {
            steps += 1;
            assert!(steps < 1000, "there is no end to it");
        }
        assert_eq!(self.apart(), 0, "something is left of what is gone");
        self.audit();
    }
}

fn namespace(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("namespaces"), "", name)
}

#[test]
fn a_policy_over_many_objects_is_counted_in_slices_and_exact_when_it_is_there() {
    let mut bench = Bench::narrow(families());
    bench.fill("a", 0..9);
    let mut made = 9;
    let (written, slices) =
        bench.create_at_length(("example.com", "caps", "a", "cap"), json!({"spec": {"limit": 3}}), |bench, slice| {
            assert_eq!(bench.used("cap"), None, "nobody is told before it is there");
            // Before and after what is counted already; nothing is refused that is not limited yet.
            bench.map(&format!("a{slice}")).unwrap();
            bench.map(&format!("z{slice}")).unwrap();
            bench.delete("configmaps", &format!("m{slice}")).unwrap();
            made += 1;
            bench.audit();
        });
    written.unwrap();
    assert!(slices > 4, "{slices}");
    assert_eq!(bench.used("cap"), Some(made.to_string()));
    assert!(matches!(bench.map("more"), Err(Refused::Denied(_))), "it is in force");
    bench.audit();
    bench.swept();
    assert_eq!(bench.desk.engine.ledger.accounts_open(), 1);
    let mut bench = bench.restart();
    assert_eq!(bench.used("cap"), Some(made.to_string()));
    bench.audit();
}

#[test]
fn few_objects_are_counted_in_the_step_and_so_are_all_where_nobody_sends_again() {
    let mut bench = Bench::narrow(families());
    bench.fill("a", 0..2);
    let (written, slices) =
        bench.create_at_length(("example.com", "caps", "a", "few"), json!({"spec": {"limit": 3}}), |_, _| {});
    written.unwrap();
    assert_eq!((slices, bench.used("few").as_deref()), (0, Some("2")));
    bench.fill("a", 2..3);
    bench.cap("at-once", json!({"limit": 9})).unwrap();
    assert_eq!(bench.used("at-once").as_deref(), Some("3"));
    // A limit alone counts nothing again.
    let (written, slices) = bench.change_at_length(&cap_key("few"), |cap| cap["spec"]["limit"] = json!(9), |_, _| {});
    written.unwrap();
    assert_eq!(slices, 0);
    bench.audit();
}

#[test]
fn few_objects_that_are_large_are_counted_in_slices_too() {
    let mut bench = Bench::with(families());
    for name in ["one", "two", "three"] {
        let large = json!({"data": {"text": "x".repeat(400_000)}});
        bench.create("", "configmaps", "a", name, large).unwrap();
    }
    let (written, slices) =
        bench.create_at_length(("example.com", "caps", "a", "cap"), json!({"spec": {"limit": 9}}), |_, _| {});
    written.unwrap();
    assert_eq!((slices, bench.used("cap").as_deref()), (3, Some("3")));
    bench.audit();
}

#[test]
fn a_write_that_is_put_off_or_tried_leaves_no_trace() {
    let mut bench = Bench::narrow(families());
    bench.fill("a", 0..9);
    let digest = bench.desk.engine.ledger.digest();
    let draft = bench.draft("a", "cap", json!({"spec": {"limit": 3}}));
    let write = |kind, dry_run| Write {
        key: cap_key("cap"),
        kind,
        dry_run,
        now_ms: 0,
        foresight: Foresight::Asked,
        origin: Origin::default(),
    };
    let tried = bench.desk.stage(write(WriteKind::Create(draft), true)).expect("a trial counts nothing");
    tried.unwrap();
    let draft = bench.draft("a", "cap", json!({"spec": {"limit": 3}}));
    let postponed = bench.desk.try_write(write(WriteKind::Create(draft), false)).expect_err("it is too much");
    assert_eq!(postponed.recount, Some(Recount::ToBegin));
    assert_eq!(bench.desk.engine.ledger.digest(), digest);
    assert_eq!(bench.desk.count_on(1, Vec::new(), 0).is_last, None, "nothing was begun");
}

#[test]
fn an_edited_policy_has_what_it_counts_now_and_nothing_of_before() {
    let mut bench = Bench::narrow(families());
    bench.create("", "namespaces", "", "b", json!({"labels": {"tier": "gold"}})).unwrap();
    bench.fill("a", 0..7);
    bench.fill("b", 0..5);
    bench.cap("cap", json!({"limit": 9})).unwrap();
    let select = |cap: &mut Value| cap["spec"] = json!({"limit": 6, "tier": "gold"});
    let (written, slices) = bench.change_at_length(&cap_key("cap"), select, |bench, slice| {
        let counted = 7 + slice;
        assert_eq!(bench.used("cap"), Some(counted.to_string()), "the old rules are in force");
        bench.map(&format!("x{slice}")).map_or_else(|_| assert!(counted >= 9), drop);
        bench.audit();
    });
    written.unwrap();
    assert!(slices >= 2, "{slices}");
    assert_eq!(bench.used("cap").as_deref(), Some("5"));
    bench.audit();
    bench.map("free").unwrap();
    bench.create("", "configmaps", "b", "sixth", json!({})).unwrap();
    assert!(bench.create("", "configmaps", "b", "seventh", json!({})).is_err());
    assert!(bench.apart() > 0, "what it had is let go of later");
    bench.swept();
    assert_eq!(bench.used("cap").as_deref(), Some("6"));
}

#[test]
fn a_relabelled_namespace_comes_and_goes_with_all_its_objects() {
    let mut bench = Bench::narrow(Families::new(vec![Arc::new(Caps)]));
    bench.create("", "namespaces", "", "b", json!({"labels": {"tier": "gold"}})).unwrap();
    bench.fill("a", 0..7);
    bench.fill("b", 0..3);
    for (name, tier) in [("gold", "gold"), ("gold-too", "gold"), ("iron", "iron")] {
        bench.cap(name, json!({"limit": 4, "tier": tier})).unwrap();
    }
    let used = |bench: &Bench| ["gold", "gold-too", "iron"].map(|cap| bench.used(cap).unwrap());
    assert_eq!(used(&bench), ["3", "3", "0"]);
    let mut more = 0;
    for (tier, gold, iron) in [("gold", 10, 0), ("iron", 3, 7), ("none", 3, 0)] {
        let relabel = |a: &mut Value| a["metadata"]["labels"] = json!({"tier": tier});
        let (written, slices) = bench.change_at_length(&namespace("a"), relabel, |bench, _| {
            bench.audit();
            // Where no cap has room nobody gets in; that is not the shadow's doing.
            more += usize::from(bench.map(&format!("n{more}")).is_ok());
        });
        written.unwrap();
        assert!(slices > 0, "{tier}");
        let iron = if iron == 0 { 0 } else { iron + more };
        let gold = if gold == 3 { 3 } else { gold + more };
        assert_eq!(used(&bench), [gold, gold, iron].map(|used| used.to_string()), "{tier}");
        bench.audit();
    }
    bench.swept();
    let mut bench = bench.restart();
    bench.audit();
}

#[test]
fn a_deleted_policy_is_gone_at_once_and_its_charges_little_by_little() {
    let mut bench = Bench::narrow(families());
    bench.cap("cap", json!({"limit": 9})).unwrap();
    bench.fill("a", 0..9);
    let delete = WriteKind::Delete { expect: Expect::default(), last: None };
    bench.write(cap_key("cap"), delete, false).unwrap();
    assert_eq!((bench.used("cap"), bench.apart()), (None, 1));
    bench.audit();
    bench.fill("a", 9..12);
    bench.delete("configmaps", "m0").unwrap();
    // One of the same name is another one.
    bench.cap("cap", json!({"limit": 99})).unwrap();
    assert_eq!(bench.used("cap").as_deref(), Some("11"));
    bench.audit();
    let mut again = bench.restart();
    again.audit();
    again.swept();
    assert_eq!((again.used("cap").as_deref(), again.desk.engine.ledger.accounts_open()), (Some("11"), 1));
}

#[test]
fn whoever_goes_away_leaves_nothing_behind() {
    for how in ["time", "another", "restart", "full disk"] {
        let mut bench = Bench::narrow(families());
        bench.fill("a", 0..9);
        let draft = bench.draft("a", "cap", json!({"spec": {"limit": 3}}));
        let kind = WriteKind::Create(draft);
        let write = Write {
            key: cap_key("cap"),
            kind,
            dry_run: false,
            now_ms: 0,
            foresight: Foresight::Asked,
            origin: Origin::default(),
        };
        let postponed = bench.desk.stage(write).expect_err("it is too much");
        let Some(Recount::Begun(ticket)) = postponed.recount else { panic!("{postponed:?}") };
        assert_eq!(bench.desk.count_on(ticket, Vec::new(), 0).is_last, Some(false));
        assert_eq!(bench.apart(), 1, "{how}");
        match how {
            "time" => drop(bench.desk.publish(60_000)),
            "another" => {
                let other = json!({"spec": {"limit": 99}});
                bench.create_at_length(("example.com", "caps", "a", "other"), other, |_, _| {}).0.unwrap();
                assert_eq!(bench.used("other").as_deref(), Some("9"));
            }
            "full disk" => {
                bench.desk.engine.set_room(Room { writes: true, growth: false, renewals: true });
                assert_eq!(bench.desk.count_on(ticket, Vec::new(), 0).is_last, None);
                bench.desk.engine.set_room(Room::default());
            }
            _ => bench = bench.restart(),
        }
        assert_eq!(bench.desk.count_on(ticket, Vec::new(), 60_000).is_last, None, "{how}");
        bench.swept();
        assert_eq!(bench.used("cap"), None, "{how}");
        bench.fill("a", 10..14);
        bench.audit();
    }
}

#[test]
fn what_became_another_policy_meanwhile_is_counted_again() {
    let mut bench = Bench::narrow(families());
    bench.create("", "namespaces", "", "b", json!({"labels": {"tier": "gold"}})).unwrap();
    bench.fill("a", 0..5);
    bench.fill("b", 0..4);
    bench.cap("cap", json!({"limit": 99})).unwrap();
    let select = |cap: &mut Value| cap["spec"] = json!({"limit": 6, "tier": "gold"});
    // The policy is deleted, and made anew with other rules, in the middle of it: by then the update is of an object that is gone.
    let (written, _) = bench.change_at_length(&cap_key("cap"), select, |bench, slice| {
        if slice == 1 {
            let delete = WriteKind::Delete { expect: Expect::default(), last: None };
            bench.write(cap_key("cap"), delete, false).unwrap();
        }
    });
    assert!(matches!(written, Err(Refused::NotFound)));
    // What was counted for it is still good for the same policy.
    let spec = json!({"spec": {"limit": 99, "tier": "gold"}});
    bench.fill("b", 4..5);
    let (written, slices) = bench.create_at_length(("example.com", "caps", "a", "cap"), spec, |_, _| {});
    written.unwrap();
    assert_eq!((slices, bench.used("cap").as_deref()), (0, Some("5")));
    bench.swept();
}

#[test]
fn a_namespace_that_comes_under_a_policy_while_that_is_counted_is_counted_as_well() {
    let mut bench = Bench::narrow(families());
    bench.create("", "namespaces", "", "b", json!({"labels": {"tier": "gold"}})).unwrap();
    bench.fill("a", 0..5);
    bench.fill("b", 0..4);
    let spec = json!({"spec": {"limit": 99, "tier": "gold"}});
    let (written, _) = bench.create_at_length(("example.com", "caps", "a", "cap"), spec, |bench, slice| {
        if slice == 1 {
            bench.change(&namespace("a"), |a| a["metadata"]["labels"] = json!({"tier": "gold"})).unwrap();
        }
    });
    written.unwrap();
    assert_eq!(bench.used("cap").as_deref(), Some("9"));
    bench.swept();
}

#[test]
fn objects_that_cannot_be_measured_keep_what_they_had() {
    let mut bench = Bench::narrow(families());
    bench.create("", "namespaces", "", "b", json!({"labels": {"tier": "gold"}})).unwrap();
    bench.fill("b", 0..4);
    let broken = json!({"data": {"broken": "yes"}});
    bench.create("", "configmaps", "b", "odd", broken).unwrap();
    let spec = json!({"spec": {"limit": 99, "tier": "gold"}});
    bench.create_at_length(("example.com", "caps", "a", "cap"), spec, |_, _| {}).0.unwrap();
    assert_eq!(bench.used("cap").as_deref(), Some("4"), "what cannot be measured is not counted");
    bench.fill("a", 0..4);
    let all = |cap: &mut Value| cap["spec"] = json!({"limit": 99});
    bench.change_at_length(&cap_key("cap"), all, |_, _| {}).0.unwrap();
    assert_eq!(bench.used("cap").as_deref(), Some("4"));
    while bench.desk.publish(60_000) > 0 {}
    assert_eq!(bench.apart(), 0);
}

impl Bench {
    /// A status that tells of something no cap can weigh: it has happened, and is stored.
    fn break_it(&mut self, key: &ObjectKey, dry_run: bool) {
        let mut value = self.desk.get(key).unwrap().value();
        value["data"] = json!({"broken": "yes"});
        let kind = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: true };
        self.write(key.clone(), kind, dry_run).unwrap();
    }
}

#[test]
fn who_only_tries_or_is_refused_does_not_make_an_edit_one_step() {
    let mut bench = Bench::narrow(families());
    bench.create("", "namespaces", "", "b", json!({"labels": {"tier": "gold"}})).unwrap();
    bench.fill("b", 0..30);
    bench.cap("cap", json!({"limit": 99})).unwrap();
    bench.map("x").unwrap();
    let within_b = |name: &str| ObjectKey::new(GroupResource::core("configmaps"), "b", name);
    let broken =
        |bench: &mut Bench, name: &str| WriteKind::Create(bench.draft("b", name, json!({"data": {"broken": ""}})));
    let (mut sequence, mut looked) = (0, 0);
    let select = |cap: &mut Value| cap["spec"] = json!({"limit": 99, "tier": "gold"});
    let (written, slices) = bench.change_at_length(&cap_key("cap"), select, |bench, _| {
        let before = bench.traces();
        let tried = broken(bench, "odd");
        bench.write(within_b("odd"), tried, true).unwrap();
        bench.break_it(&within_b("m3"), true);
        let refused = vec![(within_b("odd"), broken(bench, "odd")), (within_b("m0"), broken(bench, "m0"))];
        let refused = Writes { writes: refused, dry_run: false, now_ms: 0, origin: Origin::default() };
        assert_eq!(bench.desk.write_all(refused).unwrap_err().1, Refused::AlreadyExists);
        assert_eq!(bench.traces(), before, "nothing tells that anybody asked");
        (sequence, looked) = (bench.desk.engine.ledger.sequence(), looked + 1);
    });
    written.unwrap();
    assert!(slices > 10 && looked == slices, "{slices}");
    let taken = bench.desk.engine.ledger.sequence() - sequence;
    assert!(taken < 15, "the last slice and the edit together took {taken} steps of the ledger");
    assert_eq!(bench.used("cap").as_deref(), Some("30"));
    bench.swept();
}

#[test]
fn what_cannot_be_measured_is_carried_over_and_nothing_else_is_counted_again() {
    let mut bench = Bench::narrow(families());
    bench.create("", "namespaces", "", "b", json!({"labels": {"tier": "gold"}})).unwrap();
    bench.change(&namespace("a"), |a| a["metadata"]["labels"] = json!({"tier": "gold"})).unwrap();
    bench.cap("cap", json!({"limit": 99, "tier": "gold"})).unwrap();
    bench.fill("a", 0..30);
    bench.fill("b", 0..3);
    let map = holds::map;
    bench.break_it(&map("m1"), false);
    assert_eq!(bench.used("cap").as_deref(), Some("33"), "it keeps what it had");
    let mut sequence = 0;
    let narrow = |cap: &mut Value| cap["spec"] = json!({"limit": 98});
    let (written, slices) = bench.change_at_length(&cap_key("cap"), narrow, |bench, slice| {
        // Some that were counted, and some that were not; one of them can be measured again, and one is gone.
        match slice {
            3 => (0..30).step_by(7).for_each(|number| bench.break_it(&map(&format!("m{number}")), false)),
            5 => drop(bench.change(&map("m7"), |map| map["data"] = json!({})).unwrap()),
            6 => drop(bench.delete("configmaps", "m14").unwrap()),
            _ => {}
        }
        sequence = bench.desk.engine.ledger.sequence();
    });
    written.unwrap();
    assert!(slices > 10, "{slices}");
    let taken = bench.desk.engine.ledger.sequence() - sequence;
    assert!(taken < 20, "the last slice and the edit together took {taken} steps of the ledger");
    assert_eq!(bench.used("cap").as_deref(), Some("29"));
    while bench.desk.publish(60_000) > 0 {}
    assert_eq!((bench.apart(), bench.used("cap").as_deref()), (0, Some("29")));
    bench.desk.engine.ledger.audit().unwrap();
    assert_eq!(
        bench.report().differing,
        8,
        "of each of the four is told that it cannot be measured, and that it is charged"
    );
    for number in [0, 1, 21, 28] {
        bench.delete("configmaps", &format!("m{number}")).unwrap();
    }
    assert_eq!(bench.used("cap").as_deref(), Some("25"));
    bench.audit();
}

#[test]
fn what_is_held_is_carried_over_to_the_policy_that_takes_the_place() {
    let mut bench = Bench::narrow(families());
    bench.change(&namespace("a"), |a| a["metadata"]["labels"] = json!({"tier": "gold"})).unwrap();
    bench.cap("cap", json!({"limit": 12, "tier": "gold"})).unwrap();
    bench.fill("a", 0..9);
    let early = bench.hold_map("early").unwrap();
    let mut late = None;
    let narrow = |cap: &mut Value| cap["spec"] = json!({"limit": 11});
    let (written, _) = bench.change_at_length(&cap_key("cap"), narrow, |bench, slice| {
        if slice == 2 {
            late = bench.hold_map("late").ok();
        }
    });
    written.unwrap();
    assert_eq!(bench.capped(), (9, 2));
    assert!(matches!(bench.map("more"), Err(Refused::Denied(_))), "what is held is nobody else's");
    bench.swept_but_held();
    bench.seen(&holds::map("early"), early, json!({}));
    assert_eq!(bench.capped(), (10, 1));
    assert!(bench.desk.drop_hold(late.unwrap(), 0));
    assert_eq!(bench.capped(), (10, 0));
    bench.swept();
}

/// A small world under every kind of quota that may be staged, in which anything happens while something is counted.
struct Weather {
    bench: Bench,
    state: u64,
    now: u64,
}

impl Weather {
    fn next(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn tier(&mut self) -> &'static str {
        ["gold", "iron"][self.next(2) as usize]
    }

    /// What to write: its key, and its fields; none is to be deleted.
    fn any(&mut self) -> (ObjectKey, Option<Value>) {
        let key = |group: &str, resource: &str, namespace: &str, name: String| {
            ObjectKey::new(GroupResource::new(group, resource), namespace, &name)
        };
        let (number, within) = (self.next(2), format!("n{}", self.next(3)));
        let hard = json!({"count/configmaps": (1 + self.next(30)).to_string(), "pods": "9", "resourcequotas": "5"});
        let tier = self.tier();
        let gone = self.next(4) == 0;
        let (key, fields) = match self.next(10) {
            0..=3 => (
                key("", "configmaps", &within, format!("c{}", self.next(12))),
                json!({"data": {"at": self.next(3).to_string()}}),
            ),
            4 | 5 => {
                let spec = json!({"selector": {"labels": {"matchLabels": {"tier": tier}}}, "quota": {"hard": hard}});
                (key(QUOTA, "clusterresourcequotas", "", format!("k{number}")), json!({"spec": spec}))
            }
            6 => {
                let source = json!({"version": "v1", "kind": "ConfigMap", "op": "count"});
                let spec = json!({"limit": "40", "sources": [source], "namespaceSelectors": [{"matchLabels": {"tier": tier}}]});
                (key(CAPSULE, "globalcustomquotas", "", format!("g{number}")), json!({"spec": spec}))
            }
            7 => (key("", "resourcequotas", &within, format!("q{number}")), json!({"spec": {"hard": hard}})),
            _ => return (namespace(&within), Some(json!({"labels": {"tier": tier}}))),
        };
        (key, (!gone).then_some(fields))
    }

    fn kind(&mut self, key: &ObjectKey, fields: Option<Value>) -> Option<WriteKind> {
        let stored = self.bench.desk.get(key).map(|object| object.value());
        match (stored, fields) {
            (None, None) => None,
            (Some(_), None) => Some(WriteKind::Delete { expect: Expect::default(), last: None }),
            (None, Some(fields)) => Some(WriteKind::Create(self.bench.draft(&key.namespace, &key.name, fields))),
            (Some(mut value), Some(fields)) => {
                for (field, new) in fields.as_object().unwrap() {
                    match field.as_str() {
                        "labels" => value["metadata"][field] = new.clone(),
                        _ => value[field] = new.clone(),
                    }
                }
                let draft = Draft::new(value).unwrap();
                Some(WriteKind::Update { draft, expect: Expect::default(), status: false })
            }
        }
    }

    /// One write, at length or at once; how many slices it took.
    fn step(&mut self, at_length: bool) -> usize {
        let (key, fields) = self.any();
        let Some(mut kind) = self.kind(&key, fields) else { return 0 };
        self.now += 100;
        let (mut begin, mut slices) = (false, 0);
        loop {
            let foresight = if at_length && slices < 200 { Foresight::Asked } else { Foresight::None };
            let write = Write {
                key: key.clone(),
                kind,
                dry_run: false,
                now_ms: self.now as i64,
                foresight,
                origin: Origin::default(),
            };
            let answer = if begin { self.bench.desk.stage(write) } else { self.bench.desk.try_write(write) };
            let postponed = match answer {
                Ok(written) => {
                    assert!(!matches!(written, Err(Refused::Bug(_))), "{written:?}");
                    return slices;
                }
                Err(postponed) => postponed,
            };
            kind = postponed.kind;
            begin = true;
            let Some(Recount::Begun(ticket)) = postponed.recount else { continue };
            loop {
                slices += 1;
                match self.next(10) {
                    0..=2 => drop(self.step(false)),
                    3 => {
                        let again = std::mem::replace(&mut self.bench, Bench { desk: Desk::new(families()), uids: 0 })
                            .restart();
                        self.bench = again;
                        self.bench.desk.engine.count_at_once(2);
                    }
                    4 => drop(self.bench.desk.publish(self.now as i64)),
                    _ => {}
                }
                self.judge();
                if self.bench.desk.count_on(ticket, Vec::new(), self.now as i64).is_last != Some(false) {
                    break;
                }
            }
        }
    }

    /// What the ledger says is what the audit makes of the objects; and what a count by hand does, of one kind of quota.
    fn judge(&mut self) {
        self.bench.audit();
        let engine = &self.bench.desk.engine;
        let (quotas, maps) = (GroupResource::new(QUOTA, "clusterresourcequotas"), GroupResource::core("configmaps"));
        for quota in self.bench.desk.list(&quotas) {
            let tier = &quota.value()["spec"]["selector"]["labels"]["matchLabels"]["tier"];
            let within = |map: &Object| self.bench.desk.get(&namespace(&map.key.namespace)).unwrap().value();
            let maps = self.bench.desk.list(&maps);
            let counted = maps.filter(|map| within(map)["metadata"]["labels"]["tier"] == *tier).count();
            let name = policy_name(&quotas, "", &quota.key.name);
            let account = engine.ledger.account(&AccountKey::new(&name, "count/configmaps", "")).unwrap();
            assert_eq!(engine.ledger.balance(account).unwrap().used, units(counted as i64), "{name}");
            let shown = self.bench.desk.of(&name);
            let shown = shown.iter().find(|line| &*line.resource == "count/configmaps" && line.bucket.is_empty());
            assert_eq!(shown.unwrap().balance.used, units(counted as i64), "{name}");
        }
    }
}

#[test]
fn whatever_happens_meanwhile_what_is_counted_is_exact() {
    let mut slices = 0;
    for seed in 0..SEEDS {
        let bench = Bench::narrow(families::all(&families::Settings::default()));
        let mut weather = Weather { bench, state: seed, now: 0 };
        for name in ["n0", "n1", "n2"] {
            let tier = weather.tier();
            weather.bench.create("", "namespaces", "", name, json!({"labels": {"tier": tier}})).unwrap();
            weather.bench.fill(name, 0..3);
        }
        for _ in 0..STEPS {
            slices += weather.step(true);
            weather.judge();
        }
        weather.bench.desk.publish(i64::MAX / 2);
        weather.bench.swept();
    }
    assert!(slices > 10 * SEEDS as usize, "hardly anything was staged: {slices}");
}

const SEEDS: u64 = 60;
const STEPS: usize = 25;

/// A folder that was left, or backed up, in the middle of it is sound.
#[test]
fn what_is_prepared_or_let_go_of_is_no_damage() {
    let verified = |bench: &mut Bench| {
        let (loaded, stored) = (bench.desk.loaded(), bench.desk.loaded().ledger);
        Engine::start(loaded, families()).0.verify(&stored, 0).problems
    };
    let mut bench = Bench::narrow(families());
    bench.fill("a", 0..9);
    let (written, _) =
        bench.create_at_length(("example.com", "caps", "a", "cap"), json!({"spec": {"limit": 30}}), |bench, _| {
            assert!(bench.apart() > 0);
            assert_eq!(verified(bench), Vec::<String>::new());
        });
    written.unwrap();
    bench.write(cap_key("cap"), WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    assert!(bench.apart() > 0, "it is let go of in parts");
    assert_eq!(verified(&mut bench), Vec::<String>::new());
    bench.swept();
}
