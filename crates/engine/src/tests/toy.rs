//! The mechanism under a family that does everything in few lines ([`family`]).

use std::collections::BTreeMap;

use serde_json::json;

use super::*;

mod family;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Traces {
    numbers: (u64, u64, u64, usize),
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    due: BTreeMap<ObjectKey, i64>,
    decided: Vec<[u64; 3]>,
    records: Vec<String>,
    later: (Vec<String>, usize, usize),
    staging: Option<String>,
}

impl Traces {
    /// Without what a refusal leaves: that it was counted, and written down.
    pub fn but_for_refusals(mut self) -> Traces {
        self.decided.iter_mut().for_each(|[_, denied, _]| *denied = 0);
        self.decided.retain(|family| *family != [0; 3]);
        self.records.retain(|record| !record.contains("Denials"));
        self
    }
}

pub(super) const GROUP: &str = "toy.example.com";

pub(super) fn open(seats: i64) -> Bench {
    let mut bench = Bench::with(Families::new(vec![Arc::new(family::Restaurant)]));
    bench.create(GROUP, "rooms", "", "hall", json!({"spec": {"limit": seats}})).unwrap();
    bench
}

impl Bench {
    pub(super) fn book(&mut self, name: &str, spec: Value) -> Written {
        self.create(GROUP, "bookings", "a", name, json!({"spec": spec})).unwrap()
    }

    pub(super) fn menu(&self) -> i64 {
        let menu = self.desk.get(&ObjectKey::new(GroupResource::new(GROUP, "menus"), "a", "menu"));
        menu.map_or(-1, |menu| menu.value()["spec"]["limit"].as_i64().unwrap())
    }

    /// All that a step could leave behind: numbers of steps and revisions, sums, accounts, rows, facts, decisions that were
    /// counted, what was written down, what is to be done later, and what is prepared.
    pub(super) fn traces(&mut self) -> Traces {
        self.desk.keep();
        let Engine { ledger, revision, stale, behind, staging, changed, touched, woken, .. } = &self.desk.engine;
        let mut stale: Vec<String> = stale.all().map(ToString::to_string).collect();
        stale.sort();
        Traces {
            numbers: (ledger.sequence(), *revision, ledger.digest(), ledger.accounts_open()),
            rows: self.desk.rows.clone(),
            due: self.desk.due().clone(),
            decided: self.desk.decided.by_family().to_vec(),
            records: self.desk.records.iter().map(|(at, record)| format!("{at} {record:?}")).collect(),
            later: (stale, behind.len(), changed.len() + touched.len() + woken.len()),
            staging: staging.as_ref().map(|staging| format!("{:?}", staging.left())),
        }
    }

    fn bookings(&self) -> Vec<String> {
        let bookings = GroupResource::new(GROUP, "bookings");
        let all = self.desk.list(&bookings);
        all.map(|booking| booking.key.name.to_string()).collect()
    }
}

#[test]
fn a_plate_makes_its_booking_and_takes_it_along() {
    let mut bench = open(2);
    assert_eq!(bench.menu(), 0, "the menu is there with the room");
    bench.map("soup").unwrap();
    bench.map("fish").unwrap();
    assert_eq!((bench.menu(), bench.bookings().len()), (2, 2));
    let before = bench.traces().but_for_refusals();
    assert!(matches!(bench.map("cake"), Err(Refused::Denied(_))), "the room is full");
    assert_eq!(bench.traces().but_for_refusals(), before, "nothing tells that anybody asked");
    bench.delete("configmaps", "soup").unwrap();
    assert_eq!((bench.menu(), bench.bookings().len()), (1, 1));
    bench.map("cake").unwrap();
    bench.audit();
    let mut bench = bench.restart();
    bench.audit();
    assert_eq!((bench.menu(), bench.bookings().len()), (2, 2));
}

#[test]
fn a_dry_run_leaves_no_trace_even_where_a_companion_would_be_made() {
    let mut bench = open(1);
    bench.create("", "namespaces", "", "b", json!({})).unwrap();
    let before = bench.traces();
    // The first booking there: its part of the room is not open yet.
    let draft = bench.draft("b", "soup", json!({}));
    let key = ObjectKey::new(GroupResource::core("configmaps"), "b", "soup");
    bench.write(key.clone(), WriteKind::Create(draft), true).unwrap();
    assert_eq!(bench.traces(), before);
    bench.map("fish").unwrap();
    let before = bench.traces().but_for_refusals();
    let kind = WriteKind::Create(bench.draft("b", "soup", json!({})));
    let write = Write { key, kind, dry_run: false, now_ms: 0, foresight: Foresight::None, origin: Origin::default() };
    let refused = bench.desk.engine.write(write);
    assert!(matches!(refused, Ok(Err(Refused::Denied(_)))));
    assert_eq!(bench.traces().but_for_refusals(), before, "no part of the room was opened for who was refused");
    bench.audit();
}

#[test]
fn whoever_waits_is_served_when_somebody_s_time_is_over() {
    let mut bench = open(3);
    bench.book("early", json!({"seats": 2, "untilMs": 1000}));
    bench.book("large", json!({"seats": 3}));
    assert_eq!(bench.menu(), 2, "the large one waits");
    // The moment is stored, and told to the next start.
    let early = ObjectKey::new(GroupResource::new(GROUP, "bookings"), "a", "early");
    assert_eq!(bench.desk.due().iter().collect::<Vec<_>>(), [(&early, &1000)]);
    let mut bench = bench.restart();
    assert!(bench.desk.is_due(1000));
    bench.desk.publish(999);
    assert_eq!(bench.menu(), 2);
    bench.audit();
    bench.desk.publish(1000);
    assert_eq!(bench.menu(), 3);
    assert!(bench.desk.due().is_empty(), "it has come");
    bench.audit();
    // One that goes takes its moment along.
    bench.book("late", json!({"seats": 1, "untilMs": 9000}));
    assert_eq!(bench.desk.due().len(), 1);
    let late = ObjectKey::new(GroupResource::new(GROUP, "bookings"), "a", "late");
    bench.write(late, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    assert!(bench.desk.due().is_empty());
    // A clock that was ahead let go of what the right one still counts: a start finds it.
    let mut bench = bench.restart();
    bench.desk.publish(999);
    assert_eq!(bench.desk.due().get(&early), Some(&1000));
    bench.audit();
}

#[test]
fn a_policy_means_something_else_when_its_moment_has_come() {
    let mut bench = Bench::with(Families::new(vec![Arc::new(family::Restaurant)]));
    bench.create(GROUP, "rooms", "", "hall", json!({"spec": {"limit": 3, "opensMs": 1000}})).unwrap();
    bench.book("two", json!({"seats": 2}));
    assert_eq!(bench.menu(), 0, "it waits until the room opens");
    let mut bench = bench.restart();
    bench.desk.publish(999);
    assert_eq!(bench.menu(), 0);
    bench.audit();
    assert!(bench.desk.is_due(1000), "somebody has to tell the time then");
    bench.desk.publish(1000);
    assert_eq!(bench.menu(), 2);
    bench.audit();
    // After a start it is judged by the time it was judged by, and not as at the beginning of time.
    let before = bench.desk.engine.ledger.digest();
    let mut bench = bench.restart();
    assert_eq!(bench.desk.engine.ledger.digest(), before);
    bench.audit();
    // A clock that was ahead is set right by a restart; whoever has a seat keeps it.
    bench.desk.publish(500);
    assert_eq!(bench.menu(), 2);
    assert!(matches!(bench.map("soup").and(bench.map("fish")).and(bench.map("cake")), Err(Refused::Denied(_))));
    bench.audit();
    bench.desk.publish(1000);
    bench.map("cake").unwrap();
    bench.audit();
}

#[test]
fn what_the_family_shapes_is_its_own_whoever_writes_it() {
    let mut bench = open(3);
    bench.book("two", json!({"seats": 2}));
    let menu = ObjectKey::new(GroupResource::new(GROUP, "menus"), "a", "menu");
    bench.change(&menu, |menu| menu["spec"]["limit"] = json!(99)).unwrap();
    assert_eq!(bench.menu(), 2);
    bench.write(menu, WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    assert_eq!(bench.menu(), 2, "it is made again in the commit that misses it");
    let room = ObjectKey::new(GroupResource::new(GROUP, "rooms"), "", "hall");
    bench.change(&room, |room| room["spec"]["limit"] = json!(1)).unwrap();
    assert_eq!(bench.menu(), 2, "lowering a limit evicts nobody");
    bench.audit();
}

#[test]
fn what_a_family_writes_down_goes_with_the_write_or_the_refusal_it_is_about() {
    let mut bench = open(2);
    let said = |bench: &mut Bench| -> Vec<String> {
        let told = std::mem::take(&mut bench.desk.records).into_iter();
        told.map(|(_, record)| format!("{:?} {}", record.book, record.entry.as_str().unwrap())).collect()
    };
    assert_eq!(said(&mut bench), Vec::<String>::new());
    let booking = bench.book("window", json!({"seats": 1}));
    assert_eq!(said(&mut bench), [format!("Outbox window came in {}", booking.object.revision)]);
    bench.map("soup").unwrap();
    assert_eq!(said(&mut bench), Vec::<String>::new(), "its plate was there");
    // What follows from a write is written down with it.
    bench.map("fish").unwrap();
    let told = said(&mut bench);
    assert!(told.len() == 1 && told[0].starts_with("Outbox for-") && told[0].contains(" came in "), "{told:?}");
    let draft = bench.draft("a", "cake", json!({}));
    let key = ObjectKey::new(GroupResource::core("configmaps"), "a", "cake");
    assert!(bench.write(key, WriteKind::Create(draft), true).is_err());
    assert_eq!(said(&mut bench), Vec::<String>::new(), "a dry run is nothing that happened");
    assert!(bench.map("cake").is_err());
    assert_eq!(said(&mut bench).last().map(String::as_str), Some("Denials cake: there is no plate left on menu"));
    bench.delete("configmaps", "fish").unwrap();
    let told = said(&mut bench);
    assert!(told.len() == 1 && told[0].contains(" went in "), "{told:?}");
}

#[test]
fn all_that_a_family_can_do_takes_less_than_150_lines() {
    assert!(include_str!("toy/family.rs").lines().count() < 150);
}
