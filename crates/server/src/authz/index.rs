//! The pieces of the RBAC index: keys and shards that readers look into, and the writer that keeps them true.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap, HashSet};
use serde_json::Value;

use super::aggregate::ClusterRoles;
use super::rbac::{Binding, Grant, Kind, RoleCell, Subject};
use super::rules::{Rule, parse_rules};
use crate::identity::service_account_user;

/// How many pieces the grants are cut into: a change copies one piece.
pub(super) const SHARDS: usize = 256;

/// (namespace or "", subject); owned in the map, borrowed for a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GrantKey {
    namespace: Box<str>,
    is_group: bool,
    name: Box<str>,
}

#[derive(Clone, Copy)]
pub(super) struct GrantKeyRef<'a> {
    pub namespace: &'a str,
    pub subject: Subject<'a>,
}

impl GrantKey {
    pub(super) fn as_ref(&self) -> GrantKeyRef<'_> {
        let subject = if self.is_group { Subject::Group(&self.name) } else { Subject::User(&self.name) };
        GrantKeyRef { namespace: &self.namespace, subject }
    }
}

impl Hash for GrantKeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.namespace.hash(state);
        self.subject.hash(state);
    }
}

impl Hash for GrantKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl Equivalent<GrantKey> for GrantKeyRef<'_> {
    fn equivalent(&self, key: &GrantKey) -> bool {
        self.namespace == &*key.namespace && self.subject == key.as_ref().subject
    }
}

pub(super) type Shard = HashMap<GrantKey, Arc<[Grant]>>;

/// (namespace or "" for a ClusterRole, name).
type RoleKey = (String, String);

/// A role's cell, kept while the role exists or a binding waits for it.
#[derive(Debug, Default)]
struct Slot {
    cell: Arc<RoleCell>,
    bindings: usize,
}

/// What the follower of the core knows. Owned under a lock that only writers take.
#[derive(Debug)]
pub(super) struct Writer {
    slots: HashMap<RoleKey, Slot>,
    cluster_roles: ClusterRoles,
    /// Which keys a binding stands under, so that replacing it removes what it granted before.
    bindings: HashMap<(String, String), (RoleKey, Vec<GrantKey>)>,
    pub shards: Vec<Shard>,
    pub dirty: HashSet<usize>,
    aggregates_stale: bool,
}

impl Writer {
    pub fn new() -> Writer {
        Writer {
            slots: HashMap::new(),
            cluster_roles: ClusterRoles::default(),
            bindings: HashMap::new(),
            shards: vec![Shard::new(); SHARDS],
            dirty: HashSet::new(),
            aggregates_stale: false,
        }
    }

    pub fn apply(&mut self, kind: Kind, namespace: &str, name: &str, object: Option<&Value>, shard_of: &ShardOf<'_>) {
        match kind {
            Kind::Role => self.set_role(namespace, name, object),
            Kind::ClusterRole => {
                // A role made of others is never published with its own rules, not even for a moment.
                if !self.cluster_roles.apply(name, object) {
                    self.set_role("", name, object);
                }
                self.aggregates_stale = true;
            }
            Kind::RoleBinding => self.bind(kind, namespace, name, object, shard_of),
            Kind::ClusterRoleBinding => self.bind(kind, "", name, object, shard_of),
        }
    }

    /// Recomputes the roles made of other roles, once per group of changes.
    pub fn settle_aggregates(&mut self) {
        if std::mem::take(&mut self.aggregates_stale) {
            for (name, rules) in self.cluster_roles.aggregated() {
                self.cell("", &name).rules.store(Some(Arc::new(rules)));
            }
        }
    }

    /// The rules a role has now, aggregation included.
    pub fn role_rules(&self, namespace: &str, name: &str) -> Option<Arc<Vec<Rule>>> {
        self.slots.get(&(namespace.to_owned(), name.to_owned()))?.cell.rules.load_full()
    }

    fn cell(&mut self, namespace: &str, name: &str) -> &RoleCell {
        &self.slots.entry((namespace.to_owned(), name.to_owned())).or_default().cell
    }

    fn set_role(&mut self, namespace: &str, name: &str, object: Option<&Value>) {
        self.cell(namespace, name).rules.store(object.map(|role| Arc::new(parse_rules(role))));
        if object.is_none() {
            self.drop_unused(&(namespace.to_owned(), name.to_owned()));
        }
    }

    fn drop_unused(&mut self, role: &RoleKey) {
        if self.slots.get(role).is_some_and(|slot| slot.bindings == 0 && slot.cell.rules.load().is_none()) {
            self.slots.remove(role);
        }
    }

    fn unbind(&mut self, namespace: &str, name: &str, shard_of: &ShardOf<'_>) {
        let id = (namespace.to_owned(), name.to_owned());
        let Some((role, keys)) = self.bindings.remove(&id) else { return };
        for key in keys {
            let at = shard_of(key.as_ref());
            self.dirty.insert(at);
            let shard = &mut self.shards[at];
            let Some(grants) = shard.get(&key) else { continue };
            let stays = |grant: &&Grant| grant.binding.namespace != namespace || grant.binding.name != name;
            let rest: Vec<Grant> = grants.iter().filter(stays).cloned().collect();
            if rest.is_empty() {
                shard.remove(&key);
            } else {
                shard.insert(key, rest.into());
            }
        }
        if let Some(slot) = self.slots.get_mut(&role) {
            slot.bindings = slot.bindings.saturating_sub(1);
        }
        self.drop_unused(&role);
    }

    fn bind(&mut self, kind: Kind, namespace: &str, name: &str, object: Option<&Value>, shard_of: &ShardOf<'_>) {
        self.unbind(namespace, name, shard_of);
        let Some(object) = object else { return };
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let role_ref = &object["roleRef"];
        let role_name = text(role_ref, "name");
        // A ClusterRoleBinding to a Role, or a reference to another group, grants nothing.
        let (role_kind, role_namespace) = match (kind, Kind::from_kind(&text(role_ref, "kind"))) {
            (Kind::RoleBinding, Some(Kind::Role)) => (Kind::Role, namespace),
            (_, Some(Kind::ClusterRole)) => (Kind::ClusterRole, ""),
            _ => return,
        };
        let role_key = (role_namespace.to_owned(), role_name.clone());
        let slot = self.slots.entry(role_key.clone()).or_default();
        slot.bindings += 1;
        let role = Arc::clone(&slot.cell);
        let binding = Arc::new(Binding {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            role_kind,
            role_name,
            role,
        });
        let subjects = object.get("subjects").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut keys = Vec::with_capacity(subjects.len());
        for subject in subjects {
            let subject_name = text(subject, "name");
            let (is_group, name, described) = match subject.get("kind").and_then(Value::as_str) {
                Some("User") => (false, subject_name.clone(), format!("User {subject_name:?}")),
                Some("Group") => (true, subject_name.clone(), format!("Group {subject_name:?}")),
                Some("ServiceAccount") => {
                    let of = match text(subject, "namespace") {
                        empty if empty.is_empty() => namespace.to_owned(),
                        given => given,
                    };
                    let described = format!("ServiceAccount \"{subject_name}/{of}\"");
                    (false, service_account_user(&of, &subject_name), described)
                }
                _ => continue,
            };
            let key = GrantKey { namespace: namespace.into(), is_group, name: name.into() };
            let at = shard_of(key.as_ref());
            self.dirty.insert(at);
            let grant = Grant { binding: Arc::clone(&binding), subject: described.into() };
            let mut grants = self.shards[at].get(&key).map(|held| held.to_vec()).unwrap_or_default();
            grants.push(grant);
            self.shards[at].insert(key.clone(), grants.into());
            keys.push(key);
        }
        self.bindings.insert((namespace.to_owned(), name.to_owned()), (role_key, keys));
    }
}

pub(super) type ShardOf<'f> = dyn Fn(GrantKeyRef<'_>) -> usize + 'f;
