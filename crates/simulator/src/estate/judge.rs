//! Whether the ledger is what the stored objects add up to, by a count that shares no code with what charges ([`naive`]):
//! each account and each part of one, each subject, whoever waits with what it keeps, and each kept object. All of it is read
//! from durable rows.
//!
//! [`naive`]: super::naive

use std::collections::{BTreeMap, BTreeSet};

use families::Balances;
use ledger::{Ledger, State, SubjectId};
use quantity::Amount;
use serde_json::Value;
use server::core::Cache;

use super::apart::{Apart, is_apart, judge_apart, judge_strangers};
use super::durable::{Added, Durable};
use super::holds::judge_holds;
use super::naive::{self, Expected, Stored, Sums, name_of, nanos};
use super::naive_karmada;
use super::naive_orgs;
use super::season::SEASONS;

/// Fails with words and both sides when they are not the same.
macro_rules! same {
    ($left:expr, $right:expr, $($words:tt)+) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            return Err(format!("{}: found {left:?}, expected {right:?}", format!($($words)+)));
        }
    }};
}

macro_rules! holds {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!($($words)+));
        }
    };
}

/// What was found, for whoever compares two moments.
#[derive(Clone, Default)]
pub struct Found {
    /// What every subject is charged, and who waits.
    pub charged: BTreeMap<SubjectId, Sums>,
    pub waiting: BTreeSet<SubjectId>,
    pub used: Sums,
    /// What is held for objects, whatever they are charged.
    pub held: BTreeMap<SubjectId, Sums>,
    pub limits: BTreeMap<(String, String), Option<i128>>,
    pub broken: usize,
    /// What is no policy's.
    pub apart: Apart,
}

/// What pools have granted, by policy and namespace.
type Granted = BTreeMap<(String, String), BTreeMap<String, i128>>;

/// Judges durable rows. `is_exact` after a group of one command: then whoever waits has what it had before it.
pub fn judge(durable: &mut Durable, added: &Added, is_exact: bool) -> Result<Found, String> {
    let ledger = durable.ledger()?;
    ledger.audit().map_err(|error| format!("the ledger contradicts itself: {error:?}"))?;
    let stored = durable.stored();
    let expected = stored.expected();
    let mut found = Found { broken: expected.broken.len(), limits: expected.limits.clone(), ..Found::default() };
    let mut granted = Granted::new();
    found.apart = judge_apart(&ledger)?;
    judge_holds(durable, &ledger, added, &mut found)?;
    judge_subjects(durable, &ledger, &expected, is_exact, &mut found, &mut granted)?;
    judge_accounts(&stored, &ledger, &expected, &found)?;
    judge_lines(durable, &ledger, &found, &expected)?;
    judge_kept(&stored, &granted)?;
    Ok(found)
}

/// Each object has what it asks for, or waits for what it asks of its pool and keeps what it had of that.
fn judge_subjects(
    durable: &Durable,
    ledger: &Ledger,
    expected: &Expected,
    is_exact: bool,
    found: &mut Found,
    granted: &mut Granted,
) -> Result<(), String> {
    let live: BTreeSet<u128> = expected.charged.keys().chain(expected.claimed.keys()).copied().collect();
    for id in &live {
        let (at_once, claimed) = (expected.charged.get(id), expected.claimed.get(id));
        let wanted: Sums = at_once.into_iter().chain(claimed).flatten().map(|(key, n)| (key.clone(), *n)).collect();
        let subject = SubjectId(*id);
        let view = ledger.subject(subject).ok_or_else(|| format!("{id:x} is charged nothing, and not {wanted:?}"))?;
        let settled = if matches!(view.state, State::Held { .. }) { &view.settled } else { &view.charges };
        same!(named(ledger, settled), wanted, "what {id:x} has or waits for");
        let waits = matches!(view.state, State::Waiting(_));
        let charged = named(ledger, &view.into_charged());
        let had = durable.had.get(&subject);
        for (key, wanted) in &wanted {
            let waits_for = waits && claimed.is_some_and(|claimed| claimed.contains_key(key));
            let keeps = had.and_then(|had| had.get(key)).copied().unwrap_or_default().min(*wanted);
            let has = charged.get(key).copied().unwrap_or_default();
            match (waits_for, is_exact) {
                (false, _) => same!(has, *wanted, "what {id:x} is charged on {key:?}"),
                (true, true) => same!(has, keeps, "what {id:x} keeps of {key:?} while it waits"),
                (true, false) => holds!((0..=*wanted).contains(&has), "{id:x} waits and has {has} of {wanted}"),
            }
        }
        for (key, amount) in &charged {
            *found.used.entry(key.clone()).or_default() += amount;
            let (policy, name, bucket) = key;
            if claimed.is_some_and(|claimed| claimed.contains_key(key)) && !bucket.is_empty() && name != "#claims" {
                let parts = granted.entry((policy.clone(), bucket.clone())).or_default();
                *parts.entry(name.clone()).or_default() += amount;
            }
        }
        if waits {
            found.waiting.insert(subject);
        }
        found.charged.insert(subject, charged);
    }
    judge_strangers(durable, ledger, &live)
}

/// Accounts: all that policies list, parts of these, and no others.
fn judge_accounts(stored: &Stored, ledger: &Ledger, expected: &Expected, found: &Found) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let sized = stored.all(naive::POOLS).iter().filter(|pool| pool["spec"]["nodes"].is_object());
    let sized: BTreeSet<String> = sized.map(|pool| naive::policy(naive::POOLS, pool)).collect();
    for (key, balance) in ledger.balances().filter(|(key, _)| !is_apart(&key.policy)) {
        let (policy, name, bucket) = (key.policy.to_string(), key.resource.to_string(), key.bucket.to_string());
        let limit = expected.limits.get(&(policy.clone(), name.clone()));
        let limit = limit.ok_or_else(|| format!("{key} is an account that no policy lists"))?;
        let limit = limit.filter(|_| bucket.is_empty());
        same!(balance.limit.amount().map(Amount::nanos), limit, "the limit of {key}");
        let place = (policy.clone(), name, bucket);
        same!(balance.used.nanos(), found.used.get(&place).copied().unwrap_or_default(), "used of {key}");
        // A pool that nodes size can be smaller than what is claimed of it; the others never are.
        if let Some(limit) = limit.filter(|_| policy.starts_with(naive::POOLS) && !sized.contains(&policy)) {
            holds!(balance.used.nanos() <= limit, "{key} has given more than it has");
        }
        seen.insert(place);
    }
    for (policy, name) in expected.limits.keys() {
        holds!(seen.contains(&(policy.clone(), name.clone(), String::new())), "{policy} {name} has no account");
    }
    for key in found.used.keys() {
        holds!(seen.contains(key), "{key:?} is charged and has no account");
    }
    Ok(())
}

/// What an organization takes beyond its limits does not grow by one command; only limits come down on it.
pub fn judge_growth(before: &Found, after: &Found) -> Result<(), String> {
    let of_orgs = after.used.iter().filter(|((policy, ..), _)| policy.starts_with(naive_orgs::ORGS));
    for (key, used) in of_orgs {
        let place = (key.0.clone(), key.1.clone());
        let limit = after.limits.get(&place).copied().flatten();
        let same = before.limits.get(&place) == after.limits.get(&place);
        let had = before.used.get(key).copied().unwrap_or_default();
        let grew = same && *used > had;
        holds!(!grew || limit.is_none_or(|limit| *used <= limit), "{key:?} grew from {had} to {used} over {limit:?}");
    }
    Ok(())
}

/// In a line, whoever was created first comes first; and nobody stands there who could have all it asks for.
fn judge_lines(durable: &Durable, ledger: &Ledger, found: &Found, expected: &Expected) -> Result<(), String> {
    let born: BTreeMap<SubjectId, u64> = durable.objects.values().map(|kept| (kept.uid, kept.born)).collect();
    for (key, balance) in ledger.balances() {
        let line = ledger.waiting_for(balance.account);
        holds!(line.is_sorted_by_key(|subject| born.get(subject)), "the line for {key} is out of order");
    }
    let pools = durable.stored();
    let is_ordered = |policy: &str| {
        let mut pools = pools.all(naive::POOLS).iter().filter(|pool| naive::policy(naive::POOLS, pool) == policy);
        pools.any(|pool| pool["spec"]["config"]["orderedQueue"] == true)
    };
    let lacks: BTreeMap<SubjectId, Sums> =
        found.waiting.iter().map(|subject| (*subject, lacks(ledger, *subject, found))).collect();
    for (subject, lack) in &lacks {
        let decides = |key: &&(String, String, String)| {
            expected.deciding.get(&subject.0).is_none_or(|deciding| deciding.contains(*key))
        };
        let fits = lack.iter().filter(|(key, _)| decides(key)).all(|(key @ (policy, name, bucket), more)| {
            let limit = found.limits.get(&(policy.clone(), name.clone())).copied().flatten();
            !bucket.is_empty() || limit.is_none_or(|limit| found.taken(key) + more <= limit)
        });
        let is_ahead = |other: &SubjectId, others: &Sums| {
            born.get(other) < born.get(subject)
                && others.keys().any(|key| is_ordered(&key.0) && key.2.is_empty() && lack.contains_key(key))
        };
        let stands_behind = lacks.iter().any(|(other, others)| other != subject && is_ahead(other, others));
        holds!(!fits || stands_behind, "{:x} waits for {lack:?}, which is there", subject.0);
    }
    Ok(())
}

/// What somebody waits for beyond what it has.
fn lacks(ledger: &Ledger, subject: SubjectId, found: &Found) -> Sums {
    let charged = found.charged.get(&subject);
    let wanted = ledger.subject(subject).map(|view| named(ledger, &view.charges)).unwrap_or_default();
    let mut lacks = Sums::new();
    for (key, wanted) in wanted {
        let more = wanted - charged.and_then(|charged| charged.get(&key)).copied().unwrap_or_default();
        if more > 0 {
            lacks.insert(key, more);
        }
    }
    lacks
}

/// Each namespace of a pool has a quota over what its claims have, and the defaults.
fn judge_kept(stored: &Stored, granted: &Granted) -> Result<(), String> {
    for pool in stored.all(naive::POOLS) {
        if pool["metadata"]["deletionTimestamp"].is_string() {
            continue;
        }
        if pool["spec"]["nodes"].is_object() {
            let large = stored.all("nodes").iter().filter(|node| node["metadata"]["labels"]["size"] == "large");
            let sum: i128 = large.map(|node| nanos(&node["status"]["allocatable"]["pods"])).sum();
            let half = sum / naive::ONE / 2 * naive::ONE;
            same!(nanos(&pool["spec"]["quota"]["hard"]["pods"]), half, "the size of {}", name_of(pool));
        }
        let served = stored.served(pool);
        for quota in stored.all("resourcequotas") {
            let is_of = quota["metadata"]["labels"]["projectcapsule.dev/pool"] == pool["metadata"]["name"];
            let namespace = naive::namespace_of(quota);
            holds!(!is_of || served.contains(namespace), "{} keeps a quota in {namespace}", name_of(pool));
        }
        for namespace in served {
            let leaves = |one: &Value| one["metadata"]["deletionTimestamp"].is_string();
            if stored.named("namespaces", "", &namespace).is_none_or(leaves) {
                continue;
            }
            let quota = stored.named("resourcequotas", &namespace, &format!("capsule-pool-{}", name_of(pool)));
            let quota = quota.ok_or_else(|| format!("{} keeps no quota in {namespace}", name_of(pool)))?;
            let policy = naive::policy(naive::POOLS, pool);
            let mut hard = granted.get(&(policy, namespace.clone())).cloned().unwrap_or_default();
            for (name, default) in pool["spec"]["defaults"].as_object().into_iter().flatten() {
                *hard.entry(name.clone()).or_default() += nanos(default);
            }
            same!(amounts(&quota["spec"]["hard"]), hard, "what {} keeps in {namespace}", name_of(pool));
        }
    }
    Ok(())
}

/// The objects that readers are shown are those that are durable.
pub fn judge_objects(durable: &Durable, cache: &Cache) -> Result<(), String> {
    same!(cache.revision(), durable.revision(), "the revision that readers see");
    let shown: usize = cache.counts().into_iter().map(|(_, count)| count).sum();
    same!(shown, durable.objects.len(), "objects that readers see");
    for kept in durable.objects.values() {
        let shown = cache.get(&kept.key).map(|object| object.revision);
        same!(shown, Some(kept.revision), "the revision of {} that readers see", kept.key);
    }
    Ok(())
}

/// The same for balances, once the engine has been told the time.
pub fn judge_balances(durable: &Durable, cache: &Cache) -> Result<(), String> {
    judge_some_balances(durable, cache, |_, _, _| true)
}

/// The same, without parts of accounts that nobody takes anything of, and without seasons: whoever is measured again for one is
/// put in line.
pub fn judge_taken(durable: &Durable, cache: &Cache) -> Result<(), String> {
    judge_some_balances(durable, cache, |policy, bucket, used| {
        !policy.starts_with(SEASONS) && (bucket.is_empty() || !used.is_zero())
    })
}

fn judge_some_balances(
    durable: &Durable,
    cache: &Cache,
    counts: impl Fn(&str, &str, Amount) -> bool,
) -> Result<(), String> {
    let ledger = durable.ledger()?;
    let mut known: BTreeMap<&str, BTreeMap<(&str, &str), _>> = BTreeMap::new();
    let of_policies = ledger.balances().filter(|(key, _)| !is_apart(&key.policy));
    for (key, balance) in of_policies.filter(|(key, balance)| counts(&key.policy, &key.bucket, balance.used)) {
        known.entry(&key.policy).or_default().insert((&key.resource, &key.bucket), (balance.used, balance.limit));
    }
    for (policy, known) in known {
        let lines = cache.of(policy);
        let lines = lines.iter().filter(|line| counts(policy, &line.bucket, line.balance.used));
        let shown: BTreeMap<(&str, &str), _> =
            lines.map(|line| ((&*line.resource, &*line.bucket), (line.balance.used, line.balance.limit))).collect();
        same!(shown, known, "what readers see of {policy}");
    }
    Ok(())
}

/// Compares what statuses say with the same count, once all of them are published.
pub fn judge_statuses(durable: &Durable) -> Result<(), String> {
    let (stored, ledger) = (durable.stored(), durable.ledger()?);
    let broken: BTreeSet<String> = stored.expected().broken.into_iter().map(|broken| broken.policy).collect();
    let used = |policy: &str, bucket: &str| -> BTreeMap<String, i128> {
        let of = ledger.balances().filter(|(key, _)| &*key.policy == policy && &*key.bucket == bucket);
        of.map(|(key, balance)| (key.resource.to_string(), balance.used.nanos())).collect()
    };
    for quota in stored.all("resourcequotas") {
        let policy = naive::policy("resourcequotas", quota);
        same!(amounts(&quota["status"]["used"]), used(&policy, ""), "status of {policy}");
        same!(amounts(&quota["status"]["hard"]), amounts(&quota["spec"]["hard"]), "status of {policy}");
    }
    for quota in stored.all(naive::TREE) {
        let policy = naive::policy(naive::TREE, quota);
        same!(amounts(&quota["status"]["used"]), used(&policy, ""), "status of {policy}");
    }
    for quota in stored.all(naive::CLUSTER) {
        let policy = naive::policy(naive::CLUSTER, quota);
        same!(amounts(&quota["status"]["total"]["used"]), used(&policy, ""), "status of {policy}");
        for part in quota["status"]["namespaces"].as_array().into_iter().flatten() {
            let namespace = part["namespace"].as_str().unwrap_or_default();
            let mut known = used(&policy, "");
            known.values_mut().for_each(|used| *used = 0);
            known.extend(used(&policy, namespace));
            same!(amounts(&part["status"]["used"]), known, "status of {policy} in {namespace}");
        }
    }
    for kind in [naive::CUSTOM, naive::GLOBAL] {
        for quota in stored.all(kind) {
            let policy = naive::policy(kind, quota);
            if broken.contains(&policy) {
                let conditions = quota["status"]["conditions"].as_array().into_iter().flatten();
                let mut told = conditions.filter(|one| one["type"] == "Ready" && one["status"] == "False");
                holds!(told.next().is_some(), "{policy} is broken and does not say so");
                continue;
            }
            let usage = used(&policy, "").get("usage").copied().unwrap_or_default().max(0);
            same!(nanos(&quota["status"]["usage"]["used"]), usage, "status of {policy}");
        }
    }
    for quota in stored.all(naive_karmada::FEDERATED) {
        let policy = naive::policy(naive_karmada::FEDERATED, quota);
        same!(amounts(&quota["status"]["overallUsed"]), used(&policy, ""), "status of {policy}");
    }
    for slice in stored.all(naive_karmada::SLICES) {
        let policy = naive::policy(naive_karmada::SLICES, slice);
        same!(amounts(&slice["status"]["used"]), used(&policy, ""), "status of {policy}");
    }
    for pool in stored.all(naive::POOLS) {
        let policy = naive::policy(naive::POOLS, pool);
        let mut known = used(&policy, "");
        known.remove("#claims");
        same!(amounts(&pool["status"]["allocation"]["used"]), known, "status of {policy}");
    }
    Ok(())
}

fn amounts(list: &Value) -> BTreeMap<String, i128> {
    let sum = |amount: &Value| naive::read_sum(amount).unwrap_or(-1);
    list.as_object().into_iter().flatten().map(|(name, amount)| (name.clone(), sum(amount))).collect()
}

/// Charges on accounts of policies, by key.
pub fn named(ledger: &Ledger, charges: &[ledger::Charge]) -> Sums {
    let named = charges.iter().filter_map(|charge| {
        let key = ledger.key(charge.account).filter(|key| !is_apart(&key.policy))?;
        Some(((key.policy.to_string(), key.resource.to_string(), key.bucket.to_string()), charge.amount.nanos()))
    });
    named.collect()
}
