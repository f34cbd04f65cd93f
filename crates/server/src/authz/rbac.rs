//! The index behind [`Rbac::authorize`].
//!
//! A request looks up a handful of keys (namespace, subject) and reads the rules of the roles granted there. Roles sit
//! in cells whose rules are swapped in place, so changing a role touches no binding; grants sit in shards which are
//! copied on change, so one binding among a hundred thousand costs a small copy. Readers never wait.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use serde_json::Value;

use super::index::{GrantKeyRef, SHARDS, Shard, Writer};
use super::rules::Rule;
use super::{Attributes, is_health};
use crate::identity::Identity;

/// The four kinds that make up RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl Kind {
    pub const GROUP: &'static str = "rbac.authorization.k8s.io";

    pub fn from_kind(kind: &str) -> Option<Kind> {
        Some(match kind {
            "Role" => Kind::Role,
            "ClusterRole" => Kind::ClusterRole,
            "RoleBinding" => Kind::RoleBinding,
            "ClusterRoleBinding" => Kind::ClusterRoleBinding,
            _ => return None,
        })
    }

    pub fn from_resource(resource: &str) -> Option<Kind> {
        Some(match resource {
            "roles" => Kind::Role,
            "clusterroles" => Kind::ClusterRole,
            "rolebindings" => Kind::RoleBinding,
            "clusterrolebindings" => Kind::ClusterRoleBinding,
            _ => return None,
        })
    }

    pub fn resource(self) -> &'static str {
        match self {
            Kind::Role => "roles",
            Kind::ClusterRole => "clusterroles",
            Kind::RoleBinding => "rolebindings",
            Kind::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

/// Whom a binding names. A service account is the user it acts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject<'a> {
    User(&'a str),
    Group(&'a str),
}

#[derive(Debug)]
pub enum Decision {
    Allowed(Why),
    Denied {
        /// Roles named by bindings of this caller that do not exist, in words; empty when everything resolved.
        reason: String,
    },
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allowed(_))
    }
}

#[derive(Clone, Debug)]
pub enum Why {
    /// A member of `system:masters`.
    Master,
    /// A health path.
    Public,
    Granted(Grant),
}

impl Why {
    /// Kubernetes' words for the review kinds; empty where it says nothing.
    pub fn reason(&self) -> String {
        match self {
            Why::Master | Why::Public => String::new(),
            Why::Granted(grant) => format!("RBAC: allowed by {}", grant.describe()),
        }
    }
}

/// One subject of one binding.
#[derive(Clone, Debug)]
pub struct Grant {
    pub(super) binding: Arc<Binding>,
    /// In words: `User "alice"`.
    pub(super) subject: Arc<str>,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
    pub role_kind: Kind,
    pub role_name: String,
    pub role: Arc<RoleCell>,
}

/// A role's rules; `None` while no such role exists.
#[derive(Debug, Default)]
pub(super) struct RoleCell {
    pub rules: ArcSwapOption<Vec<Rule>>,
}

impl Grant {
    fn describe(&self) -> String {
        let Binding { kind, namespace, name, role_kind, role_name, .. } = &*self.binding;
        let subject = &self.subject;
        match kind {
            Kind::RoleBinding => {
                format!("RoleBinding \"{name}/{namespace}\" of {role_kind:?} {role_name:?} to {subject}")
            }
            _ => format!("ClusterRoleBinding {name:?} of {role_kind:?} {role_name:?} to {subject}"),
        }
    }

    fn missing_role(&self) -> Option<String> {
        self.binding.role.rules.load().is_none().then(|| {
            let kind = if self.binding.role_kind == Kind::Role { "role" } else { "clusterrole" };
            format!("{kind}.{} {:?} not found", Kind::GROUP, self.binding.role_name)
        })
    }
}

/// Rules looked at for one request: whoever may bind roles decides how many a caller has. The most that is known to be in use
/// is some hundreds; this many take a few thousandths of a second.
pub const RULES_MAX: usize = 50_000;

/// Missing roles that a refusal names.
pub(crate) const MISSING_NAMED_MAX: usize = 20;

fn too_many_rules() -> String {
    format!("RBAC: the roles of this caller have more than {RULES_MAX} rules; what lies beyond is not looked at")
}

/// The whole of RBAC, shared by the request path (reading) and the follower of the core (writing).
#[derive(Debug)]
pub struct Rbac {
    shards: Box<[ArcSwap<Shard>]>,
    hasher: RandomState,
    writer: Mutex<Writer>,
}

impl Default for Rbac {
    fn default() -> Rbac {
        Rbac::new()
    }
}

impl Rbac {
    pub fn new() -> Rbac {
        let shards = (0..SHARDS).map(|_| ArcSwap::from_pointee(Shard::new())).collect();
        Rbac { shards, hasher: RandomState::default(), writer: Mutex::new(Writer::new()) }
    }

    pub fn authorize(&self, identity: &Identity, asked: &Attributes<'_>) -> Decision {
        if identity.is_master() {
            return Decision::Allowed(Why::Master);
        }
        if !asked.is_resource() && matches!(asked.verb, "get" | "head") && is_health(asked.path) {
            return Decision::Allowed(Why::Public);
        }
        let (mut granted, mut room) = (None, RULES_MAX);
        self.visit(identity, if asked.is_resource() { asked.namespace } else { "" }, |grant| {
            let rules = grant.binding.role.rules.load();
            let rules = rules.as_ref().map(|rules| rules.as_slice()).unwrap_or_default();
            if rules.iter().take(room).any(|rule| rule.allows(asked)) {
                granted = Some(grant.clone());
            }
            room = room.saturating_sub(rules.len().max(1));
            granted.is_none() && room > 0
        });
        match granted {
            Some(grant) => Decision::Allowed(Why::Granted(grant)),
            None if room == 0 => Decision::Denied { reason: too_many_rules() },
            None => Decision::Denied { reason: self.missing_roles(identity, asked.namespace) },
        }
    }

    /// Everything this caller holds in a namespace ("" for the cluster alone), and what could not be resolved.
    pub fn rules_for(&self, identity: &Identity, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        let (mut roles, mut room) = (HashSet::new(), RULES_MAX);
        self.visit(identity, namespace, |grant| {
            missing.extend(grant.missing_role().filter(|_| missing.len() < MISSING_NAMED_MAX));
            let is_new = roles.insert(Arc::as_ptr(&grant.binding.role));
            let held = grant.binding.role.rules.load();
            let held = held.as_ref().filter(|_| is_new).map(|rules| rules.as_slice()).unwrap_or_default();
            rules.extend(held.iter().take(room).cloned());
            room = room.saturating_sub(held.len().max(1));
            room > 0
        });
        if room == 0 {
            missing.push(too_many_rules());
        }
        (rules, missing)
    }

    /// The rules a role has now, aggregation included; `None` when there is no such role.
    pub fn role_rules(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Vec<Rule>>> {
        let namespace = if kind == Kind::ClusterRole { "" } else { namespace };
        self.writer.lock().role_rules(namespace, name)
    }

    /// Tells the index what an object is now; `None` when it is gone.
    pub fn apply(&self, kind: Kind, namespace: &str, name: &str, object: Option<&Value>) {
        self.apply_all([(kind, namespace, name, object)]);
    }

    /// Many at once: every touched shard is published once, at the end. For start-up.
    pub fn apply_all<'o>(&self, objects: impl IntoIterator<Item = (Kind, &'o str, &'o str, Option<&'o Value>)>) {
        let mut writer = self.writer.lock();
        for (kind, namespace, name, object) in objects {
            writer.apply(kind, namespace, name, object, &|key| self.shard_of(key));
        }
        writer.settle_aggregates();
        for at in std::mem::take(&mut writer.dirty) {
            self.shards[at].store(Arc::new(writer.shards[at].clone()));
        }
    }

    /// Calls `see` with every grant of the caller, cluster-wide first, until it says stop.
    fn visit(&self, identity: &Identity, namespace: &str, mut see: impl FnMut(&Grant) -> bool) {
        let subjects = || {
            let groups = identity.groups.iter().map(|group| Subject::Group(group));
            std::iter::once(Subject::User(&identity.user)).chain(groups)
        };
        let scopes = if namespace.is_empty() { &[""][..] } else { &["", namespace][..] };
        for scope in scopes {
            for subject in subjects() {
                let key = GrantKeyRef { namespace: scope, subject };
                let shard = self.shards[self.shard_of(key)].load();
                for grant in shard.get(&key).map(|grants| &**grants).unwrap_or_default() {
                    if !see(grant) {
                        return;
                    }
                }
            }
        }
    }

    fn missing_roles(&self, identity: &Identity, namespace: &str) -> String {
        let mut missing = Vec::new();
        self.visit(identity, namespace, |grant| {
            missing.extend(grant.missing_role());
            missing.len() < MISSING_NAMED_MAX
        });
        match missing.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        }
    }

    fn shard_of(&self, key: GrantKeyRef<'_>) -> usize {
        let hash = self.hasher.hash_one(key);
        usize::try_from(hash % SHARDS as u64).unwrap_or_default()
    }
}
