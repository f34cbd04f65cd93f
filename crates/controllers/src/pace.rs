//! How often an object is looked at. Two who disagree about an object, or one who disagrees with itself, must not keep the server
//! busy.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a failed object rests. Conflicts are the usual reason and gone by then; what keeps failing rests twice as long each
/// time.
const RETRY_AFTER: Duration = Duration::from_millis(200);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Looks at one object in one second. Changes that come faster are seen together.
const LOOKS_MAX: u32 = 20;
pub const SECOND: Duration = Duration::from_secs(1);
/// Objects remembered before those at rest are forgotten.
const REMEMBERED_MAX: usize = 4096;

/// How often each object was looked at lately, and how often in a row it failed.
#[derive(Default)]
pub struct Pace {
    objects: Mutex<HashMap<(String, String), Looks>>,
}

#[derive(Clone, Copy)]
struct Looks {
    since: Instant,
    count: u32,
    failures: u32,
}

impl Pace {
    /// Counts a look; how long to wait instead, if there were enough of them.
    pub fn look(&self, namespace: &str, name: &str, now: Instant) -> Option<Duration> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if objects.len() >= REMEMBERED_MAX {
            objects.retain(|_, looks| now.duration_since(looks.since) < SECOND || looks.failures > 0);
        }
        if objects.len() >= 2 * REMEMBERED_MAX {
            objects.clear();
        }
        let fresh = Looks { since: now, count: 0, failures: 0 };
        let looks = objects.entry((namespace.to_owned(), name.to_owned())).or_insert(fresh);
        let passed = now.duration_since(looks.since);
        if passed >= SECOND {
            *looks = Looks { failures: looks.failures, ..fresh };
        } else if looks.count >= LOOKS_MAX {
            return Some(SECOND - passed);
        }
        looks.count += 1;
        None
    }

    pub fn succeeded(&self, namespace: &str, name: &str) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(looks) = objects.get_mut(&(namespace.to_owned(), name.to_owned())) {
            looks.failures = 0;
        }
    }

    /// How long an object rests that has failed once more.
    pub fn failed(&self, namespace: &str, name: &str) -> Duration {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(looks) = objects.get_mut(&(namespace.to_owned(), name.to_owned())) else { return RETRY_AFTER };
        looks.failures = looks.failures.saturating_add(1);
        RETRY_AFTER.saturating_mul(1 << (looks.failures - 1).min(16)).min(RETRY_AFTER_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_looked_at_so_often_and_no_more() {
        let (pace, start) = (Pace::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let looks = (0..2_800).filter(|ms| pace.look("n", "busy", at(*ms / 3)).is_none()).count();
        assert_eq!(looks, 20);
        assert_eq!(pace.look("n", "busy", at(990)), Some(Duration::from_millis(10)));
        assert_eq!(pace.look("n", "other", at(990)), None);
        assert_eq!(pace.look("n", "busy", at(1_000)), None);
    }

    #[test]
    fn what_keeps_failing_rests_longer_each_time() {
        let (pace, now) = (Pace::default(), Instant::now());
        pace.look("n", "x", now);
        let rests: Vec<u128> = (0..12).map(|_| pace.failed("n", "x").as_millis()).collect();
        assert_eq!(rests[..4], [200, 400, 800, 1_600]);
        assert_eq!(rests[11], 60_000);
        pace.succeeded("n", "x");
        assert_eq!(pace.failed("n", "x").as_millis(), 200);
    }
}
