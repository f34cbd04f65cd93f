//! The platform's own IPv4 addresses: capacity, and no matter of anybody's quota. An environment with the add-on has one.

use kinds::fields::{at, text};
use quantity::Amount;
use rules::policy_name;
use serde_json::Value;

use super::OrgFacts;
use super::dimensions::Dimension;
use super::guard::conflict;
use super::names::{ENVS, ORGS};
use crate::metrics::{Metric, Samples, Survey};
use crate::{Balances, Change, Refusal, View};

pub static ADDRESSES: Metric = Metric::gauge(
    "bursar_org_ipv4_addresses",
    &["state"],
    "The platform's IPv4 addresses: all of them, and those that environments have; absent where nobody says how many there are.",
);

fn has_one(env: &Value) -> bool {
    at(env, &["spec", "ipv4", "enabled"]) == Some(&Value::Bool(true))
}

/// How many an organization has. It is asked of all of them in a step, so that nothing else of theirs is looked at.
fn given(balances: &(impl Balances + ?Sized), org: &str) -> Amount {
    let policy = policy_name(&ORGS.resource(), org, org);
    balances.balance(&policy, Dimension::Ipv4.name()).map_or(Amount::ZERO, |balance| balance.used)
}

/// Whether there is an address left for an environment that is to have one.
pub fn check(addresses: Option<u64>, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    let (Some(all), Some(new)) = (addresses, change.new) else { return Ok(()) };
    if !ENVS.is(change.resource) || !has_one(new) || has_one(change.old) {
        return Ok(());
    }
    let orgs = view.parsed_everywhere(&ORGS.resource(), &super::parse_org);
    let names = orgs.iter().filter_map(|one| one.downcast_ref::<OrgFacts>()).map(|org| org.name.as_str());
    let sum = names.map(|org| given(view, org)).try_fold(Amount::ZERO, Amount::checked_add);
    let most = i64::try_from(all).ok().map(Amount::from_units);
    match sum.zip(most) {
        Some((sum, most)) if sum < most => Ok(()),
        _ => {
            let why =
                format!("all {all} IPv4 addresses of the platform are given: one comes back when somebody gives it up");
            Err(conflict("ipv4_pool_exhausted", why))
        }
    }
}

pub fn sample(addresses: Option<u64>, survey: &dyn Survey, out: &mut Samples) {
    let Some(all) = addresses else { return };
    let mut sum = Amount::ZERO;
    survey.each(&ORGS.resource(), &mut |org| {
        let more = given(survey, text(org, &["metadata", "name"]));
        sum = sum.checked_add(more).unwrap_or(sum);
    });
    out.put(&ADDRESSES, &["all"], all);
    out.put(&ADDRESSES, &["given"], quantity::Decimal(sum));
}
