//! A namespace on its way out: its content is removed, then the namespace itself.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::resources;
use crate::run::{Failed, Guarded, drive, gone_is_fine, guarded};

/// How soon a namespace is looked at again whose content is held by finalizers.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The finalizer that this controller takes away in the end.
const FINALIZER: &str = "kubernetes";

pub async fn run(client: Client) {
    let controller = Controller::new(Api::<Guarded<Namespace>>::all(client.clone()), watcher::Config::default());
    drive(controller, guarded("namespaces", reconcile), Arc::new(client), "namespaces").await;
}

async fn reconcile(namespace: Arc<Namespace>, client: Arc<Client>) -> Result<Action, Failed> {
    if namespace.metadata.deletion_timestamp.is_none() {
        return Ok(Action::await_change());
    }
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(Action::await_change());
    }
    let name = namespace.name_any();
    let remaining = remove_content(&client, &name).await?;
    if remaining > 0 {
        report(&client, &name, remaining).await?;
        return Ok(Action::requeue(LOOK_AGAIN));
    }
    finalize(&client, &namespace, finalizers).await?;
    Ok(Action::await_change())
}

/// Deletes everything in the namespace and counts what is still there afterwards.
async fn remove_content(client: &Client, namespace: &str) -> Result<usize, Failed> {
    let mut remaining = 0;
    for found in resources::deletable(client).await?.into_iter().filter(|found| found.namespaced) {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &found.api);
        if count(&api).await? == 0 {
            continue;
        }
        gone_is_fine(api.delete_collection(&DeleteParams::background(), &ListParams::default()).await)?;
        remaining += count(&api).await?;
    }
    Ok(remaining)
}

async fn count(api: &Api<DynamicObject>) -> Result<usize, Failed> {
    let list = gone_is_fine(api.list_metadata(&ListParams::default()).await)?;
    Ok(list.map_or(0, |list| list.items.len()))
}

async fn report(client: &Client, name: &str, remaining: usize) -> Result<(), Failed> {
    let message = format!("Some resources are remaining: {remaining} objects wait for their finalizers");
    let patch = json!({"status": {"conditions": [{
        "type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain", "message": message,
        "lastTransitionTime": null,
    }]}});
    let api = Api::<Namespace>::all(client.clone());
    gone_is_fine(api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
    Ok(())
}

async fn finalize(client: &Client, namespace: &Namespace, mut finalizers: Vec<String>) -> Result<(), Failed> {
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    let mut last = namespace.clone();
    last.spec.get_or_insert_default().finalizers = Some(finalizers);
    let name = namespace.name_any();
    let body = serde_json::to_vec(&last).map_err(|error| Failed::Unexpected(error.to_string()))?;
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|error| Failed::Unexpected(error.to_string()))?;
    gone_is_fine(client.request::<serde_json::Value>(request).await)?;
    Ok(())
}
