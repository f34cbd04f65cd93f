//! What is admitted here and stored elsewhere counts from its admission on, until it is seen, given up, or over.

use ledger::{State, SubjectId};
use serde_json::{Value, json};

use super::toy::{GROUP, open};
use super::{company, *};

const UNTIL_MS: i64 = 10_000;

impl Bench {
    /// A hold for this object; a new one gets the next uid.
    fn holding(&mut self, key: &ObjectKey, object: Value, dry_run: bool, now_ms: i64) -> Result<Held, Refused> {
        let draft = match self.desk.get(key).map(|stored| stored.value()) {
            None => self.draft(&key.namespace, &key.name, object),
            Some(mut stored) => {
                object.as_object().unwrap().iter().for_each(|(field, value)| stored[field] = value.clone());
                Draft::new(stored).unwrap()
            }
        };
        self.hold_draft(key, draft, dry_run, now_ms)
    }

    fn hold_draft(&mut self, key: &ObjectKey, draft: Draft, dry_run: bool, now_ms: i64) -> Result<Held, Refused> {
        let (key, foresight, origin) = (key.clone(), Foresight::None, Origin::default());
        let expires_at_ms = now_ms.saturating_add(UNTIL_MS);
        let hold = Hold { key, draft, expires_at_ms, dry_run, now_ms, foresight, origin };
        self.desk.hold(hold).expect("no expression takes long here")
    }

    pub(super) fn hold_map(&mut self, name: &str) -> Result<SubjectId, Refused> {
        self.holding(&map(name), json!({}), false, 0).map(|held| {
            assert_eq!(held.expires_at_ms, Some(UNTIL_MS));
            SubjectId(self.uids)
        })
    }

    /// The object as it is stored elsewhere, told as something that happened.
    pub(super) fn seen(&mut self, key: &ObjectKey, uid: SubjectId, object: Value) {
        let mut value = object;
        value["metadata"] = json!({"name": &*key.name, "namespace": &*key.namespace, "uid": kinds::uid::text(uid)});
        let draft = Draft::new(value).unwrap();
        let kind = match self.desk.get(key) {
            None => WriteKind::Create(draft),
            Some(_) => WriteKind::Update { draft, expect: Expect::default(), status: true },
        };
        self.write(key.clone(), kind, false).unwrap();
    }

    /// Used and held of the only account of a policy.
    fn sums(&self, policy: &str) -> (i64, i64) {
        let accounts: Vec<_> = self.desk.engine.ledger.accounts_of(policy).collect();
        let whole = accounts.into_iter().filter_map(|one| self.desk.engine.ledger.balance(one)).next().unwrap();
        let units = |amount: Amount| i64::try_from(amount.nanos() / 1_000_000_000).unwrap();
        (units(whole.used), units(whole.held))
    }

    pub(super) fn capped(&self) -> (i64, i64) {
        self.sums(&policy_name(&caps(), "a", "cap"))
    }

    fn seats(&self) -> (i64, i64) {
        self.sums(&policy_name(&GroupResource::new(GROUP, "rooms"), "", "hall"))
    }
}

pub(super) fn map(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("configmaps"), "a", name)
}

fn booking(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::new(GROUP, "bookings"), "a", name)
}

fn capped(limit: i64) -> Bench {
    let mut bench = Bench::new();
    bench.cap("cap", json!({"limit": limit})).unwrap();
    bench
}

#[test]
fn what_is_held_is_nobody_elses_and_is_settled_once_when_the_object_is_written() {
    let mut bench = capped(2);
    let uid = bench.hold_map("x").unwrap();
    assert_eq!(bench.capped(), (0, 1));
    assert!(bench.desk.get(&map("x")).is_none(), "nothing is stored");
    bench.audit();
    bench.map("y").unwrap();
    assert!(matches!(bench.map("z"), Err(Refused::Denied(denials)) if denials[0].lines[0].held == units(1)));
    assert!(matches!(bench.hold_map("z"), Err(Refused::Denied(_))));
    bench.audit();
    bench.seen(&map("x"), uid, json!({}));
    assert_eq!(bench.capped(), (2, 0));
    bench.audit();
    bench.seen(&map("x"), uid, json!({"data": {"more": ""}}));
    bench.desk.publish(UNTIL_MS + 1);
    assert_eq!(bench.capped(), (2, 0), "there is nothing left to expire");
    assert!(!bench.desk.drop_hold(uid, UNTIL_MS + 1));
    bench.audit();
    assert_eq!(bench.desk.engine.ledger.next_expiry_ms(), None);
}

#[test]
fn a_hold_is_decided_as_the_write_would_be() {
    let mut bench = capped(5);
    let elsewhere = ObjectKey::new(GroupResource::core("configmaps"), "nowhere", "x");
    assert_eq!(bench.holding(&elsewhere, json!({}), false, 0), Err(Refused::NamespaceNotFound));
    let untold = bench.holding(&map("x"), json!({"data": {"untold": ""}}), false, 0);
    assert!(matches!(untold, Err(Refused::Denied(denials)) if denials[0].message.as_deref() == Some("must be told")));
    let broken = bench.holding(&map("x"), json!({"data": {"broken": ""}}), false, 0);
    assert!(matches!(broken, Err(Refused::Unmeasurable { .. })));
    // Where no policy looks nothing is held.
    let secret = ObjectKey::new(GroupResource::core("secrets"), "a", "x");
    assert_eq!(bench.holding(&secret, json!({}), false, 0).unwrap().expires_at_ms, None);
    // Another object had the name: it is gone where this one is stored.
    bench.map("x").unwrap();
    let draft = bench.draft("a", "x", json!({}));
    bench.hold_draft(&map("x"), draft, false, 0).unwrap();
    assert_eq!(bench.capped(), (1, 1));
    // A full disk has no room for holds either, and decisions count where they were made.
    bench.desk.engine.set_room(Room { writes: false, growth: false, renewals: false });
    assert_eq!(bench.hold_map("y").unwrap_err(), Refused::NoSpace);
    bench.desk.engine.set_room(Room::default());
    bench.audit();
}

#[test]
fn a_hold_that_is_over_wakes_who_waits_and_what_policies_keep_follows() {
    for how in ["time", "another write", "given up"] {
        let mut bench = open(3);
        let held = bench.holding(&booking("guest"), json!({"spec": {"seats": 2, "atOnce": true}}), false, 0).unwrap();
        let guest = SubjectId(bench.uids);
        assert_eq!((held.expires_at_ms, bench.seats()), (Some(UNTIL_MS), (0, 2)), "{how}");
        bench.book("large", json!({"seats": 3}));
        assert_eq!((bench.seats(), bench.menu()), ((0, 2), 0), "{how}: there is room for one");
        bench.audit();
        // Whoever runs the engine is told when to come back; a restart changes nothing.
        assert!(!bench.desk.is_due(UNTIL_MS - 1) && bench.desk.is_due(UNTIL_MS));
        let mut bench = bench.restart();
        assert!(bench.desk.is_due(UNTIL_MS), "{how}");
        bench.desk.publish(UNTIL_MS - 1);
        assert_eq!((bench.seats(), bench.menu()), ((0, 2), 0), "{how}");
        bench.audit();
        match how {
            "time" => drop(bench.desk.publish(UNTIL_MS)),
            "another write" => {
                let namespace = bench.draft("", "z", json!({}));
                let key = ObjectKey::new(GroupResource::core("namespaces"), "", "z");
                bench.write_at(UNTIL_MS, key, WriteKind::Create(namespace), false).unwrap();
            }
            _ => assert!(bench.desk.drop_hold(guest, 1)),
        }
        assert_eq!((bench.seats(), bench.menu()), ((3, 0), 3), "{how}: the large one is served, and its menu is there");
        bench.audit();
        assert_eq!(bench.desk.engine.ledger.subject(guest), None);
        bench.restart().audit();
    }
}

#[test]
fn a_hold_over_what_is_stored_keeps_the_larger_on_every_account() {
    let mut bench = open(5);
    let guest = booking("guest");
    bench.book("guest", json!({"seats": 2, "atOnce": true}));
    let uid = SubjectId(bench.uids);
    let hold = |bench: &mut Bench, seats: i64| {
        bench
            .holding(&guest, json!({"spec": {"seats": seats, "atOnce": true}}), false, 0)
            .map(|held| held.expires_at_ms)
    };
    assert_eq!(hold(&mut bench, 4), Ok(Some(UNTIL_MS)));
    assert_eq!((bench.seats(), bench.menu()), ((2, 2), 2));
    bench.audit();
    assert!(matches!(hold(&mut bench, 6), Err(Refused::Denied(_))));
    // Either may be what stays: the smaller one lets nobody in before it is seen.
    assert_eq!(hold(&mut bench, 1), Ok(Some(UNTIL_MS)));
    assert_eq!(bench.seats(), (2, 2), "the newest covers those before it");
    let mut bench = bench.restart();
    bench.audit();
    // Its room counts it again: what is stored is as it was, and the hold is, too.
    let hall = ObjectKey::new(GroupResource::new(GROUP, "rooms"), "", "hall");
    bench.change(&hall, |hall| hall["spec"]["opensMs"] = json!(5_000)).unwrap();
    assert_eq!(bench.seats(), (2, 2));
    bench.desk.publish(6_000);
    bench.audit();
    assert_eq!(bench.seats(), (2, 2));
    bench.seen(&guest, uid, json!({"spec": {"seats": 1, "atOnce": true}}));
    assert_eq!((bench.seats(), bench.menu()), ((1, 0), 1));
    // One that never happened leaves what was.
    bench.holding(&guest, json!({"spec": {"seats": 3, "atOnce": true}}), false, 6_000).unwrap();
    assert_eq!(bench.seats(), (1, 2));
    bench.desk.publish(6_000 + UNTIL_MS);
    assert_eq!((bench.seats(), bench.menu()), ((1, 0), 1));
    bench.audit();
    // What is deleted holds nothing any more.
    bench.holding(&guest, json!({"spec": {"seats": 3, "atOnce": true}}), false, 20_000).unwrap();
    bench.write_at(20_000, guest, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    assert_eq!((bench.seats(), bench.desk.engine.ledger.next_expiry_ms()), ((0, 0), None));
    bench.audit();
}

#[test]
fn whoever_may_wait_takes_its_place_when_it_is_written() {
    let mut bench = open(2);
    let held = bench.holding(&booking("early"), json!({"spec": {"seats": 9}}), false, 0).unwrap();
    assert_eq!((held.expires_at_ms, bench.seats()), (None, (0, 0)), "it may wait, so that nobody has to refuse it");
    bench.book("waiting", json!({"seats": 3}));
    let uid = SubjectId(bench.uids);
    bench.holding(&booking("waiting"), json!({"spec": {"seats": 1}}), false, 0).unwrap();
    assert!(bench.desk.engine.ledger.is_waiting(uid), "it stays where it stands");
    bench.audit();
}

#[test]
fn a_hold_that_is_only_tried_refused_or_repeated_leaves_no_trace() {
    let mut bench = capped(1);
    let before = bench.traces();
    let tried = bench.holding(&map("x"), json!({}), true, 0).unwrap();
    assert_eq!((tried.expires_at_ms, bench.traces()), (None, before.clone()));
    let draft = bench.draft("a", "x", json!({}));
    let again = Draft::new(draft.tree().into_owned()).unwrap();
    bench.hold_draft(&map("x"), draft, false, 0).unwrap();
    let before = bench.traces();
    let repeated = bench.hold_draft(&map("x"), again, false, 0).unwrap();
    assert_eq!((repeated.expires_at_ms, bench.traces()), (Some(UNTIL_MS), before.clone()));
    assert!(bench.holding(&map("y"), json!({}), true, 0).is_err());
    assert_eq!(bench.traces(), before);
    // One that is over before it begins is decided, and no more.
    let mut bench = capped(1);
    let draft = bench.draft("a", "x", json!({}));
    let (foresight, origin) = (Foresight::None, Origin::default());
    let over = Hold { key: map("x"), draft, expires_at_ms: 5, dry_run: false, now_ms: 5, foresight, origin };
    assert_eq!(bench.desk.hold(over).unwrap().unwrap().expires_at_ms, None);
    assert_eq!(bench.capped(), (0, 0));
    // A clock that is behind does not make it shorter.
    bench.desk.publish(50_000);
    assert_eq!(bench.holding(&map("x"), json!({}), false, 0).unwrap().expires_at_ms, Some(50_000 + UNTIL_MS));
    bench.audit();
}

#[test]
fn what_is_held_survives_a_start_that_measures_all_of_it_again() {
    let mut bench = capped(2);
    bench.map("x").unwrap();
    let uid = bench.hold_map("y").unwrap();
    bench.desk.keep();
    let mut loaded = bench.desk.loaded();
    loaded.facts.retain(|fact| !matches!(fact, Fact::Measuring(_)));
    loaded.facts.push(Fact::Measuring(1));
    let (engine, _) = Engine::start(loaded, families());
    assert!(matches!(engine.ledger.subject(uid).map(|view| view.state), Some(State::Held { .. })));
    engine.ledger.audit().unwrap();
    assert_eq!(engine.snapshot().audit().differences, Vec::<String>::new());
    let loaded = bench.desk.loaded();
    let stored = loaded.ledger.clone();
    let (engine, _) = Engine::start(loaded, families());
    assert_eq!(engine.verify(&stored, 0).problems, Vec::<String>::new(), "what is held is no stranger");
    engine_is_told(&mut bench);
}

/// A hold that nobody was told to come back for would never end.
fn engine_is_told(bench: &mut Bench) {
    let effects = bench.desk.engine.seal(&mut |_| {});
    assert_eq!(effects.due_ms, Some(UNTIL_MS));
}

#[test]
fn what_comes_with_others_is_not_held() {
    let mut bench = company::open(3);
    let before = bench.traces().but_for_refusals();
    match bench.holding(&map("visit"), json!({}), false, 0) {
        Err(Refused::Said { refusal, .. }) => assert!(refusal.message.contains("comes with other objects")),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.traces().but_for_refusals(), before);
    bench.audit();
}
