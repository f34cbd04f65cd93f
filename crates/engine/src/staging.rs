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
//! again, counts all in its own step. Of what may wait in line all are counted before it who stand where they are, and the others in the
//! step ([`crate::standing`]). An object that cannot be measured keeps what it had of the policy before: that, and what is held for
//! objects to come, is carried over when the shadow takes its place.
//!
//! What is staged is all that the write brings into force: itself, and what is foretold to follow ([`crate::foretell`]), in that order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ledger::{AccountId, AccountKey, Limit, SubjectId};
use rules::cel::Known;
use rules::{Compiled, Measure, MeasureError, Namespace, PolicyId, Reach, Rule, Subject, Verdict, policy_name};
use smallvec::SmallVec;

use crate::command::{Postponed, Recount, Refused, WriteKind};
use crate::engine::Engine;
use crate::install::{Places, same_names};
use crate::object::{Object, ObjectKey};
use crate::policies::Installed;
use crate::standing::WRITTEN_MAX;

/// Objects counted again in the step of a write; and about how many bytes of them.
pub(crate) const AT_ONCE_MAX: usize = 2000;
const AT_ONCE_BYTES_MAX: usize = 1024 * 1024;
/// As how many others an object counts that is measured by all rules, and may have to be served.
const PROJECTED_COST: usize = 8;

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
    /// Objects that could not be measured, or are left to the step, and by which shadows: what they had of a policy before is known
    /// only to that.
    missed: BTreeMap<SubjectId, Missed>,
    /// Those of them that were written, or served, since they were looked at.
    pub written: BTreeSet<ObjectKey>,
    /// Whether some of it has taken its place already: the step of its write is under way.
    is_taken: bool,
    pub until_ms: i64,
}

/// A policy as it is going to be.
pub(crate) struct Shadow {
    policy: ObjectKey,
    pub name: Arc<str>,
    compiled: Compiled,
}

/// What has to be staged for a write: policies as they are going to be, in the order in which they come into force.
#[derive(Default)]
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
        // How an object stands in line is said by what is in force.
        let (wait, for_good) = (out.wait.take(), out.for_good.take());
        if self.0.measure(subject, out).is_err() {
            out.lines.truncate(lines);
            out.miss();
        }
        out.refusals.truncate(refusals);
        out.wait = wait.or(out.wait.take());
        out.for_good = for_good.or(out.for_good.take());
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
    /// What has to be counted before a write, because it is too much for its step; none where that has been done. `foretold` are the
    /// policies that come into force with it, in their order.
    pub(crate) fn to_stage(
        &self,
        key: &ObjectKey,
        namespace: Option<Namespace>,
        foretold: Vec<(ObjectKey, Compiled)>,
    ) -> Option<Stages> {
        let of_namespace = namespace.and_then(|namespace| self.stages_moved_by(namespace));
        let (mut stages, mut places) = of_namespace.unwrap_or_default();
        let mut before: HashMap<&ObjectKey, &Compiled> = HashMap::new();
        let mut moved = Vec::new();
        for (policy, compiled) in &foretold {
            let name = policy_name(&policy.resource, &policy.namespace, &policy.name);
            let in_force = || self.rulebook.id(&name).and_then(|id| self.rulebook.compiled(id));
            let looks_anew = self.moved_places(before.get(policy).copied().or_else(in_force), compiled);
            before.insert(policy, compiled);
            if !looks_anew.is_empty() {
                stages.evaluates |= self.evaluates_in(compiled, &looks_anew);
                places.extend(looks_anew);
                moved.push((policy.clone(), compiled.clone()));
            }
        }
        stages.policies.extend(moved);
        places.sort();
        places.dedup();
        if !stages.evaluates && !self.are_too_many(&places) {
            return None;
        }
        match self.staging.as_ref().filter(|staging| staging.is_for(key, &stages)) {
            Some(staging) if staging.is_counted() => None,
            _ => Some(stages),
        }
    }

    /// The policies that come to look into a namespace as it is going to be, or leave it, and where that is; none where it is as it was.
    fn stages_moved_by(&self, namespace: Namespace) -> Option<(Stages, Places)> {
        if self.namespaces.get(&namespace.name).is_none_or(|known| known.seen == namespace) {
            return None;
        }
        let (mut policies, mut places, mut evaluates) = (Vec::new(), Places::new(), false);
        for id in self.rulebook.moved_by(&namespace, true) {
            let (Some(compiled), Some(key)) = (self.rulebook.compiled(id), self.policies.in_force(id)) else {
                continue;
            };
            let resources = compiled.rules.iter().flat_map(|rule| &rule.resources);
            let looked_at: Places = resources.map(|resource| (resource.clone(), namespace.name.clone())).collect();
            if !looked_at.is_empty() {
                evaluates |= self.evaluates_in(compiled, &looked_at);
                places.extend(looked_at);
                policies.push((key.clone(), compiled.clone()));
            }
        }
        Some((Stages { namespace: Some(namespace), policies, evaluates }, places))
    }

    /// Whether a namespace, as it is going to be, comes under policies that evaluate expressions on what is in it, or leaves some.
    pub(crate) fn namespace_evaluates(&self, namespace: Namespace) -> bool {
        self.stages_moved_by(namespace).is_some_and(|(stages, _)| stages.evaluates)
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
    fn is_too_much<'a>(&self, mut objects: impl Iterator<Item = &'a Arc<Object>>) -> bool {
        let (mut count, mut bytes) = (0, 0);
        objects.any(|object| {
            let cost = if self.is_projected(&object.key.resource) { PROJECTED_COST } else { 1 };
            (count, bytes) = (count + cost, bytes + object.json.len());
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
            let shadow = shadow_of(&compiled, namespace.as_ref());
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
            written: BTreeSet::new(),
            is_taken: false,
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

    /// What was found out about that of one object, which is about to be stored, or is. How one stands that may wait is for the next
    /// slice to see.
    pub(crate) fn note_missed(&mut self, key: &ObjectKey, subject: SubjectId) {
        let Some(mut staging) = self.staging.take() else { return };
        let missed = self.take_missed(subject);
        if !missed.is_empty() && self.may_wait(&key.resource) {
            staging.written.insert(key.clone());
        }
        staging.note_missed(subject, missed);
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

    /// Before a policy comes into force: what was prepared for that takes its place. Where that is so: who is left to be counted.
    pub(crate) fn take_prepared(&mut self, key: &ObjectKey, compiled: &Compiled) -> Option<Vec<Arc<Object>>> {
        let staging = self.staging.as_mut().filter(|staging| staging.is_taken || staging.is_counted())?;
        let is_it = |shadow: &Shadow| shadow.policy == *key && same_rules(&shadow.compiled, compiled);
        let at = staging.shadows.iter().position(is_it)?;
        staging.is_taken = true;
        let shadow = staging.shadows.remove(at);
        Some(self.take_over(shadow))
    }

    /// The same for a namespace that changes. The policies are in force again afterwards, and look at it as it is going to be.
    pub(crate) fn take_prepared_for(&mut self, namespace: &Namespace) -> Vec<(PolicyId, Vec<Arc<Object>>)> {
        let mut taken: Vec<(PolicyId, Vec<Arc<Object>>)> = Vec::new();
        let is_it = |staging: &&mut Box<Staging>| staging.namespace.as_ref() == Some(namespace) && staging.is_counted();
        let Some(staging) = self.staging.as_mut().filter(is_it) else { return taken };
        let staged: Vec<ObjectKey> = staging.shadows.iter().map(|shadow| shadow.policy.clone()).collect();
        for policy in staged {
            let name = policy_name(&policy.resource, &policy.namespace, &policy.name);
            let is_new = |id: &PolicyId| taken.iter().all(|(one, _)| one != id);
            let Some(id) = self.rulebook.id(&name).filter(is_new) else { continue };
            // Its limits may be others by now.
            let Some(compiled) = self.rulebook.compiled(id).cloned() else { continue };
            let Some(left) = self.take_prepared(&policy, &compiled) else { continue };
            self.put_in_force(&policy, compiled);
            taken.extend(self.rulebook.id(&name).map(|id| (id, left)));
        }
        taken
    }

    /// At the end of a step in which something staged took its place: what did not was foretold, and has not come.
    pub(crate) fn end_staging(&mut self) {
        if self.staging.as_ref().is_some_and(|staging| staging.is_taken) {
            self.unstage();
        }
    }

    /// Exchanges a policy for its shadow; who is left to be counted.
    fn take_over(&mut self, shadow: Shadow) -> Vec<Arc<Object>> {
        let missed = self.staging.as_mut().map(|staging| std::mem::take(&mut staging.missed)).unwrap_or_default();
        let name = shadow.real_name();
        let left = self.gather_left(&shadow, &name, &missed);
        self.carry_over(&shadow, &name, &missed, &left);
        self.retire_policy(&name);
        for account in self.ledger.accounts_of(&shadow.name).collect::<Vec<_>>() {
            let Some(key) = self.ledger.key(account).cloned() else { continue };
            self.rename_account(account, AccountKey { policy: name.clone(), ..key });
        }
        let id = self.rulebook.rename(&shadow.name, name.clone());
        if let Some(id) = id {
            self.policies.remove(id);
        }
        // Readers forget what it had, and are told of what it has.
        self.effects.closed.push(name.clone());
        self.touched.extend(self.ledger.accounts_of(&name));
        if let Some(staging) = &mut self.staging {
            staging.missed = missed;
            staging.missed.values_mut().for_each(|by| by.retain(|one| Some(*one) != id));
        }
        left
    }

    /// What the shadow of a policy did not count: of objects that it could not measure, or that are left to the step, what they had;
    /// and what is held.
    fn carry_over(
        &mut self,
        shadow: &Shadow,
        name: &Arc<str>,
        missed: &BTreeMap<SubjectId, Missed>,
        left: &[Arc<Object>],
    ) {
        let Some(id) = self.rulebook.id(&shadow.name) else { return };
        let missed = missed.iter().filter(|(_, by)| by.contains(&id)).map(|(subject, _)| *subject);
        let charged: BTreeSet<SubjectId> = missed.chain(left.iter().map(|object| object.uid)).collect();
        let charged = charged.into_iter().filter(|subject| self.ledger.is_live(*subject));
        let carried: Vec<(SubjectId, bool)> =
            charged.map(|subject| (subject, true)).chain(self.ledger.held().map(|subject| (subject, false))).collect();
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
        let written = self.written.clone();
        let known: BTreeSet<SubjectId> = self.known.keys().copied().collect();
        let (places, pending, missed) = (self.places.clone(), self.pending.clone(), self.missed.clone());
        (self.ticket, places, self.after.clone(), pending, known, missed, written, self.until_ms)
    }

    /// Takes note of the shadows that could not measure an object; of none, where all could.
    pub fn note_missed(&mut self, subject: SubjectId, by: Missed) {
        match by.is_empty() {
            true => drop(self.missed.remove(&subject)),
            false => drop(self.missed.insert(subject, by)),
        }
    }

    /// Whether an object is left to the step, or could not be measured.
    pub fn is_left(&self, subject: SubjectId) -> bool {
        self.missed.contains_key(&subject)
    }

    /// Whether nothing is left to be counted, but for what the step has the time for.
    pub fn is_counted(&self) -> bool {
        self.places.is_empty() && self.pending.is_empty() && self.written.len() <= WRITTEN_MAX
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
