//! Who may still take how much of what all share and nobody is to fill alone, such as a journal that keeps a gibibyte: so much at once,
//! and in the long run so much each second. What somebody may not take any more is counted, and told with the next that he may.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Those who are kept in mind before those are forgotten that may take everything again.
const KEPT_MAX: usize = 1024;

/// By whoever is to be treated alike.
#[derive(Debug)]
pub struct Allowances {
    most: u64,
    per_second: u64,
    all: Mutex<HashMap<String, Allowance>>,
}

#[derive(Debug)]
struct Allowance {
    left: u64,
    at_ms: i64,
    /// What was only counted since something was taken.
    more: u64,
}

impl Allowance {
    fn refill(&mut self, most: u64, per_second: u64, now_ms: i64) {
        let seconds = now_ms.saturating_sub(self.at_ms) / 1000;
        if let Ok(past @ 1..) = u64::try_from(seconds) {
            self.left = self.left.saturating_add(past.saturating_mul(per_second)).min(most);
            self.at_ms += seconds * 1000;
        }
    }
}

impl Allowances {
    pub fn new(most: u64, per_second: u64) -> Allowances {
        Allowances { most, per_second, all: Mutex::default() }
    }

    /// Whether somebody may take so much, and then how often he could not since he last did. Whoever has anything left may: what is longer
    /// than that is taken off to the last bit.
    pub fn take(&self, who: &str, amount: u64, now_ms: i64) -> Option<u64> {
        let (most, per_second) = (self.most, self.per_second);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(who) {
            if all.len() >= KEPT_MAX {
                all.values_mut().for_each(|one| one.refill(most, per_second, now_ms));
                all.retain(|_, one| one.left < most || one.more > 0);
            }
            all.insert(who.to_owned(), Allowance { left: most, at_ms: now_ms, more: 0 });
        }
        let own = all.get_mut(who)?;
        own.refill(most, per_second, now_ms);
        if own.left == 0 {
            own.more += 1;
            return None;
        }
        own.left = own.left.saturating_sub(amount);
        Some(std::mem::take(&mut own.more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_without_end_gets_a_part_and_takes_nothing_from_others() {
        let shared = Allowances::new(10_000, 4);
        let take = |who: &str, second: i64| shared.take(who, 1, second * 1000);
        assert_eq!((0..100_000).filter_map(|_| take("loud", 0)).count(), 10_000);
        assert_eq!([take("quiet", 0), take("loud", 0), take("loud", 1)], [Some(0), None, Some(90_001)]);
        let hour =
            (1..=3600).flat_map(|second| std::iter::repeat_n(second, 100)).filter_map(|second| take("loud", second));
        assert_eq!(hour.count(), 3600 * 4 - 1);
        // Who is quiet again is forgotten; who has more to tell is not.
        assert_eq!(take("loud", 3600), None);
        for number in 0..10_000 {
            assert_eq!(take(&format!("o{number}"), 3601 + number), Some(0));
        }
        assert!(shared.all.lock().unwrap().len() <= KEPT_MAX);
        assert_eq!(take("loud", 20_000), Some(97));
    }

    #[test]
    fn what_is_longer_than_what_is_left_is_taken_once() {
        let shared = Allowances::new(100, 10);
        assert_eq!(
            [shared.take("a", 60, 0), shared.take("a", 60, 0), shared.take("a", 1, 999)],
            [Some(0), Some(0), None]
        );
        assert_eq!(shared.take("a", 1000, 1000), Some(1));
        // A clock that goes back gives nothing.
        assert_eq!(
            [shared.take("a", 1, 0), shared.take("a", 1, 1500), shared.take("a", 1, 2000)],
            [None, None, Some(2)]
        );
    }
}
