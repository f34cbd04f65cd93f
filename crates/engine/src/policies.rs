//! Policies in force, and where their accounts are in the ledger.
//!
//! Only what cannot be looked up is kept here. Which accounts a policy has, parts included, and to which policy an
//! account belongs, is the ledger's to say: a second list could disagree with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use families::{Denial, DenialReason, Operation};
use ledger::{AccountId, AccountKey, Charge, Ledger, LedgerError, Limit, Terms};
use rules::{Line, PolicyId};

use crate::countable::counted;
use crate::object::ObjectKey;

/// Every installed policy.
#[derive(Default)]
pub(crate) struct Policies {
    installed: BTreeMap<PolicyId, Installed>,
    by_name: HashMap<Arc<str>, PolicyId>,
}

pub(crate) struct Installed {
    pub key: ObjectKey,
    /// The place of its family among the families.
    pub family: usize,
    pub name: Arc<str>,
    /// One for each of the policy's resources, in the order in which rules refer to them.
    pub accounts: Vec<(Arc<str>, AccountId)>,
    /// Set for what only counts, until it takes the place of the policy.
    pub is_shadow: bool,
}

/// Charges on parts of accounts that nobody has charged yet; the account of each is the whole's.
pub(crate) type Unopened = Vec<(AccountKey, Charge)>;

impl Policies {
    pub fn put(&mut self, id: PolicyId, installed: Installed) {
        self.by_name.insert(installed.name.clone(), id);
        self.installed.insert(id, installed);
    }

    pub fn remove(&mut self, id: PolicyId) {
        if let Some(installed) = self.installed.remove(&id) {
            self.by_name.remove(&installed.name);
        }
    }

    /// A verdict's lines as charges, and the parts that have no account yet. What is not in line is on these terms.
    pub fn charges(&self, ledger: &Ledger, lines: &[Line], terms: Terms) -> (Vec<Charge>, Unopened) {
        let mut charges = Vec::with_capacity(lines.len());
        let mut unopened = Vec::new();
        for line in lines {
            let account = self.installed.get(&line.policy).and_then(|installed| {
                let (resource, account) = installed.accounts.get(line.account)?;
                // A shadow counts, and refuses nothing.
                Some((&installed.name, resource, *account, if installed.is_shadow { Terms::Adopted } else { terms }))
            });
            let Some((policy, resource, account, terms)) = account else {
                debug_assert!(false, "a rule charges an account that its policy does not have: {line:?}");
                tracing::error!(?line, "a rule charges an account that its policy does not have: a bug");
                continue;
            };
            let (amount, format) = (counted(line.amount), line.format);
            let terms = match (line.in_line, line.along) {
                (true, true) => Terms::Along,
                (true, false) => Terms::InLine,
                (false, true) => Terms::Adopted,
                (false, false) => terms,
            };
            let Some(bucket) = &line.bucket else {
                charges.push(Charge { account, amount, format, terms });
                continue;
            };
            let key = AccountKey { policy: policy.clone(), resource: resource.clone(), bucket: bucket.clone() };
            match ledger.account(&key) {
                Some(account) => charges.push(Charge { account, amount, format, terms }),
                None => unopened.push((key, Charge { account, amount, format, terms })),
            }
        }
        (charges, unopened)
    }

    /// The place of a policy's family among the families.
    pub fn family(&self, policy: PolicyId) -> Option<usize> {
        self.installed.get(&policy).filter(|installed| !installed.is_shadow).map(|installed| installed.family)
    }

    /// The policy that a shadow is of, and the place of its family.
    pub fn shadowed(&self, shadow: PolicyId) -> Option<(&ObjectKey, usize)> {
        let installed = self.installed.get(&shadow).filter(|installed| installed.is_shadow);
        installed.map(|installed| (&installed.key, installed.family))
    }

    /// What a line charges.
    pub fn resource(&self, line: &Line) -> Option<Arc<str>> {
        self.installed.get(&line.policy)?.accounts.get(line.account).map(|(resource, _)| resource.clone())
    }

    /// The object that is this policy, if that is in force.
    pub fn in_force(&self, policy: PolicyId) -> Option<&ObjectKey> {
        self.installed.get(&policy).filter(|installed| !installed.is_shadow).map(|installed| &installed.key)
    }

    pub fn owns(&self, ledger: &Ledger, policy: PolicyId, account: AccountId) -> bool {
        self.policy_of(ledger, account) == Some(policy)
    }

    /// The object behind an account, for marking its status stale.
    pub fn owner(&self, ledger: &Ledger, account: AccountId) -> Option<&ObjectKey> {
        self.object(self.policy_of(ledger, account)?)
    }

    pub fn policy_of(&self, ledger: &Ledger, account: AccountId) -> Option<PolicyId> {
        self.by_name.get(&ledger.key(account)?.policy).copied()
    }

    pub fn ids(&self) -> impl Iterator<Item = PolicyId> {
        self.installed.keys().copied()
    }

    /// The object that is this policy.
    pub fn object(&self, policy: PolicyId) -> Option<&ObjectKey> {
        self.installed.get(&policy).map(|installed| &installed.key)
    }

    /// Whether a policy has an account for this resource.
    pub fn counts(&self, policy: &str, resource: &str) -> bool {
        let installed = self.by_name.get(policy).and_then(|id| self.installed.get(id));
        installed.is_some_and(|installed| installed.accounts.iter().any(|(known, _)| &**known == resource))
    }

    /// The accounts of one part of a policy, of those that are found.
    pub fn part(&self, find: impl Fn(&AccountKey) -> Option<AccountId>, policy: &str, bucket: &str) -> Vec<AccountId> {
        let Some(installed) = self.by_name.get(policy).and_then(|id| self.installed.get(id)) else { return Vec::new() };
        let bucket: Arc<str> = bucket.into();
        let key = |resource: &Arc<str>| AccountKey {
            policy: installed.name.clone(),
            resource: resource.clone(),
            bucket: bucket.clone(),
        };
        installed.accounts.iter().filter_map(|(resource, _)| find(&key(resource))).collect()
    }

    /// An empty denial by this policy.
    pub fn denial(&self, policy: &str, operation: Operation) -> Option<Denial> {
        let installed = self.installed.get(self.by_name.get(policy)?)?;
        Some(Denial {
            policy: installed.name.clone(),
            resource: installed.key.resource.clone(),
            namespace: installed.key.namespace.clone(),
            name: installed.key.name.clone(),
            operation,
            lines: Vec::new(),
            message: None,
            reason: DenialReason::Rule,
        })
    }
}

/// Opens parts of accounts. They are counted and never refuse.
pub(crate) fn open_parts(ledger: &mut Ledger, unopened: Unopened) -> Result<(), LedgerError> {
    for (key, _) in unopened {
        // A verdict may name a part twice.
        if ledger.account(&key).is_none() {
            ledger.open(key, Limit::Unlimited)?;
        }
    }
    Ok(())
}
