//! Staging: what a write would count again in one step is counted before it, a slice at a time.
//!
//! A policy that is put over a million objects, or a namespace with many that comes under one, changes what all of them are
//! charged, and that has to be so in the commit of the write. So the write is put off. Meanwhile the policy, as it is going to
//! be, stands in the rulebook under another name, with accounts of its own: a *shadow*, charged as any policy is, which refuses
//! nothing and which nobody is told of. [`Engine::count_on`] counts what is stored, slice by slice; what is written meanwhile
//! is counted because the rules say so. Once all is counted the write is sent again and decided as ever; then the shadow takes
//! the policy's name and limits, which costs the same however much is charged, and what the policy had before is retired.
//!
//! The same is done, however few they are, where objects are measured by expressions: nobody waits for those.
//!
//! A write that has come to mean something else by then is put off again. One that cannot be put off, because nobody sends it
//! again, counts all in its own step. What may wait in line, and policies that others count, are counted in the step in any case: there
//! are few of those, and their order matters. An object that cannot be measured keeps what it had of the policy before: that, and what
//! is held for objects to come, is carried over when the shadow takes its place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ledger::{AccountId, AccountKey, Limit, SubjectId};
use rules::cel::Known;
use rules::{Compiled, Measure, MeasureError, Namespace, PolicyId, Reach, Rule, Subject, Verdict, policy_name};
use serde_json::Value;
use smallvec::SmallVec;

use crate::command::{Postponed, Recount, Refused, WriteKind};
use crate::engine::Engine;
use crate::install::{Places, same_names};
use crate::object::{Object, ObjectKey};
use crate::policies::Installed;
use crate::recount::namespace_seen;

/// Objects counted again in the step of a write; and about how many bytes of them.
pub(crate) const AT_ONCE_MAX: usize = 2000;
const AT_ONCE_BYTES_MAX: usize = 1024 * 1024;

/// How long a staging stays that nobody goes on with.
pub(crate) const FORSAKEN_MS: i64 = 30_000;

/// How the names of shadows begin. No policy's does: those begin with the plural of their kind.
const SHADOW: &str = "~s";

/// Writes that are prepared; one at a time.
pub(crate) struct Staging {
    pub ticket: u64,
    /// The object whose write this is for; where it is a namespace, how that is going to be.
    cause: ObjectKey,
    namespace: Option<Namespace>,
    pub shadows: Vec<Shadow>,
    /// The last write before it: whatever was written later is counted with its write.
    pub revision: u64,
    /// What is still to be counted, from the last on; of the last what comes after this name.
    pub places: Places,
    pub after: Arc<str>,
    /// Objects before that which wait for expressions, and what is known of those.
    pub pending: Vec<ObjectKey>,
    pub known: HashMap<SubjectId, Box<Known>>,
    /// Objects that could not be measured, and by which shadows: what they had of a policy before is known only to that.
    missed: BTreeMap<SubjectId, Missed>,
    pub until_ms: i64,
}

/// A policy as it is going to be.
pub(crate) struct Shadow {
    policy: ObjectKey,
    pub name: Arc<str>,
    compiled: Compiled,
}

/// What has to be staged for a write.
pub(crate) struct Stages {
    namespace: Option<Namespace>,
    policies: Vec<(ObjectKey, Compiled)>,
    /// Whether expressions are evaluated for it.
    pub evaluates: bool,
}

/// Policies that an object could not be measured by.
pub(crate) type Missed = SmallVec<[PolicyId; 1]>;

/// Measures as a rule does, and refuses nothing.
struct Silent(Arc<dyn Measure>);

impl Measure for Silent {
    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let (lines, refusals) = (out.lines.len(), out.refusals.len());
        if self.0.measure(subject, out).is_err() {
            out.lines.truncate(lines);
            out.miss();
        }
        out.refusals.truncate(refusals);
        Ok(())
    }

    fn may_change_with_time(&self, text: &str) -> bool {
        self.0.may_change_with_time(text)
    }

    fn evaluates(&self) -> bool {
        self.0.evaluates()
    }
}

impl Engine {
    /// What has to be counted before this write, because it is too much for its step; none where that has been done.
    pub(crate) fn to_stage(&self, key: &ObjectKey, value: &Value, compiled: Option<&Compiled>) -> Option<Stages> {
        let is_namespace = key.resource.is("", "namespaces");
        if compiled.is_none() && !is_namespace {
            return None;
        }
        let stages = match compiled {
            Some(compiled) => self.stages_of_policy(key, compiled),
            None => self.stages_of_namespace(namespace_seen(&key.name, value)),
        }?;
        match self.staging.as_ref().filter(|staging| staging.is_for(key, &stages)) {
            Some(staging) if staging.is_counted() => None,
            _ => Some(stages),
        }
    }

    fn stages_of_policy(&self, key: &ObjectKey, compiled: &Compiled) -> Option<Stages> {
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        let before = self.rulebook.id(&name).and_then(|id| self.rulebook.compiled(id));
        let looks_at = before.into_iter().chain([compiled]).flat_map(|one| &one.rules).flat_map(|rule| &rule.resources);
        let shelves = looks_at.filter_map(|resource| self.shelves.of(resource));
        let evaluates = compiled.rules.iter().any(|rule| rule.measure.evaluates());
        if !evaluates && !self.is_too_much(shelves.flat_map(|shelf| shelf.values()))
            || !self.may_be_staged(key, compiled)
        {
            return None;
        }
        let mut places = self.moved_places(before, compiled);
        places.retain(|(resource, _)| !self.is_projected(resource));
        let evaluates = self.evaluates_in(compiled, &places);
        let is_staged = self.are_too_many(&places) || evaluates;
        is_staged.then(|| Stages { namespace: None, policies: vec![(key.clone(), compiled.clone())], evaluates })
    }

    pub(crate) fn stages_of_namespace(&self, namespace: Namespace) -> Option<Stages> {
        if self.namespaces.get(&namespace.name).is_none_or(|known| known.seen == namespace) {
            return None;
        }
        let (mut policies, mut places, mut evaluates) = (Vec::new(), Places::new(), false);
        for id in self.rulebook.moved_by(&namespace, true) {
            let (Some(compiled), Some(key)) = (self.rulebook.compiled(id), self.policies.in_force(id)) else {
                continue;
            };
            let resources = compiled.rules.iter().flat_map(|rule| &rule.resources);
            let resources = resources.filter(|resource| !self.is_projected(resource));
            let looked_at: Places = resources.map(|resource| (resource.clone(), namespace.name.clone())).collect();
            if !looked_at.is_empty() && self.may_be_staged(key, compiled) {
                evaluates |= self.evaluates_in(compiled, &looked_at);
                places.extend(looked_at);
                policies.push((key.clone(), compiled.clone()));
            }
        }
        places.sort();
        places.dedup();
        let is_staged = evaluates || self.are_too_many(&places);
        is_staged.then_some(Stages { namespace: Some(namespace), policies, evaluates })
    }

    /// What keeps others by what may wait in line, and what somebody waits for, is counted in one step. What keeps others by anything
    /// else may be staged: once it takes its shadow's place all its parts have moved, and whoever follows one does so in that step.
    fn may_be_staged(&self, policy: &ObjectKey, compiled: &Compiled) -> bool {
        let mut counted = compiled.rules.iter().flat_map(|rule| &rule.resources);
        let keeps = self.keeping.contains(&policy.resource) && counted.any(|resource| self.is_projected(resource));
        let name = policy_name(&policy.resource, &policy.namespace, &policy.name);
        let mut accounts = self.ledger.accounts_of(&name).filter_map(|account| self.ledger.balance(account));
        !keeps && !accounts.any(|balance| balance.waiting > 0)
    }

    /// Whether a policy evaluates expressions on some object in these places.
    fn evaluates_in(&self, compiled: &Compiled, places: &Places) -> bool {
        let mut rules = compiled.rules.iter().filter(|rule| rule.measure.evaluates());
        rules.any(|rule| {
            let mut places = places.iter().filter(|(resource, _)| rule.resources.contains(resource));
            places.any(|(resource, namespace)| self.objects_in(resource, namespace).next().is_some())
        })
    }

    fn are_too_many(&self, places: &Places) -> bool {
        self.is_too_much(places.iter().flat_map(|(resource, namespace)| self.objects_in(resource, namespace)))
    }

    /// Whether these are more, or larger, than are counted in one step.
    fn is_too_much<'a>(&self, objects: impl Iterator<Item = &'a Arc<Object>>) -> bool {
        let (mut count, mut bytes) = (0, 0);
        let mut objects = objects;
        objects.any(|object| {
            (count, bytes) = (count + 1, bytes + object.json.len());
            count > self.at_once_max || bytes > AT_ONCE_BYTES_MAX
        })
    }

    /// Puts a write off until what it needs is counted; begins with that, if its sender is about to go on with it.
    pub(crate) fn put_aside(&mut self, key: &ObjectKey, kind: WriteKind, stages: Stages) -> Refused {
        let recount = if self.prepares { Recount::Begun(self.begin(key, stages)) } else { Recount::ToBegin };
        self.postponed = Some(Box::new(Postponed::until_counted(kind, recount)));
        Refused::Bug("a write was put off that nobody sends again".into())
    }

    fn begin(&mut self, key: &ObjectKey, stages: Stages) -> u64 {
        if let Some(staging) = self.staging.as_ref().filter(|staging| staging.is_for(key, &stages)) {
            return staging.ticket;
        }
        self.unstage();
        self.tickets += 1;
        let Stages { namespace, policies, .. } = stages;
        let (mut shadows, mut places) = (Vec::with_capacity(policies.len()), Places::new());
        for (policy, compiled) in policies {
            let name = self.unused_name(SHADOW);
            let mut shadow = shadow_of(&compiled, namespace.as_ref());
            for rule in &mut shadow.rules {
                rule.resources.retain(|resource| !self.is_projected(resource));
            }
            let accounts = match self.open_accounts(&name, &shadow) {
                Ok(accounts) => accounts,
                Err(error) => panic!("the accounts of a shadow of {policy} cannot be opened: {error}"),
            };
            if !shadow.accounts.is_empty() {
                places.extend(self.looked_at(&shadow));
            }
            let id = self.rulebook.install(name.clone(), shadow);
            let family = self.families.place(&policy.resource).unwrap_or_default();
            let installed = Installed { key: policy.clone(), family, name: name.clone(), accounts, is_shadow: true };
            self.policies.put(id, installed);
            shadows.push(Shadow { policy, name, compiled });
        }
        places.sort();
        places.dedup();
        let until_ms = self.clock_ms.saturating_add(FORSAKEN_MS);
        self.staging = Some(Box::new(Staging {
            ticket: self.tickets,
            cause: key.clone(),
            namespace,
            shadows,
            revision: self.revision,
            places,
            after: "".into(),
            pending: Vec::new(),
            known: HashMap::new(),
            missed: BTreeMap::new(),
            until_ms,
        }));
        self.tickets
    }

    /// The shadows among these policies that look at objects of this resource there.
    pub(crate) fn shadows_at<'a>(&self, shadows: impl IntoIterator<Item = &'a Shadow>, key: &ObjectKey) -> Missed {
        let looking = self.rulebook.looking_at(&key.resource, &key.namespace);
        let shadows = shadows.into_iter().filter(|shadow| looking.contains(&shadow.name));
        shadows.filter_map(|shadow| self.rulebook.id(&shadow.name)).collect()
    }

    /// Takes note of an object whose rules could not say what it takes, should it be stored.
    pub(crate) fn miss(&mut self, key: &ObjectKey, subject: SubjectId) {
        let Some(staging) = &self.staging else { return };
        let missed = self.shadows_at(&staging.shadows, key);
        self.missed.push((subject, missed));
    }

    /// What was found out about that of one object, which is stored now.
    pub(crate) fn note_missed(&mut self, subject: SubjectId) {
        let Some(mut staging) = self.staging.take() else { return };
        staging.note_missed(subject, self.take_missed(subject));
        self.staging = Some(staging);
    }

    pub(crate) fn take_missed(&mut self, subject: SubjectId) -> Missed {
        let found = self.missed.iter().position(|(known, _)| *known == subject);
        found.map(|at| self.missed.swap_remove(at).1).unwrap_or_default()
    }

    /// Forgets what was prepared.
    pub(crate) fn unstage(&mut self) {
        let Some(staging) = self.staging.take() else { return };
        for shadow in staging.shadows {
            self.retire_policy(&shadow.name);
        }
    }

    /// Forgets what nobody went on with.
    pub(crate) fn forsake(&mut self) {
        if self.staging.as_ref().is_some_and(|staging| staging.until_ms <= self.clock_ms) {
            self.unstage();
        }
    }

    /// Before a policy comes into force: what was prepared for that takes its place. Where that is so: what is left to be counted.
    pub(crate) fn take_prepared(&mut self, key: &ObjectKey, compiled: &Compiled) -> Option<Places> {
        let is_it = |staging: &mut Box<Staging>| {
            let shadow = staging.shadows.first().filter(|shadow| staging.namespace.is_none() && shadow.policy == *key);
            shadow.is_some_and(|shadow| same_rules(&shadow.compiled, compiled)) && staging.is_counted()
        };
        let staging = self.staging.take_if(is_it)?;
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        let before = self.rulebook.id(&name).and_then(|id| self.rulebook.compiled(id));
        // Whether it changed or not: none of them has been counted by the shadow.
        let mut left: Places = before.into_iter().chain([compiled]).flat_map(|one| self.looked_at(one)).collect();
        left.retain(|(resource, _)| self.is_projected(resource));
        left.sort();
        left.dedup();
        self.take_over(*staging);
        Some(left)
    }

    /// The same for a namespace that changes. The policies are in force again afterwards, and look at it as it is going to be.
    pub(crate) fn take_prepared_for(&mut self, namespace: &Namespace) -> Vec<PolicyId> {
        let is_it = |staging: &mut Box<Staging>| staging.namespace.as_ref() == Some(namespace) && staging.is_counted();
        let Some(mut staging) = self.staging.take_if(is_it) else { return Vec::new() };
        let mut policies = Vec::with_capacity(staging.shadows.len());
        let mut left = Vec::new();
        staging.shadows.retain(|shadow| {
            let in_force = self.rulebook.id(&shadow.real_name()).and_then(|id| self.rulebook.compiled(id));
            let same = in_force.filter(|in_force| same_rules(&shadow.compiled, in_force));
            // Its limits may be others by now.
            policies.extend(same.map(|same| (shadow.policy.clone(), same.clone())));
            left.extend(same.is_none().then(|| shadow.name.clone()));
            same.is_some()
        });
        left.iter().for_each(|shadow| self.retire_policy(shadow));
        self.take_over(*staging);
        let mut taken = Vec::with_capacity(policies.len());
        for (policy, compiled) in policies {
            self.put_in_force(&policy, compiled);
            taken.extend(self.rulebook.id(&policy_name(&policy.resource, &policy.namespace, &policy.name)));
        }
        taken
    }

    /// Exchanges policies for their shadows.
    fn take_over(&mut self, staging: Staging) {
        for shadow in staging.shadows {
            let name = shadow.real_name();
            self.carry_over(&shadow, &name, &staging.missed);
            self.retire_policy(&name);
            for account in self.ledger.accounts_of(&shadow.name).collect::<Vec<_>>() {
                let Some(key) = self.ledger.key(account).cloned() else { continue };
                self.rename_account(account, AccountKey { policy: name.clone(), ..key });
            }
            if let Some(id) = self.rulebook.rename(&shadow.name, name.clone()) {
                self.policies.remove(id);
            }
            // Readers forget what it had, and are told of what it has.
            self.effects.closed.push(name.clone());
            self.touched.extend(self.ledger.accounts_of(&name));
        }
    }

    /// What the shadow of a policy could not count: of objects that it could not measure what they had, and what is held.
    fn carry_over(&mut self, shadow: &Shadow, name: &Arc<str>, missed: &BTreeMap<SubjectId, Missed>) {
        let Some(id) = self.rulebook.id(&shadow.name) else { return };
        let missed = missed.iter().filter(|(_, by)| by.contains(&id)).map(|(subject, _)| *subject);
        let carried: Vec<(SubjectId, bool)> =
            missed.map(|subject| (subject, true)).chain(self.ledger.held().map(|subject| (subject, false))).collect();
        if carried.is_empty() {
            return;
        }
        let mut to: HashMap<AccountId, AccountId> = HashMap::new();
        for account in self.ledger.accounts_of(name).collect::<Vec<_>>() {
            let Some(key) = self.ledger.key(account).cloned() else { continue };
            if !self.policies.counts(&shadow.name, &key.resource) {
                continue;
            }
            let key = AccountKey { policy: shadow.name.clone(), ..key };
            // A part that nobody else has anything of.
            let opened = self.ledger.account(&key).map_or_else(|| self.ledger.open(key, Limit::Unlimited), Ok);
            to.extend(opened.ok().map(|opened| (account, opened)));
        }
        for (subject, with_charged) in carried {
            let receipt = self.ledger.carry(subject, |account| to.get(&account).copied(), with_charged);
            self.note_receipt(&receipt);
        }
    }
}

impl Staging {
    /// Whether it prepares just this.
    fn is_for(&self, key: &ObjectKey, stages: &Stages) -> bool {
        let same = |(shadow, (policy, compiled)): (&Shadow, &(ObjectKey, Compiled))| {
            shadow.policy == *policy && same_rules(&shadow.compiled, compiled)
        };
        self.cause == *key
            && self.namespace == stages.namespace
            && self.shadows.len() == stages.policies.len()
            && self.shadows.iter().zip(&stages.policies).all(same)
    }

    /// What is left to be done, for whoever compares two moments.
    #[cfg(test)]
    pub fn left(&self) -> impl std::fmt::Debug {
        let known: std::collections::BTreeSet<SubjectId> = self.known.keys().copied().collect();
        let (places, pending, missed) = (self.places.clone(), self.pending.clone(), self.missed.clone());
        (self.ticket, places, self.after.clone(), pending, known, missed, self.until_ms)
    }

    /// Takes note of the shadows that could not measure an object; of none, where all could.
    pub fn note_missed(&mut self, subject: SubjectId, by: Missed) {
        match by.is_empty() {
            true => drop(self.missed.remove(&subject)),
            false => drop(self.missed.insert(subject, by)),
        }
    }

    /// Whether nothing is left to be counted.
    pub fn is_counted(&self) -> bool {
        self.places.is_empty() && self.pending.is_empty()
    }
}

impl Shadow {
    fn real_name(&self) -> Arc<str> {
        policy_name(&self.policy.resource, &self.policy.namespace, &self.policy.name)
    }
}

/// The same policy, unlimited and silent; where it is prepared for a namespace, it sees that as it is going to be.
fn shadow_of(compiled: &Compiled, namespace: Option<&Namespace>) -> Compiled {
    let mut shadow = compiled.clone();
    shadow.accounts.iter_mut().for_each(|account| account.limit = Limit::Unlimited);
    for Rule { reach, measure, .. } in &mut shadow.rules {
        *measure = Arc::new(Silent(measure.clone()));
        if let (Reach::Selected(accepts), Some(changed)) = (&reach, namespace) {
            let (accepts, changed) = (accepts.clone(), changed.clone());
            let as_changed = move |one: &Namespace| accepts(if one.name == changed.name { &changed } else { one });
            *reach = Reach::Selected(Arc::new(as_changed));
        }
    }
    shadow
}

fn same_rules(one: &Compiled, other: &Compiled) -> bool {
    one.fingerprint == other.fingerprint && same_names(one, other)
}
