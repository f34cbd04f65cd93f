//! A service that does not answer is left alone for a while, a little longer each time.

use std::time::{Duration, Instant};

/// Failures in a row before it is left alone.
const FAILURES_MAX: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Whoever waits for an answer waits at most this much longer than the service takes to come back.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct Breaker {
    failures: u32,
    closed_until: Option<Instant>,
}

impl Breaker {
    /// Whether it may be asked now.
    pub fn lets(&self, now: Instant) -> bool {
        self.closed_until.is_none_or(|until| until <= now)
    }

    /// Whether it answered when it was asked last.
    pub fn is_well(&self) -> bool {
        self.failures == 0
    }

    pub fn answered(&mut self) {
        *self = Breaker::default();
    }

    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let Some(beyond) = self.failures.checked_sub(FAILURES_MAX) else { return };
        let pause = FIRST_PAUSE.saturating_mul(1 << beyond.min(8)).min(LONGEST_PAUSE);
        self.closed_until = Some(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_left_alone_after_some_failures_and_never_for_long() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.failed(now);
        breaker.failed(now);
        assert!(breaker.lets(now));
        breaker.failed(now);
        assert!(!breaker.lets(now) && breaker.lets(now + FIRST_PAUSE));
        for _ in 0..50 {
            breaker.failed(now);
        }
        assert!(!breaker.lets(now) && breaker.lets(now + LONGEST_PAUSE));
        breaker.answered();
        assert!(breaker.lets(now));
    }
}
