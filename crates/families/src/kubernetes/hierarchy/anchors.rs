//! The controller behind SubnamespaceAnchors: each becomes a namespace below its own. Where a namespace stands in the tree
//! is decided with the commit that makes it ([`super::derive`]), not here. With its anchor the namespace goes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{ANCHORS, CONFIGURATION_NAME, CONFIGURATIONS, FINALIZER, GROUP, SUBNAMESPACE_OF};

const VERSION: &str = "v1alpha2";
/// What failed is tried again after this.
const RETRY: Duration = Duration::from_millis(500);
/// How long changes are gathered before the anchors are looked at again.
const PAUSE: Duration = Duration::from_millis(100);

/// Tends the anchors until the process ends.
pub async fn run(client: Client, allowed: Vec<String>) {
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), watcher::Config::default());
    let changed = |api: Api<DynamicObject>| {
        watcher(api, watcher::Config::default()).default_backoff().map(|event| event.is_ok()).boxed()
    };
    let mut changes = futures::stream::select_all([
        namespaces.default_backoff().map(|event| event.is_ok()).boxed(),
        changed(all(&client, "SubnamespaceAnchor", ANCHORS)),
    ]);
    let mut failed = false;
    loop {
        let change = changes.next();
        if failed {
            // What failed is tried again after a while, or with the next change.
            if let Ok(None) = tokio::time::timeout(RETRY, change).await {
                return;
            }
        } else if change.await.is_none() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
        // Whatever else changed meanwhile is covered by the same look.
        while let Some(Some(_)) = futures::FutureExt::now_or_never(changes.next()) {}
        failed = tend(&client, &allowed).await;
    }
}

/// Looks at every anchor. One that fails does not keep the others waiting. Whether one did.
async fn tend(client: &Client, allowed: &[String]) -> bool {
    let (anchors, stands) = match look(client).await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(%error, "the anchors will be looked at again");
            return true;
        }
    };
    let mut failed = false;
    for anchor in anchors.iter().filter(|anchor| !stands.is_settled(anchor)) {
        let done = if anchor.metadata.deletion_timestamp.is_some() {
            pull(client, anchor).await
        } else {
            plant(client, anchor, allowed).await
        };
        if let Err(error) = done {
            tracing::debug!(%error, anchor = anchor.name_any(), "the anchor will be looked at again");
            failed = true;
        }
    }
    failed
}

/// The anchors, and what is there of what they ask for. Three lists, however many anchors somebody makes: whoever changes one
/// of them does not have all others asked about.
async fn look(client: &Client) -> Result<(Vec<DynamicObject>, Stands), kube::Error> {
    let everything = ListParams::default();
    let anchors = all(client, "SubnamespaceAnchor", ANCHORS).list(&everything).await?.items;
    if anchors.is_empty() {
        return Ok((anchors, Stands::default()));
    }
    let namespaces = Api::<Namespace>::all(client.clone()).list_metadata(&everything).await?.items;
    let configurations = all(client, "HierarchyConfiguration", CONFIGURATIONS).list_metadata(&everything).await?.items;
    let parent = |namespace: &PartialObjectMeta<Namespace>| namespace.annotations().get(SUBNAMESPACE_OF).cloned();
    let stands = Stands {
        parents: namespaces.iter().map(|one| (one.name_any(), parent(one).unwrap_or_default())).collect(),
        configured: configurations.iter().filter_map(ResourceExt::namespace).collect(),
    };
    Ok((anchors, stands))
}

/// What is there.
#[derive(Default)]
struct Stands {
    /// Namespaces, with whose subnamespaces they are.
    parents: HashMap<String, String>,
    /// Namespaces with a configuration.
    configured: HashSet<String>,
}

impl Stands {
    /// Whether there is nothing to do for an anchor, and its status says what is so.
    fn is_settled(&self, anchor: &DynamicObject) -> bool {
        let (name, parent) = (anchor.name_any(), anchor.namespace().unwrap_or_default());
        let is_held = anchor.finalizers().iter().any(|one| one == FINALIZER);
        let state = match self.parents.get(&name) {
            None => return false,
            Some(stands) if *stands == parent => "Ok",
            Some(_) => "Conflict",
        };
        let is_configured = state == "Conflict" || self.configured.contains(&name);
        let said = anchor.data["status"]["status"] == state;
        anchor.metadata.deletion_timestamp.is_none() && is_held && is_configured && said
    }
}

fn all(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(kind, plural))
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

/// Makes the namespace that an anchor asks for, below the anchor's own.
async fn plant(client: &Client, anchor: &DynamicObject, allowed: &[String]) -> Result<(), kube::Error> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let (name, Some(parent)) = (anchor.name_any(), anchor.namespace()) else { return Ok(()) };
    let place = resource("SubnamespaceAnchor", ANCHORS);
    let anchors = Api::<DynamicObject>::namespaced_with(client.clone(), &parent, &place);
    if !anchor.finalizers().iter().any(|one| one == FINALIZER) {
        let kept: Vec<&str> = anchor.finalizers().iter().map(String::as_str).chain([FINALIZER]).collect();
        let patch = Patch::Merge(json!({"metadata": {
            "uid": anchor.metadata.uid, "resourceVersion": anchor.metadata.resource_version, "finalizers": kept,
        }}));
        ignore(anchors.patch(&name, &PatchParams::default(), &patch).await, 404)?;
    }
    let pairs = |field: &str| -> BTreeMap<String, String> {
        let list = anchor.data["spec"][field].as_array();
        let text = |pair: &Value, key: &str| pair[key].as_str().unwrap_or_default().to_owned();
        let pairs = list.into_iter().flatten().map(|pair| (text(pair, "key"), text(pair, "value")));
        // Once more: an anchor may be older than the list of what is allowed.
        pairs.filter(|(key, _)| allowed.contains(key)).collect()
    };
    let mut child = Namespace::default();
    child.metadata.name = Some(name.clone());
    child.metadata.labels = Some(pairs("labels"));
    let mut annotations = pairs("annotations");
    annotations.insert(SUBNAMESPACE_OF.into(), parent.clone());
    child.metadata.annotations = Some(annotations);
    let made = namespaces.create(&PostParams::default(), &child).await;
    // A name that no namespace can have, a refusal: it is this anchor's alone.
    let refused = matches!(&made, Err(kube::Error::Api(status)) if status.code != 409 && status.code < 500);
    if !refused {
        ignore(made, 409)?;
    }
    let state = match namespaces.get_opt(&name).await {
        Ok(Some(known)) if known.annotations().get(SUBNAMESPACE_OF) == Some(&parent) => "Ok",
        Ok(Some(_)) => "Conflict",
        Ok(None) if refused => "Forbidden",
        Err(_) if refused => "Forbidden",
        Ok(None) => "Missing",
        Err(error) => return Err(error),
    };
    if state == "Ok" {
        let place = resource("HierarchyConfiguration", CONFIGURATIONS);
        let configurations = Api::<DynamicObject>::namespaced_with(client.clone(), &name, &place);
        let wanted = DynamicObject::new(CONFIGURATION_NAME, &place).data(json!({"spec": {"parent": parent}}));
        ignore(configurations.create(&PostParams::default(), &wanted).await, 409)?;
    }
    if anchor.data["status"]["status"] != state {
        let patch = Patch::Merge(json!({"status": {"status": state}}));
        ignore(anchors.patch_status(&name, &PatchParams::default(), &patch).await, 404)?;
    }
    Ok(())
}

/// Takes the namespace away that a deleted anchor asked for, then lets the anchor go. A namespace with others below it stays
/// until its configuration allows them to go with it, as in HNC; one whose parent goes as a whole is left behind then.
async fn pull(client: &Client, anchor: &DynamicObject) -> Result<(), kube::Error> {
    let (name, Some(parent)) = (anchor.name_any(), anchor.namespace()) else { return Ok(()) };
    if !anchor.finalizers().iter().any(|one| one == FINALIZER) {
        return Ok(());
    }
    let namespaces = Api::<Namespace>::all(client.clone());
    let own = |namespace: &Namespace| namespace.annotations().get(SUBNAMESPACE_OF) == Some(&parent);
    let child = namespaces.get_opt(&name).await?.filter(own);
    if let Some(child) = child {
        if child.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let leaves = namespaces.get_opt(&parent).await?.is_none_or(|one| one.metadata.deletion_timestamp.is_some());
        let goes = allows_cascade(client, &name).await? || (!leaves && is_leaf(client, &name).await?);
        if goes {
            return ignore(namespaces.delete(&name, &DeleteParams::background()).await, 404);
        }
        if !leaves {
            return Ok(());
        }
    }
    let place = resource("SubnamespaceAnchor", ANCHORS);
    let anchors = Api::<DynamicObject>::namespaced_with(client.clone(), &parent, &place);
    let kept: Vec<&String> = anchor.finalizers().iter().filter(|one| *one != FINALIZER).collect();
    let patch = Patch::Merge(json!({"metadata": {"uid": anchor.metadata.uid, "finalizers": kept}}));
    ignore(anchors.patch(&name, &PatchParams::default(), &patch).await, 404)
}

/// Whether a namespace may go with what is above it, and what is below with it.
async fn allows_cascade(client: &Client, namespace: &str) -> Result<bool, kube::Error> {
    let place = resource("HierarchyConfiguration", CONFIGURATIONS);
    let configurations = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &place);
    let configuration = configurations.get_opt(CONFIGURATION_NAME).await?;
    Ok(configuration.is_some_and(|one| one.data["spec"]["allowCascadingDeletion"] == true))
}

/// Whether nothing is below a namespace.
async fn is_leaf(client: &Client, namespace: &str) -> Result<bool, kube::Error> {
    let place = resource("SubnamespaceAnchor", ANCHORS);
    let anchors = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &place);
    if !anchors.list(&ListParams::default()).await?.items.is_empty() {
        return Ok(false);
    }
    let all = all(client, "HierarchyConfiguration", CONFIGURATIONS).list(&ListParams::default()).await?;
    Ok(!all.items.iter().any(|one| one.data["spec"]["parent"] == namespace))
}

/// An answer with this code is as good as success.
fn ignore<T>(result: kube::Result<T>, code: u16) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == code => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn an_anchor_that_has_what_it_asks_for_is_left_alone() {
        let stands = Stands {
            parents: [("child", "team"), ("taken", ""), ("bare", "team")].map(|(a, b)| (a.into(), b.into())).into(),
            configured: ["child".to_owned()].into(),
        };
        let anchor = |name: &str, state: &str, held: bool, leaves: bool| {
            let mut anchor = DynamicObject::new(name, &resource("SubnamespaceAnchor", ANCHORS)).within("team");
            anchor.data = json!({"status": {"status": state}});
            anchor.metadata.finalizers = held.then(|| vec![FINALIZER.to_owned()]);
            anchor.metadata.deletion_timestamp = leaves.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
            anchor
        };
        for (name, state, held, leaves, settled) in [
            ("child", "Ok", true, false, true),
            ("taken", "Conflict", true, false, true),
            ("child", "Missing", true, false, false),
            ("child", "Ok", false, false, false),
            ("child", "Ok", true, true, false),
            ("bare", "Ok", true, false, false),
            ("absent", "Ok", true, false, false),
            ("taken", "Ok", true, false, false),
        ] {
            assert_eq!(
                stands.is_settled(&anchor(name, state, held, leaves)),
                settled,
                "{name} {state} {held} {leaves}"
            );
        }
    }
}
