//! Kubernetes ResourceQuota and what grew around it: LimitRange, ClusterResourceQuota, HierarchicalResourceQuota.
//!
//! Start reading at [`compile`]: a quota's `hard` names become accounts, and rules that know from the start which part
//! of a pod, a claim or a service goes to which account. [`measures`] are those rules, [`usage`] says how much an
//! object uses, [`scopes`] which objects a quota looks at, [`words`] how it refuses.

mod compile;
mod coverage;
mod measures;
pub mod names;
pub mod resources;
mod scopes;
mod spec;
mod status;
pub mod usage;
mod validate;
mod words;

#[cfg(test)]
mod tests;

use kinds::field_error::{FieldError, Path};
use rules::{Compiled, GroupResource, Reach, policy_name};
use serde_json::Value;

use crate::family::{Admission, Balances, Denial, Family, Operation, PolicyObject, Projected, World};
use compile::Frame;
use resources::{at, quantity_of};
use spec::QuotaSpec;

/// What an operator may set about this family.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// With `--disable-admission ResourceQuota`: usage is still counted and shown, nothing is refused.
    pub observe_only: bool,
}

/// The family.
pub struct Kubernetes {
    settings: Settings,
    quotas: GroupResource,
}

impl Kubernetes {
    pub fn new(settings: Settings) -> Self {
        Self { settings, quotas: GroupResource::core("resourcequotas") }
    }

    fn compile_quota(&self, policy: &PolicyObject<'_>) -> Result<Compiled, Vec<FieldError>> {
        let nothing = Value::Null;
        let written = policy.object.get("spec").unwrap_or(&nothing);
        let spec = QuotaSpec::read(written, &Path::new("spec"))?;
        let frame = Frame {
            policy: policy_name(policy.resource, policy.namespace, policy.name),
            name: policy.name.into(),
            reach: Reach::Namespace(policy.namespace.into()),
            fingerprint: spec::fingerprint(written, &spec),
            by_namespace: false,
            observe_only: self.settings.observe_only,
            tells_coverage: false,
        };
        Ok(compile::compile(&spec, frame))
    }
}

impl Family for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn policies(&self) -> Vec<GroupResource> {
        vec![self.quotas.clone()]
    }

    fn compile(&self, policy: &PolicyObject<'_>) -> Result<Compiled, Vec<FieldError>> {
        self.compile_quota(policy)
    }

    fn admit(&self, request: &mut Admission<'_>, _world: &dyn World) -> Result<(), String> {
        if *request.resource == self.quotas {
            for path in [["spec", "hard"], ["status", "hard"], ["status", "used"]] {
                round_up(request.object, &path);
            }
        }
        Ok(())
    }

    fn validate(&self, request: &Admission<'_>, _world: &dyn World) -> Vec<FieldError> {
        if *request.resource != self.quotas {
            return Vec::new();
        }
        let nothing = Value::Null;
        let part = |object: &'_ Value, name: &str| object.get(name).cloned().unwrap_or(Value::Null);
        match request.operation {
            Operation::Status => {
                let status = request.object.get("status").unwrap_or(&nothing);
                validate::quota_status(status, &Path::new("status"))
            }
            Operation::Create | Operation::Update => {
                let spec = request.object.get("spec").unwrap_or(&nothing);
                let path = Path::new("spec");
                let mut errors = validate::quota_spec(spec, &path);
                if let Some(old) = request.old {
                    errors.extend(validate::quota_scopes_unchanged(spec, &part(old, "spec"), &path));
                }
                errors
            }
        }
    }

    fn warnings(&self, request: &Admission<'_>) -> Vec<String> {
        if *request.resource == self.quotas && request.operation == Operation::Create {
            return validate::quota_warnings(at(request.object, &["spec", "hard"]));
        }
        Vec::new()
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        if *resource != self.quotas {
            return Projected::Unchanged;
        }
        let namespace = resources::text(object, &["metadata", "namespace"]);
        let policy = policy_name(resource, namespace, resources::text(object, &["metadata", "name"]));
        let status = status::quota_status(at(object, &["spec", "hard"]), &balances.of(&policy), "");
        status::put(object, status)
    }

    fn words(&self, denial: &Denial) -> String {
        words::words(denial)
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
