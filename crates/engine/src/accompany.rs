//! Objects that are written with another one, because a family says that it comes with them: decided with it, changed with it,
//! refused with it. What becomes of them when it goes, the family says as of every companion.

use std::sync::Arc;

use families::{Company, Operation, Writing};
use ledger::Terms;
use rules::cel::{Foresight, at_desk};

use crate::command::Refused;
use crate::decide::{Asked, Planned, Ruling};
use crate::engine::Engine;
use crate::measured::measured;
use crate::object::{Draft, Object, ObjectKey};
use crate::relief::{RefusedDraft, Relief};

/// An object on its way in that comes with others.
pub(crate) struct Accompanied<'a> {
    pub key: &'a ObjectKey,
    pub draft: &'a Draft,
    pub before: Option<&'a Object>,
    pub terms: Option<Terms>,
    pub now_ms: i64,
}

impl Engine {
    /// Whom an object comes with; nobody, mostly. What its sender knows of expressions is used here first.
    pub(crate) fn company(&mut self, write: &Accompanied<'_>) -> Result<Company, Refused> {
        let (mut company, mut old) = (Company::default(), None);
        let families = self.families.clone();
        for (place, family) in families.iter().enumerate() {
            let ObjectKey { resource, namespace, name } = write.key;
            if !family.manifest().accompanies || !family.may_concern(resource, namespace, &self.view(write.now_ms)) {
                continue;
            }
            let foresight = std::mem::take(&mut self.foresight);
            let (may_ask, is_last) =
                (!matches!(foresight, Foresight::None | Foresight::Last(_)), matches!(foresight, Foresight::Last(_)));
            let before = write.before.map(|before| &*old.get_or_insert_with(|| before.value()));
            let object = measured(&write.draft.value, self.is_projected(resource));
            let mut allowance = self.allowance;
            let (made, put_off, known) = {
                let (view, origin) = (self.view(write.now_ms), &self.origin);
                let writing = Writing { resource, namespace, name, object: &object, old: before, origin };
                at_desk(foresight, &mut allowance, &object, || family.accompany(&writing, &view))
            };
            self.allowance = allowance;
            if let Some(wanted) = put_off {
                return Err(self.want(wanted, object.into_owned()));
            }
            self.foresight = match known {
                Some(known) if is_last => Foresight::Last(known),
                Some(known) => Foresight::Known(known),
                None if may_ask => Foresight::Asked,
                None => Foresight::None,
            };
            let made = made.map_err(|refusal| Refused::Said { family: place, refusal })?;
            company.with.extend(made.with);
            company.without.extend(made.without);
        }
        Ok(company)
    }

    /// What the ledger says to an object and to all that come with it, at once or not at all. Changes nothing.
    pub(crate) fn rule_with(
        &mut self,
        write: &Accompanied<'_>,
        asked: Option<Asked>,
        company: Company,
    ) -> Result<(Ruling, Relief), Refused> {
        let &Accompanied { key, draft, terms, now_ms, .. } = write;
        let owner = RefusedDraft { key, draft, terms, now_ms };
        let without: Vec<Arc<Object>> =
            company.without.into_iter().filter_map(|place| self.stored(&place.into()).cloned()).collect();
        let mut prepared = self
            .prepare_all(&owner, company.with)
            .map_err(|(name, why)| self.refusal(key, format!("it comes with {name:?}, which cannot be: {why}")))?;
        let mut plan = self.ledger.plan();
        let mut charges = Vec::new();
        for one in without.iter().filter(|one| self.ledger.is_live(one.uid)) {
            plan.release(one.uid).map_err(|error| Refused::Bug(error.to_string()))?;
        }
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
        Ok((ruling, Relief { without, ..Relief::of(prepared) }))
    }
}
