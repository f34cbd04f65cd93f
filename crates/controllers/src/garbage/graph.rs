//! Who owns whom, as far as the watches have told.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::work::FOREGROUND;
use crate::resources::Found;
use crate::resting::Resting;

pub(super) type Uid = String;

/// One object as the graph knows it.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) found: Arc<Found>,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) finalizers: Vec<String>,
    pub(super) deleting: bool,
}

impl Node {
    pub(super) fn new(found: Arc<Found>, metadata: ObjectMeta) -> Node {
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
    pub(super) fn may_be_owned_by(&self, owner: &Node) -> bool {
        owner.namespace.is_none() || owner.namespace == self.namespace
    }

    /// Whether it is being deleted in the foreground.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(FOREGROUND)
    }

    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}

pub(super) enum Seen {
    Changed(Arc<Found>, Box<ObjectMeta>),
    Gone(Uid),
    /// All objects of the resource are shown again, because the watch fell too far behind or has just begun.
    Listing(Arc<Found>),
    Listed(Arc<Found>),
}

#[derive(Default)]
pub(super) struct Graph {
    /// Objects with owners, and objects being deleted.
    pub(super) nodes: HashMap<Uid, Node>,
    pub(super) dependents: HashMap<Uid, BTreeSet<Uid>>,
    /// Owners outside of `nodes` that were asked for and exist, and for dependents of which namespaces; their end will be
    /// seen.
    pub(super) alive: HashMap<Uid, BTreeSet<Option<String>>>,
    /// Objects to look at.
    pub(super) pending: BTreeSet<Uid>,
    /// Those of which nothing came, to be looked at again.
    pub(super) resting: Resting<Uid>,
    /// Resources whose objects are being shown again, with those of `nodes` shown so far.
    pub(super) listings: Vec<(Arc<Found>, HashSet<Uid>)>,
    /// Every resource that is watched.
    pub(super) watched: Vec<Arc<Found>>,
}

impl Graph {
    pub(super) fn take(&mut self, seen: Seen) {
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

    pub(super) fn lives(&self, owner: &str, dependent: &Node) -> bool {
        self.alive.get(owner).is_some_and(|within| within.contains(&dependent.namespace))
    }

    /// What may be, and says it is, owned by an object.
    pub(super) fn owned<'g>(&'g self, uid: &str, node: &'g Node) -> impl Iterator<Item = (&'g Uid, &'g Node)> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        let known = dependents.filter_map(|dependent| Some((dependent, self.nodes.get(dependent)?)));
        known.filter(|(_, child)| child.may_be_owned_by(node))
    }

    pub(super) fn owners(&self, uid: &str) -> &[OwnerReference] {
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
}
