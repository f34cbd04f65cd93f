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

/// A subject of a binding, and its words.
type Bound = (GrantKey, Arc<str>);

/// What the follower of the core knows. Owned under a lock that only writers take.
#[derive(Debug)]
pub(super) struct Writer {
    slots: HashMap<RoleKey, Slot>,
    cluster_roles: ClusterRoles,
    /// Which keys a binding stands under, so that replacing it removes what it granted before.
    bindings: HashMap<(String, String), (RoleKey, Vec<Bound>)>,
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
        for (key, _) in keys {
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
        let Some(object) = object else { return self.unbind(namespace, name, shard_of) };
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let role_ref = &object["roleRef"];
        let role_name = text(role_ref, "name");
        // A ClusterRoleBinding to a Role, or a reference to another group, grants nothing.
        let (role_kind, role_namespace) = match (kind, Kind::from_kind(&text(role_ref, "kind"))) {
            (Kind::RoleBinding, Some(Kind::Role)) => (Kind::Role, namespace),
            (_, Some(Kind::ClusterRole)) => (Kind::ClusterRole, ""),
            _ => return self.unbind(namespace, name, shard_of),
        };
        let role_key = (role_namespace.to_owned(), role_name.clone());
        let bound = bound(namespace, object);
        let id = (namespace.to_owned(), name.to_owned());
        if self.bindings.get(&id).is_some_and(|(role, known)| *role == role_key && *known == bound) {
            return;
        }
        self.unbind(namespace, name, shard_of);
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
        for (key, subject) in &bound {
            let at = shard_of(key.as_ref());
            self.dirty.insert(at);
            let grant = Grant { binding: Arc::clone(&binding), subject: Arc::clone(subject) };
            let mut grants = self.shards[at].get(key).map(|held| held.to_vec()).unwrap_or_default();
            grants.push(grant);
            self.shards[at].insert(key.clone(), grants.into());
        }
        self.bindings.insert(id, (role_key, bound));
    }
}

/// Whom a binding names, each once however often it does.
fn bound(namespace: &str, binding: &Value) -> Vec<Bound> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let subjects = binding.get("subjects").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut known = HashSet::new();
    let mut bound = Vec::with_capacity(subjects.len());
    for subject in subjects {
        let name = text(subject, "name");
        let (is_group, name, described) = match subject.get("kind").and_then(Value::as_str) {
            Some("User") => (false, name.clone(), format!("User {name:?}")),
            Some("Group") => (true, name.clone(), format!("Group {name:?}")),
            Some("ServiceAccount") => {
                let of = match text(subject, "namespace") {
                    empty if empty.is_empty() => namespace.to_owned(),
                    given => given,
                };
                (false, service_account_user(&of, &name), format!("ServiceAccount \"{name}/{of}\""))
            }
            _ => continue,
        };
        let key = GrantKey { namespace: namespace.into(), is_group, name: name.into() };
        if known.insert(key.clone()) {
            bound.push((key, described.into()));
        }
    }
    bound
}

pub(super) type ShardOf<'f> = dyn Fn(GrantKeyRef<'_>) -> usize + 'f;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(subjects: usize, labels: Value) -> Value {
        let group = json!({"kind": "Group", "name": "g"});
        let account = json!({"kind": "ServiceAccount", "name": "a"});
        let same = json!({"kind": "User", "name": "system:serviceaccount:n:a"});
        let mut all = vec![group; subjects];
        all.extend([account, same, json!({"kind": "Robot", "name": "g"})]);
        json!({"metadata": {"labels": labels}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": all})
    }

    #[test]
    fn a_binding_grants_once_however_often_it_names_somebody() {
        let mut writer = Writer::new();
        let one_shard: &ShardOf<'_> = &|_| 0;
        let mut apply = |object: Option<&Value>| {
            writer.apply(Kind::RoleBinding, "n", "b", object, one_shard);
            let grants: Vec<usize> = writer.shards[0].values().map(|grants| grants.len()).collect();
            (grants, std::mem::take(&mut writer.dirty).len())
        };
        assert_eq!(apply(Some(&binding(14_000, json!({})))), (vec![1, 1], 1));
        // Nothing is made again for a label.
        assert_eq!(apply(Some(&binding(14_000, json!({"a": "b"})))), (vec![1, 1], 0));
        assert_eq!(apply(Some(&binding(0, json!({})))), (vec![1], 1));
        assert_eq!(apply(None), (vec![], 1));
    }
}
