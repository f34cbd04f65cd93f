//! The naive model: every number is counted again from the subjects whenever it is needed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::ops::{Asked, Key, Limit, Lines, No, Op, Outcome, Said, Seen, Shown, Standing, Terms};

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub sequence: u64,
    pub(super) accounts: BTreeMap<Key, Account>,
    pub(super) subjects: BTreeMap<u128, Subject>,
}

#[derive(Clone, Debug)]
pub(super) struct Account {
    pub limit: Limit,
    pub format: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub sequence: u64,
    pub lines: Lines,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Charged,
    Held {
        until: i64,
        settled: Lines,
    },
    /// `waited_for` are the keys in line, `has` is what it has meanwhile.
    Waiting {
        wait: (bool, i64, i64, String),
        waited_for: BTreeSet<Key>,
        has: Lines,
    },
}

impl Subject {
    fn settled(&self, key: &Key) -> i128 {
        match &self.state {
            State::Charged => amount(&self.lines, key),
            State::Held { settled, .. } => amount(settled, key),
            State::Waiting { has, .. } => amount(has, key),
        }
    }

    pub fn occupied(&self, key: &Key) -> i128 {
        match &self.state {
            State::Held { settled, .. } => amount(settled, key).max(amount(&self.lines, key)),
            State::Charged | State::Waiting { .. } => self.settled(key),
        }
    }

    /// The lines that count, with the format of the one that counts.
    pub fn occupied_lines(&self) -> Lines {
        match &self.state {
            State::Charged => self.lines.clone(),
            State::Waiting { has, .. } => has.clone(),
            State::Held { settled, .. } => larger(settled, &self.lines),
        }
    }

    /// What it waits for of an account beyond what it has.
    pub fn need(&self, key: &Key) -> i128 {
        match &self.state {
            State::Waiting { waited_for, has, .. } if waited_for.contains(key) => {
                amount(&self.lines, key) - amount(has, key)
            }
            _ => 0,
        }
    }

    pub fn is_nothing(&self) -> bool {
        self.occupied_lines().is_empty() && !matches!(self.state, State::Waiting { .. })
    }
}

pub(super) fn larger(settled: &Lines, wanted: &Lines) -> Lines {
    let mut larger = wanted.clone();
    for (key, line) in settled {
        if line.0 > amount(wanted, key) {
            larger.insert(key.clone(), *line);
        }
    }
    larger
}

pub(super) fn amount(lines: &Lines, key: &Key) -> i128 {
    lines.get(key).map_or(0, |line| line.0)
}

pub(super) type Place = (Reverse<i64>, i64, String, u128);

impl Model {
    /// Where a step may be done in more than one way, the way it was done is what was `told` of it, if that is one of them.
    pub fn follow(&mut self, op: &Op, told: &Said) -> Said {
        match op {
            Op::Sweep { key, with, max } => self.sweep(key, with, *max, Some(told)),
            op => self.step(op),
        }
    }

    pub fn step(&mut self, op: &Op) -> Said {
        match op {
            Op::Open { key, limit } => self.open(key, *limit),
            Op::SetLimit { key, limit } => self.set_limit(key, *limit),
            Op::Close { key } => self.close(key),
            Op::Rename { key, to } => self.rename(key, to),
            Op::Sweep { key, with, max } => self.sweep(key, with, *max, None),
            Op::Charge { subject, asked, standing } => self.charge(*subject, asked, standing),
            Op::Release { subject } => match self.subjects.contains_key(subject) {
                false => self.unchanged(Outcome::Released),
                true => self.changed(Outcome::Released, |model| model.put(*subject, None)),
            },
            Op::Settle { subject } => self.settle(*subject),
            Op::Expire { now } => self.expire(*now),
            Op::WhatIf { subject, asked } => self.what_if(*subject, asked),
            Op::Step { settings, subjects } => self.step_all(settings, subjects),
        }
    }

    pub fn used(&self, key: &Key) -> i128 {
        self.subjects.values().map(|subject| subject.settled(key)).sum()
    }

    pub fn held(&self, key: &Key) -> i128 {
        self.subjects.values().map(|subject| subject.occupied(key) - subject.settled(key)).sum()
    }

    pub fn shown(&self, key: &Key) -> Option<Shown> {
        let account = self.accounts.get(key)?;
        Some(Shown {
            key: key.clone(),
            limit: account.limit,
            used: self.used(key),
            held: self.held(key),
            waiting: self.subjects.values().filter(|subject| subject.need(key) > 0).count(),
            subjects: self.subjects.values().filter(|subject| subject.occupied(key) > 0).count(),
            format: account.format,
        })
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.accounts.keys()
    }

    pub fn subjects(&self) -> impl Iterator<Item = u128> + '_ {
        self.subjects.keys().copied()
    }

    pub fn seen(&self, subject: u128) -> Option<Seen> {
        let known = self.subjects.get(&subject)?;
        let (state, until, settled) = match &known.state {
            State::Charged => ("charged", None, Lines::new()),
            State::Held { until, settled } => ("held", Some(*until), settled.clone()),
            State::Waiting { wait, has, .. } => (if wait.0 { "ordered" } else { "greedy" }, None, has.clone()),
        };
        Some(Seen { subject, state, until, lines: known.lines.clone(), settled, sequence: known.sequence })
    }

    /// A number for the state without the numbers of steps: two orders of the same steps may meet in it.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (key, account) in &self.accounts {
            (key, format!("{:?}", account)).hash(&mut hasher);
        }
        for (id, subject) in &self.subjects {
            (id, &subject.lines, format!("{:?}", subject.state)).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn open(&mut self, key: &Key, limit: Limit) -> Said {
        if is_negative(limit) {
            return Said::Error("negative limit");
        }
        if self.accounts.contains_key(key) {
            return Said::Error("already open");
        }
        self.changed(Outcome::Opened, |model| {
            model.accounts.insert(key.clone(), Account { limit, format: 0 });
        })
    }

    fn set_limit(&mut self, key: &Key, limit: Limit) -> Said {
        if is_negative(limit) {
            return Said::Error("negative limit");
        }
        match self.accounts.get(key) {
            None => Said::Error("unknown account"),
            Some(account) if account.limit == limit => self.unchanged(Outcome::LimitSet),
            Some(_) => self.changed(Outcome::LimitSet, |model| {
                model.accounts.get_mut(key).expect("just seen").limit = limit;
            }),
        }
    }

    pub(super) fn close(&mut self, key: &Key) -> Said {
        if !self.accounts.contains_key(key) {
            return Said::Error("unknown account");
        }
        self.sequence += 1;
        let mut served: Vec<(Place, u128)> = Vec::new();
        let ids: Vec<u128> = self.subjects.keys().copied().collect();
        for id in ids {
            let subject = self.subjects.get_mut(&id).expect("just listed");
            let mut named = subject.lines.remove(key).is_some();
            match &mut subject.state {
                State::Charged => {}
                State::Held { settled, .. } => named |= settled.remove(key).is_some(),
                State::Waiting { waited_for, has, .. } => {
                    waited_for.remove(key);
                    has.remove(key);
                }
            }
            if named {
                subject.sequence = self.sequence;
            }
            let needs = subject.lines.keys().any(|key| subject.need(key) > 0);
            if let State::Waiting { wait: (_, priority, arrived, tie), .. } = &subject.state
                && !needs
            {
                served.push(((Reverse(*priority), *arrived, tie.clone(), id), id));
                subject.state = State::Charged;
            }
            if subject.is_nothing() {
                self.subjects.remove(&id);
            }
        }
        self.accounts.remove(key);
        served.sort();
        let mut woken: Vec<u128> = served.into_iter().map(|(_, id)| id).collect();
        woken.extend(self.wake());
        Said::Done { sequence: self.sequence, changed: true, outcome: Outcome::Closed, woken }
    }

    fn charge(&mut self, id: u128, asked: &Asked, standing: &Standing) -> Said {
        let terms = terms_of(asked, standing);
        let held = matches!(standing, Standing::Held { .. });
        let mut lines = match self.lines(asked, &terms) {
            Ok(lines) => lines,
            Err(denied) => return denied,
        };
        if held {
            lines.retain(|key, _| terms[key] != Terms::InLine);
        }
        let on = |wanted: Terms| -> Lines {
            let some = lines.iter().filter(|(key, _)| terms[*key] == wanted);
            some.map(|(key, line)| (key.clone(), *line)).collect()
        };
        let in_line = on(Terms::InLine);
        let waited_for: BTreeSet<Key> = in_line.keys().cloned().collect();
        if let Some(said) = self.repeated(id, &lines, &waited_for, standing) {
            return said;
        }
        let no = match standing {
            Standing::Held { .. } => self.refusing(id, &larger(&self.has(id), &lines)),
            _ => self.refusing(id, &on(Terms::Enforced)),
        };
        if !no.is_empty() {
            return Said::Denied(no);
        }
        self.cut_to_type(id, &mut lines, &terms);
        let (state, outcome) = match standing {
            Standing::Held { until } => {
                (State::Held { until: *until, settled: self.has(id) }, Outcome::Held { until: *until })
            }
            Standing::MayWait { ordered, priority, arrived, tie } if !in_line.is_empty() => {
                let place = (Reverse(*priority), *arrived, tie.clone(), id);
                let no = self.refusing(id, &in_line);
                let grows = |key: &Key| self.grows(id, &in_line, key);
                let blocked = *ordered && in_line.keys().any(|key| grows(key) && self.cut(key, &place));
                if no.iter().any(|no| no.reason == "overflow") {
                    return Said::Denied(no);
                }
                if no.is_empty() && !blocked {
                    (State::Charged, Outcome::Granted)
                } else {
                    let mut has = lines.clone();
                    for (key, (wanted, format)) in &in_line {
                        has.remove(key);
                        let before = self.subjects.get(&id).map(Subject::occupied_lines).unwrap_or_default();
                        if let Some((had, format_had)) = before.get(key) {
                            let line = if had < wanted { (*had, *format_had) } else { (*wanted, *format) };
                            has.insert(key.clone(), line);
                        }
                    }
                    let wait = (*ordered, *priority, *arrived, tie.clone());
                    (State::Waiting { wait, waited_for, has }, Outcome::Queued)
                }
            }
            Standing::Stored | Standing::MayWait { .. } => (State::Charged, Outcome::Granted),
        };
        self.changed(outcome, |model| model.put(id, Some((lines, state))))
    }

    /// What a subject has for certain.
    pub(super) fn has(&self, id: u128) -> Lines {
        self.subjects.get(&id).map_or_else(Lines::new, |subject| match &subject.state {
            State::Charged => subject.lines.clone(),
            State::Held { settled, .. } => settled.clone(),
            State::Waiting { has, .. } => has.clone(),
        })
    }

    /// The same request again gets the same answer.
    pub(super) fn repeated(
        &self,
        id: u128,
        lines: &Lines,
        waited_for: &BTreeSet<Key>,
        standing: &Standing,
    ) -> Option<Said> {
        let done = |outcome, sequence| Said::Done { sequence, changed: false, outcome, woken: vec![] };
        let Some(subject) = self.subjects.get(&id) else {
            return lines.is_empty().then(|| done(Outcome::Granted, self.sequence));
        };
        if subject.lines != *lines {
            return None;
        }
        match (&subject.state, standing) {
            (State::Charged, _) => Some(done(Outcome::Granted, subject.sequence)),
            (State::Held { until: now, .. }, Standing::Held { until }) if now == until => {
                Some(done(Outcome::Held { until: *until }, subject.sequence))
            }
            (
                State::Waiting { wait: (o, p, a, t), waited_for: now, .. },
                Standing::MayWait { ordered, priority, arrived, tie },
            ) if (o, p, a, t) == (ordered, priority, arrived, tie) && now == waited_for => {
                Some(done(Outcome::Queued, subject.sequence))
            }
            _ => None,
        }
    }

    fn settle(&mut self, id: u128) -> Said {
        match self.subjects.get(&id).cloned() {
            None => Said::Error("unknown subject"),
            Some(Subject { state: State::Waiting { .. }, .. }) => Said::Error("nothing held"),
            Some(Subject { state: State::Charged, sequence, .. }) => {
                Said::Done { sequence, changed: false, outcome: Outcome::Settled, woken: vec![] }
            }
            Some(Subject { state: State::Held { .. }, lines, .. }) => {
                self.changed(Outcome::Settled, |model| model.put(id, Some((lines, State::Charged))))
            }
        }
    }

    fn expire(&mut self, now: i64) -> Said {
        let mut due: Vec<(i64, u128, Lines)> = Vec::new();
        for (id, subject) in &self.subjects {
            if let State::Held { until, settled } = &subject.state
                && *until <= now
            {
                due.push((*until, *id, settled.clone()));
            }
        }
        due.sort_by_key(|(until, id, _)| (*until, *id));
        let ids: Vec<u128> = due.iter().map(|(_, id, _)| *id).collect();
        if ids.is_empty() {
            return self.unchanged(Outcome::Expired(ids));
        }
        self.changed(Outcome::Expired(ids), |model| {
            for (_, id, settled) in due {
                model.put(id, Some((settled, State::Charged)));
            }
        })
    }

    fn what_if(&self, id: u128, asked: &Asked) -> Said {
        let terms = asked.iter().map(|(key, ..)| (key.clone(), Terms::Enforced)).collect();
        let lines = match self.lines(asked, &terms) {
            Ok(lines) => lines,
            Err(denied) => return denied,
        };
        let no = self.refusing(id, &lines);
        if !no.is_empty() {
            return Said::Denied(no);
        }
        let mut after = self.clone();
        let waiting = |key: &Key| self.shown(key).map_or(0, |shown| shown.waiting);
        after.put(id, Some((lines.clone(), State::Charged)));
        let shown = lines.keys().filter_map(|key| after.shown(key).map(|s| Shown { waiting: waiting(key), ..s }));
        Said::Would(shown.collect())
    }

    pub(super) fn unchanged(&self, outcome: Outcome) -> Said {
        Said::Done { sequence: self.sequence, changed: false, outcome, woken: vec![] }
    }

    fn changed(&mut self, outcome: Outcome, change: impl FnOnce(&mut Model)) -> Said {
        self.sequence += 1;
        change(self);
        let woken = self.wake();
        Said::Done { sequence: self.sequence, changed: true, outcome, woken }
    }

    /// Exchanges everything a subject has.
    pub(super) fn put(&mut self, id: u128, new: Option<(Lines, State)>) {
        let Some((lines, state)) = new else {
            self.subjects.remove(&id);
            return;
        };
        let subject = Subject { sequence: self.sequence, lines, state };
        for (key, line) in subject.occupied_lines() {
            if self.used(&key) + self.held(&key) == 0 {
                self.accounts.get_mut(&key).expect("lines name open accounts").format = line.1;
            }
        }
        if subject.is_nothing() {
            self.subjects.remove(&id);
        } else {
            self.subjects.insert(id, subject);
        }
    }

    /// Serves the best-placed waiter that may go, until none may.
    pub(super) fn wake(&mut self) -> Vec<u128> {
        let mut woken = Vec::new();
        while let Some(id) = self.first_to_serve() {
            let lines = self.subjects[&id].lines.clone();
            self.put(id, Some((lines, State::Charged)));
            woken.push(id);
        }
        woken
    }

    fn first_to_serve(&self) -> Option<u128> {
        let mut places: Vec<(Place, bool)> = self.places().collect();
        places.sort();
        let may_go = |(place, ordered): &(Place, bool)| {
            let subject = &self.subjects[&place.3];
            let mut needed = subject.lines.clone();
            needed.retain(|key, _| subject.need(key) > 0);
            self.refusing(place.3, &needed).is_empty() && !(*ordered && needed.keys().any(|key| self.cut(key, place)))
        };
        places.iter().find(|place| may_go(place)).map(|(place, _)| place.3)
    }

    fn places(&self) -> impl Iterator<Item = (Place, bool)> + '_ {
        self.subjects.iter().filter_map(|(id, subject)| match &subject.state {
            State::Waiting { wait: (ordered, priority, arrived, tie), .. } => {
                Some(((Reverse(*priority), *arrived, tie.clone(), *id), *ordered))
            }
            _ => None,
        })
    }

    /// Whether an ordered waiter ahead of a place wants more of an account than is left.
    pub(super) fn cut(&self, key: &Key, place: &Place) -> bool {
        self.places().any(|(ahead, ordered)| {
            let need = self.subjects[&ahead.3].need(key);
            ordered && ahead < *place && ahead.3 != place.3 && need > 0 && !self.has_room(key, need)
        })
    }

    fn grows(&self, id: u128, lines: &Lines, key: &Key) -> bool {
        amount(lines, key) > self.subjects.get(&id).map_or(0, |subject| subject.occupied(key))
    }

    fn has_room(&self, key: &Key, growth: i128) -> bool {
        let sum = (self.used(key) + self.held(key)).checked_add(growth);
        match (self.accounts[key].limit, sum) {
            (_, None) => false,
            (Limit::Enforced(limit), Some(sum)) => sum <= limit,
            (_, Some(_)) => true,
        }
    }

    /// What is adopted is counted as far as numbers go.
    fn cut_to_type(&self, id: u128, lines: &mut Lines, terms: &BTreeMap<Key, Terms>) {
        for (key, (wanted, _)) in lines.iter_mut().filter(|(key, _)| terms[*key] == Terms::Adopted) {
            let had = self.subjects.get(&id).map_or(0, |subject| subject.occupied(key));
            let others = self.used(key) + self.held(key) - had;
            *wanted = (*wanted).min(i128::MAX - others);
        }
        lines.retain(|_, (wanted, _)| *wanted != 0);
    }

    pub(super) fn refusing(&self, id: u128, target: &Lines) -> Vec<No> {
        let mut no = Vec::new();
        for (key, (wanted, _)) in target {
            let growth = wanted - self.subjects.get(&id).map_or(0, |subject| subject.occupied(key));
            let (used, held) = (self.used(key), self.held(key));
            let enforced = matches!(self.accounts[key].limit, Limit::Enforced(_));
            let fits = if enforced { self.has_room(key, growth) } else { (used + held).checked_add(growth).is_some() };
            if growth > 0 && !fits {
                let reason = if enforced { "over limit" } else { "overflow" };
                no.push(No { key: key.clone(), reason, requested: growth, used, held });
            }
        }
        no
    }

    pub(super) fn lines(&self, asked: &Asked, terms: &BTreeMap<Key, Terms>) -> Result<Lines, Said> {
        let bad = |key: &Key, reason, requested| {
            let (used, held) = if self.accounts.contains_key(key) { (self.used(key), self.held(key)) } else { (0, 0) };
            No { key: key.clone(), reason, requested, used, held }
        };
        let mut no: BTreeMap<Key, No> = BTreeMap::new();
        for (key, amount, ..) in asked {
            let reason = match self.accounts.contains_key(key) {
                false => "unknown account",
                true if *amount < 0 => "negative",
                true => continue,
            };
            no.entry(key.clone()).or_insert_with(|| bad(key, reason, *amount));
        }
        let mut lines = Lines::new();
        if no.is_empty() {
            for (key, amount, format, _) in asked.iter().filter(|(_, amount, ..)| *amount != 0) {
                let line = lines.entry(key.clone()).or_insert((0i128, *format));
                match line.0.checked_add(*amount) {
                    Some(sum) => line.0 = sum,
                    None if terms[key] == Terms::Adopted => line.0 = i128::MAX,
                    None => {
                        no.entry(key.clone()).or_insert_with(|| bad(key, "overflow", *amount));
                    }
                }
            }
        }
        if no.is_empty() { Ok(lines) } else { Err(Said::Denied(no.into_values().collect())) }
    }
}

/// The terms of each account: the strictest of those asked for, where the standing allows them.
pub(super) fn terms_of(asked: &Asked, standing: &Standing) -> BTreeMap<Key, Terms> {
    let mut strictest: BTreeMap<Key, Terms> = BTreeMap::new();
    for (key, _, _, terms) in asked {
        let terms = match (terms, standing) {
            (Terms::InLine, Standing::Stored) | (Terms::Adopted, Standing::Held { .. }) => Terms::Enforced,
            (terms, _) => *terms,
        };
        strictest.entry(key.clone()).and_modify(|now| *now = (*now).min(terms)).or_insert(terms);
    }
    strictest
}

pub(super) fn is_negative(limit: Limit) -> bool {
    matches!(limit, Limit::Enforced(amount) | Limit::Observed(amount) if amount < 0)
}
