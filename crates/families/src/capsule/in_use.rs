//! Which claims are in use: the usage of a pool's ResourceQuota in a namespace is laid on the claims that have their
//! resources there, one after the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use kinds::field_error::Path;
use ledger::SubjectId;
use quantity::{Amount, Quantity};
use rules::{GroupResource, policy_name};

use super::claim::{claims, pools, quota_name};
use super::pool::{CLAIMS, Pool, created_ms, read_amounts};
use super::{Reading, at, jit};
use crate::View;

/// Claims of one pool in one namespace that are looked at. Beyond it the youngest are taken for unused.
const CLAIMS_LOOKED_AT_MAX: usize = 10_000;

/// A claim that has its resources, with what it has.
pub struct Holder {
    pub uid: SubjectId,
    pub name: Arc<str>,
    born: u64,
    amounts: BTreeMap<Arc<str>, Amount>,
}

/// The claims of a pool that have their resources in a namespace, oldest first.
pub fn holders(pool: &str, namespace: &str, view: &dyn View) -> Vec<Holder> {
    let policy = policy_name(&pools(), "", pool);
    let mut holders: Vec<Holder> = Vec::new();
    for line in view.holders(&policy, CLAIMS, namespace, CLAIMS_LOOKED_AT_MAX) {
        if holders.last().is_none_or(|last| last.uid != line.uid) {
            let (uid, name, born) = (line.uid, line.name.clone(), line.born);
            holders.push(Holder { uid, name, born, amounts: BTreeMap::new() });
        }
        if let Some(holder) = holders.last_mut().filter(|_| &*line.account != CLAIMS) {
            holder.amounts.insert(line.account, line.amount);
        }
    }
    // As in the line: whoever was created first is the oldest. Claims that are older than the count of creations have
    // only the clock's word.
    holders.sort_by_cached_key(|one| {
        let claim = if one.born == 0 { view.get(&claims(), namespace, &one.name) } else { None };
        (one.born, claim.map_or(0, |claim| created_ms(&claim)), one.name.clone())
    });
    holders
}

/// Usage is laid on the oldest claim first, or (in Capsule's releases) on the one that covers most of it first.
pub fn in_use(pool: &str, namespace: &str, view: &dyn View, reading: Reading) -> BTreeSet<SubjectId> {
    let mut found = BTreeSet::new();
    let mut rest = used(pool, namespace, view, reading);
    if rest.values().all(|used| used.is_zero()) {
        return found;
    }
    // A claim that was made for a workload is in use as long as that is there; the others share the rest.
    let (own, left): (Vec<Holder>, Vec<Holder>) = holders(pool, namespace, view)
        .into_iter()
        .partition(|holder| jit::has_workload(&holder.name, holder.uid, view));
    for holder in own {
        take(&holder, &mut rest);
        found.insert(holder.uid);
    }
    match reading {
        Reading::Documentation => left.iter().for_each(|holder| lay_on(holder, &mut rest, &mut found)),
        Reading::Releases => lay_on_most_covering(&left, &mut rest, &mut found),
    }
    found
}

fn lay_on(holder: &Holder, rest: &mut BTreeMap<Arc<str>, Amount>, found: &mut BTreeSet<SubjectId>) {
    if !covers(holder, rest).is_zero() {
        take(holder, rest);
        found.insert(holder.uid);
    }
}

/// Always on the one that covers most of what is left; of equals, on the first. What is left only shrinks, so that what a claim
/// covered once is the most it can cover now: only those at the top have to be looked at again.
fn lay_on_most_covering(holders: &[Holder], rest: &mut BTreeMap<Arc<str>, Amount>, found: &mut BTreeSet<SubjectId>) {
    let known = |at: usize, rest: &BTreeMap<_, _>| (covers(&holders[at], rest), Reverse(at));
    let mut covering: BinaryHeap<_> = (0..holders.len()).map(|at| known(at, rest)).collect();
    while let Some((_, Reverse(at))) = covering.pop() {
        let now = known(at, rest);
        if covering.peek().is_some_and(|next| *next > now) {
            covering.push(now);
            continue;
        }
        lay_on(&holders[at], rest, found);
    }
}

/// What is used of a pool's resources in a namespace, and not by grace of the defaults.
fn used(name: &str, namespace: &str, view: &dyn View, reading: Reading) -> BTreeMap<Arc<str>, Amount> {
    let quota = policy_name(&GroupResource::core("resourcequotas"), namespace, &quota_name(name));
    let Some(pool) = view.get(&pools(), "", name).and_then(|pool| Pool::read(&pool).ok()) else {
        return BTreeMap::new();
    };
    let lines = view.of(&quota);
    let counted: Vec<(Arc<str>, Amount)> = match lines.is_empty() {
        false => {
            let whole = lines.into_iter().filter(|line| line.bucket.is_empty());
            whole.map(|line| (line.resource, line.balance.used)).collect()
        }
        // It is counted elsewhere: then its status tells.
        true => {
            let there = view.get(&GroupResource::core("resourcequotas"), namespace, &quota_name(name));
            let told =
                there.map(|there| read_amounts(at(&there, &["status", "used"]), &Path::new("used"), &mut Vec::new()));
            told.into_iter().flatten().map(|(resource, used)| (resource, used.amount())).collect()
        }
    };
    counted
        .into_iter()
        .filter(|(resource, _)| pool.hard.contains_key(resource))
        .map(|(resource, used)| {
            let free = match reading {
                // What the defaults allow to everyone is not the claims' doing.
                Reading::Documentation => pool.defaults.get(&resource).map_or(Amount::ZERO, Quantity::amount),
                Reading::Releases => Amount::ZERO,
            };
            (resource, used.checked_sub(free).unwrap_or(Amount::ZERO).max(Amount::ZERO))
        })
        .collect()
}

/// Lays usage on a claim, as much as it holds.
fn take(holder: &Holder, rest: &mut BTreeMap<Arc<str>, Amount>) {
    for (name, used) in rest {
        let part = holder.amounts.get(name).map_or(Amount::ZERO, |amount| (*amount).min(*used));
        *used = used.checked_sub(part).unwrap_or(Amount::ZERO);
    }
}

fn covers(holder: &Holder, rest: &BTreeMap<Arc<str>, Amount>) -> Amount {
    let part = |(name, used): (&Arc<str>, &Amount)| {
        holder.amounts.get(name).map_or(Amount::ZERO, |amount| (*amount).min(*used))
    };
    rest.iter().map(part).fold(Amount::ZERO, |sum, part| sum.checked_add(part).unwrap_or(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One after the other, each time the one that covers most: what it means, in as many steps as it takes.
    fn most_covering_one_by_one(holders: &[Holder], mut rest: BTreeMap<Arc<str>, Amount>) -> BTreeSet<SubjectId> {
        let mut found = BTreeSet::new();
        let mut left: Vec<&Holder> = holders.iter().collect();
        while !left.is_empty() {
            let mut best = 0;
            for at in 1..left.len() {
                if covers(left[at], &rest) > covers(left[best], &rest) {
                    best = at;
                }
            }
            lay_on(left.remove(best), &mut rest, &mut found);
        }
        found
    }

    #[test]
    fn the_shortcut_finds_the_same_claims() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((state >> 33) % below).expect("small")
        };
        let names: [Arc<str>; 3] = ["cpu".into(), "memory".into(), "pods".into()];
        for _ in 0..300 {
            let mut amounts = |below: u64| -> BTreeMap<Arc<str>, Amount> {
                names.iter().map(|name| (name.clone(), Amount::from_units(next(below)))).collect()
            };
            let holders: Vec<Holder> = (0..12)
                .map(|at| Holder { uid: SubjectId(at), name: "c".into(), born: 0, amounts: amounts(6) })
                .collect();
            let rest = amounts(30);
            let mut found = BTreeSet::new();
            lay_on_most_covering(&holders, &mut rest.clone(), &mut found);
            assert_eq!(found, most_covering_one_by_one(&holders, rest));
        }
    }
}
