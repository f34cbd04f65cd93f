//! What a new server starts with: the namespaces every cluster has, the default roles, the families' own kinds.

use ::rules::GroupResource;
use kube::Client;
use serde_json::{Value, json};

use crate::authz::{Kind, bootstrap};
use crate::core::{Cache, ObjectKey};

/// Classes that every cluster has.
const PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    ("system-cluster-critical", 2_000_000_000, "Used for system critical pods that must run in the cluster."),
    ("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their node."),
];

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates what is not stored yet, all at once so that it shares a few syncs. Of what is there, default roles and bindings
/// get back what they have lost or what a newer version gives them, unless their owner has said not to; the rest is left
/// as it is.
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
    let classes = PRIORITY_CLASSES.map(|(name, value, description)| {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        });
        (GroupResource::new("scheduling.k8s.io", "priorityclasses"), class)
    });
    let definition = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    let definitions = definitions.into_iter().map(|object| (definition.clone(), object));
    let creates = namespaces
        .into_iter()
        .chain(roles)
        .chain(classes)
        .chain(definitions)
        .filter(|(resource, object)| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            cache.get(&ObjectKey::new(resource.clone(), "", name)).is_none()
        })
        .map(|(resource, object)| create(client, resource, object));
    futures::future::try_join_all(creates).await?;
    for object in bootstrap::objects() {
        let Some((kind, name)) = bootstrap::key(object) else { continue };
        let resource = GroupResource::new(Kind::GROUP, kind.resource());
        let stored = cache.get(&ObjectKey::new(resource.clone(), "", name));
        if let Some(mended) = stored.and_then(|stored| bootstrap::mended(&stored.value(), object)) {
            let path = format!("/apis/{}/v1/{}/{name}", Kind::GROUP, kind.resource());
            send(client, http::Method::PUT, &path, &mended).await?;
        }
    }
    let services = GroupResource::core("services");
    if cache.get(&ObjectKey::new(services, "default", "kubernetes")).is_none() {
        post(client, "/api/v1/namespaces/default/services", &own_service()).await?;
    }
    Ok(())
}

/// Whoever can still be served from a full disk is: what could not be brought up to date stays as it is until the next start.
pub fn unless_full(ensured: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match ensured {
        Err(kube::Error::Api(status)) if status.code == http::StatusCode::INSUFFICIENT_STORAGE.as_u16() => {
            tracing::error!("there is no room to bring default roles and kinds up to date: they stay as they are");
            Ok(())
        }
        ensured => ensured,
    }
}

/// How pods would reach this server. Clients take its presence for a sign of a whole cluster.
fn own_service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1"],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
    })
}

async fn create(client: &Client, resource: GroupResource, object: Value) -> Result<(), kube::Error> {
    let path = match &*resource.group {
        "" => format!("/api/v1/{}", resource.resource),
        group => format!("/apis/{group}/v1/{}", resource.resource),
    };
    post(client, &path, &object).await
}

async fn post(client: &Client, path: &str, object: &Value) -> Result<(), kube::Error> {
    send(client, http::Method::POST, path, object).await
}

async fn send(client: &Client, method: http::Method, path: &str, object: &Value) -> Result<(), kube::Error> {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(object.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        // Somebody was quicker.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_needs_no_room_for_what_is_there_already() {
        let refused =
            |code| Err(kube::Error::Api(kube::core::Status { code, ..kube::core::Status::default() }.boxed()));
        unless_full(Ok(())).unwrap();
        unless_full(refused(507)).unwrap();
        unless_full(refused(500)).unwrap_err();
    }
}
