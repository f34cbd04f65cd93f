//! A namespace on its way out: its content is removed, then the namespace itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::resources;
use crate::run::{Failed, Guarded, drive, gone_is_fine, guarded};

/// How soon a namespace is looked at again whose content is held by finalizers. While nothing of it goes, that is ever later: each
/// look is at all of it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(8);
/// The finalizer that this controller takes away in the end.
const FINALIZER: &str = "kubernetes";

pub async fn run(client: Client) {
    let controller = Controller::new(Api::<Guarded<Namespace>>::all(client.clone()), watcher::Config::default());
    let context = Arc::new(Context { client, held: Held::default() });
    drive(controller, guarded("namespaces", reconcile), context, "namespaces").await;
}

struct Context {
    client: Client,
    held: Held,
}

/// What was left of namespaces at the last look, and how long they were left alone then.
#[derive(Default)]
struct Held(Mutex<HashMap<String, (usize, Duration)>>);

impl Held {
    fn look_again(&self, namespace: &str, remaining: usize) -> Duration {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = match held.get(namespace) {
            Some((before, wait)) if *before <= remaining => wait.saturating_mul(2).min(LOOK_AGAIN_MAX),
            _ => LOOK_AGAIN,
        };
        held.insert(namespace.to_owned(), (remaining, wait));
        wait
    }

    fn gone(&self, namespace: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }
}

async fn reconcile(namespace: Arc<Namespace>, context: Arc<Context>) -> Result<Action, Failed> {
    let client = &context.client;
    if namespace.metadata.deletion_timestamp.is_none() {
        return Ok(Action::await_change());
    }
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(Action::await_change());
    }
    let name = namespace.name_any();
    let remaining = remove_content(client, &name).await?;
    if remaining > 0 {
        report(client, &name, remaining).await?;
        return Ok(Action::requeue(context.held.look_again(&name, remaining)));
    }
    context.held.gone(&name);
    finalize(client, &namespace, finalizers).await?;
    Ok(Action::await_change())
}

/// Deletes everything in the namespace and counts what is still there afterwards.
async fn remove_content(client: &Client, namespace: &str) -> Result<usize, Failed> {
    let mut remaining = 0;
    for found in resources::deletable(client).await?.into_iter().filter(|found| found.namespaced) {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &found.api);
        let (mut there, undeleted) = count(&api).await?;
        if undeleted > 0 {
            match gone_is_fine(api.delete_collection(&DeleteParams::background(), &ListParams::default()).await) {
                // Some of it stays for the sake of something else here, which has to go before it.
                Err(Failed::Api(kube::Error::Api(status))) if status.code == 403 => {
                    tracing::debug!(namespace, %status, "not all of it may go yet");
                }
                other => drop(other?),
            }
            (there, _) = count(&api).await?;
        }
        remaining += there;
    }
    Ok(remaining)
}

/// How many objects there are, and how many of them are not being deleted yet.
async fn count(api: &Api<DynamicObject>) -> Result<(usize, usize), Failed> {
    let list = gone_is_fine(api.list_metadata(&ListParams::default()).await)?;
    let items = list.map_or_else(Vec::new, |list| list.items);
    let undeleted = items.iter().filter(|item| item.metadata.deletion_timestamp.is_none()).count();
    Ok((items.len(), undeleted))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_which_nothing_goes_is_looked_at_ever_more_seldom() {
        let held = Held::default();
        let waits: Vec<u128> = (0..6).map(|_| held.look_again("n", 7).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(held.look_again("other", 7).as_millis(), 500);
        assert_eq!(held.look_again("n", 6).as_millis(), 500, "some of it went");
        held.gone("n");
        assert_eq!(held.look_again("n", 6).as_millis(), 500);
    }
}
