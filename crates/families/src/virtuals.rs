//! Resources that are answered without being stored.

use rules::GroupResource;
use serde_json::Value;

/// A namespaced resource that is not stored: its objects are made from others when somebody asks, or a document posted
/// to it becomes a write elsewhere.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct VirtualResource {
    pub group: &'static str,
    pub version: &'static str,
    /// The plural, as in the address.
    pub resource: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    /// `get` and `list` ([`Family::virtual_objects`](crate::Family::virtual_objects)), or `create` ([`Family::virtual_write`](crate::Family::virtual_write)).
    pub verbs: &'static [&'static str],
    pub short: &'static [&'static str],
    /// What is printed between name and age: the name of a column and the path of its cells, all of them text.
    pub columns: &'static [(&'static str, &'static str)],
}

/// A write of an object's status, on condition that the object still has this resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualWrite {
    pub resource: GroupResource,
    pub name: String,
    pub resource_version: String,
    pub status: Value,
}
