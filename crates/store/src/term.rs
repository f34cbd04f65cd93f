//! How long a writer may speak for the state without asking whether it still is the writer.
//!
//! A commit by a replaced writer is refused by the store. A read and a refusal write nothing, so nothing would refuse them:
//! a leader that slept through its replacement could answer from a past it does not know to be one. So whoever holds a
//! lease counts its time from before it was asked for, ends a little early, and says nothing after that until it is renewed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{Clock, MachineClock, Moment};

/// The share of a lease that is not counted on, because two clocks never run at quite the same rate.
const MARGIN: u32 = 10;

/// How often [`Term::doubted`] looks. Timers stand still while a machine sleeps, so the end is not slept up to.
const LOOK: Duration = Duration::from_millis(100);

/// The term of the one writer; cheap to clone. The default never ends: a store that cannot change hands needs no term.
#[derive(Clone, Debug, Default)]
pub struct Term(Option<Arc<Limited>>);

#[derive(Debug)]
struct Limited {
    clock: Arc<dyn Clock>,
    /// Until when, in milliseconds of the machine's life.
    until: AtomicU64,
    lost: watch::Sender<bool>,
}

impl Term {
    /// A term that lasts for `lease` from `asked`, the moment before the lease was asked for.
    pub fn new(asked: Moment, lease: Duration) -> Term {
        Term::by(Arc::new(MachineClock), asked, lease)
    }

    /// The same by this clock.
    pub fn by(clock: Arc<dyn Clock>, asked: Moment, lease: Duration) -> Term {
        let limited = Limited { clock, until: AtomicU64::new(0), lost: watch::Sender::new(false) };
        let term = Term(Some(Arc::new(limited)));
        term.renew(asked, lease);
        term
    }

    /// The lease was renewed, by a request sent at `asked`.
    pub fn renew(&self, asked: Moment, lease: Duration) {
        let Some(limited) = &self.0 else { return };
        limited.until.fetch_max(asked.after(lease - lease / MARGIN).milliseconds(), Ordering::AcqRel);
    }

    /// The lease is gone for good.
    pub fn lose(&self) {
        if let Some(limited) = &self.0 {
            limited.lost.send_replace(true);
        }
    }

    /// Whether somebody else may be the writer by now. It may turn out that nobody is: a renewal then ends the doubt.
    pub fn is_in_doubt(&self) -> bool {
        self.0.as_ref().is_some_and(|limited| limited.is_in_doubt_at(limited.clock.now()))
    }

    /// Whether the lease is gone for good.
    pub fn is_lost(&self) -> bool {
        self.0.as_ref().is_some_and(|limited| *limited.lost.borrow())
    }

    /// Returns when the term is in doubt; never, for a term without end.
    pub async fn doubted(&self) {
        if self.0.is_none() {
            std::future::pending().await
        }
        while !self.is_in_doubt() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns when the term is not, or no longer, in doubt; never, once it is lost.
    pub async fn cleared(&self) {
        while self.is_in_doubt() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns when the lease is gone for good; never, for a term without end.
    pub async fn lost(&self) {
        match &self.0 {
            None => std::future::pending().await,
            // The sender lives in `self`, so this does not fail.
            Some(limited) => drop(limited.lost.subscribe().wait_for(|lost| *lost).await),
        }
    }
}

impl Limited {
    fn is_in_doubt_at(&self, now: Moment) -> bool {
        *self.lost.borrow() || now.milliseconds() >= self.until.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Term {
        fn is_in_doubt_at(&self, now: Moment) -> bool {
            self.0.as_ref().is_some_and(|limited| limited.is_in_doubt_at(now))
        }
    }

    const LEASE: Duration = Duration::from_secs(10);

    fn later(start: Moment, seconds: u64) -> Moment {
        start.after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_term_ends_before_its_lease() {
        let start = Moment::now();
        let term = Term::new(start, LEASE);
        assert!(!term.is_in_doubt_at(later(start, 8)));
        assert!(term.is_in_doubt_at(later(start, 9)), "the last tenth is not counted on");
        assert!(!Term::default().is_in_doubt_at(later(start, 1_000_000)));
    }

    #[test]
    fn a_renewal_ends_the_doubt_and_a_late_answer_does_not_shorten_it() {
        let start = Moment::now();
        let term = Term::new(start, LEASE);
        assert!(term.is_in_doubt_at(later(start, 20)));
        term.renew(later(start, 19), LEASE);
        assert!(!term.is_in_doubt_at(later(start, 20)));
        term.renew(later(start, 5), LEASE);
        assert!(!term.is_in_doubt_at(later(start, 20)));
    }

    #[tokio::test]
    async fn a_lost_term_stays_lost() {
        let term = Term::new(Moment::now(), LEASE);
        assert!(!term.is_lost());
        term.clone().lose();
        term.lost().await;
        term.doubted().await;
        term.renew(Moment::now(), LEASE);
        assert!(term.is_in_doubt() && term.is_lost());
    }
}
