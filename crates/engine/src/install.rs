//! Policies coming into force, changing and going, and the accounts that come and go with them.
//!
//! There is one way in ([`Engine::put_in_force`]), at a start as at any other moment: afterwards the policy has exactly
//! the accounts it lists, in their order, and parts of no others.

use std::collections::HashMap;
use std::sync::Arc;

use families::{Change, PolicyObject, Uncompiled, holds};
use kinds::field_error::FieldError;
use ledger::{AccountId, AccountKey, KEY_TEXT_BYTES_MAX, LedgerError};
use rules::{Compiled, GroupResource, PolicyId, Reach, Rule, policy_name};
use serde_json::Value;

use crate::command::Refused;
use crate::engine::Engine;
use crate::object::{Object, ObjectKey};
use crate::policies::Installed;
use crate::step_view::StepView;

/// Policies in one namespace, or outside of all. Each is asked about every write of what it counts, by the one thread
/// that decides: a thousand take some milliseconds.
const POLICIES_MAX: usize = 1000;
/// Claims in one namespace that somebody makes; those that are made with a workload are as many as those.
pub(crate) const CLAIMS_MAX: usize = 4000;

/// Where objects are to be measured again.
pub(crate) type Places = Vec<(GroupResource, Arc<str>)>;

/// Policies that an object means something to: those that are compiled again with its write, and those that are behind.
#[derive(Default)]
pub(crate) struct Meant {
    pub now: Vec<Arc<Object>>,
    later: Vec<Arc<Object>>,
}

impl Engine {
    /// Compiles the object if it is a policy.
    pub(crate) fn compile(&self, key: &ObjectKey, object: &Value) -> Result<Option<Compiled>, Refused> {
        self.try_compile(key, object).map_err(|uncompiled| Refused::Invalid(uncompiled.errors))
    }

    pub(crate) fn try_compile(&self, key: &ObjectKey, object: &Value) -> Result<Option<Compiled>, Uncompiled> {
        self.compile_in(key, object, &self.view(self.clock_ms))
    }

    /// The same among objects as they are in this view.
    pub(crate) fn compile_in(
        &self,
        key: &ObjectKey,
        object: &Value,
        view: &StepView<'_>,
    ) -> Result<Option<Compiled>, Uncompiled> {
        if !self.policy_resources.contains(&key.resource) {
            return Ok(None);
        }
        let Some(family) = self.families.of_policy(&key.resource) else { return Ok(None) };
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        let in_force = self.rulebook.id(&name).and_then(|id| self.rulebook.compiled(id));
        let policy =
            PolicyObject { resource: &key.resource, namespace: &key.namespace, name: &key.name, object, in_force };
        let compiled = family.compile(&policy, view)?;
        let checked = check_accounts(key, &compiled);
        let Err(error) = checked.and_then(|()| check_expressions(&compiled, |resource| self.is_projected(resource)))
        else {
            return Ok(Some(compiled));
        };
        let looks = compiled.rules.into_iter().flat_map(|Rule { resources, reach, .. }| {
            resources.into_iter().map(move |resource| (resource, reach.clone()))
        });
        Err(Uncompiled { errors: vec![error], would_look_at: looks.collect() })
    }

    /// One more policy must not make every write in its namespace, or everywhere, slow for all others; nor may one more of what
    /// a policy grants, whose use is told from that of all others in its namespace.
    pub(crate) fn check_policies(&self, key: &ObjectKey, is_policy: bool) -> Result<(), Refused> {
        if self.may_wait(&key.resource) && self.objects_in(&key.resource, &key.namespace).count() >= CLAIMS_MAX {
            let why =
                format!("there are {CLAIMS_MAX} claims in namespace \"{}\" already, which is the most", key.namespace);
            return Err(self.refusal(key, why));
        }
        if !is_policy || self.made.contains(&key.resource) {
            return Ok(());
        }
        let written = self.policy_resources.difference(&self.made);
        let there = written.map(|resource| self.objects_in(resource, &key.namespace).count());
        if there.sum::<usize>() < POLICIES_MAX {
            return Ok(());
        }
        let place = if key.namespace.is_empty() {
            "outside of namespaces".into()
        } else {
            format!("in namespace \"{}\"", key.namespace)
        };
        Err(self.refusal(key, format!("there are {POLICIES_MAX} quotas {place} already, which is the most")))
    }

    /// Compiles a stored policy again: at this moment it means what it says now.
    pub(crate) fn judge_again(&mut self, policy: &Object) {
        if let Some(compiled) = self.compile_or_deny(&policy.key, &policy.value()) {
            self.install(&policy.key, compiled);
        }
    }

    /// Compiles the policies again that depend on objects of this resource: those to which this change may mean something, or
    /// all of them.
    pub(crate) fn recompile_dependents(&mut self, resource: &GroupResource, change: Option<&Change<'_>>) {
        let Meant { now, later } = self.meant_by(resource, change);
        for policy in now {
            self.judge_again(&policy);
        }
        for policy in later {
            self.behind.leave_outdated(policy.key.clone());
            self.effects.stale_status = true;
        }
    }

    /// The policies that depend on objects of this resource: those to which this change may mean something, or all of them.
    pub(crate) fn meant_by(&self, resource: &GroupResource, change: Option<&Change<'_>>) -> Meant {
        let mut meant = Meant::default();
        for family in self.families.iter().filter(|family| holds(family.manifest().meaning, resource)) {
            let is_meant = |policy: &&Arc<Object>| {
                // One that cannot be read as text is compiled again.
                let text = std::str::from_utf8(&policy.json);
                change.zip(text.ok()).is_none_or(|(change, text)| family.may_mean_otherwise(change, text))
            };
            let shelves =
                family.manifest().policies.iter().filter_map(|policies| self.shelves.of(&policies.resource()));
            for policy in shelves.flat_map(|shelf| shelf.values()).filter(is_meant) {
                let is_now = meant.now.len() < self.bounds.judged || !self.limits_its_own(&policy.key);
                if is_now { &mut meant.now } else { &mut meant.later }.push(policy.clone());
            }
        }
        meant
    }

    /// Whether a policy in force looks into its own namespace and nowhere else: it follows before anything is decided there.
    fn limits_its_own(&self, key: &ObjectKey) -> bool {
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        let compiled = self.rulebook.id(&name).and_then(|id| self.rulebook.compiled(id));
        let is_own = |rule: &Rule| matches!(&rule.reach, Reach::Namespace(one) if *one == key.namespace);
        !key.namespace.is_empty() && compiled.is_some_and(|compiled| compiled.rules.iter().all(is_own))
    }

    /// The same after one object was written, or deleted.
    pub(crate) fn recompile_after(&mut self, key: &ObjectKey, before: Option<&Object>, new: Option<&Value>) {
        let old = before.map_or(Value::Null, Object::value);
        let (ObjectKey { resource, namespace, name }, origin) = (key, self.origin.clone());
        let change = Change { resource, namespace, name, old: &old, new, origin: &origin };
        self.recompile_dependents(resource, Some(&change));
    }

    /// Puts a policy in force. Objects that it looks at are charged at once, refused never: lowering a limit or
    /// adding a quota evicts nobody.
    pub(crate) fn install(&mut self, key: &ObjectKey, compiled: Compiled) {
        let policy = policy_name(&key.resource, &key.namespace, &key.name);
        let before = self.rulebook.id(&policy).and_then(|id| self.rulebook.compiled(id));
        let changed = self.moved_places(before, &compiled);
        match self.take_prepared(key, &compiled) {
            Some(left) => {
                self.put_in_force(key, compiled);
                self.mark_all_stale(&changed);
                self.count_left(&policy, left);
            }
            None => {
                self.step_aside(&changed);
                let (_, places) = self.put_in_force(key, compiled);
                let moved: Vec<PolicyId> = self.rulebook.id(&policy).into_iter().collect();
                self.recount(&places, Some(&moved));
            }
        }
        self.close_unlisted(&policy);
        self.close_left(&policy);
        self.mark_stale(key.clone());
    }

    /// Gives a policy its accounts and the rulebook its rules. Charges are as they were: the caller recounts the
    /// returned places, and then closes what the policy no longer lists. The first of the answer tells whether the
    /// ledger knew every account before.
    pub(crate) fn put_in_force(&mut self, key: &ObjectKey, compiled: Compiled) -> (bool, Places) {
        self.note_moment(key, compiled.until_ms);
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        let before = self.rulebook.id(&name).and_then(|id| self.rulebook.compiled(id));
        let places = self.moved_places(before, &compiled);

        let known =
            compiled.accounts.iter().all(|one| self.ledger.account(&account_key(&name, &one.resource)).is_some());
        let accounts = match self.open_accounts(&name, &compiled) {
            Ok(accounts) => accounts,
            // Names and limits were checked; what is left is the bound on ids, which no machine has the memory to reach.
            Err(error) => panic!("the accounts of {name} cannot be opened: {error}"),
        };
        let id = self.rulebook.install(name.clone(), compiled);
        let family = self.families.place(&key.resource).unwrap_or_default();
        self.policies.put(id, Installed { key: key.clone(), family, name, accounts, is_shadow: false });
        (known, places)
    }

    /// Takes a policy out of force; its accounts and every charge on them go.
    pub(crate) fn uninstall(&mut self, key: &ObjectKey) {
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        let Some(id) = self.rulebook.id(&name) else { return };
        let looked_at = self.rulebook.compiled(id).map_or_else(Places::new, |compiled| self.looked_at(compiled));
        self.mark_all_stale(&looked_at);
        self.retire_policy(&name);
        // Readers forget it.
        self.effects.closed.push(name);
    }

    /// Where objects have to be measured again because a policy changes; nowhere, where only its limits do, and not where rules
    /// look that were taken over.
    pub(crate) fn moved_places(&self, before: Option<&Compiled>, after: &Compiled) -> Places {
        let before = before.map(|before| (before, same_names(before, after)));
        match before {
            None => self.looked_at(after),
            Some((before, false)) => self.looked_at_by(before.rules.iter().chain(&after.rules)),
            Some((before, true)) if before.fingerprint == after.fingerprint => Places::new(),
            Some((before, true)) => {
                let (known, stays) = (by_namespace(&before.rules), by_namespace(&after.rules));
                let is_among = |all: &ByNamespace<'_>, rule: &Rule| {
                    all.get(namespace_of(rule)).is_some_and(|some| some.iter().any(|other| rule.is(other)))
                };
                let left = before.rules.iter().filter(|rule| !is_among(&stays, rule));
                let new = after.rules.iter().filter(|rule| !is_among(&known, rule));
                self.looked_at_by(left.chain(new))
            }
        }
    }

    /// Where objects are that a policy looks at. Namespaces without any are left out, and not even asked about.
    pub(crate) fn looked_at(&self, compiled: &Compiled) -> Places {
        self.looked_at_by(&compiled.rules)
    }

    fn looked_at_by<'a>(&self, rules: impl IntoIterator<Item = &'a Rule>) -> Places {
        let mut places = Places::new();
        for rule in rules {
            for resource in &rule.resources {
                let Some(shelf) = self.shelves.of(resource) else { continue };
                if let Reach::Namespace(namespace) = &rule.reach {
                    places.push((resource.clone(), namespace.clone()));
                    continue;
                }
                let mut next = shelf.get_min().map(|((namespace, _), _)| namespace.clone());
                while let Some(namespace) = next {
                    // The first object after all of this namespace: no name begins with a zero byte.
                    let after: Arc<str> = format!("{namespace}\0").into();
                    next = shelf.range((after, Arc::from(""))..).next().map(|((namespace, _), _)| namespace.clone());
                    if self.rulebook.reaches(rule, &namespace) {
                        places.push((resource.clone(), namespace));
                    }
                }
            }
        }
        places.sort();
        places.dedup();
        places
    }

    /// Opens the accounts of a policy, or gives those that are open their limits: all at once, so that whoever is served because
    /// one was raised does not take what another no longer has.
    pub(crate) fn open_accounts(
        &mut self,
        policy: &Arc<str>,
        compiled: &Compiled,
    ) -> Result<Vec<(Arc<str>, AccountId)>, LedgerError> {
        let mut opened = Vec::with_capacity(compiled.accounts.len());
        let mut plan = self.ledger.plan();
        for account in &compiled.accounts {
            let id = plan.open(account_key(policy, &account.resource), account.limit)?;
            plan.set_limit(id, account.limit)?;
            if account.discounts {
                plan.allow_discounts(id)?;
            }
            opened.push((account.resource.clone(), id));
        }
        let plan = plan.decide().expect("nothing is charged that an account could refuse");
        let receipt = self.ledger.apply_all(plan);
        self.note_receipt(&receipt);
        self.touched.extend(opened.iter().map(|(_, account)| *account));
        Ok(opened)
    }

    /// Closes every account of a policy, and every part of one, whose resource the policy does not list; all of them
    /// when it is not in force.
    pub(crate) fn close_unlisted(&mut self, policy: &Arc<str>) {
        let ledger = &self.ledger;
        let unlisted = |account: &AccountId| {
            ledger.key(*account).is_some_and(|key| !self.policies.counts(&key.policy, &key.resource))
        };
        let gone: Vec<AccountId> = ledger.accounts_of(policy).filter(unlisted).collect();
        if gone.is_empty() && self.rulebook.id(policy).is_some() {
            return;
        }
        self.close(gone, policy);
    }

    /// Closes the part of a policy for a namespace that it no longer looks into and that has nothing left of it:
    /// namespaces come and go, and what is left behind would be walked through for ever.
    pub(crate) fn close_part(&mut self, policy: PolicyId, namespace: &str) {
        if self.rulebook.looks_into(policy, namespace) {
            return;
        }
        let Some(name) = self.rulebook.name(policy).cloned() else { return };
        let part = self.policies.part(|key| self.ledger.account(key), &name, namespace);
        self.close_empty(part, &name);
    }

    /// The same for all namespaces that a policy looked into before it was edited.
    fn close_left(&mut self, policy: &Arc<str>) {
        let Some(id) = self.rulebook.id(policy) else { return };
        let is_left = |account: &AccountId| {
            let part = self.ledger.key(*account).map(|key| &key.bucket).filter(|part| !part.is_empty());
            part.is_some_and(|part| !self.rulebook.looks_into(id, part))
        };
        let left: Vec<AccountId> = self.ledger.accounts_of(policy).filter(is_left).collect();
        self.close_empty(left, policy);
    }

    fn close_empty(&mut self, mut accounts: Vec<AccountId>, policy: &Arc<str>) {
        let is_empty = |one: ledger::Balance| one.subjects == 0 && one.waiting == 0;
        accounts.retain(|account| self.ledger.balance(*account).is_some_and(is_empty));
        if !accounts.is_empty() {
            self.close(accounts, policy);
        }
    }

    fn close(&mut self, accounts: Vec<AccountId>, policy: &Arc<str>) {
        self.retire(accounts);
        // Readers forget the policy; what is left of it is published again at the end of the group.
        self.effects.closed.push(policy.clone());
        self.touched.extend(self.ledger.accounts_of(policy));
    }

    /// Closes accounts whose policy is gone, or no longer lists them, and parts for namespaces that are.
    pub(crate) fn close_orphans(&mut self) {
        let gone = |key: &AccountKey| !key.bucket.is_empty() && !self.namespaces.contains_key(&key.bucket);
        let parts = self.ledger.balances().filter(|(key, _)| gone(key));
        let parts: Vec<(Arc<str>, AccountId)> = parts.map(|(key, one)| (key.policy.clone(), one.account)).collect();
        for (policy, account) in parts {
            self.close_empty(vec![account], &policy);
        }
        let mut policies: Vec<Arc<str>> = self.ledger.balances().map(|(key, _)| key.policy.clone()).collect();
        policies.sort();
        policies.dedup();
        for policy in policies {
            self.close_unlisted(&policy);
        }
    }
}

/// Rules by the namespace that they look into; "" for those that look into several, or none. A policy may have one for each of
/// thousands.
type ByNamespace<'a> = HashMap<&'a str, Vec<&'a Rule>>;

fn namespace_of(rule: &Rule) -> &str {
    match &rule.reach {
        Reach::Namespace(namespace) => namespace,
        _ => "",
    }
}

fn by_namespace(rules: &[Rule]) -> ByNamespace<'_> {
    let mut all = ByNamespace::new();
    rules.iter().for_each(|rule| all.entry(namespace_of(rule)).or_default().push(rule));
    all
}

fn account_key(policy: &Arc<str>, resource: &Arc<str>) -> AccountKey {
    AccountKey { policy: policy.clone(), resource: resource.clone(), bucket: "".into() }
}

/// What the ledger asks of accounts, asked while the policy can still be refused.
pub(crate) fn check_accounts(policy: &ObjectKey, compiled: &Compiled) -> Result<(), FieldError> {
    let name = policy_name(&policy.resource, &policy.namespace, &policy.name);
    if name.len() > KEY_TEXT_BYTES_MAX {
        let why = format!("must be no more than {KEY_TEXT_BYTES_MAX} bytes with its namespace and kind");
        return Err(FieldError::invalid("metadata.name", &*policy.name, why));
    }
    for account in &compiled.accounts {
        if account.resource.len() > KEY_TEXT_BYTES_MAX {
            let why = format!("a resource name must be no more than {KEY_TEXT_BYTES_MAX} bytes");
            return Err(FieldError::invalid("spec", &*account.resource, why));
        }
        if account.limit.amount().is_some_and(|limit| limit.is_negative()) {
            return Err(FieldError::invalid("spec", &*account.limit_text, "must be greater than or equal to 0"));
        }
    }
    Ok(())
}

/// What has its status from the ledger is measured in one step, all of a kind: nobody waits there for expressions of others.
pub(crate) fn check_expressions(
    compiled: &Compiled,
    is_told: impl Fn(&GroupResource) -> bool,
) -> Result<(), FieldError> {
    let evaluating = compiled.rules.iter().filter(|rule| rule.measure.evaluates());
    match evaluating.flat_map(|rule| &rule.resources).find(|resource| is_told(resource)) {
        None => Ok(()),
        Some(resource) => {
            let why =
                format!("{resource} are not measured by CEL expressions: quotas and claims are measured by paths");
            Err(FieldError::forbidden("spec", why))
        }
    }
}

/// Charges refer to accounts by position: a policy that lists other resources is measured anew.
pub(crate) fn same_names(before: &Compiled, after: &Compiled) -> bool {
    before.accounts.len() == after.accounts.len()
        && before.accounts.iter().zip(&after.accounts).all(|(a, b)| a.resource == b.resource)
}
