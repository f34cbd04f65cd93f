//! What must be true after a migration: every claim is granted and, where its namespace uses something, bound; every pool
//! has exactly what the tenant had; every namespace is allowed at least what it uses.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use quantity::{Amount, Quantity};
use serde_json::Value;

use super::apply::{claims, pools};
use super::plan::{ClaimPlan, Plan, PoolPlan};
use super::tenant::{Amounts, amounts};

#[derive(Default)]
pub struct Report {
    /// What is not true (yet).
    pub unmet: Vec<String>,
    /// What was verified, for a person.
    pub met: Vec<String>,
}

pub async fn look(client: &Client, plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let mut in_use = 0;
    for claim in &plan.claims {
        let all = claims(client, &claim.namespace).list(&ListParams::default()).await;
        let all = all.context("cannot look at claims")?.items;
        let found = all.iter().find(|one| one.name_any() == claim.name);
        match standing(claim, found) {
            Ok(true) => in_use += 1,
            Ok(false) => {
                // Where others have claims too, usage may rest on theirs.
                let of_pool =
                    |one: &&DynamicObject| one.data.pointer("/spec/pool").is_some_and(|at| *at == *claim.pool);
                if all.iter().filter(of_pool).count() == 1 && is_used(client, claim).await? {
                    report.unmet.push(format!("claim {}/{} is not in use yet", claim.namespace, claim.name));
                }
            }
            Err(why) => report.unmet.push(why),
        }
    }
    report.met.push(format!("{} claims are granted, {in_use} of them in use", plan.claims.len()));
    for pool in &plan.pools {
        look_at_pool(client, plan, pool, &mut report).await?;
        for namespace in &pool.namespaces {
            look_at_namespace(client, plan, pool, namespace, &mut report).await?;
        }
        report.met.push(format!("none of its {} namespaces is allowed less than it uses", pool.namespaces.len()));
    }
    Ok(report)
}

/// Whether a claim is granted, and if so whether it is in use.
fn standing(claim: &ClaimPlan, found: Option<&DynamicObject>) -> Result<bool, String> {
    let name = format!("claim {}/{}", claim.namespace, claim.name);
    let Some(found) = found else { return Err(format!("{name} is gone")) };
    let list = found.data.pointer("/status/conditions").and_then(Value::as_array);
    let conditions: BTreeMap<&str, (&str, &str)> = list
        .into_iter()
        .flatten()
        .map(|one| {
            let text = |field: &str| one.get(field).and_then(Value::as_str).unwrap_or_default();
            (text("type"), (text("status"), text("message")))
        })
        .collect();
    for (condition, wanted) in [("Ready", "True"), ("Exhausted", "False")] {
        match conditions.get(condition) {
            Some((status, _)) if *status == wanted => {}
            Some((_, message)) => return Err(format!("{name}: {message}")),
            None => return Err(format!("{name} has no condition {condition} yet")),
        }
    }
    Ok(conditions.get("Bound").is_some_and(|(status, _)| *status == "True"))
}

/// The pool has what the tenant had, and the claims have what they ask of it.
async fn look_at_pool(client: &Client, plan: &Plan, pool: &PoolPlan, report: &mut Report) -> anyhow::Result<()> {
    let name = &pool.name;
    let found = pools(client).get_opt(name).await.context("cannot look at pools")?;
    let status = found.as_ref().and_then(|found| found.data.pointer("/status/allocation"));
    let read = |field: &str| amounts(status.and_then(|status| status.get(field))).unwrap_or_default();
    let (hard, used) = (read("hard"), read("used"));
    if hard != pool.hard {
        report.unmet.push(format!("pool {name} has {}, the tenant {}", list(&hard), list(&pool.hard)));
    }
    for resource in pool.hard.keys() {
        let asked = plan.claims.iter().filter(|claim| claim.pool == *name);
        let mut asked = asked.filter_map(|claim| claim.claim.get(resource)).map(Quantity::amount);
        let asked = asked.try_fold(Amount::ZERO, Amount::checked_add);
        let given = used.get(resource).map_or(Amount::ZERO, Quantity::amount);
        if asked.is_none_or(|asked| given < asked) {
            report.unmet.push(format!("pool {name} has given out {given} of {resource}, less than is claimed"));
        }
    }
    report.met.push(format!("pool {name} has what the tenant has: {}", list(&hard)));
    Ok(())
}

/// The namespace's new ResourceQuota allows what is claimed, what was used when the plan was made, and what is used now.
async fn look_at_namespace(
    client: &Client,
    plan: &Plan,
    pool: &PoolPlan,
    namespace: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let name = quota_name(&pool.name);
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
    let Some(found) = quotas.get_opt(&name).await.context("cannot look at ResourceQuotas")? else {
        report.unmet.push(format!("namespace {namespace} has no ResourceQuota {name} yet"));
        return Ok(());
    };
    let found = serde_json::to_value(&found)?;
    let read = |path: &str| amounts(found.pointer(path)).unwrap_or_default();
    let (hard, used) = (read("/spec/hard"), read("/status/used"));
    let claim = plan.claims.iter().find(|claim| claim.namespace == namespace && claim.pool == pool.name);
    for resource in pool.hard.keys() {
        let allowed = hard.get(resource).map_or(Amount::ZERO, Quantity::amount);
        let Some(now) = used.get(resource) else {
            report.unmet.push(format!("ResourceQuota {namespace}/{name} shows no usage of {resource} yet"));
            continue;
        };
        let before = claim.and_then(|claim| claim.used.get(resource)).map_or(Amount::ZERO, Quantity::amount);
        let claimed = claim.and_then(|claim| claim.claim.get(resource)).map_or(Amount::ZERO, Quantity::amount);
        if now.amount() > allowed {
            report.unmet.push(format!(
                "namespace {namespace} uses {now} of {resource} and is allowed {allowed}: its usage has grown, run this \
                 again"
            ));
        } else if allowed < claimed || (allowed < before && now.amount() >= before) {
            report.unmet.push(format!("namespace {namespace} is allowed {allowed} of {resource}, it claims {claimed}"));
        }
    }
    Ok(())
}

/// Whether the namespace uses anything of what is claimed.
async fn is_used(client: &Client, claim: &ClaimPlan) -> anyhow::Result<bool> {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), &claim.namespace);
    let found = quotas.get_opt(&quota_name(&claim.pool)).await.context("cannot look at ResourceQuotas")?;
    let used = amounts(serde_json::to_value(&found)?.pointer("/status/used")).unwrap_or_default();
    Ok(claim.claim.keys().any(|resource| used.get(resource).is_some_and(|used| !used.is_zero())))
}

/// Whether the namespace's ResourceQuota of the pool allows what the namespace uses already.
pub async fn is_covered(client: &Client, claim: &ClaimPlan) -> anyhow::Result<bool> {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), &claim.namespace);
    let found = quotas.get_opt(&quota_name(&claim.pool)).await.context("cannot look at ResourceQuotas")?;
    let found = serde_json::to_value(&found)?;
    let hard = amounts(found.pointer("/spec/hard")).unwrap_or_default();
    Ok(claim.used.iter().all(|(resource, used)| hard.get(resource).is_some_and(|hard| hard.amount() >= used.amount())))
}

/// The name of the ResourceQuota that a pool has in each of its namespaces.
fn quota_name(pool: &str) -> String {
    format!("capsule-pool-{pool}")
}

fn list(amounts: &Amounts) -> String {
    let parts: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    if parts.is_empty() { "nothing".into() } else { parts.join(", ") }
}
