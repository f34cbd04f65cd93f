//! What becomes of watches when this replica may have been replaced.

use parking_lot::Mutex;
use store::Term;
use tokio_util::sync::CancellationToken;

/// Ends every open watch when the term is in doubt. A watch that stays open and silent looks like a world in which nothing
/// happens; one that ends makes its client ask again, and find the replica that leads.
pub struct Watches {
    term: Term,
    closing: CancellationToken,
    /// Those that are opened now.
    open: Mutex<CancellationToken>,
}

impl Watches {
    /// `closing` ends them as well.
    pub fn new(term: Term, closing: CancellationToken) -> Watches {
        let open = Mutex::new(closing.child_token());
        Watches { term, closing, open }
    }

    /// Cancelled when a watch that is about to be opened has to end. Asked for before the watch's first answer is made, so
    /// that no doubt is missed in between.
    pub fn ending(&self) -> CancellationToken {
        self.open.lock().clone()
    }

    /// Looks after them until the server closes; `doubted` is called at the beginning of every doubt.
    pub async fn run(&self, doubted: impl Fn()) {
        while !self.closing.is_cancelled() {
            tokio::select! {
                () = self.term.doubted() => {}
                () = self.closing.cancelled() => return,
            }
            doubted();
            tracing::warn!("this replica does not know whether it still leads: not ready, watches closed");
            let ended = std::mem::replace(&mut *self.open.lock(), self.closing.child_token());
            ended.cancel();
            tokio::select! {
                () = self.term.cleared() => tracing::info!("this replica still leads"),
                () = self.closing.cancelled() => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use store::Moment;

    use super::*;

    #[tokio::test]
    async fn watches_end_with_each_doubt_and_with_the_server() {
        let lease = Duration::from_secs(600);
        let (term, closing) = (Term::new(Moment::now(), Duration::ZERO), CancellationToken::new());
        let watches = std::sync::Arc::new(Watches::new(term.clone(), closing.clone()));
        let first = watches.ending();
        let doubts = std::sync::Arc::new(AtomicUsize::new(0));
        let (run, counted) = (watches.clone(), doubts.clone());
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let running = tokio::spawn(async move { run.run(count).await });
        first.cancelled().await;
        term.renew(Moment::now(), lease);
        let second = watches.ending();
        assert!(!second.is_cancelled());
        closing.cancel();
        second.cancelled().await;
        running.await.unwrap();
        assert_eq!(doubts.load(Ordering::Relaxed), 1);
    }
}
