//! The controller behind the tree of namespaces: labels follow the HierarchyConfigurations, anchors become namespaces.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::hierarchy::{ANCHORS, CONFIGURATION_NAME, CONFIGURATIONS, GROUP, is_tree_label, tree_labels};

const VERSION: &str = "v1alpha2";
/// The annotation by which a subnamespace remembers who asked for it.
const SUBNAMESPACE_OF: &str = "hnc.x-k8s.io/subnamespace-of";
/// What failed is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// Keeps the tree true until the process ends.
pub async fn run(client: Client) {
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), watcher::Config::default());
    let changed = |api: Api<DynamicObject>| {
        watcher(api, watcher::Config::default()).default_backoff().map(|event| event.is_ok()).boxed()
    };
    let mut changes = futures::stream::select_all([
        namespaces.default_backoff().map(|event| event.is_ok()).boxed(),
        changed(all(&client, "HierarchyConfiguration", CONFIGURATIONS)),
        changed(all(&client, "SubnamespaceAnchor", ANCHORS)),
    ]);
    while changes.next().await.is_some() {
        // Whatever else changed meanwhile is covered by the same look.
        while let Some(Some(_)) = futures::FutureExt::now_or_never(changes.next()) {}
        while let Err(error) = look(&client).await {
            tracing::debug!(%error, "the tree of namespaces will be looked at again");
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

async fn look(client: &Client) -> Result<(), kube::Error> {
    plant(client).await?;
    let configurations = all(client, "HierarchyConfiguration", CONFIGURATIONS).list(&ListParams::default()).await?;
    let parents: HashMap<String, String> = configurations
        .items
        .iter()
        .filter(|one| one.name_any() == CONFIGURATION_NAME)
        .filter_map(|one| {
            let parent = one.data["spec"]["parent"].as_str().filter(|parent| !parent.is_empty())?;
            Some((one.namespace()?, parent.to_owned()))
        })
        .collect();
    let namespaces = Api::<Namespace>::all(client.clone());
    let involved = |name: &str| parents.contains_key(name) || parents.values().any(|parent| parent == name);
    for namespace in namespaces.list(&ListParams::default()).await?.items {
        let name = namespace.name_any();
        let wanted = if involved(&name) {
            // A circle is refused when it is written; what cannot be followed is left as it is.
            let Ok(labels) = tree_labels(&name, |one| parents.get(one).cloned()) else { continue };
            labels
        } else {
            BTreeMap::new()
        };
        let shown: BTreeMap<&String, &String> =
            namespace.labels().iter().filter(|(label, _)| is_tree_label(label)).collect();
        if shown == wanted.iter().collect() {
            continue;
        }
        let gone =
            shown.keys().filter(|label| !wanted.contains_key(**label)).map(|label| ((*label).clone(), Value::Null));
        let labels: serde_json::Map<String, Value> =
            gone.chain(wanted.iter().map(|(label, depth)| (label.clone(), depth.as_str().into()))).collect();
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        ignore(namespaces.patch(&name, &PatchParams::default(), &patch).await, 404)?;
    }
    Ok(())
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
