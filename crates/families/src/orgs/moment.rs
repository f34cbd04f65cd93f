//! The moment that commands and the scheduler go by. It does not go back: what is counted until some moment, such as the lease of a
//! session, would end before it began, and count for nothing, once a clock that was ahead is set right. It does not stand still
//! meanwhile either.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A clock that is set forward at once and never back: it goes on by itself until the clock on the wall has caught up.
#[derive(Debug, Default)]
pub struct Moment(Mutex<Option<(Instant, i64)>>);

impl Moment {
    pub const fn new() -> Moment {
        Moment(Mutex::new(None))
    }

    pub fn now_ms(&self, wall_ms: i64) -> i64 {
        self.at(Instant::now(), wall_ms)
    }

    fn at(&self, instant: Instant, wall_ms: i64) -> i64 {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((before, at_ms)) = *last else {
            *last = Some((instant, wall_ms));
            return wall_ms;
        };
        // Less than a millisecond is not lost: it is counted from where it began.
        let passed_ms = u64::try_from(instant.saturating_duration_since(before).as_millis()).unwrap_or(u64::MAX);
        let by_itself = at_ms.saturating_add(i64::try_from(passed_ms).unwrap_or(i64::MAX));
        if wall_ms > by_itself {
            *last = Some((instant, wall_ms));
            return wall_ms;
        }
        if let Some(counted) = before.checked_add(Duration::from_millis(passed_ms)) {
            *last = Some((counted, by_itself));
        }
        by_itself
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_set_forward_and_never_back_and_does_not_stand() {
        let (moment, begun) = (Moment::new(), Instant::now());
        let at = |ms: u64, wall_ms: i64| moment.at(begun + Duration::from_millis(ms), wall_ms);
        assert_eq!([at(0, 5_000), at(10, 5_010), at(20, 90_000)], [5_000, 5_010, 90_000]);
        // The clock is set right, a minute and more back.
        assert_eq!([at(30, 5_030), at(1_030, 6_030), at(1_030, 6_030)], [90_010, 91_010, 91_010]);
        // It catches up, when it does.
        assert_eq!([at(2_030, 100_000), at(2_040, 100_010)], [100_000, 100_010]);
    }

    #[test]
    fn looking_often_does_not_slow_it_down() {
        let (moment, begun) = (Moment::new(), Instant::now());
        moment.at(begun, 1_000_000);
        let last = (0..=10_000).map(|step| moment.at(begun + Duration::from_micros(step * 300), 0)).last();
        assert!(last.is_some_and(|last| (1_002_990..=1_003_000).contains(&last)), "{last:?}");
    }
}
