//! Companions: objects that are made with another one, in the same commit, so that a quota lets it in
//! ([`families::Family::relieve`]), and that go when it goes.
//!
//! It is tried first: the companion is charged, the quota's limit follows, the object is decided again. Only when all of that
//! said yes is anything stored; else it is taken back, and nothing has changed.

use std::sync::Arc;

use families::{Affected, Cause, ChargeLine, Companion, Denial, Families, Must, RefusedWrite, companion_uid};
use ledger::Terms;
use quantity::{Amount, Quantity};
use rules::{Subject, policy_name};
use serde_json::json;
use store::Batch;

use super::command::Refused;
use super::decide::Ruling;
use super::engine::Engine;
use super::event::Publication;
use super::identity::moment;
use super::measured::measured;
use super::object::{Draft, Object, ObjectKey};
use super::put::Put;

/// An object on its way in that was refused.
pub(super) struct RefusedDraft<'a> {
    pub key: &'a ObjectKey,
    pub draft: &'a Draft,
    pub terms: Option<Terms>,
    pub dry_run: bool,
    pub now_ms: i64,
}

/// A companion that has been charged, and is not stored yet.
struct Charged {
    key: ObjectKey,
    draft: Draft,
    before: Option<Arc<Object>>,
    quota: ObjectKey,
    until_ms: Option<i64>,
}

impl Engine {
    /// Lets families make room for a refused object. The ruling is good for the state that this leaves behind.
    pub(super) fn relieve(
        &mut self,
        refusal: &RefusedDraft<'_>,
        denials: Vec<Denial>,
        batch: &mut Batch,
        out: &mut Publication,
    ) -> Result<Ruling, Refused> {
        let ObjectKey { resource, namespace, name } = refusal.key;
        let charges = || self.would_charge(refusal);
        let object = &refusal.draft.value;
        let refused = RefusedWrite { resource, namespace, name, object, charges: &charges, denials: &denials };
        let (cause, view) = (Cause::Refused(&refused), self.view(refusal.now_ms));
        let affected = self.families.iter().map(|family| family.affected(&cause, &view)).find(|list| !list.is_empty());
        let companions: Vec<Companion> = affected.into_iter().flatten().filter_map(companion).collect();
        if companions.is_empty() {
            return Err(Refused::Denied(denials));
        }
        let mut charged = Vec::with_capacity(companions.len());
        for companion in companions {
            match self.charge_companion(refusal, companion, out) {
                Ok(one) => charged.push(one),
                Err(why) => {
                    self.take_back(charged, out);
                    return Err(unrelieved(&self.families, denials, &why));
                }
            }
        }
        for one in &charged {
            self.move_limits(&one.quota, true, out);
        }
        // As if, so that nothing is opened or counted until it is sure.
        if let Err(refused) = self.decide(refusal.key, refusal.draft, refusal.terms, true) {
            self.take_back(charged, out);
            return Err(refused);
        }
        if refusal.dry_run {
            self.take_back(charged, out);
            return Ok(Ruling::default());
        }
        for one in charged {
            let Charged { key, draft, before, quota, until_ms } = one;
            let ruling = Ruling { until_ms, ..Ruling::default() };
            self.put(Put { key, draft, before, compiled: None, ruling, status_at: None }, batch, out);
            self.conform(&quota, batch, out);
        }
        self.decide(refusal.key, refusal.draft, refusal.terms, false)
    }

    fn charge_companion(
        &mut self,
        refusal: &RefusedDraft<'_>,
        companion: Companion,
        out: &mut Publication,
    ) -> Result<Charged, String> {
        let namespace = &refusal.key.namespace;
        let key = ObjectKey::new(companion.resource, namespace, &companion.name);
        let quota = ObjectKey::new(companion.quota.0, namespace, &companion.quota.1);
        if !key.fits_a_row() {
            return Err(format!("the name of {key} is too long"));
        }
        let uid = companion_uid(refusal.draft.uid, companion.number);
        let before = self.stored(&key).cloned();
        if before.as_ref().is_some_and(|stored| stored.uid != uid) {
            return Err(format!("{} exists already", key));
        }
        let mut value = match &before {
            // It grows with the object.
            Some(stored) => {
                let mut value = stored.value();
                value["spec"] = companion.object["spec"].clone();
                value
            }
            None => companion.object,
        };
        let metadata = &mut value["metadata"];
        metadata["uid"] = json!(uuid::Uuid::from_u128(uid.0).hyphenated().to_string());
        if before.is_none() {
            metadata["creationTimestamp"] = json!(moment(refusal.now_ms));
        }
        let draft = Draft::new(value).map_err(|error| error.to_string())?;
        let terms = before.is_some().then_some(Terms::Enforced);
        let ruling = self.decide(&key, &draft, terms, false).map_err(|refused| match refused {
            Refused::Denied(denials) => told(&self.families, &denials),
            other => format!("{other:?}"),
        })?;
        if ruling.plan.as_ref().is_some_and(ledger::Plan::queues) {
            return Err(self.lacking(&key, &draft));
        }
        let until_ms = ruling.until_ms;
        self.apply(ruling, out);
        Ok(Charged { key, draft, before, quota, until_ms })
    }

    /// What a companion asks for, and what there is.
    fn lacking(&self, key: &ObjectKey, draft: &Draft) -> String {
        let object = measured(&draft.value, true);
        let subject = Subject::new(draft.uid, &key.resource, &key.namespace, &key.name, &object);
        let Ok(verdict) = self.rulebook.measure(&subject) else { return "it cannot be measured".into() };
        let has = self.ledger.subject(draft.uid).map_or_else(Vec::new, |view| view.charges);
        let mut pool = None;
        let mut parts = Vec::new();
        for charge in self.policies.charges(&self.ledger, &verdict.lines, Terms::Enforced).0 {
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

    /// The limits of a quota as they are to be kept now, or as they are stored.
    fn move_limits(&mut self, quota: &ObjectKey, kept: bool, out: &mut Publication) {
        let Some(mut value) = self.stored(quota).map(|stored| stored.value()) else { return };
        if kept && let Ok(Must::Be(must)) = self.must_be(quota, value.clone(), self.clock_ms) {
            value = must;
        }
        if let Ok(Some(compiled)) = self.compile(quota, &value) {
            let policy = policy_name(&quota.resource, &quota.namespace, &quota.name);
            if let Err(error) = self.open_accounts(&policy, &compiled, out) {
                tracing::error!(%error, %policy, "the limits of a quota could not be moved: a bug");
            }
        }
    }

    /// Leaves everything as it was before companions were charged.
    fn take_back(&mut self, charged: Vec<Charged>, out: &mut Publication) {
        for one in charged.into_iter().rev() {
            match one.before {
                Some(stored) => self.recount_one(&stored, out),
                None if self.ledger.is_live(one.draft.uid) => {
                    let receipt = self.ledger.release(one.draft.uid);
                    self.note_receipt(&receipt, out);
                }
                None => {}
            }
            self.move_limits(&one.quota, false, out);
        }
    }

    fn would_charge(&self, refusal: &RefusedDraft<'_>) -> Vec<ChargeLine> {
        let (key, draft) = (refusal.key, refusal.draft);
        let object = measured(&draft.value, self.projected_resources.contains(&key.resource));
        let subject = Subject::new(draft.uid, &key.resource, &key.namespace, &key.name, &object);
        let Ok(verdict) = self.rulebook.measure(&subject.at(self.clock_ms)) else { return Vec::new() };
        let charges = self.policies.charges(&self.ledger, &verdict.lines, Terms::Enforced).0;
        charges.into_iter().filter_map(|charge| self.charge_line(charge)).collect()
    }

    fn charge_line(&self, charge: ledger::Charge) -> Option<ChargeLine> {
        let key = self.ledger.key(charge.account).filter(|key| key.bucket.is_empty())?;
        let (policy, account) = (key.policy.clone(), key.resource.clone());
        Some(ChargeLine { policy, account, amount: charge.amount, format: charge.format })
    }
}

fn companion(affected: Affected) -> Option<Companion> {
    match affected {
        Affected::Companion(companion) => Some(companion),
        Affected::Object(_) | Affected::Status(_) => None,
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
    let words = denials.iter().filter_map(|one| families.of_policy(&one.resource).map(|family| family.words(one)));
    words.collect::<Vec<_>>().join("; ")
}
