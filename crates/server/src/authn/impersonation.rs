//! Acting as somebody else, by the `Impersonate-*` headers, for who may: each user, group, uid and extra value is a
//! right of its own (verb `impersonate`).

use std::sync::Arc;

use http::HeaderMap;

use crate::authz::{Attributes, Decision, Rbac, forbidden};
use crate::identity::{
    ANONYMOUS, AUTHENTICATED, Identity, UNAUTHENTICATED, is_internal, service_account_groups, split_service_account,
};
use crate::request::percent_decode;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// The API group in which uids and extra values are rights; users, groups and service accounts are in the core group.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// Every group and extra value is a look-up; nobody real is in more.
pub const IMPERSONATED_VALUES_MAX: usize = 256;

/// Who the headers ask to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonation {
    user: String,
    uid: String,
    groups: Vec<String>,
    /// (key, value) pairs in the order given.
    extra: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    /// 400.
    #[error("{0}")]
    Malformed(&'static str),
    /// 403.
    #[error("{message}")]
    Forbidden { message: String, group: String, resource: String, name: String },
}

impl Impersonation {
    /// `None` when no header asks for anything: the ordinary case, found without allocating.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Impersonation>, ImpersonationError> {
        let mut asked = Impersonation::default();
        let (mut any, mut values) = (false, 0);
        for (name, value) in headers {
            let Some(what) = name.as_str().strip_prefix("impersonate-") else { continue };
            any = true;
            values += 1;
            if values > IMPERSONATED_VALUES_MAX {
                return Err(ImpersonationError::Malformed("too many impersonation headers"));
            }
            let value = value
                .to_str()
                .map_err(|_| ImpersonationError::Malformed("impersonation headers must be plain text"))?;
            match name.as_str() {
                USER if asked.user.is_empty() => asked.user = value.into(),
                UID if asked.uid.is_empty() => asked.uid = value.into(),
                USER | UID => return Err(ImpersonationError::Malformed("an impersonation header is given twice")),
                GROUP => asked.groups.push(value.into()),
                _ => {
                    let Some(key) = what.strip_prefix(&EXTRA["impersonate-".len()..]) else {
                        // An unknown wish must not be half fulfilled.
                        return Err(ImpersonationError::Malformed("unknown impersonation header"));
                    };
                    let key = percent_decode(key).filter(|key| !key.is_empty());
                    let key = key.ok_or(ImpersonationError::Malformed("an impersonation extra key is not valid"))?;
                    asked.extra.push((key.into_owned(), value.into()));
                }
            }
        }
        if any && asked.user.is_empty() {
            return Err(ImpersonationError::Malformed("requested impersonation without impersonating a user"));
        }
        Ok(any.then_some(asked))
    }

    /// Checks every right and says who the request is from now on. Nobody has the right to be a part of the server.
    pub fn authorize(self, rbac: &Rbac, by: &Identity) -> Result<Identity, ImpersonationError> {
        if is_internal(&self.user) {
            let attributes = as_what("", "users", &self.user);
            return Err(ImpersonationError::Forbidden {
                message: forbidden(by, &attributes, "it is a part of the server"),
                group: attributes.group.into(),
                resource: attributes.resource.into(),
                name: self.user.clone(),
            });
        }
        let check = |attributes: Attributes<'_>| match rbac.authorize(by, &attributes) {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied { reason } => Err(ImpersonationError::Forbidden {
                message: forbidden(by, &attributes, &reason),
                group: attributes.group.into(),
                resource: attributes.resource.into(),
                name: attributes.name.into(),
            }),
        };
        let mut groups = self.groups.clone();
        match split_service_account(&self.user) {
            Some((namespace, name)) => {
                check(Attributes { namespace, ..as_what("", "serviceaccounts", name) })?;
                if groups.is_empty() {
                    groups = service_account_groups(namespace).into();
                }
            }
            None => check(as_what("", "users", &self.user))?,
        }
        for group in &self.groups {
            check(as_what("", "groups", group))?;
        }
        if !self.uid.is_empty() {
            check(as_what(AUTHENTICATION, "uids", &self.uid))?;
        }
        let mut identity = Identity { user: self.user, uid: self.uid, groups, ..Identity::default() };
        for (key, value) in self.extra {
            check(Attributes { subresource: &key, ..as_what(AUTHENTICATION, "userextras", &value) })?;
            identity.extra.entry(key).or_default().push(value);
        }
        if identity.user == ANONYMOUS {
            identity.join(UNAUTHENTICATED);
        } else if !identity.is_member(UNAUTHENTICATED) {
            identity.join(AUTHENTICATED);
        }
        Ok(identity)
    }
}

fn as_what<'a>(group: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
    Attributes::object("impersonate", group, resource, "", name)
}

/// Who the request is from after looking at the headers.
pub fn impersonate(headers: &HeaderMap, rbac: &Rbac, by: Arc<Identity>) -> Result<Arc<Identity>, ImpersonationError> {
    match Impersonation::from_headers(headers)? {
        None => Ok(by),
        Some(asked) => asked.authorize(rbac, &by).map(Arc::new),
    }
}
