//! What rules and ledger say to a write: measured, decided, and told in the words of whoever refused.

use families::{Denial, DenialLine, Operation};
use ledger::{CHARGES_MAX, Denied, Plan, Reason, Standing, SubjectId, Terms};
use rules::cel::at_desk;
use rules::{Subject, Verdict};
use smallvec::SmallVec;

use super::command::Refused;
use super::engine::Engine;
use super::event::{Decision, Publication};
use super::measured::measured;
use super::object::{Draft, Object, ObjectKey};
use super::policies::open_parts;

/// What rules and ledger said to a write.
#[derive(Default)]
pub(super) struct Ruling {
    pub plan: Option<Plan>,
    /// Until when it holds.
    pub until_ms: Option<i64>,
}

/// How an object stands that is stored: it may wait where its rules have a line.
pub(super) fn standing(verdict: &Verdict) -> Standing {
    verdict.wait.clone().map_or(Standing::Stored, Standing::MayWait)
}

impl Engine {
    /// Asks rules and ledger. `terms` is what an update is charged under; a create decides by its rules.
    pub(super) fn decide(
        &mut self,
        key: &ObjectKey,
        draft: &Draft,
        terms: Option<Terms>,
        dry_run: bool,
    ) -> Result<Ruling, Refused> {
        // What is known is known of the object that was written, not of those that are made with it.
        let foresight = std::mem::take(&mut self.foresight);
        if !self.ledger.is_live(draft.uid) && !self.rulebook.concerns(&key.resource, &key.namespace) {
            return Ok(Ruling::default());
        }
        let object = measured(&draft.value, self.is_projected(&key.resource));
        let subject = Subject::new(draft.uid, &key.resource, &key.namespace, &key.name, &object);
        let born = self.stored(key).filter(|stored| stored.uid == draft.uid).map(|stored| stored.born);
        let subject = subject.at(self.clock_ms).born(born.unwrap_or(self.revision + 1));
        let (measured, wanted) = at_desk(foresight, &object, || self.rulebook.measure(&subject));
        if !wanted.is_empty() {
            self.wanted = wanted;
            self.wanted_of = object.into_owned();
            return Err(Refused::Bug("a write was put off that nobody sends again".into()));
        }
        let verdict = match (measured, terms) {
            (Ok(verdict), _) => verdict,
            // What already happened cannot be refused; the audit reports what could not be measured.
            (Err(_), Some(Terms::Adopted)) => return Ok(Ruling::default()),
            (Err(error), _) => {
                return Err(Refused::Unmeasurable { policy: error.policy, message: error.message });
            }
        };
        let until_ms = verdict.until_ms;
        // A write that reports what happened is nobody's decision, and nothing that waits is served for it.
        let (reports, operation) = match terms {
            None => (false, Operation::Create),
            Some(terms) => (terms == Terms::Adopted, Operation::Update),
        };
        let on = terms.unwrap_or(Terms::Enforced);
        let (charges, _) = self.policies.charges(&self.ledger, &verdict.lines, on);
        self.check_refusals(&verdict, &charges, draft.uid, terms)?;
        self.check_countable(&verdict, draft.uid, terms)?;
        let standing = standing(&verdict);
        let plan = self.decide_lines(draft.uid, &verdict.lines, on, &standing, operation, dry_run)?;
        if !dry_run && !reports {
            self.note_decided(&verdict.lines, &plan);
        }
        Ok(Ruling { plan: Some(plan), until_ms })
    }

    pub(super) fn apply(&mut self, ruling: Ruling, out: &mut Publication) {
        if let Some(plan) = ruling.plan {
            let receipt = self.ledger.apply(plan);
            self.note_receipt(&receipt, out);
        }
    }

    /// Lets go of everything an object has or waits for.
    pub(super) fn release(&mut self, object: &Object, out: &mut Publication) {
        if self.ledger.is_live(object.uid) {
            let receipt = self.ledger.release(object.uid);
            self.note_receipt(&receipt, out);
        }
    }

    fn decide_lines(
        &mut self,
        subject: SubjectId,
        lines: &[rules::Line],
        terms: Terms,
        standing: &Standing,
        operation: Operation,
        dry_run: bool,
    ) -> Result<Plan, Refused> {
        let (charges, unopened) = self.policies.charges(&self.ledger, lines, terms);
        let denied = |engine: &Self, denied, charges: &[_]| engine.denied(denied, charges, operation);
        let plan = self.ledger.decide(subject, &charges, standing).map_err(|no| denied(self, no, &charges))?;
        if unopened.is_empty() || dry_run {
            return Ok(plan);
        }
        // Parts of accounts are opened only once the limited accounts agreed: a refusal changes nothing.
        open_parts(&mut self.ledger, unopened).map_err(|error| Refused::Bug(error.to_string()))?;
        let (charges, _) = self.policies.charges(&self.ledger, lines, terms);
        self.ledger.decide(subject, &charges, standing).map_err(|no| denied(self, no, &charges))
    }

    /// Counts a decision for each family it was asked of. Where nothing changes, nothing was decided.
    fn note_decided(&mut self, lines: &[rules::Line], plan: &Plan) {
        if plan.is_unchanged() {
            return;
        }
        let mut noted: SmallVec<[(usize, Decision); 4]> = SmallVec::new();
        for line in lines {
            let decision = if plan.queues() && line.in_line { Decision::Queued } else { Decision::Granted };
            let Some(family) = self.policies.family(line.policy) else { continue };
            if !noted.contains(&(family, decision)) {
                noted.push((family, decision));
                self.decided.note(family, decision);
            }
        }
    }

    /// Counts a refusal for each family that had a part in it.
    pub(super) fn note_refused(&mut self, refused: &Refused) {
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
        noted.into_iter().for_each(|family| self.decided.note(family, Decision::Denied));
    }

    /// A rule's own refusals. On an update they count only where the object's charge on that policy grows, as with
    /// amounts: a pod that was there before its quota can still be labelled.
    fn check_refusals(
        &self,
        verdict: &Verdict,
        charges: &[ledger::Charge],
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
    fn denied(&self, denied: Denied, charges: &[ledger::Charge], operation: Operation) -> Refused {
        let mut denials: Vec<Denial> = Vec::new();
        for line in &denied.lines {
            // Not for want of room: what the ledger says is the whole truth.
            if line.reason != Reason::OverLimit
                && let Some(mut denial) = self.policies.denial(&line.key.policy, operation)
            {
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
            let entry = DenialLine {
                account: line.key.resource.clone(),
                requested: line.requested,
                requested_format: charge.map_or(line.format, |charge| charge.format),
                used: line.used,
                held: line.held,
                used_format: line.format,
                limit,
                limit_text: account.map_or_else(|| limit.to_string().into(), |account| account.limit_text.clone()),
            };
            match denials.iter_mut().find(|denial| denial.policy == line.key.policy) {
                Some(denial) => denial.lines.push(entry),
                None => {
                    if let Some(mut denial) = self.policies.denial(&line.key.policy, operation) {
                        denial.lines.push(entry);
                        denials.push(denial);
                    }
                }
            }
        }
        self.families.arrange(&mut denials);
        Refused::Denied(denials)
    }
}
