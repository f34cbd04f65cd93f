//! Mistakes of a family: everything is asked of the real one, and one answer is wrong.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use families::{
    Affected, Balances, Book, Cause, Change, Company, Denial, Family, Manifest, Must, Noted, PolicyObject, Projected,
    Record, Refusal, Uncompiled, View, Words, World, Writing,
};
use ledger::{CHARGE_MAX, Limit};
use quantity::Amount;
use rules::{Compiled, GroupResource, Measure, MeasureError, Subject, Verdict, policy_name};
use serde_json::Value;

use super::mutation::Mutation;

/// What a family is not told, and has to know for some mistakes.
#[derive(Default)]
pub struct Lies {
    /// For which staging a policy is compiled, none is 0; and which of them is under way.
    pub compiles_for: AtomicU64,
    pub staging: AtomicU64,
    /// Whether something is being written, and not only counted.
    pub is_writing: AtomicBool,
}

pub fn of(mutation: Mutation, inner: Arc<dyn Family>, lies: &Arc<Lies>) -> Arc<dyn Family> {
    Arc::new(Liar { inner, mutation, lies: lies.clone(), seen: Mutex::default() })
}

struct Liar {
    inner: Arc<dyn Family>,
    mutation: Mutation,
    lies: Arc<Lies>,
    /// What each policy said when it was first compiled.
    seen: Mutex<BTreeMap<Arc<str>, Value>>,
}

struct LyingMeasure {
    inner: Arc<dyn Measure>,
    mutation: Mutation,
    is_edited: bool,
    lies: Arc<Lies>,
    compiled_for: u64,
}

impl LyingMeasure {
    /// Whether it is a shadow's, and does not see what is written.
    fn is_blind(&self) -> bool {
        self.compiled_for > 0
            && self.compiled_for == self.lies.staging.load(Ordering::Relaxed)
            && self.lies.is_writing.load(Ordering::Relaxed)
    }
}

impl Measure for LyingMeasure {
    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let (before, until_ms) = (out.lines.len(), out.until_ms);
        self.inner.measure(subject, out)?;
        let mut said: Vec<_> = out.lines.drain(before..).collect();
        let is_claim = &*subject.resource.resource == "resourcequotaclaims";
        match self.mutation {
            Mutation::ForgetsParts if self.is_edited => said.retain(|line| line.bucket.is_none()),
            Mutation::ShadowIsBlind if self.is_blind() => said.clear(),
            Mutation::ForgetsAClaim if is_claim && subject.name == "c1" => said.clear(),
            // Nobody is asked whether there is room.
            Mutation::ChargesTheDenied if is_claim => said.iter_mut().for_each(|line| line.along = true),
            Mutation::Orgs(mistake) => {
                mistake.charge(subject, &mut said);
                if mistake.forgets_the_moment(subject) {
                    out.until_ms = until_ms;
                }
            }
            Mutation::Karmada(mistake) => mistake.charge(subject, &mut said),
            Mutation::DropsWhatIsTooMuch if said.iter().any(|line| line.amount > CHARGE_MAX) => said.clear(),
            _ => {}
        }
        out.lines.extend(said);
        Ok(())
    }

    fn may_change_with_time(&self, text: &str) -> bool {
        self.inner.may_change_with_time(text)
    }

    fn evaluates(&self) -> bool {
        self.inner.evaluates()
    }
}

impl Liar {
    /// Whether the policy said something else at first.
    fn is_edited(&self, policy: &PolicyObject<'_>) -> bool {
        let name = policy_name(policy.resource, policy.namespace, policy.name);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen.entry(name).or_insert_with(|| policy.object["spec"].clone()) != policy.object["spec"]
    }
}

impl Family for Liar {
    fn manifest(&self) -> &Manifest {
        self.inner.manifest()
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        // Rules that lie are not taken over by those who do not.
        let mut object = policy.object.clone();
        if self.mutation == Mutation::ForgetsSamples {
            object["spec"]["usage"].take();
        }
        if let Mutation::Orgs(mistake) = self.mutation {
            mistake.policy(&mut object);
        }
        let mut compiled = match self.inner.compile(&PolicyObject { in_force: None, object: &object, ..*policy }, world)
        {
            Err(_) if self.mutation == Mutation::FailsOpen => {
                return Ok(Compiled { accounts: vec![], rules: vec![], fingerprint: vec![], until_ms: None });
            }
            compiled => compiled?,
        };
        match self.mutation {
            Mutation::Orgs(mistake) => mistake.compiled(policy.resource, &mut compiled),
            Mutation::KeepsOldRules => compiled.fingerprint.clear(),
            Mutation::ShiftsAccounts if compiled.accounts.len() > 1 => {
                let (first, rest) = compiled.accounts.split_at_mut(1);
                std::mem::swap(&mut first[0].resource, &mut rest[0].resource);
            }
            Mutation::CountsAGrantTwice if &*policy.resource.resource == "effectivequotagrants" => {
                for account in &mut compiled.accounts {
                    if let Limit::Enforced(limit) = account.limit {
                        account.limit = Limit::Enforced(limit.checked_add(limit).unwrap_or(limit));
                    }
                }
            }
            Mutation::NeverRefuses => {
                let limits = compiled.accounts.iter_mut().map(|account| &mut account.limit);
                limits.for_each(|limit| {
                    if matches!(limit, Limit::Enforced(_)) {
                        *limit = Limit::Enforced(Amount::from_units(1_000_000_000));
                    }
                });
            }
            _ => {}
        }
        let is_edited = self.is_edited(policy);
        let compiled_for = self.lies.compiles_for.load(Ordering::Relaxed);
        for rule in &mut compiled.rules {
            let (inner, mutation, lies) = (rule.measure.clone(), self.mutation, self.lies.clone());
            rule.measure = Arc::new(LyingMeasure { inner, mutation, is_edited, lies, compiled_for });
        }
        Ok(compiled)
    }

    fn measuring(&self) -> String {
        self.inner.measuring()
    }

    fn affected(&self, cause: &Cause<'_>, view: &dyn View) -> Vec<Affected> {
        match (self.mutation, cause) {
            (Mutation::ForgetsKept, Cause::Moved { .. }) => Vec::new(),
            _ => self.inner.affected(cause, view),
        }
    }

    fn may_concern(&self, resource: &GroupResource, namespace: &str, world: &dyn World) -> bool {
        self.inner.may_concern(resource, namespace, world)
    }

    fn must_be(&self, object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
        match self.mutation {
            Mutation::Orgs(mistake) if mistake.leaves_as_it_is(object.resource) => Ok(Must::AsItIs),
            Mutation::Karmada(mistake) if mistake.leaves_as_it_is(object.resource) => Ok(Must::AsItIs),
            _ => self.inner.must_be(object, view),
        }
    }

    fn check(&self, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
        match self.mutation {
            Mutation::Karmada(mistake) if mistake.lets_pass(change.resource) => Ok(()),
            _ => self.inner.check(change, view),
        }
    }

    fn accompany(&self, writing: &Writing<'_>, view: &dyn View) -> Result<Company, Refusal> {
        match self.mutation {
            Mutation::ForgetsCompany => Ok(Company::default()),
            _ => self.inner.accompany(writing, view),
        }
    }

    fn records(&self, noted: &Noted<'_>, view: &dyn View) -> Vec<Record> {
        let mut records = self.inner.records(noted, view);
        match (self.mutation, noted) {
            (Mutation::TellsNobody, Noted::Written { .. }) => records.retain(|record| record.book != Book::Outbox),
            (Mutation::ForgetsDenials, Noted::Refused(_)) => records.clear(),
            _ => {}
        }
        records
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        self.inner.project(resource, object, balances)
    }

    fn words(&self, denial: &Denial) -> Words {
        self.inner.words(denial)
    }
}
