//! What the quotas that looked at one object cover, for resources which may only be used under a quota.

use std::cell::RefCell;
use std::sync::Arc;

use super::scopes::{Requirement, Scope};

/// Filled in by every quota that matches, read by the rule that comes after them all.
#[derive(Default)]
pub struct Coverage {
    names: RefCell<Vec<Arc<str>>>,
    scopes: RefCell<Vec<Scope>>,
}

impl Coverage {
    pub fn add(&self, names: impl Iterator<Item = Arc<str>>, scopes: &[Requirement]) {
        self.names.borrow_mut().extend(names);
        self.scopes.borrow_mut().extend(scopes.iter().map(|requirement| requirement.scope));
    }

    pub fn has_name(&self, name: &str) -> bool {
        self.names.borrow().iter().any(|covered| &**covered == name)
    }

    pub fn has_scope(&self, scope: Scope) -> bool {
        self.scopes.borrow().contains(&scope)
    }
}
