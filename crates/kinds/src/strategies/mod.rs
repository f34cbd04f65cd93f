//! What is done to objects of a built-in kind beyond its schema: defaults that are code, checks, what an update keeps.
//!
//! A kind without a strategy of its own gets [`Plain`], which does nothing. Everything here is pure.

mod amounts;
mod autoscalers;
mod basics;
pub mod definitions;
mod devices;
mod fill;
mod network;
mod nodes;
mod pod_rules;
mod pod_spec;
mod pods;
mod services;
mod storage;
pub mod webhooks;
mod workloads;

use serde_json::Value;

use crate::field_error::FieldError;
use crate::names::NameRule;

pub use pods::default_pod_level;

/// What may differ from kind to kind.
pub trait Strategy: Send + Sync {
    /// Fills in what clients may leave out. Runs on every write, before mutating admission and again after it.
    fn default(&self, _object: &mut Value) {}

    /// Brings a new object into its first state: status cleared, phase set.
    fn prepare_create(&self, _object: &mut Value) {}

    /// What follows from a new object as admission left it.
    fn settle_create(&self, _object: &mut Value) {}

    /// Carries over what an update may not touch. Status and spec isolation is done by the caller.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Checks what may be set later but not from the beginning.
    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Checks a change beyond what [`Strategy::validate`] checks: what is immutable.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// The same for a write of a subresource.
    fn validate_subresource(&self, _subresource: &str, _object: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Warnings shown beside a successful write.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Whether `metadata.generation` counts changes of the spec.
    fn counts_generations(&self) -> bool {
        false
    }

    /// Whether a part of the metadata counts like the spec does.
    fn counts_metadata(&self) -> &'static [&'static str] {
        &[]
    }

    /// The generation of a new object.
    fn first_generation(&self) -> Option<i64> {
        self.counts_generations().then_some(1)
    }

    /// Whether the status of a new object is its creator's to say.
    fn keeps_first_status(&self) -> bool {
        false
    }

    /// How names are checked.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Whether a PUT without a resourceVersion overwrites whatever is stored.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Whether DELETE answers with the deleted object instead of a Status.
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// Whether dependents are orphaned when the caller does not say.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// Seconds between a graceful deletion and the end; `None` where objects go at once.
    fn grace_seconds(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Fields besides metadata.name and metadata.namespace that a field selector may ask for.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of a selectable field as text; missing fields are empty text.
    fn selectable_field(&self, object: &Value, field: &str) -> String {
        let pointer = format!("/{}", field.replace('.', "/"));
        match object.pointer(&pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        }
    }
}

/// Kinds that need nothing beyond their schema.
pub struct Plain;

impl Strategy for Plain {}

/// The strategy of a built-in resource.
pub fn of(group: &str, plural: &str) -> &'static dyn Strategy {
    match (group, plural) {
        ("", "pods") => &pods::Pods,
        ("", "services") => &services::Services,
        ("", "namespaces") => &basics::Namespaces,
        ("", "nodes") => &nodes::Nodes,
        ("", "endpoints") => &network::AllEndpoints,
        ("", "podtemplates") => &workloads::POD_TEMPLATES,
        ("", "secrets") => &basics::Secrets,
        ("", "configmaps") => &basics::ConfigMaps,
        ("", "serviceaccounts") => &basics::ServiceAccounts,
        ("", "resourcequotas") => &basics::Quotas,
        ("", "limitranges") => &basics::LimitRanges,
        ("", "persistentvolumeclaims") => &storage::Claims,
        ("", "persistentvolumes") => &storage::Volumes,
        ("", "replicationcontrollers") => &workloads::REPLICATION_CONTROLLERS,
        ("" | "events.k8s.io", "events") => &basics::Events,
        ("apps", "deployments") => &workloads::DEPLOYMENTS,
        ("apps", "replicasets") => &workloads::REPLICA_SETS,
        ("apps", "statefulsets") => &workloads::STATEFUL_SETS,
        ("apps", "daemonsets") => &workloads::DAEMON_SETS,
        ("batch", "jobs") => &workloads::JOBS,
        ("batch", "cronjobs") => &workloads::CRON_JOBS,
        ("autoscaling", "horizontalpodautoscalers") => &autoscalers::Autoscalers,
        ("discovery.k8s.io", "endpointslices") => &network::EndpointSlices,
        ("scheduling.k8s.io", "priorityclasses") => &basics::PriorityClasses,
        ("node.k8s.io", "runtimeclasses") => &nodes::RuntimeClasses,
        ("storage.k8s.io", "csidrivers") => &storage::Drivers,
        ("storage.k8s.io", "storageclasses") => &storage::StorageClasses,
        ("storage.k8s.io", "volumeattributesclasses") => &storage::AttributesClasses,
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => &basics::Roles,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => &basics::Bindings,
        ("admissionregistration.k8s.io", _) => &webhooks::Webhooks,
        ("networking.k8s.io", "networkpolicies") => &network::NetworkPolicies,
        ("resource.k8s.io", "resourceclaims" | "resourceclaimtemplates") => &devices::ResourceClaims,
        ("networking.k8s.io", "ingresses") => &network::Ingresses,
        ("networking.k8s.io", "ingressclasses") => &network::IngressClasses,
        ("policy", "poddisruptionbudgets") | ("resource.k8s.io", "deviceclasses" | "resourceslices") => {
            &basics::Counted
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => &definitions::Definitions,
        _ => &Plain,
    }
}

/// The strategy of every custom resource; a definition's rules are in its schema.
pub fn custom() -> &'static dyn Strategy {
    &Custom
}

struct Custom;

impl Strategy for Custom {
    fn counts_generations(&self) -> bool {
        true
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}
