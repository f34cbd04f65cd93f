//! A family made for the purpose, beside the real ones, in which time matters: a season has seats once it is open, which
//! tickets take, or wait for in line, until their time is over.

use std::sync::Arc;

use families::{Balances, Denial, Family, Manifest, Plural, PolicyObject, Projected, Uncompiled, Words, World};
use ledger::{Discipline, Limit, Position, Wait};
use quantity::{Amount, Format};
use rules::{Account, Compiled, GroupResource, Measure, MeasureError, Reach, Rule, Subject, Verdict};
use serde_json::Value;

pub const GROUP: &str = "season.example.com";
pub const SEASONS: &str = "seasons.season.example.com";
pub const TICKETS: &str = "tickets.season.example.com";
const SEASON: Plural = Plural(GROUP, "seasons");
const TICKET: Plural = Plural(GROUP, "tickets");

pub struct Season;

struct Seats;

fn seats(object: &Value) -> Amount {
    let text = object["spec"]["seats"].as_str().unwrap_or("0");
    Amount::from_units(text.parse().unwrap_or(0))
}

impl Measure for Seats {
    fn measure(&self, ticket: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        if let Some(until_ms) = ticket.object["spec"]["untilMs"].as_i64() {
            out.holds_until(until_ms);
            if ticket.now_ms >= until_ms {
                return Ok(());
            }
        }
        let arrived = i64::try_from(ticket.born).unwrap_or(i64::MAX);
        let position = Position { priority: 0, arrived, tie: ticket.name.into() };
        out.may_wait(Wait { discipline: Discipline::Greedy, position });
        out.charge(0, seats(ticket.object), Format::DecimalSi);
        out.charge_bucket(0, ticket.namespace.into(), seats(ticket.object), Format::DecimalSi);
        Ok(())
    }
}

impl Family for Season {
    fn manifest(&self) -> &Manifest {
        &Manifest { name: "season", policies: &[SEASON], projected: &[TICKET], ..Manifest::EMPTY }
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        let opens_ms = policy.object["spec"]["opensMs"].as_i64();
        let is_closed = opens_ms.is_some_and(|opens_ms| world.now_ms() < opens_ms);
        let limit = if is_closed { Amount::ZERO } else { seats(policy.object) };
        let (limit_text, limit) = (limit.to_string().into(), Limit::Enforced(limit));
        let account = Account { resource: "seats".into(), limit, limit_text, discounts: false };
        let reach = Reach::Selected(Arc::new(|_| true));
        let rule = Rule { resources: vec![TICKET.resource()], reach, measure: Arc::new(Seats) };
        Ok(Compiled { accounts: vec![account], rules: vec![rule], fingerprint: Vec::new(), until_ms: opens_ms })
    }

    fn project(&self, _: &GroupResource, _: &mut Value, _: &dyn Balances) -> Projected {
        Projected::Unchanged
    }

    fn words(&self, denial: &Denial) -> Words {
        format!("no seat is left in {}", denial.name).into()
    }
}
