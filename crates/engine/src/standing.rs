//! What may stand in a line, while something is staged.
//!
//! Whoever has what it waited for is counted by shadows as anything else is, in slices, where that takes nothing that it would have
//! to wait for: it has it for good, or it has as much of the policy as it is. All others are *left* to the step in which the shadow
//! takes the policy's place: those who wait, those who would. There they leave their lines, what they have is carried over to the
//! accounts of the shadow, and they are counted by the new rules in the order in which they would have come. So the order of a line
//! stays, nobody loses what it has, and in between nobody is served by anybody's leaving.
//!
//! In the step of a write nobody knows yet how its object is going to stand: no shadow counts it there. The next slice does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledger::{AccountId, AccountKey, Limit, State, SubjectId};
use quantity::Amount;
use rules::{PolicyId, Verdict, policy_name};

use crate::countable::counted;
use crate::engine::Engine;
use crate::object::{Object, ObjectKey};
use crate::staging::{Missed, Shadow};

/// Objects that were written since the last slice and may wait: as many are counted in the step of the write that all is counted
/// for. With more of them there is another slice.
pub(crate) const WRITTEN_MAX: usize = 64;

impl Engine {
    /// Takes out of a verdict what shadows say of an object that may wait: the next slice counts that.
    pub(crate) fn leave_to_slices(&self, verdict: &mut Verdict) {
        if verdict.wait.is_some() {
            let asking = self.asking_shadows(verdict);
            leave(verdict, asking);
        }
    }

    /// Takes out of what shadows say of a stored object what it does not have, or would have to wait for; the rest it has already.
    pub(crate) fn leave_to_step(&self, subject: SubjectId, verdict: &mut Verdict) {
        if verdict.wait.take().is_none() {
            return;
        }
        let left = self.asking_shadows(verdict).into_iter().filter(|shadow| !self.stands(subject, verdict, *shadow));
        leave(verdict, left.collect());
        verdict.lines.iter_mut().for_each(|line| line.in_line = false);
    }

    /// The shadows on which a verdict asks for something in line.
    fn asking_shadows(&self, verdict: &Verdict) -> Missed {
        let mut asking = Missed::new();
        for line in verdict.lines.iter().filter(|line| line.in_line) {
            if !asking.contains(&line.policy) && self.policies.shadowed(line.policy).is_some() {
                asking.push(line.policy);
            }
        }
        asking
    }

    /// Whether an object has all that a shadow asks for it, and keeps it whatever others wait for.
    fn stands(&self, subject: SubjectId, verdict: &Verdict, shadow: PolicyId) -> bool {
        let Some((policy, family)) = self.policies.shadowed(shadow) else { return false };
        let Some(view) = self.ledger.subject(subject).filter(|view| view.state == State::Charged) else { return false };
        let family_of = |shadow: PolicyId| self.policies.shadowed(shadow).map(|(_, family)| family);
        if verdict.for_good.and_then(family_of) == Some(family) {
            let of_family = |account: AccountId| {
                let policy = self.policies.policy_of(&self.ledger, account);
                policy.and_then(|policy| self.policies.family(policy)) == Some(family)
            };
            return view.charges.iter().any(|charge| of_family(charge.account));
        }
        let name = policy_name(&policy.resource, &policy.namespace, &policy.name);
        let mut asked = verdict.lines.iter().filter(|line| line.policy == shadow && line.in_line);
        asked.all(|line| {
            let Some(resource) = self.policies.resource(line) else { return false };
            let bucket = line.bucket.clone().unwrap_or_default();
            let account = self.ledger.account(&AccountKey { policy: name.clone(), resource, bucket });
            let has = view.charges.iter().find(|charge| Some(charge.account) == account);
            has.map_or(Amount::ZERO, |has| has.amount) >= counted(line.amount)
        })
    }

    /// Before a shadow takes the place of its policy: who was left to this step, out of their lines. What they have they have on
    /// the accounts that the policy is going to have.
    pub(crate) fn gather_left(
        &mut self,
        shadow: &Shadow,
        name: &Arc<str>,
        missed: &BTreeMap<SubjectId, Missed>,
    ) -> Vec<Arc<Object>> {
        let id = self.rulebook.id(&shadow.name);
        let by_it = missed.iter().filter(|(_, by)| id.is_some_and(|id| by.contains(&id))).map(|(subject, _)| *subject);
        let mut left: BTreeSet<SubjectId> = by_it.collect();
        let accounts: Vec<AccountId> = self.ledger.accounts_of(name).collect();
        for account in accounts {
            left.extend(self.ledger.asking_for(account));
            if self.ledger.balance(account).is_some_and(|one| one.waiting > 0) {
                // Nobody is served by those who leave: all that is there is to be given by the new rules.
                match self.ledger.set_limit(account, Limit::Enforced(Amount::ZERO)) {
                    Ok(receipt) => self.note_receipt(&receipt),
                    Err(error) => tracing::error!(%error, "an account could not be closed to those in line: a bug"),
                }
            }
        }
        let keys = left.iter().filter_map(|subject| self.subjects.get(subject));
        let may_wait = keys.filter(|key| self.may_wait(&key.resource));
        let objects: Vec<Arc<Object>> = may_wait.filter_map(|key| self.stored(key).cloned()).collect();
        self.leave_lines(objects.iter().map(|object| object.uid).collect());
        objects
    }

    /// Takes those of them who wait and have nothing out of their lines.
    pub(crate) fn leave_lines(&mut self, mut subjects: Vec<SubjectId>) {
        let has_nothing = |uid: SubjectId| self.ledger.subject(uid).is_some_and(|view| view.settled.is_empty());
        subjects.retain(|uid| self.ledger.is_waiting(*uid) && has_nothing(*uid));
        for subject in subjects {
            let receipt = self.ledger.release(subject);
            self.note_receipt(&receipt);
        }
    }

    /// Counts those who were left to this step by all rules, once their policy is in force: first who has something, then all others
    /// in the order in which they came.
    pub(crate) fn count_left(&mut self, policy: &Arc<str>, mut left: Vec<Arc<Object>>) {
        // Whoever has something still stands in line for what it wanted, now by the limits as they are.
        let accounts: Vec<AccountId> = self.ledger.accounts_of(policy).collect();
        let receipt = self.ledger.serve(&accounts);
        self.note_receipt(&receipt);
        left.sort_by_key(|object| (!self.ledger.is_live(object.uid), object.born));
        left.dedup_by_key(|object| object.uid);
        for object in left {
            self.mark_stale(object.key.clone());
            self.recount_one(&object);
        }
    }

    /// Takes note of who was served what it waited for while something is staged: it may be counted for that now.
    pub(crate) fn note_standing(&mut self, key: &ObjectKey, subject: SubjectId) {
        if let Some(staging) = self.staging.as_mut().filter(|staging| staging.is_left(subject)) {
            staging.written.insert(key.clone());
        }
    }
}

/// The object is left at what these policies charge it.
fn leave(verdict: &mut Verdict, shadows: Missed) {
    verdict.lines.retain(|line| !shadows.contains(&line.policy));
    let news = shadows.into_iter().filter(|shadow| !verdict.missed.contains(shadow)).collect::<Missed>();
    verdict.missed.extend(news);
}
