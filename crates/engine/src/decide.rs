//! What rules and ledger say to a write: measured, decided, and told in the words of whoever refused. Nothing is changed until
//! the whole step is applied.

use families::{Denial, DenialLine, DenialReason, Operation, Refusal};
use ledger::{CHARGES_MAX, Charge, Denied, Plan, Planner, Reason, Standing, StepPlan, SubjectId, Terms};
use rules::cel::{Budget, Foresight, Known, PutOff, Question, STEP_COST_MAX, WRITE_STEPS_MAX, at_desk, within};
use rules::jsonpath::steps_taken;
use rules::{MeasureError, Subject, Verdict};
use serde_json::Value;
use smallvec::SmallVec;

use crate::command::Refused;
use crate::effects::Decision;
use crate::engine::Engine;
use crate::measured::measured;
use crate::object::{Draft, Object, ObjectKey};

/// What is said where paths take too long.
const TOO_LONG: &str = "the quotas that look at it follow paths for more steps on it than there is time for: use fewer, or shorter, paths \
                        in quotas, or a smaller object";

/// What is said where expressions are other ones each time they have been evaluated.
const CHANGES: &str =
    "the quotas that look at it changed all the while their expressions were evaluated on it: try again";

/// What rules and ledger said to a write.
#[derive(Default)]
pub(crate) struct Ruling {
    pub plan: Option<Planned>,
    /// What was decided, once for each family it was asked of.
    decided: SmallVec<[(usize, Decision); 4]>,
    /// Until when it holds.
    pub until_ms: Option<i64>,
}

/// What is still to be applied.
pub(crate) enum Planned {
    /// One subject, on accounts that are open: nearly always.
    One(Plan),
    Step(StepPlan),
}

/// A draft that was measured, and that no rule refuses.
pub(crate) struct Asked {
    pub verdict: Verdict,
    pub terms: Terms,
    pub operation: Operation,
    /// A write that reports what happened is nobody's decision.
    reports: bool,
}

/// How an object stands that is stored: it may wait where its rules have a line.
pub(crate) fn standing(verdict: &Verdict) -> Standing {
    verdict.wait.clone().map_or(Standing::Stored, Standing::MayWait)
}

impl Ruling {
    /// What an answer counts for. Where nothing changes, nothing was decided.
    pub fn of(asked: &Asked, queues: bool, is_unchanged: bool, engine: &Engine) -> Ruling {
        let mut ruling = Ruling { until_ms: asked.verdict.until_ms, ..Ruling::default() };
        if asked.reports || is_unchanged {
            return ruling;
        }
        for line in &asked.verdict.lines {
            let decision = if queues && line.in_line { Decision::Queued } else { Decision::Granted };
            let family = engine.policies.family(line.policy).map(|family| (family, decision));
            ruling.decided.extend(family.filter(|one| !ruling.decided.contains(one)));
        }
        ruling
    }

    /// Nothing to apply: it was applied with others.
    pub fn until(until_ms: Option<i64>) -> Ruling {
        Ruling { until_ms, ..Ruling::default() }
    }

    /// Counts another one with it. Each object has its own moment.
    pub fn join(&mut self, other: Ruling) {
        self.decided.extend(other.decided);
    }
}

impl Asked {
    /// It does not wait: now, or not at all.
    pub fn at_once(&mut self) {
        self.verdict.wait = None;
        self.verdict.lines.iter_mut().for_each(|line| line.in_line = false);
    }
}

impl Engine {
    /// Asks rules and ledger. `terms` is what an update is charged under; a create decides by its rules.
    pub(crate) fn decide(&mut self, key: &ObjectKey, draft: &Draft, terms: Option<Terms>) -> Result<Ruling, Refused> {
        let Some(asked) = self.ask(key, draft, terms)? else { return Ok(Ruling::default()) };
        let (charges, unopened) = self.policies.charges(&self.ledger, &asked.verdict.lines, asked.terms);
        if unopened.is_empty() {
            let plan = self.ledger.decide(draft.uid, &charges, &standing(&asked.verdict));
            let plan = plan.map_err(|denied| self.denied(denied, &charges, asked.operation))?;
            let ruling = Ruling::of(&asked, plan.queues(), plan.is_unchanged(), self);
            return Ok(Ruling { plan: Some(Planned::One(plan)), ..ruling });
        }
        let mut plan = self.ledger.plan();
        let charges = self.plan_asked(draft.uid, &asked, &mut plan)?;
        let plan = plan.decide().map_err(|denied| self.denied(denied, &charges, asked.operation))?;
        let ruling = Ruling::of(&asked, plan.queues(draft.uid), plan.is_unchanged(), self);
        Ok(Ruling { plan: Some(Planned::Step(plan)), ..ruling })
    }

    /// Measures a draft; `None` where no policy looks at it.
    pub(crate) fn ask(
        &mut self,
        key: &ObjectKey,
        draft: &Draft,
        terms: Option<Terms>,
    ) -> Result<Option<Asked>, Refused> {
        // What is known is known of the object that was written, not of those that are made with it.
        let foresight = std::mem::take(&mut self.foresight);
        if !self.ledger.is_live(draft.uid) && !self.rulebook.concerns(&key.resource, &key.namespace) {
            return Ok(None);
        }
        let (is_limited, begun) = (!matches!(foresight, Foresight::None), steps_taken());
        let mut allowance = self.allowance;
        let (mut verdict, put_off, known) = self.measure_with(foresight, &mut allowance, key, draft);
        self.allowance = allowance;
        if let Some(known) = known {
            self.known.insert(draft.uid, known);
        }
        if is_limited && steps_taken().wrapping_sub(begun) >= WRITE_STEPS_MAX {
            // What already happened is measured, whatever that takes.
            match terms {
                Some(Terms::Adopted) => verdict = self.measure(key, draft),
                _ => return Err(self.refusal(key, TOO_LONG.into())),
            }
        }
        if let Some(wanted) = put_off {
            let object = measured(&draft.value, self.is_projected(&key.resource)).into_owned();
            return Err(self.want(wanted, object));
        }
        let mut verdict = match (verdict, terms) {
            (Ok(verdict), _) => verdict,
            // What already happened cannot be refused; the audit reports what could not be measured.
            (Err(_), Some(Terms::Adopted)) => {
                self.miss(key, draft.uid);
                return Ok(None);
            }
            (Err(error), _) => {
                return Err(Refused::Unmeasurable { policy: error.policy, message: error.message });
            }
        };
        let (reports, operation) = match terms {
            None => (false, Operation::Create),
            Some(terms) => (terms == Terms::Adopted, Operation::Update),
        };
        let on = terms.unwrap_or(Terms::Enforced);
        self.leave_to_slices(&mut verdict);
        if !verdict.missed.is_empty() {
            self.missed.push((draft.uid, std::mem::take(&mut verdict.missed)));
        }
        self.leave_line(draft.uid, &mut verdict);
        if !verdict.refusals.is_empty() {
            let (charges, _) = self.policies.charges(&self.ledger, &verdict.lines, on);
            self.check_refusals(&verdict, &charges, draft.uid, terms)?;
        }
        self.check_countable(&verdict, draft.uid, terms)?;
        Ok(Some(Asked { verdict, terms: on, operation, reports }))
    }

    /// Keeps what is wanted of an object for the sender of the write, which is refused for now.
    pub(crate) fn want(&mut self, wanted: Vec<Question>, object: Value) -> Refused {
        if wanted.is_empty() {
            // What rules make of an expression that nobody evaluated is not what they say: nothing may come of it.
            return Refused::Said { family: 0, refusal: Refusal::conflict(CHANGES) };
        }
        (self.wanted, self.wanted_of) = (wanted, object);
        Refused::Bug("a write was put off that nobody sends again".into())
    }

    /// Whoever has what it waited for, and keeps it for good, does not wait again.
    pub(crate) fn leave_line(&self, subject: SubjectId, verdict: &mut Verdict) {
        let Some(family) = verdict.for_good.and_then(|policy| self.policies.family(policy)) else { return };
        if self.ledger.is_waiting(subject) {
            return;
        }
        let has = self.ledger.subject(subject).map_or_else(Vec::new, |view| view.charges);
        let is_of = |charge: &Charge| {
            let policy = self.policies.policy_of(&self.ledger, charge.account);
            policy.and_then(|policy| self.policies.family(policy)) == Some(family)
        };
        if has.iter().any(is_of) {
            verdict.wait = None;
            verdict.lines.iter_mut().for_each(|line| line.in_line = false);
        }
    }

    /// What the rules say of a draft, whatever that takes.
    pub(crate) fn measure(&self, key: &ObjectKey, draft: &Draft) -> Result<Verdict, MeasureError> {
        self.measure_with(Foresight::None, &mut { STEP_COST_MAX }, key, draft).0
    }

    fn measure_with(
        &self,
        foresight: Foresight,
        allowance: &mut u64,
        key: &ObjectKey,
        draft: &Draft,
    ) -> (Result<Verdict, MeasureError>, PutOff, Option<Box<Known>>) {
        let object = measured(&draft.value, self.is_projected(&key.resource));
        let subject = Subject::new(draft.uid, &key.resource, &key.namespace, &key.name, &object);
        let born = self.stored(key).filter(|stored| stored.uid == draft.uid).map(|stored| stored.born);
        let subject = subject.at(self.clock_ms).born(born.unwrap_or(self.revision + 1));
        let measure = || self.rulebook.measure(&subject);
        match foresight {
            Foresight::None => (self.knowing(draft.uid, &object, measure), None, None),
            foresight => at_desk(foresight, allowance, &object, measure),
        }
    }

    /// Measures an object once more in the step of its write, with what was found out for that.
    pub(crate) fn knowing<R>(&self, subject: SubjectId, object: &Value, measure: impl FnOnce() -> R) -> R {
        match self.known.get(&subject) {
            None => measure(),
            Some(known) => within(&mut { Budget::ENDLESS }, &mut Some(known.clone()), object, measure).0,
        }
    }

    /// Adds what was asked to a plan, with the parts of accounts that have to be opened for it.
    pub(crate) fn plan_asked(
        &self,
        subject: SubjectId,
        asked: &Asked,
        plan: &mut Planner<'_>,
    ) -> Result<Vec<Charge>, Refused> {
        let bug = |error: ledger::LedgerError| Refused::Bug(error.to_string());
        let (mut charges, unopened) = self.policies.charges(&self.ledger, &asked.verdict.lines, asked.terms);
        for (key, charge) in unopened {
            let account = plan.open(key, ledger::Limit::Unlimited).map_err(bug)?;
            charges.push(Charge { account, ..charge });
        }
        plan.charge(subject, &charges, &standing(&asked.verdict)).map_err(bug)?;
        Ok(charges)
    }

    pub(crate) fn apply(&mut self, ruling: Ruling) {
        for (family, decision) in ruling.decided {
            self.effects.decided.note(family, decision);
        }
        let receipt = match ruling.plan {
            None => return,
            Some(Planned::One(plan)) => self.ledger.apply(plan),
            Some(Planned::Step(plan)) => self.ledger.apply_all(plan),
        };
        self.note_receipt(&receipt);
    }

    /// Lets go of everything an object has or waits for.
    pub(crate) fn release(&mut self, object: &Object) {
        if self.ledger.is_live(object.uid) {
            let receipt = self.ledger.release(object.uid);
            self.note_receipt(&receipt);
        }
    }

    /// Counts a refusal for each family that had a part in it.
    pub(crate) fn note_refused(&mut self, refused: &Refused) {
        let mut noted: SmallVec<[usize; 4]> = SmallVec::new();
        match refused {
            Refused::Said { family, .. } => noted.push(*family),
            Refused::Denied(denials) => {
                noted.extend(denials.iter().filter_map(|denial| self.families.place(&denial.resource)));
            }
            _ => {}
        }
        noted.sort_unstable();
        noted.dedup();
        noted.into_iter().for_each(|family| self.effects.decided.note(family, Decision::Denied));
    }

    /// A rule's own refusals. On an update they count only where the object's charge on that policy grows, as with
    /// amounts: a pod that was there before its quota can still be labelled.
    fn check_refusals(
        &self,
        verdict: &Verdict,
        charges: &[Charge],
        uid: SubjectId,
        terms: Option<Terms>,
    ) -> Result<(), Refused> {
        if verdict.refusals.is_empty() || terms == Some(Terms::Adopted) {
            return Ok(());
        }
        let before = self.ledger.subject(uid);
        let grows = |policy| {
            terms.is_none()
                || charges.iter().filter(|charge| self.policies.owns(&self.ledger, policy, charge.account)).any(
                    |charge| {
                        let had = before.iter().flat_map(|view| &view.charges);
                        let had = had.into_iter().find(|had| had.account == charge.account);
                        had.is_none_or(|had| charge.amount > had.amount)
                    },
                )
        };
        let operation = if terms.is_some() { Operation::Update } else { Operation::Create };
        let mut refused: Vec<Denial> = verdict
            .refusals
            .iter()
            .filter(|refusal| refusal.always || grows(refusal.policy))
            .filter_map(|refusal| {
                let mut denial = self.policies.denial(self.rulebook.name(refusal.policy)?, operation)?;
                denial.message = Some(refusal.message.clone());
                Some(denial)
            })
            .collect();
        self.families.arrange(&mut refused);
        if refused.is_empty() { Ok(()) } else { Err(Refused::Denied(refused)) }
    }

    /// The ledger's refusals, gathered by policy.
    pub(crate) fn denied(&self, denied: Denied, charges: &[Charge], operation: Operation) -> Refused {
        let mut denials: Vec<Denial> = Vec::new();
        for line in &denied.lines {
            // Not for want of room: what the ledger says is the whole truth.
            if line.reason != Reason::OverLimit
                && let Some(mut denial) = self.policies.denial(&line.key.policy, operation)
            {
                denial.reason = match line.reason {
                    Reason::TooManyCharges => DenialReason::TooMany,
                    Reason::Full => DenialReason::LineFull,
                    Reason::Overflow => DenialReason::Overflow,
                    Reason::UnknownAccount | Reason::Negative | Reason::OverLimit => DenialReason::Rule,
                };
                denial.message = Some(match line.reason {
                    Reason::TooManyCharges => format!(
                        "more than {CHARGES_MAX} amounts of quotas apply to this object ({}): \
                         there must be fewer quotas, or shorter ones, over its namespace",
                        charges.len()
                    ),
                    _ => line.to_string(),
                });
                return Refused::Denied(vec![denial]);
            }
        }
        for line in denied.lines {
            let charge = charges.iter().find(|charge| charge.account == line.account);
            let limit = line.limit.amount().unwrap_or_default();
            let compiled = self.rulebook.id(&line.key.policy).and_then(|id| self.rulebook.compiled(id));
            let account = compiled.and_then(|one| one.accounts.iter().find(|one| one.resource == line.key.resource));
            let whole = charge.map_or(line.requested, |charge| charge.amount);
            let entry = DenialLine {
                reason: if whole > limit { DenialReason::NeverFits } else { DenialReason::Full },
                account: line.key.resource.clone(),
                requested: line.requested,
                requested_format: charge.map_or(line.format, |charge| charge.format),
                used: line.used,
                held: line.held,
                used_format: line.format,
                limit,
                limit_text: account.map_or_else(|| limit.to_string().into(), |account| account.limit_text.clone()),
            };
            let place = denials.iter().position(|denial| denial.policy == line.key.policy);
            let denial = match place {
                Some(place) => denials.get_mut(place),
                None => {
                    denials.extend(self.policies.denial(&line.key.policy, operation));
                    denials.last_mut().filter(|denial| denial.policy == line.key.policy)
                }
            };
            if let Some(denial) = denial {
                denial.reason = denial.reason.max(entry.reason);
                denial.lines.push(entry);
            }
        }
        self.families.arrange(&mut denials);
        Refused::Denied(denials)
    }
}
