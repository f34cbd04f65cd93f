//! Karmada's FederatedResourceQuota and what it takes to enforce it over many clusters.
//!
//! Start reading at [`quota`]: a quota's `overall` becomes accounts, and bindings are charged on them in the commit that writes
//! them. [`binding`] says how much, [`names`] which names can be enforced, [`scopes`] which bindings are meant, [`lease`] and
//! [`lending`] what members are lent for pods that appear at run time, [`slice`] how a member keeps to it. [`interpret`]
//! reads workloads, [`policy`] and [`schedule`] say which clusters they go to: all three are pure. [`loops`] do the rest over
//! Kubernetes APIs: bindings for templates, placements, what members are told and tell, taints and failover.
//!
//! What is decided once for all of it:
//!
//! - **A charge** is what is placed, and what was evicted and is not placed anew. Moves and evictions change no total.
//! - **Only growth is refused**, in the commit that writes `spec.clusters`. Who has to wait keeps what it has.
//! - **What runs is what was charged**: clusters get a template only while its binding says what the template asks for.
//! - **Every name that is accepted is enforced**, by bindings here or by a ResourceQuota in the clusters.

mod binding;
mod definitions;
mod interpret;
mod lease;
pub mod lending;
mod lending_definitions;
pub mod loops;
mod metrics;
mod moves;
mod names;
mod policy;
mod quota;
mod rights;
mod schedule;
mod scopes;
mod settings;
mod slice;
mod templates;
mod validate;

use std::sync::Arc;

use futures::future::BoxFuture;
use kinds::fields::text;
use rules::{Compiled, GroupResource, Reach, policy_name};
use serde_json::Value;

use crate::metrics::{Samples, Survey};
use crate::{
    Admission, Affected, Balances, Cause, Change, Denial, Family, Manifest, Must, Operation, Outbox, Plural,
    PolicyObject, Projected, Refusal, Remarks, Right, Uncompiled, View, Words, World, put_status,
};

pub use interpret::Reserve;
pub use settings::Settings;
use slice::PODS;

pub const POLICY_GROUP: &str = "policy.karmada.io";
pub const WORK_GROUP: &str = "work.karmada.io";
pub const CLUSTER_GROUP: &str = "cluster.karmada.io";
/// The namespace of a cluster's Works is this and the cluster's name.
const WORK_NAMESPACE_PREFIX: &str = "karmada-es-";

const QUOTAS: Plural = Plural(POLICY_GROUP, "federatedresourcequotas");
const POLICIES: Plural = Plural(POLICY_GROUP, "propagationpolicies");
const TAINT_POLICIES: Plural = Plural(POLICY_GROUP, "clustertaintpolicies");
const BINDINGS: Plural = Plural(WORK_GROUP, "resourcebindings");
/// Ours: what members were lent.
const LEASES: Plural = Plural(POLICY_GROUP, "federatedquotaleases");
const CLUSTERS: Plural = Plural(CLUSTER_GROUP, "clusters");
/// Ours, in members: what their pods may take.
const SLICES: Plural = Plural(POLICY_GROUP, "federatedquotaslices");

/// The family.
pub struct Karmada {
    settings: Settings,
}

impl Karmada {
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

const MANIFEST: Manifest = Manifest {
    name: "karmada",
    definitions: definitions::definitions,
    policies: &[QUOTAS, SLICES],
    // Members tell a part of it.
    told: &[QUOTAS],
    // What bindings take in one cluster is not lent there a second time.
    keeping: &[QUOTAS],
    shaped: &[LEASES],
    // What leaves a member that was lent its room.
    checked: &[BINDINGS],
    watched: &[QUOTAS],
    metrics: metrics::ALL,
    ..Manifest::EMPTY
};

/// Where templates are refused as they are applied.
const EARLY: Manifest = Manifest { checks_everything: true, ..MANIFEST };
/// Where pods wait at a gate for room in slices.
const GATING: Manifest = Manifest { shaped: &[LEASES, PODS], watched: &[QUOTAS, SLICES, PODS], ..MANIFEST };
const EARLY_GATING: Manifest = Manifest { checks_everything: true, ..GATING };

impl Family for Karmada {
    fn manifest(&self) -> &Manifest {
        match (self.settings.deny_templates && self.settings.enforcement, self.settings.gate_pods) {
            (false, false) => &MANIFEST,
            (true, false) => &EARLY,
            (false, true) => &GATING,
            (true, true) => &EARLY_GATING,
        }
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        if SLICES.is(policy.resource) {
            let would_look_at = || slice::would_look_at(policy);
            return slice::compile(policy, world)
                .map_err(|errors| Uncompiled { errors, would_look_at: would_look_at() });
        }
        quota::compile(policy, &self.settings).map_err(|errors| {
            let there = Reach::Namespace(policy.namespace.into());
            Uncompiled { errors, would_look_at: vec![(BINDINGS.resource(), there)] }
        })
    }

    fn measuring(&self) -> String {
        format!("{} {}", self.settings.enforcement, self.settings.count_evicting)
    }

    fn admit(&self, request: &mut Admission<'_>, _world: &dyn World) -> Result<(), String> {
        let is_whole = request.subresource.is_empty() && request.operation == Operation::Update;
        if BINDINGS.is(request.resource)
            && is_whole
            && let Some(old) = request.old
        {
            binding::complete_tasks(request.object, old);
        }
        Ok(())
    }

    fn validate(&self, request: &Admission<'_>, world: &dyn World) -> Remarks {
        if request.operation == Operation::Status || !request.subresource.is_empty() {
            return Remarks::default();
        }
        let errors = match request.resource {
            resource if QUOTAS.is(resource) => quota::validate(request.name, request.object, &self.settings),
            resource if LEASES.is(resource) => lease::validate(request.object, request.name),
            resource if SLICES.is(resource) => slice::validate(request.object),
            resource if BINDINGS.is(resource) => validate::binding(request.object, request.old, request.namespace),
            resource if POLICIES.is(resource) => validate::propagation_policy(request, world),
            resource if TAINT_POLICIES.is(resource) => validate::taint_policy(request.object),
            resource if CLUSTERS.is(resource) => validate::cluster(request.name, request.object, request.old),
            _ => Vec::new(),
        };
        let warnings = if POLICIES.is(request.resource) { validate::unheeded(request.object) } else { Vec::new() };
        Remarks { errors, warnings }
    }

    /// Of pods only those concern others whose namespace has a slice.
    fn may_concern(&self, resource: &GroupResource, namespace: &str, world: &dyn World) -> bool {
        !PODS.is(resource) || !world.list(&SLICES.resource(), namespace).is_empty()
    }

    fn affected(&self, cause: &Cause<'_>, view: &dyn View) -> Vec<Affected> {
        match cause {
            Cause::Written(change) if PODS.is(change.resource) || SLICES.is(change.resource) => {
                slice::concerned(change, view)
            }
            cause => lease::concerned(cause, view),
        }
    }

    fn must_be(&self, object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
        Ok(match object.resource {
            resource if LEASES.is(resource) => lease::must_be(object, view),
            resource if PODS.is(resource) => slice::must_be(object, view),
            _ => Must::AsItIs,
        })
    }

    /// Whoever has the namespace of a cluster's Works has the cluster: making one takes the right to register clusters. So does
    /// saying what is charged take another right.
    fn rights(&self, change: &Change<'_>, _world: &dyn World) -> Vec<Right> {
        let makes = change.resource.is("", "namespaces") || change.resource.is("hnc.x-k8s.io", "subnamespaceanchors");
        let cluster = change.name.strip_prefix(WORK_NAMESPACE_PREFIX).filter(|_| makes && change.old.is_null());
        let right = |cluster: &str| Right {
            verb: "create",
            resource: CLUSTERS.resource(),
            namespace: String::new(),
            name: cluster.to_owned(),
        };
        cluster.map(right).into_iter().chain(rights::of_what_is_charged(change)).collect()
    }

    fn check(&self, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
        if !self.settings.enforcement {
            return Ok(());
        }
        moves::check(change, view, self.settings.count_evicting)?;
        match self.settings.deny_templates {
            true => templates::check(change, view, self.settings.count_evicting, self.settings.reserve),
            false => Ok(()),
        }
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        if SLICES.is(resource) {
            let status = slice::status(object, balances);
            return put_status(object, status);
        }
        let (namespace, name) = (text(object, &["metadata", "namespace"]), text(object, &["metadata", "name"]));
        let lines = balances.of(&policy_name(resource, namespace, name));
        let status = quota::status(object, &lines);
        put_status(object, status)
    }

    fn words(&self, denial: &Denial) -> Words {
        match SLICES.is(&denial.resource) {
            true => crate::kubernetes::words::words(denial).into(),
            false => quota::words(denial).into(),
        }
    }

    fn controllers(&self, client: kube::Client, _outbox: Arc<dyn Outbox>) -> Vec<BoxFuture<'static, ()>> {
        loops::start(client, &self.settings)
    }

    fn sample(&self, survey: &dyn Survey, out: &mut Samples) {
        metrics::sample(survey, out);
    }
}
