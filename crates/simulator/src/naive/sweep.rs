//! Accounts that get another name, or are let go of in parts, the naive way.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::model::{Model, Place, State};
use super::ops::{Key, Lines, Outcome, Said};

impl Model {
    pub(super) fn rename(&mut self, key: &Key, to: &Key) -> Said {
        if !self.accounts.contains_key(key) {
            return Said::Error("unknown account");
        }
        if key == to {
            return self.unchanged(Outcome::Renamed);
        }
        if self.accounts.contains_key(to) {
            return Said::Error("already open");
        }
        self.sequence += 1;
        if let Some(account) = self.accounts.remove(key) {
            self.accounts.insert(to.clone(), account);
        }
        let rename = |lines: &mut Lines| {
            if let Some(line) = lines.remove(key) {
                lines.insert(to.clone(), line);
            }
        };
        for subject in self.subjects.values_mut() {
            rename(&mut subject.lines);
            match &mut subject.state {
                State::Charged => {}
                State::Held { settled, .. } => rename(settled),
                State::Waiting { waited_for, has, .. } => {
                    rename(has);
                    if waited_for.remove(key) {
                        waited_for.insert(to.clone());
                    }
                }
            }
        }
        Said::Done { sequence: self.sequence, changed: true, outcome: Outcome::Renamed, woken: vec![] }
    }

    /// Whom it takes first is not promised, nor who is served first of those it takes: what was told of it says so, and is
    /// believed as far as it can be.
    pub(super) fn sweep(&mut self, key: &Key, with: &str, max: usize, told: Option<&Said>) -> Said {
        if !self.accounts.contains_key(key) {
            return Said::Error("unknown account");
        }
        if self.subjects.values().any(|subject| subject.need(key) > 0) {
            return self.close(key);
        }
        let there: Vec<u128> =
            self.subjects.iter().filter(|(_, subject)| subject.occupied(key) > 0).map(|(id, _)| *id).collect();
        let count = there.len().min(max);
        if count == 0 && !there.is_empty() {
            let outcome = Outcome::Swept { swept: vec![], left: there.len() };
            return Said::Done { sequence: self.sequence, changed: false, outcome, woken: vec![] };
        }
        let (named, order): (&[u128], &[u128]) = match told {
            Some(Said::Done { outcome: Outcome::Swept { swept, .. }, woken, .. }) => (swept, woken),
            Some(Said::Done { woken, .. }) => (&[], woken),
            _ => (&[], &[]),
        };
        let named: BTreeSet<u128> = named.iter().copied().filter(|id| there.contains(id)).collect();
        let mut swept: Vec<u128> =
            if named.len() == count { named.into_iter().collect() } else { there[..count].to_vec() };
        swept.sort_unstable();
        self.sequence += 1;
        let is_gone = |one: &Key| one == key || one.policy.starts_with(with);
        let mut served: Vec<(Option<usize>, Place)> = Vec::new();
        for id in &swept {
            let Some(subject) = self.subjects.get_mut(id) else { continue };
            subject.sequence = self.sequence;
            subject.lines.retain(|one, _| !is_gone(one));
            match &mut subject.state {
                State::Charged => {}
                State::Held { settled, .. } => settled.retain(|one, _| !is_gone(one)),
                State::Waiting { waited_for, has, .. } => {
                    waited_for.retain(|one| !is_gone(one));
                    has.retain(|one, _| !is_gone(one));
                }
            }
            let needs = subject.lines.keys().any(|one| subject.need(one) > 0);
            if let State::Waiting { wait: (_, priority, arrived, tie), .. } = &subject.state
                && !needs
            {
                let place = (Reverse(*priority), *arrived, tie.clone(), *id);
                served.push((order.iter().position(|woken| woken == id), place));
                subject.state = State::Charged;
            }
            if subject.is_nothing() {
                self.subjects.remove(id);
            }
        }
        let left = there.len() - count;
        if left == 0 {
            self.accounts.remove(key);
        }
        served.sort();
        let mut woken: Vec<u128> = served.into_iter().map(|(_, place)| place.3).collect();
        woken.extend(self.wake());
        let outcome = if left == 0 { Outcome::Closed } else { Outcome::Swept { swept, left } };
        Said::Done { sequence: self.sequence, changed: true, outcome, woken }
    }
}
