//! FederatedResourceQuota: from its spec to accounts and the rule that charges bindings; what it shows, how it refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, items, text};
use kinds::names::{NameRule, name_problems};
use kinds::resources::{UsageError, quantity_of};
use ledger::Limit;
use quantity::Quantity;
use rules::{Account, Compiled, Measure, MeasureError, Reach, Rule, Subject, Verdict, policy_name};
use serde_json::{Map, Value};

use super::binding::{BindingSpec, Usage, evicted_by_cluster, usage, usage_on};
use super::lease::{Elastic, LeaseRule, evicted_part, is_lent, part};
use super::names::Counted;
use super::scopes::Scopes;
use super::{BINDINGS, LEASES, Settings};
use crate::kubernetes::validate::amounts;
use crate::{BalanceLine, Denial, PolicyObject};

/// The name becomes the value of a label.
const NAME_BYTES_MAX: usize = 63;
const CLUSTER_NAME_BYTES_MAX: usize = 48;
/// Clusters one quota may be assigned to.
const ASSIGNMENTS_MAX: usize = 1000;

/// A name with a limit.
pub type Overall = Vec<(Arc<str>, Quantity)>;

/// `spec.overall` in the order of its names, which is the order of accounts, statuses and refusals.
pub fn overall(quota: &Value) -> Result<Overall, Vec<FieldError>> {
    let (mut overall, mut errors) = (Vec::new(), Vec::new());
    let spec = Path::new("spec");
    for (name, value) in at(quota, &["spec", "overall"]).and_then(Value::as_object).into_iter().flatten() {
        match quantity_of(name, value) {
            Ok(limit) => overall.push((Arc::from(&**name), limit)),
            Err(error) => {
                errors.push(FieldError::invalid(spec.child("overall").key(name), value.clone(), error.to_string()));
            }
        }
    }
    overall.sort_by(|(one, _): &(Arc<str>, _), (other, _)| one.cmp(other));
    if errors.is_empty() { Ok(overall) } else { Err(errors) }
}

pub fn compile(policy: &PolicyObject<'_>, settings: &Settings) -> Result<Compiled, Vec<FieldError>> {
    let overall = overall(policy.object)?;
    let nothing = Value::Null;
    let spec = policy.object.get("spec").unwrap_or(&nothing);
    let scopes = Scopes::read(spec, &Path::new("spec"))?;
    let (mut accounts, mut counted, mut lent, mut fingerprint) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (name, limit) in overall.iter().filter(|_| settings.enforcement) {
        // What no binding tells anything about is assigned to clusters, which count it themselves.
        let Some(from) = Counted::of(name) else { continue };
        fingerprint.extend_from_slice(name.as_bytes());
        fingerprint.push(0);
        lent.extend(is_lent(name).then_some(counted.len()));
        counted.push(from);
        accounts.push(Account {
            resource: name.clone(),
            limit: Limit::Enforced(limit.amount()),
            limit_text: limit.to_string().into(),
            discounts: false,
        });
    }
    fingerprint.extend_from_slice(format!("{scopes:?}").as_bytes());
    let rule = BindingRule {
        policy: policy_name(policy.resource, policy.namespace, policy.name),
        counted,
        lent,
        scopes,
        count_evicting: settings.count_evicting,
    };
    // Every quota counts by cluster: ledgers that did not are counted again.
    fingerprint.push(3);
    let leases = LeaseRule {
        policy: rule.policy.clone(),
        quota: policy.name.into(),
        names: accounts.iter().map(|account| account.resource.clone()).collect(),
    };
    let rules = match accounts.is_empty() {
        true => Vec::new(),
        false => {
            let there = || Reach::Namespace(policy.namespace.into());
            vec![
                Rule { resources: vec![BINDINGS.resource()], reach: there(), measure: Arc::new(rule) },
                Rule { resources: vec![LEASES.resource()], reach: there(), measure: Arc::new(leases) },
            ]
        }
    };
    Ok(Compiled { accounts, rules, fingerprint, until_ms: None })
}

/// What a binding takes of one quota.
struct BindingRule {
    policy: Arc<str>,
    /// By account.
    counted: Vec<Counted>,
    /// The accounts of which members may be lent something: what is taken in each cluster is counted apart. A quota that lends
    /// nothing any more does so, too: its leases stay until the members gave them back.
    lent: Vec<usize>,
    scopes: Scopes,
    count_evicting: bool,
}

/// A binding, read and added up once for all quotas that ask.
struct Added(Result<(BindingSpec, Usage), String>);

impl Measure for BindingRule {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let added = subject.memo(|subject| {
            Added(BindingSpec::read(subject.object).and_then(|spec| {
                let usage = usage(&spec, self.count_evicting).map_err(|error| error.to_string())?;
                Ok((spec, usage))
            }))
        });
        let failed = |message: &String| MeasureError { policy: self.policy.clone(), message: message.clone() };
        let (spec, usage) = added.0.as_ref().map_err(failed)?;
        if !self.scopes.match_binding(spec) {
            return Ok(());
        }
        for (account, counted) in self.counted.iter().enumerate() {
            if let Some(amount) = counted.amount(spec, usage) {
                out.charge(account, amount.amount, amount.format);
            }
        }
        let counts = |error: UsageError| failed(&error.to_string());
        let mut parts: Vec<(String, Usage)> = Vec::new();
        for target in &spec.clusters {
            parts.push((part(subject.namespace, &target.name), usage_on(spec, &target.name).map_err(counts)?));
        }
        for (cluster, there) in evicted_by_cluster(spec, self.count_evicting).map_err(counts)? {
            parts.push((evicted_part(subject.namespace, cluster), there));
        }
        for (bucket, there) in parts {
            let bucket: Arc<str> = bucket.into();
            for account in self.lent.iter().copied() {
                if let Some(amount) = self.counted[account].amount(spec, &there) {
                    out.charge_bucket(account, bucket.clone(), amount.amount, amount.format);
                }
            }
        }
        Ok(())
    }
}

/// What may be written in a quota, with Karmada's words for what may not.
pub fn validate(name: &str, quota: &Value, settings: &Settings) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.len() > NAME_BYTES_MAX {
        let why = format!("must be no more than {NAME_BYTES_MAX} characters");
        errors.push(FieldError::invalid(Path::new("metadata").child("name"), name, why));
    }
    let spec = Path::new("spec");
    let path = spec.child("overall");
    amounts(at(quota, &["spec", "overall"]), &path, &mut errors);
    let assignments = items(quota, &["spec", "staticAssignments"]);
    if assignments.len() > ASSIGNMENTS_MAX {
        errors.push(FieldError::too_many(spec.child("staticAssignments"), assignments.len(), ASSIGNMENTS_MAX));
        return errors;
    }
    validate_assignments(assignments, &spec.child("staticAssignments"), &mut errors);
    if !errors.is_empty() {
        return errors;
    }
    let overall = match overall(quota) {
        Ok(overall) => overall,
        Err(wrong) => return wrong,
    };
    errors.extend(compare_assignments(&overall, assignments, &spec));
    let assigned: BTreeSet<&str> = assignments.iter().flat_map(hard).map(|(name, _)| name).collect();
    for (name, _) in overall.iter().filter(|_| settings.enforcement) {
        if Counted::of(name).is_none() && !assigned.contains(&**name) {
            let why = "cannot be enforced: bindings tell pods and what they request, and objects by kind; assign it to \
                       clusters in staticAssignments, or leave it out";
            errors.push(FieldError::invalid(path.key(name), &**name, why));
        }
    }
    let nothing = Value::Null;
    Elastic::validate(quota, &spec, &mut errors);
    errors.extend(Scopes::read(quota.get("spec").unwrap_or(&nothing), &spec).err().unwrap_or_default());
    errors
}

fn hard(assignment: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let hard = assignment.get("hard").and_then(Value::as_object);
    hard.into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn validate_assignments(assignments: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (place, assignment) in assignments.iter().enumerate() {
        let at = path.index(place);
        let name = text(assignment, &["clusterName"]);
        errors.extend(cluster_name(name, &at.child("clusterName")));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(at.child("clusterName"), name));
        }
        amounts(assignment.get("hard"), &at.child("hard"), errors);
    }
}

/// A cluster's name goes into namespaces and labels.
pub fn cluster_name(name: &str, path: &Path<'_>) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::invalid(path, name, "must be not empty")];
    }
    let long = (name.len() > CLUSTER_NAME_BYTES_MAX)
        .then(|| format!("must be no more than {CLUSTER_NAME_BYTES_MAX} characters"));
    let wrong = name_problems(name, NameRule::Label);
    long.into_iter().chain(wrong).map(|why| FieldError::invalid(path, name, why)).collect()
}

fn compare_assignments(overall: &Overall, assignments: &[Value], spec: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (list, all) = (spec.child("staticAssignments"), spec.child("overall"));
    let mut sums: BTreeMap<&str, Option<Quantity>> = BTreeMap::new();
    for (place, assignment) in assignments.iter().enumerate() {
        for (name, value) in hard(assignment) {
            if !overall.iter().any(|(known, _)| **known == *name) {
                let at = list.index(place);
                let why = "assignment resourceName is not exist in overall";
                errors.push(FieldError::invalid(at.child("hard").key(name), name, why));
            }
            let more = quantity_of(name, value).ok();
            let sum = sums.entry(name).or_insert(Some(Quantity::ZERO));
            *sum = sum.as_ref().zip(more).and_then(|(sum, more)| sum.checked_add(&more));
        }
    }
    for (name, limit) in overall {
        // A sum that cannot be counted is more than any limit.
        let fits = |sum: &Option<Quantity>| sum.as_ref().is_some_and(|sum| sum.amount() <= limit.amount());
        if sums.get(&**name).is_some_and(|sum| !fits(sum)) {
            errors.push(FieldError::invalid(all.key(name), limit.to_string(), "overall is less than assignments"));
        }
    }
    errors
}

/// `overall`, `overallUsed` and what members told. What is counted by members alone is the sum of what they say.
pub fn status(quota: &Value, lines: &[BalanceLine]) -> Map<String, Value> {
    let mut status = quota.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let overall = overall(quota).unwrap_or_default();
    let mut used = Map::new();
    for (name, limit) in &overall {
        let line = lines.iter().find(|line| line.bucket.is_empty() && line.resource == *name);
        let amount = match line {
            Some(line) => Some(Quantity::new(line.balance.used, line.balance.format)),
            None => told_used(&status, name, limit),
        };
        used.extend(amount.map(|amount| (name.to_string(), Value::String(amount.to_string()))));
    }
    let overall = overall.into_iter().map(|(name, limit)| (name.to_string(), Value::String(limit.to_string())));
    status.insert("overall".into(), Value::Object(overall.collect()));
    status.insert("overallUsed".into(), Value::Object(used));
    status
}

fn told_used(status: &Map<String, Value>, name: &str, limit: &Quantity) -> Option<Quantity> {
    let told = status.get("aggregatedStatus").and_then(Value::as_array)?;
    let mut used =
        told.iter().filter_map(|one| one.get("used")?.get(name)).filter_map(|used| quantity_of(name, used).ok());
    let zero = Quantity::new(quantity::Amount::ZERO, limit.format());
    used.try_fold(zero, |sum, more| sum.checked_add(&more))
}

/// Karmada's words. "requested sum" is what would be used, were it granted. Every account that said no is named.
pub fn words(denial: &Denial) -> String {
    if let Some(message) = &denial.message {
        return message.clone();
    }
    let lines = denial.lines.iter().map(|line| {
        let used = line.used.checked_add(line.held).unwrap_or(line.used);
        let sum = used.checked_add(line.requested).map(|sum| Quantity::new(sum, line.used_format).to_string());
        format!(
            "FederatedResourceQuota({}/{}) exceeded for resource {}: requested sum {}, limit {}.",
            denial.namespace,
            denial.name,
            line.account,
            sum.as_deref().unwrap_or("beyond what can be counted"),
            line.limit_text,
        )
    });
    lines.collect::<Vec<_>>().join(" ")
}
