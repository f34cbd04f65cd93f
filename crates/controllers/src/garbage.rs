//! Owners and dependents: what nobody owns any longer is removed, what is orphaned is let go.
//!
//! One watch a resource feeds a graph of owners. Only objects that have owners or are being deleted are kept in it: most
//! objects are neither, and there may be a million of them. New resources (a CustomResourceDefinition) are found by
//! asking discovery again when one of its definitions changes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;

use crate::glance::Kin;
use crate::resources::{self, Found};
use crate::resting::Resting;
use crate::run::{Failed, gone_is_fine, is_segment};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// How often discovery is asked for resources that appeared.
const DISCOVER_EVERY: Duration = Duration::from_secs(2);
/// How often those that failed, or were waiting for others, are looked through for some that have rested long enough.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How many of them are tried again then. Each may cost as much as a request that is refused.
const RETRIED_MAX: usize = 10;

type Uid = String;

/// One object as the graph knows it.
#[derive(Clone)]
struct Node {
    found: Arc<Found>,
    name: String,
    namespace: Option<String>,
    owners: Vec<OwnerReference>,
    finalizers: Vec<String>,
    deleting: bool,
}

impl Node {
    fn new(found: Arc<Found>, metadata: ObjectMeta) -> Node {
        Node {
            found,
            name: metadata.name.unwrap_or_default(),
            namespace: metadata.namespace,
            owners: metadata.owner_references.unwrap_or_default(),
            finalizers: metadata.finalizers.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }

    /// Whether `owner` can own this: what has a namespace owns within it alone. A reference into another namespace names
    /// nothing, so that nobody holds, or keeps alive, what is not theirs.
    fn may_be_owned_by(&self, owner: &Node) -> bool {
        owner.namespace.is_none() || owner.namespace == self.namespace
    }

    /// Whether it is being deleted in the foreground.
    fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(FOREGROUND)
    }

    fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}

enum Seen {
    Changed(Arc<Found>, Box<ObjectMeta>),
    Gone(Uid),
    /// All objects of the resource are shown again, because the watch fell too far behind or has just begun.
    Listing(Arc<Found>),
    Listed(Arc<Found>),
}

#[derive(Default)]
struct Graph {
    /// Objects with owners, and objects being deleted.
    nodes: HashMap<Uid, Node>,
    dependents: HashMap<Uid, BTreeSet<Uid>>,
    /// Owners outside of `nodes` that were asked for and exist, and for dependents of which namespaces; their end will be
    /// seen.
    alive: HashMap<Uid, BTreeSet<Option<String>>>,
    /// Objects to look at.
    pending: BTreeSet<Uid>,
    /// Those of which nothing came, to be looked at again.
    resting: Resting<Uid>,
    /// Resources whose objects are being shown again, with those of `nodes` shown so far.
    listings: Vec<(Arc<Found>, HashSet<Uid>)>,
    /// Every resource that is watched.
    watched: Vec<Arc<Found>>,
}

pub async fn run(client: Client) {
    let mut graph = Graph::default();
    let mut events: SelectAll<BoxStream<'static, Seen>> = SelectAll::new();
    let mut discover = tokio::time::interval(DISCOVER_EVERY);
    let mut retry = tokio::time::interval(RETRY_EVERY);
    loop {
        tokio::select! {
            _ = discover.tick() => {
                let Ok(found) = resources::deletable(&client).await else { continue };
                for one in found.into_iter().filter(|one| !is_noise(&one.api)) {
                    if !graph.watched.iter().any(|known| **known == one) {
                        let one = Arc::new(one);
                        events.push(watch(&client, one.clone()));
                        graph.watched.push(one);
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
            _ = retry.tick() => {
                let due = graph.resting.take_due(Instant::now(), RETRIED_MAX);
                graph.pending.extend(due);
                graph.work(&client).await;
            }
        }
    }
}

/// Resources that are written often and never own or are owned.
fn is_noise(api: &ApiResource) -> bool {
    matches!((api.group.as_str(), api.plural.as_str()), ("", "events") | ("coordination.k8s.io", "leases"))
}

fn watch(client: &Client, found: Arc<Found>) -> BoxStream<'static, Seen> {
    let api = Api::<Kin>::all_with(client.clone(), &found.api);
    watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            let seen = match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    Some(Seen::Changed(found.clone(), Box::new(object.metadata)))
                }
                Ok(watcher::Event::Delete(Kin { metadata })) => metadata.uid.map(Seen::Gone),
                Ok(watcher::Event::Init) => Some(Seen::Listing(found.clone())),
                Ok(watcher::Event::InitDone) => Some(Seen::Listed(found.clone())),
                Err(_) => None,
            };
            std::future::ready(seen)
        })
        .boxed()
}

impl Graph {
    fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Changed(found, mut metadata) => {
                let Some(uid) = metadata.uid.take() else { return };
                // Whoever waits for it may not have to any longer.
                let owners: Vec<Uid> = self.owners(&uid).iter().map(|owner| owner.uid.clone()).collect();
                for owner in owners {
                    if self.nodes.get(&owner).is_some_and(Node::waits_for_dependents) {
                        self.resting.forget(&owner);
                        self.pending.insert(owner);
                    }
                }
                self.unlink(&uid);
                self.resting.forget(&uid);
                let node = Node::new(found, *metadata);
                if node.owners.is_empty() && !node.deleting {
                    self.nodes.remove(&uid);
                    return;
                }
                for owner in &node.owners {
                    self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
                }
                if let Some((_, shown)) = self.listings.iter_mut().find(|(listed, _)| *listed == node.found) {
                    shown.insert(uid.clone());
                }
                self.pending.insert(uid.clone());
                self.nodes.insert(uid, node);
            }
            Seen::Listing(found) => {
                self.listings.retain(|(listed, _)| *listed != found);
                self.listings.push((found, HashSet::new()));
            }
            Seen::Listed(found) => self.listed(&found),
            Seen::Gone(uid) => {
                self.unlink(&uid);
                let owners = self.nodes.remove(&uid).map(|node| node.owners).unwrap_or_default();
                self.alive.remove(&uid);
                self.pending.remove(&uid);
                self.resting.forget(&uid);
                let dependents = self.dependents.get(&uid).into_iter().flatten().cloned();
                // An owner that waits for its dependents may be done now.
                let owners = owners.into_iter().map(|owner| owner.uid);
                let concerned: Vec<Uid> =
                    dependents.chain(owners.filter(|owner| self.nodes.contains_key(owner))).collect();
                concerned.iter().for_each(|uid| self.resting.forget(uid));
                self.pending.extend(concerned);
            }
        }
    }

    /// What was not shown has gone while nobody looked; whether owners still exist has to be asked again.
    fn listed(&mut self, found: &Arc<Found>) {
        let Some(at) = self.listings.iter().position(|(listed, _)| listed == found) else { return };
        let (_, shown) = self.listings.swap_remove(at);
        let of_resource = self.nodes.iter().filter(|(_, node)| node.found == *found);
        let gone: Vec<Uid> = of_resource.map(|(uid, _)| uid).filter(|uid| !shown.contains(*uid)).cloned().collect();
        for uid in gone {
            self.take(Seen::Gone(uid));
        }
        self.alive.clear();
        let rested = self.nodes.keys().filter(|uid| !self.resting.is_resting(uid));
        self.pending.extend(rested.cloned());
    }

    fn lives(&self, owner: &str, dependent: &Node) -> bool {
        self.alive.get(owner).is_some_and(|within| within.contains(&dependent.namespace))
    }

    /// What may be, and says it is, owned by an object.
    fn owned<'g>(&'g self, uid: &str, node: &'g Node) -> impl Iterator<Item = (&'g Uid, &'g Node)> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        let known = dependents.filter_map(|dependent| Some((dependent, self.nodes.get(dependent)?)));
        known.filter(|(_, child)| child.may_be_owned_by(node))
    }

    fn owners(&self, uid: &str) -> &[OwnerReference] {
        self.nodes.get(uid).map(|node| node.owners.as_slice()).unwrap_or_default()
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
    async fn patch(
        &self,
        client: &Client,
        node: &Node,
        uid: &str,
        mut metadata: serde_json::Value,
    ) -> Result<(), Failed> {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn found(plural: &str) -> Arc<Found> {
        let api = ApiResource {
            group: String::new(),
            version: "v1".into(),
            api_version: "v1".into(),
            kind: plural.to_owned(),
            plural: plural.to_owned(),
        };
        Arc::new(Found { api, namespaced: true })
    }

    fn object(uid: &str, owner: Option<&str>) -> Box<ObjectMeta> {
        let owners = owner.map(|uid| vec![OwnerReference { uid: uid.to_owned(), ..OwnerReference::default() }]);
        Box::new(ObjectMeta { uid: Some(uid.to_owned()), owner_references: owners, ..ObjectMeta::default() })
    }

    #[test]
    fn only_relations_are_kept() {
        let (pods, mut graph) = (found("pods"), Graph::default());
        graph.take(Seen::Changed(pods.clone(), object("alone", None)));
        graph.take(Seen::Changed(pods.clone(), object("child", Some("parent"))));
        assert_eq!(graph.nodes.keys().collect::<Vec<_>>(), ["child"]);
        graph.take(Seen::Changed(pods, object("child", None)));
        assert!(graph.nodes.is_empty() && graph.dependents.is_empty());
    }

    #[test]
    fn the_end_of_an_owner_brings_up_its_dependents() {
        let mut graph = Graph::default();
        graph.take(Seen::Changed(found("pods"), object("child", Some("parent"))));
        graph.pending.clear();
        graph.take(Seen::Gone("parent".to_owned()));
        assert!(graph.pending.contains("child"));
    }

    /// A server where no owner is found and every deletion is refused; it counts the latter.
    fn refusing() -> (Client, Arc<AtomicUsize>) {
        let refused = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&refused);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let deletes = request.method() == http::Method::DELETE;
            counted.fetch_add(usize::from(deletes), Ordering::Relaxed);
            let (code, reason) = if deletes { (403, "Forbidden") } else { (404, "NotFound") };
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                "message": "no", "metadata": {}});
            let body = kube::client::Body::from(status.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body).expect("a response");
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        (Client::new(service, "default"), refused)
    }

    #[tokio::test]
    async fn a_refused_deletion_is_not_tried_with_every_event() {
        let (client, refused) = refusing();
        let (pods, mut graph) = (found("pods"), Graph::default());
        graph.watched.push(pods.clone());
        let held = |uid: String| {
            let owner = OwnerReference {
                uid: "gone".into(),
                name: "gone".into(),
                kind: "pods".into(),
                api_version: "v1".into(),
                ..OwnerReference::default()
            };
            let metadata = ObjectMeta {
                uid: Some(uid.clone()),
                name: Some(uid),
                namespace: Some("n".into()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            };
            Box::new(metadata)
        };
        for at in 0..50 {
            graph.take(Seen::Changed(pods.clone(), held(format!("held-{at}"))));
        }
        graph.work(&client).await;
        assert_eq!(refused.load(Ordering::Relaxed), 50, "each is tried once");
        for at in 0..100 {
            graph.take(Seen::Changed(pods.clone(), object(&format!("other-{at}"), None)));
            graph.take(Seen::Listing(pods.clone()));
            for at in 0..50 {
                let (_, shown) = graph.listings.last_mut().expect("being listed");
                shown.insert(format!("held-{at}"));
            }
            graph.take(Seen::Listed(pods.clone()));
            graph.work(&client).await;
        }
        assert_eq!(refused.load(Ordering::Relaxed), 50, "nothing has changed about them");
        // What is due is tried a few at a time.
        let due = graph.resting.take_due(Instant::now() + Duration::from_secs(1), RETRIED_MAX);
        assert_eq!(due.len(), RETRIED_MAX);
        graph.pending.extend(due);
        graph.take(Seen::Changed(pods, held("held-7".into())));
        graph.work(&client).await;
        assert!(refused.load(Ordering::Relaxed) <= 50 + RETRIED_MAX + 1, "and what has changed, at once");
    }

    #[test]
    fn nothing_is_owned_from_another_namespace() {
        let mut graph = Graph::default();
        let within = |namespace: &str, uid: &str, owner: Option<&str>| {
            let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
            Box::new(ObjectMeta { namespace, deletion_timestamp: None, ..*object(uid, owner) })
        };
        for (namespace, uid, owner) in [
            ("a", "mine", Some("root")),
            ("a", "child", Some("mine")),
            ("b", "stranger", Some("mine")),
            ("", "wide", Some("mine")),
            ("", "cluster", Some("root")),
            ("b", "below", Some("cluster")),
        ] {
            graph.take(Seen::Changed(found("pods"), within(namespace, uid, owner)));
        }
        let owned = |uid: &str| graph.owned(uid, &graph.nodes[uid]).map(|(uid, _)| uid.as_str()).collect::<Vec<_>>();
        assert_eq!(owned("mine"), ["child"]);
        assert_eq!(owned("cluster"), ["below"]);
    }

    #[test]
    fn what_a_new_listing_does_not_show_has_gone() {
        let (pods, sets, mut graph) = (found("pods"), found("sets"), Graph::default());
        graph.take(Seen::Changed(sets.clone(), object("parent", Some("grandparent"))));
        graph.take(Seen::Changed(pods.clone(), object("stays", Some("parent"))));
        graph.take(Seen::Changed(pods.clone(), object("went", Some("parent"))));
        graph.alive.entry("grandparent".to_owned()).or_default().insert(None);
        graph.pending.clear();
        graph.take(Seen::Listing(pods.clone()));
        graph.take(Seen::Changed(pods.clone(), object("stays", Some("parent"))));
        graph.take(Seen::Listed(pods));
        assert!(graph.nodes.contains_key("parent") && graph.nodes.contains_key("stays"));
        assert!(!graph.nodes.contains_key("went"));
        assert!(graph.alive.is_empty() && graph.pending.contains("stays"));
    }
}
