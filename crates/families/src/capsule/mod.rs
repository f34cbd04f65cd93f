//! Capsule's quotas (`capsule.clastix.io/v1beta2`): CustomQuota and GlobalCustomQuota count any kind of object by
//! JSONPath or CEL; ResourcePool and ResourcePoolClaim share out what ResourceQuotas allow.
//!
//! Start reading at [`quota`]: a spec becomes one limited account and one rule for each kind its sources name.
//! [`source`] says how much an object takes, [`selection`] which objects are meant, [`targets`] which resource an
//! apiVersion and kind are, [`status`] what a quota shows, [`words`] how it refuses, [`metrics`] what monitoring sees. For
//! pools start at [`pool`]: a pool is a policy, a claim a subject that waits in line; [`claim`] says what a claim tells of
//! itself, [`in_use`] which claims are in use, [`provision`] what ResourceQuota a pool's namespaces get.
//!
//! Two readings of the same manifests ([`Reading`]) differ where Capsule's documentation and Capsule's releases do. What
//! is decided once for both:
//!
//! - **`sub`** discounts what the quota counts, whichever object it stands in: an object takes the sum of its `add` and
//!   `count` sources less the sum of its `sub` sources, which may be less than nothing, and usage is the sum over all
//!   objects, shown as zero when it is below. The order of sources and of objects does not matter. Deleting an object
//!   that discounts is never refused, and may leave usage above the limit; nothing grows then until it fits again.
//! - **A part below zero** (a path that finds `[100, -100]`) cannot be evaluated: `sub` is the way to discount.
//! - **An object that cannot be evaluated** (a path that finds no quantity, say) is refused when it is written. One that
//!   was there before its quota is kept, counted apart (the account `unevaluated`) and named in the quota's `Ready`
//!   condition; it takes nothing from the limit and blocks nobody else.
//! - **All versions of a kind** are one: the version in a source is shown and not compared, so that no client escapes by
//!   asking for another version.
//! - **Usage above the limit** (a quota newer than its objects) refuses growth only. Shrinking and relabelling pass.

mod claim;
mod definitions;
pub(crate) use targets::{Resolved, Target};

pub(crate) mod schemas {
    pub use super::definitions::{age, column, conditions, list};
}
mod in_use;
mod jit;
pub mod loops;
mod metrics;
mod nodes;
mod pool;
mod pool_definitions;
mod pool_status;
mod provision;
mod quota;
mod selection;
mod settings;
mod source;
mod status;
mod targets;
mod upkeep;
mod virtual_ledger;
mod words;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use kinds::fields::{given as at, items, text};
use rules::{Compiled, GroupResource, Reach, policy_name};
use serde_json::Value;

use crate::metrics::{Samples, Survey};
use crate::{
    Admission, Affected, Balances, Cause, Change, Denial, Family, Manifest, Must, Operation, Outbox, Place, Plural,
    PolicyObject, Projected, Refusal, Remarks, Uncompiled, View, Words, World,
};

pub const GROUP: &str = "capsule.clastix.io";
pub const VERSION: &str = "v1beta2";
pub const CUSTOM_QUOTAS: &str = "customquotas";
pub const GLOBAL_CUSTOM_QUOTAS: &str = "globalcustomquotas";
pub const RESOURCE_POOLS: &str = "resourcepools";
pub const RESOURCE_POOL_CLAIMS: &str = "resourcepoolclaims";

pub use claim::quota_name;
pub use pool::check_as_guest;
use pool::is_released;
pub use provision::{allowed, defaults, pool_of};
pub use settings::{Reading, Settings};
pub use upkeep::let_go;

/// The family.
pub struct Capsule {
    settings: Settings,
    custom_quotas: GroupResource,
    global_custom_quotas: GroupResource,
}

/// The policy kinds of this family.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    CustomQuota,
    GlobalCustomQuota,
    ResourcePool,
    ResourcePoolClaim,
}

impl Kind {
    fn of(resource: &GroupResource) -> Option<Kind> {
        match (&*resource.group, &*resource.resource) {
            (GROUP, CUSTOM_QUOTAS) => Some(Kind::CustomQuota),
            (GROUP, GLOBAL_CUSTOM_QUOTAS) => Some(Kind::GlobalCustomQuota),
            (GROUP, RESOURCE_POOLS) => Some(Kind::ResourcePool),
            (GROUP, RESOURCE_POOL_CLAIMS) => Some(Kind::ResourcePoolClaim),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::CustomQuota => "CustomQuota",
            Kind::GlobalCustomQuota => "GlobalCustomQuota",
            Kind::ResourcePool => "ResourcePool",
            Kind::ResourcePoolClaim => "ResourcePoolClaim",
        }
    }
}

impl Capsule {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            custom_quotas: GroupResource::new(GROUP, CUSTOM_QUOTAS),
            global_custom_quotas: GroupResource::new(GROUP, GLOBAL_CUSTOM_QUOTAS),
        }
    }
}

const CUSTOM: Plural = Plural(GROUP, CUSTOM_QUOTAS);
const GLOBAL: Plural = Plural(GROUP, GLOBAL_CUSTOM_QUOTAS);
const POOLS: Plural = Plural(GROUP, RESOURCE_POOLS);
const CLAIMS: Plural = Plural(GROUP, RESOURCE_POOL_CLAIMS);
const QUOTAS: Plural = Plural("", "resourcequotas");

static MANIFEST: Manifest = Manifest {
    name: "capsule",
    definitions: definitions::definitions,
    policies: &[CUSTOM, GLOBAL, POOLS],
    projected: &[CLAIMS],
    naming: &[CUSTOM, GLOBAL],
    selecting: &[GLOBAL, POOLS],
    keeping: &[POOLS],
    // Pools that nodes size, and what pools provision.
    shaped: &[POOLS, QUOTAS],
    watched: &[Plural("", "nodes"), Plural("", "namespaces"), POOLS, QUOTAS, CLAIMS],
    meaning: &[Plural("apiextensions.k8s.io", "customresourcedefinitions")],
    virtuals: &[virtual_ledger::RESOURCE],
    metrics: metrics::ALL,
    ..Manifest::EMPTY
};

impl Family for Capsule {
    fn manifest(&self) -> &Manifest {
        &MANIFEST
    }

    fn affected(&self, cause: &Cause<'_>, view: &dyn View) -> Vec<Affected> {
        let objects = |places: Vec<Place>| places.into_iter().map(Affected::Object).collect();
        match cause {
            Cause::Written(change) if *change.resource == nodes::nodes() => objects(nodes::sized_by(change, view)),
            Cause::Written(change) => {
                let mut claims = upkeep::concerned(change, view);
                if change.resource.is("", "resourcequotas") {
                    claims.extend(jit::concerned(change, view));
                }
                let others =
                    if *change.resource == claim::claims() { Vec::new() } else { provision::concerned(change, view) };
                objects(others.into_iter().chain(claims).collect())
            }
            Cause::Moved { name, part, .. } => objects(vec![provision::place(name, part)]),
            Cause::Refused(refused) => {
                let companions = jit::companions(refused, view).unwrap_or_default();
                companions.into_iter().map(Affected::Companion).collect()
            }
            // Usage of a pool's ResourceQuota decides which claims are in use; a pool's balance, what waiting claims tell.
            Cause::Shown { resource, object } => {
                let told = claim::told_by(resource, object, view, self.settings.reading);
                told.into_iter().map(Affected::Status).collect()
            }
        }
    }

    fn must_be(&self, object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
        match Kind::of(object.resource) {
            _ if object.object.is_null() && Kind::of(object.resource).is_some() => Ok(Must::AsItIs),
            Some(Kind::ResourcePool) => Ok(upkeep::pool(object.object, view)?),
            Some(Kind::ResourcePoolClaim) => Ok(upkeep::claim(object.object, view)),
            _ => Ok(provision::must_be(object, view)),
        }
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        match Kind::of(policy.resource).unwrap_or(Kind::CustomQuota) {
            Kind::ResourcePool => pool::compile(policy).map_err(|errors| {
                let everywhere = Reach::Selected(Arc::new(|_| true));
                Uncompiled { errors, would_look_at: vec![(claim::claims(), everywhere)] }
            }),
            kind => quota::compile(kind, policy, &self.settings, world)
                .map_err(|errors| Uncompiled { errors, would_look_at: quota::would_look_at(kind, policy, world) }),
        }
    }

    /// A definition means something to policies that name its kind, and only by what they go by of it.
    fn may_mean_otherwise(&self, change: &Change<'_>, policy: &str) -> bool {
        targets::change_what_is_meant(change, policy)
    }

    fn measuring(&self) -> String {
        format!("{:?}", self.settings)
    }

    fn admit(&self, request: &mut Admission<'_>, _world: &dyn World) -> Result<(), String> {
        if request.operation == Operation::Status || !request.subresource.is_empty() {
            return Ok(());
        }
        match Kind::of(request.resource) {
            Some(Kind::ResourcePool) => pool::default(request.object),
            Some(Kind::ResourcePoolClaim) => claim::admit(request),
            Some(Kind::CustomQuota | Kind::GlobalCustomQuota) => quota::admit(request.object),
            None => {}
        }
        Ok(())
    }

    fn validate(&self, request: &Admission<'_>, _world: &dyn World) -> Remarks {
        let errors = match Kind::of(request.resource) {
            _ if request.operation == Operation::Status || !request.subresource.is_empty() => Vec::new(),
            None => Vec::new(),
            Some(Kind::ResourcePool) => {
                let mut errors = pool::validate(request.name, request.object, request.old);
                errors.extend(nodes::validate(request.object));
                errors
            }
            Some(Kind::ResourcePoolClaim) => claim::validate(request.object, request.old),
            Some(kind) => quota::validate(kind, request.object, request.old, &self.settings),
        };
        errors.into()
    }

    fn check(&self, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
        let Some(kind) = Kind::of(change.resource).filter(|_| !change.old.is_null()) else { return Ok(()) };
        if kind == Kind::ResourcePoolClaim {
            jit::guard(change, view)?;
            return Ok(claim::guard(change, view, self.settings.reading)?);
        }
        let Some(new) = change.new else { return Ok(()) };
        if kind == Kind::ResourcePool {
            return Ok(pool::check_shrinking(new, &view.of(&policy_name(change.resource, "", change.name)))?);
        }
        if self.settings.reading == Reading::Documentation {
            return Ok(());
        }
        let lines = view.of(&policy_name(change.resource, change.namespace, change.name));
        Ok(quota::check_change(kind, change.old, new, &lines)?)
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        match Kind::of(resource) {
            Some(Kind::ResourcePool) => pool_status::project(resource, object, balances),
            Some(Kind::ResourcePoolClaim) => claim::project(object, balances, self.settings.reading),
            Some(kind) => status::project(kind, resource, object, balances, &self.settings),
            None => Projected::Unchanged,
        }
    }

    fn words(&self, denial: &Denial) -> Words {
        Words { text: words::words(denial), rank: words::rank(denial, self.settings.reading) }
    }

    fn controllers(&self, client: kube::Client, _outbox: Arc<dyn Outbox>) -> Vec<BoxFuture<'static, ()>> {
        loops::start(client, &self.settings.loops)
    }

    fn sample(&self, survey: &dyn Survey, out: &mut Samples) {
        metrics::sample(&self.custom_quotas, survey, out);
    }

    fn virtual_objects(
        &self,
        resource: &GroupResource,
        namespace: &str,
        world: &dyn World,
        balances: &dyn Balances,
    ) -> Vec<Value> {
        if !resource.is(GROUP, virtual_ledger::RESOURCE.resource) {
            return Vec::new();
        }
        let mut shown = virtual_ledger::ledgers(&self.custom_quotas, namespace, world, balances);
        if namespace == self.settings.namespace {
            // A namespaced quota of the same name has the name already: the first of two equal names is shown.
            let globals = virtual_ledger::ledgers(&self.global_custom_quotas, "", world, balances);
            let known: Vec<Value> = shown.iter().map(|ledger| ledger["metadata"]["name"].clone()).collect();
            shown.extend(globals.into_iter().filter(|ledger| !known.contains(&ledger["metadata"]["name"])).map(
                |mut ledger| {
                    ledger["metadata"]["namespace"] = namespace.into();
                    ledger
                },
            ));
            shown.sort_by(|a, b| a["metadata"]["name"].as_str().cmp(&b["metadata"]["name"].as_str()));
        }
        shown
    }
}
