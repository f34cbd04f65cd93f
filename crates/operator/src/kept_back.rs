//! What is kept back. A policy may keep an object in each namespace that the cluster's API server goes by: a pool's ResourceQuota. What a
//! claim gives up is nobody else's before that object is smaller where it is stored; until then the difference is held.
//!
//! ```text
//!   allowed: the most of what the object was last seen to allow, and of what was sent and may still be stored
//!   kept back = allowed - what everybody gets - what is claimed there, where that is more than nothing
//! ```
//!
//! A write is stored only on the version that it rests on, so a sight of a later version decides all that rest on earlier ones. Where
//! something larger may still be stored and nothing else is to be written, the object is given a stamp, which makes a later version.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Engine, ObjectKey, named_uid};
use ledger::{AccountKey, Charge, Ledger, SubjectId};
use quantity::{Amount, Quantity};
use rules::policy_name;
use serde_json::Value;

use crate::guests::{self, Keeping};

pub type Amounts = BTreeMap<Arc<str>, Quantity>;

/// What is known of one kept object.
#[derive(Debug, Default)]
struct Kept {
    /// In which version it was last seen, and what it allows; none where it is not there.
    there: Option<(u64, Amounts)>,
    /// What was sent on which version, and may still be stored on that.
    sent: BTreeMap<u64, Amounts>,
    /// Whether something else is to be written than was seen.
    differs: bool,
    /// The version on which a stamp was sent.
    stamped: Option<u64>,
}

impl Kept {
    fn version(&self) -> u64 {
        self.there.as_ref().map_or(0, |(version, _)| *version)
    }

    fn allowed(&self) -> Amounts {
        let mut allowed = Amounts::new();
        let there = self.there.iter().map(|(_, there)| there);
        there.chain(self.sent.values()).for_each(|more| join(&mut allowed, more));
        allowed
    }

    fn is_nothing(&self) -> bool {
        self.there.is_none() && self.sent.is_empty()
    }
}

/// The larger of two, resource by resource.
fn join(all: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let known = all.entry(resource.clone()).or_insert_with(|| amount.clone());
        if amount.amount() > known.amount() {
            *known = amount.clone();
        }
    }
}

/// Adds to amounts, resource by resource.
fn add(all: &mut Amounts, more: impl IntoIterator<Item = (Arc<str>, Quantity)>) {
    for (resource, amount) in more {
        let sum = all.get(&resource).map_or(Some(amount.clone()), |known| known.checked_add(&amount));
        all.extend(sum.map(|sum| (resource, sum)));
    }
}

/// All kept objects, by their place.
#[derive(Debug, Default)]
pub struct KeptBack {
    kept: BTreeMap<ObjectKey, Kept>,
    /// Those for which something is held, and under which name.
    open: BTreeMap<ObjectKey, SubjectId>,
}

/// For whom it is held that an object still allows more.
pub fn subject(key: &ObjectKey) -> SubjectId {
    named_uid(format!("kept back\0{}\0{}\0{}", key.resource, key.namespace, key.name).as_bytes())
}

fn keeping(key: &ObjectKey) -> Option<(&'static Keeping, &str)> {
    let keeping = guests::keeping(&key.resource)?;
    Some((keeping, (keeping.policy_of)(&key.name)?))
}

/// The policy's name.
fn policy(keeping: &Keeping, name: &str) -> Arc<str> {
    policy_name(&keeping.policies.resource(), "", name)
}

impl KeptBack {
    /// Before a start, once all kept objects were seen: what is charged in each namespace, and kept back there, may be allowed
    /// there still, whatever became of the claims meanwhile. So nobody else is served before that was found out. `free` says what
    /// everybody gets of a policy.
    pub fn begin(&mut self, ledger: &mut Ledger, free: impl Fn(&Keeping, &str) -> Amounts) {
        let mut owed: BTreeMap<ObjectKey, Amounts> = BTreeMap::new();
        for (account, balance) in ledger.balances().filter(|(_, balance)| balance.used > Amount::ZERO) {
            if let Some(key) = kept_for(account) {
                let used = Quantity::new(balance.used, balance.format);
                owed.entry(key).or_default().insert(account.resource.clone(), used);
            }
        }
        // Where nothing is charged any more, something may be kept back.
        let held_for: BTreeMap<SubjectId, ObjectKey> =
            self.kept.keys().map(|key| (subject(key), key.clone())).collect();
        for key in ledger.held().filter_map(|held| held_for.get(&held)) {
            owed.entry(key.clone()).or_default();
        }
        for (key, mut amounts) in owed {
            let Some((keeping, name)) = keeping(&key) else { continue };
            add(&mut amounts, held(ledger, subject(&key)));
            let policy = policy(keeping, name);
            let charges = amounts.iter().filter_map(|(resource, amount)| {
                let account = ledger.account(&AccountKey::new(&policy, resource, ""))?;
                Some(Charge::new(account, amount.amount(), amount.format()))
            });
            let charges: Vec<Charge> = charges.collect();
            if let Err(denied) = ledger.keep_back(subject(&key), &charges, i64::MAX) {
                tracing::error!(%key, %denied, "what may be allowed still could not be held: a bug");
            }
            let free = free(keeping, name).into_iter().filter(|(resource, _)| amounts.contains_key(resource));
            let free: Vec<(Arc<str>, Quantity)> = free.collect();
            add(&mut amounts, free);
            let kept = self.kept.entry(key).or_default();
            let version = kept.version();
            kept.sent.insert(version, amounts);
        }
    }

    pub fn keys(&self) -> Vec<ObjectKey> {
        self.kept.keys().cloned().collect()
    }

    /// For how many of them something is held.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether something is held for one of them under this name.
    pub fn holds(&self, held: SubjectId) -> bool {
        self.open.values().any(|open| *open == held)
    }

    /// Whether a change of an object of this resource may give something up at all.
    pub fn may_concern(key: &ObjectKey) -> bool {
        let gives_up = |keeping: &Keeping| keeping.policies.is(&key.resource) || keeping.from.is(&key.resource);
        key.resource.is("", "namespaces") || guests::KEEPING.iter().any(gives_up)
    }

    /// What an object's change may have given up in: kept objects of which something may be allowed.
    pub fn concerned(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        let is_namespace = key.resource.is("", "namespaces");
        let namespace = if is_namespace { &key.name } else { &key.namespace };
        let mut concerned = Vec::new();
        for keeping in guests::KEEPING {
            let kept = keeping.kept.resource();
            if keeping.policies.is(&key.resource) {
                let is_its =
                    |one: &&ObjectKey| one.resource == kept && (keeping.policy_of)(&one.name) == Some(&*key.name);
                concerned.extend(self.kept.keys().filter(is_its).cloned());
            } else if is_namespace || keeping.from.is(&key.resource) {
                let within = self.kept.range(ObjectKey::new(kept.clone(), namespace, "")..).map(|(one, _)| one);
                let within = within.take_while(|one| one.resource == kept && one.namespace == *namespace);
                concerned.extend(within.cloned());
            }
        }
        concerned
    }

    /// An object was seen; whether it is one that is kept.
    pub fn see(&mut self, key: &ObjectKey, version: u64, object: Option<&Value>) -> bool {
        let Some((keeping, _)) = keeping(key) else { return false };
        let kept = self.kept.entry(key.clone()).or_default();
        kept.differs = false;
        match object {
            Some(object) => {
                kept.there = Some((version, (keeping.allowed)(object)));
                kept.sent.retain(|base, _| *base >= version);
            }
            None => {
                kept.there = None;
                // On nothing something new may still be made.
                kept.sent.retain(|base, _| *base == 0);
            }
        }
        if kept.is_nothing() {
            self.kept.remove(key);
        }
        true
    }

    /// An object is to be written on a version, or made where that is 0; or to go.
    pub fn send(&mut self, key: &ObjectKey, version: u64, object: Option<&Value>) {
        let Some((keeping, _)) = keeping(key) else { return };
        let kept = self.kept.entry(key.clone()).or_default();
        kept.differs = true;
        if let Some(object) = object {
            join(kept.sent.entry(version).or_default(), &(keeping.allowed)(object));
        }
    }

    /// Holds all that an object allows, as if nothing were claimed there: what is about to be given up is nobody's before
    /// [`KeptBack::settle`] says what is left of it.
    pub fn hold_all(&self, key: &ObjectKey, engine: &mut Engine, now_ms: i64) {
        let Some((keeping, name)) = keeping(key) else { return };
        let amounts = self.left(key, keeping, name, engine, |_| Amount::ZERO);
        engine.keep_back(subject(key), &policy(keeping, name), &amounts, now_ms);
    }

    /// Holds what an object allows beyond what is claimed there.
    pub fn settle(&mut self, key: &ObjectKey, engine: &mut Engine, now_ms: i64) {
        let Some((keeping, name)) = keeping(key) else { return };
        let policy = policy(keeping, name);
        let claimed = |ledger: &Ledger, resource: &str| {
            let account = ledger.account(&AccountKey::new(&policy, resource, &key.namespace));
            account.and_then(|account| ledger.balance(account)).map_or(Amount::ZERO, |balance| balance.used)
        };
        let amounts = self.left(key, keeping, name, engine, |resource| claimed(engine.ledger(), resource));
        engine.keep_back(subject(key), &policy, &amounts, now_ms);
        match engine.ledger().is_held(subject(key)) {
            true => drop(self.open.insert(key.clone(), subject(key))),
            false => drop(self.open.remove(key)),
        }
    }

    /// Those that are as they are to be, while something larger that was sent may still be stored: with the version on which a stamp
    /// is to be put, once for each.
    pub fn to_stamp(&mut self, engine: &Engine) -> Vec<(ObjectKey, u64)> {
        let mut to_stamp = Vec::new();
        for key in self.open.keys().filter(|key| !engine.is_behind(key)) {
            let Some(kept) = self.kept.get_mut(key) else { continue };
            let version = kept.version();
            if version > 0 && !kept.differs && !kept.sent.is_empty() && kept.stamped != Some(version) {
                kept.stamped = Some(version);
                to_stamp.push((key.clone(), version));
            }
        }
        to_stamp
    }

    fn left(
        &self,
        key: &ObjectKey,
        keeping: &Keeping,
        name: &str,
        engine: &Engine,
        claimed: impl Fn(&str) -> Amount,
    ) -> Vec<(Arc<str>, Quantity)> {
        let Some(kept) = self.kept.get(key) else { return Vec::new() };
        let stored = engine.shelves().get(&ObjectKey::new(keeping.policies.resource(), "", name));
        let free = stored.map_or_else(Amounts::new, |policy| (keeping.free)(&policy.value()));
        let left = kept.allowed().into_iter().filter_map(|(resource, allowed)| {
            let free = free.get(&resource).map_or(Amount::ZERO, Quantity::amount);
            let left = allowed.amount().checked_sub(free)?.checked_sub(claimed(&resource))?;
            (left > Amount::ZERO).then(|| (resource, Quantity::new(left, allowed.format())))
        });
        left.collect()
    }
}

/// The object that is kept for a part of a policy.
fn kept_for(account: &AccountKey) -> Option<ObjectKey> {
    if account.bucket.is_empty() {
        return None;
    }
    guests::KEEPING.iter().find_map(|keeping| {
        let prefix = policy(keeping, "");
        let name = account.policy.strip_prefix(&*prefix)?;
        Some(ObjectKey::new(keeping.kept.resource(), &account.bucket, &(keeping.name_for)(name)))
    })
}

fn held(ledger: &Ledger, subject: SubjectId) -> Vec<(Arc<str>, Quantity)> {
    let charges = ledger.subject(subject).map_or_else(Vec::new, |view| view.charges);
    let of = |charge: Charge| {
        Some((ledger.key(charge.account)?.resource.clone(), Quantity::new(charge.amount, charge.format)))
    };
    charges.into_iter().filter_map(of).collect()
}

/// A stamp is worth nothing else than that it was never there before.
pub const STAMP: &str = "quota.bursar.dev/decided-before";

#[cfg(test)]
mod tests {
    use rules::GroupResource;

    use super::*;

    #[test]
    fn the_object_of_a_part_is_found_and_that_of_nothing_else() {
        let pools = GroupResource::new("capsule.clastix.io", "resourcepools");
        let part = AccountKey::new(&policy_name(&pools, "", "gold"), "cpu", "team-a");
        let key = kept_for(&part).expect("it is kept");
        assert_eq!((&*key.namespace, &*key.name), ("team-a", "capsule-pool-gold"));
        assert_eq!(kept_for(&AccountKey { bucket: "".into(), ..part.clone() }), None);
        let other = GroupResource::new("capsule.clastix.io", "customquotas");
        assert_eq!(kept_for(&AccountKey::new(&policy_name(&other, "a", "gold"), "cpu", "team-a")), None);
        assert_ne!(subject(&key), subject(&ObjectKey::new(key.resource.clone(), "team-b", &key.name)));
    }
}
