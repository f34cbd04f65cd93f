//! Whoever lends: one action at a time, and it may stop after each.

use std::collections::BTreeMap;

use families::karmada::lending::{Amounts, Next, Standing, affordable, kept, of};
use quantity::Quantity;
use serde_json::{Value, json};

use super::centre::{Centre, DENIED, QUOTA, leases};
use super::member::Terms;
use super::{CLUSTERS, Mutation};

pub fn amounts(cpu: u64) -> Amounts {
    BTreeMap::from([("cpu".to_owned(), quantity(cpu))])
}

fn quantity(cpu: u64) -> Quantity {
    Quantity::parse(&cpu.to_string()).unwrap_or_default()
}

pub fn whole(amounts: &Amounts) -> u64 {
    of(amounts, "cpu").amount().to_units().and_then(|units| u64::try_from(units).ok()).unwrap_or(u64::MAX)
}

pub fn lease_name(cluster: usize) -> String {
    format!("{QUOTA}.{}", CLUSTERS[cluster])
}

/// What is still to be done of what was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Charge this much; then tell it.
    Charge(u64),
    /// Tell what is charged.
    Tell,
    /// Tell of less, let go of the rest.
    Shrink(u64),
}

/// A lease as it is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lease {
    pub hard: u64,
    pub base: u64,
    pub covered: u64,
    pub until_ms: i64,
}

fn cpu(lease: &Value, field: &str) -> u64 {
    let text = lease["spec"][field]["cpu"].as_str().unwrap_or("0");
    whole(&BTreeMap::from([("cpu".to_owned(), Quantity::parse(text).unwrap_or_default())]))
}

pub fn read(centre: &Centre, cluster: usize) -> Option<Lease> {
    let lease = centre.get(&leases(), &lease_name(cluster))?;
    let until_ms = lease["spec"]["validUntilMs"].as_i64().unwrap_or(0);
    let [hard, base, covered] = ["hard", "base", "covered"].map(|field| cpu(&lease, field));
    Some(Lease { hard, base, covered, until_ms })
}

/// Writes a lease; whether there was room for it.
pub fn write(centre: &mut Centre, cluster: usize, hard: u64, until_ms: i64) -> Result<bool, String> {
    let spec = json!({
        "quota": QUOTA, "clusterName": CLUSTERS[cluster], "hard": {"cpu": hard.to_string()}, "validUntilMs": until_ms,
    });
    match centre.put(&leases(), &lease_name(cluster), json!({ "spec": spec })) {
        Ok(()) => Ok(true),
        Err(why) if why == DENIED => Ok(false),
        Err(why) => Err(format!("a lease is refused: {why}")),
    }
}

/// What a member says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Says {
    pub used: u64,
    pub waiting: u64,
}

/// What whoever lends remembers of the other members.
pub struct Others {
    /// They have nothing left.
    pub starve: bool,
    /// They waited for long enough.
    pub waited: bool,
    /// This member gave them something back lately.
    pub were_given: bool,
}

/// What one look at a member leads to.
pub fn decide(
    lease: Lease,
    told: Option<Terms>,
    says: Says,
    chunk: u64,
    others: Others,
    is_over: bool,
) -> Option<Action> {
    if told != Some(Terms { hard: lease.hard, until_ms: lease.until_ms }) {
        return Some(Action::Tell);
    }
    let standing = Standing {
        lent: amounts(lease.hard),
        base: amounts(lease.base),
        covered: amounts(lease.covered),
        told: told.map(|terms| amounts(terms.hard)),
        used: amounts(says.used),
        waiting: amounts(says.waiting),
        chunk: amounts(chunk),
        over: is_over.then(|| "cpu".to_owned()).into_iter().collect(),
        others_starve: others.starve,
        is_rested: others.waited,
        has_given: others.were_given,
    };
    match standing.next()? {
        Next::Tell => Some(Action::Tell),
        Next::Rest => None,
        Next::Grow { wanted, .. } => Some(Action::Charge(whole(&wanted))),
        Next::Shrink(less) => Some(Action::Shrink(whole(&less))),
    }
}

/// As much of it as is left.
pub fn afford(lease: Lease, wanted: u64, left: u64) -> Option<u64> {
    let granted = affordable(&amounts(lease.hard), &amounts(lease.base), &amounts(wanted), &amounts(left));
    granted.map(|granted| whole(&granted))
}

/// What stays charged when a member keeps to less.
pub fn stays(less: u64, used: u64, mutation: Option<Mutation>) -> u64 {
    let used = if mutation == Some(Mutation::TrustsWishes) { 0 } else { used };
    whole(&kept(&amounts(less), &amounts(used)))
}
