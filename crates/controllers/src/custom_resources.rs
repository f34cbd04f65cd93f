//! A CustomResourceDefinition on its way out takes its objects along.

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

pub async fn run(client: Client) {
    let controller =
        Controller::new(Api::<Guarded<CustomResourceDefinition>>::all(client.clone()), watcher::Config::default());
    drive(controller, guarded("custom resources", reconcile), Arc::new(client), "custom resources").await;
}

async fn reconcile(definition: Arc<CustomResourceDefinition>, client: Arc<Client>) -> Result<Action, Failed> {
    let finalizers = definition.metadata.finalizers.clone().unwrap_or_default();
    if definition.metadata.deletion_timestamp.is_none() || !finalizers.iter().any(|one| one == FINALIZER) {
        return Ok(Action::await_change());
    }
    let spec = &definition.spec;
    if let Some(version) = spec.versions.iter().find(|version| version.served) {
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
    let definitions = Api::<CustomResourceDefinition>::all((*client).clone());
    gone_is_fine(definitions.patch(&definition.name_any(), &PatchParams::default(), &patch).await)?;
    Ok(Action::await_change())
}
