//! A range of numbers, each with at most one holder.

use std::collections::HashMap;

use super::Place;

/// Numbers from `first` to `last`, given out in turn, so that one just released is not the next one given.
pub(super) struct Pool {
    first: u32,
    last: u32,
    /// Numbers below are given out only when nothing else is left.
    dynamic_from: u32,
    next: u32,
    holders: HashMap<u32, Holder>,
}

struct Holder {
    place: Place,
    stored: bool,
    /// Writes under way that want the number for the same place. Two at once can be: of one Service, or of one that is
    /// being replaced by another of its name. Only one of them will be stored.
    reservations: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    Taken,
    OutOfRange,
}

impl Pool {
    /// `kept` numbers at the start are for those who name one.
    pub fn new(first: u32, last: u32, kept: u32) -> Pool {
        let dynamic_from = first.saturating_add(kept).min(last);
        Pool { first, last, dynamic_from, next: dynamic_from, holders: HashMap::new() }
    }

    pub fn reserve(&mut self, number: u32, place: &Place) -> Result<(), Refused> {
        if !(self.first..=self.last).contains(&number) {
            return Err(Refused::OutOfRange);
        }
        let holder = self.holders.entry(number).or_insert_with(|| Holder {
            place: place.clone(),
            stored: false,
            reservations: 0,
        });
        if holder.place != *place {
            return Err(Refused::Taken);
        }
        holder.reservations = holder.reservations.saturating_add(1);
        Ok(())
    }

    /// Reserves a free number; none when all are taken.
    pub fn next(&mut self, place: &Place) -> Option<u32> {
        let free = |number: &u32| !self.holders.contains_key(number);
        let number = (self.next..=self.last)
            .chain(self.dynamic_from..self.next)
            .find(free)
            .or_else(|| (self.first..self.dynamic_from).find(free))?;
        if number >= self.dynamic_from {
            self.next = if number == self.last { self.dynamic_from } else { number + 1 };
        }
        self.holders.insert(number, Holder { place: place.clone(), stored: false, reservations: 1 });
        Some(number)
    }

    pub fn unreserve(&mut self, number: u32) {
        if let Some(holder) = self.holders.get_mut(&number) {
            holder.reservations = holder.reservations.saturating_sub(1);
            self.drop_idle(number);
        }
    }

    /// Notes that a stored Service had some numbers and now has others. What is stored is a fact: a number outside the
    /// range (from before the range was changed) is nobody's business, one that two Services have stays the first one's.
    /// Both lists are sorted.
    pub fn store(&mut self, place: &Place, before: &[u32], now: &[u32]) {
        for number in before.iter().filter(|number| now.binary_search(number).is_err()) {
            if let Some(holder) = self.holders.get_mut(number).filter(|holder| holder.place == *place) {
                holder.stored = false;
                self.drop_idle(*number);
            }
        }
        for number in now.iter().filter(|number| (self.first..=self.last).contains(*number)) {
            let fresh = || Holder { place: place.clone(), stored: true, reservations: 0 };
            let holder = self.holders.entry(*number).or_insert_with(fresh);
            if holder.place == *place {
                holder.stored = true;
            }
        }
    }

    fn drop_idle(&mut self, number: u32) {
        if self.holders.get(&number).is_some_and(|holder| !holder.stored && holder.reservations == 0) {
            self.holders.remove(&number);
        }
    }

    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.holders.len()
    }
}
