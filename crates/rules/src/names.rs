//! The names by which rules, families and the server speak of resources and policies.

use std::fmt;
use std::sync::Arc;

/// A resource without its version, as in `deployments.apps`. The core group is the empty string.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupResource {
    pub group: Arc<str>,
    pub resource: Arc<str>,
}

impl GroupResource {
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    pub fn core(resource: &str) -> Self {
        Self::new("", resource)
    }

    /// Whether this is `resource` of `group`; spares callers from building one to compare.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        &*self.group == group && &*self.resource == resource
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.resource) } else { write!(f, "{}.{}", self.resource, self.group) }
    }
}

/// The name under which a policy object's accounts stand in the ledger: `resourcequotas/team-a/compute`, or
/// `clusterresourcequotas.quota.openshift.io//org-a` for one without a namespace.
pub fn policy_name(resource: &GroupResource, namespace: &str, name: &str) -> Arc<str> {
    format!("{resource}/{namespace}/{name}").into()
}
