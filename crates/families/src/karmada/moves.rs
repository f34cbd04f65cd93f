//! Workloads that leave a member which was lent their room: until it has given that back, what it may use counts beside where they
//! go. A write that needs more than the quota has for both is refused; evictions need none, since what is evicted stays charged once,
//! with its binding.

use std::collections::BTreeSet;

use kinds::field_error::Path;
use kinds::fields::text;
use quantity::Amount;
use rules::policy_name;
use serde_json::Value;

use super::binding::{BindingSpec, Usage, evicted_by_cluster, usage, usage_on};
use super::lease::{self, Line, evicted_part, is_lent, part, taken};
use super::names::Counted;
use super::scopes::Scopes;
use super::{BINDINGS, LEASES, QUOTAS, quota};
use crate::{BalanceLine, Change, Denial, DenialLine, DenialReason, Operation, Refusal, View};

/// One side of a change, counted.
struct Side {
    spec: BindingSpec,
    all: Usage,
    evicted: Vec<(String, Usage)>,
}

impl Side {
    fn read(binding: &Value, count_evicting: bool) -> Result<Side, String> {
        let spec = BindingSpec::read(binding)?;
        let all = usage(&spec, count_evicting).map_err(|error| error.to_string())?;
        let evicted = evicted_by_cluster(&spec, count_evicting).map_err(|error| error.to_string())?;
        let evicted = evicted.into_iter().map(|(cluster, usage)| (cluster.to_owned(), usage)).collect();
        Ok(Side { spec, all, evicted })
    }

    fn clusters(&self) -> impl Iterator<Item = &str> {
        let evicted = self.evicted.iter().map(|(cluster, _)| &**cluster);
        self.spec.clusters.iter().map(|target| &*target.name).chain(evicted)
    }

    /// Nothing, where the quota does not mean it.
    fn amount(&self, of: &Asked<'_>, usage: &Usage) -> Amount {
        let is_meant = of.scopes.match_binding(&self.spec);
        let amount = if is_meant { of.counted.amount(&self.spec, usage) } else { None };
        amount.map_or(Amount::ZERO, |one| one.amount)
    }

    /// What it takes in one cluster, and what it took there before it was evicted.
    fn on(&self, of: &Asked<'_>, cluster: &str) -> Option<(Amount, Amount)> {
        let placed = self.amount(of, &usage_on(&self.spec, cluster).ok()?);
        let evicted = self.evicted.iter().find(|(from, _)| from == cluster);
        Some((placed, evicted.map_or(Amount::ZERO, |(_, usage)| self.amount(of, usage))))
    }
}

/// One account of a quota, and which bindings it counts.
struct Asked<'a> {
    quota: &'a str,
    policy: &'a str,
    scopes: &'a Scopes,
    counted: Counted,
    line: &'a BalanceLine,
}

/// Refuses a binding's move for which quota has no room while what it leaves is not given back.
pub fn check(change: &Change<'_>, view: &dyn View, count_evicting: bool) -> Result<(), Refusal> {
    let Some(new) = change.new.filter(|_| BINDINGS.is(change.resource) && change.old.is_object()) else {
        return Ok(());
    };
    // Those that lend, and those that lend nothing any more and have not got back everything.
    let leases = view.list(&LEASES.resource(), change.namespace);
    if leases.is_empty() {
        return Ok(());
    }
    let lending: BTreeSet<&str> = leases.iter().map(|lease| text(lease, &["spec", "quota"])).collect();
    let old = Side::read(change.old, count_evicting).map_err(Refusal::forbidden)?;
    let new = Side::read(new, count_evicting).map_err(Refusal::forbidden)?;
    for name in lending {
        let Some(stored) = view.get(&QUOTAS.resource(), change.namespace, name) else { continue };
        // One that cannot be read has no accounts, and refuses everything itself.
        let Ok(scopes) = Scopes::read(stored.get("spec").unwrap_or(&Value::Null), &Path::new("spec")) else { continue };
        let policy = policy_name(&QUOTAS.resource(), change.namespace, name);
        let accounts = view.part(&policy, "");
        let lines: Vec<DenialLine> = accounts
            .iter()
            .filter(|line| is_lent(&line.resource))
            .filter_map(|line| {
                let counted = Counted::of(&line.resource)?;
                let of = Asked { quota: name, policy: &policy, scopes: &scopes, counted, line };
                denied(line, &left_behind(&of, change.namespace, (&old, &new), view))
            })
            .collect();
        if lines.is_empty() {
            continue;
        }
        let denial = Denial {
            policy,
            resource: QUOTAS.resource(),
            namespace: change.namespace.into(),
            name: name.into(),
            operation: Operation::Update,
            lines,
            message: None,
            reason: DenialReason::Full,
        };
        let words = quota::words(&denial);
        return Err(Refusal::forbidden(format!("{words} {NOT_GIVEN_BACK}")));
    }
    Ok(())
}

const NOT_GIVEN_BACK: &str =
    "A cluster that it leaves has not given back yet what it was lent for it; what is evicted waits for that.";

/// How much more a quota would count, the room of members included. `None` where that cannot be counted.
fn left_behind(of: &Asked<'_>, namespace: &str, (old, new): (&Side, &Side), view: &dyn View) -> Option<Amount> {
    let Asked { quota, policy, line, .. } = *of;
    let mut growth = new.amount(of, &new.all).checked_sub(old.amount(of, &old.all))?;
    for cluster in old.clusters().chain(new.clusters()).collect::<BTreeSet<_>>() {
        let (was, is) = (old.on(of, cluster)?, new.on(of, cluster)?);
        let Some(stored) = view.get(&LEASES.resource(), namespace, &lease::name(quota, cluster)).filter(|_| was != is)
        else {
            continue;
        };
        let there =
            |part: &str| taken(policy, part, view).get(&*line.resource).map_or(Amount::ZERO, |one| one.amount());
        let (base, evicted) = (there(&part(namespace, cluster)), there(&evicted_part(namespace, cluster)));
        let before = Line::read(&stored, &line.resource).ok()?;
        let base = base.checked_sub(was.0)?.checked_add(is.0)?;
        let evicted = evicted.checked_sub(was.1)?.checked_add(is.1)?;
        let after = before.become_of(before.hard, base, evicted)?;
        growth = growth.checked_add(after.lent())?.checked_sub(before.lent())?;
    }
    Some(growth)
}

fn denied(line: &BalanceLine, growth: &Option<Amount>) -> Option<DenialLine> {
    let (used, limit) = (line.balance.used, line.balance.limit.amount()?);
    let fits = |more: Amount| more <= Amount::ZERO || used.checked_add(more).is_some_and(|sum| sum <= limit);
    if growth.is_some_and(fits) {
        return None;
    }
    Some(DenialLine {
        account: line.resource.clone(),
        requested: growth.unwrap_or(limit),
        requested_format: line.balance.format,
        used,
        held: line.balance.held,
        used_format: line.balance.format,
        limit,
        limit_text: quantity::Quantity::new(limit, line.balance.format).to_string().into(),
        reason: DenialReason::Full,
    })
}
