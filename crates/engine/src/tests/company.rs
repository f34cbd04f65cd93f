//! Objects that come with others: a family says that a config map comes with a ticket, of which there are so many.

use families::{
    Balances, Companion, Company, Denial, Family, Manifest, Must, Plural, PolicyObject, Projected, Refusal, Uncompiled,
    View, Words, World, Writing, companion_uid,
};
use ledger::{Discipline, Position, Wait};
use serde_json::json;

use super::*;

const GROUP: &str = "fair.example.com";
const FAIRS: Plural = Plural(GROUP, "fairs");
const TICKETS: Plural = Plural(GROUP, "tickets");

struct Fair;
struct Seats;

impl Measure for Seats {
    fn measure(&self, ticket: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let arrived = i64::try_from(ticket.born).unwrap_or(i64::MAX);
        let position = Position { priority: 0, arrived, tie: ticket.name.into() };
        out.may_wait(Wait { discipline: Discipline::Greedy, position });
        out.stays_granted();
        let seats = ticket.object["spec"]["seats"].as_i64().unwrap_or(1);
        out.charge(0, Amount::from_units(seats), Format::DecimalSi);
        out.charge_along(1, Amount::from_units(seats), Format::DecimalSi);
        Ok(())
    }
}

impl Family for Fair {
    fn manifest(&self) -> &Manifest {
        &Manifest { name: "fair", policies: &[FAIRS], projected: &[TICKETS], accompanies: true, ..Manifest::EMPTY }
    }

    fn compile(&self, policy: &PolicyObject<'_>, _: &dyn World) -> Result<Compiled, Uncompiled> {
        let account = |name: &str, limit: i64| Account {
            resource: name.into(),
            limit: Limit::Enforced(Amount::from_units(limit)),
            limit_text: limit.to_string().into(),
            discounts: false,
        };
        let spec = &policy.object["spec"];
        let account_name = spec["account"].as_str().unwrap_or("seats");
        let accounts = vec![account(account_name, spec["limit"].as_i64().unwrap_or(0)), account("visitors", 0)];
        let reach = Reach::Selected(Arc::new(|_| true));
        let rule = Rule { resources: vec![TICKETS.resource()], reach, measure: Arc::new(Seats) };
        Ok(Compiled { accounts, rules: vec![rule], fingerprint: Vec::new(), until_ms: None })
    }

    fn may_concern(&self, resource: &GroupResource, _: &str, _: &dyn World) -> bool {
        resource.is("", "configmaps")
    }

    fn accompany(&self, writing: &Writing<'_>, _: &dyn View) -> Result<Company, Refusal> {
        let seats = writing.object["spec"]["seats"].as_i64().unwrap_or(1);
        if seats < 0 {
            return Err(Refusal::forbidden("nobody takes less than no seat"));
        }
        let name = format!("{}-ticket", writing.name);
        let object = json!({
            "metadata": {"name": name, "namespace": writing.namespace, "annotations": {"for": writing.object["metadata"]["uid"]}},
            "spec": {"seats": seats},
        });
        let ticket = |number: usize| {
            let (name, object) = (name.clone(), object.clone());
            Companion { resource: TICKETS.resource(), number, name, object, quota: None }
        };
        let with = (0..1 + usize::from(writing.object["spec"]["comes_twice"] == true)).map(ticket).collect();
        Ok(Company { with, without: Vec::new() })
    }

    fn must_be(&self, object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
        let of = object.object["metadata"]["annotations"]["for"].as_str().and_then(kinds::uid::parse);
        let Some(of) = of.filter(|_| TICKETS.is(object.resource)) else { return Ok(Must::AsItIs) };
        let own = object.object["metadata"]["uid"] == kinds::uid::text(companion_uid(of, 0));
        Ok(if own && !view.lives(of) { Must::Gone } else { Must::AsItIs })
    }

    fn project(&self, _: &GroupResource, _: &mut Value, _: &dyn Balances) -> Projected {
        Projected::Unchanged
    }

    fn words(&self, denial: &Denial) -> Words {
        format!("{} is sold out", denial.name).into()
    }
}

pub(super) fn open(limit: i64) -> Bench {
    let mut bench = Bench::with(Families::new(vec![Arc::new(Fair)]));
    bench.create(GROUP, "fairs", "", "spring", json!({"spec": {"limit": limit}})).unwrap();
    bench
}

impl Bench {
    fn visit(&mut self, name: &str, seats: i64) -> Result<Written, Refused> {
        self.create("", "configmaps", "a", name, json!({"spec": {"seats": seats}}))
    }

    fn tickets(&self) -> Vec<String> {
        self.desk.list(&TICKETS.resource()).map(|ticket| ticket.key.name.to_string()).collect()
    }

    fn taken(&self, account: &str) -> i64 {
        let lines = self.desk.of(&policy_name(&FAIRS.resource(), "", "spring"));
        lines.iter().find(|line| &*line.resource == account).map_or(-1, |line| line.balance.used.to_units().unwrap())
    }
}

#[test]
fn an_object_and_what_it_comes_with_are_one() {
    let mut bench = open(3);
    bench.visit("one", 2).unwrap();
    assert_eq!((bench.tickets(), bench.taken("seats"), bench.taken("visitors")), (vec!["one-ticket".into()], 2, 2));
    let before = bench.traces().but_for_refusals();
    assert!(matches!(bench.visit("two", 2), Err(Refused::Denied(_))));
    assert!(matches!(bench.visit("three", -1), Err(Refused::Said { .. })));
    let draft = bench.draft("a", "four", json!({}));
    let key = ObjectKey::new(GroupResource::core("configmaps"), "a", "four");
    bench.write(key.clone(), WriteKind::Create(draft), true).unwrap();
    assert_eq!(bench.traces().but_for_refusals(), before, "neither who is refused nor who only asks leaves a trace");
    // It grows with it, at once or not at all.
    let one = ObjectKey::new(GroupResource::core("configmaps"), "a", "one");
    bench.change(&one, |one| one["spec"]["seats"] = json!(3)).unwrap();
    assert_eq!(bench.taken("seats"), 3);
    assert!(bench.change(&one, |one| one["spec"]["seats"] = json!(4)).is_err());
    assert_eq!(bench.taken("seats"), 3);
    bench.audit();
    let mut bench = bench.restart();
    bench.delete("configmaps", "one").unwrap();
    assert_eq!((bench.tickets(), bench.taken("seats"), bench.taken("visitors")), (Vec::new(), 0, 0));
    bench.audit();
}

#[test]
fn nothing_comes_twice_under_one_name() {
    let mut bench = open(9);
    bench.visit("one", 1).unwrap();
    let before = bench.traces().but_for_refusals();
    let twice = json!({"spec": {"seats": 2, "comes_twice": true}});
    let refused = bench.create("", "configmaps", "a", "two", twice);
    let Err(Refused::Said { refusal, .. }) = refused else { panic!("{refused:?}") };
    assert!(refusal.message.starts_with("it comes with \"two-ticket\", which cannot be: another one"), "{refusal:?}");
    let one = ObjectKey::new(GroupResource::core("configmaps"), "a", "one");
    assert!(bench.change(&one, |one| one["spec"]["comes_twice"] = json!(true)).is_err());
    assert_eq!(bench.traces().but_for_refusals(), before);
    bench.audit();
}

#[test]
fn it_is_not_written_with_others() {
    let mut bench = open(3);
    let writes = vec![(
        ObjectKey::new(GroupResource::core("configmaps"), "a", "x"),
        WriteKind::Create(bench.draft("a", "x", json!({}))),
    )];
    let before = bench.traces().but_for_refusals();
    let refused = bench.desk.write_all(Writes { writes, dry_run: false, now_ms: 0, origin: Origin::default() });
    assert!(matches!(refused, Err((0, Refused::Said { .. }))));
    assert_eq!(bench.traces().but_for_refusals(), before);
}

#[test]
fn what_is_granted_for_good_is_counted_by_other_rules_and_waits_for_nothing() {
    let mut bench = open(3);
    let ticket = |seats: i64| json!({"spec": {"seats": seats}});
    bench.create(GROUP, "tickets", "a", "has", ticket(3)).unwrap();
    bench.create(GROUP, "tickets", "a", "waits", ticket(1)).unwrap();
    assert_eq!((bench.taken("seats"), bench.taken("visitors")), (3, 3), "who waits brings nobody along");
    // Under another account with less room: who has keeps it, and it is counted before anybody in line is asked.
    let fair = ObjectKey::new(FAIRS.resource(), "", "spring");
    bench.change(&fair, |fair| fair["spec"] = json!({"account": "chairs", "limit": 1})).unwrap();
    assert_eq!((bench.taken("chairs"), bench.taken("visitors")), (3, 3));
    bench.audit();
    let has = ObjectKey::new(TICKETS.resource(), "a", "has");
    assert!(matches!(bench.change(&has, |has| has["spec"]["seats"] = json!(4)), Err(Refused::Denied(_))));
    bench.change(&has, |has| has["spec"]["seats"] = json!(0)).unwrap();
    assert_eq!((bench.taken("chairs"), bench.taken("visitors")), (1, 1), "whoever waited is served");
    bench.audit();
}
