//! What a tenant's quotas become: a pool for each, and a claim for what each namespace uses of it. Pure.

use std::collections::BTreeSet;

use quantity::{Amount, Quantity};
use serde_json::{Value, json};

use super::tenant::{Amounts, Item, TENANT_LABEL, Tenant, show};

/// Who made the objects. Only what carries this is changed by running the migration again.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "bursar-migrate");
pub const API_VERSION: &str = "capsule.clastix.io/v1beta2";
/// Capsule keeps names of pools and claims in fields that are DNS labels.
const NAME_BYTES_MAX: usize = 63;

pub struct Options {
    pub headroom_percent: u16,
}

#[derive(Default, Debug)]
pub struct Plan {
    pub pools: Vec<PoolPlan>,
    pub claims: Vec<ClaimPlan>,
    /// What a person should know and nothing stops at.
    pub notes: Vec<String>,
}

#[derive(Debug)]
pub struct PoolPlan {
    pub name: String,
    pub hard: Amounts,
    /// The namespaces it is for.
    pub namespaces: BTreeSet<String>,
    pub manifest: Value,
}

#[derive(Debug)]
pub struct ClaimPlan {
    pub name: String,
    pub namespace: String,
    pub pool: String,
    /// What the namespace used when it was looked at.
    pub used: Amounts,
    pub claim: Amounts,
    pub manifest: Value,
}

impl Plan {
    pub fn extend(&mut self, other: Plan) {
        self.pools.extend(other.pools);
        self.claims.extend(other.claims);
        self.notes.extend(other.notes);
    }

    /// Claims come first: they wait for their pool, and the moment it is there they have what they ask for. The other
    /// way round namespaces would have a pool and nothing of it for a while.
    pub fn manifests(&self) -> impl Iterator<Item = &Value> {
        self.claims.iter().map(|claim| &claim.manifest).chain(self.pools.iter().map(|pool| &pool.manifest))
    }
}

impl ClaimPlan {
    pub fn new(tenant: &str, namespace: &str, pool: &str, used: Amounts, claim: Amounts) -> ClaimPlan {
        let manifest = json!({
            "apiVersion": API_VERSION,
            "kind": "ResourcePoolClaim",
            "metadata": {"name": pool, "namespace": namespace, "labels": labels(tenant)},
            "spec": {"pool": pool, "claim": show(&claim)},
        });
        ClaimPlan { name: pool.into(), namespace: namespace.into(), pool: pool.into(), used, claim, manifest }
    }

    /// Asks for this instead.
    pub fn ask_for(&mut self, claim: Amounts) {
        self.manifest["spec"]["claim"] = show(&claim);
        self.claim = claim;
    }
}

fn labels(tenant: &str) -> Value {
    json!({MANAGED_BY.0: MANAGED_BY.1, TENANT_LABEL: tenant})
}

/// The plan for one tenant, or everything that stands against it.
pub fn plan(tenant: &Tenant, options: &Options) -> Result<Plan, Vec<String>> {
    let mut problems = check_namespaces(tenant);
    let mut plan = Plan::default();
    for (at, item) in tenant.items.iter().enumerate() {
        let name = format!("{}-{at}", tenant.name);
        if name.len() > NAME_BYTES_MAX || name.contains('.') {
            problems.push(format!(
                "{name:?} cannot be the name of a pool: it is longer than {NAME_BYTES_MAX} or has a dot"
            ));
        }
        let mut claims = Vec::new();
        for namespace in tenant.namespaces() {
            match claim(tenant, at, item, namespace, options) {
                Ok((used, claim)) if claim.is_empty() => {
                    debug_assert!(used.values().all(Quantity::is_zero));
                    plan.notes.push(format!(
                        "namespace {namespace} uses nothing of {} now and gets no claim on pool {name}; it has to make \
                         one before it can use something",
                        tenant.quota_name(at)
                    ));
                }
                Ok((used, claim)) => claims.push(ClaimPlan::new(&tenant.name, namespace, &name, used, claim)),
                Err(found) => problems.extend(found),
            }
        }
        problems.extend(check_sums(&tenant.quota_name(at), item, &claims, options));
        plan.pools.push(pool(tenant, item, name));
        plan.claims.append(&mut claims);
    }
    if problems.is_empty() { Ok(plan) } else { Err(problems) }
}

fn check_namespaces(tenant: &Tenant) -> Vec<String> {
    let mut problems = Vec::new();
    if !tenant.is_shared {
        problems.push(
            "spec.resourceQuotas.scope is Namespace: its quotas limit each namespace by itself, there is nothing to \
             share in a pool"
                .into(),
        );
    }
    if let Some(labelled) = &tenant.labelled {
        for namespace in labelled.difference(&tenant.listed) {
            problems.push(format!("namespace {namespace} has its label and is not in its status.namespaces"));
        }
        for namespace in tenant.listed.difference(labelled) {
            problems.push(format!(
                "namespace {namespace} is in its status.namespaces and has no label {TENANT_LABEL}={}, by which the \
                 pool would find it",
                tenant.name
            ));
        }
    }
    for namespace in &tenant.terminating {
        problems.push(format!("namespace {namespace} is being removed; wait until it is gone"));
    }
    problems
}

/// What a namespace uses of an item, and what it should claim.
fn claim(
    tenant: &Tenant,
    at: usize,
    item: &Item,
    namespace: &str,
    options: &Options,
) -> Result<(Amounts, Amounts), Vec<String>> {
    let quota = tenant.quota_name(at);
    let Some(used) = tenant.used.get(&(namespace.to_owned(), at)) else {
        return Err(vec![format!("namespace {namespace} has no ResourceQuota {quota}: what it uses is not known")]);
    };
    let (mut claim, mut problems) = (Amounts::new(), Vec::new());
    for resource in item.hard.keys() {
        match used.get(resource) {
            None => problems.push(format!("ResourceQuota {namespace}/{quota} shows no usage of {resource} yet")),
            Some(used) if used.is_zero() => {}
            Some(used) => match with_headroom(used, options.headroom_percent) {
                Some(amount) => drop(claim.insert(resource.clone(), amount)),
                None => problems.push(format!("{resource} in namespace {namespace} is too large to add to")),
            },
        }
    }
    if problems.is_empty() { Ok((used.clone(), claim)) } else { Err(problems) }
}

/// So much more, rounded up: to whole units where whole units are used, else to thousandths.
fn with_headroom(used: &Quantity, percent: u16) -> Option<Quantity> {
    if percent == 0 {
        return Some(used.clone());
    }
    let hundredfold = used.amount().checked_mul(i64::from(percent) + 100)?;
    // Away from zero, so that nothing is lost; what is left of a nano-unit rounds up as well.
    let nanos = hundredfold.nanos() / 100 + i128::from(hundredfold.nanos() % 100 > 0);
    let more = Amount::from_nanos(nanos);
    let rounded = match used.amount().to_units() {
        Some(_) => more.round_up_units()?,
        None => more.round_up_milli()?,
    };
    Some(Quantity::new(rounded, used.format()))
}

/// All claims must fit into the pool, which is exactly what the tenant has.
fn check_sums(quota: &str, item: &Item, claims: &[ClaimPlan], options: &Options) -> Vec<String> {
    let mut problems = Vec::new();
    for (resource, hard) in &item.hard {
        let mut amounts = claims.iter().filter_map(|claim| claim.claim.get(resource)).map(Quantity::amount);
        let sum = amounts.try_fold(Amount::ZERO, Amount::checked_add);
        match sum {
            Some(sum) if sum <= hard.amount() => {}
            _ => {
                let sum =
                    sum.map_or("more than can be counted".into(), |sum| Quantity::new(sum, hard.format()).to_string());
                let advice = match options.headroom_percent {
                    0 => "raise the tenant's quota, or free something",
                    _ => "ask for less headroom, raise the tenant's quota, or free something",
                };
                problems.push(format!(
                    "{quota}: its namespaces would claim {sum} of {resource} and the tenant has {hard}: {advice}"
                ));
            }
        }
    }
    problems
}

fn pool(tenant: &Tenant, item: &Item, name: String) -> PoolPlan {
    let mut quota = item.scopes.clone();
    quota.insert("hard".into(), show(&item.hard));
    let manifest = json!({
        "apiVersion": API_VERSION,
        "kind": "ResourcePool",
        "metadata": {"name": name, "labels": labels(&tenant.name)},
        "spec": {
            "config": {"defaultsZero": true},
            "selectors": [{"matchLabels": {TENANT_LABEL: tenant.name}}],
            "quota": quota,
        },
    });
    PoolPlan { name, hard: item.hard.clone(), namespaces: tenant.namespaces().clone(), manifest }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
