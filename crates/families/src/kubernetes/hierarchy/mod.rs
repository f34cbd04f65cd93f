//! Quota over a tree of namespaces (hnc.x-k8s.io): a HierarchicalResourceQuota binds the namespace it lives in and
//! every namespace below it.
//!
//! Who is below whom is written in the labels `<ancestor>.tree.hnc.x-k8s.io/depth` of every namespace, so a rule only
//! has to look at one namespace. [`labels`] says what they are; [`shape`] keeps them so, whatever anybody writes. [`rights`]
//! says who may change the tree, and [`mod@anchors`] makes the namespaces that anchors ask for.

pub mod anchors;
pub mod definitions;
mod labels;
pub mod rights;
pub mod shape;
mod tree;
pub mod validate;

use kinds::fields::text;
use rules::GroupResource;
use serde_json::Value;

pub use labels::reach;

pub const GROUP: &str = "hnc.x-k8s.io";
pub const QUOTAS: &str = "hierarchicalresourcequotas";
pub const CONFIGURATIONS: &str = "hierarchyconfigurations";
pub const ANCHORS: &str = "subnamespaceanchors";

/// The only name a HierarchyConfiguration may have: there is one in a namespace.
pub const CONFIGURATION_NAME: &str = "hierarchy";

/// What keeps an anchor until its namespace has gone.
pub const FINALIZER: &str = "hnc.x-k8s.io";

/// The annotation by which a subnamespace remembers who asked for it.
pub const SUBNAMESPACE_OF: &str = "hnc.x-k8s.io/subnamespace-of";

pub fn configurations() -> GroupResource {
    GroupResource::new(GROUP, CONFIGURATIONS)
}

pub fn anchors() -> GroupResource {
    GroupResource::new(GROUP, ANCHORS)
}

pub fn namespaces() -> GroupResource {
    GroupResource::core("namespaces")
}

/// The namespace whose anchor asked for this one, by what is written on it; empty for none.
fn subnamespace_of(namespace: &Value) -> &str {
    text(namespace, &["metadata", "annotations", SUBNAMESPACE_OF])
}
