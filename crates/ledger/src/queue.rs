//! The line of waiters on one account, kept in the order of service.
//!
//! Every waiter is in the line of each account of which it wants more than it has. How much more is repeated there, so that
//! passing those that do not fit costs no look at the subject itself. Those who wait in order and those who are greedy are
//! kept apart: the former are looked at one after the other until one has to wait, of the latter only who fits.

use std::collections::BTreeMap;

use quantity::Amount;

use crate::charge::SubjectId;
use crate::greedy::Greedy;
use crate::terms::{Discipline, Place};

/// Most waiters on one account: a bound on memory. A wake looks at those that fit the account's room.
pub const WAITERS_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub slot: u32,
    pub need: Amount,
    pub discipline: Discipline,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pub ordered: BTreeMap<Place, Waiter>,
    pub greedy: Greedy,
    /// Nobody in it needs more, and nobody who was in it since somebody stands there did.
    pub largest: Amount,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.ordered.len() + self.greedy.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Place, &Waiter)> {
        let (mut ordered, mut greedy) = (self.ordered.iter().peekable(), self.greedy.iter().peekable());
        std::iter::from_fn(move || match (ordered.peek(), greedy.peek()) {
            (Some((one, _)), Some((other, _))) if one < other => ordered.next(),
            (Some(_), None) => ordered.next(),
            (_, _) => greedy.next(),
        })
    }

    pub fn get(&self, place: &Place) -> Option<&Waiter> {
        self.ordered.get(place).or_else(|| self.greedy.get(place))
    }

    pub fn ahead_of(&self, place: &Place) -> impl Iterator<Item = (&Place, &Waiter)> {
        self.iter().take_while(move |(ahead, _)| *ahead < place)
    }

    pub fn insert(&mut self, place: Place, waiter: Waiter) {
        debug_assert!(self.get(&place).is_none(), "a subject stands in a line once");
        self.largest = self.largest.max(waiter.need);
        match waiter.discipline {
            Discipline::Ordered => drop(self.ordered.insert(place, waiter)),
            Discipline::Greedy => self.greedy.insert(place, waiter),
        }
    }

    /// Whether it stood here.
    pub fn remove(&mut self, place: &Place) -> bool {
        self.ordered.remove(place).is_some() || self.greedy.remove(place)
    }

    /// The largest need of those ordered waiters ahead of a place that count: with less room than that, nobody behind may
    /// pass.
    pub fn ordered_need_ahead_of(&self, place: &Place, counts: impl Fn(SubjectId) -> bool) -> Amount {
        let ahead = self.ordered.range(..place).filter(|(ahead, _)| counts(ahead.subject));
        ahead.map(|(_, waiter)| waiter.need).max().unwrap_or(Amount::ZERO)
    }
}
