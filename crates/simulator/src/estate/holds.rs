//! Objects that are admitted here and stored by others: held, and then seen, given up, or forgotten until their time is over.
//! What is held is compared with what was granted, hold by hold.

use std::collections::BTreeMap;

use ledger::{Ledger, State, SubjectId};
use serde_json::{Value, json};
use server::core::{Expect, ObjectKey};
use uuid::Uuid;

use super::answers::is_consumer;
use super::durable::{Added, Durable, Kept};
use super::judge::{Found, named};
use super::naive::Sums;
use super::request::{Request, Verb};
use super::weather::Script;

/// The longest that anything is held here.
const HELD_MAX_MS: u64 = 200_000;

type Place = (String, String, String);

/// What somebody was granted and nobody has stored yet.
#[derive(Clone, Debug)]
pub struct Granted {
    pub key: ObjectKey,
    /// The object as it is going to be stored, with its uid.
    pub value: Value,
    pub expires_at_ms: i64,
    /// What is held for it, as the ledger had it last; none before anybody looked.
    amounts: Option<Sums>,
}

/// What a group did with a hold, after so many of its events.
#[derive(Clone, Debug)]
pub struct News {
    after_events: usize,
    subject: SubjectId,
    /// None where it was given up.
    granted: Option<Granted>,
}

impl News {
    /// What an answer means. `clock_ms` is the engine's.
    pub fn of(request: &Request, uid: u128, after_events: usize, clock_ms: i64) -> News {
        let granted = match &request.verb {
            Verb::Hold { value, lasts_ms } => {
                let (key, expires_at_ms) = (request.key.clone(), clock_ms + lasts_ms);
                Some(Granted { key, value: with_uid(value, uid), expires_at_ms, amounts: None })
            }
            _ => None,
        };
        News { after_events, subject: SubjectId(uid), granted }
    }
}

impl Durable {
    /// Takes in what a group did with holds: a write of an object settles what was held for it before, and time ends the rest.
    pub fn apply_holds(&mut self, added: &Added, before: &BTreeMap<ObjectKey, Kept>) {
        let mut news = added.holds.iter().peekable();
        for at in 0..=added.events.len() {
            while let Some(one) = news.next_if(|one| one.after_events <= at) {
                self.take_in_hold(one);
            }
            if let Some(told) = added.events.get(at) {
                let objects = [before.get(&told.key), self.objects.get(&told.key)];
                let uids: Vec<SubjectId> = objects.into_iter().flatten().map(|kept| kept.uid).collect();
                uids.iter().for_each(|uid| drop(self.holds.remove(uid)));
            }
        }
        let now_ms = self.told_ms;
        self.holds.retain(|_, granted| granted.expires_at_ms > now_ms);
    }

    fn take_in_hold(&mut self, news: &News) {
        let earlier = self.holds.remove(&news.subject);
        let Some(mut granted) = news.granted.clone() else { return };
        let until_ms = earlier.map_or(i64::MIN, |earlier| earlier.expires_at_ms);
        granted.expires_at_ms = granted.expires_at_ms.max(until_ms);
        self.holds.insert(news.subject, granted);
    }
}

impl Found {
    /// What a subject occupies: the larger of what it is charged and of what is held for it.
    pub fn occupied(&self, subject: SubjectId) -> Sums {
        let mut occupied = self.charged.get(&subject).cloned().unwrap_or_default();
        for (key, amount) in self.held.get(&subject).into_iter().flatten() {
            let most = occupied.entry(key.clone()).or_default();
            *most = (*most).max(*amount);
        }
        occupied
    }

    /// What is nobody else's of an account: what is used of it, and what is held beyond that.
    pub fn taken(&self, key: &Place) -> i128 {
        let beyond = self.held.iter().filter_map(|(subject, held)| {
            let charged = self.charged.get(subject).and_then(|charged| charged.get(key)).copied().unwrap_or_default();
            Some((held.get(key)? - charged).max(0))
        });
        self.used.get(key).copied().unwrap_or_default() + beyond.sum::<i128>()
    }
}

/// Each hold that was granted is there until its moment, and no other is; what is held becomes less only with its policy.
pub fn judge_holds(durable: &mut Durable, ledger: &Ledger, added: &Added, found: &mut Found) -> Result<(), String> {
    let mut held: BTreeMap<SubjectId, Sums> = BTreeMap::new();
    for (subject, view, _) in ledger.snapshot().subjects() {
        let State::Held { expires_at_ms: until_ms } = view.state else { continue };
        let amounts = named(ledger, &view.charges);
        let granted = durable.holds.get(&subject);
        let granted =
            granted.ok_or_else(|| format!("H1: {:x} is held {amounts:?}, which nobody was granted", subject.0))?;
        if granted.expires_at_ms != until_ms {
            let expected = granted.expires_at_ms;
            return Err(format!("H2: {} is held until {until_ms}, and was granted until {expected}", granted.key));
        }
        held.insert(subject, amounts);
    }
    let is_edited = |policy: &str| added.events.iter().any(|told| told.key.to_string() == policy);
    for (subject, granted) in &mut durable.holds {
        let now = held.remove(subject).unwrap_or_default();
        let is_new = added.holds.iter().any(|news| news.subject == *subject);
        for (key, amount) in granted.amounts.iter().flatten().filter(|_| !is_new && !added.is_first) {
            let has = now.get(key).copied();
            let is_limited = found.limits.contains_key(&(key.0.clone(), key.1.clone()));
            if has != Some(*amount) && is_limited && !is_edited(&key.0) {
                return Err(format!("H3: {} was held {amount} of {key:?}, and is held {has:?}", granted.key));
            }
        }
        found.held.insert(*subject, now.clone());
        granted.amounts = Some(now);
    }
    Ok(())
}

/// What one hold took is what its object would, and fits.
pub fn judge_held(request: &Request, uid: u128, before: &Durable, was: &Found, is: &Found) -> Result<(), String> {
    let Verb::Hold { value, .. } = &request.verb else { return Ok(()) };
    let (subject, told) = (SubjectId(uid), request.told());
    let mut stored = before.stored();
    let shelf = stored.objects.entry(request.key.resource.to_string()).or_default();
    shelf.retain(|one| super::naive::uid(one) != uid);
    shelf.push(with_uid(value, uid).into());
    let mut wanted = stored.expected().charged.remove(&uid).unwrap_or_default();
    wanted.retain(|_, amount| *amount > 0);
    for (key, amount) in was.held.get(&subject).into_iter().flatten() {
        let most = wanted.entry(key.clone()).or_default();
        *most = (*most).max(*amount);
    }
    let held = is.held.get(&subject).cloned().unwrap_or_default();
    if held != wanted {
        return Err(format!("H4: {told}: {held:?} is held, and not {wanted:?}"));
    }
    let had = was.occupied(subject);
    for (key, now) in is.occupied(subject) {
        let grew = now > had.get(&key).copied().unwrap_or_default();
        let limit = is.limits.get(&(key.0.clone(), key.1.clone())).copied().flatten();
        if grew && key.2.is_empty() && limit.is_some_and(|limit| is.taken(&key) > limit) {
            return Err(format!("A3: {told}: held, and {key:?} is over its limit: {}", is.taken(&key)));
        }
    }
    Ok(())
}

/// The uid of an object, if it has one.
pub fn uid_of(value: &Value) -> Option<u128> {
    value["metadata"]["uid"].as_str().and_then(|text| Uuid::parse_str(text).ok()).map(|uid| uid.as_u128())
}

pub fn with_uid(value: &Value, uid: u128) -> Value {
    let mut value = value.clone();
    value["metadata"]["uid"] = json!(Uuid::from_u128(uid).to_string());
    value
}

impl Script<'_> {
    /// Something is admitted that others are about to store; or they have, or will not.
    pub(super) fn hold(&mut self) {
        let holds: Vec<(SubjectId, ObjectKey, Value)> = self.seen.holds.iter().map(one_of).collect();
        if !holds.is_empty() && !self.chance(3) {
            let (subject, key, value) = holds[self.rng.index(holds.len())].clone();
            return match self.seen.objects.get(&key) {
                _ if self.chance(4) => self.ask(key, Verb::Drop { uid: subject.0 }),
                // It is told as something that happened.
                Some(kept) if kept.uid == subject => {
                    self.ask(key, Verb::Update { value, expect: Expect::default(), status: true });
                }
                Some(_) => self.remove(key),
                None => self.ask(key, Verb::Create(value)),
            };
        }
        let lasts_ms = i64::try_from(1 + self.rng.below(HELD_MAX_MS)).unwrap_or(1);
        self.consumer();
        for request in self.requests.iter_mut().filter(|request| is_consumer(&request.key)) {
            if let Some(value) = request.verb.value().cloned() {
                (request.verb, request.at_once) = (Verb::Hold { value, lasts_ms }, true);
            }
        }
    }
}

fn one_of((subject, granted): (&SubjectId, &Granted)) -> (SubjectId, ObjectKey, Value) {
    (*subject, granted.key.clone(), granted.value.clone())
}
