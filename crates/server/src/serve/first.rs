//! What a new server starts with: the namespaces every cluster has, the default roles, the families' own kinds.

use ::rules::GroupResource;
use kube::Client;
use serde_json::{Value, json};

use crate::authz::{Kind, bootstrap};
use crate::core::{Cache, ObjectKey};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates what is not stored yet, all at once so that it shares a few syncs. What is there is left as it is: an owner
/// may have changed it.
pub async fn ensure(client: &Client, cache: &Cache, definitions: Vec<Value>) -> Result<(), kube::Error> {
    let namespaces = NAMESPACES.map(|name| {
        (
            GroupResource::core("namespaces"),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        )
    });
    let roles = bootstrap::objects().iter().filter_map(|object| {
        let (kind, _) = bootstrap::key(object)?;
        Some((GroupResource::new(Kind::GROUP, kind.resource()), object.clone()))
    });
    let definition = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    let definitions = definitions.into_iter().map(|object| (definition.clone(), object));
    let creates = namespaces
        .into_iter()
        .chain(roles)
        .chain(definitions)
        .filter(|(resource, object)| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            cache.get(&ObjectKey::new(resource.clone(), "", name)).is_none()
        })
        .map(|(resource, object)| create(client, resource, object));
    futures::future::try_join_all(creates).await.map(|_| ())
}

async fn create(client: &Client, resource: GroupResource, object: Value) -> Result<(), kube::Error> {
    let path = match &*resource.group {
        "" => format!("/api/v1/{}", resource.resource),
        group => format!("/apis/{group}/v1/{}", resource.resource),
    };
    let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(object.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        // Somebody was quicker.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}
