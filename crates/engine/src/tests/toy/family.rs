//! All that a family can do, in as few lines as it takes: a room has seats once it is open, which bookings take, wait for and lose when
//! their time is over; a menu has as many plates as seats are booked there; who wants one (a config map) too many gets a booking for it.

use families::{
    Affected, Balances, Book, Cause, Companion, Denial, Family, Manifest, Must, Noted, Place, Plural, PolicyObject,
    Projected, Record, Refusal, Uncompiled, View, Words, World, companion_uid,
};
use ledger::{Discipline, Position, SubjectId, Wait};

use super::super::*;

const GROUP: &str = "toy.example.com";
const ROOMS: Plural = Plural(GROUP, "rooms");
const MENUS: Plural = Plural(GROUP, "menus");
const BOOKINGS: Plural = Plural(GROUP, "bookings");

pub struct Restaurant;

/// Bookings wait for seats until their time is over, but for those who come at once or not at all.
struct Seats;
struct Plates;

impl Measure for Seats {
    fn measure(&self, booking: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let spec = &booking.object["spec"];
        let until_ms = spec["untilMs"].as_i64().unwrap_or(i64::MAX);
        out.holds_until(until_ms);
        if booking.now_ms >= until_ms {
            return Ok(());
        }
        let (arrived, tie) = (i64::try_from(booking.born).unwrap_or(i64::MAX), booking.name.into());
        if spec["atOnce"] != json!(true) {
            out.may_wait(Wait { discipline: Discipline::Greedy, position: Position { priority: 0, arrived, tie } });
        }
        let seats = Amount::from_units(spec["seats"].as_i64().unwrap_or(1));
        out.charge(0, seats, Format::DecimalSi);
        out.charge_bucket(0, booking.namespace.into(), seats, Format::DecimalSi);
        Ok(())
    }
}

impl Measure for Plates {
    fn measure(&self, _: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        out.charge(0, Amount::from_units(1), Format::DecimalSi);
        Ok(())
    }
}

impl Family for Restaurant {
    fn manifest(&self) -> &Manifest {
        &Manifest {
            name: "restaurant",
            policies: &[ROOMS, MENUS],
            projected: &[BOOKINGS],
            keeping: &[ROOMS],
            shaped: &[MENUS],
            watched: &[ROOMS, MENUS],
            recorded: &[BOOKINGS],
            records_refusals: true,
            ..Manifest::EMPTY
        }
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        let opens_ms = policy.object["spec"]["opensMs"].as_i64();
        let is_closed = opens_ms.is_some_and(|opens_ms| world.now_ms() < opens_ms);
        let limit = policy.object["spec"]["limit"].as_i64().filter(|_| !is_closed).unwrap_or(0);
        let (account, counted, reach, measure): (&str, _, _, Arc<dyn Measure>) = if ROOMS.is(policy.resource) {
            ("seats", BOOKINGS.resource(), Reach::Selected(Arc::new(|_| true)), Arc::new(Seats))
        } else {
            let there = Reach::Namespace(policy.namespace.into());
            ("plates", GroupResource::core("configmaps"), there, Arc::new(Plates))
        };
        Ok(Compiled {
            accounts: vec![Account {
                resource: account.into(),
                limit: Limit::Enforced(Amount::from_units(limit)),
                limit_text: limit.to_string().into(),
                discounts: false,
            }],
            rules: vec![Rule { resources: vec![counted], reach, measure }],
            fingerprint: Vec::new(),
            until_ms: opens_ms.filter(|_| is_closed),
        })
    }

    fn affected(&self, cause: &Cause<'_>, view: &dyn View) -> Vec<Affected> {
        let menu = |namespace: &str| Affected::Object(Place::new(MENUS.resource(), namespace, "menu"));
        match cause {
            Cause::Moved { part, .. } => vec![menu(part)],
            Cause::Written(change) if MENUS.is(change.resource) => vec![menu(change.namespace)],
            Cause::Written(change) => {
                let room = policy_name(change.resource, "", change.name);
                view.namespaces(&room).iter().map(|namespace| menu(namespace)).collect()
            }
            Cause::Refused(refused) if refused.resource.is("", "configmaps") => {
                let name = format!("for-{}", refused.object["metadata"]["uid"].as_str().unwrap_or_default());
                vec![Affected::Companion(Companion {
                    resource: BOOKINGS.resource(),
                    number: 0,
                    object: json!({"metadata": {"name": name, "namespace": refused.namespace}, "spec": {"seats": 1}}),
                    name,
                    quota: Some((MENUS.resource(), "menu".into())),
                })]
            }
            Cause::Refused(_) | Cause::Shown { .. } => Vec::new(),
        }
    }

    fn must_be(&self, object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
        if BOOKINGS.is(object.resource) {
            // One that was made for a plate goes with it.
            let Some(uid) = object.name.strip_prefix("for-") else { return Ok(Must::AsItIs) };
            let plate = kinds::uid::parse(uid).unwrap_or(SubjectId(0));
            let own = object.object["metadata"]["uid"] == kinds::uid::text(companion_uid(plate, 0));
            return Ok(if own && view.explain(plate).state.is_none() { Must::Gone } else { Must::AsItIs });
        }
        let booked = |room: &Arc<Value>| {
            let name = policy_name(&ROOMS.resource(), "", room["metadata"]["name"].as_str().unwrap_or_default());
            view.part(&name, object.namespace).iter().map(|line| line.balance.used.nanos()).sum::<i128>()
        };
        let seats = view.list(&ROOMS.resource(), "").iter().map(booked).sum::<i128>() / 1_000_000_000;
        let mut menu = object.object.clone();
        if menu.is_null() {
            menu = json!({"metadata": {"name": "menu", "namespace": object.namespace}});
        }
        menu["spec"]["limit"] = json!(seats);
        Ok(Must::differ(object.object, menu))
    }

    fn project(&self, _: &GroupResource, _: &mut Value, _: &dyn Balances) -> Projected {
        Projected::Unchanged
    }

    fn words(&self, denial: &Denial) -> Words {
        format!("there is no plate left on {}", denial.name).into()
    }

    fn records(&self, noted: &Noted<'_>, _: &dyn View) -> Vec<Record> {
        let record = |book, entry: String| vec![Record { book, entry: json!(entry) }];
        match noted {
            Noted::Written { change, revision } => {
                let what = change.new.map_or("went", |_| if change.old.is_null() { "came" } else { "changed" });
                record(Book::Outbox, format!("{} {what} in {revision}", change.name))
            }
            Noted::Refused(note) => record(Book::Denials, format!("{}: {}", note.name, note.message)),
        }
    }
}
