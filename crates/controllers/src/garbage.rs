//! Owners and dependents: what nobody owns any longer is removed, what is orphaned is let go.
//!
//! One watch of metadata a resource feeds a graph of owners. New resources (a CustomResourceDefinition) are found by
//! asking discovery again when one of its definitions changes.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;

use crate::resources::{self, Found};
use crate::run::{Failed, gone_is_fine};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// How often discovery is asked for resources that appeared.
const DISCOVER_EVERY: Duration = Duration::from_secs(2);
/// How often what failed, or was waiting for others, is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(500);

type Uid = String;

/// One object as the graph knows it.
struct Node {
    resource: ApiResource,
    namespaced: bool,
    metadata: ObjectMeta,
}

enum Seen {
    Changed(Found, Box<ObjectMeta>),
    Gone(Uid),
}

#[derive(Default)]
struct Graph {
    nodes: HashMap<Uid, Node>,
    dependents: HashMap<Uid, BTreeSet<Uid>>,
    /// Objects to look at again.
    pending: BTreeSet<Uid>,
}

pub async fn run(client: Client) {
    let mut graph = Graph::default();
    let mut watched: Vec<Found> = Vec::new();
    let mut events: SelectAll<BoxStream<'static, Seen>> = SelectAll::new();
    let mut discover = tokio::time::interval(DISCOVER_EVERY);
    let mut retry = tokio::time::interval(RETRY_EVERY);
    loop {
        tokio::select! {
            _ = discover.tick() => {
                let Ok(found) = resources::deletable(&client).await else { continue };
                for one in found.into_iter().filter(|one| !is_noise(&one.api)) {
                    if !watched.contains(&one) {
                        events.push(watch(&client, one.clone()));
                        watched.push(one);
                    }
                }
            }
            Some(seen) = events.next(), if !events.is_empty() => {
                graph.take(seen);
                // Whatever else is there already is taken first, so that an owner and its dependents are seen together.
                while let Some(Some(seen)) = futures::FutureExt::now_or_never(events.next()) {
                    graph.take(seen);
                }
                graph.work(&client).await;
            }
            _ = retry.tick() => graph.work(&client).await,
        }
    }
}

/// Resources that are written often and never own or are owned.
fn is_noise(api: &ApiResource) -> bool {
    matches!((api.group.as_str(), api.plural.as_str()), ("", "events") | ("coordination.k8s.io", "leases"))
}

fn watch(client: &Client, found: Found) -> BoxStream<'static, Seen> {
    let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(client.clone(), &found.api);
    watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            let found = found.clone();
            let seen = match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    Some(Seen::Changed(found, Box::new(object.metadata)))
                }
                Ok(watcher::Event::Delete(PartialObjectMeta { metadata, .. })) => metadata.uid.map(Seen::Gone),
                Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => None,
            };
            std::future::ready(seen)
        })
        .boxed()
}

impl Graph {
    fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Changed(found, metadata) => {
                let Some(uid) = metadata.uid.clone() else { return };
                self.unlink(&uid);
                let owners = metadata.owner_references.as_deref().unwrap_or_default();
                for owner in owners {
                    self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
                }
                if !owners.is_empty() || metadata.deletion_timestamp.is_some() {
                    self.pending.insert(uid.clone());
                }
                self.nodes.insert(uid, Node { resource: found.api, namespaced: found.namespaced, metadata: *metadata });
            }
            Seen::Gone(uid) => {
                let owners: Vec<Uid> = self.owners(&uid).iter().map(|owner| owner.uid.clone()).collect();
                self.unlink(&uid);
                self.nodes.remove(&uid);
                self.pending.remove(&uid);
                self.pending.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
                // An owner that waits for its dependents may be done now.
                self.pending.extend(owners.into_iter().filter(|owner| self.nodes.contains_key(owner)));
            }
        }
    }

    fn owners(&self, uid: &str) -> &[OwnerReference] {
        self.nodes.get(uid).and_then(|node| node.metadata.owner_references.as_deref()).unwrap_or_default()
    }

    fn unlink(&mut self, uid: &str) {
        let owners: Vec<Uid> = self.owners(uid).iter().map(|owner| owner.uid.clone()).collect();
        for owner in owners {
            if let Some(dependents) = self.dependents.get_mut(&owner) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
    }

    async fn work(&mut self, client: &Client) {
        for uid in std::mem::take(&mut self.pending) {
            match self.look_at(client, &uid).await {
                Ok(true) => {}
                Ok(false) => {
                    self.pending.insert(uid);
                }
                Err(error) => {
                    tracing::debug!(%error, "will try again");
                    self.pending.insert(uid);
                }
            }
        }
    }

    /// Does what is due for one object; false when it has to be looked at again.
    async fn look_at(&self, client: &Client, uid: &str) -> Result<bool, Failed> {
        let Some(node) = self.nodes.get(uid) else { return Ok(true) };
        if node.metadata.deletion_timestamp.is_some() {
            let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
            if finalizers.iter().any(|finalizer| finalizer == ORPHAN) {
                return self.orphan_dependents(client, uid, node).await;
            }
            if finalizers.iter().any(|finalizer| finalizer == FOREGROUND) {
                return self.delete_dependents(client, uid, node).await;
            }
            return Ok(true);
        }
        self.collect(client, uid, node).await
    }

    /// Removes an object whose owners are all gone; lets go of the gone ones while another is left.
    async fn collect(&self, client: &Client, uid: &str, node: &Node) -> Result<bool, Failed> {
        let owners = self.owners(uid);
        if owners.is_empty() {
            return Ok(true);
        }
        let (mut solid, mut gone) = (false, Vec::new());
        let mut waited_for = false;
        for owner in owners {
            match self.nodes.get(&owner.uid) {
                Some(known) => {
                    let foreground = known.metadata.deletion_timestamp.is_some()
                        && known.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FOREGROUND);
                    waited_for |= foreground && owner.block_owner_deletion == Some(true);
                    solid |= !foreground;
                }
                // The graph may simply not know it yet: ask.
                None if exists(client, node, owner).await? => solid = true,
                None => gone.push(owner.uid.clone()),
            }
        }
        if solid {
            if !gone.is_empty() {
                let kept: Vec<_> = owners.iter().filter(|owner| !gone.contains(&owner.uid)).collect();
                self.patch(client, node, uid, json!({"ownerReferences": kept})).await?;
            }
            return Ok(true);
        }
        let policy = if waited_for && self.dependents.contains_key(uid) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.delete(client, node, uid, policy).await?;
        Ok(true)
    }

    async fn orphan_dependents(&self, client: &Client, uid: &str, node: &Node) -> Result<bool, Failed> {
        for dependent in self.dependents.get(uid).into_iter().flatten() {
            let Some(child) = self.nodes.get(dependent) else { continue };
            let kept: Vec<_> = self.owners(dependent).iter().filter(|owner| owner.uid != uid).collect();
            self.patch(client, child, dependent, json!({"ownerReferences": kept})).await?;
        }
        self.drop_finalizer(client, uid, node, ORPHAN).await
    }

    async fn delete_dependents(&self, client: &Client, uid: &str, node: &Node) -> Result<bool, Failed> {
        let mut blocked = false;
        for dependent in self.dependents.get(uid).into_iter().flatten() {
            let Some(child) = self.nodes.get(dependent) else { continue };
            let blocks =
                self.owners(dependent).iter().any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true));
            blocked |= blocks;
            if child.metadata.deletion_timestamp.is_none() {
                self.collect_one(client, dependent, child).await?;
            }
        }
        if blocked { Ok(false) } else { self.drop_finalizer(client, uid, node, FOREGROUND).await }
    }

    async fn collect_one(&self, client: &Client, uid: &str, node: &Node) -> Result<(), Failed> {
        let policy = if self.dependents.contains_key(uid) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.delete(client, node, uid, policy).await
    }

    async fn drop_finalizer(&self, client: &Client, uid: &str, node: &Node, gone: &str) -> Result<bool, Failed> {
        let kept: Vec<_> = node.metadata.finalizers.iter().flatten().filter(|finalizer| *finalizer != gone).collect();
        self.patch(client, node, uid, json!({"finalizers": kept})).await?;
        Ok(true)
    }

    async fn delete(&self, client: &Client, node: &Node, uid: &str, policy: PropagationPolicy) -> Result<(), Failed> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        match gone_is_fine(api(client, node).delete(name, &params).await) {
            // Somebody else's object has the name by now.
            Err(Failed::Api(kube::Error::Api(status))) if status.code == 409 => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Changes metadata of exactly this object: the uid in the patch makes it fail on a namesake.
    async fn patch(
        &self,
        client: &Client,
        node: &Node,
        uid: &str,
        mut metadata: serde_json::Value,
    ) -> Result<(), Failed> {
        metadata["uid"] = uid.into();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match gone_is_fine(api(client, node).patch_metadata(name, &PatchParams::default(), &patch).await) {
            Err(Failed::Api(kube::Error::Api(status))) if status.code == 409 || status.code == 422 => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

fn api(client: &Client, node: &Node) -> Api<DynamicObject> {
    match node.metadata.namespace.as_deref().filter(|_| node.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &node.resource),
        None => Api::all_with(client.clone(), &node.resource),
    }
}

/// Whether an owner exists under its name with its uid.
async fn exists(client: &Client, child: &Node, owner: &OwnerReference) -> Result<bool, Failed> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let kind = GroupVersionKind::gvk(group, version, &owner.kind);
    let found = resources::deletable(client).await?;
    let Some(found) = found.into_iter().find(|found| found.api.group == group && found.api.kind == kind.kind) else {
        // A kind that is not served cannot be asked for; an owner that cannot be checked is taken to exist.
        return Ok(true);
    };
    let resource = ApiResource { version: version.to_owned(), api_version: owner.api_version.clone(), ..found.api };
    let api: Api<DynamicObject> = match child.metadata.namespace.as_deref().filter(|_| found.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let live = gone_is_fine(api.get_metadata(&owner.name).await)?;
    Ok(live.is_some_and(|live| live.metadata.uid.as_deref() == Some(owner.uid.as_str())))
}
