//! What a ledger has that is no policy's: shadows, which count for a write that was put off, and what is left of policies that
//! are gone. Nobody is told of them; they refuse nobody, nobody waits for them, and in the end there are none.

use std::collections::BTreeSet;

use ledger::{Ledger, State, SubjectId};
use server::core::Cache;

use super::durable::{Added, Durable};
use super::naive::Sums;

const SHADOW: &str = "~s";
const RETIRED: &str = "~r";

pub fn is_apart(policy: &str) -> bool {
    policy.starts_with('~')
}

/// Whether a text tells of it. Nothing else in this world is written with a tilde.
pub fn shows_apart(text: &str) -> bool {
    text.contains('~')
}

/// What there is of it.
#[derive(Clone, Default)]
pub struct Apart {
    pub used: Sums,
    /// How many have something of each.
    subjects: Sums,
}

impl Apart {
    pub fn shadows(&self) -> BTreeSet<&str> {
        self.named(SHADOW)
    }

    pub fn retired(&self) -> BTreeSet<&str> {
        self.named(RETIRED)
    }

    fn named(&self, prefix: &str) -> BTreeSet<&str> {
        self.used.keys().map(|key| &*key.0).filter(|policy| policy.starts_with(prefix)).collect()
    }

    /// What is retired is charged no more: it changes only by those that are let off, which may have discounted it.
    pub fn judge_since(&self, before: &Apart) -> Result<(), String> {
        for (key, used) in self.used.iter().filter(|(key, _)| key.0.starts_with(RETIRED)) {
            let (Some(used_before), Some(subjects_before)) = (before.used.get(key), before.subjects.get(key)) else {
                continue;
            };
            let subjects = self.subjects.get(key).copied().unwrap_or_default();
            if subjects > *subjects_before || subjects == *subjects_before && used != used_before {
                return Err(format!("{key:?} is retired and charged more: {used}, of {subjects}"));
            }
        }
        Ok(())
    }

    /// In the end nothing is left of it.
    pub fn judge_gone(&self) -> Result<(), String> {
        match self.used.keys().next() {
            None => Ok(()),
            Some(key) => Err(format!("{key:?} is left of what is gone")),
        }
    }
}

/// Judges the accounts of it.
pub fn judge_apart(ledger: &Ledger) -> Result<Apart, String> {
    let mut apart = Apart::default();
    for (key, balance) in ledger.balances().filter(|(key, _)| is_apart(&key.policy)) {
        if balance.waiting > 0 {
            return Err(format!("somebody waits for {key}"));
        }
        if key.policy.starts_with(SHADOW) && balance.limit.amount().is_some() {
            return Err(format!("{key} counts, and has a limit"));
        }
        let place = (key.policy.to_string(), key.resource.to_string(), key.bucket.to_string());
        apart.subjects.insert(place.clone(), balance.subjects as i128);
        apart.used.insert(place, balance.used.nanos());
    }
    Ok(apart)
}

/// Subjects that no policy counts have something of it, and nothing else; and each is an object.
pub fn judge_strangers(durable: &Durable, ledger: &Ledger, live: &BTreeSet<u128>) -> Result<(), String> {
    let mut uids: Option<BTreeSet<SubjectId>> = None;
    for (id, view, _) in ledger.snapshot().subjects().filter(|(id, ..)| !live.contains(&id.0)) {
        let of_policy = |charge: &ledger::Charge| ledger.key(charge.account).is_none_or(|key| !is_apart(&key.policy));
        // That what is held was granted is judged by itself.
        let is_held = matches!(view.state, State::Held { .. });
        if is_held && !view.settled.iter().any(of_policy) {
            continue;
        }
        let is_charged = view.charges.iter().chain(&view.settled).any(of_policy);
        let waits = matches!(view.state, State::Waiting(_));
        let uids = uids.get_or_insert_with(|| durable.objects.values().map(|kept| kept.uid).collect());
        if is_charged || waits || view.charges.is_empty() || !uids.contains(&id) {
            let charged: Vec<String> =
                view.charges.iter().filter_map(|charge| Some(ledger.key(charge.account)?.to_string())).collect();
            let object = durable.objects.values().find(|kept| kept.uid == id).map(|kept| kept.key.to_string());
            let state = view.state;
            return Err(format!(
                "subjects, of which each has an object that is counted: and {} ({object:?}) has {charged:?}, {state:?}",
                id.0
            ));
        }
    }
    Ok(())
}

/// No object that a group wrote tells of it, and no reader sees it.
pub fn judge_shown(durable: &Durable, added: &Added, apart: &Apart, cache: &Cache) -> Result<(), String> {
    let written = added.events.iter().filter_map(|told| durable.objects.get(&told.key));
    for kept in written {
        if shows_apart(&kept.value.to_string()) {
            return Err(format!("{} tells what nobody is to be told of: {}", kept.key, kept.value));
        }
    }
    for policy in apart.shadows().into_iter().chain(apart.retired()) {
        let lines = families::Balances::of(cache, policy);
        if !lines.is_empty() {
            return Err(format!("readers see {policy}, which nobody is to be told of: {lines:?}"));
        }
    }
    Ok(())
}
