//! How much a member is lent, worked out from what it was lent, what it says it uses and what others lack. Pure; whoever lends does what
//! comes of it in the order that [`Next`] tells, and may stop anywhere in between: what is lent is charged before the member is told of more, and
//! let go of after it was told of less.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quantity::{Amount, Quantity};

/// Amounts by name.
pub type Amounts = BTreeMap<String, Quantity>;

/// How long a member keeps what it was given and does not use while others have nothing left.
pub const KEEP: Duration = Duration::from_secs(3);

/// One member of one quota, as far as anybody knows.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// What is charged as lent to it, with what its bindings are charged there.
    pub lent: Amounts,
    /// What bindings are charged there.
    pub base: Amounts,
    /// How much of it was for workloads that were evicted, and waits to be given back before they are placed anew.
    pub covered: Amounts,
    /// What it was told, if it was.
    pub told: Option<Amounts>,
    /// What it says it uses, and what it says waits there.
    pub used: Amounts,
    pub waiting: Amounts,
    /// How much more than it uses it is to have.
    pub chunk: Amounts,
    /// The names of which the quota has less than is charged, since it was lowered: nobody has any of it in hand.
    pub over: BTreeSet<String>,
    /// Whether others have nothing left, and whether it has had what it has for [`KEEP`].
    pub others_starve: bool,
    pub is_rested: bool,
    /// Whether it gave back for others what it could not use, within [`KEEP`]: it does not ask for that again before they did.
    pub has_given: bool,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The member does not know what it was lent: it is told.
    Tell,
    /// More is charged, if there is that much, and then the member is told. `is_starved`: it has nothing left.
    Grow {
        wanted: Amounts,
        is_starved: bool,
    },
    /// The member is told of less; what it uses once it keeps to that stays charged, and at least this.
    Shrink(Amounts),
    Rest,
}

pub fn of(amounts: &Amounts, name: &str) -> Quantity {
    amounts.get(name).cloned().unwrap_or_default()
}

impl Standing {
    /// `None` where amounts are more than can be counted.
    pub fn next(&self) -> Option<Next> {
        if self.told.as_ref() != Some(&self.lent) {
            return Some(Next::Tell);
        }
        let (mut grow, mut shrink) = (self.lent.clone(), self.lent.clone());
        let (mut is_starved, mut is_idle) = (false, false);
        for (name, hard) in &self.lent {
            let chunk = of(&self.chunk, name);
            let asked = of(&self.used, name).checked_add(&of(&self.waiting, name))?;
            // Members count in thousandths. What is asked for is rounded up, and charged so.
            let whole = |asked: Quantity| asked.max(of(&self.base, name)).max(Quantity::ZERO).round_up_milli();
            let (needed, taken) = (whole(asked), whole(of(&self.used, name)));
            let wanted = needed.checked_add(&chunk)?;
            let most = wanted.checked_add(&chunk)?;
            let is_over = self.over.contains(name);
            if (is_over || !of(&self.covered, name).is_zero()) && *hard > needed {
                // Somebody waits for it, or it is there no more: at once, and without anything in hand.
                is_idle = true;
                shrink.insert(name.clone(), needed.canonical());
            } else if self.others_starve && self.is_rested && *hard > taken {
                // What waits there does not go in with a part of what it needs, while somebody else may need no more than that part.
                is_idle = true;
                shrink.insert(name.clone(), taken.canonical());
            } else if wanted > *hard && !((self.others_starve || is_over) && (*hard >= needed || self.has_given)) {
                is_starved |= *hard <= needed && (!chunk.is_zero() || *hard < needed);
                grow.insert(name.clone(), wanted.canonical());
            } else if *hard > most {
                shrink.insert(name.clone(), wanted.canonical());
            }
        }
        Some(match (grow != self.lent && !is_idle, shrink != self.lent) {
            (true, _) => Next::Grow { wanted: grow, is_starved },
            (false, true) => Next::Shrink(shrink),
            (false, false) => Next::Rest,
        })
    }
}

/// As much of what is wanted as is left, in whole thousandths; `None` where that is nothing. What bindings are charged for there
/// already is charged: a member that is lent less may be lent that much, however little is left.
pub fn affordable(lent: &Amounts, base: &Amounts, wanted: &Amounts, left: &Amounts) -> Option<Amounts> {
    const MILLI: i128 = 1_000_000;
    let mut granted = lent.clone();
    for (name, wanted) in wanted {
        let lent = of(lent, name);
        let had = lent.clone().max(of(base, name));
        let more = wanted.checked_sub(&had)?.min(of(left, name)).max(Quantity::ZERO);
        let most = had.checked_add(&more)?.min(wanted.clone());
        let whole = Amount::from_nanos(most.amount().nanos() / MILLI * MILLI);
        if whole > lent.amount() {
            granted.insert(name.clone(), Quantity::new(whole, wanted.format()).canonical());
        }
    }
    (granted != *lent).then_some(granted)
}

/// What stays charged of a lease that was made smaller, by what the member uses since it keeps to that.
pub fn kept(shrunk: &Amounts, used: &Amounts) -> Amounts {
    shrunk.iter().map(|(name, amount)| (name.clone(), amount.clone().max(of(used, name)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: &str) -> Amounts {
        BTreeMap::from([("cpu".to_owned(), Quantity::parse(cpu).expect("a quantity"))])
    }

    fn standing(lent: &str, used: &str, waiting: &str) -> Standing {
        Standing {
            lent: amounts(lent),
            told: Some(amounts(lent)),
            used: amounts(used),
            waiting: amounts(waiting),
            chunk: amounts("2"),
            ..Standing::default()
        }
    }

    #[test]
    fn a_member_has_what_it_uses_and_a_chunk_more() {
        let grow = |cpu, is_starved| Some(Next::Grow { wanted: amounts(cpu), is_starved });
        assert_eq!(standing("0", "0", "0").next(), grow("2", true));
        assert_eq!(standing("2", "1", "0").next(), grow("3", false));
        assert_eq!(standing("2", "2", "0").next(), grow("4", true));
        assert_eq!(standing("2", "2", "3").next(), grow("7", true));
        assert_eq!(standing("4", "2", "0").next(), Some(Next::Rest));
        assert_eq!(standing("6", "2", "0").next(), Some(Next::Rest), "it does not go to and fro");
        assert_eq!(standing("7", "2", "0").next(), Some(Next::Shrink(amounts("4"))));
        assert_eq!(standing("2", "100u", "0").next(), grow("2001m", false), "what is used is rounded up");
        assert_eq!(Standing { told: Some(amounts("3")), ..standing("2", "1", "0") }.next(), Some(Next::Tell));
        assert_eq!(Standing { told: None, ..standing("2", "1", "0") }.next(), Some(Next::Tell));
    }

    #[test]
    fn what_is_idle_goes_to_whom_it_lacks() {
        let idle = Standing { others_starve: true, is_rested: true, ..standing("4", "1", "0") };
        assert_eq!(idle.next(), Some(Next::Shrink(amounts("1"))));
        assert_eq!(Standing { is_rested: false, ..idle.clone() }.next(), Some(Next::Rest));
        // Bindings that are there keep what they need.
        assert_eq!(Standing { base: amounts("3"), ..idle }.next(), Some(Next::Shrink(amounts("3"))));
        let busy = Standing { others_starve: true, is_rested: true, ..standing("4", "4", "0") };
        assert_eq!(busy.next(), Some(Next::Rest));
    }

    /// A part of what a pod needs lets nobody in: held for it while another member lacks no more than that, both would wait for ever.
    #[test]
    fn what_is_too_little_for_who_waits_goes_to_whom_it_is_enough() {
        let part = Standing { others_starve: true, is_rested: true, ..standing("4", "3", "2") };
        assert_eq!(part.next(), Some(Next::Shrink(amounts("3"))));
        let asks = Some(Next::Grow { wanted: amounts("7"), is_starved: true });
        assert_eq!(Standing { others_starve: false, ..part.clone() }.next(), asks, "nobody else lacks it");
        assert_eq!(Standing { is_rested: false, ..part }.next(), asks, "the rest may come yet");
        let gave = Standing { others_starve: true, has_given: true, ..standing("3", "3", "2") };
        assert_eq!(gave.next(), Some(Next::Rest), "it is for the others now");
        assert_eq!(Standing { others_starve: false, ..gave }.next(), asks);
    }

    #[test]
    fn what_was_for_evicted_workloads_is_given_back_at_once() {
        let left = Standing { covered: amounts("3"), ..standing("4", "1", "0") };
        assert_eq!(left.next(), Some(Next::Shrink(amounts("1"))));
        assert_eq!(Standing { base: amounts("2"), ..left.clone() }.next(), Some(Next::Shrink(amounts("2"))));
        let busy = Standing { covered: amounts("3"), ..standing("4", "4", "0") };
        assert_eq!(busy.next(), Some(Next::Grow { wanted: amounts("6"), is_starved: true }));
    }

    #[test]
    fn what_is_idle_goes_back_at_once_where_the_quota_was_lowered_below_it() {
        let over = |lent, used| Standing { over: BTreeSet::from(["cpu".to_owned()]), ..standing(lent, used, "0") };
        assert_eq!(over("4", "1").next(), Some(Next::Shrink(amounts("1"))));
        assert_eq!(Standing { base: amounts("3"), ..over("4", "1") }.next(), Some(Next::Shrink(amounts("3"))));
        assert_eq!(over("4", "4").next(), Some(Next::Rest), "nothing is idle, and there is nothing to ask for");
        let elsewhere = Standing { over: BTreeSet::from(["memory".to_owned()]), ..standing("4", "2", "0") };
        assert_eq!(elsewhere.next(), Some(Next::Rest));
    }

    #[test]
    fn as_much_is_charged_as_there_is() {
        let granted = |lent, wanted, left| affordable(&amounts(lent), &amounts("0"), &amounts(wanted), &amounts(left));
        assert_eq!(granted("2", "5", "10"), Some(amounts("5")));
        assert_eq!(granted("2", "5", "1"), Some(amounts("3")));
        assert_eq!(granted("2", "5", "1500u"), Some(amounts("2001m")));
        assert_eq!(granted("2", "5", "900u"), None);
        assert_eq!(granted("2", "5", "-1"), None);
        // What bindings are charged there is charged already.
        let beside = |lent, base, left| affordable(&amounts(lent), &amounts(base), &amounts("6"), &amounts(left));
        assert_eq!(beside("0", "4", "0"), Some(amounts("4")));
        assert_eq!(beside("0", "4", "-3"), Some(amounts("4")));
        assert_eq!(beside("0", "4", "1"), Some(amounts("5")));
        assert_eq!(beside("0", "4500u", "0"), Some(amounts("4m")));
        assert_eq!(beside("4", "4", "0"), None);
        assert_eq!(beside("5", "4", "0"), None);
        assert_eq!(kept(&amounts("2"), &amounts("3")), amounts("3"));
        assert_eq!(kept(&amounts("2"), &amounts("1")), amounts("2"));
    }
}
