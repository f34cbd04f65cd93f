//! What a member was lent for pods that appear at run time: executors, autoscaled replicas.
//!
//! A FederatedQuotaLease says how much the member allows (`hard`), and how much of that bindings are charged for there already
//! (`base`). The difference is lent, and charged. A binding that comes to the member, or leaves it, moves `base` in its own commit:
//! what a member may do is charged before it may, and let go of after it may no longer.
//!
//! What is evicted stays charged with its binding, so that the room it had in the member is not charged a second time: it is
//! `covered`. Whatever the member gives back uncovers it first. Placed anew while it is covered, it would count in both
//! clusters, and is refused where the quota has no room for that ([`check`](super::moves::check)): what is lent and what is charged never
//! are more than the quota together.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, items, text};
use kinds::resources::quantity_of;
use quantity::{Amount, Quantity};
use rules::{Measure, MeasureError, Subject, Verdict, policy_name};
use serde_json::{Map, Value, json};

use super::lending::Amounts;
use super::names::Counted;
use super::slice::same_twice;
use super::{LEASES, QUOTAS};
use crate::kubernetes::validate::amounts;
use crate::{Affected, Cause, Must, Place, PolicyObject, View};

/// The part of a quota's accounts that bindings take in one cluster.
pub fn part(namespace: &str, cluster: &str) -> String {
    format!("{namespace}/{cluster}")
}

/// The part of them that is charged for what was evicted from a cluster and is not placed anew.
pub fn evicted_part(namespace: &str, cluster: &str) -> String {
    format!("{namespace}/{cluster}/evicted")
}

/// One lease for each quota and cluster.
pub fn name(quota: &str, cluster: &str) -> String {
    format!("{quota}.{cluster}")
}

/// `spec.elastic` of a quota: how much room a member is given beyond what it uses.
#[derive(Clone, Debug, Default)]
pub struct Elastic {
    pub chunk: Vec<(String, Quantity)>,
    /// All, when empty.
    pub clusters: Vec<String>,
    /// Whether pods that do not fit wait at a gate.
    pub gates: bool,
}

impl Elastic {
    pub fn read(quota: &Value) -> Option<Elastic> {
        let spec = at(quota, &["spec", "elastic"]).filter(|one| one.is_object())?;
        let chunk = spec.get("chunk").and_then(Value::as_object).into_iter().flatten();
        let chunk = chunk.filter_map(|(name, value)| Some((name.clone(), quantity_of(name, value).ok()?)));
        let clusters = items(spec, &["clusters"]).iter().filter_map(Value::as_str).map(str::to_owned);
        let gates = text(spec, &["whenFull"]) == "Gate";
        Some(Elastic { chunk: chunk.collect(), clusters: clusters.collect(), gates })
    }

    /// Whether this member is lent anything.
    pub fn means(&self, cluster: &str) -> bool {
        self.clusters.is_empty() || self.clusters.iter().any(|one| one == cluster)
    }

    pub fn validate(quota: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
        let Some(spec) = at(quota, &["spec", "elastic"]).filter(|one| !one.is_null()) else { return };
        let elastic = path.child("elastic");
        let chunk = elastic.child("chunk");
        amounts(spec.get("chunk"), &chunk, errors);
        let overall = at(quota, &["spec", "overall"]).and_then(Value::as_object);
        for (name, value) in spec.get("chunk").and_then(Value::as_object).into_iter().flatten() {
            let amount = quantity_of(name, value).unwrap_or_default();
            if amount.clone().round_up_milli() != amount {
                // Members count in thousandths, and would allow more than they were lent.
                let why = "must be a whole number of thousandths";
                errors.push(FieldError::invalid(chunk.key(name), amount.to_string(), why));
            }
            if !overall.is_some_and(|overall| overall.contains_key(name)) {
                errors.push(FieldError::invalid(chunk.key(name), &**name, "is not in overall"));
            }
        }
        let names = overall.into_iter().flatten().map(|(name, _)| &**name).filter(|name| is_lent(name));
        for (one, other) in same_twice(names) {
            let why = format!("says the same as {one}: a quota that lends says it once");
            errors.push(FieldError::invalid(path.child("overall").key(&other), &*other, why));
        }
        let has = |field: &str| at(quota, &["spec", field]).is_some_and(|one| !one.is_null());
        if has("scopes") || has("scopeSelector") {
            let why = "a quota with scopes lends nothing: members cannot tell which pods it means";
            errors.push(FieldError::forbidden(elastic, why));
        }
    }
}

/// The names of a quota that members can count: pods, and what they request.
pub fn is_lent(name: &str) -> bool {
    matches!(Counted::of(name), Some(Counted::Request(_) | Counted::Pods))
}

pub fn amount(lease: &Value, field: &str, name: &str) -> Result<Quantity, String> {
    let value = at(lease, &["spec", field]).and_then(|list| list.get(name)).unwrap_or(&Value::Null);
    quantity_of(name, value).map_err(|error| format!("spec.{field}: {error}"))
}

/// One name of a lease, with what of its bindings is charged elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub hard: Amount,
    /// What bindings are charged for there.
    pub base: Amount,
    /// What bindings are charged for that were evicted from there.
    pub evicted: Amount,
    /// How much of `hard` that is.
    pub covered: Amount,
}

impl Line {
    /// As it is written on a lease.
    pub fn read(lease: &Value, name: &str) -> Result<Line, String> {
        let of = |field: &str| amount(lease, field, name).map(|one| one.amount());
        Ok(Line { hard: of("hard")?, base: of("base")?, evicted: of("evicted")?, covered: of("covered")? })
    }

    /// With other numbers. What was evicted since is covered; what the member gives back uncovers.
    pub fn become_of(self, hard: Amount, base: Amount, evicted: Amount) -> Option<Line> {
        let came = evicted.checked_sub(self.evicted)?.max(Amount::ZERO);
        let given_back = self.hard.checked_sub(hard)?.max(Amount::ZERO);
        let beyond = hard.checked_sub(base)?.max(Amount::ZERO);
        let covered = self.covered.checked_add(came)?.checked_sub(given_back)?;
        let covered = covered.min(evicted).min(beyond).max(Amount::ZERO);
        Some(Line { hard, base, evicted, covered })
    }

    /// What is charged for it.
    pub fn lent(self) -> Amount {
        let beyond = self.hard.checked_sub(self.base).and_then(|beyond| beyond.checked_sub(self.covered));
        // What cannot be counted is charged as a whole.
        beyond.unwrap_or(self.hard).max(Amount::ZERO)
    }
}

/// What a lease takes of one quota.
pub struct LeaseRule {
    pub policy: Arc<str>,
    pub quota: Arc<str>,
    /// By account.
    pub names: Vec<Arc<str>>,
}

impl Measure for LeaseRule {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        if text(subject.object, &["spec", "quota"]) != &*self.quota {
            return Ok(());
        }
        let failed = |message: String| MeasureError { policy: self.policy.clone(), message };
        for (account, name) in self.names.iter().enumerate() {
            let lent = Line::read(subject.object, name).map_err(failed)?.lent();
            let hard = amount(subject.object, "hard", name).map_err(failed)?;
            if lent > Amount::ZERO {
                out.charge(account, lent, hard.format());
            }
        }
        Ok(())
    }
}

pub fn validate(object: &Value, own_name: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::new("spec");
    let (quota, cluster) = (text(object, &["spec", "quota"]), text(object, &["spec", "clusterName"]));
    if own_name != name(quota, cluster) {
        let why = "must be the names of its quota and its cluster, with a dot between them";
        errors.push(FieldError::invalid(Path::new("metadata").child("name"), own_name, why));
    }
    for field in ["hard", "base", "evicted", "covered"] {
        amounts(at(object, &["spec", field]), &spec.child(field), &mut errors);
    }
    errors
}

/// The leases whose base may have moved: of one cluster with what bindings take there, and all of a quota that was written.
pub fn concerned(cause: &Cause<'_>, view: &dyn View) -> Vec<Affected> {
    match cause {
        Cause::Moved { name: quota, part, .. } => {
            let Some((namespace, cluster)) = part.split_once('/') else { return Vec::new() };
            let cluster = cluster.split_once('/').map_or(cluster, |(cluster, _)| cluster);
            vec![Affected::Object(Place::new(LEASES.resource(), namespace, &name(quota, cluster)))]
        }
        Cause::Written(change) if QUOTAS.is(change.resource) => {
            let all = view.list(&LEASES.resource(), change.namespace);
            let own = all.iter().filter(|lease| text(lease, &["spec", "quota"]) == change.name);
            let place = |lease: &Arc<Value>| {
                Place::new(LEASES.resource(), change.namespace, text(lease, &["metadata", "name"]))
            };
            own.map(|lease| Affected::Object(place(lease))).collect()
        }
        _ => Vec::new(),
    }
}

/// A lease says how much of it bindings are charged for, whoever writes it.
pub fn must_be(lease: &PolicyObject<'_>, view: &dyn View) -> Must {
    if lease.object.is_null() {
        return Must::AsItIs;
    }
    let (quota, cluster) = (text(lease.object, &["spec", "quota"]), text(lease.object, &["spec", "clusterName"]));
    let policy = policy_name(&QUOTAS.resource(), lease.namespace, quota);
    let (placed, evicted) = (part(lease.namespace, cluster), evicted_part(lease.namespace, cluster));
    let (placed, evicted) = (taken(&policy, &placed, view), taken(&policy, &evicted, view));
    let stored = view.get(&LEASES.resource(), lease.namespace, lease.name);
    let mut covered = BTreeMap::new();
    for (name, there) in &evicted {
        let of = |amounts: &Amounts| amounts.get(name).map_or(Amount::ZERO, Quantity::amount);
        let hard = amount(lease.object, "hard", name).unwrap_or_default().amount();
        // In a member that was lent nothing yet, nothing is covered.
        let was = match &stored {
            Some(stored) => Line::read(stored, name).unwrap_or_default(),
            None => Line { evicted: of(&evicted), ..Line::default() },
        };
        let line = was.become_of(hard, of(&placed), of(&evicted)).unwrap_or_default();
        if !line.covered.is_zero() {
            covered.insert(name.clone(), Quantity::new(line.covered, there.format()));
        }
    }
    let mut must = lease.object.clone();
    if let Some(spec) = must.get_mut("spec").and_then(Value::as_object_mut) {
        for (field, amounts) in [("base", placed), ("evicted", evicted), ("covered", covered)] {
            let list: Map<String, Value> =
                amounts.into_iter().map(|(name, amount)| (name, json!(amount.to_string()))).collect();
            match list.is_empty() && field != "base" {
                true => drop(spec.remove(field)),
                false => drop(spec.insert(field.into(), Value::Object(list))),
            }
        }
    }
    Must::differ(lease.object, must)
}

/// What a part of a quota's accounts comes to, of what members can count.
pub fn taken(policy: &str, part: &str, view: &dyn View) -> Amounts {
    let lines = view.part(policy, part).into_iter();
    let lent = lines.filter(|line| is_lent(&line.resource) && !line.balance.used.is_zero());
    lent.map(|line| (line.resource.to_string(), Quantity::new(line.balance.used, line.balance.format))).collect()
}
