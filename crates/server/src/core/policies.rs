//! Policies in force: their accounts in the ledger, and the recount when what they look at changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use families::{Denial, Operation, PolicyObject};
use ledger::{AccountId, AccountKey, Charge, Ledger, Limit, Receipt, SubjectId, Terms};
use rules::{Compiled, GroupResource, Line, Namespace, PolicyId, Subject, policy_name};
use serde_json::Value;

use super::apart::apart;
use super::command::Refused;
use super::engine::{Engine, NamespaceState};
use super::event::Publication;
use super::object::{ObjectKey, string_map};

/// The accounts of every installed policy.
#[derive(Default)]
pub(super) struct Policies {
    installed: BTreeMap<PolicyId, Installed>,
    by_name: HashMap<Arc<str>, PolicyId>,
    owners: HashMap<AccountId, PolicyId>,
}

struct Installed {
    key: ObjectKey,
    /// The place of its family among the families.
    family: usize,
    name: Arc<str>,
    accounts: Vec<AccountId>,
    resources: Vec<Arc<str>>,
    /// Parts of accounts kept apart by name, opened when first charged.
    buckets: HashMap<(usize, Arc<str>), AccountId>,
}

/// Parts of accounts, by policy.
pub(super) type Parts = HashMap<Arc<str>, Vec<(AccountId, AccountKey)>>;

/// A part of an account that nobody has charged yet.
pub(super) type Unopened = Vec<(PolicyId, usize, Arc<str>)>;

impl Policies {
    /// A verdict's lines as charges, and the parts that have no account yet.
    pub fn charges(&self, lines: &[Line]) -> (Vec<Charge>, Unopened) {
        let mut charges = Vec::with_capacity(lines.len());
        let mut unopened = Vec::new();
        for line in lines {
            let Some(installed) = self.installed.get(&line.policy) else { continue };
            let account = match &line.bucket {
                None => installed.accounts.get(line.account),
                Some(bucket) => installed.buckets.get(&(line.account, bucket.clone())),
            };
            match (account, &line.bucket) {
                (Some(&account), _) => charges.push(Charge { account, amount: line.amount, format: line.format }),
                (None, Some(bucket)) => unopened.push((line.policy, line.account, bucket.clone())),
                (None, None) => {}
            }
        }
        (charges, unopened)
    }

    pub fn open_buckets(&mut self, ledger: &mut Ledger, unopened: Unopened) {
        for (policy, account, bucket) in unopened {
            let Some(installed) = self.installed.get_mut(&policy) else { continue };
            let Some(resource) = installed.resources.get(account) else { continue };
            let key = AccountKey { policy: installed.name.clone(), resource: resource.clone(), bucket: bucket.clone() };
            if let Ok(id) = ledger.open(key, Limit::Unlimited) {
                installed.buckets.insert((account, bucket), id);
                self.owners.insert(id, policy);
            }
        }
    }

    /// The place of a policy's family among the families.
    pub fn family(&self, policy: PolicyId) -> Option<usize> {
        self.installed.get(&policy).map(|installed| installed.family)
    }

    pub fn owns(&self, policy: PolicyId, account: AccountId) -> bool {
        self.owners.get(&account) == Some(&policy)
    }

    /// The object behind an account, for marking its status stale.
    pub fn owner(&self, account: AccountId) -> Option<&ObjectKey> {
        self.installed.get(self.owners.get(&account)?).map(|installed| &installed.key)
    }

    pub fn policy_of(&self, account: AccountId) -> Option<PolicyId> {
        self.owners.get(&account).copied()
    }

    pub fn ids(&self) -> impl Iterator<Item = PolicyId> {
        self.installed.keys().copied()
    }

    /// The object that is this policy.
    pub fn object(&self, policy: PolicyId) -> Option<&ObjectKey> {
        self.installed.get(&policy).map(|installed| &installed.key)
    }

    /// The accounts of one part of a policy.
    pub fn part(&self, policy: &str, bucket: &str) -> Vec<AccountId> {
        let Some(installed) = self.by_name.get(policy).and_then(|id| self.installed.get(id)) else { return Vec::new() };
        let bucket: Arc<str> = bucket.into();
        let places = 0..installed.resources.len();
        places.filter_map(|at| installed.buckets.get(&(at, bucket.clone())).copied()).collect()
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
        })
    }

    /// Every account of a policy, parts included.
    pub fn accounts(&self, policy: &str) -> Vec<AccountId> {
        let installed = self.by_name.get(policy).and_then(|id| self.installed.get(id));
        installed.map_or_else(Vec::new, |one| one.accounts.iter().chain(one.buckets.values()).copied().collect())
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }
}

impl Engine {
    /// Compiles the object if it is a policy.
    pub(super) fn compile(&self, key: &ObjectKey, object: &Value) -> Result<Option<Compiled>, Refused> {
        if !self.policy_resources.contains(&key.resource) {
            return Ok(None);
        }
        let Some(family) = self.families.of_policy(&key.resource) else { return Ok(None) };
        let policy = PolicyObject { resource: &key.resource, namespace: &key.namespace, name: &key.name, object };
        family.compile_among(&policy, &self.near(0)).map(Some).map_err(Refused::Invalid)
    }

    /// Compiles the policies again that depend on objects of this resource.
    pub(super) fn recompile_dependents(&mut self, resource: &GroupResource, out: &mut Publication) {
        let families = self.families.clone();
        let concerned = families.iter().filter(|family| family.depends_on().contains(resource));
        for policies in concerned.flat_map(|family| family.policies()) {
            let stored: Vec<_> =
                self.shelves.get(&policies).into_iter().flat_map(|shelf| shelf.values().cloned()).collect();
            for policy in stored {
                match self.compile(&policy.key, &policy.value()) {
                    Ok(Some(compiled)) => self.install(&policy.key, compiled, out),
                    Ok(None) => {}
                    Err(refused) => tracing::error!(policy = %policy.key, ?refused, "a policy no longer compiles"),
                }
            }
        }
    }

    /// Puts a policy in force. Objects that it looks at are charged at once, refused never: lowering a limit or
    /// adding a quota evicts nobody.
    pub(super) fn install(&mut self, key: &ObjectKey, compiled: Compiled, out: &mut Publication) {
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        let known = self.rulebook.id(&name);
        let same_rules = known
            .and_then(|id| self.rulebook.compiled(id))
            .is_some_and(|before| before.fingerprint == compiled.fingerprint && same_names(before, &compiled));
        let mut places =
            if same_rules { Vec::new() } else { known.map_or_else(Vec::new, |id| self.rulebook.places(id)) };

        let (accounts, resources) = self.open_accounts(&name, &compiled, out);
        let namespaces = self.namespaces.values().map(|state| &state.seen);
        let id = self.rulebook.install(name.clone(), compiled, namespaces);
        self.close_accounts_except(id, &accounts, out);
        for account in &accounts {
            self.policies.owners.insert(*account, id);
        }
        let buckets = self.policies.installed.remove(&id).filter(|_| same_rules).map(|old| old.buckets);
        self.policies.by_name.insert(name.clone(), id);
        let family = self.families.place(&key.resource).unwrap_or_default();
        let buckets = buckets.unwrap_or_default();
        let installed = Installed { key: key.clone(), family, name, accounts, resources, buckets };
        self.policies.installed.insert(id, installed);
        if !same_rules {
            places.extend(self.rulebook.places(id));
            places.sort();
            places.dedup();
            self.recount(&places, out);
        }
        self.mark_stale(key.clone(), out);
    }

    /// Puts a policy back in force after a start, with the accounts the ledger kept.
    /// `parts` are the ledger's accounts that are parts of others, by policy.
    pub(super) fn reinstall_one(&mut self, key: &ObjectKey, compiled: Compiled, parts: &Parts, out: &mut Publication) {
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        let unknown = compiled.accounts.iter().any(|account| {
            let key = AccountKey { policy: name.clone(), resource: account.resource.clone(), bucket: "".into() };
            self.ledger.account(&key).is_none()
        });
        let (accounts, resources) = self.open_accounts(&name, &compiled, out);
        let namespaces = self.namespaces.values().map(|state| &state.seen);
        let id = self.rulebook.install(name.clone(), compiled, namespaces);
        let mut buckets = HashMap::new();
        for (account, key) in parts.get(&name).into_iter().flatten() {
            if let Some(at) = resources.iter().position(|resource| *resource == key.resource) {
                buckets.insert((at, key.bucket.clone()), *account);
            }
        }
        for account in accounts.iter().chain(buckets.values()) {
            self.policies.owners.insert(*account, id);
        }
        // Readers are told of parts too, not only of the accounts that were opened above.
        self.touched.extend(buckets.values().copied());
        self.policies.by_name.insert(name.clone(), id);
        let family = self.families.place(&key.resource).unwrap_or_default();
        let installed = Installed { key: key.clone(), family, name, accounts, resources, buckets };
        self.policies.installed.insert(id, installed);
        if unknown {
            let places = self.rulebook.places(id);
            self.recount(&places, out);
        }
    }

    /// Closes accounts whose policy is gone.
    pub(super) fn close_orphans(&mut self, out: &mut Publication) {
        let orphans: Vec<AccountId> = self
            .ledger
            .balances()
            .map(|(_, balance)| balance.account)
            .filter(|id| !self.policies.owners.contains_key(id))
            .collect();
        for account in orphans {
            if let Ok(receipt) = self.ledger.close(account) {
                self.note_receipt(&receipt, out);
            }
        }
    }

    /// Takes a policy out of force; its accounts and every charge on them go.
    pub(super) fn uninstall(&mut self, key: &ObjectKey, out: &mut Publication) {
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        let Some(id) = self.rulebook.id(&name) else { return };
        for (resource, namespace) in self.rulebook.places(id) {
            if self.projected_resources.contains(&resource) {
                let left: Vec<ObjectKey> =
                    self.objects_in(&resource, &namespace).map(|object| object.key.clone()).collect();
                left.into_iter().for_each(|key| self.mark_stale(key, out));
            }
        }
        self.rulebook.remove(&name);
        self.named.forget(id);
        self.close_accounts_except(id, &[], out);
        self.policies.installed.remove(&id);
        self.policies.by_name.remove(&name);
        out.closed.push(name);
    }

    pub(super) fn open_accounts(
        &mut self,
        policy: &Arc<str>,
        compiled: &Compiled,
        out: &mut Publication,
    ) -> (Vec<AccountId>, Vec<Arc<str>>) {
        let mut opened = (Vec::new(), Vec::new());
        for account in &compiled.accounts {
            let key = AccountKey { policy: policy.clone(), resource: account.resource.clone(), bucket: "".into() };
            let id = match self.ledger.account(&key) {
                Some(id) => {
                    if let Ok(receipt) = self.ledger.set_limit(id, account.limit) {
                        self.note_receipt(&receipt, out);
                    }
                    id
                }
                None => match self.ledger.open(key, account.limit) {
                    Ok(id) => id,
                    // Only the bound on the number of accounts can say no; nothing is charged to what is not open.
                    Err(error) => {
                        tracing::error!(%error, %policy, "account not opened");
                        continue;
                    }
                },
            };
            self.touched.push(id);
            opened.0.push(id);
            opened.1.push(account.resource.clone());
        }
        opened
    }

    fn close_accounts_except(&mut self, policy: PolicyId, keep: &[AccountId], out: &mut Publication) {
        let Some(installed) = self.policies.installed.get(&policy) else { return };
        let mut gone: Vec<AccountId> = installed.accounts.iter().filter(|id| !keep.contains(id)).copied().collect();
        if keep.is_empty() || !gone.is_empty() {
            gone.extend(installed.buckets.values().copied());
        }
        let name = installed.name.clone();
        if gone.is_empty() {
            return;
        }
        gone.sort();
        for account in gone {
            self.policies.owners.remove(&account);
            if let Ok(receipt) = self.ledger.close(account) {
                self.note_receipt(&receipt, out);
            }
        }
        // What is kept is published again at the end of the group.
        out.closed.push(name);
        self.touched.extend_from_slice(keep);
    }

    /// Measures every object in these places again.
    pub(super) fn recount(&mut self, places: &[(GroupResource, Arc<str>)], out: &mut Publication) {
        for (resource, namespace) in places {
            let objects: Vec<_> = self.objects_in(resource, namespace).cloned().collect();
            for object in objects {
                if self.projected_resources.contains(resource) {
                    self.mark_stale(object.key.clone(), out);
                }
                self.recount_one(&object, out);
            }
        }
    }

    /// Measures one object again. What it is charged follows; it is not refused.
    pub(super) fn recount_one(&mut self, object: &super::Object, out: &mut Publication) {
        let (key, value) = (&object.key, object.value());
        let subject = Subject::new(object.uid, &key.resource, &key.namespace, &key.name, &value).at(self.clock_ms);
        // An object that a rule cannot measure keeps what it was charged; the audit names it.
        let Ok(verdict) = self.rulebook.measure(&subject) else { return };
        self.note_due(key, verdict.until_ms);
        let terms = verdict.terms.unwrap_or(Terms::Adopt);
        if !self.may_wait(&key.resource) {
            self.charge_again(object.uid, &verdict.lines, &terms, out);
        } else {
            let (queueing, others) = self.split(&verdict.lines);
            self.charge_again(object.uid, &queueing, &terms, out);
            self.charge_again(apart(object.uid), &others, &Terms::Adopt, out);
        }
        self.name_subject(key, object.uid);
    }

    fn charge_again(&mut self, subject: SubjectId, lines: &[Line], terms: &Terms, out: &mut Publication) {
        let (_, unopened) = self.policies.charges(lines);
        self.policies.open_buckets(&mut self.ledger, unopened);
        let (charges, _) = self.policies.charges(lines);
        if charges.is_empty() && !self.ledger.is_live(subject) {
            return;
        }
        if let Ok(plan) = self.ledger.decide(subject, &charges, terms) {
            let receipt = self.ledger.apply(plan);
            self.note_receipt(&receipt, out);
        }
    }

    pub(super) fn objects_in(
        &self,
        resource: &GroupResource,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &Arc<super::Object>> {
        let from = (namespace.clone(), Arc::from(""));
        let namespace = namespace.clone();
        self.shelves
            .get(resource)
            .into_iter()
            .flat_map(move |shelf| shelf.range(from.clone()..))
            .map(|(_, object)| object)
            .take_while(move |object| object.key.namespace == namespace)
    }

    /// Remembers what a step of the ledger touched: balances to publish, statuses to mend.
    pub(super) fn note_receipt(&mut self, receipt: &Receipt, out: &mut Publication) {
        self.touched.extend_from_slice(&receipt.touched);
        for subject in &receipt.woken {
            if let Some(key) = self.subjects.get(subject).cloned() {
                self.woken.push(key.clone());
                self.mark_stale(key, out);
            }
        }
    }

    pub(super) fn namespace_stored(&mut self, name: &Arc<str>, value: &Value, out: &mut Publication) {
        let seen = Namespace {
            name: name.clone(),
            labels: string_map(value, "labels"),
            annotations: string_map(value, "annotations"),
        };
        let terminating = value.pointer("/metadata/deletionTimestamp").is_some();
        let before = self.namespaces.insert(name.clone(), NamespaceState { seen: seen.clone(), terminating });
        if before.is_some_and(|before| before.seen == seen) {
            return;
        }
        self.namespace_moved(&seen, true, out);
    }

    pub(super) fn namespace_removed(&mut self, name: &Arc<str>, out: &mut Publication) {
        if let Some(state) = self.namespaces.remove(name) {
            self.namespace_moved(&state.seen, false, out);
        }
    }

    /// A namespace came under, or left, policies that select namespaces: its objects' charges follow.
    fn namespace_moved(&mut self, namespace: &Namespace, present: bool, out: &mut Publication) {
        let mut places = Vec::new();
        for policy in self.rulebook.namespace_changed(namespace, present) {
            if let Some(compiled) = self.rulebook.compiled(policy) {
                let resources = compiled.rules.iter().flat_map(|rule| rule.resources.iter().cloned());
                places.extend(resources.map(|resource| (resource, namespace.name.clone())));
            }
            if let Some(key) = self.policies.installed.get(&policy).map(|installed| installed.key.clone()) {
                self.mark_stale(key, out);
            }
        }
        places.sort();
        places.dedup();
        self.recount(&places, out);
    }
}

/// Charges refer to accounts by position: a policy that lists other resources is measured anew.
fn same_names(before: &Compiled, after: &Compiled) -> bool {
    before.accounts.len() == after.accounts.len()
        && before.accounts.iter().zip(&after.accounts).all(|(a, b)| a.resource == b.resource)
}
