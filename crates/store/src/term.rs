//! How long a writer may speak for the state without asking whether it still is the writer.
//!
//! A commit by a replaced writer is refused by the store. A read and a refusal write nothing, so nothing would refuse them:
//! a leader that slept through its replacement could answer from a past it does not know to be one. So whoever holds a
//! lease counts its time from before it was asked for, ends a little early, and says nothing after that until it is renewed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// The share of a lease that is not counted on, because two clocks never run at quite the same rate.
const MARGIN: u32 = 10;

/// The term of the one writer; cheap to clone. The default never ends: a store that cannot change hands needs no term.
#[derive(Clone, Debug, Default)]
pub struct Term(Option<Arc<Limited>>);

#[derive(Debug)]
struct Limited {
    began: Instant,
    /// Until when, in milliseconds after `began`.
    until: AtomicU64,
    lost: watch::Sender<bool>,
}

impl Term {
    /// A term that lasts for `lease` from `asked`, the moment before the lease was asked for.
    pub fn new(asked: Instant, lease: Duration) -> Term {
        let limited = Limited { began: asked, until: AtomicU64::new(0), lost: watch::Sender::new(false) };
        let term = Term(Some(Arc::new(limited)));
        term.renew(asked, lease);
        term
    }

    /// The lease was renewed, by a request sent at `asked`.
    pub fn renew(&self, asked: Instant, lease: Duration) {
        let Some(limited) = &self.0 else { return };
        let until = asked.saturating_duration_since(limited.began) + (lease - lease / MARGIN);
        limited.until.fetch_max(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    /// The lease is gone for good.
    pub fn lose(&self) {
        if let Some(limited) = &self.0 {
            limited.lost.send_replace(true);
        }
    }

    /// Whether somebody else may be the writer by now. It may turn out that nobody is: a renewal then ends the doubt.
    pub fn is_in_doubt(&self) -> bool {
        self.0.as_ref().is_some_and(|limited| {
            *limited.lost.borrow()
                || limited.began.elapsed().as_millis() >= u128::from(limited.until.load(Ordering::Acquire))
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_before_its_lease() {
        let lease = Duration::from_secs(10);
        let begun = |ago: u64| Term::new(Instant::now() - Duration::from_millis(ago), lease);
        assert!(!begun(8_000).is_in_doubt());
        assert!(begun(9_500).is_in_doubt(), "the last tenth is not counted on");
        assert!(!Term::default().is_in_doubt());
    }

    #[test]
    fn a_renewal_ends_the_doubt_and_a_late_answer_does_not_shorten_it() {
        let start = Instant::now() - Duration::from_secs(20);
        let term = Term::new(start, Duration::from_secs(10));
        assert!(term.is_in_doubt());
        term.renew(start + Duration::from_secs(19), Duration::from_secs(10));
        assert!(!term.is_in_doubt());
        term.renew(start + Duration::from_secs(5), Duration::from_secs(10));
        assert!(!term.is_in_doubt());
    }

    #[tokio::test]
    async fn a_lost_term_stays_lost() {
        let term = Term::new(Instant::now(), Duration::from_secs(10));
        term.clone().lose();
        term.lost().await;
        term.renew(Instant::now(), Duration::from_secs(10));
        assert!(term.is_in_doubt());
    }
}
