//! What could not be done and is tried again, later each time. Somebody who makes ten thousand objects whose deletion is refused
//! must not keep the server busy with them.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

const REST_MIN: Duration = Duration::from_millis(500);
const REST_MAX: Duration = Duration::from_secs(60);

pub struct Resting<Key> {
    due: BTreeSet<(Instant, Key)>,
    /// How often each failed in a row, and when it is due; none while it is being tried.
    known: HashMap<Key, (u32, Option<Instant>)>,
}

impl<Key> Default for Resting<Key> {
    fn default() -> Self {
        Resting { due: BTreeSet::new(), known: HashMap::new() }
    }
}

impl<Key: Clone + Eq + Hash + Ord> Resting<Key> {
    /// It failed once more, and rests twice as long as the last time.
    pub fn failed(&mut self, key: Key, now: Instant) {
        let failures = self.known.get(&key).map_or(0, |(failures, _)| *failures);
        self.forget(&key);
        let until = now + REST_MIN.saturating_mul(1 << failures.min(16)).min(REST_MAX);
        self.due.insert((until, key.clone()));
        self.known.insert(key, (failures + 1, Some(until)));
    }

    /// It went well, it changed, or it is gone.
    pub fn forget(&mut self, key: &Key) {
        if let Some((_, Some(until))) = self.known.remove(key) {
            self.due.remove(&(until, key.clone()));
        }
    }

    pub fn is_resting(&self, key: &Key) -> bool {
        self.known.get(key).is_some_and(|(_, until)| until.is_some())
    }

    /// Those that have rested long enough, the longest first, and no more than so many.
    pub fn take_due(&mut self, now: Instant, max: usize) -> Vec<Key> {
        let mut taken = Vec::new();
        while taken.len() < max && self.due.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, key)) = self.due.pop_first() else { break };
            if let Some((_, until)) = self.known.get_mut(&key) {
                *until = None;
            }
            taken.push(key);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_failing_is_tried_ever_more_seldom() {
        let (mut resting, start) = (Resting::default(), Instant::now());
        let mut now = start;
        let mut tries = 0;
        resting.failed("held", now);
        // Looked at twice a second for ten minutes.
        for _ in 0..1200 {
            now += Duration::from_millis(500);
            for key in resting.take_due(now, 10) {
                assert!(!resting.is_resting(&key));
                tries += 1;
                resting.failed(key, now);
                assert!(resting.is_resting(&key));
            }
        }
        assert!((12..20).contains(&tries), "{tries}");
        resting.forget(&"held");
        assert!(!resting.is_resting(&"held") && resting.take_due(now + REST_MAX, 10).is_empty());
        resting.failed("held", now);
        assert_eq!(resting.take_due(now + REST_MIN, 10), ["held"], "a new beginning");
    }

    #[test]
    fn a_crowd_is_tried_a_few_at_a_time_and_in_turn() {
        let (mut resting, start) = (Resting::default(), Instant::now());
        for key in 0..1000 {
            resting.failed(key, start);
        }
        resting.failed(5000, start + Duration::from_millis(1));
        let later = start + REST_MAX;
        let mut rounds = 0;
        while !resting.take_due(later, 10).contains(&5000) {
            rounds += 1;
        }
        assert_eq!(rounds, 100);
    }
}
