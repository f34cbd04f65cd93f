//! Who may do what: role-based access control with Kubernetes' objects, rules and words.
//!
//! Start at [`Rbac`]: the core feeds it every Role, ClusterRole and binding ([`Rbac::apply`]), the request path asks
//! [`Rbac::authorize`]. The index is swapped piece by piece, so asking takes no lock.
//!
//! ```text
//! Role / ClusterRole ──► cell (rules, swapped in place) ◄── grant ◄── (namespace, subject) ◄── Identity
//! ClusterRole with aggregationRule ──► the union of the roles it selects
//! ```

mod aggregate;
pub mod bootstrap;
mod escalation;
mod follow;
mod forbidden;
mod held;
mod index;
mod rbac;
pub mod reviews;
mod rules;

pub use aggregate::aggregated_rules;
#[cfg(test)]
pub(crate) use escalation::NAMED_MAX;
pub use escalation::{Denial, RoleChange, check_binding, check_role};
pub use follow::{follow, show_aggregates};
pub use forbidden::{forbidden, forbidden_object};
#[cfg(test)]
pub(crate) use held::STEPS_MAX;
pub use rbac::{Decision, Kind, Rbac, Subject, Why};
#[cfg(test)]
pub(crate) use rbac::{MISSING_NAMED_MAX, RULES_MAX};
#[cfg(test)]
pub(crate) use rules::PERMISSIONS_MAX;
pub use rules::{Rule, parse_rules};

/// Paths which answer anybody, so that probes need no credential. Everything else an anonymous caller asks is refused
/// unless somebody bound a role to `system:unauthenticated` on purpose.
pub const HEALTH_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

pub fn is_health(path: &str) -> bool {
    HEALTH_PATHS
        .iter()
        .any(|health| path.strip_prefix(health).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// What is being asked for. A request about a resource has `resource` set; any other is judged by `path` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub path: &'a str,
}

impl<'a> Attributes<'a> {
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }

    /// A verb on a named object of a namespace ("" for a cluster-scoped one).
    pub fn object(
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        Attributes { verb, group, resource, namespace, name, ..Attributes::default() }
    }
}
