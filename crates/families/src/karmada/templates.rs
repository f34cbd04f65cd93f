//! Refusing a template as it is applied, where its binding would be refused later. Nothing is charged here: two templates that
//! each fit by themselves are both accepted, and the second one's binding waits.

use std::sync::Arc;

use kinds::field_error::Path;
use kinds::fields::text;
use rules::policy_name;
use serde_json::Value;

use super::binding::{BindingSpec, Target, usage};
use super::interpret::{self, Reserve, Wants};
use super::names::Counted;
use super::policy::{self, Policy};
use super::scopes::Scopes;
use super::{BINDINGS, POLICIES, QUOTAS, quota, schedule};
use crate::{Change, Denial, DenialLine, DenialReason, Operation, Parsed, Refusal, View};

pub fn check(change: &Change<'_>, view: &dyn View, count_evicting: bool, reserve: Reserve) -> Result<(), Refusal> {
    let Some(template) = change.new.filter(|_| !change.namespace.is_empty()) else { return Ok(()) };
    if BINDINGS.is(change.resource) || template.pointer("/metadata/deletionTimestamp").is_some() {
        return Ok(());
    }
    let policies =
        view.parsed(&POLICIES.resource(), change.namespace, &|one| Arc::new(Policy::read(one.clone())) as Parsed);
    let under = |template: &Value| {
        let policies = policies.iter().filter_map(|one| one.downcast_ref::<Policy>());
        policy::best(template, policies).map(|policy| &policy.object)
    };
    let Some(policy) = under(template) else { return Ok(()) };
    let wants = interpret::wants(template, reserve).map_err(Refusal::forbidden)?;
    let name = policy::binding_name(text(template, &["kind"]), change.name);
    let binding = view.get(&BINDINGS.resource(), change.namespace, &name);
    let now = binding.map_or_else(|| Ok(BindingSpec::default()), |one| BindingSpec::read(&one));
    let now = now.map_err(Refusal::forbidden)?;
    let then = grown(&now, &wants, policy);
    // What the template asked for before waits, or is there: only what it asks for beyond that can be refused.
    let asked = Some(change.old).filter(|old| old.is_object()).and_then(|old| {
        let (policy, wants) = (under(old)?, interpret::wants(old, reserve).ok()?);
        Some(grown(&now, &wants, policy))
    });
    let asked = asked.unwrap_or_default();
    let counted =
        |spec: &BindingSpec| usage(spec, count_evicting).map_err(|error| Refusal::forbidden(error.to_string()));
    let (used_now, used_then) = (counted(&now)?, counted(&then)?);
    let used_asked = counted(&asked).unwrap_or_default();
    for stored in view.list(&QUOTAS.resource(), change.namespace) {
        let spec = stored.get("spec").unwrap_or(&Value::Null);
        let Ok(scopes) = Scopes::read(spec, &Path::new("spec")) else { continue };
        if !scopes.match_binding(&then) {
            continue;
        }
        // A binding that comes to be meant by it takes all of it.
        let (was_meant, was_asked) = (scopes.match_binding(&now), scopes.match_binding(&asked));
        let quota_name = text(&stored, &["metadata", "name"]);
        let id = policy_name(&QUOTAS.resource(), change.namespace, quota_name);
        let mut lines = Vec::new();
        for line in view.of(&id).into_iter().filter(|line| line.bucket.is_empty()) {
            let Some(from) = Counted::of(&line.resource) else { continue };
            let amount = |spec, usage| from.amount(spec, usage).map_or(quantity::Amount::ZERO, |one| one.amount);
            let nothing = quantity::Amount::ZERO;
            let had = if was_meant { amount(&now, &used_now) } else { nothing };
            let wanted = amount(&then, &used_then);
            // Who asks for no more than before is as good as he was.
            let is_old = was_asked && wanted <= amount(&asked, &used_asked);
            let more = wanted.checked_sub(had).filter(|_| !is_old);
            let Some(more) = more.filter(|more| *more > quantity::Amount::ZERO) else { continue };
            let (used, limit) = (line.balance.used, line.balance.limit.amount());
            let Some(limit) = limit.filter(|limit| used.checked_add(more).is_none_or(|sum| sum > *limit)) else {
                continue;
            };
            let written = quota::overall(&stored).unwrap_or_default();
            let written = written.iter().find(|(name, _)| *name == line.resource).map(|(_, limit)| limit.to_string());
            lines.push(DenialLine {
                account: line.resource.clone(),
                requested: more,
                requested_format: line.balance.format,
                used,
                held: line.balance.held,
                used_format: line.balance.format,
                limit,
                limit_text: written.unwrap_or_default().into(),
                reason: DenialReason::Full,
            });
        }
        if !lines.is_empty() {
            let denial = Denial {
                policy: id,
                resource: QUOTAS.resource(),
                namespace: change.namespace.into(),
                name: quota_name.into(),
                operation: Operation::Update,
                lines,
                message: None,
                reason: DenialReason::Full,
            };
            return Err(Refusal::forbidden(quota::words(&denial)));
        }
    }
    Ok(())
}

/// The binding as it would have to become for the template, at the least: where it is, or in one cluster.
fn grown(now: &BindingSpec, wants: &Wants, policy: &Value) -> BindingSpec {
    let mut then = now.clone();
    then.replicas = wants.replicas;
    then.replica_requirements = wants.requirements.clone();
    then.components = wants.components.clone();
    then.placement = policy.pointer("/spec/placement").cloned();
    if then.clusters.is_empty() {
        then.clusters = vec![Target { name: String::new(), replicas: wants.replicas, components: Vec::new() }];
    } else if !then.is_divided() {
        then.clusters.iter_mut().for_each(|target| target.replicas = wants.replicas);
    } else if wants.components.is_empty() {
        then.clusters = schedule::fewer(&then, "");
        let placed: u64 = then.clusters.iter().map(|target| u64::from(target.replicas)).sum();
        let more = u64::from(wants.replicas).saturating_sub(placed);
        let Some(first) = then.clusters.first_mut() else { return then };
        first.replicas = first.replicas.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
    }
    then.clusters.iter_mut().for_each(|target| target.components.clear());
    then
}
