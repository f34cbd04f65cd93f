//! The cluster's API server, as far as it is asked about resources by name: which version of a resource is served, under which
//! path its objects are, and one of them.

use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::core::ApiResource;
use rules::GroupResource;
use serde_json::Value;
use tokio::time::timeout;

/// One resource as the cluster serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    pub resource: GroupResource,
    pub version: String,
    pub kind: String,
    pub namespaced: bool,
    /// Those that say how the object itself is going to be, or how many replicas it wants.
    pub subresources: Vec<String>,
}

impl Served {
    fn api_version(&self) -> String {
        match &*self.resource.group {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    pub fn to_api(&self) -> ApiResource {
        ApiResource {
            group: self.resource.group.to_string(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.resource.resource.to_string(),
        }
    }

    pub fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.resource.group.is_empty() { "/api/" } else { "/apis/" };
        let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        format!("{root}{}{within}/{}/{name}", self.api_version(), self.resource.resource)
    }
}

/// How the cluster serves a resource, in the version that it prefers; none where it does not, or where it cannot be watched.
pub async fn served(client: &Client, resource: &GroupResource) -> Result<Option<Served>, kube::Error> {
    let path = if resource.group.is_empty() {
        "/api/v1".to_owned()
    } else {
        let group: Option<Value> = found(call(client, Method::GET, &format!("/apis/{}", resource.group), None).await)?;
        let preferred = group.as_ref().and_then(|group| group.pointer("/preferredVersion/groupVersion")?.as_str());
        let Some(preferred) = preferred else { return Ok(None) };
        format!("/apis/{preferred}")
    };
    // A group may be told before what is in it.
    let Some(listed) = found(call(client, Method::GET, &path, None).await)? else { return Ok(None) };
    let listed: APIResourceList = serde_json::from_value(listed).map_err(kube::Error::SerdeError)?;
    let plural = &*resource.resource;
    let Some(main) = listed.resources.iter().find(|one| one.name == plural) else { return Ok(None) };
    if !main.verbs.iter().any(|verb| verb == "watch") || !main.verbs.iter().any(|verb| verb == "list") {
        return Ok(None);
    }
    let subresources = listed.resources.iter().filter_map(|one| {
        let subresource = one.name.strip_prefix(plural)?.strip_prefix('/')?;
        let writes = one.verbs.iter().any(|verb| verb == "update" || verb == "patch");
        // A status tells what happened, and is not asked about.
        let says = subresource == "scale" || (one.kind == main.kind && subresource != "status");
        (writes && says).then(|| subresource.to_owned())
    });
    let version = listed.group_version.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(Some(Served {
        resource: resource.clone(),
        version,
        kind: main.kind.clone(),
        namespaced: main.namespaced,
        subresources: subresources.collect(),
    }))
}

/// How long one request may take: whoever waits for it sees nothing meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// One request, with a JSON body where there is one.
pub async fn call(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
    let bytes = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let content_type = match (&method, path.contains("fieldManager=")) {
        (&Method::PATCH, true) => "application/apply-patch+yaml",
        (&Method::PATCH, false) => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder().method(method.clone()).uri(path).header("Content-Type", content_type).body(bytes);
    let answer = client.request(request.map_err(kube::Error::HttpError)?);
    let late =
        |_| kube::Error::Service(format!("the cluster did not answer {method} {path} within {PATIENCE:?}").into());
    timeout(PATIENCE, answer).await.map_err(late)?
}

/// An answer that what was asked for is not there is one, too.
pub fn found<T>(asked: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        // What no API is behind is said to be missing by the code alone.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
