//! The line of waiters on one account, kept in the order of service.
//!
//! Every waiter is in the line of each account of which it wants more than it has. How much more is repeated there, so that
//! walking past those that do not fit costs no look at the subject itself.

use std::collections::BTreeMap;
use std::collections::btree_map;

use quantity::Amount;

use crate::charge::SubjectId;
use crate::terms::{Discipline, Place};

/// Most waiters on one account. A wake looks at each of them, and this many take some tens of milliseconds.
pub const WAITERS_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub slot: u32,
    pub need: Amount,
    pub discipline: Discipline,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiters: BTreeMap<Place, Waiter>,
    greedy: usize,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether anyone here may pass a better-placed waiter.
    pub fn has_greedy(&self) -> bool {
        self.greedy > 0
    }

    pub fn iter(&self) -> btree_map::Iter<'_, Place, Waiter> {
        self.waiters.iter()
    }

    pub fn get(&self, place: &Place) -> Option<&Waiter> {
        self.waiters.get(place)
    }

    pub fn ahead_of(&self, place: &Place) -> btree_map::Range<'_, Place, Waiter> {
        self.waiters.range(..place)
    }

    pub fn insert(&mut self, place: Place, waiter: Waiter) {
        self.greedy += usize::from(waiter.discipline == Discipline::Greedy);
        let replaced = self.waiters.insert(place, waiter);
        debug_assert!(replaced.is_none(), "a subject stands in a line once");
    }

    /// Whether it stood here.
    pub fn remove(&mut self, place: &Place) -> bool {
        let removed = self.waiters.remove(place);
        if let Some(waiter) = &removed {
            self.greedy -= usize::from(waiter.discipline == Discipline::Greedy);
        }
        removed.is_some()
    }

    /// The largest need of those ordered waiters ahead of a place that count: with less room than that, nobody behind may
    /// pass.
    pub fn ordered_need_ahead_of(&self, place: &Place, counts: impl Fn(SubjectId) -> bool) -> Amount {
        let ordered = self
            .ahead_of(place)
            .filter(|(ahead, waiter)| waiter.discipline == Discipline::Ordered && counts(ahead.subject));
        ordered.map(|(_, waiter)| waiter.need).max().unwrap_or(Amount::ZERO)
    }
}
