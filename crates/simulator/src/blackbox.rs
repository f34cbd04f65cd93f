//! The second opinion: is there any order of the calls that explains what the clients heard?
//!
//! It does not look at the numbers of steps, so a service cannot talk its way out by numbering them well. A search
//! over orders, in which a call may come next when no other call that is still to come had returned before it began,
//! with a memory of the places it has been. Accounts are not looked at one by one, because a claim spans several.

use std::collections::HashSet;

use crate::engine::Answer;
use crate::history::Call;
use crate::naive::model::Model;
use crate::naive::ops::Said;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Explained,
    /// No order explains it. The call is the first that the longest try could not get past.
    Impossible(String),
    /// The search was longer than allowed.
    GaveUp,
}

/// Looks for an order, taking at most so many steps on the model.
pub fn explain(calls: &[Call], steps_max: u64) -> Verdict {
    let mut search =
        Search { calls, done: vec![false; calls.len()], seen: HashSet::new(), steps_left: steps_max, best: (0, None) };
    match search.go(&Model::default(), 0) {
        Some(true) => Verdict::Explained,
        None => Verdict::GaveUp,
        Some(false) => {
            let stuck = search.best.1.map(|index| format!("{:?}", calls[index]));
            Verdict::Impossible(stuck.unwrap_or_default())
        }
    }
}

struct Search<'a> {
    calls: &'a [Call],
    done: Vec<bool>,
    seen: HashSet<(Vec<bool>, u64)>,
    steps_left: u64,
    /// The most calls that were explained, and one that could not follow them.
    best: (usize, Option<usize>),
}

impl Search<'_> {
    /// `None` when the steps ran out.
    fn go(&mut self, model: &Model, explained: usize) -> Option<bool> {
        let open = |search: &Self| {
            let returned = |index: &usize| search.calls[*index].returned.as_ref().map(|returned| returned.at);
            let open = (0..search.calls.len()).filter(|index| !search.done[*index]);
            open.filter_map(|index| returned(&index).map(|at| (at, index))).min()
        };
        let Some((horizon, first)) = open(self) else { return Some(true) };
        if explained >= self.best.0 {
            self.best = (explained, Some(first));
        }
        for index in self.candidates(horizon) {
            self.steps_left = self.steps_left.checked_sub(1)?;
            let call = &self.calls[index];
            let mut next = model.clone();
            let heard = call.returned.as_ref().map(|returned| &returned.answer);
            let said = match heard {
                Some(Answer::Said { said, .. }) => next.follow(&call.op, said),
                _ => next.step(&call.op),
            };
            if !agrees(heard, said, next.sequence != model.sequence) {
                continue;
            }
            self.done[index] = true;
            if self.seen.insert((self.done.clone(), next.fingerprint())) && self.go(&next, explained + 1)? {
                return Some(true);
            }
            self.done[index] = false;
        }
        Some(false)
    }

    /// Who may come next: those that returned, in the order in which they did, then those that never did.
    fn candidates(&self, horizon: u64) -> Vec<usize> {
        let may = |index: &usize| !self.done[*index] && self.calls[*index].called < horizon;
        let mut next: Vec<usize> = (0..self.calls.len()).filter(may).collect();
        next.sort_by_key(|index| self.calls[*index].returned.as_ref().map_or(u64::MAX, |returned| returned.at));
        next
    }
}

/// Whether what was heard is what the model says, step numbers aside. Who heard nothing agrees to whatever happened,
/// if it changed something; else it need not be looked at.
fn agrees(heard: Option<&Answer>, said: Said, changed: bool) -> bool {
    match heard {
        None => changed,
        Some(Answer::Said { said: heard, .. }) => unnumbered(heard.clone()) == unnumbered(said),
        Some(Answer::Repeated { changed: heard, .. }) => *heard == changed,
        Some(Answer::Stale) => true,
    }
}

fn unnumbered(said: Said) -> Said {
    match said {
        Said::Done { changed, outcome, woken, .. } => Said::Done { sequence: 0, changed, outcome, woken },
        other => other,
    }
}
