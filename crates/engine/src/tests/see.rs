//! What others store is seen, counted as it is and not told back; what follows from it is told.

use ledger::SubjectId;
use serde_json::{Value, json};

use super::holds::map;
use super::toy::{GROUP, open};
use super::*;

const LATER_MS: i64 = 1_000_000;

impl Bench {
    /// An object as it is stored elsewhere.
    fn there(&mut self, key: &ObjectKey, uid: SubjectId, object: Value, keeps_hold: bool) {
        let mut value = object;
        let labels = value["labels"].take();
        value["metadata"] = json!({"name": &*key.name, "namespace": &*key.namespace, "uid": kinds::uid::text(uid)});
        value["metadata"]["labels"] = labels;
        let draft = Some(Draft::new(value).unwrap());
        self.desk.see(Sight { key: key.clone(), draft, keeps_hold, now_ms: 0 });
    }

    fn gone(&mut self, key: &ObjectKey) {
        self.desk.see(Sight { key: key.clone(), draft: None, keeps_hold: false, now_ms: 0 });
    }

    fn hold_as(&mut self, key: &ObjectKey, uid: SubjectId, object: Value) -> Result<Held, Refused> {
        let mut value = object;
        value["metadata"] = json!({"name": &*key.name, "namespace": &*key.namespace, "uid": kinds::uid::text(uid)});
        let (draft, foresight) = (Draft::new(value).unwrap(), Foresight::None);
        let (key, origin) = (key.clone(), Origin::default());
        let hold = Hold { key, draft, expires_at_ms: LATER_MS, dry_run: false, now_ms: 0, foresight, origin };
        self.desk.hold(hold).expect("no expression takes long here")
    }
}

/// One cap over a namespace, all of it seen.
fn seen(limit: i64) -> Bench {
    let mut bench = Bench { desk: Desk::new(families()), uids: 0 };
    bench.there(&ObjectKey::new(GroupResource::core("namespaces"), "", "a"), SubjectId(1), json!({}), false);
    bench.there(&cap_key("cap"), SubjectId(2), json!({"spec": {"limit": limit}}), false);
    bench
}

#[test]
fn what_is_seen_is_counted_as_it_is_whatever_the_limit_and_let_go_of_when_it_is_gone() {
    let mut bench = seen(1);
    for uid in 10..13 {
        bench.there(&map(&format!("m{uid}")), SubjectId(uid), json!({}), false);
    }
    assert_eq!(bench.capped(), (3, 0));
    assert!(matches!(bench.hold_as(&map("more"), SubjectId(20), json!({})), Err(Refused::Denied(_))));
    bench.there(&map("m10"), SubjectId(10), json!({"data": {"again": ""}}), false);
    assert_eq!(bench.capped(), (3, 0), "the same object");
    bench.there(&map("m10"), SubjectId(14), json!({}), false);
    assert_eq!(bench.capped(), (3, 0), "another in its place");
    assert_eq!(bench.desk.engine.ledger.subject(SubjectId(10)), None);
    bench.audit();
    for name in ["m10", "m11", "m12", "never"] {
        bench.gone(&map(name));
        bench.audit();
    }
    assert_eq!(bench.capped(), (0, 0));
    bench.hold_as(&map("more"), SubjectId(20), json!({})).unwrap();
    bench.gone(&cap_key("cap"));
    assert_eq!(
        bench.desk.engine.ledger.balances().count(),
        0,
        "a policy that is gone limits nothing, and holds nothing"
    );
    bench.audit();
}

/// Used and held of all seats.
fn sums(bench: &Bench) -> (Amount, Amount) {
    let ledger = &bench.desk.engine.ledger;
    let hall = policy_name(&GroupResource::new(GROUP, "rooms"), "", "hall");
    let whole = ledger.accounts_of(&hall).find(|one| ledger.key(*one).unwrap().bucket.is_empty());
    let balance = ledger.balance(whole.unwrap()).unwrap();
    (balance.used, balance.held)
}

#[test]
fn a_sight_decides_a_hold_or_leaves_it_beside_what_is_there() {
    let mut bench = open(9);
    let key = ObjectKey::new(GroupResource::new(GROUP, "bookings"), "a", "guest");
    let uid = SubjectId(77);
    let seats = |count: i64| json!({"spec": {"seats": count, "atOnce": true}});
    bench.hold_as(&key, uid, seats(2)).unwrap();
    assert_eq!(sums(&bench), (units(0), units(2)));
    bench.there(&key, uid, seats(2), false);
    assert_eq!(sums(&bench), (units(2), units(0)), "it is stored");
    bench.hold_as(&key, uid, seats(6)).unwrap();
    bench.there(&key, uid, seats(3), true);
    assert_eq!(sums(&bench), (units(3), units(3)), "it may still be stored");
    bench.audit();
    let mut bench = bench.restart();
    bench.audit();
    bench.there(&key, uid, seats(3), false);
    assert_eq!(sums(&bench), (units(3), units(0)), "it was not");
    // Whoever took its place never held it.
    bench.hold_as(&key, uid, seats(6)).unwrap();
    bench.there(&key, SubjectId(78), seats(1), true);
    assert_eq!(sums(&bench), (units(1), units(0)));
    bench.hold_as(&key, SubjectId(78), seats(5)).unwrap();
    bench.gone(&key);
    assert_eq!(sums(&bench), (units(0), units(0)));
    bench.audit();
}

#[test]
fn what_is_seen_is_not_told_and_what_follows_from_it_is() {
    let mut bench = open(9);
    let told = |bench: &mut Bench| -> Vec<String> {
        let told = bench.desk.engine.take_writes().map(|one| format!("{:?} {}", one.kind, one.object.key.name));
        told.collect()
    };
    let key = ObjectKey::new(GroupResource::new(GROUP, "bookings"), "a", "guest");
    let booking = |seats: i64| {
        let uid = kinds::uid::text(SubjectId(77));
        let value = json!({"metadata": {"name": "guest", "namespace": "a", "uid": uid}, "spec": {"seats": seats}});
        Some(Draft::new(value).unwrap())
    };
    let see = |bench: &mut Bench, draft| {
        bench.desk.engine.see(Sight { key: key.clone(), draft, keeps_hold: false, now_ms: 0 });
    };
    see(&mut bench, booking(2));
    assert_eq!(told(&mut bench), ["Modified menu"], "which the room keeps");
    see(&mut bench, booking(3));
    assert_eq!(told(&mut bench), ["Modified menu"]);
    see(&mut bench, None);
    assert_eq!(told(&mut bench), ["Modified menu"]);
    let mut bench = seen(1);
    bench.desk.engine.publish_status(0);
    assert_eq!(told(&mut bench), ["Modified cap"], "what its status says");
}

#[test]
fn a_start_counts_again_what_was_listed_and_keeps_what_is_held_for_others() {
    let mut bench = seen(3);
    bench.there(&map("m"), SubjectId(10), json!({}), false);
    bench.hold_as(&map("held"), SubjectId(11), json!({})).unwrap();
    let mut loaded = bench.desk.loaded();
    // Not measured by anybody: what was stored meanwhile is not known.
    loaded.facts.clear();
    loaded.objects.retain(|object| object.uid != SubjectId(10));
    let (engine, _) = Engine::start(loaded, families());
    bench.desk.engine = engine;
    assert_eq!(bench.capped(), (0, 1));
    assert_eq!(bench.report().differences, Vec::<String>::new());
}

#[test]
fn a_start_that_does_not_find_an_object_keeps_what_is_held_for_it_and_nothing_else() {
    let mut bench = open(9);
    let key = ObjectKey::new(GroupResource::new(GROUP, "bookings"), "a", "guest");
    bench.there(&key, SubjectId(77), json!({"spec": {"seats": 2, "atOnce": true}}), false);
    bench.hold_as(&key, SubjectId(77), json!({"spec": {"seats": 6, "atOnce": true}})).unwrap();
    assert_eq!(sums(&bench), (units(2), units(4)));
    let mut loaded = bench.desk.loaded();
    loaded.facts.clear();
    loaded.objects.retain(|object| object.uid != SubjectId(77));
    let (engine, _) = Engine::start(loaded, bench.desk.families());
    bench.desk.engine = engine;
    assert_eq!(sums(&bench), (units(0), units(6)));
    assert_eq!(bench.report().differences, Vec::<String>::new());
    bench.desk.engine.give_up(SubjectId(77), 0);
    assert_eq!(sums(&bench), (units(0), units(0)));
}
