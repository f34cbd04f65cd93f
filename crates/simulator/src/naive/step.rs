//! A step of several parts, the naive way: everything is worked out on a copy, which is kept or thrown away.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::model::{Account, Model, Place, State, amount, is_negative, larger, terms_of};
use super::ops::{Key, Limit, Lines, No, Outcome, Said, Setting, Standing, Terms, Wish};

/// What one subject is to have, as far as no line of waiters has a say in it.
struct Part {
    id: u128,
    had: Lines,
    has: Lines,
    adopted: BTreeSet<Key>,
    in_line: Lines,
    standing: Standing,
    until: Option<(i64, Lines, Lines)>,
}

impl Part {
    fn growth(&self, key: &Key) -> i128 {
        amount(&self.has, key) - amount(&self.had, key)
    }

    fn adopts(&self, key: &Key) -> bool {
        self.growth(key) > 0 && self.adopted.contains(key)
    }
}

/// What a subject gets of a step.
type Told = (u128, Outcome, u64);

impl Model {
    pub(super) fn step_all(&mut self, settings: &[Setting], subjects: &[(u128, Wish)]) -> Said {
        let mut after = self.clone();
        after.sequence += 1;
        if let Err(error) = after.set(settings) {
            return Said::Error(error);
        }
        let is_set = after.accounts.len() > self.accounts.len()
            || self.accounts.iter().any(|(key, account)| after.accounts[key].limit != account.limit);
        let (mut parts, told) = match after.parts(subjects) {
            Ok(parts) => parts,
            Err(no) => return Said::Denied(no),
        };
        let alone = !is_set && parts.len() + told.len() == 1;
        if parts.is_empty() && !is_set {
            let queued = told.iter().filter(|(_, outcome, _)| *outcome == Outcome::Queued).map(|(id, ..)| *id);
            let mut queued: Vec<u128> = queued.collect();
            queued.sort_unstable();
            let (outcome, sequence) = match told.into_iter().next().filter(|_| alone) {
                Some((_, outcome, sequence)) => (outcome, sequence),
                None => (Outcome::Step { queued }, self.sequence),
            };
            return Said::Done { sequence, changed: false, outcome, woken: vec![] };
        }
        let no = after.too_much(&mut parts);
        if !no.is_empty() {
            return Said::Denied(no);
        }
        for part in &parts {
            after.subjects.remove(&part.id);
        }
        for part in &parts {
            let state = match &part.until {
                Some((until, _, settled)) => State::Held { until: *until, settled: settled.clone() },
                None => State::Charged,
            };
            let lines = part.until.as_ref().map_or(&part.has, |(_, wanted, _)| wanted);
            after.put(part.id, Some((lines.clone(), state)));
        }
        let no = after.serve(self, &parts);
        if !no.is_empty() {
            return Said::Denied(no);
        }
        after.print_as(self, &parts);
        let woken = after.wake();
        let is_queued =
            |id: &u128| after.subjects.get(id).is_some_and(|subject| matches!(subject.state, State::Waiting { .. }));
        let named: BTreeSet<u128> = subjects.iter().map(|(id, _)| *id).collect();
        let outcome = match (&parts[..], alone) {
            ([only], true) if is_queued(&only.id) => Outcome::Queued,
            ([only], true) => match (&only.until, subjects.last()) {
                (Some((until, ..)), _) => Outcome::Held { until: *until },
                (None, Some((_, Wish::Release))) => Outcome::Released,
                (None, _) => Outcome::Granted,
            },
            _ => Outcome::Step { queued: named.into_iter().filter(is_queued).collect() },
        };
        *self = after;
        Said::Done { sequence: self.sequence, changed: true, outcome, woken }
    }

    fn set(&mut self, settings: &[Setting]) -> Result<(), &'static str> {
        for setting in settings {
            if let Setting::Open { key, limit } = setting {
                if is_negative(*limit) {
                    return Err("negative limit");
                }
                self.accounts.entry(key.clone()).or_insert(Account { limit: *limit, format: 0 });
            }
        }
        for setting in settings {
            if let Setting::SetLimit { key, limit } = setting {
                if is_negative(*limit) {
                    return Err("negative limit");
                }
                self.accounts.get_mut(key).ok_or("unknown account")?.limit = *limit;
            }
        }
        Ok(())
    }

    /// The parts that change something, in the order in which their subjects were named, and what the others are told.
    fn parts(&self, subjects: &[(u128, Wish)]) -> Result<(Vec<Part>, Vec<Told>), Vec<No>> {
        let mut order: Vec<u128> = Vec::new();
        for (id, _) in subjects {
            if !order.contains(id) {
                order.push(*id);
            }
        }
        let (mut parts, mut told, mut faults) = (Vec::new(), Vec::new(), BTreeMap::new());
        for id in order {
            let last = subjects.iter().rfind(|(other, _)| *other == id);
            let had = self.subjects.get(&id).map(|subject| subject.occupied_lines());
            let empty = Part {
                id,
                had: had.clone().unwrap_or_default(),
                has: Lines::new(),
                adopted: BTreeSet::new(),
                in_line: Lines::new(),
                standing: Standing::Stored,
                until: None,
            };
            match last {
                Some((_, Wish::Charge { asked, standing })) => {
                    let terms = terms_of(asked, standing);
                    match self.lines(asked, &terms) {
                        Ok(lines) => match self.part(lines, &terms, Part { standing: standing.clone(), ..empty }) {
                            Ok(part) => parts.push(part),
                            Err(unchanged) => told.push(unchanged),
                        },
                        Err(Said::Denied(no)) => {
                            for no in no {
                                faults.entry(no.key.clone()).or_insert(no);
                            }
                        }
                        Err(_) => {}
                    }
                }
                // Nothing is there to be released: as of before the step.
                _ if had.is_none() => told.push((id, Outcome::Released, self.sequence - 1)),
                _ => parts.push(empty),
            }
        }
        if faults.is_empty() { Ok((parts, told)) } else { Err(faults.into_values().collect()) }
    }

    fn part(&self, mut lines: Lines, terms: &BTreeMap<Key, Terms>, mut part: Part) -> Result<Part, Told> {
        let is_held = matches!(part.standing, Standing::Held { .. });
        if is_held {
            lines.retain(|key, _| terms[key] != Terms::InLine);
        }
        let on = |wanted: Terms| lines.iter().filter(move |(key, _)| terms[*key] == wanted);
        part.in_line = on(Terms::InLine).map(|(key, line)| (key.clone(), *line)).collect();
        part.adopted = on(Terms::Adopted).map(|(key, _)| key.clone()).collect();
        let waited_for = part.in_line.keys().cloned().collect();
        if let Some(Said::Done { sequence, outcome, .. }) = self.repeated(part.id, &lines, &waited_for, &part.standing)
        {
            // A subject that is not there was as it is before this step, too.
            return Err((part.id, outcome, sequence.min(self.sequence - 1)));
        }
        match part.standing {
            Standing::Held { until } => {
                let settled = self.has(part.id);
                part.has = larger(&settled, &lines);
                part.until = Some((until, lines, settled));
            }
            Standing::Stored | Standing::MayWait { .. } => {
                part.has = lines;
                for (key, (wanted, format)) in &part.in_line {
                    part.has.remove(key);
                    if let Some((had, format_had)) = part.had.get(key) {
                        let line = if had < wanted { (*had, *format_had) } else { (*wanted, *format) };
                        part.has.insert(key.clone(), line);
                    }
                }
            }
        }
        Ok(part)
    }

    /// Counts what is adopted as far as numbers go, and names the accounts on which the rest does not fit.
    fn too_much(&self, parts: &mut [Part]) -> Vec<No> {
        let mut no = Vec::new();
        for (key, account) in &self.accounts {
            let now = self.used(key) + self.held(key);
            let enforced = exact_sum(parts.iter().filter(|part| !part.adopts(key)).map(|part| part.growth(key)));
            let given_back = enforced.unwrap_or(0).min(0);
            let mut left = i128::MAX - (now + given_back);
            let mut adopted = 0;
            for part in parts.iter_mut().filter(|part| part.adopts(key)) {
                let counted = part.growth(key).min(left);
                left -= counted;
                adopted += counted;
                let had = amount(&part.had, key);
                if had + counted == 0 {
                    part.has.remove(key);
                } else if let Some(line) = part.has.get_mut(key) {
                    line.0 = had + counted;
                }
            }
            let (limit, reason) = match account.limit {
                Limit::Enforced(limit) => (limit, "over limit"),
                Limit::Unlimited | Limit::Observed(_) => (i128::MAX, "overflow"),
            };
            let sum = enforced.and_then(|enforced| exact_sum([now, adopted, enforced].into_iter()));
            if enforced.is_none_or(|enforced| enforced > 0) && sum.is_none_or(|sum| sum > limit) {
                let requested = enforced.unwrap_or(i128::MAX);
                let used = self.used(key) + adopted;
                no.push(No { key: key.clone(), reason, requested, used, held: self.held(key) });
            }
        }
        no
    }

    /// Grants charges in line or lets them wait, better-placed first. The model holds all that is certain already.
    fn serve(&mut self, before: &Model, parts: &[Part]) -> Vec<No> {
        let mut asking: Vec<(Place, bool, &Part)> = Vec::new();
        for part in parts {
            if let Standing::MayWait { ordered, priority, arrived, tie } = &part.standing
                && !part.in_line.is_empty()
            {
                asking.push(((Reverse(*priority), *arrived, tie.clone(), part.id), *ordered, part));
            }
        }
        asking.sort_by(|(left, ..), (right, ..)| left.cmp(right));
        let mut never: BTreeMap<Key, No> = BTreeMap::new();
        for (place, ordered, part) in asking {
            let no = self.refusing(part.id, &part.in_line);
            let grows = |key: &&Key| amount(&part.in_line, key) > amount(&part.had, key);
            let is_behind = ordered && part.in_line.keys().filter(grows).any(|key| self.cut(key, &place));
            if no.iter().any(|no| no.reason == "overflow") {
                for no in no {
                    let no = No { used: before.used(&no.key), held: before.held(&no.key), ..no };
                    never.entry(no.key.clone()).or_insert(no);
                }
                continue;
            }
            let mut lines = part.has.clone();
            lines.extend(part.in_line.clone());
            let state = if no.is_empty() && !is_behind {
                State::Charged
            } else {
                let (_, arrived, tie, _) = place;
                let wait = (ordered, place.0.0, arrived, tie);
                let waited_for = part.in_line.keys().cloned().collect();
                State::Waiting { wait, waited_for, has: part.has.clone() }
            };
            self.put(part.id, Some((lines, state)));
        }
        never.into_values().collect()
    }

    /// A sum is printed as before; where there was none, as the first of the step's charges.
    fn print_as(&mut self, before: &Model, parts: &[Part]) {
        let charged = |key: &Key| {
            let lines = parts.iter().filter_map(|part| self.subjects.get(&part.id)).map(|one| one.occupied_lines());
            lines.filter_map(|lines| lines.get(key).map(|line| line.1)).next()
        };
        let formats: Vec<(Key, u8)> = self
            .accounts
            .keys()
            .map(|key| {
                let format = before.accounts.get(key).map_or(0, |account| account.format);
                let is_empty = before.used(key) + before.held(key) == 0;
                (key.clone(), charged(key).filter(|_| is_empty).unwrap_or(format))
            })
            .collect();
        for (key, format) in formats {
            self.accounts.get_mut(&key).expect("just listed").format = format;
        }
    }
}

/// The sum, however far the sums on the way are from it; none if it is above all numbers.
fn exact_sum(amounts: impl Iterator<Item = i128>) -> Option<i128> {
    let (mut above, mut below): (Vec<i128>, Vec<i128>) = amounts.partition(|amount| *amount >= 0);
    let mut sum = 0i128;
    loop {
        let next = if sum >= 0 { below.pop().or_else(|| above.pop()) } else { above.pop().or_else(|| below.pop()) };
        match next {
            Some(amount) => sum = sum.checked_add(amount)?,
            None => return Some(sum),
        }
    }
}
