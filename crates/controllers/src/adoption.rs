//! Who is in charge of what: a set takes what its selector finds and nobody is in charge of, and lets go of what it no longer
//! finds. Both are refused by the server if the object has changed meanwhile, and tried again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::run::{Failed, gone_is_fine};

/// The uid of whoever is in charge of an object.
pub fn controller_of<K: Resource>(object: &K) -> Option<&str> {
    let owners = object.meta().owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// Puts an owner in charge of an object. The object as it is then; none if it has gone.
pub async fn adopt<K>(api: &Api<K>, object: &K, owner: OwnerReference) -> Result<Option<K>, Failed>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut owners: Vec<_> = object.owner_references().iter().filter(|known| known.uid != owner.uid).cloned().collect();
    owners.push(owner);
    set_owners(api, object, &owners).await
}

/// Lets an object go its own way.
pub async fn release<K>(api: &Api<K>, object: &K, uid: &str) -> Result<(), Failed>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let owners: Vec<_> = object.owner_references().iter().filter(|known| known.uid != uid).cloned().collect();
    set_owners(api, object, &owners).await.map(|_| ())
}

async fn set_owners<K>(api: &Api<K>, object: &K, owners: &[OwnerReference]) -> Result<Option<K>, Failed>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let meta = object.meta();
    let patch = json!({"metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": owners,
    }});
    gone_is_fine(api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)
}
