//! Who is asking. Every later step (authorization, fairness, audit, `managedFields`) sees a request's sender only as
//! this value, so that certificates, tokens and impersonation cannot be told apart by accident.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

/// Members may do everything; the check never looks at a role, so a broken role cannot lock the owner out.
pub const MASTERS: &str = "system:masters";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const ANONYMOUS: &str = "system:anonymous";
/// Every service account, and (with `:<namespace>` added) every service account of one namespace.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// How the names of the server's own parts begin. Nobody who comes from outside has such a name, whatever he shows and may do: what
/// they write is believed.
const INTERNAL: &str = "system:bursar:";
const SERVICE_ACCOUNT_USER: &str = "system:serviceaccount:";

/// An authenticated (or anonymous) caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A user with these groups; `system:authenticated` is added as Kubernetes does.
    pub fn authenticated(user: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Identity {
        let mut identity =
            Identity { user: user.into(), groups: groups.into_iter().map(Into::into).collect(), ..Identity::default() };
        identity.join(AUTHENTICATED);
        identity
    }

    pub fn anonymous() -> Identity {
        Identity { user: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Identity::default() }
    }

    /// The controllers inside the process: no socket, no credential, all rights.
    pub fn internal(component: &str) -> Identity {
        Identity::authenticated(format!("{INTERNAL}{component}"), [MASTERS])
    }

    /// Whether it is a part of the server.
    pub fn is_internal(&self) -> bool {
        is_internal(&self.user)
    }

    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Identity {
        let mut identity =
            Identity::authenticated(service_account_user(namespace, name), service_account_groups(namespace));
        identity.uid = uid.into();
        identity
    }

    pub fn is_member(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held == group)
    }

    pub fn is_master(&self) -> bool {
        self.is_member(MASTERS)
    }

    /// Whose share of the server a request takes: a user's own, and for service accounts their namespace's. Who may make
    /// ServiceAccounts in a namespace would otherwise have as many shares as it cares to make.
    pub fn flow(&self) -> Cow<'_, str> {
        match split_service_account(&self.user) {
            Some((namespace, _)) => Cow::Owned(format!("{SERVICE_ACCOUNTS}:{namespace}")),
            None => Cow::Borrowed(&self.user),
        }
    }

    pub fn is_anonymous(&self) -> bool {
        self.user == ANONYMOUS
    }

    pub fn join(&mut self, group: &str) {
        if !self.is_member(group) {
            self.groups.push(group.into());
        }
    }

    /// `authentication.k8s.io/v1` UserInfo, as token reviews, self reviews and admission webhooks carry it.
    pub fn user_info(&self) -> Value {
        let mut info = Map::new();
        info.insert("username".into(), json!(self.user));
        if !self.uid.is_empty() {
            info.insert("uid".into(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            info.insert("groups".into(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".into(), json!(self.extra));
        }
        Value::Object(info)
    }
}

/// Whether a user's name is one of the server's own parts.
pub fn is_internal(user: &str) -> bool {
    user.starts_with(INTERNAL)
}

pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_USER}{namespace}:{name}")
}

pub fn service_account_groups(namespace: &str) -> [String; 2] {
    [SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

/// The inverse of [`service_account_user`]; `None` when the user is not a service account.
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_USER)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// Where a write comes from: who asked for it, and in which request. What follows from a write has its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub identity: Arc<Identity>,
    /// The request's number, which its answer tells; zero where nobody asked.
    pub request: u128,
}

impl Origin {
    /// The server itself.
    pub fn internal(component: &str) -> Origin {
        Origin { identity: Arc::new(Identity::internal(component)), request: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_accounts_are_users_with_fixed_groups() {
        let identity = Identity::service_account("team-a", "ci", "u-1");
        assert_eq!(identity.user, "system:serviceaccount:team-a:ci");
        assert_eq!(
            identity.groups,
            ["system:serviceaccounts", "system:serviceaccounts:team-a", "system:authenticated"]
        );
        assert_eq!(split_service_account(&identity.user), Some(("team-a", "ci")));
        assert_eq!(identity.flow(), Identity::service_account("team-a", "other", "u-2").flow());
        assert_ne!(identity.flow(), Identity::service_account("team-b", "ci", "u-1").flow());
        assert_eq!(Identity::authenticated("alice", [""; 0]).flow(), "alice");
        for other in ["alice", "system:serviceaccount:", "system:serviceaccount:a", "system:serviceaccount:a:b:c"] {
            assert_eq!(split_service_account(other), None, "{other}");
        }
    }
}
