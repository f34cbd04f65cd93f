//! Claims and volumes: claims in use are protected, and a claim is bound to a volume that fits.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::events::Events;
use crate::glance::PodGlance;
use crate::run::{Failed, Guarded, drive, gone_is_fine, guarded, is_segment, readable};

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

struct Context {
    client: Client,
    /// The pods that mount claims.
    claimants: Store<PodGlance>,
}

pub async fn claims(
    client: Client,
    claimants: Store<PodGlance>,
    pods: impl Stream<Item = Arc<PodGlance>> + Send + 'static,
) {
    let freed = pods.flat_map(|pod| futures::stream::iter(claims_of(&pod)));
    let bound = |volume: Guarded<PersistentVolume>| {
        let claim = volume.0.ok()?.spec.and_then(|spec| spec.claim_ref);
        claim.and_then(|claim| Some(ObjectRef::new(&claim.name?).within(&claim.namespace?)))
    };
    let controller =
        Controller::new(Api::<Guarded<PersistentVolumeClaim>>::all(client.clone()), watcher::Config::default())
            .watches(Api::<Guarded<PersistentVolume>>::all(client.clone()), watcher::Config::default(), bound)
            .reconcile_on(freed);
    drive(controller, guarded("claims", reconcile_claim), Arc::new(Context { client, claimants }), "claims").await;
}

/// The claims a pod uses.
fn claims_of(pod: &PodGlance) -> Vec<ObjectRef<Guarded<PersistentVolumeClaim>>> {
    let namespace = pod.namespace().unwrap_or_default();
    pod.claims().map(|claim| ObjectRef::new(claim).within(&namespace)).collect()
}

async fn reconcile_claim(claim: Arc<PersistentVolumeClaim>, context: Arc<Context>) -> Result<Action, Failed> {
    if claim.metadata.deletion_timestamp.is_some() {
        if protects(&*claim, CLAIM_PROTECTION) && !in_use(&claim, &context.claimants) {
            unprotect(&context.client, &*claim, CLAIM_PROTECTION).await?;
        }
        return Ok(Action::await_change());
    }
    bind(&claim, &context.client).await?;
    Ok(Action::await_change())
}

fn in_use(claim: &PersistentVolumeClaim, claimants: &Store<PodGlance>) -> bool {
    let (namespace, name) = (claim.metadata.namespace.as_deref(), claim.metadata.name.as_deref());
    claimants.state().iter().any(|pod| {
        !matches!(pod.phase(), Some("Failed" | "Succeeded"))
            && pod.metadata.namespace.as_deref() == namespace
            && pod.claims().any(|used| Some(used) == name)
    })
}

fn protects<K: Resource>(object: &K, finalizer: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|one| one == finalizer)
}

async fn unprotect<K>(client: &Client, object: &K, finalizer: &str) -> Result<(), Failed>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let kept: Vec<_> = object.meta().finalizers.iter().flatten().filter(|one| *one != finalizer).collect();
    let patch = Patch::Merge(json!({"metadata": {"uid": object.meta().uid, "finalizers": kept}}));
    let name = object.name_any();
    let url = K::url_path(&(), object.meta().namespace.as_deref());
    let request = kube::core::Request::new(url)
        .patch(&name, &PatchParams::default(), &patch)
        .map_err(|error| Failed::Unexpected(error.to_string()))?;
    gone_is_fine(client.request::<Value>(request).await)?;
    Ok(())
}

/// Binds a pending claim to the volume it names, or to the smallest free one that fits.
async fn bind(claim: &PersistentVolumeClaim, client: &Client) -> Result<(), Failed> {
    let (Some(spec), Some(uid)) = (&claim.spec, claim.uid()) else { return Ok(()) };
    let bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    if bound {
        return Ok(());
    }
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let volume = match spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) if !is_segment(name) => None,
        // Naming a volume is not having a right to it: unless somebody reserved it for this claim, it has to fit, or a claim
        // that a quota counts under one class would take a volume of another.
        Some(name) => volumes
            .get_opt(name)
            .await?
            .filter(|volume| is_free_for(volume, claim, &uid) && (is_reserved(volume) || satisfies(volume, claim))),
        None => {
            let all = Api::<Guarded<PersistentVolume>>::all(client.clone());
            let mut fitting: Vec<PersistentVolume> = readable(&all, &ListParams::default(), "claims")
                .await?
                .into_iter()
                .filter(|volume| is_free_for(volume, claim, &uid) && fits(volume, claim))
                .collect();
            // One reserved for this claim wins, then the smallest.
            fitting.sort_by_cached_key(|volume| (!is_reserved(volume), capacity(volume), volume.name_any()));
            fitting.into_iter().next()
        }
    };
    let Some(volume) = volume else { return unbound(claim, client).await };
    let namespace = claim.namespace().unwrap_or_default();
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name_any(), "namespace": namespace, "uid": uid,
    });
    let params = PatchParams::default();
    let version = volume.resource_version();
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"claimRef": reference}});
    if volumes.patch(&volume.name_any(), &params, &Patch::Merge(patch)).await.is_err() {
        // Somebody else took it in the meantime; the change wakes us again.
        return Err(Failed::Unexpected(format!("volume {} changed", volume.name_any())));
    }
    let status = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    gone_is_fine(volumes.patch_status(&volume.name_any(), &params, &status).await)?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &namespace);
    let patch = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume.name_any()},
    });
    gone_is_fine(claims.patch(&claim.name_any(), &params, &Patch::Merge(patch)).await)?;
    let volume_spec = volume.spec.unwrap_or_default();
    let status = json!({"status": {
        "phase": "Bound",
        "accessModes": volume_spec.access_modes,
        "capacity": volume_spec.capacity,
        "currentVolumeAttributesClassName": volume_spec.volume_attributes_class_name,
    }});
    gone_is_fine(claims.patch_status(&claim.name_any(), &params, &Patch::Merge(status)).await)?;
    Ok(())
}

/// Tells why a claim waits.
async fn unbound(claim: &PersistentVolumeClaim, client: &Client) -> Result<(), Failed> {
    let Some(spec) = claim.spec.as_ref().filter(|spec| spec.volume_name.as_deref().unwrap_or_default().is_empty())
    else {
        return Ok(());
    };
    let events = Events::new(client, "persistentvolume-controller");
    let class = match spec.storage_class_name.as_deref().unwrap_or_default() {
        "" => {
            let why = "no persistent volumes available for this claim and no storage class is set";
            events.normal(claim, "FailedBinding", why).await;
            return Ok(());
        }
        class => class,
    };
    let known = if is_segment(class) { Api::<StorageClass>::all(client.clone()).get_opt(class).await? } else { None };
    match known {
        None => {
            let why = format!("storageclass.storage.k8s.io {class:?} not found");
            events.warning(claim, "ProvisioningFailed", &why).await;
        }
        Some(class) if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer") => {
            let why = "waiting for first consumer to be created before binding";
            events.normal(claim, "WaitForFirstConsumer", why).await;
        }
        Some(class) => {
            let why = format!(
                "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system \
                 administrator. If volume creation is delayed, please verify that the provisioner is running and \
                 correctly registered.",
                class.provisioner
            );
            events.normal(claim, "ExternalProvisioning", &why).await;
        }
    }
    Ok(())
}

fn is_reserved(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some())
}

/// Whether nobody else has the volume.
fn is_free_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim, uid: &str) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else {
        return volume.metadata.deletion_timestamp.is_none();
    };
    reference.name.as_deref() == Some(&claim.name_any())
        && reference.namespace == claim.namespace()
        && reference.uid.as_deref().is_none_or(|known| known.is_empty() || known == uid)
}

fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.selector.is_none()) && satisfies(volume, claim)
}

/// Whether the volume is what the claim asks for, selectors aside.
fn satisfies(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(volume_spec), Some(spec)) = (&volume.spec, &claim.spec) else { return false };
    let class = |name: &Option<String>| name.clone().unwrap_or_default();
    let modes = volume_spec.access_modes.as_deref().unwrap_or_default();
    let wanted = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage"));
    let wanted = wanted.and_then(|text| quantity::Quantity::parse(&text.0).ok()).map(|quantity| quantity.amount());
    class(&volume_spec.storage_class_name) == class(&spec.storage_class_name)
        && class(&volume_spec.volume_attributes_class_name) == class(&spec.volume_attributes_class_name)
        && spec.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && capacity(volume) >= wanted
}

fn capacity(volume: &PersistentVolume) -> Option<quantity::Amount> {
    let text = volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?;
    quantity::Quantity::parse(&text.0).ok().map(|quantity| quantity.amount())
}

/// Volumes: released when their claim is gone, unprotected when nothing is bound to them.
pub async fn volumes(client: Client) {
    let named = |claim: Guarded<PersistentVolumeClaim>| {
        let name = claim.0.ok()?.spec.and_then(|spec| spec.volume_name).filter(|name| !name.is_empty());
        name.map(|name| ObjectRef::new(&name))
    };
    let controller = Controller::new(Api::<Guarded<PersistentVolume>>::all(client.clone()), watcher::Config::default())
        .watches(Api::<Guarded<PersistentVolumeClaim>>::all(client.clone()), watcher::Config::default(), named);
    drive(controller, guarded("volumes", reconcile_volume), Arc::new(client), "volumes").await;
}

async fn reconcile_volume(volume: Arc<PersistentVolume>, client: Arc<Client>) -> Result<Action, Failed> {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
    let claim = match reference.as_ref().and_then(|one| Some((one.name.clone()?, one.namespace.clone()?))) {
        Some((name, namespace)) if is_segment(&name) && is_segment(&namespace) => {
            let claims = Api::<PersistentVolumeClaim>::namespaced((*client).clone(), &namespace);
            let live = gone_is_fine(claims.get_metadata(&name).await)?;
            let wanted = reference.as_ref().and_then(|one| one.uid.clone()).filter(|uid| !uid.is_empty());
            live.filter(|live| wanted.is_none_or(|uid| live.metadata.uid.as_deref() == Some(&uid)))
        }
        _ => None,
    };
    if volume.metadata.deletion_timestamp.is_some() {
        if claim.is_none() && protects(&*volume, VOLUME_PROTECTION) {
            unprotect(&client, &*volume, VOLUME_PROTECTION).await?;
        }
        return Ok(Action::await_change());
    }
    let had_uid = reference.as_ref().and_then(|one| one.uid.as_deref()).is_some_and(|uid| !uid.is_empty());
    let phase = match (had_uid, claim.is_some()) {
        (true, true) => "Bound",
        (true, false) => "Released",
        (false, _) => "Available",
    };
    if volume.status.as_ref().and_then(|status| status.phase.as_deref()) != Some(phase) {
        let volumes = Api::<PersistentVolume>::all((*client).clone());
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        gone_is_fine(volumes.patch_status(&volume.name_any(), &PatchParams::default(), &patch).await)?;
    }
    Ok(Action::await_change())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_taken_by_whom_it_fits() {
        let volume = |class: &str, size: &str, modes: &[&str]| -> PersistentVolume {
            let spec = json!({"storageClassName": class, "capacity": {"storage": size}, "accessModes": modes});
            serde_json::from_value(
                json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {}, "spec": spec}),
            )
            .unwrap()
        };
        let claim = |selector: Value| -> PersistentVolumeClaim {
            let spec = json!({
                "storageClassName": "bronze", "resources": {"requests": {"storage": "1Gi"}}, "selector": selector,
                "accessModes": ["ReadWriteOnce"],
            });
            let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": spec});
            serde_json::from_value(claim).unwrap()
        };
        for (volume, expected) in [
            (volume("bronze", "1Gi", &["ReadWriteOnce"]), true),
            (volume("bronze", "1Ti", &["ReadWriteOnce", "ReadWriteMany"]), true),
            (volume("gold", "1Gi", &["ReadWriteOnce"]), false),
            (volume("bronze", "1Mi", &["ReadWriteOnce"]), false),
            (volume("bronze", "1Gi", &["ReadOnlyMany"]), false),
        ] {
            assert_eq!(satisfies(&volume, &claim(Value::Null)), expected, "{volume:?}");
            assert_eq!(fits(&volume, &claim(Value::Null)), expected, "{volume:?}");
            assert_eq!(satisfies(&volume, &claim(json!({"matchLabels": {"a": "b"}}))), expected, "{volume:?}");
            assert!(!fits(&volume, &claim(json!({"matchLabels": {"a": "b"}}))), "{volume:?}");
        }
    }
}
