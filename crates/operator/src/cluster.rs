//! The cluster's API server, as far as it is asked about resources by name: which version of a resource is served, under which
//! path its objects are, and one of them.

use std::collections::HashSet;
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::Client;
use kube::core::ApiResource;
use rules::GroupResource;
use serde::de::DeserializeOwned;
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

    /// What a list of one version's resources says of this one.
    pub fn among(listed: &APIResourceList, resource: &GroupResource) -> Option<Served> {
        let plural = &*resource.resource;
        let main = listed.resources.iter().find(|one| one.name == plural)?;
        if !main.verbs.iter().any(|verb| verb == "watch") || !main.verbs.iter().any(|verb| verb == "list") {
            return None;
        }
        let subresources = listed.resources.iter().filter_map(|one| {
            let subresource = one.name.strip_prefix(plural)?.strip_prefix('/')?;
            let writes = one.verbs.iter().any(|verb| verb == "update" || verb == "patch");
            // A status tells what happened, and who finalizes a namespace ends it: neither is asked about.
            let tells = subresource == "status" || subresource == "finalize";
            let says = subresource == "scale" || (one.kind == main.kind && !tells);
            (writes && says).then(|| subresource.to_owned())
        });
        Some(Served {
            resource: resource.clone(),
            version: listed.group_version.rsplit('/').next().unwrap_or_default().to_owned(),
            kind: main.kind.clone(),
            namespaced: main.namespaced,
            subresources: subresources.collect(),
        })
    }

    pub fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.resource.group.is_empty() { "/api/" } else { "/apis/" };
        let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        format!("{root}{}{within}/{}/{name}", self.api_version(), self.resource.resource)
    }
}

/// How the cluster serves a resource, in the version that it prefers of those that have it; none where it does not, or where it
/// cannot be watched.
pub async fn served(client: &Client, resource: &GroupResource) -> Result<Option<Served>, kube::Error> {
    let mut unanswered = None;
    for path in versions(client, &resource.group).await? {
        // A group may be told before what is in it.
        let listed = match found(call::<APIResourceList>(client, Method::GET, &path, None).await) {
            Ok(Some(listed)) => listed,
            Ok(None) => continue,
            // Another version may answer, and have it.
            Err(error) => {
                unanswered.get_or_insert(error);
                continue;
            }
        };
        if let Some(served) = Served::among(&listed, resource) {
            return Ok(Some(served));
        }
    }
    unanswered.map_or(Ok(None), Err)
}

/// Where the versions of a group are, the preferred one first: it need not have all of the group's resources.
async fn versions(client: &Client, group: &str) -> Result<Vec<String>, kube::Error> {
    if group.is_empty() {
        return Ok(vec!["/api/v1".to_owned()]);
    }
    let Some(told) = found(call::<APIGroup>(client, Method::GET, &format!("/apis/{group}"), None).await)? else {
        return Ok(Vec::new());
    };
    let preferred = told.preferred_version.into_iter();
    let mut versions: Vec<String> = preferred.chain(told.versions).map(|one| one.group_version).collect();
    let mut known = HashSet::new();
    versions.retain(|version| known.insert(version.clone()));
    Ok(versions.into_iter().map(|version| format!("/apis/{version}")).collect())
}

/// How long one request may take: whoever waits for it sees nothing meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// One request, with a JSON body where there is one.
pub async fn call<T: DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<T, kube::Error> {
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
