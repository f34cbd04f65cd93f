//! Objects of which only what a controller looks at is read.
//!
//! The controllers see every change of every object. Reading a whole pod, its managed fields above all, costs several
//! times what making it did; skipping over the rest costs next to nothing.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, NamespaceResourceScope};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Any object, as far as owners and dependents go.
#[derive(Clone, Debug, Deserialize)]
pub struct Kin {
    #[serde(default, deserialize_with = "glance_at_metadata")]
    pub metadata: ObjectMeta,
}

/// A pod, as far as those who count pods or free claims look.
#[derive(Clone, Debug, Deserialize)]
pub struct PodGlance {
    #[serde(default, deserialize_with = "glance_at_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

impl PodGlance {
    pub fn phase(&self) -> Option<&str> {
        self.status.phase.as_deref()
    }

    /// The names of the claims it mounts.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        let volumes = self.spec.volumes.iter().flatten();
        volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    volumes: Option<Vec<Volume>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    persistent_volume_claim: Option<ClaimVolume>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimVolume {
    claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    phase: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<Time>,
}

fn glance_at_metadata<'de, D: Deserializer<'de>>(input: D) -> Result<ObjectMeta, D::Error> {
    let seen = Metadata::deserialize(input)?;
    Ok(ObjectMeta {
        name: seen.name,
        namespace: seen.namespace,
        uid: seen.uid,
        resource_version: seen.resource_version,
        owner_references: seen.owner_references,
        finalizers: seen.finalizers,
        deletion_timestamp: seen.deletion_timestamp,
        ..ObjectMeta::default()
    })
}

/// Any object as it was sent, and read no further than to what names it: whoever is told of it again before he looks at it has read
/// nothing.
#[derive(Clone, Debug)]
pub struct Unread {
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default, deserialize_with = "glance_at_metadata")]
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Unread, D::Error> {
        let text = Box::<RawValue>::deserialize(input)?;
        let Named { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Unread { metadata, text })
    }
}

impl Unread {
    /// As much of it as somebody wants to know.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.text.get())
    }
}

/// Objects of whatever kind they are asked for.
macro_rules! of_any_kind {
    ($($seen:ty),*) => {$(
        impl Resource for $seen {
            type DynamicType = ApiResource;
            type Scope = DynamicResourceScope;

            fn kind(resource: &ApiResource) -> Cow<'_, str> {
                resource.kind.as_str().into()
            }

            fn group(resource: &ApiResource) -> Cow<'_, str> {
                resource.group.as_str().into()
            }

            fn version(resource: &ApiResource) -> Cow<'_, str> {
                resource.version.as_str().into()
            }

            fn plural(resource: &ApiResource) -> Cow<'_, str> {
                resource.plural.as_str().into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )*};
}

of_any_kind!(Kin, Unread);

impl Resource for PodGlance {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_what_controllers_look_at_and_skips_the_rest() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "finalizers": ["f"],
                "labels": {"x": "y"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "o", "uid": "ou", "controller": true}],
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"containers": [{"name": "c"}],
                "volumes": [{"name": "e", "emptyDir": {}}, {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]},
            "status": {"phase": "Running", "conditions": []},
        });
        let seen: PodGlance = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(seen.claims().collect::<Vec<_>>(), ["data"]);
        assert_eq!(seen.phase(), Some("Running"));
        assert_eq!(seen.metadata.owner_references.unwrap()[0].uid, "ou");
        assert!(seen.metadata.deletion_timestamp.is_some());
        assert_eq!((seen.metadata.managed_fields, seen.metadata.labels), (None, None));

        let kin: Kin = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(kin.metadata.finalizers.unwrap(), ["f"]);

        let unread: Unread = serde_json::from_str(&pod.to_string()).unwrap();
        assert_eq!((unread.meta().name.as_deref(), unread.meta().namespace.as_deref()), (Some("a"), Some("n")));
        assert_eq!(unread.read::<serde_json::Value>().unwrap(), pod);
    }

    #[test]
    fn an_object_without_anything_is_no_error() {
        let bare: PodGlance = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!((bare.claims().count(), bare.phase()), (0, None));
    }
}
