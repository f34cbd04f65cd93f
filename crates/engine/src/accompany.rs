//! Objects that are written with another one, because a family says that it comes with them: decided with it, changed with it,
//! refused with it. What becomes of them when it goes, the family says as of every companion.

use families::{Companion, Operation, Writing};
use ledger::Terms;

use crate::command::Refused;
use crate::decide::{Asked, Planned, Ruling};
use crate::engine::Engine;
use crate::object::{Draft, Object, ObjectKey};
use crate::relief::{Prepared, RefusedDraft, Relief};

/// An object on its way in that comes with others.
pub(crate) struct Accompanied<'a> {
    pub key: &'a ObjectKey,
    pub draft: &'a Draft,
    pub before: Option<&'a Object>,
    pub terms: Option<Terms>,
    pub now_ms: i64,
}

impl Engine {
    /// Whom an object comes with; nobody, mostly.
    pub(crate) fn company(&self, write: &Accompanied<'_>) -> Result<Vec<Companion>, Refused> {
        let mut company = Vec::new();
        let mut old = None;
        for (place, family) in self.families.iter().enumerate() {
            if !family.manifest().accompanies {
                continue;
            }
            let view = self.view(write.now_ms);
            let ObjectKey { resource, namespace, name } = write.key;
            if !family.may_accompany(resource, &view) {
                continue;
            }
            let before = write.before.map(|before| &*old.get_or_insert_with(|| before.value()));
            let object = &write.draft.value;
            let writing = Writing { resource, namespace, name, object, old: before, origin: &self.origin };
            let companions = family.accompany(&writing, &view);
            company.extend(companions.map_err(|refusal| Refused::Said { family: place, refusal })?);
        }
        Ok(company)
    }

    /// What the ledger says to an object and to all that come with it, at once or not at all. Changes nothing.
    pub(crate) fn rule_with(
        &mut self,
        write: &Accompanied<'_>,
        asked: Option<Asked>,
        company: Vec<Companion>,
    ) -> Result<(Ruling, Relief), Refused> {
        let &Accompanied { key, draft, terms, now_ms, .. } = write;
        let owner = RefusedDraft { key, draft, terms, now_ms };
        let mut prepared: Vec<Prepared> = Vec::with_capacity(company.len());
        for companion in company {
            let name = companion.name.clone();
            let one = self
                .prepare(&owner, companion)
                .map_err(|why| self.refusal(key, format!("it comes with {name:?}, which cannot be: {why}")))?;
            prepared.push(one);
        }
        let mut plan = self.ledger.plan();
        let mut charges = Vec::new();
        for one in &mut prepared {
            if let Some(asked) = &mut one.asked {
                asked.at_once();
                charges.extend(self.plan_asked(one.draft.uid, asked, &mut plan)?);
            }
        }
        if let Some(asked) = &asked {
            charges.extend(self.plan_asked(draft.uid, asked, &mut plan)?);
        }
        let operation = if write.before.is_some() { Operation::Update } else { Operation::Create };
        let step = plan.decide().map_err(|denied| self.denied(denied, &charges, operation))?;
        let mut ruling = Ruling::default();
        if let Some(asked) = &asked {
            ruling = Ruling::of(asked, step.queues(draft.uid), false, self);
        }
        for one in &prepared {
            if let Some(asked) = &one.asked {
                ruling.join(Ruling::of(asked, false, false, self));
            }
        }
        ruling.plan = Some(Planned::Step(step));
        Ok((ruling, Relief::of(prepared)))
    }
}
