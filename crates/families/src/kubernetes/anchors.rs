//! The controller behind SubnamespaceAnchors: each becomes a namespace below its own. Where a namespace stands in the tree
//! is decided with the commit that makes it ([`super::tree`]), not here.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::hierarchy::{ANCHORS, CONFIGURATION_NAME, CONFIGURATIONS, GROUP, SUBNAMESPACE_OF};

const VERSION: &str = "v1alpha2";
/// What failed is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// Tends the anchors until the process ends.
pub async fn run(client: Client) {
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), watcher::Config::default());
    let changed = |api: Api<DynamicObject>| {
        watcher(api, watcher::Config::default()).default_backoff().map(|event| event.is_ok()).boxed()
    };
    let mut changes = futures::stream::select_all([
        namespaces.default_backoff().map(|event| event.is_ok()).boxed(),
        changed(all(&client, "SubnamespaceAnchor", ANCHORS)),
    ]);
    while changes.next().await.is_some() {
        // Whatever else changed meanwhile is covered by the same look.
        while let Some(Some(_)) = futures::FutureExt::now_or_never(changes.next()) {}
        while let Err(error) = plant(&client).await {
            tracing::debug!(%error, "the anchors will be looked at again");
            tokio::time::sleep(RETRY).await;
        }
    }
}

fn all(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(kind, plural))
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

/// Makes the namespaces that anchors ask for, below the anchor's own.
async fn plant(client: &Client) -> Result<(), kube::Error> {
    let namespaces = Api::<Namespace>::all(client.clone());
    for anchor in all(client, "SubnamespaceAnchor", ANCHORS).list(&ListParams::default()).await?.items {
        let (name, Some(parent)) = (anchor.name_any(), anchor.namespace()) else { continue };
        if anchor.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let pairs = |field: &str| -> BTreeMap<String, String> {
            let list = anchor.data["spec"][field].as_array();
            let text = |pair: &Value, key: &str| pair[key].as_str().unwrap_or_default().to_owned();
            list.into_iter().flatten().map(|pair| (text(pair, "key"), text(pair, "value"))).collect()
        };
        let mut child = Namespace::default();
        child.metadata.name = Some(name.clone());
        child.metadata.labels = Some(pairs("labels"));
        let mut annotations = pairs("annotations");
        annotations.insert(SUBNAMESPACE_OF.into(), parent.clone());
        child.metadata.annotations = Some(annotations);
        ignore(namespaces.create(&PostParams::default(), &child).await, 409)?;
        let state = match namespaces.get_opt(&name).await? {
            Some(known) if known.annotations().get(SUBNAMESPACE_OF) == Some(&parent) => "Ok",
            Some(_) => "Conflict",
            None => "Missing",
        };
        if state == "Ok" {
            let place = resource("HierarchyConfiguration", CONFIGURATIONS);
            let configurations = Api::<DynamicObject>::namespaced_with(client.clone(), &name, &place);
            let wanted = DynamicObject::new(CONFIGURATION_NAME, &place).data(json!({"spec": {"parent": parent}}));
            ignore(configurations.create(&PostParams::default(), &wanted).await, 409)?;
        }
        if anchor.data["status"]["status"] != state {
            let place = resource("SubnamespaceAnchor", ANCHORS);
            let anchors = Api::<DynamicObject>::namespaced_with(client.clone(), &parent, &place);
            let patch = Patch::Merge(json!({"status": {"status": state}}));
            ignore(anchors.patch_status(&name, &PatchParams::default(), &patch).await, 404)?;
        }
    }
    Ok(())
}

/// An answer with this code is as good as success.
fn ignore<T>(result: kube::Result<T>, code: u16) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == code => Ok(()),
        other => other.map(|_| ()),
    }
}
