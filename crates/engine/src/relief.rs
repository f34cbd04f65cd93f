//! Companions: objects that are made with another one, in the same commit, so that a quota lets it in, and that go when it goes.
//!
//! All of it is planned at once: the companions' charges, the limits that follow from them, the object's own charge. Only
//! when the ledger says yes to all is anything changed.

use std::borrow::Cow;
use std::sync::Arc;

use families::{
    Affected, COMPANIONS_MAX, Cause, ChargeLine, Companion, Denial, Families, Must, RefusedWrite, companion_uid,
    is_marked,
};
use ledger::{AccountKey, Planner, SubjectId, Terms};
use quantity::{Amount, Quantity};
use rules::policy_name;
use serde_json::json;

use crate::command::Refused;
use crate::decide::{Asked, Planned, Ruling};
use crate::engine::Engine;
use crate::follow::count_generation;
use crate::identity::moment;
use crate::object::{Draft, Object, ObjectKey};
use crate::put::Put;

/// An object on its way in that was refused.
pub(crate) struct RefusedDraft<'a> {
    pub key: &'a ObjectKey,
    pub draft: &'a Draft,
    pub terms: Option<Terms>,
    pub now_ms: i64,
}

/// What lets it in: nothing, for most.
#[derive(Default)]
pub(crate) struct Relief {
    pub companions: Vec<Put>,
    /// Policies whose limits follow.
    pub quotas: Vec<ObjectKey>,
    /// Companions that go.
    pub without: Vec<Arc<Object>>,
}

/// A companion that is measured, and not charged yet.
pub(crate) struct Prepared {
    key: ObjectKey,
    pub draft: Draft,
    before: Option<Arc<Object>>,
    quota: Option<ObjectKey>,
    pub asked: Option<Asked>,
}

impl Relief {
    /// All that is to be stored with an object.
    pub fn of(prepared: Vec<Prepared>) -> Relief {
        let quotas = prepared.iter().filter_map(|one| one.quota.clone()).collect();
        let companions = prepared.into_iter().map(|one| {
            let until_ms = one.asked.and_then(|asked| asked.verdict.until_ms);
            let (key, draft, before) = (one.key, one.draft, one.before);
            Put { key, draft, before, compiled: None, ruling: Ruling::until(until_ms), status_at: None }
        });
        Relief { companions: companions.collect(), quotas, without: Vec::new() }
    }
}

impl Engine {
    /// Asks families for what would make room for a refused object, and the ledger whether it does. The ruling is for the object
    /// and all its companions together. Changes nothing.
    pub(crate) fn relieve(
        &mut self,
        refused: &RefusedDraft<'_>,
        denials: Vec<Denial>,
    ) -> Result<(Ruling, Relief), Refused> {
        let companions = self.companions(refused, &denials);
        if companions.is_empty() {
            return Err(Refused::Denied(denials));
        }
        let prepared = match self.prepare_all(refused, companions) {
            Ok(prepared) => prepared,
            Err((_, why)) => return Err(unrelieved(&self.families, denials, &why)),
        };
        let Some(asked) = self.ask(refused.key, refused.draft, refused.terms)? else {
            return Err(Refused::Denied(denials));
        };
        let mut plan = self.ledger.plan();
        if let Err(why) = self.plan_companions(&prepared, &mut plan) {
            return Err(unrelieved(&self.families, denials, &why));
        }
        for quota in prepared.iter().filter_map(|one| one.quota.as_ref()) {
            self.plan_limits(quota, refused.now_ms, &mut plan)?;
        }
        let charges = self.plan_asked(refused.draft.uid, &asked, &mut plan)?;
        let step = plan.decide().map_err(|denied| self.denied(denied, &charges, asked.operation))?;

        let mut ruling = Ruling::of(&asked, step.queues(refused.draft.uid), false, self);
        for one in &prepared {
            if let Some(asked) = &one.asked {
                ruling.join(Ruling::of(asked, step.queues(one.draft.uid), false, self));
            }
        }
        ruling.plan = Some(Planned::Step(step));
        Ok((ruling, Relief::of(prepared)))
    }

    fn companions(&self, refused: &RefusedDraft<'_>, denials: &[Denial]) -> Vec<Companion> {
        let ObjectKey { resource, namespace, name } = refused.key;
        let charges = || self.would_charge(refused);
        let object = &refused.draft.value;
        let write = RefusedWrite { resource, namespace, name, object, charges: &charges, denials };
        let (cause, view) = (Cause::Refused(&write), self.view(refused.now_ms));
        let mut affected = self.families.iter().map(|family| family.affected(&cause, &view));
        let affected = affected.find(|list| !list.is_empty()).into_iter().flatten();
        affected
            .filter_map(|one| match one {
                Affected::Companion(companion) => Some(companion),
                Affected::Object(_) | Affected::Status(_) => None,
            })
            .collect()
    }

    /// All companions of one object, each another one; or whose fault it is, and why.
    pub(crate) fn prepare_all(
        &mut self,
        owner: &RefusedDraft<'_>,
        companions: Vec<Companion>,
    ) -> Result<Vec<Prepared>, (String, String)> {
        let mut all: Vec<Prepared> = Vec::with_capacity(companions.len());
        for companion in companions {
            let name = companion.name.clone();
            match self.prepare(owner, companion) {
                Ok(one) if all.iter().any(|known| known.key == one.key) => {
                    return Err((name, format!("another one that comes with it is {} already", one.key)));
                }
                Ok(one) => all.push(one),
                Err(why) => return Err((name, why)),
            }
        }
        Ok(all)
    }

    fn prepare(&mut self, refused: &RefusedDraft<'_>, companion: Companion) -> Result<Prepared, String> {
        let namespace = &refused.key.namespace;
        let key = ObjectKey::new(companion.resource, namespace, &companion.name);
        let quota = companion.quota.map(|(resource, name)| ObjectKey::new(resource, namespace, &name));
        if !key.fits_a_row() {
            return Err(format!("the name of {key} is too long"));
        }
        let uid = companion_uid(refused.draft.uid, companion.number);
        let before = self.stored(&key).cloned();
        if before.as_ref().is_some_and(|stored| stored.uid != uid) {
            return Err(format!("{key} exists already"));
        }
        let mut value = match &before {
            // It grows with the object.
            Some(stored) => {
                let mut value = stored.value();
                if value["spec"] != companion.object["spec"] {
                    value["spec"] = companion.object["spec"].clone();
                    count_generation(&mut value);
                }
                value
            }
            None => companion.object,
        };
        let metadata = &mut value["metadata"];
        metadata["uid"] = json!(kinds::uid::text(uid));
        if before.is_none() {
            metadata["creationTimestamp"] = json!(moment(refused.now_ms));
        }
        let draft = Draft::new(value).map_err(|error| error.to_string())?;
        let terms = before.is_some().then_some(Terms::Enforced);
        let asked = self.ask(&key, &draft, terms).map_err(|refused| self.told(refused))?;
        Ok(Prepared { key, draft, before, quota, asked })
    }

    /// Charges the companions, at once or not at all; why not.
    fn plan_companions(&self, prepared: &[Prepared], plan: &mut Planner<'_>) -> Result<(), String> {
        for one in prepared {
            let Some(asked) = &one.asked else { continue };
            let charges = self.plan_asked(one.draft.uid, asked, plan).map_err(|refused| self.told(refused))?;
            let step = plan.decide().map_err(|denied| self.told(self.denied(denied, &charges, asked.operation)))?;
            if step.queues(one.draft.uid) {
                return Err(self.lacking(one, asked));
            }
        }
        Ok(())
    }

    /// What a companion asks for, and what there is.
    fn lacking(&self, companion: &Prepared, asked: &Asked) -> String {
        let has = self.ledger.subject(companion.draft.uid).map_or_else(Vec::new, |view| view.charges);
        let mut pool = None;
        let mut parts = Vec::new();
        for charge in self.policies.charges(&self.ledger, &asked.verdict.lines, Terms::Enforced).0 {
            let (Some(balance), Some(account)) = (self.ledger.balance(charge.account), self.ledger.key(charge.account))
            else {
                continue;
            };
            let Some(left) = balance.available() else { continue };
            let had = has.iter().find(|had| had.account == charge.account).map_or(Amount::ZERO, |had| had.amount);
            let grows = charge.amount.checked_sub(had).unwrap_or(charge.amount);
            pool = pool.or_else(|| self.policies.owner(&self.ledger, charge.account));
            if grows > left.max(Amount::ZERO) {
                let show = |amount| Quantity::new(amount, charge.format);
                let (name, left) = (&account.resource, left.max(Amount::ZERO));
                parts.push(format!("requested: {name}={}, available: {name}={}", show(grows), show(left)));
            }
        }
        let pool = pool.map_or("", |key| &*key.name);
        match parts.is_empty() {
            true => format!("older claims wait in line for \"{pool}\""),
            false => format!("\"{pool}\" has too little: {}", parts.join("; ")),
        }
    }

    /// Moves the limits of a policy to what they must be after what is planned so far.
    fn plan_limits(&self, quota: &ObjectKey, now_ms: i64, plan: &mut Planner<'_>) -> Result<(), Refused> {
        let Some(stored) = self.stored(quota) else { return Ok(()) };
        let must = self.must_be(quota, Cow::Owned(stored.value()), &self.view_of(plan, now_ms));
        let Ok(Must::Be(value)) = must else { return Ok(()) };
        let Some(compiled) = self.compile(quota, &value)? else { return Ok(()) };
        let policy = policy_name(&quota.resource, &quota.namespace, &quota.name);
        for account in &compiled.accounts {
            let key = AccountKey { policy: policy.clone(), resource: account.resource.clone(), bucket: "".into() };
            let id = plan.open(key, account.limit);
            let moved = id.and_then(|id| plan.set_limit(id, account.limit));
            moved.map_err(|error| Refused::Bug(error.to_string()))?;
        }
        Ok(())
    }

    fn would_charge(&self, refused: &RefusedDraft<'_>) -> Vec<ChargeLine> {
        let Ok(verdict) = self.measure(refused.key, refused.draft) else { return Vec::new() };
        let charges = self.policies.charges(&self.ledger, &verdict.lines, Terms::Enforced).0;
        let line = |charge: ledger::Charge| {
            let key = self.ledger.key(charge.account).filter(|key| key.bucket.is_empty())?;
            let (policy, account) = (key.policy.clone(), key.resource.clone());
            Some(ChargeLine { policy, account, amount: charge.amount, format: charge.format })
        };
        charges.into_iter().filter_map(line).collect()
    }

    /// After a start: the objects that companions were made for.
    pub(crate) fn find_companioned(&mut self) {
        let is_companion = |(uid, key): (&SubjectId, &ObjectKey)| is_marked(*uid) && self.may_wait(&key.resource);
        if !self.subjects.iter().any(is_companion) {
            return;
        }
        let companions = |of: SubjectId| (0..COMPANIONS_MAX).map(move |number| companion_uid(of, number));
        let has_any = |object: &&Arc<Object>| companions(object.uid).any(|uid| self.subjects.contains_key(&uid));
        let found: Vec<_> = self.shelves.all().filter(has_any).map(|one| (one.uid, one.key.clone())).collect();
        self.companioned.extend(found);
    }

    /// A refusal in the words of whoever refused.
    fn told(&self, refused: Refused) -> String {
        match refused {
            Refused::Denied(denials) => told(&self.families, &denials),
            Refused::Said { refusal, .. } => refusal.message,
            other => format!("{other:?}"),
        }
    }
}

/// The refusal, with why nothing could be done about it.
fn unrelieved(families: &Families, mut denials: Vec<Denial>, why: &str) -> Refused {
    if let Some(first) = denials.first_mut() {
        let said = told(families, std::slice::from_ref(first));
        first.message = Some(format!("{said}; no claim can be made for it: {why}"));
    }
    Refused::Denied(denials)
}

fn told(families: &Families, denials: &[Denial]) -> String {
    let words = denials.iter().filter_map(|one| families.of_policy(&one.resource).map(|family| family.words(one).text));
    words.collect::<Vec<_>>().join("; ")
}
