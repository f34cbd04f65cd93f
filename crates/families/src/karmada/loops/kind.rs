//! The kinds that loops speak of, and how to reach them.

use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::super::{CLUSTER_GROUP, POLICY_GROUP, WORK_GROUP, WORK_NAMESPACE_PREFIX};

/// The finalizer of a binding: its Works have to go first.
pub const BINDING_FINALIZER: &str = "karmada.io/binding-controller";
/// The finalizer of a Work: what it brought into its member has to go first.
pub const WORK_FINALIZER: &str = "karmada.io/execution-controller";
/// On everything that was brought into a member.
pub const MANAGED: &str = "karmada.io/managed";
/// Which binding a Work is for, as annotations.
pub const WORK_BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
pub const WORK_BINDING_NAME: &str = "resourcebinding.karmada.io/name";
/// Which policy made a binding.
pub const POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
/// What a binding, and a Work, was made from: a fingerprint of the template.
pub const TEMPLATE_MARK: &str = "resourcetemplate.karmada.io/fingerprint";

/// How many pods a binding's workload may come to have by itself, by component.
pub const POTENTIAL: &str = "resourcetemplate.karmada.io/potential-replicas";

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

pub fn quotas() -> ApiResource {
    kind(POLICY_GROUP, "v1alpha1", "FederatedResourceQuota", "federatedresourcequotas")
}

pub fn policies() -> ApiResource {
    kind(POLICY_GROUP, "v1alpha1", "PropagationPolicy", "propagationpolicies")
}

pub fn taint_policies() -> ApiResource {
    kind(POLICY_GROUP, "v1alpha1", "ClusterTaintPolicy", "clustertaintpolicies")
}

pub fn leases() -> ApiResource {
    kind(POLICY_GROUP, "v1alpha1", "FederatedQuotaLease", "federatedquotaleases")
}

pub fn slices() -> ApiResource {
    kind(POLICY_GROUP, "v1alpha1", "FederatedQuotaSlice", "federatedquotaslices")
}

pub fn resource_quotas() -> ApiResource {
    kind("", "v1", "ResourceQuota", "resourcequotas")
}

pub fn bindings() -> ApiResource {
    kind(WORK_GROUP, "v1alpha2", "ResourceBinding", "resourcebindings")
}

pub fn works() -> ApiResource {
    kind(WORK_GROUP, "v1alpha1", "Work", "works")
}

pub fn clusters() -> ApiResource {
    kind(CLUSTER_GROUP, "v1alpha1", "Cluster", "clusters")
}

pub fn all(client: &Client, of: &ApiResource) -> Api<DynamicObject> {
    Api::all_with(client.clone(), of)
}

pub fn within(client: &Client, of: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    match namespace {
        "" => all(client, of),
        namespace => Api::namespaced_with(client.clone(), namespace, of),
    }
}

/// Whether objects of a kind are not sent elsewhere: those that are made here, and events, of which every binding makes more.
pub fn stays_here(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    group.ends_with("karmada.io") || (kind == "Event" && matches!(group, "" | "events.k8s.io"))
}

/// The namespace of a cluster's Works.
pub fn work_namespace(cluster: &str) -> String {
    format!("{WORK_NAMESPACE_PREFIX}{cluster}")
}

/// The cluster whose Works are in a namespace.
pub fn cluster_of(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(WORK_NAMESPACE_PREFIX)
}

/// The whole object as JSON, with its kind, which lists leave out.
pub fn whole(object: &DynamicObject, of: &ApiResource) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = json!(of.api_version);
    value["kind"] = json!(of.kind);
    value
}

pub fn namespace_of(object: &DynamicObject) -> String {
    object.namespace().unwrap_or_default()
}

pub fn annotation<'a>(object: &'a DynamicObject, name: &str) -> &'a str {
    object.annotations().get(name).map_or("", String::as_str)
}

pub fn is_leaving(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// A number that is the same for the same text, wherever and whenever it is made.
pub fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What a template says, but for its status and what the server wrote on it.
pub fn template_mark(template: &Value) -> String {
    let mut said = template.clone();
    if let Some(fields) = said.as_object_mut() {
        fields.remove("status");
        let metadata = template.get("metadata").cloned().unwrap_or_default();
        fields.insert("metadata".into(), json!([metadata["labels"], metadata["annotations"], metadata["uid"]]));
    }
    format!("{:016x}", fingerprint(&said.to_string()))
}
