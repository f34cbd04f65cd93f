//! Kubernetes ResourceQuota and what grew around it: LimitRange, ClusterResourceQuota, HierarchicalResourceQuota.
//!
//! Start reading at [`compile`]: a quota's `hard` names become accounts, and rules that know from the start which part
//! of a pod, a claim or a service goes to which account. [`measures`] are those rules, [`usage`] says how much an
//! object uses, [`scopes`] which objects a quota looks at, [`words`] how it refuses.

mod cluster_quota;
pub(crate) mod compile;
mod definitions;
pub(crate) mod device_classes;
pub mod hierarchy;
mod limit_range;
pub mod limited;
pub(crate) mod measures;
mod metrics;
pub mod names;
mod pod_claims;
pub(crate) mod scopes;
pub(crate) mod spec;
mod status;
pub mod usage;
mod usage_document;
pub(crate) mod validate;
pub(crate) mod words;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, text};
use kinds::resources::quantity_of;
use rules::{Compiled, GroupResource, Reach, policy_name};
use serde_json::Value;

use crate::metrics::{Samples, Survey};
use crate::{
    Admission, Affected, Balances, Cause, Change, Denial, Family, Manifest, Must, Operation, Outbox, Plural,
    PolicyObject, Projected, Refusal, Remarks, Right, Uncompiled, View, VirtualResource, VirtualWrite, Words, World,
    put_status,
};
use compile::Frame;
use device_classes::Classes;
use limited::LimitedResource;
use spec::QuotaSpec;

/// What an operator may set about this family.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// With `--disable-admission ResourceQuota`: usage is still counted and shown, nothing is refused.
    pub observe_only: bool,
    /// With `--disable-admission LimitRanger`: LimitRanges are stored and do nothing.
    pub ignore_limit_ranges: bool,
    /// Resources that may only be used where a quota covers them ([`limited::read_configuration`]).
    pub limited: Vec<LimitedResource>,
    /// Labels and annotations, by name, that an anchor may put on its subnamespace.
    pub subnamespace_labels: Vec<String>,
}

/// The family.
pub struct Kubernetes {
    settings: Settings,
    quotas: GroupResource,
    limit_ranges: GroupResource,
    cluster_quotas: GroupResource,
}

/// The kinds this family has something to say about.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    Quota,
    LimitRange,
    ClusterQuota,
    HierarchicalQuota,
    HierarchyConfiguration,
    Anchor,
}

impl Kind {
    fn of(resource: &GroupResource) -> Option<Kind> {
        match (&*resource.group, &*resource.resource) {
            ("", "resourcequotas") => Some(Kind::Quota),
            ("", "limitranges") => Some(Kind::LimitRange),
            (cluster_quota::GROUP, cluster_quota::RESOURCE) => Some(Kind::ClusterQuota),
            (hierarchy::GROUP, hierarchy::QUOTAS) => Some(Kind::HierarchicalQuota),
            (hierarchy::GROUP, hierarchy::CONFIGURATIONS) => Some(Kind::HierarchyConfiguration),
            (hierarchy::GROUP, hierarchy::ANCHORS) => Some(Kind::Anchor),
            _ => None,
        }
    }

    /// Where such an object has its quota spec: fields from the top.
    fn spec(self) -> &'static [&'static str] {
        match self {
            Kind::ClusterQuota => &["spec", "quota"],
            _ => &["spec"],
        }
    }
}

impl Kubernetes {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            quotas: GroupResource::core("resourcequotas"),
            limit_ranges: GroupResource::core("limitranges"),
            cluster_quotas: GroupResource::new(cluster_quota::GROUP, cluster_quota::RESOURCE),
        }
    }

    /// Resources that need a quota are refused where none covers them.
    fn check_limited(&self, change: &Change<'_>, world: &dyn World) -> Result<(), String> {
        let Some(new) = change.new.filter(|_| self.manifest().checks_everything && !change.namespace.is_empty()) else {
            return Ok(());
        };
        let quotas = world.list(&self.quotas, change.namespace);
        let why = limited::uncovered(
            &self.settings.limited,
            change.resource,
            change.namespace,
            new,
            Some(change.old).filter(|old| !old.is_null()),
            quotas.iter().map(|quota| &**quota),
        );
        match why.map_err(|error| error.to_string())? {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    fn validate_quota(&self, request: &Admission<'_>) -> Vec<FieldError> {
        let nothing = Value::Null;
        if request.operation == Operation::Status {
            let status = request.object.get("status").unwrap_or(&nothing);
            return validate::quota_status(status, &Path::new("status"));
        }
        let spec = request.object.get("spec").unwrap_or(&nothing);
        let path = Path::new("spec");
        let mut errors = validate::quota_spec(spec, &path);
        if let Some(old) = request.old {
            errors.extend(validate::quota_scopes_unchanged(spec, old.get("spec").unwrap_or(&nothing), &path));
        }
        errors
    }
}

const QUOTAS: Plural = Plural("", "resourcequotas");
const CLUSTER_QUOTAS: Plural = Plural(cluster_quota::GROUP, cluster_quota::RESOURCE);
const NAMESPACES: Plural = Plural("", "namespaces");
const CONFIGURATIONS: Plural = Plural(hierarchy::GROUP, hierarchy::CONFIGURATIONS);
const ANCHORS: Plural = Plural(hierarchy::GROUP, hierarchy::ANCHORS);
const DEVICE_CLASSES: Plural = Plural("resource.k8s.io", "deviceclasses");

const MANIFEST: Manifest = Manifest {
    name: "kubernetes",
    definitions: definitions::definitions,
    policies: &[QUOTAS, CLUSTER_QUOTAS, Plural(hierarchy::GROUP, hierarchy::QUOTAS)],
    selecting: &[CLUSTER_QUOTAS],
    // The labels of the tree, and the claims that schedulers make for pods.
    shaped: &[NAMESPACES, CONFIGURATIONS, ANCHORS, Plural("resource.k8s.io", "resourceclaims")],
    watched: &[NAMESPACES, CONFIGURATIONS, ANCHORS, Plural("", "pods"), DEVICE_CLASSES],
    meaning: &[DEVICE_CLASSES],
    virtuals: &[
        VirtualResource {
            group: cluster_quota::GROUP,
            version: "v1",
            resource: cluster_quota::APPLIED,
            singular: "appliedclusterresourcequota",
            kind: "AppliedClusterResourceQuota",
            verbs: &["get", "list"],
            short: &[],
            columns: &[],
        },
        VirtualResource {
            group: "",
            version: "v1",
            resource: usage_document::RESOURCE,
            singular: "resourcequotausage",
            kind: "ResourceQuotaUsage",
            verbs: &["create"],
            short: &[],
            columns: &[],
        },
    ],
    metrics: metrics::ALL,
    ..Manifest::EMPTY
};

impl Kubernetes {
    fn compile_quota(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Vec<FieldError>> {
        let kind = Kind::of(policy.resource).unwrap_or(Kind::Quota);
        let nothing = Value::Null;
        let written = at(policy.object, kind.spec()).unwrap_or(&nothing);
        let spec = match kind {
            Kind::ClusterQuota => QuotaSpec::read(written, &Path::new("spec").child("quota"))?,
            _ => QuotaSpec::read(written, &Path::new("spec"))?,
        };
        let reach = match kind {
            Kind::ClusterQuota => cluster_quota::reach(policy.object)?,
            Kind::HierarchicalQuota => hierarchy::reach(policy.namespace),
            _ => Reach::Namespace(policy.namespace.into()),
        };
        let mut fingerprint = spec::fingerprint(written, &spec);
        if let Some(selector) = at(policy.object, &["spec", "selector"]) {
            fingerprint.extend_from_slice(selector.to_string().as_bytes());
        }
        let classes = Classes::of(&spec, world);
        classes.write(&mut fingerprint);
        let frame = Frame {
            policy: policy_name(policy.resource, policy.namespace, policy.name),
            name: policy.name.into(),
            reach,
            fingerprint,
            classes,
            by_namespace: kind == Kind::ClusterQuota,
            observe_only: self.settings.observe_only,
        };
        Ok(compile::compile(&spec, frame))
    }
}

/// Where a quota that does not compile would look.
fn would_look_at(policy: &PolicyObject<'_>) -> Vec<(GroupResource, Reach)> {
    let kind = Kind::of(policy.resource).unwrap_or(Kind::Quota);
    let everywhere = || Reach::Selected(Arc::new(|_| true));
    let reach = match kind {
        Kind::ClusterQuota => cluster_quota::reach(policy.object).unwrap_or_else(|_| everywhere()),
        Kind::HierarchicalQuota => hierarchy::reach(policy.namespace),
        _ => Reach::Namespace(policy.namespace.into()),
    };
    let hard = at(policy.object, kind.spec()).and_then(|spec| spec.get("hard")).and_then(Value::as_object);
    let counted = hard.into_iter().flatten().flat_map(|(name, _)| names::counted_from(name));
    counted.map(|counted| (counted.resource(), reach.clone())).collect()
}

/// Where resources need a quota that covers them.
const LIMITED: Manifest = Manifest { checks_everything: true, ..MANIFEST };

impl Family for Kubernetes {
    fn manifest(&self) -> &Manifest {
        if self.settings.limited.is_empty() || self.settings.observe_only { &MANIFEST } else { &LIMITED }
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        let compiled = self.compile_quota(policy, world);
        compiled.map_err(|errors| Uncompiled { errors, would_look_at: would_look_at(policy) })
    }

    fn measuring(&self) -> String {
        format!("{:?}", self.settings)
    }

    fn admit(&self, request: &mut Admission<'_>, world: &dyn World) -> Result<(), String> {
        match Kind::of(request.resource) {
            Some(Kind::Quota) => {
                for path in [["spec", "hard"], ["status", "hard"], ["status", "used"]] {
                    round_up(request.object, &path);
                }
            }
            Some(Kind::LimitRange) => {
                round_up_limit_range(request.object);
                limit_range::defaults(request.object);
            }
            _ if !self.settings.ignore_limit_ranges => limit_range::admit(request, &self.limit_ranges, world)?,
            _ => {}
        }
        Ok(())
    }

    fn check(&self, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
        Ok(self.check_limited(change, view)?)
    }

    fn validate(&self, request: &Admission<'_>, world: &dyn World) -> Remarks {
        let is_status = request.operation == Operation::Status;
        let errors = match Kind::of(request.resource) {
            Some(Kind::Quota) => self.validate_quota(request),
            Some(Kind::LimitRange) => limit_range::validate(request.object),
            Some(Kind::ClusterQuota) if !is_status => cluster_quota::validate(request.object),
            Some(Kind::HierarchicalQuota) if !is_status => hierarchy::validate::quota(request.object),
            Some(Kind::HierarchyConfiguration) if !is_status => {
                hierarchy::validate::configuration(request.object, request.namespace, request.name, world)
            }
            Some(Kind::Anchor) if !is_status => {
                hierarchy::validate::anchor(request.object, request.name, &self.settings.subnamespace_labels)
            }
            _ => Vec::new(),
        };
        let is_new = *request.resource == self.quotas && request.operation == Operation::Create;
        let hard = at(request.object, &["spec", "hard"]).filter(|_| is_new);
        Remarks { errors, warnings: hard.map(|hard| validate::quota_warnings(Some(hard))).unwrap_or_default() }
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        let Some(kind) = Kind::of(resource) else { return Projected::Unchanged };
        let policy =
            policy_name(resource, text(object, &["metadata", "namespace"]), text(object, &["metadata", "name"]));
        let lines = balances.of(&policy);
        let hard = at(object, kind.spec()).and_then(|spec| spec.get("hard"));
        let status = match kind {
            Kind::Quota => status::quota_status(hard, &lines, ""),
            Kind::ClusterQuota => {
                let selected = balances.view().map(|view| view.namespaces(&policy));
                status::cluster_status(hard, &lines, selected.unwrap_or_else(|| status::listed(object)))
            }
            Kind::HierarchicalQuota => status::hierarchical_status(hard, &lines),
            Kind::LimitRange | Kind::HierarchyConfiguration | Kind::Anchor => return Projected::Unchanged,
        };
        put_status(object, status)
    }

    fn words(&self, denial: &Denial) -> Words {
        words::words(denial).into()
    }

    fn must_be(&self, object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
        if object.object.is_null() {
            return Ok(Must::AsItIs);
        }
        match *object.resource == pod_claims::resource() {
            true => Ok(pod_claims::must_be(object, view)),
            false => Ok(hierarchy::shape::must_be(object, view)?),
        }
    }

    fn may_concern(&self, resource: &GroupResource, namespace: &str, world: &dyn World) -> bool {
        // Asked of every pod.
        !resource.is("", "pods") || pod_claims::may_concern(namespace, world)
    }

    fn affected(&self, cause: &Cause<'_>, view: &dyn View) -> Vec<Affected> {
        let Cause::Written(change) = cause else { return Vec::new() };
        let places = match Kind::of(change.resource) {
            Some(Kind::HierarchyConfiguration | Kind::Anchor) => hierarchy::shape::moved_by(change, view),
            _ if change.resource.is("", "namespaces") => hierarchy::shape::moved_by(change, view),
            _ => pod_claims::made_for(change, view),
        };
        places.into_iter().map(Affected::Object).collect()
    }

    fn rights(&self, change: &Change<'_>, world: &dyn World) -> Vec<Right> {
        hierarchy::rights::rights(change, world)
    }

    fn controllers(&self, client: kube::Client, _outbox: Arc<dyn Outbox>) -> Vec<BoxFuture<'static, ()>> {
        vec![Box::pin(hierarchy::anchors::run(client, self.settings.subnamespace_labels.clone()))]
    }

    fn sample(&self, survey: &dyn Survey, out: &mut Samples) {
        metrics::sample(&self.quotas, survey, out);
    }

    fn virtual_objects(
        &self,
        resource: &GroupResource,
        namespace: &str,
        world: &dyn World,
        balances: &dyn Balances,
    ) -> Vec<Value> {
        if !resource.is(cluster_quota::GROUP, cluster_quota::APPLIED) {
            return Vec::new();
        }
        let Some(within) = world.get(&GroupResource::core("namespaces"), "", namespace) else { return Vec::new() };
        let quotas = world.list(&self.cluster_quotas, "").into_iter().map(|quota| {
            let mut quota = Value::clone(&quota);
            self.project(&self.cluster_quotas, &mut quota, balances);
            quota
        });
        cluster_quota::applied(quotas, &within)
    }

    fn virtual_write(
        &self,
        resource: &GroupResource,
        namespace: &str,
        document: &Value,
    ) -> Option<Result<VirtualWrite, String>> {
        resource.is("", usage_document::RESOURCE).then(|| usage_document::read(namespace, document))
    }
}

/// Rounds every entry of a ResourceList up to a thousandth, as the API server does before it looks at anything else.
fn round_up(object: &mut Value, path: &[&str]) {
    let list = path.iter().try_fold(object, |value, field| value.get_mut(field));
    for (name, value) in list.and_then(Value::as_object_mut).into_iter().flatten() {
        if let Ok(quantity) = quantity_of(name, value) {
            let rounded = quantity.clone().round_up_milli();
            if rounded.amount() != quantity.amount() {
                *value = Value::String(rounded.to_string());
            }
        }
    }
}

fn round_up_limit_range(range: &mut Value) {
    let limits = range.get_mut("spec").and_then(|spec| spec.get_mut("limits")).and_then(Value::as_array_mut);
    for item in limits.into_iter().flatten() {
        for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            round_up(item, &[field]);
        }
    }
}
