//! The engine under test: the production ledger behind the production sequencer's interface, with objects beside it
//! and a memory of each client's last request, in the same commits.

use std::collections::{BTreeMap, BTreeSet};

use ledger::{Ledger, Loader, SubjectId};
use sequencer::Engine;
use store::{Batch, Store, StoreError, Table};

use crate::journal;
use crate::mutation::Mutation;
use crate::naive::engine::{compare, name, seen, step};
use crate::naive::model::Model;
use crate::naive::ops::{Key, Op, Outcome, Said, Setting, Standing, Terms, Wish};
use crate::rare::{self, Rare};

/// A client and the number of its request.
pub type From = (u32, u64);

#[derive(Clone, Debug)]
pub struct Command {
    /// `None` for what the replica asks itself, such as the expiry of holds.
    pub from: Option<From>,
    pub op: Op,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Carried out, or refused, when the ledger stood at this step.
    Said { at: u64, said: Said },
    /// Was carried out before, at that step.
    Repeated { at: u64, changed: bool },
    /// The client has asked for something newer since.
    Stale,
}

/// A step that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub from: Option<From>,
    pub op: Op,
    pub said: Said,
}

impl Logged {
    pub fn sequence(&self) -> u64 {
        match self.said {
            Said::Done { sequence, changed: true, .. } => sequence,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Session {
    number: u64,
    at: u64,
    changed: bool,
}

/// How the engine is set up for a run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub mutation: Option<Mutation>,
    /// Whether every step is compared with the model at once. Off when the history checker is to be tested alone.
    pub shadow: bool,
}

pub struct SimEngine {
    setup: Setup,
    pub ledger: Ledger,
    shadow: Model,
    sessions: BTreeMap<u32, Session>,
    objects: BTreeSet<u128>,
    closed: BTreeSet<Key>,
    turn: u64,
    /// Steps since they were last taken away.
    pub log: Vec<Logged>,
    /// The first thing that was not as it should be.
    pub trouble: Option<String>,
    pub rare: Rare,
}

impl SimEngine {
    /// Reads everything back. `truth` is what a correct service would hold, given what it finds.
    pub fn load(store: &mut dyn Store, setup: Setup) -> Result<Result<SimEngine, String>, StoreError> {
        let mut loader = Loader::new();
        let mut engine = SimEngine::new(setup);
        let mut trouble = None;
        store.load(&mut |table, key, value| {
            let bad = match table {
                Table::LEDGER => loader.row(key, value).err().map(|error| error.to_string()),
                Table::OBJECTS => engine.load_object(key),
                Table::META => engine.load_session(key, value),
                _ => Some(format!("a row of table {}", table.0)),
            };
            trouble = trouble.take().or(bad);
        })?;
        if let Some(trouble) = trouble {
            return Ok(Err(trouble));
        }
        engine.ledger = match loader.finish() {
            Ok(ledger) => ledger,
            Err(error) => return Ok(Err(error.to_string())),
        };
        Ok(Ok(engine))
    }

    fn new(setup: Setup) -> SimEngine {
        SimEngine {
            setup,
            ledger: Ledger::new(),
            shadow: Model::default(),
            sessions: BTreeMap::new(),
            objects: BTreeSet::new(),
            closed: BTreeSet::new(),
            turn: 0,
            log: Vec::new(),
            trouble: None,
            rare: Rare::default(),
        }
    }

    /// Compares what was read with what it should be, and goes on from there.
    pub fn begin(&mut self, truth: &Model) -> Result<(), String> {
        compare(&self.ledger, truth)?;
        let subjects: BTreeSet<u128> = truth.subjects().collect();
        if subjects != self.objects {
            return Err(format!("objects {:?}, but charges of {subjects:?}", self.objects));
        }
        let states: Vec<&str> = truth.subjects().filter_map(|id| truth.seen(id)).map(|seen| seen.state).collect();
        self.rare.met_if(states.contains(&"ordered") || states.contains(&"greedy"), rare::RESTART_WITH_WAITERS);
        self.rare.met_if(states.contains(&"held"), rare::RESTART_WITH_HOLDS);
        self.shadow = truth.clone();
        Ok(())
    }

    fn load_object(&mut self, key: &[u8]) -> Option<String> {
        match key.try_into() {
            Ok(bytes) => {
                self.objects.insert(u128::from_be_bytes(bytes));
                None
            }
            Err(_) => Some("an object key of a wrong length".into()),
        }
    }

    fn load_session(&mut self, key: &[u8], value: &[u8]) -> Option<String> {
        let numbers: Vec<u64> = value.as_chunks::<8>().0.iter().map(|bytes| u64::from_be_bytes(*bytes)).collect();
        match (<[u8; 4]>::try_from(key), &numbers[..]) {
            (Ok(client), [number, at, changed]) => {
                let session = Session { number: *number, at: *at, changed: *changed == 1 };
                self.sessions.insert(u32::from_be_bytes(client), session);
                None
            }
            _ => Some("a session row out of shape".into()),
        }
    }

    /// Takes the step on the ledger, and on the model beside it.
    fn take(&mut self, op: &Op) -> Said {
        self.turn += 1;
        let before = self.watch(op);
        let said = self.ask(op);
        if self.setup.shadow {
            let expected = self.shadow.follow(op, &said);
            if said != expected {
                self.complain(format!("{op:?}\n  ledger says {said:?}\n  model says  {expected:?}"));
            } else if let Err(difference) = compare(&self.ledger, &self.shadow) {
                self.complain(format!("after {op:?}: {difference}"));
            }
        }
        before.compare(self, op, &said);
        if let Op::Close { key } = op
            && said_changed(&said)
        {
            self.closed.insert(key.clone());
        }
        said
    }

    /// The ledger itself, or a broken one.
    fn ask(&mut self, op: &Op) -> Said {
        let Some(mutation) = self.setup.mutation else { return step(&mut self.ledger, op) };
        if let Some(subject) = mutation.loses(op, &self.ledger) {
            let _ = self.ledger.release(subject);
        }
        if let Some(said) = mutation.denies(op, self.turn) {
            return said;
        }
        let said = step(&mut self.ledger, &mutation.misread(op, self.turn));
        let said = match mutation.afterthought(op, &said, self.turn) {
            None => said,
            Some(second) => {
                let done = step(&mut self.ledger, &second);
                if mutation.hides_denial() { done } else { said }
            }
        };
        mutation.missay(said)
    }

    fn complain(&mut self, what: String) {
        self.trouble.get_or_insert(what);
    }

    /// Keeps the object beside each charge: there exactly as long as the ledger knows the subject.
    fn keep_objects(&mut self, op: &Op, said: &Said, batch: &mut Batch) {
        let mut moved: Vec<u128> = match op {
            Op::Charge { subject, .. } | Op::Release { subject } | Op::Settle { subject } => vec![*subject],
            Op::Close { .. } | Op::Sweep { .. } => self.objects.iter().copied().collect(),
            Op::Step { subjects, .. } => subjects.iter().map(|(subject, _)| *subject).collect(),
            _ => vec![],
        };
        if let Said::Done { outcome, woken, .. } = said {
            moved.extend(woken);
            if let Outcome::Expired(subjects) = outcome {
                moved.extend(subjects);
            }
        }
        for subject in moved {
            let key = subject.to_be_bytes();
            let is_known = self.ledger.subject(SubjectId(subject)).is_some();
            if is_known && self.objects.insert(subject) {
                batch.put(Table::OBJECTS, &key, &[]);
            } else if !is_known && self.objects.remove(&subject) {
                batch.delete(Table::OBJECTS, &key);
            }
        }
    }

    fn watch(&self, op: &Op) -> Before {
        let subject = match op {
            Op::Charge { subject, .. } | Op::Release { subject } | Op::Settle { subject } => Some(*subject),
            _ => None,
        };
        let parts = match op {
            Op::Step { subjects, .. } => &subjects[..],
            _ => &[],
        };
        let parts = parts.iter().filter_map(|(subject, _)| seen(&self.ledger, *subject)).collect();
        let seen = subject.and_then(|subject| seen(&self.ledger, subject));
        let balances = self.balances();
        let digest = if self.turn.is_multiple_of(8) { Some(self.ledger.digest()) } else { None };
        Before { seen, parts, balances, digest }
    }

    fn balances(&self) -> BTreeMap<Key, (i128, i128, usize)> {
        let of = |balance: &ledger::Balance| (balance.used.nanos(), balance.held.nanos(), balance.waiting);
        let key = |key: &ledger::AccountKey| Key::new(&*key.policy, &*key.resource);
        self.ledger.balances().map(|(name, balance)| (key(name), of(&balance))).collect()
    }
}

impl Engine for SimEngine {
    type Command = Command;
    type Answer = Answer;
    /// The steps that watchers learn of.
    type Publication = Vec<u64>;

    fn step(&mut self, command: Command, batch: &mut Batch, publication: &mut Vec<u64>) -> Answer {
        if let Some((client, number)) = command.from
            && let Some(session) = self.sessions.get(&client)
            && self.setup.mutation != Some(Mutation::RunsDuplicates)
        {
            if number == session.number {
                self.rare.met(rare::DUPLICATE_ANSWERED);
                return Answer::Repeated { at: session.at, changed: session.changed };
            }
            if number < session.number {
                self.rare.met(rare::LATE_REQUEST);
                return Answer::Stale;
            }
        }
        let said = self.take(&command.op);
        let (at, changed) = (self.ledger.sequence(), said_changed(&said));
        if changed {
            let silent = self.setup.mutation == Some(Mutation::PublishesTooLittle) && at.is_multiple_of(16);
            if !silent {
                publication.push(at);
            }
            self.keep_objects(&command.op, &said, batch);
            if self.setup.mutation != Some(Mutation::ForgetsAnEntry) || !at.is_multiple_of(16) {
                journal::append(batch, at);
            }
            self.log.push(Logged { from: command.from, op: command.op.clone(), said: said.clone() });
        }
        // Reads may be asked any number of times; everything else is carried out once.
        if let Some((client, number)) = command.from
            && !matches!(command.op, Op::WhatIf { .. })
        {
            self.sessions.insert(client, Session { number, at, changed });
            let value = [number, at, u64::from(changed)].map(u64::to_be_bytes).concat();
            batch.put(Table::META, &client.to_be_bytes(), &value);
        }
        Answer::Said { at, said }
    }

    fn seal(&mut self, batch: &mut Batch, _publication: &mut Vec<u64>) {
        let mut skipped = self.setup.mutation != Some(Mutation::ForgetsARow) || !self.turn.is_multiple_of(4);
        self.ledger.drain_changes(&mut |row| {
            let skip = !skipped && row.kind == ledger::RowKind::Subject;
            skipped |= skip;
            match row.value {
                _ if skip => {}
                Some(value) => batch.put(Table::LEDGER, row.key, value),
                None => batch.delete(Table::LEDGER, row.key),
            }
        });
        self.rare.met_if(batch.is_empty(), rare::GROUP_WITHOUT_ROWS);
    }
}

pub fn said_changed(said: &Said) -> bool {
    matches!(said, Said::Done { changed: true, .. })
}

/// What a step found, to see afterwards what it touched.
struct Before {
    seen: Option<crate::naive::ops::Seen>,
    /// The subjects of a step of several parts.
    parts: Vec<crate::naive::ops::Seen>,
    balances: BTreeMap<Key, (i128, i128, usize)>,
    digest: Option<u64>,
}

impl Before {
    /// Checks that a step touched nobody else's accounts, and notes the rare ones.
    fn compare(self, engine: &mut SimEngine, op: &Op, said: &Said) {
        if !said_changed(said)
            && let Some(digest) = self.digest
            && digest != engine.ledger.digest()
        {
            engine.complain(format!("B6: {op:?} said it changed nothing: {said:?}"));
        }
        let after = engine.balances();
        let touchable = self.touchable(engine, op, said);
        for (key, balance) in &after {
            let moved = self.balances.get(key).is_some_and(|before| before != balance);
            if moved && !touchable.contains(key) && engine.setup.shadow {
                engine.complain(format!("B9: {op:?} moved {key:?}, which it has nothing to do with"));
            }
        }
        self.note(engine, op, said);
    }

    fn touchable(&self, engine: &SimEngine, op: &Op, said: &Said) -> BTreeSet<Key> {
        let mut keys: BTreeSet<Key> = BTreeSet::new();
        let mut add = |seen: Option<crate::naive::ops::Seen>| {
            keys.extend(seen.into_iter().flat_map(|seen| seen.lines.into_keys().chain(seen.settled.into_keys())));
        };
        add(self.seen.clone());
        self.parts.iter().for_each(|part| add(Some(part.clone())));
        if let Said::Done { woken, .. } = said {
            woken.iter().for_each(|subject| add(seen(&engine.ledger, *subject)));
        }
        match op {
            Op::Charge { asked, .. } => keys.extend(asked.iter().map(|(key, ..)| key.clone())),
            Op::Open { key, .. } | Op::SetLimit { key, .. } => drop(keys.insert(key.clone())),
            // These move what others have, by their nature.
            Op::Close { .. } | Op::Sweep { .. } | Op::Expire { .. } => keys.extend(self.balances.keys().cloned()),
            Op::Rename { key, to } => keys.extend([key.clone(), to.clone()]),
            Op::Release { .. } | Op::Settle { .. } | Op::WhatIf { .. } => {}
            Op::Step { settings, subjects } => {
                for setting in settings {
                    let (Setting::Open { key, .. } | Setting::SetLimit { key, .. }) = setting;
                    keys.insert(key.clone());
                }
                for (_, wish) in subjects {
                    if let Wish::Charge { asked, .. } = wish {
                        keys.extend(asked.iter().map(|(key, ..)| key.clone()));
                    }
                }
            }
        }
        keys
    }

    fn note(&self, engine: &mut SimEngine, op: &Op, said: &Said) {
        let state = self.seen.as_ref().map_or("none", |seen| seen.state);
        let waited = matches!(state, "greedy" | "ordered");
        let rare = &mut engine.rare;
        if let Op::Step { settings, subjects } = op {
            let is_refused = matches!(said, Said::Denied(_)) && subjects.len() > 1;
            rare.met_if(is_refused && !settings.is_empty(), rare::STEP_REFUSED);
            rare.met_if(is_refused && self.parts.iter().any(|part| part.state != "charged"), rare::STEP_REFUSED_WAITER);
        }
        match said {
            Said::Denied(lines) => {
                let has = |reason: &str| lines.iter().any(|line| line.reason == reason);
                rare.met_if(lines.len() == 1, rare::DENIED_BY_ONE);
                rare.met_if(lines.len() > 1 && has("over limit"), rare::DENIED_BY_SEVERAL);
                rare.met_if(lines.iter().any(|line| line.held > 0), rare::DENIED_BY_HOLD);
                rare.met_if(has("overflow"), rare::DENIED_OVERFLOW);
                rare.met_if(has("negative"), rare::DENIED_NEGATIVE);
                rare.met_if(has("unknown account"), rare::DENIED_UNKNOWN);
                rare.met_if(waited, rare::DENIED_WAITER);
            }
            Said::Done { changed: false, .. } => {
                let repeated = matches!(op, Op::Charge { .. }) && self.seen.is_some();
                rare.met_if(repeated, rare::REPEATED_CONTENT);
            }
            Said::Done { outcome, woken, .. } => {
                rare.met_if(woken.len() > 1, rare::WOKE_SEVERAL);
                let woke = match outcome {
                    Outcome::LimitSet => rare::RAISE_WOKE,
                    Outcome::Released => rare::RELEASE_WOKE,
                    Outcome::Closed if matches!(op, Op::Sweep { .. }) => rare::SWEEP_WOKE,
                    Outcome::Swept { .. } => rare::SWEEP_WOKE,
                    Outcome::Closed => rare::CLOSE_WOKE,
                    Outcome::Expired(_) => rare::EXPIRY_WOKE,
                    Outcome::Step { .. } => rare::STEP_WOKE,
                    _ => rare::RESIZE_WOKE,
                };
                rare.met_if(!woken.is_empty(), woke);
                self.note_outcome(engine, op, outcome, waited, state);
            }
            Said::Would(_) | Said::Error(_) => {}
        }
    }

    fn note_outcome(&self, engine: &mut SimEngine, op: &Op, outcome: &Outcome, waited: bool, state: &str) {
        let has_lines = self.seen.as_ref().is_some_and(|seen| !seen.lines.is_empty());
        let over = |engine: &SimEngine, key: &Key| {
            let balance = engine.ledger.account(&name(key)).and_then(|account| engine.ledger.balance(account));
            balance.is_some_and(|balance| {
                let limit = balance.limit.amount().map_or(i128::MAX, |limit| limit.nanos());
                matches!(balance.limit, ledger::Limit::Enforced(_))
                    && balance.used.nanos() + balance.held.nanos() > limit
            })
        };
        match (op, outcome) {
            (Op::SetLimit { key, .. }, _) => {
                let below = over(engine, key);
                engine.rare.met_if(below, rare::LOWERED_BELOW_USE);
            }
            (Op::Open { key, .. }, _) => {
                let again = engine.closed.contains(key);
                engine.rare.met_if(again, rare::REOPENED);
            }
            (Op::Close { key }, _) => {
                let had = self.balances.get(key).is_some_and(|(used, held, _)| used + held > 0);
                engine.rare.met_if(had, rare::CLOSED_WITH_SUBJECTS);
            }
            (Op::Rename { key, .. }, _) => {
                let (used, held, waiting) = self.balances.get(key).copied().unwrap_or_default();
                engine.rare.met_if(used + held > 0, rare::RENAMED_WITH_SUBJECTS);
                engine.rare.met_if(waiting > 0, rare::RENAMED_WITH_LINE);
            }
            (Op::Sweep { key, .. }, outcome) => {
                let after = engine.balances();
                let others = self.balances.iter().filter(|(other, _)| *other != key);
                let moved = others.filter(|(other, before)| after.get(*other).is_some_and(|after| after != *before));
                let along = moved.count() > 0;
                let in_parts = matches!(outcome, Outcome::Swept { swept, .. } if !swept.is_empty());
                engine.rare.met_if(in_parts, rare::SWEPT_IN_PARTS);
                engine.rare.met_if(along, rare::SWEPT_ALONG);
                engine.rare.met_if(*outcome == Outcome::Closed, rare::SWEPT_WHOLE);
            }
            (Op::Step { settings, subjects }, Outcome::Step { queued }) => {
                let opens = settings.iter().any(|setting| {
                    let (Setting::Open { key, .. } | Setting::SetLimit { key, .. }) = setting;
                    !self.balances.contains_key(key)
                });
                let releases = subjects.iter().any(|(_, wish)| *wish == Wish::Release);
                let keeps = |part: &&crate::naive::ops::Seen| part.state == "charged" && !part.lines.is_empty();
                let kept = self.parts.iter().filter(keeps).any(|part| queued.contains(&part.subject));
                engine.rare.met_if(opens, rare::STEP_OPENED);
                engine.rare.met_if(releases && subjects.len() > 1, rare::STEP_RELEASED);
                engine.rare.met_if(!queued.is_empty(), rare::STEP_QUEUED);
                engine.rare.met_if(kept, rare::STEP_QUEUED_AGAIN);
            }
            (Op::Release { .. }, _) => engine.rare.met_if(waited, rare::WAITER_RELEASED),
            (Op::Settle { .. }, _) => engine.rare.met(rare::HOLD_SETTLED),
            (Op::Expire { .. }, Outcome::Expired(subjects)) => {
                let stays = subjects.iter().any(|subject| engine.ledger.subject(SubjectId(*subject)).is_some());
                engine.rare.met(rare::HOLD_EXPIRED);
                engine.rare.met_if(subjects.len() > 1, rare::HOLDS_EXPIRED);
                engine.rare.met_if(stays, rare::HOLD_FELL_BACK);
            }
            (Op::Charge { asked, standing, .. }, outcome) => {
                let all_on = |terms| asked.iter().all(|(.., one)| *one == terms) && !asked.is_empty();
                let keys: BTreeSet<&Key> = asked.iter().filter(|line| line.1 > 0).map(|(key, ..)| key).collect();
                let old: BTreeSet<&Key> = self.seen.iter().flat_map(|seen| seen.lines.keys()).collect();
                let over_now = keys.iter().any(|key| over(engine, key));
                let queued = *outcome == Outcome::Queued;
                let ordered = matches!(standing, Standing::MayWait { ordered: true, .. });
                let fits = queued && self.fitted(engine, asked);
                let rare = &mut engine.rare;
                rare.met_if(all_on(Terms::Adopted) && over_now, rare::ADOPTED_OVER_LIMIT);
                rare.met_if(
                    *outcome == Outcome::Granted && all_on(Terms::Enforced) && over_now,
                    rare::SHRUNK_OVER_LIMIT,
                );
                rare.met_if(queued && ordered, rare::QUEUED_ORDERED);
                rare.met_if(fits && ordered, rare::QUEUED_THOUGH_IT_FITS);
                rare.met_if(queued && state == "charged", rare::QUEUED_AGAIN);
                rare.met_if(queued && waited, rare::WAITER_CHANGED);
                rare.met_if(matches!(outcome, Outcome::Held { .. }) && state == "charged", rare::HOLD_OVER_CHARGE);
                rare.met_if(!queued && has_lines && !keys.is_empty() && keys.is_disjoint(&old), rare::MOVED);
                rare.met_if(has_lines && keys.is_empty(), rare::EMPTIED);
            }
            _ => {}
        }
    }

    /// Whether each account had room for what was asked: then only the order was in the way.
    fn fitted(&self, engine: &SimEngine, asked: &crate::naive::ops::Asked) -> bool {
        let mut sums: BTreeMap<&Key, i128> = BTreeMap::new();
        for (key, amount, ..) in asked {
            let sum = sums.entry(key).or_default();
            *sum = sum.saturating_add(*amount);
        }
        sums.into_iter().all(|(key, amount)| {
            let (used, held, _) = self.balances.get(key).copied().unwrap_or_default();
            let balance = engine.ledger.account(&name(key)).and_then(|account| engine.ledger.balance(account));
            match balance.map(|balance| balance.limit) {
                Some(ledger::Limit::Enforced(limit)) => amount <= limit.nanos() - used - held,
                _ => true,
            }
        })
    }
}
