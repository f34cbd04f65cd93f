//! Which claims are in use: the usage of a pool's ResourceQuota in a namespace is laid on the claims that have their
//! resources there, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledger::SubjectId;
use quantity::{Amount, Quantity};
use rules::{GroupResource, policy_name};

use super::claim::{claims, pools, quota_name};
use super::pool::{CLAIMS, Pool, created_ms};
use super::{Reading, jit};
use crate::family::Near;

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
pub fn holders(pool: &str, namespace: &str, near: &dyn Near) -> Vec<Holder> {
    let policy = policy_name(&pools(), "", pool);
    let mut holders: Vec<Holder> = Vec::new();
    for line in near.holders(&policy, CLAIMS, namespace, CLAIMS_LOOKED_AT_MAX) {
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
        let claim = if one.born == 0 { near.get(&claims(), namespace, &one.name) } else { None };
        (one.born, claim.map_or(0, |claim| created_ms(&claim)), one.name.clone())
    });
    holders
}

/// Usage is laid on the oldest claim first, or (in Capsule's releases) on the one that covers most of it first.
pub fn in_use(pool: &str, namespace: &str, near: &dyn Near, reading: Reading) -> BTreeSet<SubjectId> {
    let mut found = BTreeSet::new();
    let mut rest = used(pool, namespace, near, reading);
    if rest.values().all(|used| used.is_zero()) {
        return found;
    }
    // A claim that was made for a workload is in use as long as that is there; the others share the rest.
    let (own, mut left): (Vec<Holder>, Vec<Holder>) =
        holders(pool, namespace, near).into_iter().partition(|holder| jit::has_workload(&holder.name, near));
    for holder in own {
        take(&holder, &mut rest);
        found.insert(holder.uid);
    }
    while !left.is_empty() && rest.values().any(|used| !used.is_zero()) {
        let next = match reading {
            Reading::Documentation => 0,
            Reading::Releases => most_covering(&left, &rest),
        };
        let holder = left.remove(next);
        if covers(&holder, &rest).is_zero() {
            continue;
        }
        take(&holder, &mut rest);
        found.insert(holder.uid);
    }
    found
}

/// What is used of a pool's resources in a namespace, and not by grace of the defaults.
fn used(pool: &str, namespace: &str, near: &dyn Near, reading: Reading) -> BTreeMap<Arc<str>, Amount> {
    let quota = policy_name(&GroupResource::core("resourcequotas"), namespace, &quota_name(pool));
    let Some(pool) = near.get(&pools(), "", pool).and_then(|pool| Pool::read(&pool).ok()) else {
        return BTreeMap::new();
    };
    let lines = near.of(&quota).into_iter();
    lines
        .filter(|line| line.bucket.is_empty() && pool.hard.contains_key(&line.resource))
        .map(|line| {
            let free = match reading {
                // What the defaults allow to everyone is not the claims' doing.
                Reading::Documentation => pool.defaults.get(&line.resource).map_or(Amount::ZERO, Quantity::amount),
                Reading::Releases => Amount::ZERO,
            };
            let used = line.balance.used.checked_sub(free).unwrap_or(Amount::ZERO);
            (line.resource, used.max(Amount::ZERO))
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

fn most_covering(holders: &[Holder], rest: &BTreeMap<Arc<str>, Amount>) -> usize {
    let mut best = (0, Amount::ZERO);
    for (at, holder) in holders.iter().enumerate() {
        let covered = covers(holder, rest);
        if covered > best.1 {
            best = (at, covered);
        }
    }
    best.0
}

fn covers(holder: &Holder, rest: &BTreeMap<Arc<str>, Amount>) -> Amount {
    let part = |(name, used): (&Arc<str>, &Amount)| {
        holder.amounts.get(name).map_or(Amount::ZERO, |amount| (*amount).min(*used))
    };
    rest.iter().map(part).fold(Amount::ZERO, |sum, part| sum.checked_add(part).unwrap_or(sum))
}
