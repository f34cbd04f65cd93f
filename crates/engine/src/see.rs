//! Sights: objects that somebody else stores, as they are there. The engine then runs over a mirror of them, and decides with
//! [`Engine::hold`] what they may become.
//!
//! What is seen has happened: it is charged as it is, and never refused. It is not told back; whatever follows from it is
//! ([`crate::Effect`]), because it is still to be done where objects are stored. An object that has another's name has taken its
//! place: the other is gone, with all that it was charged and all that was held for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledger::{AccountKey, Charge, SubjectId, Terms};
use quantity::Quantity;
use rules::GroupResource;
use rules::cel::Foresight;

use crate::decide::Ruling;
use crate::engine::Engine;
use crate::follow::Changed;
use crate::object::{Draft, Object, ObjectKey};

/// One object as it is where it is stored.
#[derive(Debug)]
pub struct Sight {
    pub key: ObjectKey,
    /// None where nothing has this name any more.
    pub draft: Option<Draft>,
    /// Whether something that is held for the object may still be stored after this: then it stays held, beside what the object
    /// takes as it is. Otherwise this is what became of it.
    pub keeps_hold: bool,
    pub now_ms: i64,
}

impl Engine {
    /// Takes up what is stored elsewhere.
    pub fn see(&mut self, sight: Sight) {
        let Sight { key, draft, keeps_hold, now_ms } = sight;
        self.origin = self.own.clone();
        self.foresight = Foresight::None;
        self.known.clear();
        self.missed.clear();
        self.advance(now_ms);
        self.bring_up(&key.namespace, now_ms);
        let moved_from = self.touched.len();
        let (told, bytes) = (self.writes.len(), self.written_bytes);
        let stored = self.stored(&key).cloned();
        let is_same = |stored: &Arc<Object>| draft.as_ref().is_some_and(|draft| draft.uid == stored.uid);
        let (same, gone) = match stored {
            Some(stored) if is_same(&stored) => (Some(stored), None),
            other => (None, other),
        };
        if let Some(gone) = gone {
            self.delete(gone, None);
        }
        if let Some(draft) = draft {
            self.take_in(&key, draft, same, keeps_hold);
        }
        // Whoever told it knows it.
        self.writes.truncate(told);
        self.written_bytes = bytes;
        self.follow(moved_from, now_ms);
    }

    /// Lets go of everything of a subject that is stored nowhere: what is held for it, and what it took when it was seen the last
    /// time, before a start that did not see it any more.
    pub fn give_up(&mut self, subject: SubjectId, now_ms: i64) {
        self.origin = self.own.clone();
        self.advance(now_ms);
        let moved_from = self.touched.len();
        if self.ledger.is_live(subject) {
            let receipt = self.ledger.release(subject);
            self.note_receipt(&receipt);
        }
        self.follow(moved_from, now_ms);
    }

    /// Holds room on a policy's accounts for a subject that is stored nowhere, in place of what it held, whatever the limits: it was
    /// given up here, and where objects are stored somebody may still have it. Nothing of it is nothing held.
    pub fn keep_back(&mut self, subject: SubjectId, policy: &str, amounts: &[(Arc<str>, Quantity)], now_ms: i64) {
        self.origin = self.own.clone();
        self.advance(now_ms);
        let moved_from = self.touched.len();
        let charge = |(resource, amount): &(Arc<str>, Quantity)| {
            let account = self.ledger.account(&AccountKey::new(policy, resource, ""))?;
            Some(Charge::new(account, amount.amount(), amount.format()))
        };
        let charges: Vec<Charge> = amounts.iter().filter_map(charge).collect();
        match self.ledger.keep_back(subject, &charges, i64::MAX) {
            Ok(receipt) => self.note_receipt(&receipt),
            Err(denied) => tracing::error!(policy, %denied, "what is kept back could not be held: a bug"),
        }
        self.follow(moved_from, now_ms);
    }

    fn take_in(&mut self, key: &ObjectKey, draft: Draft, before: Option<Arc<Object>>, keeps_hold: bool) {
        let stays_held = keeps_hold && self.ledger.is_held(draft.uid);
        let ruling = match stays_held {
            true => Ok(Ruling::default()),
            false => self.decide(key, &draft, Some(Terms::Adopted)),
        };
        let ruling = ruling.unwrap_or_else(|refused| {
            tracing::error!(%key, ?refused, "an object that is there could not be counted: a bug");
            Ruling::default()
        });
        let compiled = self.compile_or_deny(key, &draft.value);
        self.note_due(key, ruling.until_ms);
        self.apply(ruling);
        self.note_missed(key, draft.uid);
        let (object, value) = self.store(draft, key, before.clone());
        let seen = self.settle(object, &value, compiled, None).object;
        if stays_held {
            self.recount_one(&seen);
        }
        self.changed.push(Changed { before, after: Some(seen), tree: None });
    }
}

/// What somebody has to know who decides which objects are seen.
impl Engine {
    /// The resources that some policy counts, with the only namespaces where one does ("" for objects in none); none of these where
    /// it may be any.
    pub fn counted_resources(&self) -> BTreeMap<GroupResource, Option<BTreeSet<Arc<str>>>> {
        self.rulebook.resources().map(|(resource, namespaces)| (resource.clone(), namespaces)).collect()
    }

    /// Whether objects of a resource are policies.
    pub fn is_policy(&self, resource: &GroupResource) -> bool {
        self.policy_resources.contains(resource)
    }

    /// The policies that count objects of a resource in a namespace, by name.
    pub fn counting(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<str>> {
        self.rulebook.looking_at(resource, namespace)
    }

    /// A number that is another whenever these may be.
    pub fn rules_changed(&self) -> u64 {
        self.rulebook.changes()
    }
}
