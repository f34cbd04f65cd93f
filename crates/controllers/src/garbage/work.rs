//! What is done about owners that went and dependents that are in the way.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::graph::{Graph, Node, Uid};
use crate::resources::{self, Found};
use crate::run::{Failed, gone_is_fine, is_segment};

const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

impl Graph {
    /// Does what is due for everything pending.
    pub(super) async fn work(&mut self, client: &Client) {
        for uid in std::mem::take(&mut self.pending) {
            match self.look_at(client, &uid).await {
                Ok(true) => self.resting.forget(&uid),
                Ok(false) => self.resting.failed(uid, Instant::now()),
                Err(error) => {
                    tracing::debug!(%error, "will try again");
                    self.resting.failed(uid, Instant::now());
                }
            }
        }
    }

    /// Does what is due for one object; false when it has to be looked at again.
    async fn look_at(&mut self, client: &Client, uid: &str) -> Result<bool, Failed> {
        let Some(node) = self.nodes.get(uid).cloned() else { return Ok(true) };
        if !node.deleting {
            return self.collect(client, uid, &node).await;
        }
        if node.has_finalizer(ORPHAN) {
            return self.orphan_dependents(client, uid, &node).await;
        }
        if node.has_finalizer(FOREGROUND) {
            return self.delete_dependents(client, uid, &node).await;
        }
        Ok(true)
    }

    /// Removes an object whose owners are all gone, or wait for its going; while one is left that neither is, the object stays
    /// and lets go of the others.
    async fn collect(&mut self, client: &Client, uid: &str, node: &Node) -> Result<bool, Failed> {
        if node.owners.is_empty() {
            return Ok(true);
        }
        let (mut solid, mut left) = (false, Vec::new());
        let mut is_waited_for = false;
        for owner in &node.owners {
            match self.nodes.get(&owner.uid).filter(|known| node.may_be_owned_by(known)) {
                Some(known) if known.waits_for_dependents() => {
                    is_waited_for = true;
                    left.push(owner.uid.clone());
                }
                Some(_) => solid = true,
                None if self.lives(&owner.uid, node) => solid = true,
                // What has no owners itself is not in the graph: ask, once.
                None if self.exists(client, node, owner).await? => {
                    solid = true;
                    self.alive.entry(owner.uid.clone()).or_default().insert(node.namespace.clone());
                }
                None => left.push(owner.uid.clone()),
            }
        }
        if solid {
            if !left.is_empty() {
                let kept: Vec<_> = node.owners.iter().filter(|owner| !left.contains(&owner.uid)).collect();
                self.patch(client, node, uid, json!({"ownerReferences": kept})).await?;
            }
            return Ok(true);
        }
        let below: Vec<bool> = self.owned(uid, node).map(|(_, one)| one.waits_for_dependents()).collect();
        if is_waited_for && below.contains(&true) {
            // Owners that wait for each other in a circle would wait for ever: this one holds nobody up.
            let free = |owner: &OwnerReference| OwnerReference { block_owner_deletion: Some(false), ..owner.clone() };
            let owners: Vec<_> = node.owners.iter().map(free).collect();
            self.patch(client, node, uid, json!({"ownerReferences": owners})).await?;
        }
        let policy = if is_waited_for && !below.is_empty() {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.delete(client, node, uid, policy).await?;
        Ok(true)
    }

    async fn orphan_dependents(&self, client: &Client, uid: &str, node: &Node) -> Result<bool, Failed> {
        for (dependent, child) in self.owned(uid, node) {
            let kept: Vec<_> = self.owners(dependent).iter().filter(|owner| owner.uid != uid).collect();
            self.patch(client, child, dependent, json!({"ownerReferences": kept})).await?;
        }
        self.drop_finalizer(client, uid, node, ORPHAN).await
    }

    /// Lets go of an object in the foreground once nothing it waits for is left. What else owns its dependents keeps them.
    async fn delete_dependents(&mut self, client: &Client, uid: &str, node: &Node) -> Result<bool, Failed> {
        let dependents: Vec<(Uid, Node)> =
            self.owned(uid, node).map(|(uid, child)| (uid.clone(), child.clone())).collect();
        let mut is_blocked = false;
        for (dependent, child) in dependents {
            is_blocked |= child.owners.iter().any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true));
            if !child.deleting {
                self.collect(client, &dependent, &child).await?;
            }
        }
        if is_blocked { Ok(false) } else { self.drop_finalizer(client, uid, node, FOREGROUND).await }
    }

    async fn drop_finalizer(&self, client: &Client, uid: &str, node: &Node, gone: &str) -> Result<bool, Failed> {
        let kept: Vec<_> = node.finalizers.iter().filter(|finalizer| *finalizer != gone).collect();
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
        match gone_is_fine(api(client, node).delete(&node.name, &params).await) {
            // Somebody else's object has the name by now.
            Err(Failed::Api(kube::Error::Api(status))) if status.code == 409 => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Changes metadata of exactly this object: the uid in the patch makes it fail on a namesake.
    async fn patch(&self, client: &Client, node: &Node, uid: &str, mut metadata: Value) -> Result<(), Failed> {
        metadata["uid"] = uid.into();
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match gone_is_fine(api(client, node).patch_metadata(&node.name, &PatchParams::default(), &patch).await) {
            Err(Failed::Api(kube::Error::Api(status))) if status.code == 409 || status.code == 422 => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Whether an owner exists under its name with its uid.
    async fn exists(&self, client: &Client, child: &Node, owner: &OwnerReference) -> Result<bool, Failed> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let of_kind = |found: &&Arc<Found>| found.api.group == group && found.api.kind == owner.kind;
        let found = match self.watched.iter().find(of_kind) {
            Some(found) => Some(found.clone()),
            None => resources::deletable(client).await?.into_iter().map(Arc::new).find(|found| of_kind(&found)),
        };
        // A kind that is not served cannot be asked for; an owner that cannot be checked is taken to exist.
        let Some(found) = found else { return Ok(true) };
        // Nothing without a namespace is owned by something in one: which one would it be? It stays.
        if found.namespaced && child.namespace.is_none() {
            return Ok(true);
        }
        // An object is the same at every version of its kind. The version in a reference is a user's text and has no place in
        // the path of a request, nor has a name that no object can have.
        if !is_segment(&owner.name) {
            return Ok(false);
        }
        let api: Api<DynamicObject> = match child.namespace.as_deref().filter(|_| found.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &found.api),
            None => Api::all_with(client.clone(), &found.api),
        };
        let live = gone_is_fine(api.get_metadata(&owner.name).await)?;
        Ok(live.is_some_and(|live| live.metadata.uid.as_deref() == Some(owner.uid.as_str())))
    }
}

fn api(client: &Client, node: &Node) -> Api<DynamicObject> {
    match node.namespace.as_deref().filter(|_| node.found.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &node.found.api),
        None => Api::all_with(client.clone(), &node.found.api),
    }
}
