//! Which names a FederatedResourceQuota can enforce, and what of a binding each is counted from.

use kinds::resources::Measured;
use kinds::resources::names::{is_extended, is_huge_pages_quota};

use super::binding::{BindingSpec, Usage};

/// What one name is counted from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// What the pods of a workload request, under this name.
    Request(Box<str>),
    /// The pods themselves.
    Pods,
    /// Objects of this kind, in each cluster they are placed on; and claims that come with pods.
    Objects(&'static str),
}

/// The claims that come with each pod: what a pod requests of them is their number.
pub const CLAIMS: &str = "persistentvolumeclaims";

/// The kinds of the core group that are counted by the name of their resource.
const OBJECTS: [(&str, &str); 6] = [
    ("services", "Service"),
    ("secrets", "Secret"),
    ("configmaps", "ConfigMap"),
    (CLAIMS, "PersistentVolumeClaim"),
    ("replicationcontrollers", "ReplicationController"),
    ("resourcequotas", "ResourceQuota"),
];

impl Counted {
    /// `None` for a name that no binding tells anything about.
    pub fn of(name: &str) -> Option<Counted> {
        if name == "pods" {
            return Some(Counted::Pods);
        }
        if let Some((_, kind)) = OBJECTS.iter().find(|(plural, _)| *plural == name) {
            return Some(Counted::Objects(kind));
        }
        let requested = name.strip_prefix("requests.").unwrap_or(name);
        let is_requested = matches!(requested, "cpu" | "memory" | "ephemeral-storage")
            || is_huge_pages_quota(requested)
            || (is_extended(requested) && !requested.starts_with("count/"));
        is_requested.then(|| Counted::Request(requested.into()))
    }

    pub fn amount(&self, spec: &BindingSpec, usage: &Usage) -> Option<Measured> {
        let amount = match self {
            Counted::Request(name) => usage.requests.get(&**name).copied()?,
            Counted::Pods => usage.pods(),
            Counted::Objects("PersistentVolumeClaim") if !spec.is_of("v1", "PersistentVolumeClaim") => {
                usage.requests.get(CLAIMS).copied()?
            }
            Counted::Objects(kind) if spec.is_of("v1", kind) => usage.objects(),
            Counted::Objects(_) => return None,
        };
        Some(amount).filter(|amount| !amount.amount.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_counted_from_something_or_from_nothing() {
        let requested = |name: &str| Some(Counted::Request(name.into()));
        assert_eq!(Counted::of("cpu"), requested("cpu"));
        assert_eq!(Counted::of("requests.memory"), requested("memory"));
        assert_eq!(Counted::of("hugepages-2Mi"), requested("hugepages-2Mi"));
        assert_eq!(Counted::of("requests.hugepages-2Mi"), requested("hugepages-2Mi"));
        assert_eq!(Counted::of("nvidia.com/gpu"), requested("nvidia.com/gpu"));
        assert_eq!(Counted::of("requests.nvidia.com/gpu"), requested("nvidia.com/gpu"));
        assert_eq!(Counted::of("pods"), Some(Counted::Pods));
        assert_eq!(Counted::of("services"), Some(Counted::Objects("Service")));
        for name in [
            "limits.cpu",
            "limits.memory",
            "requests.storage",
            "services.nodeports",
            "count/pods",
            "storage",
            "",
            "requests.",
        ] {
            assert_eq!(Counted::of(name), None, "{name}");
        }
    }
}
