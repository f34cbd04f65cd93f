//! A CustomResourceDefinition on its way out takes its objects along; one that has not got its names asks again.
//!
//! The server settles what names a definition has whenever it is written. Objects are deleted only of one that was served
//! at that moment: under the names of any other there may be somebody else's.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::run::{Failed, Guarded, drive, gone_is_fine, guarded};

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How soon a definition is looked at again whose objects are held by finalizers.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How soon a definition asks again for names that another has.
const ASK_AGAIN: Duration = Duration::from_secs(5);

pub async fn run(client: Client) {
    let controller =
        Controller::new(Api::<Guarded<CustomResourceDefinition>>::all(client.clone()), watcher::Config::default());
    drive(controller, guarded("custom resources", reconcile), Arc::new(client), "custom resources").await;
}

async fn reconcile(definition: Arc<CustomResourceDefinition>, client: Arc<Client>) -> Result<Action, Failed> {
    let finalizers = definition.metadata.finalizers.clone().unwrap_or_default();
    let leaves = definition.metadata.deletion_timestamp.is_some() && finalizers.iter().any(|one| one == FINALIZER);
    if !leaves && !is_waiting(&definition) {
        return Ok(Action::await_change());
    }
    let definitions = Api::<CustomResourceDefinition>::all((*client).clone());
    let nothing = Patch::Merge(json!({}));
    let settled = definitions.patch_status(&definition.name_any(), &PatchParams::default(), &nothing).await;
    let Some(settled) = gone_is_fine(settled)? else { return Ok(Action::await_change()) };
    if !leaves {
        return Ok(if is_waiting(&settled) { Action::requeue(ASK_AGAIN) } else { Action::await_change() });
    }
    let spec = &settled.spec;
    // What is served under no version is shown under the stored one while it goes.
    let version = spec.versions.iter().find(|version| version.served);
    let version = version.or_else(|| spec.versions.iter().find(|version| version.storage));
    if let Some(version) = version.filter(|_| is_condition(&settled, "Established")) {
        let resource = ApiResource {
            group: spec.group.clone(),
            version: version.name.clone(),
            api_version: format!("{}/{}", spec.group, version.name),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        };
        let api = Api::<DynamicObject>::all_with((*client).clone(), &resource);
        let listed = gone_is_fine(api.list_metadata(&ListParams::default()).await)?;
        let objects = listed.map_or_else(Vec::new, |list| list.items);
        for object in &objects {
            let one = match object.namespace() {
                Some(namespace) => Api::<DynamicObject>::namespaced_with((*client).clone(), &namespace, &resource),
                None => api.clone(),
            };
            gone_is_fine(one.delete(&object.name_any(), &DeleteParams::background()).await)?;
        }
        if !objects.is_empty() {
            return Ok(Action::requeue(LOOK_AGAIN));
        }
    }
    let kept: Vec<_> = finalizers.iter().filter(|one| *one != FINALIZER).collect();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": kept}}));
    gone_is_fine(definitions.patch(&definition.name_any(), &PatchParams::default(), &patch).await)?;
    Ok(Action::await_change())
}

/// Whether a definition was told that somebody else has a name it asks for.
fn is_waiting(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut accepted = conditions.into_iter().flatten().filter(|one| one.type_ == "NamesAccepted");
    accepted.any(|one| one.status == "False")
}

fn is_condition(definition: &CustomResourceDefinition, kind: &str) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == kind && one.status == "True")
}
