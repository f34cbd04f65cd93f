//! The texts that `kubectl explain` prints, taken from the schemas that the `k8s-openapi` crate publishes. They are looked up
//! by type and field; where there is none, a document does without.

use std::sync::LazyLock;

use k8s_openapi::api;
use k8s_openapi::schemars::SchemaGenerator;
use serde_json::{Map, Value};

static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(schemas);

/// What is said about a type, by its published name.
pub fn describe(name: &str) -> Option<&'static str> {
    SCHEMAS.get(name)?.get("description")?.as_str()
}

/// What is said about a field of a type.
pub fn describe_field(name: &str, field: &str) -> Option<&'static str> {
    SCHEMAS.get(name)?.get("properties")?.get(field)?.get("description")?.as_str()
}

/// The generator follows references by itself, so naming the kinds reaches every type.
fn schemas() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    macro_rules! kinds {
        ($($group:ident :: $version:ident { $($kind:ident),* })*) => {
            $($(generator.subschema_for::<api::$group::$version::$kind>();)*)*
        };
    }
    kinds! {
        core::v1 { Binding, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
            PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service,
            ServiceAccount }
        admissionregistration::v1 { MutatingWebhookConfiguration, ValidatingWebhookConfiguration }
        apps::v1 { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
        authentication::v1 { SelfSubjectReview, TokenRequest, TokenReview }
        authorization::v1 { LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview,
            SubjectAccessReview }
        autoscaling::v1 { Scale }
        autoscaling::v2 { HorizontalPodAutoscaler }
        batch::v1 { CronJob, Job }
        coordination::v1 { Lease }
        discovery::v1 { EndpointSlice }
        events::v1 { Event }
        networking::v1 { Ingress, IngressClass, NetworkPolicy }
        node::v1 { RuntimeClass }
        policy::v1 { Eviction, PodDisruptionBudget }
        rbac::v1 { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
        resource::v1 { DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice }
        scheduling::v1 { PriorityClass }
        storage::v1 { CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass }
    }
    generator
        .subschema_for::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>(
        );
    generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions>();
    generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::Status>();
    generator.definitions().clone()
}
